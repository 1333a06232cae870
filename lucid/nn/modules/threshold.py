"""Modules of the activations in straight pieces, of gates, and of distances."""

from __future__ import annotations

import lucid
from lucid.device import check_device
from lucid.ir.types import DType
from lucid.nn import functional as F
from lucid.nn.modules.activation import InplaceModule
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor

__all__ = [
    "CELU", "CosineSimilarity", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
    "PairwiseDistance", "PReLU", "ReLU6", "SELU", "Softmin", "Softshrink", "Softsign", "Tanhshrink",
    "Threshold",
]  # fmt: skip


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


class CosineSimilarity(Module):
    """Cosine of the angle between vectors along `dim`.

    `forward(x1, x2)`; the two broadcast.

    Args:
        dim: the axis. Default: 1.
        eps: keeps the division finite. Default: 1e-08.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.CosineSimilarity()(lucid.tensor([[1.0, 0.0]]), lucid.tensor([[1.0, 1.0]]))
        tensor([0.7071])
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, live_attribute(self, "eps"))


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps along the last axis.

    `forward(x1, x2)`: rows with rows, each with its partner.

    Args:
        p: the order of the norm. Default: 2.0.
        eps: added to each difference. Default: 1e-06.
        keepdim: keep the last axis, with size 1. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.PairwiseDistance()(lucid.zeros(1, 2), lucid.tensor([[3.0, 4.0]]))
        tensor([5.0000])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, live_attribute(self, "eps"), self.keepdim)
