"""Adagrad."""

from __future__ import annotations

import numpy as np

from lucid.docstrings import like
from lucid.ir.types import f64
from lucid.optim.adam import Adam
from lucid.optim.groups import ParamGroup
from lucid.optim.hyper_parameters import COMMON, hyper_parameters, nonnegative
from lucid.optim.optimizer import Maker, Optimizer, Params, decayed, step_count
from lucid.tensor.core import of_array
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


@like(Adam)
class Adagrad(Optimizer):
    """param -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps), with s the sum of g * g.

    Reference: Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and
    Stochastic Optimization", 2011.

    Args:
        lr_decay: how the rate falls with the steps. Default: 0.0.
        initial_accumulator_value: what the sum begins with. Default: 0.0.
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
