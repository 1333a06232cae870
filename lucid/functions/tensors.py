"""The tensor class under its user's name, for the functions that become its methods.

`lucid.tensor.tensor` imports these functions, so they can't import it; while running, its base
class serves for `isinstance`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lucid.tensor.tensor import Tensor as Tensor
else:
    from lucid.tensor.core import TensorCore as Tensor

__all__ = ["Tensor"]
