"""A program as LLVM IR: one function per different kernel, and `step` that calls them in order.

`i32 step(ptr table)`: the table holds the addresses of the inputs, then of the outputs, the arena,
the error record, a function which calls Python, the function that runs a region on several threads,
and its pool; a live scalar's slot is the number itself. The result is 0; or 1 when an index was out
of range: the record then has 1 + the number of the check and the index; or 2 when Python raised an
exception. A timed step, `i32 step(ptr table, ptr ticks)`, also notes when each kernel was over.
"""

from __future__ import annotations

import functools
import hashlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lucid.codegen import lowering
from lucid.codegen.clock import Clock, define_now
from lucid.codegen.hosts import HostCalls
from lucid.codegen.kernel import CheckKernel, HostKernel
from lucid.codegen.llvm import FunctionBuilder, Module, Val, const
from lucid.codegen.regions import Buffer
from lucid.codegen.schedule import Program
from lucid.codegen.target import Target
from lucid.codegen.tasks import Caller, define_kernel, parts_of
from lucid.codegen.timing import seconds
from lucid.codegen.trial import LONGEST_SECONDS, Trial
from lucid.ir.errors import MissingRuleError
from lucid.ir.graph import Graph

STEP = "step"
# A worker that is parked needs some 50 us to come; one that isn't waits for the next step as well.
WAKE_SECONDS = 40e-6
# Calls in one function: LLVM's time grows with the square of a function's length.
PART_CALLS = 64


@dataclass(frozen=True)
class Emitted:
    """What a program becomes.

    Attributes:
        key: names the LLVM IR, without the work of writing it.
        kernels: number of different kernel functions.
        calls: number of kernel calls in a step.
        seconds: estimated time of a step in one thread.
        shared: number of calls whose work threads share.
    """

    key: str
    kernels: int
    calls: int
    seconds: float
    shared: int
    _write: Callable[[], str] = field(repr=False)

    @functools.cached_property
    def text(self) -> str:
        """The LLVM IR."""
        return self._write()


def require_rules(graph: Graph) -> None:
    """Raise `MissingRuleError` for an op that has no lowering."""
    for node in graph.nodes:
        if node.op.kind == "map" and node.op.name not in lowering.RULES:
            raise MissingRuleError(f"{node.op.name}: no lowering to native code")
        if node.op.kind not in _KINDS:
            raise MissingRuleError(f"{node.op.name}: ops of kind {node.op.kind} can't be lowered")


_KINDS = (
    "map", "create", "view", "move", "scan", "sort", "reduce", "contract", "random", "check",
    "host",
)  # fmt: skip


def emit_program(program: Program, target: Target, *, timed: bool = False) -> Emitted:
    """All kernels and the step that calls them; equal kernels are one function."""
    costs = [seconds(step.kernel, target) for step in program.steps]
    shared = [parts_of(step.kernel) is not None for step in program.steps]
    return Emitted(
        key=program_key(program, target, timed=timed),
        kernels=len({s.text for s in program.steps if not isinstance(s.kernel, HostKernel)}),
        calls=len(program.steps),
        seconds=sum(costs),
        shared=sum(shared),
        _write=lambda: _written(_StepEmitter(Module(target), program, costs, shared), timed),
    )


def _written(emitter: _StepEmitter, timed: bool) -> str:
    module, count = emitter.module, len(emitter.costs)
    parameters = [("ptr", "table")]
    if timed:
        define_now(module)
        parameters.append(("ptr", "ticks"))
    with FunctionBuilder(module, STEP, parameters, "i32") as b:
        slots = Slots(b, emitter.program)
        trial = Trial(b, slots.record, slots.pool) if emitter.tries else None
        if timed:
            Clock(b, b.args[1]).note(0)
        if trial is not None:
            (trial.keep if timed else trial.begin)()
        if count <= PART_CALLS:
            emitter.emit_part(b, range(count))
        else:
            for low in range(0, count, PART_CALLS):
                name = f"{STEP}_from_{low}"
                with FunctionBuilder(module, name, parameters, "i32", internal=True) as part:
                    emitter.emit_part(part, range(low, min(low + PART_CALLS, count)))
                    part.ret(const("i32", 0))
                code = b.call(name, "i32", *b.args)
                with b.if_(b.ne(code, 0)):
                    b.ret(code)
        if trial is not None and not timed:
            trial.end()
        b.ret(const("i32", 0))
    return module.text()


def program_key(program: Program, target: Target, *, timed: bool) -> str:
    """A text that is equal for programs whose LLVM IR is: the kernels and where their memory is.

    It takes a tenth of the time of writing the IR. It begins with what writes it: our sources.
    """
    lines = [generator_version(), repr(target), f"timed {timed}", f"live {sorted(program.live)}"]
    lines.append(f"{len(program.inputs)} inputs, {len(program.outputs)} outputs")
    for step in program.steps:
        places = []
        for number, buffer in enumerate(step.args):
            start = program.offsets[buffer] if buffer.kind == "temp" else buffer.index
            skipped = step.origins.get(number, 0) * buffer.dtype.itemsize
            places.append(f"{buffer.kind} {start} {skipped}")
        lines += (type(step.kernel).__name__, step.text, ", ".join(places))
    return "\n".join(lines)


@functools.cache
def generator_version() -> str:
    """A hash of the sources that the IR depends on; of no use to others where there are none."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    sources = sorted([*here.rglob("*.py"), *(here.parent / "ir").rglob("*.py")])
    for path in sources:
        digest.update(path.read_bytes())
    return digest.hexdigest() if sources else f"process {uuid.uuid4()}"


class _StepEmitter:
    """Emits the calls of a program's kernels, and the kernels when they are first called.

    Attributes:
        costs: estimated seconds of each call.
        tries: whether the step finds out if threads help it.
    """

    def __init__(
        self, module: Module, program: Program, costs: list[float], shared: list[bool]
    ) -> None:
        self.module = module
        self.program = program
        self._names: dict[str, str] = {}
        self.costs = costs
        self._shared = shared
        pairs = zip(costs, shared, strict=True)
        self._ahead = sum(cost for cost, several in pairs if several)
        self._checks = self._hosts = 0
        self.tries = any(shared) and sum(costs) < LONGEST_SECONDS

    def emit_part(self, b: FunctionBuilder, numbers: Sequence[int]) -> None:
        """Emit some of the calls; they return from the function when one fails."""
        slots = Slots(b, self.program)
        clock = Clock(b, b.args[1] if len(b.args) > 1 else None)
        steps = [self.program.steps[number] for number in numbers]
        sizes = [len(self.program.steps[n].args) for n in numbers if self._shared[n]]
        pool = Trial(b, slots.record, slots.pool).pool() if self.tries else slots.pool
        caller = Caller(b, slots.entry, pool, max(sizes, default=0))
        hosts = HostCalls(b, steps)
        for number, step in zip(numbers, steps, strict=True):
            if isinstance(step.kernel, HostKernel):
                args = [slots.address(buffer) for buffer in step.args]
                hosts.emit(self._hosts, slots.python, args)
                self._hosts += 1
            else:
                self._call_kernel(b, slots, caller, number)
            clock.note(number + 1)
            if isinstance(step.kernel, CheckKernel):
                with b.if_(b.ne(b.load("i64", slots.record), 0)):
                    b.ret(const("i32", 1))

    def _call_kernel(self, b: FunctionBuilder, slots: Slots, caller: Caller, number: int) -> None:
        step, cost = self.program.steps[number], self.costs[number]
        text = step.text
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = f"k{len(self._names)}"
            define_kernel(self.module, name, step.kernel, len(step.args))
        args = [slots.address(x, step.origins.get(n, 0)) for n, x in enumerate(step.args)]
        if isinstance(step.kernel, CheckKernel):
            self._checks += 1
            args = [slots.record, const("i64", self._checks), *args]
        caller.call(name, step.kernel, args, cost, self._ahead >= WAKE_SECONDS)
        if self._shared[number]:
            self._ahead -= cost


class Slots:
    """Addresses of buffers, from the table that a step gets."""

    def __init__(self, b: FunctionBuilder, program: Program) -> None:
        self._b = b
        self._program = program
        self._table = b.args[0]
        slots = len(program.inputs) + len(program.outputs)
        self._arena = b.load("ptr", b.at("ptr", self._table, slots))
        self.record = b.load("ptr", b.at("ptr", self._table, slots + 1))
        self.python = b.at("ptr", self._table, slots + 2)
        self.entry = b.load("ptr", b.at("ptr", self._table, slots + 3))
        self.pool = b.load("ptr", b.at("ptr", self._table, slots + 4))

    def address(self, buffer: Buffer, origin: int = 0) -> Val:
        """Where a buffer's element number `origin` lies."""
        b = self._b
        skipped = origin * buffer.dtype.itemsize
        if buffer.kind == "temp":
            return b.at("i8", self._arena, self._program.offsets[buffer] + skipped)
        slot = buffer.index + (len(self._program.inputs) if buffer.kind == "output" else 0)
        place = b.at("ptr", self._table, slot)
        if buffer.kind == "input" and buffer.index in self._program.live:
            return place
        address = b.load("ptr", place)
        return b.at("i8", address, skipped) if skipped else address
