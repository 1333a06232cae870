"""Averaged stochastic gradient descent."""

from __future__ import annotations

import numpy as np

import lucid
from lucid.docstrings import like
from lucid.ir.types import f32, f64
from lucid.optim.adam import Adam
from lucid.optim.groups import ParamGroup
from lucid.optim.hyper_parameters import COMMON, hyper_parameters
from lucid.optim.optimizer import Maker, Optimizer, Params, decayed, ones, step_count, zeros_like
from lucid.tensor.core import of_array
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


@like(Adam)
class ASGD(Optimizer):
    """Descent with a falling rate, and in `state[p]["ax"]` the mean of the iterates after `t0`.

    Reference: Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992.

    Args:
        lambd: decay of the parameters. Default: 0.0001.
        alpha: the power of the rate's fall. Default: 0.75.
        t0: from which step on the mean is taken. Default: 1000000.0.
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
