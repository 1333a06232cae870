"""`Variable`, what tensors with gradients were called once; older programs still make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from lucid.tensor.tensor import Tensor


def Variable(data: Tensor, requires_grad: bool = False) -> Tensor:
    """Return a leaf on the memory of a tensor."""
    leaf: Any = data.detach()
    return cast("Tensor", leaf.requires_grad_(requires_grad))
