"""Rprop."""

from __future__ import annotations

from typing import Any

import numpy as np

import lucid
from lucid.docstrings import like
from lucid.ir.errors import OptionError
from lucid.optim.adam import Adam
from lucid.optim.groups import ParamGroup
from lucid.optim.hyper_parameters import COMMON, floats, hyper_parameters
from lucid.optim.optimizer import Maker, Optimizer, Params, step_count, zeros_like
from lucid.tensor.core import of_array
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


def _etas(values: Any) -> tuple[float, ...]:
    if not 0.0 < values[0] < 1.0 < values[1]:
        raise OptionError(f"Invalid eta values: {values[0]}, {values[1]}")
    return floats(values)


@like(Adam)
class Rprop(Optimizer):
    """Each element moves against its gradient's sign by a step of its own.

    Reference: Riedmiller and Braun, "A Direct Adaptive Method for Faster Backpropagation Learning:
    The RPROP Algorithm", 1993.

    Args:
        etas: what the step is multiplied with when the sign has changed, and when it hasn't; after
            a change the element waits once.
        step_sizes: the limits of a step, which starts as `lr`.

    Raises:
        OptionError: `etas` aren't below and above 1.
    """

    _ranges = COMMON | {"etas": _etas, "step_sizes": floats}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, hyper_parameters(locals()))

    def _state_makers(self, group: ParamGroup, parameter: Tensor) -> dict[str, Maker]:
        rate = float(group.raw("lr"))
        return {
            "step": step_count,
            "prev": zeros_like,
            "step_size": lambda p: of_array(np.full(tuple(p.shape), rate, p.dtype.numpy)),
        }

    def _update(self, group: ParamGroup, parameter: Tensor, gradient: Tensor) -> None:
        state, (down, up), (least, most) = self.state[parameter], group["etas"], group["step_sizes"]
        before, size = state["prev"], state["step_size"]
        agreement = gradient * before
        one = lucid.ones_like(size)
        factor = lucid.where(agreement > 0, one * up, lucid.where(agreement < 0, one * down, one))
        write_(size, (size * factor).clamp(least, most))
        gradient = lucid.where(agreement < 0, 0.0, gradient)
        write_(parameter, parameter - gradient.sign() * size)
        write_(before, gradient)
