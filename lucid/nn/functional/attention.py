"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid.autograd.native import composite
from lucid.functions.elementwise import where
from lucid.functions.softmax import masked_softmax, softmax
from lucid.ir import ops
from lucid.ir.errors import DTypeError, OptionError, ShapeError
from lucid.ir.ops.attention import AttentionSizes, split
from lucid.ir.ops.rules import broadcast_shapes
from lucid.ir.types import DType, bool_
from lucid.nn.functional.dropout import dropout
from lucid.nn.functional.linear import linear
from lucid.nn.functional.padding import pad
from lucid.random import default_generator
from lucid.tensor.context import context
from lucid.tensor.core import constant, emit
from lucid.tensor.tensor import Tensor

__all__ = ["multi_head_attention_forward", "scaled_dot_product_attention"]

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
        dropout_p: the probability of a weight to be dropped, at each call.
        is_causal: position i looks at the first i + 1 only; not beside a mask.
        scale: the factor of the scores. None is 1 / sqrt(e).
        enable_gqa: keys and values have fewer heads, each of which serves several queries.

    Raises:
        ShapeError: the shapes don't go together.
        OptionError: a mask beside `is_causal`, or a `dropout_p` outside of [0, 1].

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
    if attn_mask is not None and attn_mask.dtype is not bool_:
        attn_mask = _scores(_NAME, attn_mask).to(q.dtype)
    if enable_gqa:
        q, key, value, attn_mask = _grouped(q, key, value, attn_mask)
    result = _attended(q, key, value, attn_mask, dropout_p, is_causal)
    return result.flatten(-4, -3) if enable_gqa else result


def _attended(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool
) -> Tensor:
    """Attention to heads that broadcast."""
    sizes = _sizes(q, k, v, mask)
    is_large = math.prod(sizes.scores) >= _LARGE
    is_small = context.recorder is None and not is_large and _fit(q, k, v)  # else the op says why
    if dropout_p == 1.0 or (dropout_p > 0.0 and context.levels) or is_small:
        return _spelled(q, k, v, mask, dropout_p, is_causal)
    state = keep = None
    if dropout_p > 0.0 and 0 not in sizes.scores:
        state = default_generator.reserve(math.prod(sizes.scores))
        keep = constant(1.0 - dropout_p, q.dtype)
    return _weighted(q, k, v, mask, state, keep, is_causal)


def _fit(q: Tensor, k: Tensor, v: Tensor) -> bool:
    batch = broadcast_shapes(q.shape[:-2], k.shape[:-2])
    whole = None if batch is None else broadcast_shapes(batch, v.shape[:-2])
    return whole is not None and q.shape[-1] == k.shape[-1] and k.shape[-2] == v.shape[-2]


# Scores from which a program of its own is worth its tenth of a second, outside of traces: sizes
# of attention are never open, so each of them has one. With fewer, all weights take no more time.
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
    """The same with all weights; in a vmap, dropout knows what each example draws."""
    scores: Any = q @ k.transpose(-2, -1)
    if is_causal:
        rows, keys = (lucid.arange(n) for n in scores.shape[-2:])
        scores = where(keys <= rows.unsqueeze(1), scores, -math.inf)
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


_Pair = tuple[Any, Any]


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return what `nn.MultiheadAttention` does, with the parameters as arguments.

    Shapes: query (l, n, e), key (s, n, kdim), value (s, n, vdim), or all without n; the result is
    as query, the weights (n, l, s).

    Args:
        query: what asks.
        key: what is compared with it.
        value: what is mixed.
        embed_dim_to_check: e, of query.
        num_heads: how many heads there are; divides e.
        in_proj_weight: (3 e, e), of query, key and value in turn.
        in_proj_bias: (3 e,) or None.
        bias_k: (1, 1, e), a key behind each sequence, or None.
        bias_v: (1, 1, e), its value, or None.
        add_zero_attn: add a key and value of zeros behind each.
        dropout_p: the probability of a weight to be dropped, while training.
        out_proj_weight: (e, e).
        out_proj_bias: (e,) or None.
        training: whether weights are dropped.
        key_padding_mask: (n, s); bool, True is left out, or float, added.
        need_weights: return the weights too.
        attn_mask: (l, s) or (n * heads, l, s), as `key_padding_mask`.
        use_separate_proj_weight: take the three weights below, not `in_proj_weight`.
        q_proj_weight: (e, e).
        k_proj_weight: (e, kdim).
        v_proj_weight: (e, vdim).
        static_k: (n * heads, s, e / heads), projected keys in the place of key's.
        static_v: (n * heads, s, e / heads), projected values.
        average_attn_weights: the weights' mean over heads; else (n, heads, l, s).
        is_causal: `attn_mask` is the causal one.

    Raises:
        ShapeError: e isn't `embed_dim_to_check`, or the tensors haven't 2 or 3 axes.
        OptionError: e can't be cut into that many heads, or is_causal comes without attn_mask.

    >>> x, eye = lucid.ones(5, 1, 4), lucid.eye(4)
    >>> result, weights = F.multi_head_attention_forward(
    ...     x, x, x, 4, 2, lucid.cat([eye] * 3), None, None, None, False, 0.0, eye, None
    ... )
    >>> result.shape, weights[0, 0]
    (lucid.Size([5, 1, 4]), tensor([0.2000, 0.2000, 0.2000, 0.2000, 0.2000]))
    """
    if query.shape[-1] != embed_dim_to_check:
        features = f"{query.shape[-1]} features, not {embed_dim_to_check}"
        raise ShapeError(f"multi_head_attention_forward: query has {features}, embed_dim_to_check")
    if embed_dim_to_check % num_heads:
        raise OptionError("embed_dim must be divisible by num_heads")
    apart = (q_proj_weight, k_proj_weight, v_proj_weight)
    weights: Any = apart if use_separate_proj_weight else (in_proj_weight,)
    for name, weight in zip(
        ("q", "k", "v") if len(weights) == 3 else ("in",), weights, strict=True
    ):
        if weight is None:
            raise OptionError(f"multi_head_attention_forward: {name}_proj_weight is needed")
    return attend_in_heads(
        (query, key, value),
        num_heads,
        False,
        weights,
        in_proj_bias,
        (bias_k, bias_v),
        add_zero_attn,
        dropout_p if training else 0.0,
        (out_proj_weight, out_proj_bias),
        (key_padding_mask, attn_mask),
        need_weights,
        average_attn_weights,
        is_causal,
        (static_k, static_v),
    )


def attend_in_heads(
    inputs: tuple[Tensor, Tensor, Tensor],
    num_heads: int,
    batch_first: bool,
    in_weights: tuple[Any, ...],
    in_bias: Tensor | None,
    behind: _Pair,
    add_zeros: bool,
    p: float,
    out: _Pair,
    masks: _Pair,
    need_weights: bool,
    average: bool,
    is_causal: bool,
    static: _Pair = (None, None),
) -> tuple[Tensor, Tensor | None]:
    """Attention of query, key and value, projected by one weight for all or by three."""
    single = inputs[0].ndim == 2
    padding, attn_mask = masks
    if is_causal and attn_mask is None:
        raise OptionError("Need attn_mask if specifying the is_causal hint.")
    batched = [_batched(x, single, batch_first) for x in inputs]
    q, k, v = _projected(batched, num_heads, in_weights, in_bias)
    k, v = (
        x if given is None else given.reshape(*q.shape[:2], *given.shape[1:])
        for x, given in zip((k, v), static, strict=True)
    )
    mask = _mask(q, k, padding, attn_mask)
    k, v, added = _extended(k, v, behind, add_zeros)
    if mask is not None and added:
        mask = pad(mask, (0, added))
    if need_weights:
        scores = (q * (1.0 / math.sqrt(q.shape[-1]))) @ k.transpose(-2, -1)
        weights = softmax(scores if mask is None else scores + mask, -1)
        weights = dropout(weights, p, True)
        heads = weights @ v
    else:
        causal = is_causal and padding is None and not added
        heads = scaled_dot_product_attention(q, k, v, None if causal else mask, p, is_causal=causal)
    joined = linear(heads.transpose(1, 2).flatten(2), *out)
    if single:
        joined = joined.squeeze(0)
    elif not batch_first:
        joined = joined.transpose(0, 1)
    if not need_weights:
        return joined, None
    shown = weights.mean(1) if average else weights
    return joined, shown.squeeze(0) if single else shown


def _batched(x: Tensor, single: bool, batch_first: bool) -> Tensor:
    """(n, l, e)."""
    if x.ndim != (2 if single else 3):
        raise ShapeError("MultiheadAttention: query, key and value need 2 or 3 axes, all the same")
    if single:
        return x.unsqueeze(0)
    return x if batch_first else x.transpose(0, 1)


def _projected(
    inputs: list[Tensor], num_heads: int, weights: tuple[Any, ...], bias: Tensor | None
) -> tuple[Tensor, ...]:
    """Each as (n, heads, l, e / heads)."""
    each = weights[0].chunk(3) if len(weights) == 1 else weights
    shifts: Any = (None,) * 3 if bias is None else bias.chunk(3)
    return tuple(
        linear(x, weight, shift)
        .reshape(x.shape[0], x.shape[1], num_heads, weight.shape[0] // num_heads)
        .transpose(1, 2)
        for x, weight, shift in zip(inputs, each, shifts, strict=True)
    )


def _extended(k: Tensor, v: Tensor, behind: _Pair, add_zeros: bool) -> tuple[Tensor, Tensor, int]:
    """Keys and values with those that are added behind them, and how many these are."""
    n, heads, _, width = k.shape
    keys, values = [k], [v]
    if behind[0] is not None and behind[1] is not None:
        for parts, added in zip((keys, values), behind, strict=True):
            parts.append(added.reshape(1, heads, 1, width).expand(n, heads, 1, width))
    if add_zeros:
        for parts in (keys, values):
            parts.append(lucid.zeros((n, heads, 1, width), dtype=parts[0].dtype))
    if len(keys) == 1:
        return k, v, 0
    return lucid.cat(keys, 2), lucid.cat(values, 2), len(keys) - 1


def _mask(q: Tensor, k: Tensor, padding: Tensor | None, attn_mask: Tensor | None) -> Tensor | None:
    """Both masks as one that is added to the scores (n, heads, l, s)."""
    total: Tensor | None = None
    if attn_mask is not None:
        total = _additive(attn_mask, q.dtype)
        if total.ndim == 3:
            total = total.reshape(*q.shape[:3], k.shape[2])
    if padding is not None:
        added = _additive(padding, q.dtype).reshape(-1, 1, 1, k.shape[2])
        total = added if total is None else total + added
    return total


def _scores(api: str, mask: Tensor) -> Tensor:
    """A mask of numbers that are added; of integers it would be one of zeros and ones."""
    if not mask.is_floating_point():
        raise DTypeError(f"{api}: a mask is of bool or of floats, not {mask.dtype!r}")
    return mask


def _additive(mask: Tensor, dtype: DType) -> Tensor:
    if mask.dtype is not bool_:
        return _scores("MultiheadAttention", mask)
    return lucid.zeros(mask.shape, dtype=dtype).masked_fill(mask, -math.inf)
