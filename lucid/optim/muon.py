"""Muon."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from lucid.ir.errors import OptionError, ShapeError
from lucid.optim.groups import ParamGroup
from lucid.optim.hyper_parameters import COMMON, hyper_parameters, only
from lucid.optim.optimizer import Optimizer, Params, decayed, zeros_like
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


def _coefficients(values: Any) -> tuple[Any, ...]:
    if len(values) != 3:
        raise OptionError("Coefficients must be a tuple of exactly 3 values")
    return tuple(values)


class Muon(Optimizer):
    """param -= lr * (the running mean of the gradient, with all singular values near 1).

    For matrices only. They are made nearly orthogonal by `ns_steps` rounds of a quintic iteration
    with `ns_coefficients`, in the parameter's dtype (PyTorch rounds to bfloat16).

    Reference: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024.

    Args:
        weight_decay: the parameter is scaled by 1 - lr times this.
        momentum: how much of the earlier steps stays.
        nesterov: look one step ahead.
        ns_coefficients: of the quintic iteration.
        ns_steps: how many rounds of it.
        adjust_lr_fn: how the rate depends on the shape: None or "original", or "match_rms_adamw".

    Raises:
        OptionError: a number out of range, or another `adjust_lr_fn`.
        ShapeError: a parameter that isn't a matrix.

    >>> w = lucid.ones(2, 3, requires_grad=True)
    >>> opt = lucid.optim.Muon([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> w.sum().item() < 6.0
    True
    """

    _ranges = COMMON | {
        "ns_coefficients": _coefficients,
        "ns_steps": only(
            lambda steps: steps < 100,
            "Number of steps must be less than 100 for computational efficiency",
        ),
        "adjust_lr_fn": only(
            lambda name: name in (None, "original", "match_rms_adamw"),
            "Adjust learning rate function {} is not supported",
        ),
    }
    _sums = True
    _state: ClassVar = {"momentum_buffer": zeros_like}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(params, hyper_parameters(locals()))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of matrices. Raises `ShapeError` for others, besides what others raise."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1].raw("params"):
            if parameter.ndim != 2:
                self.param_groups.pop()
                raise ShapeError(f"Muon: takes matrices, not {parameter._type}")

    def _update(self, group: ParamGroup, parameter: Tensor, gradient: Tensor) -> None:
        momentum, mean = group["momentum"], self.state[parameter]["momentum_buffer"]
        write_(mean, mean + (gradient - mean) * (1 - momentum))
        update = gradient + (mean - gradient) * momentum if group["nesterov"] else mean
        update = _orthogonalized(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = parameter.shape
        ratio = math.sqrt(max(1, rows / columns))
        if group["adjust_lr_fn"] == "match_rms_adamw":
            ratio = 0.2 * math.sqrt(max(rows, columns))
        value, _ = decayed(group, parameter, gradient, decoupled=True)
        write_(parameter, value - update * (group["lr"] * ratio))


def _orthogonalized(x: Tensor, coefficients: Any, steps: int, eps: float) -> Tensor:
    """The matrix with its singular values moved near 1, by x -> a x + (b x x^T + c (x x^T)^2) x."""
    a, b, c = coefficients
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = x * a + (gram * b + gram @ gram * c) @ x
    return x.T if is_tall else x
