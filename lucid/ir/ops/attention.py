"""Attention: softmax(q kᵀ) v, row by row, and its gradient, neither of which needs all weights.

Both ops give several arrays, one after the other along the only axis of the result: `attention` the
rows of the output and the logarithm of each row's sum of exponentials, `attention_grad` the
cotangents of q, k and v. In these rows come before all but the first axis of the batch, so that the
output of heads (b, h, l, d) lies as (b, l, h, d), which is what the next projection reads.

Reference: T. Dao, "FlashAttention-2", 2023; M. Milakov and N. Gimelshein, "Online normalizer
calculation for softmax", 2018.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from lucid.ir import ops, philox
from lucid.ir.errors import DTypeError, ShapeError
from lucid.ir.op import Op, Operand, Sample, declare
from lucid.ir.ops.rules import FLOATS, broadcast_shapes, failure, require_dtype
from lucid.ir.types import Shape, TensorType, bool_, f32, i64

__all__ = ["attention", "attention_grad"]

_ROWS = 256  # that the NumPy meaning computes together
_HIDDEN: Any = np.float32(-math.inf)  # the score that flags leave where they hide one


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """The sizes of an attention: q (*batch, rows, inner), k (*, keys, inner), v (*, keys, columns).

    Attributes:
        batch: that of all operands together, which broadcast.
    """

    batch: Shape
    rows: int
    keys: int
    inner: int
    columns: int

    @staticmethod
    def of(q: Any, k: Any, v: Any, *mask: Any) -> AttentionSizes:
        """The sizes of operands, or of their types, that fit each other."""
        batch = reduce(lambda a, b: broadcast_shapes(a, b) or (), [x.shape[:-2] for x in (q, k, v)])
        if mask:
            batch = broadcast_shapes(batch, mask[0].shape[:-2]) or ()
        return AttentionSizes(batch, q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1])

    @property
    def scores(self) -> Shape:
        return (*self.batch, self.rows, self.keys)

    @property
    def output(self) -> Shape:
        return (*self.batch, self.rows, self.columns)

    @property
    def parts(self) -> list[Shape]:
        """The output, and of each row the logarithm of its sum and what rounding took from that."""
        return [self.output, self.output[:-1], self.output[:-1]]

    @property
    def gradients(self) -> list[Shape]:
        """The cotangents of q, k and v, before they are summed over what was repeated."""
        sizes = ((self.rows, self.inner), (self.keys, self.inner), (self.keys, self.columns))
        return [(*self.batch, *size) for size in sizes]


def rows_first(shape: Shape) -> tuple[int, ...]:
    """The order of axes in which (*batch, rows, columns) lies: (batch[0], rows, …, columns)."""
    rank = len(shape)
    return (0, rank - 2, *range(1, rank - 2), rank - 1) if rank > 2 else tuple(range(rank))


def _order(shape: Shape, rank: int) -> tuple[int, ...]:
    """Of a part of a result: rows of sums have no columns, and stay as they are."""
    return rows_first(shape) if len(shape) == rank else tuple(range(len(shape)))


def split(flat: Operand, shapes: Sequence[Shape]) -> list[Any]:
    """The arrays that lie one after the other in a result, as views of it."""
    found, start, rank = [], 0, len(shapes[0])
    for shape in shapes:
        order = _order(shape, rank)
        part = ops.slice_axis(flat, 0, start, start + prod(shape))
        part = ops.reshape(part, shape=tuple(shape[axis] for axis in order))
        found.append(ops.transpose(part, perm=ops.inverse_permutation(order)))
        start += prod(shape)
    return found


def join(parts: Sequence[Operand]) -> Any:
    """One array after the other, as `split` finds them."""
    rank = len(parts[0].shape)
    moved = [ops.transpose(part, perm=_order(part.shape, rank)) for part in parts]
    return ops.concat(*(ops.reshape(x, shape=(prod(x.shape),)) for x in moved), axis=0)


# Types ----------------------------------------------------------------------------------------


def _names(has_mask: bool, has_dropout: bool) -> tuple[str, ...]:
    dropout = ("state", "keep") if has_dropout else ()
    return ("q", "k", "v", *(("mask",) if has_mask else ()), *dropout)


def _sizes(op: str, names: tuple[str, ...], types: Sequence[TensorType]) -> AttentionSizes:
    """The sizes that operands have in common; raises what is wrong with their types."""
    if len(names) != len(types):
        problem = f"{len(names)} operands are needed, {', '.join(names)}; there are {len(types)}"
        raise failure(ShapeError, op, problem)
    given = dict(zip(names, types, strict=True))
    floats = [name for name in names if name not in ("mask", "state", "keep")]
    require_dtype(op, tuple(floats), [given[name] for name in floats], FLOATS)

    def fail(error: Any, problem: str) -> Any:
        return failure(error, op, problem, names, types)

    q, k, v = types[:3]
    mask = given.get("mask")
    if min(q.ndim, k.ndim, v.ndim) < 2 or (mask is not None and mask.ndim < 2):
        raise fail(ShapeError, "q, k, v and a mask need two axes")
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise fail(ShapeError, "q (*, l, e), k (*, s, e) and v (*, s, d) are needed")
    shapes = [x.shape[:-2] for x in (q, k, v, *([] if mask is None else [mask]))]
    batch: Shape | None = ()
    for shape in shapes:
        batch = None if batch is None else broadcast_shapes(batch, shape)
    if batch is None:
        raise fail(ShapeError, "the batches don't broadcast")
    sizes = AttentionSizes(batch, q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1])
    if mask is not None:
        if mask.dtype not in (bool_, q.dtype):
            raise fail(DTypeError, f"a mask is bool or {q.dtype.name}")
        if broadcast_shapes(mask.shape[-2:], sizes.scores[-2:]) != sizes.scores[-2:]:
            raise fail(ShapeError, f"the mask doesn't broadcast to {list(sizes.scores)}")
    if "state" in given and given["state"] != TensorType(i64, (2,)):
        raise fail(ShapeError, "the state is i64[2]")
    if "keep" in given and given["keep"] != TensorType(q.dtype, ()):
        raise fail(ShapeError, f"keep is {q.dtype.name}[]")
    return sizes


def _infer(
    *operands: TensorType,
    causal: bool,
    has_mask: bool,
    has_dropout: bool,
    nan_rows: bool,
    fill: np.generic = _HIDDEN,
) -> TensorType:
    sizes = _sizes("attention", _names(has_mask, has_dropout), operands)
    return operands[0].with_shape((sum(map(prod, sizes.parts)),))


def _infer_grad(
    *operands: TensorType,
    causal: bool,
    has_mask: bool,
    has_dropout: bool,
    nan_rows: bool,
    fill: np.generic = _HIDDEN,
) -> TensorType:
    names = (*_names(has_mask, has_dropout), "sums", "errors", "delta", "g")
    sizes = _sizes("attention_grad", names, operands)
    wanted = [*[sizes.output[:-1]] * 3, sizes.output]
    if [x.shape for x in operands[-4:]] != wanted:
        problem = f"the last four are {', '.join(str(list(shape)) for shape in wanted)}"
        raise failure(ShapeError, "attention_grad", problem, names, operands)
    return operands[0].with_shape((sum(map(prod, sizes.gradients)),))


# Meaning --------------------------------------------------------------------------------------


def read_by_rows(op: Op, count: int) -> tuple[int, ...]:
    """The operands of which whole rows take part in products."""
    return (0, 1, 2, count - 1) if op is attention_grad else (0, 1, 2)


@dataclass(frozen=True, slots=True)
class _Arrays:
    """The operands of either op as arrays, and blocks of rows of its scores."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    rest: tuple[np.ndarray, ...]
    causal: bool
    has_mask: bool
    has_dropout: bool
    fill: Any

    @property
    def sizes(self) -> AttentionSizes:
        return AttentionSizes.of(self.q, self.k, self.v, *self.rest[: self.has_mask])

    def blocks(self) -> Iterator[slice]:
        for start in range(0, self.sizes.rows, _ROWS):
            yield slice(start, min(start + _ROWS, self.sizes.rows))

    def allowed(self, rows: slice) -> list[tuple[np.ndarray, Any]]:
        """Where scores count, and what is in the place of the others."""
        found: list[tuple[np.ndarray, Any]] = []
        if self.has_mask and self.rest[0].dtype == np.bool_:
            found.append((self._mask(rows), self.fill))
        if self.causal:
            seen = np.arange(self.sizes.keys) <= np.arange(rows.start, rows.stop)[:, None]
            found.append((seen, -math.inf))
        return found

    def _mask(self, rows: slice) -> np.ndarray:
        mask = self.rest[0]
        return mask if mask.shape[-2] == 1 else mask[..., rows, :]

    def scores(self, rows: slice) -> np.ndarray:
        scores = np.matmul(self.q[..., rows, :], self.k.swapaxes(-1, -2))
        if self.has_mask and self.rest[0].dtype != np.bool_:
            scores = scores + self._mask(rows)
        shape = (*self.sizes.batch, *scores.shape[-2:])
        for allowed, fill in self.allowed(rows):
            scores = np.where(allowed, scores, scores.dtype.type(fill))
        return np.broadcast_to(scores, shape)

    def noise(self, rows: slice) -> Any:
        """What dropout multiplies the weights by, as `random_uniform` draws for all of them."""
        if not self.has_dropout:
            return self.q.dtype.type(1)
        (seed, offset), keep = self.rest[-2], self.rest[-1]
        sizes = self.sizes
        count = (rows.stop - rows.start) * sizes.keys
        kept = np.empty((prod(sizes.batch), count), np.bool_)
        for n in range(len(kept)):
            start = int(offset) + (n * sizes.rows + rows.start) * sizes.keys
            kept[n] = philox.uniform(int(seed), start, (count,)) < np.float32(keep)
        scaled = kept.astype(self.q.dtype) / keep
        return scaled.reshape(*sizes.batch, rows.stop - rows.start, sizes.keys)


def _flat(parts: Sequence[np.ndarray]) -> np.ndarray:
    rank = parts[0].ndim
    return np.concatenate([x.transpose(_order(x.shape, rank)).ravel() for x in parts])


@np.errstate(all="ignore")
def _attention(
    *operands: np.ndarray,
    causal: bool,
    has_mask: bool,
    has_dropout: bool,
    nan_rows: bool,
    fill: Any = _HIDDEN,
) -> np.ndarray:
    q, k, v, *rest = operands
    x = _Arrays(q, k, v, tuple(rest), causal, has_mask, has_dropout, fill)
    sizes, dtype = x.sizes, q.dtype
    output, sums, errors = (np.zeros(shape, dtype) for shape in sizes.parts)
    for rows in x.blocks():
        scores = x.scores(rows)
        largest = scores.max(-1, keepdims=True, initial=-math.inf)
        largest = np.where(largest == -math.inf, dtype.type(0), largest)
        weights = np.exp(scores - largest)
        total = weights.sum(-1, keepdims=True)
        if not nan_rows:
            total = np.where(total == 0, dtype.type(1), total)
        output[..., rows, :] = np.matmul(weights / total * x.noise(rows), v)
        found = np.log(total) + largest
        sums[..., rows] = found[..., 0]
        errors[..., rows] = (largest - found + np.log(total))[..., 0]
    return _flat((output, sums, errors))


@np.errstate(all="ignore")
def _attention_grad(
    *operands: np.ndarray,
    causal: bool,
    has_mask: bool,
    has_dropout: bool,
    nan_rows: bool,
    fill: Any = _HIDDEN,
) -> np.ndarray:
    q, k, v, *rest, sums, errors, delta, g = operands
    x = _Arrays(q, k, v, tuple(rest), causal, has_mask, has_dropout, fill)
    dq, dk, dv = (np.zeros(shape, q.dtype) for shape in x.sizes.gradients)
    for rows in x.blocks():
        noise = x.noise(rows)
        weights = np.exp(x.scores(rows) - sums[..., rows, None] - errors[..., rows, None])
        dweights = np.matmul(g[..., rows, :], v.swapaxes(-1, -2)) * noise
        dscores = weights * (dweights - delta[..., rows, None])
        for allowed, _ in x.allowed(rows):
            dscores = np.where(allowed, dscores, q.dtype.type(0))
        dv += np.matmul((weights * noise).swapaxes(-1, -2), g[..., rows, :])
        dk += np.matmul(dscores.swapaxes(-1, -2), q[..., rows, :])
        dq[..., rows, :] = np.matmul(dscores, k)
    return _flat((dq, dk, dv))


# In terms of other ops ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spelled:
    """An attention's operands, and what it computes with them in terms of other ops."""

    q: Any
    k: Any
    v: Any
    mask: Any
    dropout: tuple[Any, ...]
    causal: bool
    nan_rows: bool
    fill: Any

    @staticmethod
    def of(operands: Sequence[Any], attributes: dict[str, Any]) -> Spelled:
        """Of the first operands of either op."""
        q, k, v, *rest = operands
        mask = rest.pop(0) if attributes["has_mask"] else None
        dropout = tuple(rest[:2]) if attributes["has_dropout"] else ()
        fill = attributes.get("fill", _HIDDEN)
        return Spelled(q, k, v, mask, dropout, attributes["causal"], attributes["nan_rows"], fill)

    @property
    def sizes(self) -> AttentionSizes:
        return AttentionSizes.of(
            self.q, self.k, self.v, *([] if self.mask is None else [self.mask])
        )

    @property
    def _has_flags(self) -> bool:
        return self.mask is not None and self.mask.dtype is bool_

    def _chosen(self, scores: Any, unseen: float = 0.0, hidden: float = 0.0) -> Any:
        """Scores, or what belongs to them, where they count; else what is left there."""
        if self._has_flags:
            scores = ops.where(self.mask, scores, ops.full(self.q, hidden, (), self.q.dtype))
        if self.causal:
            shape, nothing = scores.shape[-2:], ops.full(self.q, unseen, (), self.q.dtype)
            keys, rows = (ops.indices(self.q, shape, axis) for axis in (1, 0))
            scores = ops.where(ops.le(keys, rows), scores, nothing)
        return scores

    def scores(self) -> Any:
        """q kᵀ, masked: (*batch, rows, keys), or what broadcasts to that."""
        scores = ops.matmul(self.q, _t(self.k))
        if self.mask is not None and not self._has_flags:
            scores = scores + self.mask
        return self._chosen(scores, -math.inf, float(self.fill))

    def noise(self) -> Any:
        """What the weights are multiplied by; None without dropout."""
        if not self.dropout:
            return None
        state, keep = self.dropout
        drawn = ops.random_uniform(state, shape=self.sizes.scores, dtype=f32)
        limit = keep if keep.dtype is f32 else ops.cast(keep, dtype=f32)
        return ops.cast(ops.lt(drawn, limit), dtype=self.q.dtype) / keep

    def weights(self) -> tuple[Any, Any, Any]:
        """The softmax of the scores, without dropout; logarithms of its sums, and their errors."""
        scores = self.scores()
        last = (len(scores.shape) - 1,)
        if not scores.shape[-1]:
            nothing = ops.full(self.q, 0, scores.shape[:-1], scores.dtype)
            return scores, nothing, nothing
        largest = ops.keep_axes(ops.amax(scores, axes=last), scores.shape, last)
        if not self.nan_rows:
            low = ops.eq(largest, ops.full(self.q, -math.inf, (), self.q.dtype))
            largest = ops.where(low, ops.zero(self.q), largest)
        e = ops.exp(scores - largest)
        total = ops.keep_axes(ops.sum(e, axes=last), scores.shape, last)
        if not self.nan_rows:
            total = ops.where(ops.eq(total, ops.zero(self.q)), ops.one(self.q), total)
        sums = ops.log(total) + largest
        errors = (largest - sums) + ops.log(total)
        return e / total, *(ops.reshape(x, shape=x.shape[:-1]) for x in (sums, errors))

    def weights_again(self, sums: Any, errors: Any) -> Any:
        """The same weights, from the logarithms of their sums."""
        return ops.exp(self.scores() - _column(sums) - _column(errors))

    def output(self, weights: Any, *rows: Any) -> Any:
        """The result of `attention`."""
        sizes = self.sizes
        output = ops.matmul(_times(weights, self.noise()), self.v)
        parts = zip((output, *rows), sizes.parts, strict=True)
        return join([ops.broadcast_to(x, shape) for x, shape in parts])

    def gradients(self, weights: Any, delta: Any, g: Any) -> Any:
        """The result of `attention_grad`."""
        noise, dscores = self.noise(), self.dscores(weights, delta, g)
        dv = ops.matmul(_t(_times(weights, noise)), g)
        found = ops.matmul(dscores, self.k), ops.matmul(_t(dscores), self.q), dv
        shapes = self.sizes.gradients
        return join([ops.broadcast_to(x, shape) for x, shape in zip(found, shapes, strict=True)])

    def dscores(self, weights: Any, delta: Any, g: Any) -> Any:
        """The cotangent of the scores before they were masked."""
        dweights = _times(ops.matmul(g, _t(self.v)), self.noise())
        return self._chosen(weights * (dweights - _column(delta)))


def _t(x: Any) -> Any:
    return ops.swap_axes(x, -1, -2)


def _times(x: Any, noise: Any) -> Any:
    return x if noise is None else x * noise


def _column(x: Any) -> Any:
    return ops.reshape(x, shape=(*x.shape, 1))


def _vjp(g: Any, y: Any, *operands: Any, **attributes: bool) -> tuple[Any, ...]:
    """Of the output by `attention_grad`; that of a mask of floats needs all scores.

    What rounding took is 0, as far as derivatives go.
    """
    x = Spelled.of(operands, attributes)
    output, sums, errors = split(y, x.sizes.parts)
    g, g_sums, _ = split(g, x.sizes.parts)
    delta = ops.sum(g * output, axes=(len(g.shape) - 1,)) - g_sums
    flat = ops.attention_grad(*operands, sums, errors, delta, g, **attributes)
    found = split(flat, x.sizes.gradients)
    if x.mask is not None:
        differs = x.mask.dtype is not bool_
        weights = x.weights_again(sums, errors) if differs else None
        found.append(x.dscores(weights, delta, g) if differs else None)
    return (*found, *(None for _ in x.dropout))


def _grad_vjp(c: Any, y: Any, *operands: Any, **attributes: bool) -> tuple[Any, ...]:
    """The second derivative, in terms of other ops: all of these are differentiable again."""
    *first, sums, errors, delta, g = operands
    x = Spelled.of(first, attributes)
    dq, dk, dv = split(c, x.sizes.gradients)
    noise = x.noise()
    weights = x.weights_again(sums, errors)
    deviation = _times(ops.matmul(g, _t(x.v)), noise) - _column(delta)
    of_dscores = x._chosen(ops.matmul(dq, _t(x.k)) + ops.matmul(x.q, _t(dk)))
    of_dweights = of_dscores * weights
    of_weights = of_dscores * deviation + _times(ops.matmul(g, _t(dv)), noise)
    of_scores = x._chosen(weights * of_weights)
    dscores = x._chosen(weights * deviation)
    found = [
        ops.matmul(of_scores, x.k) + ops.matmul(dscores, dk),
        ops.matmul(_t(of_scores), x.q) + ops.matmul(_t(dscores), dq),
        ops.matmul(_t(_times(of_dweights, noise)), g),
    ]
    if x.mask is not None:
        found.append(None if x.mask.dtype is bool_ else of_scores)
    last = (len(of_scores.shape) - 1,)
    g_g = ops.matmul(_times(of_dweights, noise), x.v) + ops.matmul(_times(weights, noise), dv)
    of_rows = [-ops.sum(value, axes=last) for value in (of_scores, of_scores, of_dweights)]
    return (*found, *(None for _ in x.dropout), *of_rows, g_g)


# The ops --------------------------------------------------------------------------------------


def _batch(op: Op, size: int, batched: Sequence[bool], *operands: Any, **attributes: bool) -> Any:
    """Let the examples be one more axis of the batch; with dropout, of scores by number, a loop."""
    wide = [
        x if is_batched else ops.broadcast(x, shape=(size, *x.shape))
        for x, is_batched in zip(operands, batched, strict=True)
    ]
    if attributes["has_dropout"]:
        rows = ([ops.slice_axis(x, 0, n, n + 1) for x in wide] for n in range(size))
        alone = ([ops.reshape(x, shape=x.shape[1:]) for x in row] for row in rows)
        found = [op(*row, **attributes) for row in alone]
        return ops.concat(*(ops.reshape(x, shape=(1, *x.shape)) for x in found), axis=0)
    count = 3 + attributes["has_mask"]
    rank = max(len(x.shape) for x in wide[:count])
    for n, x in enumerate(wide[:count]):
        wide[n] = ops.reshape_to(x, (size, *(1,) * (rank - len(x.shape)), *x.shape[1:]))
    sizes = AttentionSizes.of(*wide[:count])
    parts = []
    for part in split(op(*wide, **attributes), sizes.parts if op is attention else sizes.gradients):
        order = _order(part.shape[1:], rank - 1)
        moved = ops.transpose(part, perm=(0, *(axis + 1 for axis in order)))
        parts.append(ops.reshape(moved, shape=(size, prod(part.shape[1:]))))
    return ops.concat(*parts, axis=1)


_PLAIN = {"causal": False, "has_mask": False, "has_dropout": False, "nan_rows": True}
_FLAGS = np.array([[True, False, True], [False, False, False], [True, True, False], [True] * 3])
_CASES: tuple[tuple[tuple[Any, ...], tuple[Shape, ...], dict[str, Any]], ...] = (
    ((), ((4, 5), (3, 5), (3, 2)), {}),
    ((), ((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 7)), {"causal": True}),
    ((), ((2, 2, 4, 3), (2, 1, 3, 3), (2, 1, 3, 3)), {}),
    (((3, 1, 3),), ((4, 2), (3, 3, 2), (3, 2)), {"has_mask": True}),
    ((_FLAGS,), ((2, 4, 5), (2, 3, 5), (2, 3, 2)), {"has_mask": True, "nan_rows": False}),
    ((_FLAGS,), ((4, 5), (3, 5), (3, 2)), {"has_mask": True, "fill": np.float32(-1e9)}),
    (
        (np.array([7, 3]), np.array(0.75)),
        ((2, 3, 5), (2, 4, 5), (2, 4, 2)),
        {"causal": True, "has_dropout": True},
    ),
    ((), ((0, 5), (3, 5), (3, 2)), {}),
    ((), ((2, 5), (0, 5), (0, 2)), {"nan_rows": False}),
)


def _samples(is_gradient: bool) -> tuple[Sample, ...]:
    found = []
    for rest, (q, k, v), given in _CASES:
        attributes = {**_PLAIN, **given}
        batch = np.broadcast_shapes(q[:-2], k[:-2], v[:-2], rest[0][:-2] if _is_shape(rest) else ())
        more = (*[(*batch, q[-2])] * 3, (*batch, q[-2], v[-1])) if is_gradient else ()
        found.append(Sample((q, k, v, *rest, *more), attributes))
    return tuple(found)


def _is_shape(rest: tuple[Any, ...]) -> bool:
    return bool(rest) and isinstance(rest[0], tuple)


attention: Op = declare(
    Op(
        "attention",
        _infer,
        _attention,
        _vjp,
        kind="attention",
        samples=_samples(is_gradient=False),
        batch=_batch,
    )
)
"""Operands: q, k, v; a mask that broadcasts to the scores, bool (where it is False the score is
`fill`, -inf if left out) or of q's dtype (added); the state and the rate `keep` of a dropout of the
weights. With `causal`, row i sees the keys 0 to i. A row without any score gives zeros; with
`nan_rows`, NaN.

Gives the output, the logarithms of the sums of exponentials, and what these have lost by rounding:
with -1e9 all over a row, the logarithm of its length."""
attention_grad: Op = declare(
    Op(
        "attention_grad",
        _infer_grad,
        _attention_grad,
        _grad_vjp,
        kind="attention",
        samples=_samples(is_gradient=True),
        batch=_batch,
    )
)
"""Operands: those of `attention`, the logarithms of its sums and their errors, for each row the sum
of cotangent times output, and the cotangent. Broadcast operands get a cotangent for each use."""
