"""`Variable`, what tensors with gradients were called once; older programs still make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from lucid.tensor.tensor import Tensor


def Variable(data: Tensor, requires_grad: bool = False) -> Tensor:
    """Return a leaf on the memory of a tensor: PyTorch's old constructor.

    It is `data.detach().requires_grad_(requires_grad)`, without the history of `data`.

    Args:
        data: the tensor whose memory is shared.
        requires_grad: whether gradients are recorded for it.

    >>> x = lucid.autograd.Variable(lucid.tensor([1.0, 2.0]), requires_grad=True)
    >>> x.is_leaf, x.requires_grad
    (True, True)
    """
    leaf: Any = data.detach()
    return cast("Tensor", leaf.requires_grad_(requires_grad))
