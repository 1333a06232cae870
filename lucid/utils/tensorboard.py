"""Curves and histograms for TensorBoard: tensorboardX's writer, which takes tensors here.

Needs `pip install "lucid-compiler[tensorboard]"`; pages are shown by `tensorboard --logdir runs`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

try:
    import tensorboardX
except ModuleNotFoundError as error:
    hint = "\nhint: pip install tensorboardX"
    raise ModuleNotFoundError(f"{error.msg}{hint}", name=error.name) from None

from lucid.tensor.tensor import Tensor
from lucid.utils._pytree import tree_map

__all__ = ["SummaryWriter"]


def _taking_tensors(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map(_as_array, (args, kwargs))
        return method(*args, **kwargs)

    return call


def _as_array(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, Tensor) else value


class SummaryWriter(tensorboardX.SummaryWriter):  # type: ignore[misc]  # it has no types
    """Writes what `tensorboardX.SummaryWriter` does, with the same arguments, to a folder.

    Tensors may stand wherever arrays may. Within a compiled step a value is written at every call.

    >>> with SummaryWriter("runs/first") as writer:  # doctest: +SKIP
    ...     writer.add_scalar("loss", lucid.tensor(0.5), global_step=0)
    """


for _name, _method in vars(tensorboardX.SummaryWriter).items():
    if _name.startswith("add_"):
        setattr(SummaryWriter, _name, _taking_tensors(_method))
