"""Activations as modules. A float that one is made with is read at each call of a compiled step."""

from __future__ import annotations

import lucid
from lucid.device import check_device
from lucid.ir.errors import ShapeError
from lucid.ir.types import DType
from lucid.nn import functional as F
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
    "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "ReLU", "ReLU6", "RReLU", "SELU", "Sigmoid",
    "SiLU", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh",
    "Tanhshrink", "Threshold",
]  # fmt: skip


class InplaceModule(Module):
    """An activation that may write its result into its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(InplaceModule):
    """max(x, 0).

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.relu`.

    Args:
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.ReLU()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([0.0000, 0.5000, 3.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)


class SiLU(InplaceModule):
    """x * sigmoid(x).

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.silu`.

    Args:
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.SiLU()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.2384,  0.3112,  2.8577])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, self.inplace)


class Mish(InplaceModule):
    """x * tanh(softplus(x)).

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.mish`.

    Args:
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Mish()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.2525,  0.3752,  2.9865])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, self.inplace)


class LeakyReLU(Module):
    """x where x > 0, else `negative_slope * x`.

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.leaky_relu`.

    Args:
        negative_slope: the slope below 0. Default: 0.01.
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.LeakyReLU()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.0200,  0.5000,  3.0000])
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, live_attribute(self, "negative_slope"), self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class ELU(Module):
    """x where x > 0, else `alpha * (exp(x) - 1)`.

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.elu`.

    Args:
        alpha: the factor. Default: 1.0.
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.ELU()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.8647,  0.5000,  3.0000])
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, live_attribute(self, "alpha"), self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class GELU(Module):
    """x times the normal CDF of x; `approximate="tanh"` for the cheaper form.

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.gelu`.

    Args:
        approximate: "none" or "tanh". Default: 'none'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.GELU()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.0455,  0.3457,  2.9960])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Softplus(Module):
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold.

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.softplus`.

    Args:
        beta: how sharp the bend is. Default: 1.0.
        threshold: from where on it is taken for a line. Default: 20.0.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Softplus()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([0.1269, 0.9741, 3.0486])
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        beta, threshold = live_attribute(self, "beta"), live_attribute(self, "threshold")
        return F.softplus(input, beta, threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Tanh(Module):
    """Hyperbolic tangent.

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.tanh`.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Tanh()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.9640,  0.4621,  0.9951])
    """

    def forward(self, input: Tensor) -> Tensor:
        return input.tanh()


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.sigmoid`.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Sigmoid()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([0.1192, 0.6225, 0.9526])
    """

    def forward(self, input: Tensor) -> Tensor:
        return input.sigmoid()


class LogSigmoid(Module):
    """log(sigmoid(x)).

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.logsigmoid`.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.LogSigmoid()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-2.1269, -0.4741, -0.0486])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softmax(Module):
    """exp(x) over its sum along `dim`.

    The weights are positive and add up to 1 along the axis.

    Args:
        dim: the axis.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Softmax(dim=0)(lucid.zeros(2))
        tensor([0.5000, 0.5000])
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """log(softmax(x)) along `dim`.

    Accurate where the softmax underflows.

    Args:
        dim: the axis.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.LogSoftmax(dim=0)(lucid.zeros(2))
        tensor([-0.6931, -0.6931])
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax2d(Module):
    """softmax over the channels of (n, c, h, w) or (c, h, w).

    At each place the channels are positive and add up to 1.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Softmax2d()(lucid.zeros(1, 2, 1, 1)).flatten()
        tensor([0.5000, 0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: expected input to be 3D or 4D, got {input._type}")
        return F.softmax(input, -3)


class RReLU(Module):
    """leaky_relu with random slopes while training, else their mean.

    Args:
        lower: the least slope. Default: 0.125.
        upper: the greatest slope. Default: 0.3333333333333333.
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.RReLU(0.2, 0.4).eval()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.6000,  0.5000,  3.0000])
    """

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}"


class Hardsigmoid(InplaceModule):
    """x / 6 + 1 / 2, brought into [0, 1].

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.hardsigmoid`.

    Args:
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Hardsigmoid()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([0.1667, 0.5833, 1.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)


class Hardswish(InplaceModule):
    """x * hardsigmoid(x).

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.hardswish`.

    Args:
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Hardswish()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.3333,  0.2917,  3.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)


class SELU(InplaceModule):
    """elu with the two constants that keep mean 0 and variance 1.

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.selu`.

    Args:
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.SELU()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-1.5202,  0.5254,  3.1521])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)


class Hardtanh(Module):
    """x, brought into [min_val, max_val].

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.hardtanh`.

    Args:
        min_val: the lower bound. Default: -1.0.
        max_val: the upper bound. Default: 1.0.
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Hardtanh()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-1.0000,  0.5000,  1.0000])
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        low, high = live_attribute(self, "min_val"), live_attribute(self, "max_val")
        return F.hardtanh(input, low, high, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class ReLU6(Hardtanh):
    """min(max(x, 0), 6).

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.relu6`.

    Args:
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.ReLU6()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([0.0000, 0.5000, 3.0000])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def forward(self, input: Tensor) -> Tensor:
        return F.relu6(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Threshold(Module):
    """x where it is above the threshold, else `value`.

    Applied to each element.

    Args:
        threshold: what the input must be above.
        value: what stands for the rest.
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Threshold(1.0, 0.0)(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([0., 0., 3.])
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        limit, value = live_attribute(self, "threshold"), live_attribute(self, "value")
        return F.threshold(input, limit, value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}"


class CELU(Module):
    """x where it is positive, else `alpha * (exp(x / alpha) - 1)`.

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.celu`.

    Args:
        alpha: the factor. Default: 1.0.
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.CELU()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.8647,  0.5000,  3.0000])
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, live_attribute(self, "alpha"), self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class Softsign(Module):
    """x / (1 + |x|).

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.softsign`.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Softsign()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.6667,  0.3333,  0.7500])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x).

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.tanhshrink`.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Tanhshrink()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-1.0360,  0.0379,  2.0049])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class Softshrink(Module):
    """x moved towards 0 by lambd, not beyond it.

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.softshrink`.

    Args:
        lambd: where the threshold is. Default: 0.5.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Softshrink()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-1.5000,  0.0000,  2.5000])
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, live_attribute(self, "lambd"))

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(Module):
    """x, and 0 where it is within [-lambd, lambd].

    Applied to each element. The result is as large as the input, and of its dtype. See
    `functional.hardshrink`.

    Args:
        lambd: where the threshold is. Default: 0.5.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Hardshrink()(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-2.,  0.,  3.])
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, live_attribute(self, "lambd"))

    def extra_repr(self) -> str:
        return str(self.lambd)


class PReLU(Module):
    """x where it is positive, else `weight * x` with a trained weight, or one per channel.

    Args:
        num_parameters: 1, or as many as there are channels (axis 1). Default: 1.
        init: the slope to start with. Default: 0.25.
        device: the CPU; for PyTorch's sake.
        dtype: of the parameters. None is the default dtype.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.PReLU()(lucid.tensor([-2.0, 3.0]))
        tensor([-0.5000,  3.0000], grad_fn=<WhereBackward>)
    """

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        check_device(device, type(self).__name__)
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(lucid.full((num_parameters,), float(init), dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class GLU(Module):
    """The first half along `dim` times the sigmoid of the second.

    The result has half the size along the axis.

    Raises `ShapeError` where that is odd.

    Args:
        dim: the axis. Default: -1.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.GLU()(lucid.tensor([1.0, 2.0, 0.0, 0.0]))
        tensor([0.5000, 1.0000])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmin(Module):
    """softmax(-x) along `dim`.

    The weights are positive and add up to 1 along the axis.

    Args:
        dim: the axis.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Softmin(dim=0)(lucid.zeros(2))
        tensor([0.5000, 0.5000])
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
