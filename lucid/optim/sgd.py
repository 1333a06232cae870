"""Stochastic gradient descent."""

from __future__ import annotations

import numpy as np

import lucid
from lucid.docstrings import like
from lucid.ir.errors import OptionError
from lucid.ir.types import f32, f64
from lucid.optim.adam import Adam
from lucid.optim.groups import ParamGroup
from lucid.optim.hyper_parameters import COMMON, hyper_parameters
from lucid.optim.optimizer import Maker, Optimizer, Params, decayed, ones, step_count, zeros_like
from lucid.tensor.core import of_array
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


@like(Adam)
class SGD(Optimizer):
    """param -= lr * v, where v is the gradient, or its running sum with decay `momentum`.

    Reference: Sutskever et al., "On the importance of initialization and momentum in deep
    learning", 2013.

    Args:
        momentum: how much of the running sum stays at each step.
        dampening: the gradient counts 1 - dampening in the sum, but for the first time.
        nesterov: v is the gradient plus momentum times the sum.

    Raises:
        OptionError: `nesterov` without momentum, or with dampening.
    """

    _ranges = COMMON

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, hyper_parameters(locals()))
        if nesterov and (momentum <= 0 or dampening != 0):
            raise OptionError("Nesterov momentum requires a momentum and zero dampening")

    def _state_makers(self, group: ParamGroup, parameter: Tensor) -> dict[str, Maker]:
        """A sum of zeros; dampening needs to know the first time, when it doesn't count."""
        if not group.is_nonzero("momentum"):
            return {}
        makers: dict[str, Maker] = {"momentum_buffer": zeros_like}
        if group.is_nonzero("dampening"):
            started = "momentum_buffer" in self.state[parameter]
            makers["started"] = lambda _: of_array(np.array(started))
        return makers

    def _update(self, group: ParamGroup, parameter: Tensor, gradient: Tensor) -> None:
        _, gradient = decayed(group, parameter, gradient)
        if group.is_nonzero("momentum"):
            momentum, state = group["momentum"], self.state[parameter]
            total = self._add(group, state, momentum, gradient)
            gradient = gradient + total * momentum if group["nesterov"] else total
        write_(parameter, parameter - gradient * group["lr"])

    def _add(
        self, group: ParamGroup, state: dict[str, Tensor], momentum: float, gradient: Tensor
    ) -> Tensor:
        """Add the gradient to the running sum, which is returned."""
        total = state["momentum_buffer"]
        if group.is_nonzero("dampening"):
            started = state["started"]
            damped = total * momentum + gradient * (1.0 - group["dampening"])
            write_(total, lucid.where(started, damped, gradient))
            write_(started, lucid.ones_like(started))
        else:
            write_(total, total * momentum + gradient)
        return total


@like(Adam)
class ASGD(Optimizer):
    """Descent with a falling rate, and in `state[p]["ax"]` the mean of the iterates after `t0`.

    Reference: Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992.

    Args:
        lambd: decay of the parameters.
        alpha: the power of the rate's fall.
        t0: from which step on the mean is taken.
    """

    _ranges = COMMON | {"lambd": float, "alpha": float, "t0": float}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, hyper_parameters(locals()))

    def _state_makers(self, group: ParamGroup, parameter: Tensor) -> dict[str, Maker]:
        rate = float(group.raw("lr"))
        return {
            "step": step_count,
            "eta": lambda _: of_array(np.array(rate, f32.numpy)),
            "mu": ones,
            "ax": zeros_like,
        }

    def _update(self, group: ParamGroup, parameter: Tensor, gradient: Tensor) -> None:
        state, lr, lambd = self.state[parameter], group["lr"], group["lambd"]
        step, eta, mu, mean = state["step"], state["eta"], state["mu"], state["ax"]
        _, gradient = decayed(group, parameter, gradient)
        rate, share = eta.to(parameter.dtype), mu.to(parameter.dtype)
        moved = parameter * (1 - lambd * rate) - gradient * rate
        write_(parameter, moved)
        write_(mean, lucid.where(share == 1, moved, mean + (moved - mean) * share))
        count = step.to(f64)
        write_(eta, (lr / (1 + lambd * lr * count) ** group["alpha"]).to(eta.dtype))
        write_(mu, (1 / lucid.clamp(count - group["t0"], min=1.0)).to(mu.dtype))
