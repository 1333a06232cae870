"""A program as LLVM IR: one function per different kernel, and `step` that calls them in order.

`i32 step(ptr table)`: the table holds the addresses of the inputs, then of the outputs, the arena,
the error record, a function which calls Python, the function that runs a region on several threads,
and its pool, and the words of a program whose sizes are open (`StepWords`); a live scalar's slot is
the number itself. The result is 0; or 1 when an index was out
of range: the record then has 1 + the number of the check and the index; or 2 when Python raised an
exception. A timed step, `i32 step(ptr table, ptr ticks)`, also notes when each kernel was over.
"""

from __future__ import annotations

import functools
import hashlib
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, get_args

from lucid.codegen import costs
from lucid.codegen.emit import lowering
from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.kernels.host import FAILED, HostCalls
from lucid.codegen.llvm.builder import FunctionBuilder, Module, Parts, Val, const
from lucid.codegen.llvm.clock import NOW, Clock, define_now
from lucid.codegen.llvm.jit import Library
from lucid.codegen.llvm.target import Target
from lucid.codegen.program.program import KernelCall, Program, kernel_names
from lucid.codegen.threads.tasks import (
    Caller,
    Region,
    declare_kernel,
    define_kernel,
    regions_of,
    symbols_of,
)
from lucid.codegen.threads.trial import Trial
from lucid.ir.errors import MissingRuleError
from lucid.ir.extents import is_open
from lucid.ir.graph import Graph
from lucid.ir.op import OpKind

STEP = "step"


class Loaded(NamedTuple):
    """A kernel whose functions are loaded, under this name in a library."""

    library: Library
    name: str


class Links(NamedTuple):
    """Which functions of its kernels a program has, and which of others it calls.

    Attributes:
        defined: the kernels that it has the functions of, by their keys, and their names in it.
        exports: the functions that others may call.
        imports: the functions of others that it calls, and where they are.
        libraries: those that these are in.
    """

    defined: Mapping[str, str]
    exports: Sequence[str]
    imports: Mapping[str, int]
    libraries: Sequence[Library]

    @staticmethod
    def of(functions: Functions, find: Callable[[Iterable[str]], Mapping[str, Loaded]]) -> Links:
        """The links of a program, of whose kernels `find` says which are loaded already."""
        loaded = find([key for key, _ in functions.values()])
        defined: dict[str, str] = {}
        exports, imports = [STEP], dict[str, int]()
        for name, (key, regions) in functions.items():
            if key in loaded:
                library, there = loaded[key]
                imports |= {name + region: library.addresses[there + region] for region in regions}
            else:
                defined[key] = name
                exports += [name + region for region in regions]
        libraries = list({id(x.library): x.library for x in loaded.values()}.values())
        return Links(defined, exports, imports, libraries)


Functions = Mapping[str, tuple[str, tuple[str, ...]]]
"""The kernels of a program by name: what each is known by, and its regions."""


@dataclass(frozen=True)
class StepCode:
    """What the code of a step is known by.

    Attributes:
        code: names the LLVM IR but for its links, without the work of writing it.
        functions: its different kernels; links: where their functions are.
        calls: number of kernel calls in a step.
        seconds: estimated time of a step in one thread.
        shared: number of calls whose work threads share.
    """

    code: str
    functions: Functions
    links: Links
    calls: int
    seconds: float
    shared: int

    @property
    def key(self) -> str:
        """Names the LLVM IR."""
        return f"{self.code} {' '.join(self.links.imports)}"


@dataclass(frozen=True)
class Emitted(StepCode):
    """What a program becomes.

    Attributes:
        words: what the step of a program with open sizes reads.
    """

    words: StepWords
    _target: Target = field(repr=False)
    _write: Callable[[Module], None] = field(repr=False)

    @functools.cached_property
    def module(self) -> Module:
        """The LLVM IR."""
        module = Module(self._target)
        self._write(module)
        return module

    def write_parts(self, take: Callable[[str], None]) -> None:
        """Write its text in parts, which can be compiled as soon as they are taken."""
        module = Module(self._target)
        module.parts = Parts(module, costs.PART_CHARACTERS, take)
        self.write_rest(module)

    def write_rest(self, module: Module) -> None:
        """Write what a module that goes to parts lacks of it; it may have its first kernels."""
        assert module.parts is not None
        self._write(module)
        module.parts.end()


def require_rules(graph: Graph) -> None:
    """Raise `MissingRuleError` for an op that has no lowering."""
    for node in chain(graph.nodes, *(body.nodes for body in graph.functions.values())):
        if node.op.kind == "map" and node.op.name not in lowering.RULES:
            raise MissingRuleError(f"{node.op.name}: no lowering to native code")
        if node.op.kind not in _KINDS:
            raise MissingRuleError(f"{node.op.name}: ops of kind {node.op.kind} can't be lowered")


_KINDS = {*get_args(OpKind)} - {"call"}  # whose functions are inlined


def emit_program(
    program: Program,
    target: Target,
    *,
    timed: bool = False,
    find: Callable[[Iterable[str]], Mapping[str, Loaded]] = lambda keys: {},
    opened: Collection[int] | None = None,
) -> Emitted:
    """All kernels and the step that calls them; equal kernels are one function.

    Args:
        opened: of a program whose sizes are open the numbers of calls of open kernels, which are no
            part of it.
        find: which of the kernels with these keys have functions that are there already.
    """
    pairs = enumerate(zip(kernel_names(program.calls), program.calls, strict=True))
    kernels = {
        name: call
        for number, (name, call) in pairs
        if call.kernel.has_function and number not in (opened or ())
    }
    functions = {
        name: (call.key(target), tuple(call.kernel.regions() or ("",)))
        for name, call in kernels.items()
    }
    links = Links.of(functions, find)
    imports = links.imports.keys()
    of_text: dict[str, float] = {}
    for call in program.calls:
        if call.text not in of_text:
            of_text[call.text] = call.kernel.seconds(target)
    seconds = [of_text[call.text] for call in program.calls]
    shared = [call.kernel.is_shared for call in program.calls]
    words = StepWords()
    return Emitted(
        code=program_key(program, target, timed=timed),
        functions=functions,
        links=links if not timed else links._replace(exports=[NOW, *links.exports]),
        calls=len(program.calls),
        seconds=sum(seconds),
        shared=sum(shared),
        words=words,
        _target=target,
        _write=lambda module: _write(
            _StepEmitter(module, program, seconds, shared, imports, opened, words), timed
        ),
    )


def _write(emitter: _StepEmitter, timed: bool) -> None:
    module, count = emitter.module, len(emitter.seconds)
    parameters = [("ptr", "table")]
    if timed:
        define_now(module)
        parameters.append(("ptr", "ticks"))
    with FunctionBuilder(module, STEP, parameters, "i32") as b:
        slots = Slots(b, emitter.program, emitter.words)
        trial = Trial(b, slots.record, slots.pool) if emitter.tries else None
        if timed:
            Clock(b, b.args[1]).note(0)
        if trial is not None:
            (trial.keep if timed else trial.begin)()
        if count <= costs.PART_CALLS:
            emitter.emit_part(b, range(count))
        else:
            is_long = sum(emitter.seconds) >= count * costs.LONG_CALL_SECONDS
            how = "noinline optnone" if is_long else ""
            for low in range(0, count, costs.PART_CALLS):
                name = f"{STEP}_from_{low}"
                with FunctionBuilder(
                    module, name, parameters, "i32", internal=True, attributes=how
                ) as part:
                    emitter.emit_part(part, range(low, min(low + costs.PART_CALLS, count)))
                    part.ret(const("i32", 0))
                code = b.call(name, "i32", *b.args)
                with b.if_(b.ne(code, 0)):
                    b.ret(code)
        if trial is not None and not timed:
            trial.end()
        b.ret(const("i32", 0))


def program_key(program: Program, target: Target, *, timed: bool) -> str:
    """A text that is equal for programs whose LLVM IR is: the kernels and where their memory is.

    It takes a tenth of the time of writing the IR. It begins with what writes it, our sources, and
    ends with a hash of the rest.
    """
    lines = [repr(target), f"timed {timed}", f"live {sorted(program.live)}"]
    lines.append(f"{len(program.inputs)} inputs, {len(program.outputs)} outputs")
    for call in program.calls:
        places = []
        for number, buffer in enumerate(call.args):
            start = program.offsets[buffer] if buffer.kind == "temp" else buffer.index
            skipped = call.origins.get(number, 0) * buffer.dtype.itemsize
            places.append(f"{buffer.kind} {start} {skipped}")
        lines += (type(call.kernel).__name__, call.text, ", ".join(places))
    return f"{generator_version()} {hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"


@functools.cache
def generator_version() -> str:
    """A hash of the sources that the IR depends on; of no use to others where there are none."""
    digest = hashlib.sha256()
    codegen = Path(__file__).parent.parent
    sources = sorted([*codegen.rglob("*.py"), *(codegen.parent / "ir").rglob("*.py")])
    for path in sources:
        digest.update(path.read_bytes())
    return digest.hexdigest() if sources else f"process {uuid.uuid4()}"


class _StepEmitter:
    """Emits the calls of a program's kernels, and the kernels when they are first called.

    Attributes:
        seconds: estimated, of each call.
        tries: whether the step finds out if threads help it.
    """

    def __init__(
        self,
        module: Module,
        program: Program,
        seconds: list[float],
        shared: list[bool],
        imports: Collection[str],
        opened: Collection[int] | None,
        words: StepWords,
    ) -> None:
        self.module = module
        self._opened = opened or ()
        self.words = None if opened is None else words
        self._imports = imports
        self.program = program
        self._names = kernel_names(program.calls)
        self._defined: set[str] = set()
        self.seconds = seconds
        self._shared = shared
        pairs = zip(seconds, shared, strict=True)
        self._ahead = sum(cost for cost, several in pairs if several)
        self.checks = self.hosts = 0
        self.tries = any(shared) and sum(seconds) < costs.TRIAL_SECONDS

    def emit_part(self, b: FunctionBuilder, numbers: Sequence[int]) -> None:
        """Emit some of the calls; they return from the function when one fails."""
        slots = Slots(b, self.program, self.words)
        clock = Clock(b, b.args[1] if len(b.args) > 1 else None)
        calls = [self.program.calls[number] for number in numbers]
        sizes = [len(self.program.calls[n].args) + 1 for n in numbers if self._shared[n]]
        pool = Trial(b, slots.record, slots.pool).pool() if self.tries else slots.pool
        caller = Caller(b, slots.entry, pool, max(sizes, default=0))
        python = HostCalls(b, [len(x.args) for x in calls if not x.kernel.has_function])
        for number, call in zip(numbers, calls, strict=True):
            call.kernel.emit_call(_Site(self, slots, caller, python, clock, number))

    def call_kernel(self, caller: Caller, slots: Slots, number: int, args: Sequence[Val]) -> None:
        """Call a kernel's function, which is defined when it is first called."""
        call, name, cost = self.program.calls[number], self._names[number], self.seconds[number]
        if number in self._opened:
            regions = slots.regions(number)
            args = [*args, slots.word("ptr", "words", number)]
        else:
            regions = regions_of(name, call.kernel)
            if name not in self._defined:
                self._defined.add(name)
                self._provide(name, call)
        caller.call(regions, args, cost, self._ahead >= costs.WAKE_SECONDS)
        if self._shared[number]:
            self._ahead -= cost

    def _provide(self, name: str, call: KernelCall) -> None:
        symbol = symbols_of(name, call.kernel)[0]
        if symbol in self._imports:
            declare_kernel(self.module, name, call.kernel, len(call.args))
        elif symbol not in self.module.functions:
            define_kernel(self.module, name, call.kernel, len(call.args))


class _Site:
    """Where a kernel is called, as `CallSite` says."""

    def __init__(
        self,
        step: _StepEmitter,
        slots: Slots,
        caller: Caller,
        python: HostCalls,
        clock: Clock,
        number: int,
    ) -> None:
        self._step, self._slots, self._caller = step, slots, caller
        self._python, self._clock, self._number = python, clock, number
        self._call: KernelCall = step.program.calls[number]
        self.record, self.python = slots.record, slots.python
        self.pool = caller.pool

    @functools.cached_property
    def args(self) -> Sequence[Val]:
        origins = self._call.origins
        return [self._slots.address(x, origins.get(n, 0)) for n, x in enumerate(self._call.args)]

    def call(self, args: Sequence[Val]) -> None:
        self._step.call_kernel(self._caller, self._slots, self._number, args)
        self._clock.note(self._number + 1)

    def call_python(self) -> None:
        b = self._slots.b
        number, slot = self.next_hosts(1), self._slots.python
        self._python.emit(number, slot, self.args, lambda: b.ret(const("i32", FAILED)))
        self._clock.note(self._number + 1)

    def next_hosts(self, count: int) -> Val:
        first = self._step.hosts
        self._step.hosts += count
        return const("i64", first)

    def next_check(self) -> Val:
        self._step.checks += 1
        return const("i64", self._step.checks)

    def leave_if_recorded(self) -> None:
        b = self._slots.b
        with b.if_(b.ne(b.load("i64", self.record), 0)):
            b.ret(const("i32", 1))


class StepWords:
    """What a step reads that depends on sizes which are open, in the order of its words.

    Attributes:
        entries: ("size", formula), ("offset", temp), ("words", number of a call): where those of
            its kernel begin, or ("function", number of a call, region).
    """

    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []
        self._numbers: dict[Any, int] = {}

    def number(self, kind: str, *of: Any) -> int:
        """The place of a word."""
        key = kind, *((x.key if is_open(x) else x) for x in of)
        if key not in self._numbers:
            self._numbers[key] = len(self.entries)
            self.entries.append((kind, *of))
        return self._numbers[key]


class Slots:
    """Addresses of buffers, from the table that a step gets."""

    def __init__(self, b: FunctionBuilder, program: Program, words: StepWords | None) -> None:
        self.b = b
        self._program = program
        self._words = words
        self._table = b.args[0]
        slots = len(program.inputs) + len(program.outputs)
        self._arena = b.load("ptr", b.at("ptr", self._table, slots))
        self.record = b.load("ptr", b.at("ptr", self._table, slots + 1))
        self.python = b.at("ptr", self._table, slots + 2)
        self.entry = b.load("ptr", b.at("ptr", self._table, slots + 3))
        self.pool = b.load("ptr", b.at("ptr", self._table, slots + 4))
        if words is not None:
            self._open = b.load("ptr", b.at("ptr", self._table, slots + 5))

    def address(self, buffer: Buffer, origin: int = 0) -> Val:
        """Where a buffer's element number `origin` lies."""
        b = self.b
        skipped: int | Val = origin * buffer.dtype.itemsize
        if is_open(skipped):
            skipped = self.word("i64", "size", skipped)
        if buffer.kind == "temp":
            start: int | Val = self._program.offsets[buffer]
            if self._words is not None:
                start = self.word("i64", "offset", buffer)
            elif isinstance(skipped, int):  # then one address is enough
                start, skipped = self._program.offsets[buffer] + skipped, 0
            return b.at("i8", b.at("i8", self._arena, start), skipped)
        slot = buffer.index + (len(self._program.inputs) if buffer.kind == "output" else 0)
        place = b.at("ptr", self._table, slot)
        if buffer.kind == "input" and buffer.index in self._program.live:
            return place
        address = b.load("ptr", place)
        return b.at("i8", address, skipped)

    # Open sizes ---------------------------------------------------------------------------

    def word(self, type_: str, kind: str, *of: object) -> Val:
        """One of the words of a program whose sizes are open."""
        assert self._words is not None
        number = self._words.number(kind, *of)
        return self.b.load(type_, self.b.at("i64", self._open, number))

    def regions(self, number: int) -> list[Region]:
        """The functions of an open kernel, which are found when sizes are known."""
        parts = self._program.calls[number].kernel.regions()
        if not parts:
            return [Region(self.word("ptr", "function", number, ""), None)]
        return [
            Region(
                self.word("ptr", "function", number, region),
                count,
                self.word("i64", "size", count),
            )
            for region, count in parts.items()
        ]
