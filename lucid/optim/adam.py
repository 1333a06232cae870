"""Adam and its variants: other decays, second moments, momenta, or a rectified start."""

from __future__ import annotations

from typing import Any, ClassVar

import lucid
from lucid.docstrings import like
from lucid.ir.errors import OptionError
from lucid.ir.types import f64
from lucid.optim.groups import ParamGroup
from lucid.optim.hyper_parameters import COMMON, hyper_parameters, nonnegative
from lucid.optim.optimizer import Maker, Optimizer, Params, decayed, ones, step_count, zeros_like
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


class Adam(Optimizer):
    """param -= lr * m / (sqrt(v) + eps), with running means m of the gradient and v of its square.

    Both means are corrected for starting at zero.

    Reference: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015.

    Args:
        betas: how much of the two running means stays at each step.
        weight_decay: the parameter times this is added to the gradient.
        amsgrad: divide by the greatest second moment so far.
        foreach: True, False or None; the update is the same.
        maximize: go up instead of down.
        capturable: True or False; the update is the same.
        differentiable: False: an update has no history.
        fused: True, False or None; the update is the same.
        decoupled_weight_decay: scale the parameter instead, by 1 - lr * weight_decay.

    >>> w = lucid.tensor([1.0], requires_grad=True)
    >>> opt = lucid.optim.Adam([w])
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> w.item() < 1.0
    True
    """

    _ranges = COMMON
    _state: ClassVar = {"step": step_count, "exp_avg": zeros_like, "exp_avg_sq": zeros_like}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(params, hyper_parameters(locals()))

    def _state_makers(self, group: ParamGroup, parameter: Tensor) -> dict[str, Maker]:
        return self._state | ({"max_exp_avg_sq": zeros_like} if group["amsgrad"] else {})

    def _update(self, group: ParamGroup, parameter: Tensor, gradient: Tensor) -> None:
        state, (beta1, beta2), lr = self.state[parameter], group["betas"], group["lr"]
        count, mean, square = state["step"].to(f64), state["exp_avg"], state["exp_avg_sq"]
        value, gradient = decayed(group, parameter, gradient, group["decoupled_weight_decay"])
        write_(mean, mean * beta1 + gradient * (1 - beta1))
        write_(square, square * beta2 + gradient * (1 - beta2) * gradient)
        size = (lr / (1 - beta1**count)).to(parameter.dtype)
        correction = (1 - beta2**count).sqrt().to(parameter.dtype)
        if group["amsgrad"]:
            largest = state["max_exp_avg_sq"]
            write_(largest, lucid.maximum(largest, square))
            square = largest
        denominator = square.sqrt() / correction + group["eps"]
        write_(parameter, value - mean * size / denominator)


@like(Adam)
class AdamW(Adam):
    """Adam with decoupled weight decay: the parameter is scaled by 1 - lr * weight_decay.

    Reference: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.

    Args:
        weight_decay: the parameter is scaled by 1 - lr times this.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        # not Adam's: the one hyper-parameter more is no argument here
        Optimizer.__init__(
            self, params, hyper_parameters(locals()) | {"decoupled_weight_decay": True}
        )


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
        momentum_decay: how its schedule rises.
        decoupled_weight_decay: scale the parameter instead, by 1 - lr * weight_decay.
    """

    _ranges = COMMON | {"momentum_decay": nonnegative("momentum_decay value")}
    _state: ClassVar = {"step": step_count, "mu_product": ones} | Adam._state

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


class SparseAdam(Optimizer):
    """Raises `OptionError`: gradients are never sparse here, and this one takes no others.

    Args:
        args, kwargs: not looked at.

    >>> lucid.optim.SparseAdam([lucid.ones(1)])
    Traceback (most recent call last):
    lucid.ir.errors.OptionError: SparseAdam does not support dense gradients, and gradients ...
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise OptionError(
            "SparseAdam does not support dense gradients, and gradients are never sparse here\n"
            "hint: lucid.optim.Adam; it also moves the rows of an embedding that got no gradient"
        )
