"""Activations as modules. A float that one is made with is read at each call of a compiled step."""

from __future__ import annotations

from dataclasses import InitVar
from typing import Any

import lucid
from lucid.autograd.modes import no_grad
from lucid.device import check_device
from lucid.ir.errors import ShapeError
from lucid.ir.types import DType
from lucid.nn import functional as F
from lucid.nn.modules.module import Module
from lucid.nn.modules.settings import UnaryModule, settings, settings_of
from lucid.nn.parameter import Parameter
from lucid.tensor.tensor import Tensor

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
    "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "ReLU", "ReLU6", "RReLU", "SELU", "Sigmoid",
    "SiLU", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh",
    "Tanhshrink", "Threshold",
]  # fmt: skip


@settings_of(F.relu)
class ReLU(UnaryModule):
    inplace: bool = False


@settings_of(F.silu)
class SiLU(UnaryModule):
    inplace: bool = False


@settings_of(F.mish)
class Mish(UnaryModule):
    inplace: bool = False


@settings_of(F.leaky_relu)
class LeakyReLU(UnaryModule):
    negative_slope: float = 0.01
    inplace: bool = False


@settings_of(F.elu)
class ELU(UnaryModule):
    alpha: float = 1.0
    inplace: bool = False


@settings_of(F.gelu)
class GELU(UnaryModule):
    approximate: str = "none"


@settings_of(F.softplus)
class Softplus(UnaryModule):
    beta: float = 1.0
    threshold: float = 20.0


@settings_of(F.tanh)
class Tanh(UnaryModule):
    """Hyperbolic tangent, elementwise."""


@settings_of(F.sigmoid)
class Sigmoid(UnaryModule):
    """1 / (1 + exp(-x))."""


@settings_of(F.logsigmoid)
class LogSigmoid(UnaryModule):
    """log(sigmoid(x)), accurate for inputs of any size."""


@settings_of(F.softmax)
class Softmax(UnaryModule):
    dim: int | None = None


@settings_of(F.log_softmax)
class LogSoftmax(UnaryModule):
    dim: int | None = None


class Softmax2d(Module):
    """softmax over the channels of (n, c, h, w) or (c, h, w).

    At each place the channels are positive and add up to 1.

    >>> nn.Softmax2d()(lucid.zeros(1, 2, 1, 1)).flatten()
    tensor([0.5000, 0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: expected input to be 3D or 4D, got {input._type}")
        return F.softmax(input, -3)


@settings_of(F.rrelu)
class RReLU(UnaryModule):
    lower: float = 1.0 / 8
    upper: float = 1.0 / 3
    inplace: bool = False


@settings_of(F.hardsigmoid)
class Hardsigmoid(UnaryModule):
    inplace: bool = False


@settings_of(F.hardswish)
class Hardswish(UnaryModule):
    inplace: bool = False


@settings_of(F.selu)
class SELU(UnaryModule):
    inplace: bool = False


@settings_of(F.hardtanh)
class Hardtanh(UnaryModule):
    min_val: float = -1.0
    max_val: float = 1.0
    inplace: bool = False


@settings_of(F.relu6)
class ReLU6(Hardtanh):
    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)


@settings_of(F.threshold)
class Threshold(UnaryModule):
    threshold: float
    value: float
    inplace: bool = False


@settings_of(F.celu)
class CELU(UnaryModule):
    alpha: float = 1.0
    inplace: bool = False


@settings_of(F.softsign)
class Softsign(UnaryModule):
    """x / (1 + |x|)."""


@settings_of(F.tanhshrink)
class Tanhshrink(UnaryModule):
    """x - tanh(x)."""


@settings_of(F.softshrink)
class Softshrink(UnaryModule):
    lambd: float = 0.5
    _shown = "{0.lambd}"


@settings_of(F.hardshrink)
class Hardshrink(UnaryModule):
    lambd: float = 0.5
    _shown = "{0.lambd}"


@settings
class PReLU(Module):
    """x where it is positive, else `weight * x` with a trained weight, or one per channel.

    Args:
        num_parameters: 1, or as many as there are channels (axis 1).
        init: the slope to start with.

    >>> nn.PReLU()(lucid.tensor([-2.0, 3.0]))
    tensor([-0.5000,  3.0000], grad_fn=<PreluBackward>)
    """

    num_parameters: int = 1
    init: float = 0.25
    device: InitVar[object] = None
    dtype: InitVar[DType | None] = None
    _shown = "num_parameters={0.num_parameters}"

    def __post_init__(self, device: object, dtype: DType | None) -> None:
        check_device(device, type(self).__name__)
        shape = (self.num_parameters,)
        self.weight = Parameter(lucid.empty(shape, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to the slope to start with."""
        with no_grad():
            self.weight.fill_(self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)


@settings_of(F.glu)
class GLU(UnaryModule):
    dim: int = -1


@settings_of(F.softmin)
class Softmin(UnaryModule):
    dim: int | None = None


def __getattr__(name: str) -> Any:
    if name == "MultiheadAttention":  # where PyTorch has it
        from lucid.nn.modules.attention import MultiheadAttention

        return MultiheadAttention
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
