"""Attention block by block: scores of some queries and some keys at a time, and their gradient.

All blocks are transposed, a row for each key and a lane for each query. So what belongs to a query,
its largest score and its sum, is one lane of a vector, and the products read keys and values where
they lie, an element at a time; only the queries are copied. The largest score so far, the sum of
exponentials and the output are corrected whenever a block has a larger score (an online softmax).
The gradient computes the scores again, from the logarithms of the sums.

Reference: T. Dao, "FlashAttention-2", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from lucid.codegen import vmath
from lucid.codegen.contraction.contraction import Contraction, plan
from lucid.codegen.contraction.gemm import Emitter, Epilogue, Position
from lucid.codegen.contraction.lanes import LaneCopier, LaneCopy
from lucid.codegen.emit.lowering import ELEMENTS
from lucid.codegen.emit.philox import philox_words, uniform
from lucid.codegen.kernel_ir.affine import AffineExpr
from lucid.codegen.llvm.builder import (
    FunctionBuilder,
    Val,
    const,
    const_lanes,
    i64,
    iota,
    vector,
)
from lucid.codegen.llvm.target import Target
from lucid.ir.extents import is_open
from lucid.ir.ops.attention import AttentionSizes, rows_first
from lucid.ir.strides import contiguous_strides
from lucid.ir.types import DType, bool_

_LINE = 64  # bytes


@dataclass(frozen=True, slots=True)
class Attention:
    """What is computed, and in which blocks.

    Attributes:
        dtype: of all but a bool mask and the state of the dropout.
        gradient: of the output's cotangent, rather than the output.
        mask: the dtype of a mask; None without.
        fill: the score where flags hide one.
        places: where the elements of each operand lie, over the batch and then its own last axes.
            Those of q, k, v and g are adjacent along the last one.
        block: queries, whole vectors of them, and keys.
    """

    dtype: DType
    sizes: AttentionSizes
    gradient: bool
    causal: bool
    nan_rows: bool
    mask: DType | None
    has_dropout: bool
    places: tuple[AffineExpr, ...]
    block: tuple[int, int]
    fill: float

    @property
    def names(self) -> tuple[str, ...]:
        """The operands, in their order."""
        found = ["q", "k", "v"]
        found += [] if self.mask is None else ["mask"]
        found += ["state", "keep"] if self.has_dropout else []
        return (*found, *(("sums", "errors", "delta", "g") if self.gradient else ()))

    def place(self, name: str) -> AffineExpr:
        return self.places[self.names.index(name)]

    def stride(self, name: str, axis: int) -> int:
        """Elements from one row, or column, of an operand to the next."""
        return self.place(name).coefficient(len(self.sizes.batch) + axis)

    @property
    def element(self) -> str:
        return ELEMENTS[self.dtype]

    @property
    def query_blocks(self) -> int:
        return -(-self.sizes.rows // self.block[0])

    @property
    def has_own_mask(self) -> bool:
        """Whether each query has its own mask, so that blocks of it are copied and transposed."""
        return self.mask is not None and self.stride("mask", 0) != 0

    def products(self, target: Target) -> dict[str, list[Contraction]]:
        """The products of a block, by name: with a whole block of keys, and with the last one.

        Of an open number of keys the last one has tiles of the same kind.
        """
        sizes, (queries, whole) = self.sizes, self.block
        e, d, element = sizes.inner, sizes.columns, self.element
        k_row, v_row = self.stride("k", 0), self.stride("v", 0)

        def made(keys: int) -> dict[str, Contraction]:
            by_row, by_column = (queries, 1), (1, queries)
            found = {"scores": Contraction(keys, queries, e, element, (k_row, 1), by_row)}
            if not self.gradient:
                return {
                    **found,
                    "output": Contraction(d, queries, keys, element, (1, v_row), by_row),
                }
            return {
                **found,
                "dweights": Contraction(keys, queries, d, element, (v_row, 1), by_row),
                "dv": Contraction(keys, d, queries, element, by_row, (d, 1)),
                "dk": Contraction(keys, e, queries, element, by_row, (e, 1)),
                "dq": Contraction(queries, e, keys, element, by_column, (k_row, 1)),
            }

        rest = sizes.keys % whole
        all_ = [made(whole), *([made(rest)] if is_open(rest) or rest else [])]
        if is_open(rest):
            tilings = {name: plan(spec, target).tiling for name, spec in all_[0].items()}
            all_[1] = {name: replace(x, tiling=tilings[name]) for name, x in all_[1].items()}
        return {name: [each[name] for each in all_] for name in all_[0]}

    def arrays(self, target: Target) -> dict[str, int]:
        """The elements of each array that a part needs for itself."""
        queries, keys = self.block
        e, d = self.sizes.inner, self.sizes.columns
        lanes = target.lanes(self.element)
        wide = -(-d // lanes) * lanes
        found = {"qt": e * queries, "scores": keys * queries}
        if self.has_own_mask:
            padded = -(-keys // lanes) * lanes
            found |= {"mask_rows": queries * padded, "mask": keys * queries}
        if self.causal:  # 0 * what it hides
            hidden = {"k": e, "q": e, "g": d} if self.gradient else {"v": d}
            found |= {f"hidden_{x}": -(-size // lanes) * lanes for x, size in hidden.items()}
        if self.gradient:
            found |= {"gt": d * queries, "dscores": keys * queries, "dq": queries * e}
            return {**found, "rows": queries * e, "g_rows": queries * d, "sums": queries,
                    "errors": queries, "delta": queries}  # fmt: skip
        found |= {"rows": queries * max(e, wide), "output": d * queries}
        return {**found, "largest": queries, "total": queries, "factor": queries}

    def scratch(self, target: Target) -> int:
        """Elements of all arrays of a part, each in cache lines of its own."""
        return sum(self._aligned(size) for size in self.arrays(target).values())

    def _aligned(self, size: int) -> int:
        line = _LINE // self.dtype.itemsize
        return -(-size // line) * line

    def offsets(self, target: Target) -> dict[str, int]:
        """Where each array begins."""
        found, total = {}, 0
        for name, size in self.arrays(target).items():
            found[name] = total
            total += self._aligned(size)
        return found


class AttentionEmitter:
    """Writes the blocks of one row of them, or of the gradient of one index of the batch.

    Args:
        args: addresses of the operands, of the result and of scratch memory.
    """

    def __init__(self, b: FunctionBuilder, spec: Attention, args: Sequence[Val]) -> None:
        self.b, self.spec = b, spec
        self.element = spec.element
        self.lanes = b.target.lanes(self.element)
        self.type = vector(self.element, self.lanes)
        self.queries, self.keys = spec.block
        self.groups = range(0, self.queries, self.lanes)
        *operands, self.result, scratch = args
        self.given = dict(zip(spec.names, operands, strict=True))
        self.own = {
            name: b.at(self.element, scratch, start)
            for name, start in spec.offsets(b.target).items()
        }
        self.products = spec.products(b.target)
        self.kept = b.alloca("i32", self.lanes)
        self.is_hiding = spec.causal
        if spec.has_dropout:
            self._read_dropout()

    def _read_dropout(self) -> None:
        b = self.b
        state = b.at("i64", self.given["state"], self.spec.place("state").offset)
        step = self.spec.place("state").coefficient(len(self.spec.sizes.batch))
        self.seed, self.counter = b.load("i64", state), b.load("i64", b.at("i64", state, step))
        keep_at = b.at(self.element, self.given["keep"], self.spec.place("keep").offset)
        keep = b.load(self.element, keep_at)
        self.scaled = b.splat(b.div(const(self.element, 1), keep), self.lanes)
        self.keep = keep if self.element == "float" else b.cast("fptrunc", keep, "float")

    # The output ---------------------------------------------------------------------------

    def run_output(self, unit: Val) -> None:
        """One block of queries: `unit` counts those of all indices of the batch."""
        b, spec = self.b, self.spec
        blocks = spec.query_blocks
        self._enter(b.binary("udiv", unit, blocks))
        self._enter_queries(b.mul(b.binary("urem", unit, blocks), self.queries))
        for name, value in (("output", 0.0), ("largest", -math.inf), ("total", 0.0)):
            self._fill(name, value)
        self._over_keys(self._output_block)
        if spec.causal:
            self._hide_keys("v", spec.sizes.columns)
        self._leave_output()

    def _output_block(self, key: Val, which: int) -> None:
        self._product("scores", which, self._keys("k", key), "qt", self._store("scores"))
        self._normalize(key, self.products["scores"][which].m)
        self._product("output", which, self._keys("v", key), "scores", self._corrected)

    def _corrected(self, b: FunctionBuilder, sums: Val, place: Position) -> None:
        at = self._at("output", b.add(b.mul(place.row, self.queries), place.col))
        factor = b.load(sums.type, self._at("factor", place.col))
        b.store(b.muladd(b.load(sums.type, at), factor, sums), at)

    def _normalize(self, key: Val, count: int) -> None:
        """Scores -> exponentials, sums of them, and the factors by which older ones shrink."""
        b, low = self.b, const(self.type, -math.inf)
        largest = [b.load(self.type, self._at("largest", group)) for group in self.groups]
        with b.loop(0, count, 1, largest) as loop:
            found = []
            for group, old in zip(self.groups, loop.carried, strict=True):
                at = self._score_at("scores", loop.index, group)
                score = b.load(self.type, at)
                masked, _ = self._masked(score, loop.index, key, group)
                if masked is not score:
                    b.store(masked, at)
                found.append(b.select(b.gt(masked, old), masked, old))
            loop.carry(*found)
        totals, shifts = [], []
        for group, old, new in zip(self.groups, largest, loop.results, strict=True):
            shift = b.select(b.eq(new, low), const(self.type, 0), new)
            factor = vmath.exp(b, b.sub(old, shift))
            b.store(new, self._at("largest", group))
            b.store(factor, self._at("factor", group))
            total = b.load(self.type, self._at("total", group))
            totals.append(b.mul(total, factor))
            shifts.append(shift)
        with b.loop(0, count, 1, totals) as loop:
            found = []
            for group, shift, total in zip(self.groups, shifts, loop.carried, strict=True):
                at = self._score_at("scores", loop.index, group)
                weight = vmath.exp(b, b.sub(b.load(self.type, at), shift))
                found.append(b.add(total, weight))
                b.store(self._dropped(weight, loop.index, key, group), at)
            loop.carry(*found)
        for group, total in zip(self.groups, loop.results, strict=True):
            b.store(total, self._at("total", group))

    def _leave_output(self) -> None:
        """Divide by the sums, transpose, and store the rows that there are."""
        b, spec, low = self.b, self.spec, const(self.type, -math.inf)
        sizes = spec.sizes
        for group in self.groups:
            total = b.load(self.type, self._at("total", group))
            largest = b.load(self.type, self._at("largest", group))
            if not spec.nan_rows:
                total = b.select(b.eq(total, 0), const(self.type, 1), total)
            shift = b.select(b.eq(largest, low), const(self.type, 0), largest)
            log = vmath.log(b, total)
            sums = b.add(log, shift)
            errors = b.add(b.sub(shift, sums), log)
            first = b.add(b.mul(self.index, sizes.rows), b.add(self.row, group))
            exists = b.tail_mask(self.lanes, b.sub(self.count, group))
            start = prod(sizes.output)
            for value, shape in zip((sums, errors), sizes.parts[1:], strict=True):
                to = b.at(self.element, self.result, b.add(first, start))
                b.masked_store(value, to, exists)
                start += prod(shape)
            with b.loop(0, sizes.columns) as loop:
                at = self._score_at("output", loop.index, group)
                value = b.div(b.load(self.type, at), total)
                if spec.causal:
                    hidden = b.load(self.element, self._at("hidden_v", loop.index))
                    value = b.add(value, b.splat(hidden, self.lanes))
                b.store(value, at)
        width = -(-sizes.columns // self.lanes)
        self._transpose("output", "rows", self.queries, sizes.columns, self.queries)
        with b.loop(0, self.count) as loop:
            source = self._at("rows", b.mul(loop.index, width * self.lanes))
            self._copy_row(source, self._result_row(0, b.add(self.row, loop.index)), sizes.columns)

    # The gradient -------------------------------------------------------------------------

    def run_gradient(self, index: Val) -> None:
        """The cotangents of q, k and v of one index of the batch."""
        b, sizes = self.b, self.spec.sizes
        self._enter(index)
        if self.spec.causal:
            self._fill("hidden_q", 0.0)
            self._fill("hidden_g", 0.0)
        else:
            self._start_keys(i64(0), i64(sizes.keys))
        with b.loop(0, sizes.rows, self.queries, [i64(0)]) as loop:
            self._enter_queries(loop.index)
            self._enter_cotangent()
            self._start_queries()
            if self.spec.causal:
                self._start_keys(loop.carried[0], self._seen())
            self._over_keys(self._gradient_block)
            if self.spec.causal:
                for to, rows, width in (
                    ("hidden_q", "rows", sizes.inner),
                    ("hidden_g", "g_rows", sizes.columns),
                ):
                    source, queries = self.own[rows], (i64(0), self.count)
                    self._hide(to, source, width, queries, width, is_weighted=to == "hidden_g")
            loop.carry(self._seen())
            with b.loop(0, self.count) as row:
                source = self._at("dq", b.mul(row.index, sizes.inner))
                place = self._result_row(0, b.add(self.row, row.index))
                self._copy_row(source, place, sizes.inner)
        self._start_keys(loop.results[0], i64(sizes.keys))

    def _start_keys(self, low: Val, high: Val) -> None:
        """Begin the sums of keys: with 0 times the queries that they have been hidden from."""
        b, sizes = self.b, self.spec.sizes
        with b.loop(low, high) as loop:
            for part, name, width in ((1, "q", sizes.inner), (2, "g", sizes.columns)):
                hidden = self.own[f"hidden_{name}"] if self.spec.causal else None
                self._copy_row(hidden, self._result_row(part, loop.index), width)

    def _start_queries(self) -> None:
        """Begin the sums of a block of queries: with 0 times the keys that are hidden from it."""
        width = self.spec.sizes.inner
        if not self.spec.causal:
            self._fill("dq", 0.0)
            return
        self._hide_keys("k", width)
        with self.b.loop(0, self.queries) as loop:
            to = self._at("dq", self.b.mul(loop.index, width))
            self._copy_row(self.own["hidden_k"], to, width)

    def _enter_cotangent(self) -> None:
        """Rows of the cotangent, transposed as well, and what belongs to a query."""
        b, sizes = self.b, self.spec.sizes
        self._copy_rows("g", "g_rows", sizes.columns)
        self._transpose("g_rows", "gt", sizes.columns, self.queries, sizes.columns)
        self._fill("sums", math.inf)  # of queries that don't exist: their weights are 0
        self._fill("errors", 0.0)
        self._fill("delta", 0.0)
        with b.loop(0, self.count) as loop:
            for name in ("sums", "errors", "delta"):
                row = b.mul(b.add(self.row, loop.index), self.spec.stride(name, 0))
                value = b.load(self.element, b.at(self.element, self.base[name], row))
                b.store(value, self._at(name, loop.index))

    def _gradient_block(self, key: Val, which: int) -> None:
        count = self.products["scores"][which].m
        k, v = self._keys("k", key), self._keys("v", key)
        self._product("scores", which, k, "qt", self._store("scores"))
        self._product("dweights", which, v, "gt", self._store("dscores"))
        self._differentiate(key, count)
        self._product("dv", which, self.own["scores"], "g_rows", self._add_to_result(2, key))
        self._product("dk", which, self.own["dscores"], "rows", self._add_to_result(1, key))
        self._product("dq", which, self.own["dscores"], k, self._add_to_queries)

    def _differentiate(self, key: Val, count: int) -> None:
        """Scores and cotangents of weights -> weights and cotangents of scores."""
        b = self.b
        sums, errors, delta = (
            [b.load(self.type, self._at(name, group)) for group in self.groups]
            for name in ("sums", "errors", "delta")
        )
        exists = [b.tail_mask(self.lanes, b.sub(self.count, group)) for group in self.groups]
        rest = self.spec.sizes.rows % self.queries
        with b.loop(0, count) as loop:
            for n, group in enumerate(self.groups):
                at = self._score_at("scores", loop.index, group)
                to = self._score_at("dscores", loop.index, group)
                score, allowed = self._masked(b.load(self.type, at), loop.index, key, group)
                weight = vmath.exp(b, b.sub(b.sub(score, sums[n]), errors[n]))
                dweight = b.load(self.type, to)
                kept = weight
                if self.spec.has_dropout:
                    noise = self._noise(loop.index, key, group)
                    kept, dweight = b.mul(weight, noise), b.mul(dweight, noise)
                dscore = b.mul(weight, b.sub(dweight, delta[n]))
                if allowed is not None:
                    dscore = b.select(allowed, dscore, const(self.type, 0))
                if is_open(rest) or rest:  # 0 * inf isn't 0
                    kept, dscore = (
                        b.select(exists[n], x, const(self.type, 0)) for x in (kept, dscore)
                    )
                b.store(kept, at)
                b.store(dscore, to)

    def _add_to_result(self, part: int, key: Val) -> Epilogue:
        def add(b: FunctionBuilder, sums: Val, place: Position) -> None:
            row = self._result_row(part, b.add(key, place.row))
            self._add(sums, b.at(self.element, row, place.col), place.mask)

        return add

    def _add_to_queries(self, b: FunctionBuilder, sums: Val, place: Position) -> None:
        row = b.mul(place.row, self.spec.sizes.inner)
        self._add(sums, self._at("dq", b.add(row, place.col)), place.mask)

    def _add(self, sums: Val, at: Val, mask: Val | None) -> None:
        b = self.b
        if mask is None:
            b.store(b.add(b.load(sums.type, at), sums), at)
        else:
            b.masked_store(b.add(b.masked_load(sums.type, at, mask), sums), at, mask)

    # Blocks -------------------------------------------------------------------------------

    def _enter(self, index: Val) -> None:
        """Find where the operands and results of an index of the batch begin."""
        b, spec = self.b, self.spec
        batch = spec.sizes.batch
        self.index = index
        steps = contiguous_strides(batch)
        at = [
            b.binary("urem", b.binary("udiv", index, step) if step > 1 else index, size)
            for step, size in zip(steps, batch, strict=True)
        ]

        def total(offset: int, factors: Sequence[int]) -> Val:
            found = i64(offset)
            for number, factor in zip(at, factors, strict=True):
                found = b.add(found, b.mul(number, factor)) if factor else found
            return found

        self.base = {}
        for name, place in zip(spec.names, spec.places, strict=True):
            factors = [place.coefficient(dim) for dim in range(len(batch))]
            memory = "i8" if name == "mask" and spec.mask is bool_ else self.element
            self.base[name] = b.at(memory, self.given[name], total(place.offset, factors))
        shapes = spec.sizes.gradients if spec.gradient else spec.sizes.parts[:1]
        self.results, start = [], 0
        for shape in shapes:
            order = rows_first(shape)
            lies = contiguous_strides(tuple(shape[axis] for axis in order))
            strides = [lies[order.index(axis)] for axis in range(len(shape))]
            pointer = b.at(self.element, self.result, total(start, strides[:-2]))
            self.results.append((pointer, strides[-2]))
            start += prod(shape)

    def _result_row(self, part: int, row: Val) -> Val:
        pointer, stride = self.results[part]
        return self.b.at(self.element, pointer, self.b.mul(row, stride))

    def _enter_queries(self, row: Val) -> None:
        """Copy a block of queries, and zeros behind the last one; transpose it."""
        b, sizes = self.b, self.spec.sizes
        self.row = row
        rest = b.sub(i64(sizes.rows), row)
        self.count = b.select(b.lt(rest, self.queries), rest, i64(self.queries))
        self._copy_rows("q", "rows", sizes.inner)
        self._transpose("rows", "qt", sizes.inner, self.queries, sizes.inner)
        if self.spec.has_own_mask:
            padded = -(-self.keys // self.lanes) * self.lanes
            with b.loop(self.count, self.queries) as loop:
                self._copy_row(None, self._at("mask_rows", b.mul(loop.index, padded)), padded)

    def _over_keys(self, block: Callable[[Val, int], None]) -> None:
        """Run `block` for all blocks of keys; with a causal mask for those that any query sees."""
        b, whole, keys = self.b, self.keys, self.spec.sizes.keys
        full: Val | int = keys - keys % whole
        first: Val | int = 0
        if self.spec.causal:
            limit = i64(full)
            first = b.add(self.row, 1)  # all queries see the keys up to the first one's
            first = b.sub(first, b.binary("urem", first, whole))
            first = b.select(b.lt(first, limit), first, limit)
            seen = b.add(self.row, self.queries)
            full = b.select(b.lt(seen, limit), seen, limit)
            self.is_hiding = False
            with b.loop(0, first, whole) as loop:
                self._enter_mask(loop.index, whole)
                block(loop.index, 0)
            self.is_hiding = True
        if is_open(keys) or keys >= whole:
            with b.loop(first, full, whole) as loop:
                self._enter_mask(loop.index, whole)
                block(loop.index, 0)
        rest = keys % whole
        if not is_open(rest) and not rest:
            return
        key = i64(keys - rest)
        conditions = [b.lt(key, keys)] if is_open(rest) else []
        if self.spec.causal:
            conditions.append(b.lt(key, b.add(self.row, self.queries)))
        with b.if_(reduce(b.and_, conditions)) if conditions else nullcontext():
            self._enter_mask(key, rest)
            block(key, 1)

    def _seen(self) -> Val:
        """The keys in blocks of which this block of queries sees any."""
        b, keys = self.b, self.spec.sizes.keys
        if not self.spec.causal:
            return i64(keys)
        behind = b.add(b.add(self.row, self.queries), self.keys - 1)
        whole = b.sub(behind, b.binary("urem", behind, self.keys))
        return b.select(b.lt(whole, keys), whole, i64(keys))

    def _hide_keys(self, name: str, width: int) -> None:
        """What keys that aren't gone through add: NaN where they are infinite, as 0 * inf is."""
        self._fill(f"hidden_{name}", 0.0)
        rows = self._seen(), i64(self.spec.sizes.keys)
        self._hide(f"hidden_{name}", self.base[name], self.spec.stride(name, 0), rows, width)

    def _hide(
        self,
        to: str,
        source: Val,
        stride: int,
        rows: tuple[Val, Val],
        width: int,
        is_weighted: bool = False,
    ) -> None:
        """Add 0 * each of some rows: times NaN those of queries that have no finite sum."""
        b, lanes, factor = self.b, self.lanes, const(self.type, 0)
        for first in range(0, width, 8 * lanes):
            starts = range(first, min(first + 8 * lanes, width), lanes)
            before = [b.load(self.type, self._at(to, start)) for start in starts]
            with b.loop(*rows, 1, before) as loop:
                row = b.at(self.element, source, b.mul(loop.index, stride))
                if is_weighted:
                    weight = b.mul(b.load(self.element, self._at("sums", loop.index)), 0)
                    factor = b.splat(weight, lanes)
                found = []
                for start, total in zip(starts, loop.carried, strict=True):
                    pointer = b.at(self.element, row, start)
                    if width - start < lanes:
                        value = b.masked_load(self.type, pointer, self._lanes(width - start))
                    else:
                        value = b.load(self.type, pointer)
                    found.append(b.muladd(value, factor, total))
                loop.carry(*found)
            for start, total in zip(starts, loop.results, strict=True):
                b.store(total, self._at(to, start))

    def _keys(self, name: str, key: Val) -> Val:
        """The rows of keys, or values, from one on."""
        row = self.b.mul(key, self.spec.stride(name, 0))
        return self.b.at(self.element, self.base[name], row)

    def _product(
        self, name: str, which: int, left: Val, right: str | Val, epilogue: Epilogue
    ) -> None:
        right = self.own[right] if isinstance(right, str) else right
        spec = self.products[name][which]
        Emitter(self.b, spec, (left, right), epilogue).run((0, spec.m))

    def _store(self, name: str) -> Epilogue:
        def store(b: FunctionBuilder, sums: Val, place: Position) -> None:
            b.store(sums, self._at(name, b.add(b.mul(place.row, self.queries), place.col)))

        return store

    # Masks and dropout --------------------------------------------------------------------

    def _masked(self, score: Val, row: Val, key: Val, group: int) -> tuple[Val, Val | None]:
        """A vector of scores of one key as masked, and which of them count; None if all do."""
        b, spec = self.b, self.spec
        allowed: Val | None = None
        if spec.mask is not None:
            mask = self._mask_of(row, key, group)
            if spec.mask is bool_:
                allowed = b.eq(mask, 0)
                score = b.select(allowed, score, const(self.type, spec.fill))
            else:
                score = b.add(score, mask)
        if self.is_hiding:
            first = b.add(self.row, group)
            ahead = b.cast("trunc", b.sub(b.add(key, row), first), "i32")
            seen = b.le(b.splat(ahead, self.lanes), iota("i32", self.lanes))
            score = b.select(seen, score, const(self.type, -math.inf))
            allowed = seen if allowed is None else b.and_(allowed, seen)
        return score, allowed

    def _mask_of(self, row: Val, key: Val, group: int) -> Val:
        """What is added to a vector of scores: of flags 0 and something else."""
        b, spec = self.b, self.spec
        if spec.has_own_mask:
            return b.load(self.type, self._score_at("mask", row, group))
        at = b.mul(b.add(key, row), spec.stride("mask", 1))
        return b.splat(self._mask_elements(self.base["mask"], at, 1), self.lanes)

    def _mask_elements(self, base: Val, at: Val, lanes: int, mask: Val | None = None) -> Val:
        b, type_ = self.b, vector(self.element, lanes)
        if self.spec.mask is not bool_:
            pointer = b.at(self.element, base, at)
            return b.load(type_, pointer) if mask is None else b.masked_load(type_, pointer, mask)
        flags = b.load_bool(b.at("i8", base, at), lanes, mask)
        return b.select(flags, const(type_, 0), const(type_, -1))

    def _enter_mask(self, key: Val, count: int) -> None:
        """Copy and transpose the mask of a block, where each query has its own."""
        b, spec = self.b, self.spec
        if not spec.has_own_mask:
            return
        padded = -(-self.keys // self.lanes) * self.lanes
        step = spec.stride("mask", 1)
        lanes = self.lanes if step == 1 else 1
        with b.loop(0, self.count) as loop:
            row = b.mul(b.add(self.row, loop.index), spec.stride("mask", 0))

            def copy(start: Val | int, mask: Val | None) -> None:
                at = b.add(row, b.mul(b.add(key, start), step))
                found = self._mask_elements(self.base["mask"], at, lanes, mask)
                b.store(found, self._at("mask_rows", b.add(b.mul(loop.index, padded), start)))

            if is_open(count):
                with b.loop(0, count, lanes) as starts:
                    left = b.sub(i64(count), starts.index)
                    copy(starts.index, b.tail_mask(lanes, left) if lanes > 1 else None)
            else:
                for start in range(0, count, lanes):
                    tail = min(count - start, lanes)
                    copy(start, self._lanes(tail) if tail < lanes else None)
        self._transpose("mask_rows", "mask", count, self.queries, padded)

    def _dropped(self, weight: Val, row: Val, key: Val, group: int) -> Val:
        noise = self._noise(row, key, group) if self.spec.has_dropout else None
        return weight if noise is None else self.b.mul(weight, noise)

    def _noise(self, row: Val, key: Val, group: int) -> Val:
        """What dropout multiplies the weights of one key by: numbers of all scores in order."""
        b, sizes = self.b, self.spec.sizes
        query = b.add(b.mul(self.index, sizes.rows), b.add(self.row, group))
        first = b.add(b.mul(query, sizes.keys), b.add(key, row))
        steps = b.mul(iota("i64", self.lanes), sizes.keys)
        counters = b.add(b.splat(b.add(self.counter, first), self.lanes), steps)
        drawn = uniform(b, philox_words(b, self.seed, counters), "float")
        kept = b.lt(drawn, b.splat(self.keep, self.lanes))
        return b.select(kept, self.scaled, const(self.type, 0))

    # Memory -------------------------------------------------------------------------------

    def _at(self, name: str, index: Val | int) -> Val:
        return self.b.at(self.element, self.own[name], index)

    def _score_at(self, name: str, row: Val, group: int) -> Val:
        return self._at(name, self.b.add(self.b.mul(row, self.queries), group))

    def _lanes(self, count: int) -> Val:
        return const_lanes("i1", [lane < count for lane in range(self.lanes)])

    def _fill(self, name: str, value: float) -> None:
        b = self.b
        size = self.spec.arrays(b.target)[name]
        main = size - size % self.lanes
        with b.loop(0, main, self.lanes) as loop:
            b.store(const(self.type, value), self._at(name, loop.index))
        with b.loop(main, size) as loop:
            b.store(const(self.element, value), self._at(name, loop.index))

    def _copy_rows(self, operand: str, name: str, width: int) -> None:
        """The rows of an operand that this block of queries has, and rows of zeros."""
        b = self.b
        with b.loop(0, self.count) as loop:
            row = b.mul(b.add(self.row, loop.index), self.spec.stride(operand, 0))
            source = b.at(self.element, self.base[operand], row)
            self._copy_row(source, self._at(name, b.mul(loop.index, width)), width)
        with b.loop(self.count, self.queries) as loop:
            self._copy_row(None, self._at(name, b.mul(loop.index, width)), width)

    def _copy_row(self, source: Val | None, to: Val, width: int) -> None:
        """Copy adjacent elements, or store zeros."""
        b, main = self.b, width - width % self.lanes

        def move(at: Val | int, mask: Val | None) -> None:
            target, value = b.at(self.element, to, at), const(self.type, 0)
            if source is not None:
                pointer = b.at(self.element, source, at)
                value = (
                    b.load(self.type, pointer)
                    if mask is None
                    else b.masked_load(self.type, pointer, mask)
                )
            if mask is None:
                b.store(value, target)
            else:
                b.masked_store(value, target, mask)

        if main:
            with b.loop(0, main, self.lanes) as loop:
                move(loop.index, None)
        if width > main:
            move(main, self._lanes(width - main))

    def _transpose(self, source: str, to: str, rows: int, columns: int, stride: int) -> None:
        """to[row, column] = source[column * stride + row]; columns are filled up to vectors."""
        wide = -(-columns // self.lanes) * self.lanes
        copy = LaneCopy(self.spec.dtype, self.element, self.lanes, ((columns, stride),), True)
        copier = LaneCopier(self.b, copy, self.kept)
        with self.b.loop(0, wide, self.lanes) as loop:
            place = self._at(to, loop.index)
            copier.emit(self.own[source], place, loop.index, ((rows, 1),), wide)
