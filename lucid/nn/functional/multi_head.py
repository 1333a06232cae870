"""Attention in several heads, with its projections."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid.functions.softmax import softmax
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.types import DType, bool_
from lucid.nn.functional.attention import scaled_dot_product_attention
from lucid.nn.functional.dropout import dropout
from lucid.nn.functional.linear import linear
from lucid.nn.functional.padding import pad
from lucid.tensor.tensor import Tensor

__all__ = ["multi_head_attention_forward"]

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
        training: whether weights are dropped. Default: True.
        key_padding_mask: (n, s); bool, True is left out, or float, added. Default: None.
        need_weights: return the weights too. Default: True.
        attn_mask: (l, s) or (n * heads, l, s), as `key_padding_mask`. Default: None.
        use_separate_proj_weight: take the three weights below, not `in_proj_weight`.
            Default: False.
        q_proj_weight: (e, e). Default: None.
        k_proj_weight: (e, kdim). Default: None.
        v_proj_weight: (e, vdim). Default: None.
        static_k: (n * heads, s, e / heads), projected keys in the place of key's. Default: None.
        static_v: (n * heads, s, e / heads), projected values. Default: None.
        average_attn_weights: the weights' mean over heads; else (n, heads, l, s). Default: True.
        is_causal: `attn_mask` is the causal one. Default: False.

    Raises:
        ShapeError: e isn't `embed_dim_to_check`, or the tensors haven't 2 or 3 axes.
        OptionError: e can't be cut into that many heads, or is_causal comes without attn_mask.

    Example:
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


def _additive(mask: Tensor, dtype: DType) -> Tensor:
    if mask.dtype is not bool_:
        return mask
    return lucid.zeros(mask.shape, dtype=dtype).masked_fill(mask, -math.inf)
