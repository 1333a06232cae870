"""Sparse matrices in coordinate form, as far as custom Functions need them."""

from lucid.ir import frames
from lucid.sparse.tensor import (
    DoubleTensor,
    FloatTensor,
    SparseTensor,
    mm,
    sparse_coo_tensor,
    sum,
)

__all__ = ["DoubleTensor", "FloatTensor", "SparseTensor", "mm", "sparse_coo_tensor", "sum"]

frames.edge_of_module(__name__)
