"""What loop nests mean in NumPy, and what memory they touch: for the interpreter and the verifier.

Nothing goes element by element: a value is an array with an axis for each dim, of size 1 along
those that it doesn't vary with.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lucid.codegen.emit import reductions
from lucid.codegen.kernel_ir.affine import AffineExpr
from lucid.codegen.kernel_ir.instruction import EFFECTS, Inst, InstAttributes, Keywords, OpenBits
from lucid.codegen.kernel_ir.kernel import Access, Memory, Partition
from lucid.codegen.kernel_ir.nest import LoopNest
from lucid.ir import ops, philox
from lucid.ir.errors import LucidError, VerifyError
from lucid.ir.op import OPS
from lucid.ir.types import DType, TensorType, bool_, dtype_named, f32

# dim, first and last value but one: a part of the work.
Cut = tuple[int, int, int]

# Addresses -------------------------------------------------------------------------------------


def range_of(form: AffineExpr, sizes: Sequence[int]) -> tuple[int, int]:
    """The least and the greatest value of a form over dims of these sizes, none of them 0."""
    steps = [value * (sizes[dim] - 1) for dim, value in form.terms]
    low = sum(step for step in steps if step < 0)
    return form.offset + low, form.offset + sum(steps) - low


def form_values(form: AffineExpr, sizes: Sequence[int], cut: Cut | None = None) -> np.ndarray:
    """A form's values: of size 1 along dims that it doesn't have."""
    total = np.full((1,) * len(sizes), form.offset, np.int64)
    for dim, value in form.terms:
        low, high = cut[1:] if cut is not None and cut[0] == dim else (0, sizes[dim])
        shape = [1] * len(sizes)
        shape[dim] = high - low
        total = total + (np.arange(low, high, dtype=np.int64) * value).reshape(shape)
    return total


def nest_accesses(nest: LoopNest, parts: Partition | None) -> Iterator[Access]:
    """The memory that the instructions touch; partials of all parts."""
    if 0 in nest.kept:
        return
    blocks = {} if parts is None else dict(parts.partials)
    for number, inst in enumerate(nest.insts):
        if not inst.has_address or inst.form is None:
            continue
        if any(nest.sizes[dim] == 0 for dim in nest.dims[number]):
            continue
        low, high = range_of(inst.form, nest.sizes)
        if inst.op in ("gather", "write"):
            if inst.axis.size == 0:  # the check before it ends the step
                continue
            reach = inst.axis.stride * (inst.axis.size - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        if parts is not None and inst.arg in blocks:
            high += (parts.count - 1) * blocks[inst.arg]
        yield Access(inst.arg, low, high, inst.dtype, inst.op in EFFECTS)


def nest_problems(nest: LoopNest, has_product: bool = False) -> Iterator[str]:
    """Say what is wrong with instructions: operands, dims, types."""
    for number, inst in enumerate(nest.insts):
        wrong = _wrong(nest, number, inst, has_product)
        if wrong:
            yield f"%{number} = {inst.op} {wrong}"


def _wrong(nest: LoopNest, number: int, inst: Inst, has_product: bool) -> str:
    """What is wrong with an instruction; empty if nothing is."""
    if any(not 0 <= operand < number for operand in inst.operands):
        return f"reads {inst.operands}, which aren't all earlier values"
    if any(nest.insts[operand].op in EFFECTS for operand in inst.operands):
        return f"reads {inst.operands}, not all of which are values"
    if inst.form is not None and any(not 0 <= d < len(nest.sizes) for d in inst.form.dims):
        return f"has dims {sorted(inst.form.dims)} in {len(nest.sizes)} loops"
    if inst.has_address and (inst.form is None or inst.arg >= len(nest.args)):
        return f"has no address in argument {inst.arg}"
    if inst.has_address and nest.args[inst.arg] is not inst.dtype:
        return f"is {inst.dtype.name} in memory of {nest.args[inst.arg].name}"
    if inst.op in ("store", "accumulate", "write"):
        value = nest.insts[inst.operands[-1]].dtype
        if value is not inst.dtype:
            return f"stores {value.name} as {inst.dtype.name}"
    if (inst.op == "product") != (has_product and number == 0):
        return "isn't the product of a contraction"
    if inst.op not in _OWN_OPS and inst.op not in OPS:
        return "is no instruction"
    if inst.op in OPS and OPS[inst.op].kind == "map":
        taken = tuple(nest.insts[operand].dtype for operand in inst.operands)
        if _result_of(inst.op, taken, inst.attributes) is not inst.dtype:
            return f"of {', '.join(d.name for d in taken)} isn't of {inst.dtype.name}"
    stages = [nest.stages[n] + (nest.insts[n].op == "reduce") for n in inst.operands]
    if max(stages, default=0) > nest.stages[number]:
        return "runs before the pass whose reductions it reads"
    return ""


@functools.cache
def _result_of(op: str, operands: tuple[DType, ...], attributes: InstAttributes) -> DType | None:
    """The dtype of a map's result; None where the op doesn't take such operands."""
    try:
        types = [TensorType(dtype, ()) for dtype in operands]
        return OPS[op].infer(*types, **_keywords(attributes)).dtype
    except (LucidError, TypeError):
        return None


def _keywords(attributes: InstAttributes) -> dict[str, Any]:
    """An op's attributes, as its rules take them."""
    entries = attributes.entries if isinstance(attributes, Keywords) else ()
    return {k: dtype_named(value) if k == "dtype" else value for k, value in entries}


_OWN_OPS = ("const", "index", "index_at", "load", "gather", "product", "reduce", "scan", *EFFECTS)

# Values ------------------------------------------------------------------------------------------


def evaluate_nest(
    nest: LoopNest,
    memory: Sequence[Memory],
    *,
    product: np.ndarray | None = None,
    cut: Cut | None = None,
    only: np.ndarray | None = None,
    operands: Sequence[tuple[int, np.ndarray]] = (),
) -> None:
    """Run all instructions, each for all elements, pass by pass.

    Native code goes element by element, or in tiles and on several threads: so what one of them
    writes another one must not read. Raises `VerifyError` where it would.

    Args:
        product: what instruction 0 of a contraction is, over all dims.
        operands: arguments that it was computed from, and which elements of them.
        cut: a dim, and what part of it to go through.
        only: the elements whose stores happen, over all dims.
    """
    if 0 in nest.kept:
        return
    _Evaluation(nest, memory, product, cut, only).run(operands)


def contracted(a: np.ndarray, b: np.ndarray, axes: list[int], kept: int) -> np.ndarray:
    """The sum of the products of two operands over the axes behind the first `kept` ones.

    Both have all axes, of size 1 where they don't vary.
    """
    used = [
        [axis for axis in axes if x.shape[axis] != 1 or y.shape[axis] == 1]
        for x, y in ((a, b), (b, a))
    ]
    given = [x.reshape([x.shape[n] for n in mine]) for x, mine in zip((a, b), used, strict=True)]
    found = np.einsum(given[0], used[0], given[1], used[1], axes[:kept], optimize=True)
    return np.asarray(found)


class _Evaluation:
    """The values of a nest's instructions over all of its dims, or a part of one."""

    def __init__(
        self,
        nest: LoopNest,
        memory: Sequence[Memory],
        product: np.ndarray | None,
        cut: Cut | None,
        only: np.ndarray | None,
    ) -> None:
        self.nest = nest
        self.memory = memory
        self.cut = cut
        self.only = only
        self.sizes = list(nest.sizes)
        if cut is not None:
            self.sizes[cut[0]] = cut[2] - cut[1]
        self.inner = tuple(range(len(nest.kept), len(nest.sizes)))
        self.values: dict[int, np.ndarray] = {}
        self.shared: set[int] = set()  # arguments that are read and written
        self.touched: list[tuple[int, int, np.ndarray]] = []  # who touched which elements of them
        if product is not None:
            taken = [slice(None)] * product.ndim
            if cut is not None:
                taken[cut[0]] = slice(cut[1], cut[2])
            self.values[0] = product[tuple(taken)]

    def run(self, operands: Sequence[tuple[int, np.ndarray]]) -> None:
        stored = {inst.arg for inst in self.nest.effects}
        self.shared = stored & {
            *(inst.arg for inst in self.nest.insts if inst.op in ("load", "gather")),
            *(arg for arg, _ in operands),
        }
        self.touched = [(-1, arg, index) for arg, index in operands if arg in self.shared]
        for number in self.nest.in_order():
            inst = self.nest.insts[number]
            if inst.op in EFFECTS:
                self._store(number, inst)
            elif inst.op != "product":
                value = np.asarray(self._compute(inst))
                assert value.dtype == inst.dtype.numpy, f"%{number} = {inst.op} is {value.dtype}"
                self.values[number] = value
        self._refuse_hazards()

    def _refuse_hazards(self) -> None:
        """Refuse to read what is written in another turn of the loops, or earlier in the same."""
        insts = self.nest.insts
        for reader, arg, read in self.touched:
            for writer, other, written in self.touched:
                if arg != other or writer < 0 or insts[writer].op not in EFFECTS:
                    continue
                if reader >= 0 and insts[reader].op in EFFECTS:
                    continue
                same = 0 <= reader < writer and _alike(insts[reader], insts[writer])
                in_place = same and self.nest.stages[writer] == max(self.nest.stages)
                if not in_place and np.intersect1d(read, written).size:
                    what = "an operand" if reader < 0 else f"%{reader}"
                    raise VerifyError(f"{what} reads elements of a{arg} that %{writer} writes")

    def _form(self, inst: Inst) -> np.ndarray:
        return form_values(inst.at, self.nest.sizes, self.cut)

    def _full(self, number: int) -> np.ndarray:
        """An operand with all elements along the reduced dims."""
        value = self.values[number]
        shape = [*value.shape[: len(self.nest.kept)], *(self.sizes[d] for d in self.inner)]
        return np.broadcast_to(value, shape)

    def _compute(self, inst: Inst) -> Any:
        dtype = inst.dtype.numpy
        operands = [self.values[n] for n in inst.operands]
        if isinstance(inst.attributes, OpenBits):
            number, is_bits = inst.attributes.value, inst.attributes.is_bits
            found = ops.parameter.evaluate(number, is_bits, inst.dtype)
            return np.asarray(found).reshape((1,) * len(self.sizes))
        if inst.op == "const":
            return np.frombuffer(inst.bits, dtype).reshape((1,) * len(self.sizes))
        if inst.op == "index":
            return self._form(inst).astype(dtype)
        if inst.op == "index_at":
            return (self._form(inst) + self._chosen(inst)).astype(dtype)
        if inst.op in ("load", "gather"):
            index = self._form(inst)
            return self._read(inst, index + self._chosen(inst) if inst.op == "gather" else index)
        if inst.op == "reduce":
            return self._reduce(inst)
        if inst.op == "scan":
            full = np.broadcast_arrays(*[self._full(n) for n in inst.operands])
            kept = len(self.nest.kept)
            rows = [x.reshape([*x.shape[:kept], -1]) for x in full]
            return OPS[inst.fold].evaluate(*rows, axis=kept).reshape(full[0].shape)
        if OPS[inst.op].kind == "random":
            return self._draw(inst)
        return OPS[inst.op].evaluate(*operands, **_keywords(inst.attributes))

    def _chosen(self, inst: Inst) -> np.ndarray:
        """Elements from the start of an axis to the index, which may count from the end."""
        axis, index = inst.axis, self.values[inst.operands[0]].astype(np.int64)
        wrong = index[(index < -axis.size) | (index >= axis.size)]
        if wrong.size:
            raise VerifyError(f"index {wrong[0]} of {axis.size} is looked up, and was not checked")
        return np.asarray(np.where(index < 0, index + axis.size, index) * axis.stride)

    def _draw(self, inst: Inst) -> np.ndarray:
        places = self._form(inst)
        seed, offset = (int(self.values[n].item()) for n in inst.operands)
        draw = philox.uniform if inst.op == "random_uniform" else philox.normal
        count = int(places.max(initial=-1)) + 1
        return np.asarray(draw(seed, offset, (count,), inst.dtype.numpy)[places])

    # Reductions -------------------------------------------------------------------------

    def _reduce(self, inst: Inst) -> np.ndarray:
        x, op = self._full(inst.operands[0]), inst.fold
        if op in ("argmax", "argmin"):
            return self._position(inst, x)
        source = self.nest.insts[inst.operands[0]].dtype
        start: Any = reductions.identity(op, source)
        wide = np.float64 if source is f32 and op in ("sum", "prod") else source.numpy
        folds: dict[str, np.ufunc] = {
            "sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum,
            "any": np.logical_or, "all": np.logical_and,
        }  # fmt: skip
        fold = folds[op]
        if source is bool_ and op in ("amax", "amin"):
            start = bool(start)
        if not self.inner:
            return x.astype(inst.dtype.numpy)
        if op in ("any", "all"):
            return np.asarray(fold.reduce(x, self.inner, keepdims=True)).astype(inst.dtype.numpy)
        given = x.astype(wide, copy=False)
        found = fold.reduce(given, self.inner, wide, keepdims=True, initial=start)
        return np.asarray(found).astype(inst.dtype.numpy)

    def _position(self, inst: Inst, x: np.ndarray) -> np.ndarray:
        """The least position of the greatest (the least) value, or of the first NaN."""
        best = (np.max if inst.fold == "argmax" else np.min)(x, self.inner, keepdims=True)
        is_best = (x == best) | ((x != x) & (best != best))
        last = np.iinfo(np.int64).max
        places = np.where(is_best, np.broadcast_to(self._form(inst), x.shape), last)
        return np.asarray(places.min(self.inner, keepdims=True)).astype(inst.dtype.numpy)

    # Memory -----------------------------------------------------------------------------

    def _read(self, inst: Inst, index: np.ndarray) -> np.ndarray:
        if inst.arg in self.shared:
            self.touched.append((self.nest.insts.index(inst), inst.arg, index))
        return self.memory[inst.arg].read(index)

    def _store(self, number: int, inst: Inst) -> None:
        index = self._form(inst)
        if inst.op == "write":
            index = index + self._chosen(inst)
        value = self.values[inst.operands[-1]]
        dims = self.nest.dims[number]
        full = [size if dim in dims else 1 for dim, size in enumerate(self.sizes)]
        shape = np.broadcast_shapes(index.shape, value.shape, full)
        index, value = np.broadcast_to(index, shape), np.broadcast_to(value, shape)
        if self.only is not None:
            taken = np.broadcast_to(self.only, np.broadcast_shapes(shape, self.only.shape))
            index, value = (np.broadcast_to(x, taken.shape)[taken] for x in (index, value))
        if inst.arg in self.shared:
            self.touched.append((number, inst.arg, index))
        if inst.begins:
            self.memory[inst.arg].write(index, np.zeros_like(value))
        if inst.adds:
            self.memory[inst.arg].add(index, value)
        else:
            self.memory[inst.arg].write(index, value)


def _alike(reader: Inst, writer: Inst) -> bool:
    """Whether they touch the same element in each turn."""
    return (reader.op, writer.op) == ("load", "store") and reader.form == writer.form
