"""Scaled dot-product attention."""

from __future__ import annotations

import math

import lucid
from lucid.functions.softmax import MaskedSoftmax, softmax
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.types import bool_
from lucid.nn.functional.calls import apply, where
from lucid.nn.functional.dropout import dropout
from lucid.tensor.tensor import Tensor


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(query @ key.T * scale + mask) @ value.

    Shapes: query (*, l, e), key (*, s, e), value (*, s, v), mask broadcast to (*, l, s).
    attn_mask: bool (True takes part) or float (added). A row that is masked whole gives zeros.
    scale: 1 / sqrt(e) by default.
    Reference: Vaswani et al., "Attention Is All You Need", 2017.
    """
    if min(query.ndim, key.ndim, value.ndim) < 2 or query.shape[-1] != key.shape[-1]:
        raise ShapeError(
            "scaled_dot_product_attention: query (*, l, e), key (*, s, e) and value (*, s, v) are "
            f"needed\n  query: {query._type}\n  key:   {key._type}\n  value: {value._type}"
        )
    if is_causal and attn_mask is not None:
        raise OptionError(
            "scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
        )
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    if is_causal:
        rows, columns = query.shape[-2], key.shape[-2]
        causal = lucid.arange(columns) <= lucid.arange(rows).unsqueeze(-1)
        scores = where(causal, scores, -math.inf)
    if attn_mask is None:
        weights = softmax(scores, -1)
    else:
        masked = attn_mask.dtype is bool_
        scores = where(attn_mask, scores, -math.inf) if masked else scores + attn_mask
        weights = apply(MaskedSoftmax, scores, scores.ndim - 1)
    result: Tensor = dropout(weights, dropout_p) @ value
    return result
