"""Adagrad, Adadelta and RMSprop: steps by the squares of earlier gradients."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from lucid.docstrings import like
from lucid.ir.types import f64
from lucid.optim.adam import Adam
from lucid.optim.groups import ParamGroup
from lucid.optim.hyper_parameters import COMMON, hyper_parameters, nonnegative, only
from lucid.optim.optimizer import Maker, Optimizer, Params, decayed, step_count, zeros_like
from lucid.tensor.core import of_array
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


@like(Adam)
class Adagrad(Optimizer):
    """param -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps), with s the sum of g * g.

    Reference: Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and
    Stochastic Optimization", 2011.

    Args:
        lr_decay: how the rate falls with the steps.
        initial_accumulator_value: what the sum begins with.
    """

    _ranges = COMMON | {
        "lr_decay": nonnegative("lr_decay value"),
        "initial_accumulator_value": nonnegative("initial_accumulator_value value"),
    }

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, hyper_parameters(locals()))
        for group in self.param_groups:
            for parameter in group["params"]:
                self._prepare(group, parameter)

    def _state_makers(self, group: ParamGroup, parameter: Tensor) -> dict[str, Maker]:
        start = group.raw("initial_accumulator_value")
        return {
            "step": step_count,
            "sum": lambda p: of_array(np.full(tuple(p.shape), start, p.dtype.numpy)),
        }

    def _update(self, group: ParamGroup, parameter: Tensor, gradient: Tensor) -> None:
        state = self.state[parameter]
        step, total = state["step"], state["sum"]
        _, gradient = decayed(group, parameter, gradient)
        rate = group["lr"] / (1 + (step.to(f64) - 1) * group["lr_decay"])
        write_(total, total + gradient * gradient)
        size = total.sqrt() + group["eps"]
        write_(parameter, parameter - gradient * rate.to(parameter.dtype) / size)


@like(Adam)
class Adadelta(Optimizer):
    """param -= lr * d, with d = g * rms(earlier d) / rms(g), both means running with rate `rho`.

    Reference: Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012.

    Args:
        rho: how much of both means stays at each step.

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


@like(Adam)
class RMSprop(Optimizer):
    """param -= lr * g / (sqrt(v) + eps), with the running mean v of the gradient's square.

    Reference: Tieleman and Hinton, "Lecture 6.5", 2012; for the centered form Graves, "Generating
    Sequences With Recurrent Neural Networks", 2013.

    Args:
        alpha: how much of v stays at each step.
        momentum: the quotient is summed with this decay.
        centered: v less the square of the gradient's running mean.
    """

    _ranges = COMMON | {"alpha": nonnegative("alpha value")}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, hyper_parameters(locals()))

    def _state_makers(self, group: ParamGroup, parameter: Tensor) -> dict[str, Maker]:
        names = ["square_avg"] + ["momentum_buffer"] * group.is_nonzero("momentum")
        names += ["grad_avg"] * group["centered"]
        return {"step": step_count, **dict.fromkeys(names, zeros_like)}

    def _update(self, group: ParamGroup, parameter: Tensor, gradient: Tensor) -> None:
        state, alpha = self.state[parameter], group["alpha"]
        _, gradient = decayed(group, parameter, gradient)
        square = state["square_avg"]
        write_(square, square * alpha + gradient * (1 - alpha) * gradient)
        variance = square
        if group["centered"]:
            mean = state["grad_avg"]
            write_(mean, mean + (gradient - mean) * (1 - alpha))
            variance = square - mean * mean
        size = variance.sqrt() + group["eps"]
        if group.is_nonzero("momentum"):
            total = state["momentum_buffer"]
            write_(total, total * group["momentum"] + gradient / size)
            write_(parameter, parameter - total * group["lr"])
        else:
            write_(parameter, parameter - gradient * group["lr"] / size)
