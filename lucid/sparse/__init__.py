"""Sparse matrices in coordinate form, as far as custom Functions need them."""

from lucid.functions.border import module_at_border
from lucid.sparse.tensor import (
    DoubleTensor,
    FloatTensor,
    SparseTensor,
    mm,
    sparse_coo_tensor,
    sum,
)

__all__ = ["DoubleTensor", "FloatTensor", "SparseTensor", "mm", "sparse_coo_tensor", "sum"]

module_at_border(__name__)
