"""Adadelta."""

from __future__ import annotations

from typing import ClassVar

from lucid.docstrings import like
from lucid.optim.adam import Adam
from lucid.optim.groups import ParamGroup
from lucid.optim.hyper_parameters import COMMON, hyper_parameters, only
from lucid.optim.optimizer import Optimizer, Params, decayed, step_count, zeros_like
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


@like(Adam)
class Adadelta(Optimizer):
    """param -= lr * d, with d = g * rms(earlier d) / rms(g), both means running with rate `rho`.

    Reference: Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012.

    Args:
        rho: how much of both means stays at each step. Default: 0.9.

    Raises:
        OptionError: `rho` is outside of [0, 1].
    """

    _ranges = COMMON | {"rho": only(lambda rho: 0.0 <= rho <= 1.0, "Invalid rho value: {}")}
    _state: ClassVar = {"step": step_count, "square_avg": zeros_like, "acc_delta": zeros_like}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, hyper_parameters(locals()))

    def _update(self, group: ParamGroup, parameter: Tensor, gradient: Tensor) -> None:
        state, rho, eps = self.state[parameter], group["rho"], group["eps"]
        square, moved = state["square_avg"], state["acc_delta"]
        _, gradient = decayed(group, parameter, gradient)
        write_(square, square * rho + gradient * (1 - rho) * gradient)
        delta = (moved + eps).sqrt() / (square + eps).sqrt() * gradient
        write_(moved, moved * rho + delta * (1 - rho) * delta)
        write_(parameter, parameter - delta * group["lr"])
