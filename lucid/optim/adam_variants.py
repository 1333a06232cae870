"""Adamax, NAdam and RAdam: Adam with other second moments, momenta, or a rectified start."""

from __future__ import annotations

from typing import ClassVar

import lucid
from lucid.docstrings import like
from lucid.ir.types import f64
from lucid.optim.adam import Adam
from lucid.optim.groups import ParamGroup
from lucid.optim.hyper_parameters import COMMON, hyper_parameters, nonnegative
from lucid.optim.optimizer import Optimizer, Params, decayed, ones, step_count, zeros_like
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


@like(Adam)
class Adamax(Optimizer):
    """Adam whose second moment is a decaying maximum of |gradient|.

    Reference: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, section 7.
    """

    _ranges = COMMON
    _state: ClassVar = {"step": step_count, "exp_avg": zeros_like, "exp_inf": zeros_like}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, hyper_parameters(locals()))

    def _update(self, group: ParamGroup, parameter: Tensor, gradient: Tensor) -> None:
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        step, mean, largest = state["step"], state["exp_avg"], state["exp_inf"]
        value, gradient = decayed(group, parameter, gradient)
        write_(mean, mean * beta1 + gradient * (1 - beta1))
        write_(largest, lucid.maximum(largest * beta2, gradient.abs() + group["eps"]))
        rate = (group["lr"] / (1 - beta1 ** step.to(f64))).to(parameter.dtype)
        write_(parameter, value - mean * rate / largest)


@like(Adamax)
class NAdam(Optimizer):
    """Adam with Nesterov momentum, whose rate rises by the schedule of `momentum_decay`.

    Reference: Dozat, "Incorporating Nesterov Momentum into Adam", 2016.

    Args:
        momentum_decay: how its schedule rises. Default: 0.004.
        decoupled_weight_decay: scale the parameter instead, by 1 - lr * weight_decay. Default:
            False.
    """

    _ranges = COMMON | {"momentum_decay": nonnegative("momentum_decay value")}
    _state: ClassVar = Adam._state | {"mu_product": ones}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, hyper_parameters(locals()))

    def _update(self, group: ParamGroup, parameter: Tensor, gradient: Tensor) -> None:
        state, (beta1, beta2), lr = self.state[parameter], group["betas"], group["lr"]
        step, product = state["step"], state["mu_product"]
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        value, gradient = decayed(group, parameter, gradient, group["decoupled_weight_decay"])
        count, fall = step.to(f64), group["momentum_decay"]
        now = beta1 * (1 - 0.5 * 0.96 ** (count * fall))
        later = beta1 * (1 - 0.5 * 0.96 ** ((count + 1) * fall))
        write_(product, product * now.to(product.dtype))
        write_(mean, mean * beta1 + gradient * (1 - beta1))
        write_(square, square * beta2 + gradient * (1 - beta2) * gradient)
        dtype, total = parameter.dtype, product.to(f64)
        size = (square / (1 - beta2**count).to(dtype)).sqrt() + group["eps"]
        from_gradient = (lr * (1 - now) / (1 - total)).to(dtype)
        from_mean = (lr * later / (1 - total * later)).to(dtype)
        write_(parameter, value - (gradient * from_gradient + mean * from_mean) / size)


@like(NAdam)
class RAdam(Optimizer):
    """Adam that leaves its second moment out until its variance is bounded, and rectifies it then.

    Reference: Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", 2020.
    """

    _ranges = COMMON
    _state = Adam._state

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, hyper_parameters(locals()))

    def _update(self, group: ParamGroup, parameter: Tensor, gradient: Tensor) -> None:
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        step, mean, square = state["step"], state["exp_avg"], state["exp_avg_sq"]
        value, gradient = decayed(group, parameter, gradient, group["decoupled_weight_decay"])
        write_(mean, mean * beta1 + gradient * (1 - beta1))
        write_(square, square * beta2 + gradient * (1 - beta2) * gradient)
        count, dtype = step.to(f64), parameter.dtype
        known, decay = 1 - beta2**count, beta2**count
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * count * decay / known
        bounded = length > 5
        ratio = (length - 4) * (length - 2) / ((longest - 4) * (longest - 2))
        rectifier = lucid.where(bounded, ratio * longest / length, 1.0).sqrt()
        adapted = (rectifier * known.sqrt()).to(dtype) / (square.sqrt() + group["eps"])
        rate = (group["lr"] / (1 - beta1**count)).to(dtype)
        write_(parameter, value - mean * rate * lucid.where(bounded, adapted, 1.0))
