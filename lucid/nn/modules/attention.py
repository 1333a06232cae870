"""Attention with several heads."""

from __future__ import annotations

import lucid
from lucid.device import check_device
from lucid.functions.border import recorded
from lucid.ir.errors import OptionError
from lucid.ir.types import DType
from lucid.nn import init
from lucid.nn.functional.attention import attend_in_heads
from lucid.nn.modules.linear import Linear
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor

__all__ = ["MultiheadAttention"]


_attend_in_heads = recorded(attend_in_heads)


class MultiheadAttention(Module):
    """Scaled dot-product attention in `num_heads` parts of the last axis, projected in and out.

    Shapes: query (l, n, e), key (s, n, kdim), value (s, n, vdim); n first with batch_first; without
    n one sample.

    Reference: Vaswani et al., "Attention Is All You Need", 2017.

    Args:
        embed_dim: features of queries and of the result.
        num_heads: how many heads there are; divides `embed_dim`.
        dropout: the probability of a weight to be dropped, while training.
        bias: whether projections have one.
        add_bias_kv: add a trained key and value behind each sequence.
        add_zero_attn: add a key and value of zeros behind each.
        kdim: features of keys. None is `embed_dim`.
        vdim: features of values. None is `embed_dim`.
        batch_first: sequences are (n, t, features).

    Raises:
        OptionError: `embed_dim` can't be cut into that many heads.

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
        if min(embed_dim, num_heads) <= 0 or embed_dim % num_heads:
            raise OptionError("embed_dim must be divisible by num_heads, and both above 0")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn
        self.head_dim = embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._add_projections(bias, dtype)
        for name in ("bias_k", "bias_v"):
            added = Parameter(lucid.empty(1, 1, embed_dim, dtype=dtype)) if add_bias_kv else None
            self.register_parameter(name, added)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, dtype=dtype)
        self._reset_parameters()

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

    def _reset_parameters(self) -> None:
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
        packed = self.in_proj_weight is not None
        apart = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return _attend_in_heads(
            (query, key, value),
            self.num_heads,
            self.batch_first,
            (self.in_proj_weight,) if packed else apart,
            self.in_proj_bias,
            (self.bias_k, self.bias_v),
            self.add_zero_attn,
            live_attribute(self, "dropout") if self.training else 0.0,
            (self.out_proj.weight, self.out_proj.bias),
            (key_padding_mask, attn_mask),
            need_weights,
            average_attn_weights,
            is_causal,
        )
