"""A table of trained rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar
from typing import Any, Self

import lucid
from lucid.autograd.modes import no_grad
from lucid.choices import refuse
from lucid.device import check_device
from lucid.functions.border import recorded
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.types import DType
from lucid.nn import init
from lucid.nn.functional.embedding import DENSE, embedding, embedding_bag
from lucid.nn.modules.module import Module
from lucid.nn.modules.settings import settings
from lucid.nn.parameter import Parameter
from lucid.tensor.tensor import Tensor

__all__ = ["Embedding", "EmbeddingBag"]


_embedding = recorded(embedding)
_embedding_bag = recorded(embedding_bag)


class _Table(Module):
    """Rows that start standard normal, but for the padding, which is zero."""

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    sparse: bool

    def __post_init__(self, device: object, dtype: DType | None) -> None:
        check_device(device, type(self).__name__)
        refuse(self.sparse, "sparse", type(self).__name__, DENSE)
        rows = self.num_embeddings
        if self.padding_idx is not None:
            if not -rows <= self.padding_idx < rows:
                raise OptionError("Padding_idx must be within num_embeddings")
            self.padding_idx %= rows
        self.weight = Parameter(lucid.empty(rows, self.embedding_dim, dtype=dtype))
        self.reset_parameters()

    @classmethod
    def _on(cls, embeddings: Tensor, freeze: bool, *options: Any) -> Self:
        """A table on these rows, made with the options that come after its sizes."""
        if embeddings.ndim != 2:
            raise ShapeError(f"from_pretrained: takes a matrix, not {embeddings._type}")
        make: Callable[..., Self] = cls
        module = make(embeddings.shape[0], embeddings.shape[1], *options)
        module.weight = Parameter(embeddings, requires_grad=not freeze)
        return module

    def reset_parameters(self) -> None:
        """Draw the weight anew; the padding row is zero."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0


@settings
class Embedding(_Table):
    """Rows of the weight (num_embeddings, embedding_dim) by index; they start standard normal.

    Args:
        num_embeddings: how many rows there are.
        embedding_dim: how long each is.
        padding_idx: a row that starts as zeros and gets no gradient; negative counts from the end.
        max_norm: rows that are looked up and longer are shortened to this norm before, in place.
            None for no bound.
        scale_grad_by_freq: divide a row's gradient by how often it is looked up.

    Raises:
        OptionError: `padding_idx` is outside of the table.

    >>> nn.Embedding(10, 3)(lucid.tensor([[1, 2, 4]])).shape
    lucid.Size([1, 3, 3])
    """

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None = None
    max_norm: float | None = None
    norm_type: float = 2.0
    scale_grad_by_freq: bool = False
    sparse: bool = False
    _: KW_ONLY
    device: InitVar[object] = None
    dtype: InitVar[DType | None] = None

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Self:
        """A module on the memory of `embeddings` (rows, size); frozen: without gradient."""
        options = padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
        return cls._on(embeddings, freeze, *options)

    def forward(self, input: Tensor) -> Tensor:
        options = self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq
        return _embedding(input, self.weight, *options, self.sparse)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        bound = "" if self.max_norm is None else f", max_norm={self.max_norm}"
        scaled = ", scale_grad_by_freq=True" if self.scale_grad_by_freq else ""
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}{bound}{scaled}"


@settings
class EmbeddingBag(_Table):
    """Sums, means or maxima of the rows that each bag names, see `functional.embedding_bag`.

    Args:
        num_embeddings: how many rows there are.
        embedding_dim: how long each is.
        max_norm: rows that are looked up are shortened to this norm, in place. None for no bound.
        scale_grad_by_freq: divide a row's gradient by how often it is looked up; not with "max".
        mode: "sum", "mean" or "max" of a bag's rows.
        include_last_offset: the last offset is the end of the last bag.
        padding_idx: the row that counts nothing. None for none.

    >>> nn.EmbeddingBag(10, 3)(lucid.tensor([[1, 2], [4, 5]])).shape
    lucid.Size([2, 3])
    """

    num_embeddings: int
    embedding_dim: int
    max_norm: float | None = None
    norm_type: float = 2.0
    scale_grad_by_freq: bool = False
    mode: str = "mean"
    sparse: bool = False
    include_last_offset: bool = False
    padding_idx: int | None = None
    device: InitVar[object] = None
    dtype: InitVar[DType | None] = None
    _shown = "{0.num_embeddings}, {0.embedding_dim}, mode={0.mode!r}"

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Self:
        """A module on the memory of `embeddings` (rows, size); frozen: without gradient."""
        options = max_norm, norm_type, scale_grad_by_freq, mode, sparse, include_last_offset
        return cls._on(embeddings, freeze, *options, padding_idx)

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        options = self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode
        ends = self.include_last_offset, self.padding_idx
        return _embedding_bag(
            input, self.weight, offsets, *options, self.sparse, per_sample_weights, *ends
        )
