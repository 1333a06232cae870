"""Attention with several heads."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid.device import check_device
from lucid.functions.softmax import softmax
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.types import DType, bool_
from lucid.nn import init
from lucid.nn.functional.attention import scaled_dot_product_attention
from lucid.nn.functional.dropout import dropout as drop
from lucid.nn.functional.linear import linear
from lucid.nn.functional.padding import pad
from lucid.nn.modules.linear import Linear
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Scaled dot-product attention in `num_heads` parts of the last axis, projected in and out.

    Shapes: query (l, n, e), key (s, n, kdim), value (s, n, vdim); n first with batch_first; without
    n one sample.

    Reference: Vaswani et al., "Attention Is All You Need", 2017.

    Args:
        embed_dim: features of queries and of the result.
        num_heads: how many heads there are; divides `embed_dim`.
        dropout: the probability of a weight to be dropped, while training. Default: 0.0.
        bias: whether projections have one. Default: True.
        add_bias_kv: add a trained key and value behind each sequence. Default: False.
        add_zero_attn: add a key and value of zeros behind each. Default: False.
        kdim: features of keys. None is `embed_dim`.
        vdim: features of values. None is `embed_dim`.
        batch_first: sequences are (n, t, features). Default: False.
        device: the CPU; for PyTorch's sake.
        dtype: of the parameters. None is the default dtype.

    Raises:
        OptionError: `embed_dim` can't be cut into that many heads.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> attention = nn.MultiheadAttention(4, 2)
        >>> x = lucid.ones(5, 1, 4)
        >>> result, weights = attention(x, x, x)
        >>> result.shape, weights.shape
        (lucid.Size([5, 1, 4]), lucid.Size([1, 5, 5]))
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        check_device(device, type(self).__name__)
        if embed_dim % num_heads:
            raise OptionError("embed_dim must be divisible by num_heads")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.add_zero_attn = add_zero_attn
        self.head_dim = embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._add_projections(bias, dtype)
        for name in ("bias_k", "bias_v"):
            added = Parameter(lucid.empty(1, 1, embed_dim, dtype=dtype)) if add_bias_kv else None
            self.register_parameter(name, added)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, dtype=dtype)
        self.reset_parameters()

    def _add_projections(self, bias: bool, dtype: DType | None) -> None:
        e = self.embed_dim
        packed = self.kdim == e and self.vdim == e
        widths = {"q_proj_weight": e, "k_proj_weight": self.kdim, "v_proj_weight": self.vdim}
        for name, width in widths.items():
            apart = None if packed else Parameter(lucid.empty(e, width, dtype=dtype))
            self.register_parameter(name, apart)
        whole = Parameter(lucid.empty(3 * e, e, dtype=dtype)) if packed else None
        self.register_parameter("in_proj_weight", whole)
        shift = Parameter(lucid.zeros(3 * e, dtype=dtype)) if bias else None
        self.register_parameter("in_proj_bias", shift)

    def reset_parameters(self) -> None:
        """Draw the projections anew; biases are zero."""
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            weight = getattr(self, name)
            if weight is not None:
                init.xavier_uniform_(weight)
        for added in (self.bias_k, self.bias_v):
            if added is not None:
                init.xavier_normal_(added)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the attended values and, if `need_weights`, how much of each was taken.

        Masks: bool, True is left out, or float, added; `key_padding_mask` (n, s), `attn_mask`
        (l, s) or (n * heads, l, s). is_causal says that attn_mask is the causal one; without
        `need_weights` and padding it isn't read then.
        """
        single = query.ndim == 2
        if is_causal and attn_mask is None:
            raise OptionError("Need attn_mask if specifying the is_causal hint.")
        q, k, v = (self._batched(x, single) for x in (query, key, value))
        q, k, v = self._projected(q, k, v)
        mask = self._mask(q, k, key_padding_mask, attn_mask)
        k, v, added = self._extended(k, v)
        if mask is not None and added:
            mask = pad(mask, (0, added))
        p = live_attribute(self, "dropout") if self.training else 0.0
        if need_weights:
            scores = (q * (1.0 / math.sqrt(self.head_dim))) @ k.transpose(-2, -1)
            weights = softmax(scores if mask is None else scores + mask, -1)
            weights = drop(weights, p, self.training)
            heads = weights @ v
        else:
            causal = is_causal and key_padding_mask is None and not added
            heads = scaled_dot_product_attention(
                q, k, v, None if causal else mask, p, is_causal=causal
            )
        joined = heads.transpose(1, 2).flatten(2)
        result = self._unbatched(linear(joined, self.out_proj.weight, self.out_proj.bias), single)
        if not need_weights:
            return result, None
        shown = weights.mean(1) if average_attn_weights else weights
        return result, shown.squeeze(0) if single else shown

    def _batched(self, x: Tensor, single: bool) -> Tensor:
        """(n, l, e)."""
        if x.ndim != (2 if single else 3):
            raise ShapeError(
                f"MultiheadAttention: query, key and value need 2 or 3 axes, all the same: "
                f"{x._type}"
            )
        if single:
            return x.unsqueeze(0)
        return x if self.batch_first else x.transpose(0, 1)

    def _unbatched(self, x: Tensor, single: bool) -> Tensor:
        if single:
            return x.squeeze(0)
        return x if self.batch_first else x.transpose(0, 1)

    def _projected(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        """Each as (n, heads, l, e / heads)."""
        if self.in_proj_weight is not None:
            weights: Any = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        bias = self.in_proj_bias
        shifts: Any = (None,) * 3 if bias is None else bias.chunk(3)
        return tuple(
            linear(x, weight, shift)
            .reshape(x.shape[0], x.shape[1], self.num_heads, self.head_dim)
            .transpose(1, 2)
            for x, weight, shift in zip((q, k, v), weights, shifts, strict=True)
        )

    def _extended(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int]:
        """Keys and values with those that are added behind them, and how many these are."""
        shape = (k.shape[0], self.num_heads, 1, self.head_dim)
        keys, values = [k], [v]
        if self.bias_k is not None and self.bias_v is not None:
            for parts, added in ((keys, self.bias_k), (values, self.bias_v)):
                parts.append(added.reshape(1, *shape[1:]).expand(*shape))
        if self.add_zero_attn:
            keys.append(lucid.zeros(shape, dtype=k.dtype))
            values.append(lucid.zeros(shape, dtype=v.dtype))
        if len(keys) == 1:
            return k, v, 0
        return lucid.cat(keys, 2), lucid.cat(values, 2), len(keys) - 1

    def _mask(
        self, q: Tensor, k: Tensor, padding: Tensor | None, attn_mask: Tensor | None
    ) -> Tensor | None:
        """Both masks as one that is added to the scores (n, heads, l, s)."""
        total: Tensor | None = None
        if attn_mask is not None:
            total = _additive(attn_mask, q.dtype)
            if total.ndim == 3:
                total = total.reshape(q.shape[0], self.num_heads, q.shape[2], k.shape[2])
        if padding is not None:
            added = _additive(padding, q.dtype).reshape(-1, 1, 1, k.shape[2])
            total = added if total is None else total + added
        return total


def _additive(mask: Tensor, dtype: DType) -> Tensor:
    if mask.dtype is not bool_:
        return mask
    return lucid.zeros(mask.shape, dtype=dtype).masked_fill(mask, -math.inf)
