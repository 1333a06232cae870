"""Sparse matrices in coordinate form, as far as custom Functions need them."""

from lucid.sparse.tensor import SparseTensor, mm, sparse_coo_tensor

__all__ = ["SparseTensor", "mm", "sparse_coo_tensor"]
