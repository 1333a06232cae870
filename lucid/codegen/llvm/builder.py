"""Functions, loops and branches as LLVM IR text, with explicit vectors.

Operations pick the float or the integer instruction by the type of their operands.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Self

from lucid.codegen.llvm.target import ELEMENT_BYTES
from lucid.codegen.llvm.values import (
    FLOATS,
    Module,
    Operand,
    Parameter,
    Parts,
    Val,
    const,
    const_lanes,
    element_of,
    first_lanes,
    i64,
    iota,
    lane_mask,
    lanes_of,
    literal,
    mangled,
    vector,
)
from lucid.ir.extents import is_open

__all__ = [
    "FLOATS", "Branch", "FunctionBuilder", "Loop", "Module", "Operand", "Parameter", "Parts", "Val",
    "const", "const_lanes", "element_of", "i64", "iota", "lanes_of", "literal", "vector",
]  # fmt: skip

_KNOWN = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}


class Loop:
    """A counted loop: its index, its carried values, and after it their final values.

    Every carried value must be given its next value by one call of `carry` in the body.
    """

    def __init__(self, index: Val, carried: list[Val]) -> None:
        self.index = index
        self.carried = carried
        self.results: list[Val] = carried
        self._next: list[Val] = carried

    def carry(self, *values: Val) -> None:
        if [v.type for v in values] != [c.type for c in self.carried]:
            raise TypeError("the next values of a loop differ in type or number from the first")
        self._next = list(values)


class Branch:
    """Both sides of a condition; `merge` afterwards joins a value of each."""

    def __init__(self, builder: FunctionBuilder, labels: tuple[str, str, str]) -> None:
        self._builder = builder
        self._then, self._otherwise, self._join = labels
        self._ends: dict[str, str] = {}

    @contextmanager
    def _side(self, label: str) -> Iterator[None]:
        self._builder.start_block(label)
        yield
        self._ends[label] = self._builder.block
        self._builder.jump(self._join)

    def then(self) -> AbstractContextManager[None]:
        return self._side(self._then)

    def otherwise(self) -> AbstractContextManager[None]:
        return self._side(self._otherwise)

    def merge(self, then: Val, otherwise: Val) -> Val:
        ends = self._ends
        sides = [(then, ends[self._then]), (otherwise, ends[self._otherwise])]
        return self._builder.phi(sides)


class FunctionBuilder:
    """Appends instructions to one function; used as a context manager it adds the function.

    Attributes:
        args: the parameters as values.
        block: label of the block that is being filled.
        sizes: address of the values of open sizes, in a function that reads some.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        parameters: Sequence[Parameter | tuple[str, str]],
        result: str = "void",
        *,
        internal: bool = False,
        attributes: str = "",
    ) -> None:
        self.module = module
        self.target = module.target
        self.name = name
        declared = [Parameter(*parameter) for parameter in parameters]
        self.args = [Val(p.type, f"%{p.name}") for p in declared]
        signature = ", ".join(" ".join((p.type, p.attributes, f"%{p.name}")) for p in declared)
        linkage = "internal " if internal else ""
        attributes = f"{module.target.function_attributes} {attributes}".rstrip()
        self._head = f"define {linkage}{result} @{name}({signature}) {attributes} {{"
        self._lines: list[str] = []
        self._results: dict[str, Val] = {}  # of what was computed once in the block
        self._count = 0
        self._terminated = True
        self.sizes: Val | None = None
        self._sizes_from = 0
        self.block = ""
        self.start_block("entry")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()

    def finish(self) -> None:
        """Add the function to the module; its last block must have been ended."""
        if not self._terminated:
            raise ValueError(f"function {self.name} ends without a return")
        if self.sizes is not None:
            self._load_sizes()
        body = "\n".join(self._lines)
        self.module.define(self.name, f"{self._head}\n{body}\n}}\n")

    def read_sizes(self, address: Val) -> None:
        """Say where the values of open sizes are; from here on lines may mention them."""
        self.sizes, self._sizes_from = address, len(self._lines)

    def _load_sizes(self) -> None:
        """Load the open sizes that lines mention, where their address is known."""
        used = sorted(set(map(int, re.findall(r"%n(\d+)\b", "\n".join(self._lines)))))
        loads = []
        for slot in used:
            loads.append(f"  %np{slot} = getelementptr inbounds i64, {self.sizes}, i64 {slot}")
            loads.append(f"  %n{slot} = load i64, ptr %np{slot}, align 8")
        self._lines[self._sizes_from : self._sizes_from] = loads

    # Lines and blocks ---------------------------------------------------------------------

    def fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def statement(self, text: str) -> None:
        """Append an instruction without result."""
        self._lines.append(f"  {text}")

    def emit(self, type_: str, text: str) -> Val:
        """Append an instruction with a result of `type_`."""
        self._count += 1
        name = f"%v{self._count}"
        self._lines.append(f"  {name} = {text}")
        return Val(type_, name)

    def start_block(self, label: str) -> None:
        if not self._terminated:
            self.jump(label)
        self._lines.append(f"{label}:")
        self._results.clear()
        self.block = label
        self._terminated = False

    def _terminate(self, text: str) -> None:
        self.statement(text)
        self._terminated = True

    def jump(self, label: str) -> None:
        self._terminate(f"br label %{label}")

    def jump_if(self, condition: Val, then: str, otherwise: str) -> None:
        self._terminate(f"br {condition}, label %{then}, label %{otherwise}")

    def ret(self, value: Val | None = None) -> None:
        self._terminate("ret void" if value is None else f"ret {value}")

    # Arithmetic ---------------------------------------------------------------------------

    def coerce(self, a: Operand, b: Operand) -> tuple[Val, Val]:
        """Both as values of one type; a number takes the type of the other operand."""
        if not isinstance(a, Val):
            if not isinstance(b, Val):
                raise TypeError("an instruction needs at least one value among its operands")
            a = self.number(b.type, a)
        if not isinstance(b, Val):
            b = self.number(a.type, b)
        if a.type != b.type:
            raise TypeError(f"operands of different types: {a} and {b}")
        return a, b

    def number(self, type_: str, value: float) -> Val:
        """A number in every lane of a type, which is loaded if it is an open size."""
        if not is_open(value) or type_ == "i64":
            return const(type_, value)
        element, loaded = element_of(type_), const("i64", value)
        if element in FLOATS:
            loaded = self.cast("sitofp", loaded, element)
        elif element != "i64":
            loaded = self.cast("trunc", loaded, element)
        return self.splat(loaded, lanes_of(type_))

    def binary(self, op: str, a: Operand, b: Operand) -> Val:
        """An instruction by its LLVM name."""
        x, y = self.coerce(a, b)
        return self.emit(x.type, f"{op} {x}, {y.name}")

    def _arithmetic(self, op: str, a: Operand, b: Operand) -> Val:
        x, y = self.coerce(a, b)
        if x.type == "i64":
            return self._index(op, x, y)
        prefix = "f" if x.is_float else ""
        return self.emit(x.type, f"{prefix}{op} {x}, {y.name}")

    def _index(self, op: str, x: Val, y: Val) -> Val:
        """Arithmetic of indices; what is known is not computed by code."""
        names = x.name, y.name
        if names[0][0] != "%" != names[1][0]:
            return i64(_KNOWN[op](*map(int, names)))
        if op == "mul":
            if "0" in names:
                return i64(0)
            if "1" in names:
                return y if names[0] == "1" else x
        elif names[1] == "0":
            return x
        elif names[0] == "0" and op == "add":
            return y
        return self._once("i64", f"{op} {x}, {names[1]}")

    def _once(self, type_: str, text: str) -> Val:
        """An instruction whose result is the same wherever it is in a block."""
        found = self._results.get(text)
        if found is None:
            found = self._results[text] = self.emit(type_, text)
        return found

    def add(self, a: Operand, b: Operand) -> Val:
        return self._arithmetic("add", a, b)

    def sub(self, a: Operand, b: Operand) -> Val:
        return self._arithmetic("sub", a, b)

    def mul(self, a: Operand, b: Operand) -> Val:
        return self._arithmetic("mul", a, b)

    def div(self, a: Operand, b: Operand) -> Val:
        """Float division; integers are divided by `integer.floor_divide`, which can't trap."""
        return self.binary("fdiv", a, b)

    def neg(self, a: Val) -> Val:
        return self.emit(a.type, f"fneg {a}") if a.is_float else self.sub(0, a)

    def and_(self, a: Operand, b: Operand) -> Val:
        return self.binary("and", a, b)

    def or_(self, a: Operand, b: Operand) -> Val:
        return self.binary("or", a, b)

    def xor(self, a: Operand, b: Operand) -> Val:
        return self.binary("xor", a, b)

    def not_(self, a: Val) -> Val:
        return self.binary("xor", a, 1 if a.element == "i1" else -1)

    def shl(self, a: Operand, b: Operand) -> Val:
        return self.binary("shl", a, b)

    def lshr(self, a: Operand, b: Operand) -> Val:
        return self.binary("lshr", a, b)

    def ashr(self, a: Operand, b: Operand) -> Val:
        return self.binary("ashr", a, b)

    def fma(self, a: Operand, b: Operand, c: Operand) -> Val:
        """a * b + c rounded once, on every processor."""
        like = next(x for x in (a, b, c) if isinstance(x, Val))
        x, y, z = (self.coerce(v, like)[0] for v in (a, b, c))
        return self.intrinsic("fma", x, y, z)

    def muladd(self, a: Operand, b: Operand, c: Operand) -> Val:
        """a * b + c, rounded once where that is one instruction; integers too."""
        like = next(x for x in (a, b, c) if isinstance(x, Val))
        if like.is_float and self.target.has_fma:
            return self.fma(a, b, c)
        return self.add(self.mul(a, self.coerce(b, like)[0]), c)

    def compare(self, condition: str, a: Operand, b: Operand) -> Val:
        """`fcmp` or `icmp` by LLVM's name of the condition ("olt", "ult", ...)."""
        x, y = self.coerce(a, b)
        op = "fcmp" if x.is_float else "icmp"
        return self.emit(vector("i1", x.lanes), f"{op} {condition} {x}, {y.name}")

    def _ordered(self, condition: str, a: Operand, b: Operand) -> Val:
        """An ordered comparison of floats, a signed one of integers."""
        x, y = self.coerce(a, b)
        return self.compare(("o" if x.is_float else "s") + condition, x, y)

    def lt(self, a: Operand, b: Operand) -> Val:
        return self._ordered("lt", a, b)

    def le(self, a: Operand, b: Operand) -> Val:
        return self._ordered("le", a, b)

    def gt(self, a: Operand, b: Operand) -> Val:
        return self._ordered("gt", a, b)

    def ge(self, a: Operand, b: Operand) -> Val:
        return self._ordered("ge", a, b)

    def eq(self, a: Operand, b: Operand) -> Val:
        x, y = self.coerce(a, b)
        return self.compare("oeq" if x.is_float else "eq", x, y)

    def ne(self, a: Operand, b: Operand) -> Val:
        """True where a NaN takes part."""
        x, y = self.coerce(a, b)
        return self.compare("une" if x.is_float else "ne", x, y)

    def is_nan(self, a: Val) -> Val:
        return self.compare("uno", a, a)

    def select(self, condition: Val, a: Operand, b: Operand) -> Val:
        x, y = self.coerce(a, b)
        return self.emit(x.type, f"select {condition}, {x}, {y}")

    # Conversions --------------------------------------------------------------------------

    def cast(self, op: str, a: Val, element: str) -> Val:
        """A lane-wise conversion by its LLVM name ("sext", "fpext", "sitofp", ...)."""
        type_ = vector(element, a.lanes)
        return a if type_ == a.type else self.emit(type_, f"{op} {a} to {type_}")

    def bitcast(self, a: Val, type_: str) -> Val:
        return a if type_ == a.type else self.emit(type_, f"bitcast {a} to {type_}")

    def bits(self, a: Val) -> Val:
        """The bit patterns of floats, as integers of the same size."""
        integer = "i32" if a.element == "float" else "i64"
        return self.bitcast(a, vector(integer, a.lanes))

    def unbits(self, a: Val) -> Val:
        """The floats with these bit patterns."""
        return self.bitcast(a, vector("float" if a.element == "i32" else "double", a.lanes))

    # Calls --------------------------------------------------------------------------------

    def call(self, name: str, result: str, *args: Val) -> Val:
        """Call a function of the module or, declared here, an external one."""
        self.module.declare(name, result, [a.type for a in args])
        text = f"call {result} @{name}({', '.join(map(str, args))})"
        if result == "void":
            self.statement(text)
            return Val("void", "")
        return self.emit(result, text)

    def intrinsic(self, name: str, *args: Val, result: str = "", overloads: int = 1) -> Val:
        """Call `llvm.<name>` with the types of its first `overloads` arguments in its name.

        A `result` type other than that of the first argument stands first in the name.
        """
        types = [mangled(a.type) for a in args[:overloads]]
        if result and result != "void":
            types.insert(0, mangled(result))
        full = ".".join(["llvm", name, *types])
        return self.call(full, result or args[0].type, *args)

    # Lanes --------------------------------------------------------------------------------

    def splat(self, x: Val, lanes: int) -> Val:
        if lanes == 1:
            return x
        type_ = vector(x.element, lanes)
        if x.name[0] not in "%@":
            return Val(type_, f"splat ({x})")
        first = self.emit(type_, f"insertelement {type_} poison, {x}, i64 0")
        return self.shuffle(first, first, [0] * lanes)

    def extract(self, a: Val, lane: int | Val) -> Val:
        if a.lanes == 1:
            return a
        return self.emit(a.element, f"extractelement {a}, {i64(lane)}")

    def insert(self, a: Val, x: Val, lane: int | Val) -> Val:
        if a.lanes == 1:
            return x
        return self.emit(a.type, f"insertelement {a}, {x}, {i64(lane)}")

    def shuffle(self, a: Val, b: Val, lanes: Sequence[int]) -> Val:
        """The given lanes of `a` followed by `b`; one lane gives a scalar."""
        if len(lanes) == 1:
            return self.extract(*((a, lanes[0]) if lanes[0] < a.lanes else (b, lanes[0] - a.lanes)))
        type_ = vector(a.element, len(lanes))
        return self.emit(type_, f"shufflevector {a}, {b}, {lane_mask(tuple(lanes))}")

    def build(self, scalars: Sequence[Val]) -> Val:
        """A vector of these lanes."""
        result = Val(vector(scalars[0].type, len(scalars)), "poison")
        for lane, x in enumerate(scalars):
            result = self.insert(result, x, lane)
        return result

    def reduce(self, a: Val, combine: Callable[[Val, Val], Val]) -> Val:
        """Combine all lanes pairwise, the upper half into the lower: a fixed, balanced order."""
        while a.lanes > 1:
            half = a.lanes // 2
            low, high = range(half), range(half, a.lanes)
            a = combine(self.shuffle(a, a, low), self.shuffle(a, a, high))
        return a

    def any(self, mask: Val) -> Val:
        """Whether any lane of a mask is true, as a scalar i1."""
        if mask.lanes == 1:
            return mask
        return self.ne(self.bitcast(mask, f"i{mask.lanes}"), 0)

    # Memory -------------------------------------------------------------------------------

    def at(self, element: str, pointer: Val, index: Val | int) -> Val:
        """The address of an element of an array."""
        place = i64(index)
        if place.name == "0":
            return pointer
        return self._once("ptr", f"getelementptr inbounds {element}, {pointer}, {place}")

    def pinned(self, place: Val) -> Val:
        """The same address or index, as one that loop strength reduction doesn't look behind.

        That takes a third of its time where many loads and stores of a loop stand around one.
        """
        pointer = self.emit("ptr", f"inttoptr {place} to ptr") if place.type == "i64" else place
        pinned = self.intrinsic("launder.invariant.group", pointer)
        return pinned if pointer is place else self.emit("i64", f"ptrtoint {pinned} to i64")

    def load(self, type_: str, pointer: Val, align: int = 0) -> Val:
        """Load; without `align` only the alignment of one element is assumed."""
        align = align or ELEMENT_BYTES[element_of(type_)]
        return self.emit(type_, f"load {type_}, {pointer}, align {align}")

    def store(self, value: Val, pointer: Val, align: int = 0) -> None:
        align = align or ELEMENT_BYTES[value.element]
        self.statement(f"store {value}, {pointer}, align {align}")

    def tail_mask(self, lanes: int, count: Val) -> Val:
        """True in the first `count` (i64) lanes."""
        return self.lt(iota("i64", lanes), self.splat(count, lanes))

    def masked_load(self, type_: str, pointer: Val, mask: Val, otherwise: Operand = 0) -> Val:
        """Load the lanes of the mask and touch no other memory; the others get `otherwise`."""
        passed = otherwise if isinstance(otherwise, Val) else const(type_, otherwise)
        if lanes_of(type_) == 1:
            with self.if_else(mask) as branch:
                with branch.then():
                    loaded = self.load(type_, pointer)
                with branch.otherwise():
                    pass
            return branch.merge(loaded, passed)
        align = ELEMENT_BYTES[element_of(type_)]
        count = None if self.target.can_mask_loads(align) else first_lanes(mask, mask.lanes)
        if count:
            return self.select(mask, self._load_first(type_, pointer, count), passed)
        name = f"llvm.masked.load.{mangled(type_)}.p0"
        self.module.declare(name, type_, ["ptr", mask.type, type_])
        args = f"ptr align {align} {pointer.name}, {mask}, {passed}"
        return self.emit(type_, f"call {type_} @{name}({args})")

    def masked_store(self, value: Val, pointer: Val, mask: Val) -> None:
        """Store the lanes of the mask and touch no other memory."""
        if value.lanes == 1:
            with self.if_(mask):
                self.store(value, pointer)
            return
        count = None if self.target.can_mask_stores else first_lanes(mask, value.lanes)
        if count:
            self._store_first(value, pointer, count)
            return
        align = ELEMENT_BYTES[value.element]
        name = f"llvm.masked.store.{mangled(value.type)}.p0"
        self.module.declare(name, "void", [value.type, "ptr", mask.type])
        self.statement(f"call void @{name}({value}, ptr align {align} {pointer.name}, {mask})")

    def _load_first(self, type_: str, pointer: Val, count: int) -> Val:
        """The first lanes, by two loads that may overlap; the others are anything."""
        element, lanes, width = element_of(type_), lanes_of(type_), 1 << count.bit_length() - 1
        back = count - width
        begin = self.load(vector(element, width), pointer)
        if width == 1:
            return self.insert(const(type_, 0), begin, 0)
        end = self.load(vector(element, width), self.at(element, pointer, back)) if back else begin
        homes = [lane if lane < width else lane - back + width for lane in range(count)]
        return self.shuffle(begin, end, [*homes, *[0] * (lanes - count)])

    def _store_first(self, value: Val, pointer: Val, count: int) -> None:
        """Store the first lanes by two stores, which may overlap."""
        width = 1 << count.bit_length() - 1
        for start in dict.fromkeys((0, count - width)):
            lanes = range(start, start + width)
            self.store(self.shuffle(value, value, lanes), self.at(value.element, pointer, start))

    def load_bool(self, pointer: Val, lanes: int = 1, mask: Val | None = None) -> Val:
        """Booleans, a byte each in memory, as i1."""
        type_ = vector("i8", lanes)
        raw = self.load(type_, pointer) if mask is None else self.masked_load(type_, pointer, mask)
        return self.ne(raw, 0)

    def store_bool(self, value: Val, pointer: Val, mask: Val | None = None) -> None:
        """Store i1 as bytes 0 and 1."""
        raw = self.cast("zext", value, "i8")
        if mask is None:
            self.store(raw, pointer)
        else:
            self.masked_store(raw, pointer, mask)

    def alloca(self, type_: str, count: int = 1, align: int = 64) -> Val:
        """Stack memory; to be called outside of loops."""
        return self.emit("ptr", f"alloca {type_}, {i64(count)}, align {align}")

    # Control flow -------------------------------------------------------------------------

    def phi(self, sides: Sequence[tuple[Val, str]]) -> Val:
        """The value of the block that control came from."""
        type_ = sides[0][0].type
        entries = ", ".join(f"[{value.name}, %{label}]" for value, label in sides)
        return self.emit(type_, f"phi {type_} {entries}")

    @contextmanager
    def if_(self, condition: Val) -> Iterator[None]:
        then, join = self.fresh("then"), self.fresh("join")
        self.jump_if(condition, then, join)
        self.start_block(then)
        yield
        self.start_block(join)

    @contextmanager
    def if_else(self, condition: Val) -> Iterator[Branch]:
        """Two sides, each filled under `branch.then()` and `branch.otherwise()`."""
        labels = self.fresh("then"), self.fresh("else"), self.fresh("join")
        self.jump_if(condition, labels[0], labels[1])
        yield Branch(self, labels)
        self.start_block(labels[2])

    @contextmanager
    def while_(self, condition: Callable[[], Val]) -> Iterator[None]:
        """Repeat what is written under it as long as `condition`, written before it, holds."""
        head, body, done = self.fresh("while"), self.fresh("round"), self.fresh("done")
        self.jump(head)
        self.start_block(head)
        self.jump_if(condition(), body, done)
        self.start_block(body)
        yield
        self.jump(head)
        self.start_block(done)

    @contextmanager
    def loop(
        self, low: Val | int, high: Val | int, step: int = 1, carried: Sequence[Val] = ()
    ) -> Iterator[Loop]:
        """for index in range(low, high, step), i64, with values carried from round to round.

        Bounds known to be a non-empty range leave out the test before the first round.
        """
        runs = type(low) is int and type(high) is int and low < high
        low, high = i64(low), i64(high)
        head, done = self.fresh("loop"), self.fresh("done")
        before = self.block
        if runs:
            self.jump(head)
        else:
            self.jump_if(self.lt(low, high), head, done)
        self.start_block(head)
        position = len(self._lines)
        loop = Loop(
            Val("i64", "%" + self.fresh("i")), [Val(c.type, "%" + self.fresh("c")) for c in carried]
        )
        yield loop
        following = self.emit("i64", f"add nuw nsw {loop.index}, {step}")
        starts, ends = [low, *carried], [following, *loop._next]
        self._lines[position:position] = [
            f"  {v.name} = phi {v.type} [{first.name}, %{before}], [{end.name}, %{self.block}]"
            for v, first, end in zip([loop.index, *loop.carried], starts, ends, strict=True)
        ]
        latch = self.block
        self.jump_if(self.lt(following, high), head, done)
        self.start_block(done)
        loop.results = loop._next
        if not runs:
            pairs = zip(carried, loop._next, strict=True)
            loop.results = [self.phi([(first, before), (end, latch)]) for first, end in pairs]
