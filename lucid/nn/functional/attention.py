"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

from lucid.autograd.native import composite
from lucid.functions.elementwise import where
from lucid.functions.softmax import masked_softmax, softmax
from lucid.ir import ops
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.ops.attention import AttentionSizes, split
from lucid.ir.types import bool_
from lucid.nn.functional.dropout import dropout
from lucid.random import default_generator
from lucid.tensor.context import context
from lucid.tensor.core import constant, emit
from lucid.tensor.tensor import Tensor

__all__ = ["scaled_dot_product_attention"]

_NAME = "scaled_dot_product_attention"


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.T * scale + mask) @ value.

    A compiled step computes it, and its gradient, block by block where all weights together are
    large, so that it needs no memory for them.

    Shapes: query (*, l, e), key (*, s, e), value (*, s, v), mask broadcast to (*, l, s); with
    enable_gqa query (*, h, l, e), and h is a multiple of the heads of key and of value.

    Reference: Vaswani et al., "Attention Is All You Need", 2017.

    Args:
        query: (*, l, e).
        key: (*, s, e).
        value: (*, s, v).
        attn_mask: bools, True where it may look, or floats that are added to the scores; broadcasts
            to (*, l, s).
        dropout_p: the probability of a weight to be dropped, at each call. Default: 0.0.
        is_causal: position i looks at the first i + 1 only; not beside a mask. Default: False.
        scale: the factor of the scores. None is 1 / sqrt(e).
        enable_gqa: keys and values have fewer heads, each of which serves several queries. Default:
            False.

    Raises:
        ShapeError: the shapes don't go together.
        OptionError: a mask beside `is_causal`, or a `dropout_p` outside of [0, 1].

    Example:
        >>> q = lucid.eye(2)[None]
        >>> F.scaled_dot_product_attention(q, q, q)
        tensor([[[0.6698, 0.3302],
                 [0.3302, 0.6698]]])
    """
    if min(query.ndim, key.ndim, value.ndim) < 2 or query.shape[-1] != key.shape[-1]:
        raise ShapeError(f"{_NAME}: query (*, l, e), key (*, s, e) and value (*, s, v) are needed")
    if is_causal and attn_mask is not None:
        raise OptionError(f"{_NAME}: attn_mask should not be set when is_causal=True")
    if not 0.0 <= dropout_p <= 1.0:
        raise OptionError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
    q = query * (1.0 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if attn_mask is not None and attn_mask.dtype not in (bool_, q.dtype):
        attn_mask = attn_mask.to(q.dtype)
    if enable_gqa:
        q, key, value, attn_mask = _grouped(q, key, value, attn_mask)
    result = _attended(q, key, value, attn_mask, dropout_p, is_causal)
    return result.flatten(-4, -3) if enable_gqa else result


def _attended(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool
) -> Tensor:
    """Attention to heads that broadcast."""
    if dropout_p == 1.0 or (dropout_p > 0.0 and context.levels):
        return _spelled(q, k, v, mask, dropout_p, is_causal)
    sizes = _sizes(q, k, v, mask)
    state = keep = None
    if dropout_p > 0.0 and 0 not in sizes.scores:
        state = default_generator.reserve(math.prod(sizes.scores))
        keep = constant(1.0 - dropout_p, q.dtype)
    is_large = math.prod(sizes.scores) >= _LARGE
    weighted: Any = _weighted if is_large else _weighted.__wrapped__  # type: ignore[attr-defined]
    result: Tensor = weighted(q, k, v, mask, state, keep, is_causal)
    return result


# Scores from which a program of its own is worth its tenth of a second, outside of traces: sizes
# of attention are never open, so each of them has one.
_LARGE = 1 << 18


def _sizes(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> AttentionSizes:
    return AttentionSizes.of(*([q, k, v] if mask is None else [q, k, v, mask]))


@composite
def _weighted(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    state: Tensor | None,
    keep: Tensor | None,
    is_causal: bool,
) -> Tensor:
    """Attention by the op, which drops weights by a state and the probability to keep them."""
    sizes = _sizes(q, k, v, mask)
    flat = emit(
        ops.attention,
        (q, k, v, *[x for x in (mask, state, keep) if x is not None]),
        causal=is_causal,
        has_mask=mask is not None,
        has_dropout=state is not None,
        nan_rows=mask is None and 0 not in sizes.scores,
    )
    result: Tensor = split(flat, sizes.parts)[0]
    return result.clone()


def _spelled(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool
) -> Tensor:
    """The same with all weights, for a vmap, which knows what each example draws."""
    scores: Any = q @ k.transpose(-2, -1)
    if is_causal:
        allowed = scores.new_ones(scores.shape[-2:], dtype=bool_).tril()
        scores = where(allowed, scores, -math.inf)
    if mask is not None:
        scores = where(mask, scores, -math.inf) if mask.dtype is bool_ else scores + mask
        weights = masked_softmax(scores, scores.ndim - 1)
    else:
        weights = softmax(scores, -1)
    return dropout(weights, dropout_p) @ v


def _grouped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Any, ...]:
    """Heads (*, h, l, e) as (*, groups, heads of a group, l, e), of which keys have one."""
    if min(q.ndim, k.ndim, v.ndim) < 3:
        raise ShapeError(f"{_NAME}: with enable_gqa query, key and value need heads, (*, h, l, e)")
    heads, groups = q.shape[-3], k.shape[-3]
    if not groups or heads % groups or not v.shape[-3] or heads % v.shape[-3]:
        raise ShapeError(f"{_NAME}: the heads of key and value must divide the query's")
    if v.shape[-3] != groups:
        k, v = (x.repeat_interleave(heads // x.shape[-3], -3) for x in (k, v))
        groups = heads
    if mask is not None and mask.ndim > 2:
        is_wide = mask.shape[-3] == heads
        mask = mask.unflatten(-3, (groups, heads // groups)) if is_wide else mask.unsqueeze(-3)
    return q.unflatten(-3, (groups, heads // groups)), k.unsqueeze(-3), v.unsqueeze(-3), mask
