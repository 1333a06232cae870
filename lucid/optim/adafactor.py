"""Adafactor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import lucid
from lucid.docstrings import like
from lucid.optim.adam import Adam
from lucid.optim.groups import ParamGroup
from lucid.optim.hyper_parameters import COMMON, hyper_parameters, nonnegative, only
from lucid.optim.optimizer import Maker, Optimizer, Params, step_count, zeros_like
from lucid.tensor.core import of_array
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


def _epsilons(values: Any) -> tuple[Any, Any]:
    first, second = values
    nonnegative("epsilon1")(0.0 if first is None else first)
    return first, nonnegative("epsilon2")(second)


@like(Adam)
class Adafactor(Optimizer):
    """A step of a size relative to the parameter's, along g / sqrt(v).

    v, the running mean of the gradient's square, is kept as the product of its means over rows and
    columns where a parameter has several axes.

    Reference: Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost",
    2018.

    Args:
        beta2_decay: how the mean of squares forgets: 1 - step ** beta2_decay.
        eps: the least square, and the least size of a parameter.
        d: steps are shortened to this root mean square.
        weight_decay: decoupled, as that of `AdamW`.

    Raises:
        OptionError: a number is out of range.
    """

    _ranges = COMMON | {
        "eps": _epsilons,
        "beta2_decay": only(lambda decay: decay <= 0.0, "beta2_decay should be <= 0 but is: {}"),
        "d": only(lambda d: d >= 1.0, "Clipping threshold d should be >= 1 but is: {}"),
    }
    _sums = True

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, hyper_parameters(locals()))

    def _state_makers(self, group: ParamGroup, parameter: Tensor) -> dict[str, Maker]:
        if parameter.ndim < 2:
            return {"step": step_count, "variance": zeros_like}
        return {"step": step_count, "row_var": _zero_rows, "col_var": _zero_columns}

    def _update(self, group: ParamGroup, parameter: Tensor, gradient: Tensor) -> None:
        state = self.state[parameter]
        least, smallest = group["eps"]
        if least is None:
            least = lucid.finfo(parameter.dtype).eps
        step = state["step"].to(parameter.dtype)
        rate = lucid.minimum(step**-0.5, step * 0 + group["lr"])
        rate = rate * (_size(parameter)).clamp(min=smallest)
        if group.is_nonzero("weight_decay"):
            write_(parameter, parameter * (1 - group["lr"] * group["weight_decay"]))
        variance = _moved_variance(state, gradient, step ** group["beta2_decay"], least)
        update = gradient * variance.clamp(min=least * least).rsqrt()
        limited = (_size(update) / group["d"]).clamp(min=1.0)
        write_(parameter, parameter - update * (rate / limited))


def _moved_variance(state: Any, gradient: Tensor, part: Tensor, least: float) -> Tensor:
    """Move the running means by `part` towards the gradient's square, and give what they stand for.

    Shapes: rows (…, n, 1), columns (…, 1, m) for a gradient (…, n, m).
    """
    square = gradient * gradient
    if gradient.ndim < 2:
        write_(state["variance"], _moved(state["variance"], square, part))
        kept: Tensor = state["variance"]
        return kept
    rows, columns = state["row_var"], state["col_var"]
    write_(rows, _moved(rows, square.mean(-1, keepdim=True), part))
    write_(columns, _moved(columns, square.mean(-2, keepdim=True), part))
    product: Tensor = rows * columns / rows.mean(-2, keepdim=True).clamp(min=least)
    return product


def _moved(mean: Tensor, target: Tensor, part: Tensor) -> Tensor:
    return mean + (target - mean) * part


def _size(x: Tensor) -> Tensor:
    """The root of the mean square."""
    return x.norm(2) / math.sqrt(x.numel())


def _zero_rows(parameter: Tensor) -> Tensor:
    return of_array(np.zeros((*parameter.shape[:-1], 1), parameter.dtype.numpy))


def _zero_columns(parameter: Tensor) -> Tensor:
    shape = (*parameter.shape[:-2], 1, parameter.shape[-1])
    return of_array(np.zeros(shape, parameter.dtype.numpy))
