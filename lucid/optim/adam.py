"""Adam, and AdamW with its decoupled weight decay."""

from __future__ import annotations

from typing import ClassVar

import lucid
from lucid.docstrings import like
from lucid.ir.types import f64
from lucid.optim.groups import ParamGroup
from lucid.optim.hyper_parameters import COMMON, hyper_parameters
from lucid.optim.optimizer import Maker, Optimizer, Params, decayed, step_count, zeros_like
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


class Adam(Optimizer):
    """param -= lr * m / (sqrt(v) + eps), with running means m of the gradient and v of its square.

    Both means are corrected for starting at zero.

    Reference: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015.

    Args:
        betas: how much of the two running means stays at each step. Default: (0.9, 0.999).
        weight_decay: the parameter times this is added to the gradient. Default: 0.0.
        amsgrad: divide by the greatest second moment so far. Default: False.
        foreach: True, False or None; the update is the same.
        maximize: go up instead of down. Default: False.
        capturable: True or False; the update is the same. Default: False.
        differentiable: False: an update has no history. Default: False.
        fused: True, False or None; the update is the same.
        decoupled_weight_decay: scale the parameter instead, by 1 - lr * weight_decay. Default:
            False.

    Example:
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
        weight_decay: the parameter is scaled by 1 - lr times this. Default: 0.01.
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
