"""A compiled graph as a callable on NumPy arrays."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from lucid.codegen.kernels.check import CheckKernel
from lucid.codegen.kernels.host import HostKernel
from lucid.codegen.llvm.jit import Library
from lucid.codegen.llvm.library import leave_memory
from lucid.codegen.llvm.target import Target, host_target
from lucid.codegen.lower.schedule import make_program
from lucid.codegen.program.emit import STEP, StepCode, emit_program, require_rules
from lucid.codegen.program.program import KernelCall, Program
from lucid.ir import ops
from lucid.ir.errors import IndexOutOfRangeError, LeavesPath, LucidError, NotFinite
from lucid.ir.extents import is_open
from lucid.ir.graph import Graph, Node
from lucid.ir.hosts import SIZING
from lucid.ir.location import Location, at_line
from lucid.ir.memory import address_of
from lucid.ir.ops.checks import out_of_range
from lucid.ir.passes.pipeline import PassLog
from lucid.ir.strides import Strides, contiguous_strides
from lucid.ir.types import Shape
from lucid.runtime.ahead import Ahead
from lucid.runtime.arena import HUGE_FROM, arenas
from lucid.runtime.cache import compiled
from lucid.runtime.context import Context, Expected, expected_input
from lucid.runtime.hosts import HostCalls
from lucid.runtime.kernel_code import kernel_code
from lucid.runtime.progress import at
from lucid.runtime.recycling import LARGE_BYTES, recycling
from lucid.runtime.reuse import Reusable
from lucid.runtime.stages import Stages
from lucid.runtime.threads import pool
from lucid.runtime.timed import TimedStep
from lucid.runtime.watched import WatchedStep

if TYPE_CHECKING:
    from lucid.runtime.decided_sizes import DecidedProgram, Sizing

# Releasing and taking back the interpreter's lock takes 30 ns, and others may take it meanwhile.
SHORT_SECONDS = 50e-6


class IdleContexts(list[Context]):
    """The contexts of a program that no call uses; who needs their memory may refer to it."""

    __slots__ = ("__weakref__",)


class Results(list[np.ndarray]):
    """The outputs of one call, for whom an exception must not keep from them.

    Attributes:
        codes: what the native function has returned; empty before that.
        sizes: those that values have decided.
    """

    __slots__ = ("codes", "sizes")

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.sizes: Sequence[int] = ()

    @property
    def have_run(self) -> bool:
        """Whether the step has stored all that it stores; else it has stored nothing."""
        return self.codes == [0]

    def forget(self) -> None:
        """Be as before a run that is to be made again."""
        self.clear()
        self.codes.clear()


@dataclass(frozen=True, slots=True)
class Instance:
    """What the sizes of an executable are, where its code serves others as well.

    Attributes:
        words: what the code reads; code: what must stay loaded.
        decided: has words for the sizes of each call, which values decide; None: no sizes are.
    """

    words: ctypes.Array[ctypes.c_int64] | None
    code: Sequence[object]
    decided: DecidedProgram | None = None

    @property
    def nbytes(self) -> int:
        words = 0 if self.words is None else ctypes.sizeof(self.words)
        return words if self.decided is None else self.decided.nbytes


class Executable:
    """One native function for a graph.

    It keeps what calls need. The kernels are made again, from the graph, for who looks at them.

    Attributes:
        compile_seconds: time from graph to callable code.
        stage_seconds: of it by stage: "kernels", "emit", "machine code"; none of an instance.
        was_compiled: whether LLVM had to run; False: all its code was on disk, or loaded before.
        lower: makes the kernels and their buffers again.
        kernel_count: calls of kernels in a step.
        function_count: different kernels among them.
        shared_count: calls of kernels whose work threads share.
        is_short: whether a call keeps the interpreter's lock.
        instance: if its code serves other sizes as well; None: it doesn't.
        free: contexts that no call uses.
        address: of the native function.
        is_open: a word: whether other native code may call it; only `run` knows of replaced ones.
    """

    def __init__(
        self,
        graph: Graph,
        strides: Sequence[Strides],
        facts: Facts,
        hosts: Sequence[HostKernel],
        emitted: StepCode,
        library: Library,
        lower: Callable[[], Program],
        target: Target,
        compile_seconds: float,
        instance: Instance | None = None,
        stage_seconds: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self.lower = lower
        self.stage_seconds = stage_seconds
        self.was_compiled = instance is None and library.was_compiled
        self.instance = instance
        self._target = target
        self._library = library
        self._libraries = emitted.links.libraries
        self._expected = expected_inputs(graph, strides, facts.written)
        types = [value.type for value in graph.outputs]
        self._outputs = [(type.shape, type.dtype.numpy, type.nbytes) for type in types]
        self._decided = {
            n for n, (shape, *_) in enumerate(self._outputs) if any(map(is_open, shape))
        }
        self._nothing = Reusable([None] * len(self._outputs))
        self._arena_bytes = facts.arena_bytes
        self._hosts = hosts
        self._functions = graph.hosts
        self._checks = facts.checks
        self.is_short = emitted.seconds < SHORT_SECONDS and not graph.hosts
        self._kind = ctypes.PYFUNCTYPE if self.is_short else ctypes.CFUNCTYPE
        self.address = library.addresses[STEP]
        native = self._kind(ctypes.c_int32, ctypes.c_void_p)
        self._step: Callable[[int], int] = native(self.address)
        self.is_open = (ctypes.c_int64 * 1)(1)
        self._is_shared = emitted.shared > 0
        self.free = IdleContexts()
        self._replacing = threading.RLock()
        self.compile_seconds = compile_seconds
        self.kernel_count = emitted.calls
        self.function_count = len(emitted.functions)
        self.shared_count = emitted.shared

    def twin(self) -> Executable:
        """The same code for calls on other state, whose contexts are its own."""
        made = copy(self)
        made.is_open = (ctypes.c_int64 * 1)(1)
        made.free, made._replacing = IdleContexts(), threading.RLock()
        return made

    @property
    def outputs(self) -> Sequence[tuple[Shape, np.dtype[Any], int]]:
        """Shape, dtype and bytes of each output."""
        return self._outputs

    @property
    def decided(self) -> DecidedProgram | None:
        """What has words for the sizes of each call; None: no values decide sizes."""
        return None if self.instance is None else self.instance.decided

    @property
    def may_fail(self) -> bool:
        """Whether a run may end before everything is written: by a check, or a call of Python."""
        return bool(self._checks or self._hosts)

    @property
    def open_at(self) -> int:
        """The address of the word that says whether other native code may call it."""
        return ctypes.addressof(self.is_open)

    @property
    def nbytes(self) -> int:
        """Of its own code, and of small arenas; large ones are lent to one after the other."""
        own = self._arena_bytes if self._arena_bytes <= HUGE_FROM else 0
        code = self._library.nbytes if self.instance is None else self.instance.nbytes
        return code + own * len(self.free)

    @property
    def stages(self) -> Stages:
        """The program's text by the name of each stage: "kernels", "buffers", "llvm"."""
        lower, target = self.lower, self._target
        return Stages(
            {
                "kernels": lambda: lower().kernel_text(),
                "buffers": lambda: lower().buffer_text(),
                "llvm": lambda: emit_program(lower(), target).module.text(),
            }
        )

    @property
    def target(self) -> Target:
        return self._target

    @property
    def llvm(self) -> str:
        return self.stages["llvm"]

    @property
    def calls(self) -> Sequence[KernelCall]:
        """The calls of kernels, in order."""
        return self.lower().calls

    @contextmanager
    def timed(self) -> Iterator[TimedStep]:
        """In the block this thread's calls note how long each kernel takes."""
        with self._replacing:
            step = TimedStep(self.lower(), self._target, self._step, self._kind)
            with self._replaced_by(step):
                yield step

    @contextmanager
    def watched(self) -> Iterator[WatchedStep]:
        """In the block what this thread's calls get and make is kept."""
        with self._replacing:
            step = WatchedStep(self.lower(), self._expected, self._step)
            with self._replaced_by(step):
                yield step

    @contextmanager
    def _replaced_by(self, step: Callable[[int], int]) -> Iterator[None]:
        # Words of sizes that values decide are filled in for the step's own code.
        assert self.instance is None or self.instance.decided is None
        plain, self._step = self._step, step
        self.is_open[0] = 0
        try:
            yield
        finally:
            self._step = plain
            self.is_open[0] = 1

    def call(
        self,
        inputs: Sequence[np.ndarray | float],
        reused: Reusable | None = None,
        results: Results | None = None,
        *,
        is_once: bool = False,
    ) -> Results:
        """Run the step: writes go into the input arrays, outputs are fresh contiguous arrays.

        Outputs that `reused` has an array for go there; after an error its contents are undefined.
        They are entered into `results`, which tells after any exception whether the step has run.

        Several threads may call at once, as long as they don't write the same arrays. The arrays
        of the latest call are kept alive, unless it `is_once`. An argument that shares memory with
        a written array keeps its old value for the whole step.

        Raises:
            ArgumentError, DTypeError, ShapeError: an input isn't what the code was made for.
            IndexOutOfRangeError, what a check says, and what a call of Python raises: nothing was
            written then.
        """
        try:
            context = self.free.pop()
        except IndexError:
            context = self._new_context()
        try:
            context.bind(inputs)
        except BaseException:
            self.free.append(context)
            raise
        return self.run(context, reused, results, is_once=is_once)

    __call__ = call

    def call_known(self, inputs: Sequence[np.ndarray]) -> Results:
        """As `call`, for contiguous arrays of the right types, none of which the step writes.

        Nothing is checked, and no array is kept alive.
        """
        try:
            context = self.free.pop()
        except IndexError:
            context = self._new_context()
        if context.arena is None:
            context.use_arena(arenas.provide(context))
        table = context.table
        for number, array in enumerate(inputs):
            table[number] = address_of(array)
        return self.run(context, None)

    def context_of_its_own(self) -> Context | None:
        """Make a context for native code that calls the step; None where a call needs Python."""
        if not self.is_short or self._arena_bytes > HUGE_FROM:
            return None
        return self._new_context()

    def ready(self) -> Context | None:
        """Take a context that an earlier call has bound all inputs to, for `run`; None: none."""
        try:
            context = self.free.pop()
        except IndexError:
            return None
        if context.is_ready:
            context.forget_touched()
            return context
        self.free.append(context)
        return None

    def put_back(self, context: Context) -> None:
        """Give back a context that was not used."""
        self.free.append(context)

    def run(
        self,
        context: Context,
        reused: Reusable | None,
        results: Results | None = None,
        *,
        is_once: bool = False,
    ) -> Results:
        """Run the step on what is bound to a context, which is free again afterwards.

        Python looks for signals after the instruction that calls the step: the same one notes that
        it has run.

        is_once: whether the context then lets go of its inputs.
        """
        results = Results() if results is None else results
        try:
            if self._is_shared and not pool.awake:
                pool.start()
            self._enter_outputs(context, reused, results)
            if context.sizing is not None:
                context.sizing.begin(context, results)
                if context.has_hosts:
                    context.hosts.frame[SIZING] = context.sizing
            results.codes.extend(map(self._step, (context.address,)))
            if results.codes[0]:
                self.raise_error(context)
            if context.sizing is not None:
                results.sizes = (*context.sizing.values,)
        finally:
            if context.has_hosts:
                context.hosts.finish()
            if is_once:
                context.forget(range(len(context.bound)))
            self.free.append(context)
        return results

    @property
    def open_outputs(self) -> Collection[int]:
        """The outputs of open sizes, which may be equal to a known one in all calls."""
        return self._decided

    @property
    def found_outputs(self) -> Collection[int]:
        """The outputs of open sizes of a step that calls Python: they are made while it runs."""
        return self._decided if self.decided is not None and self._hosts else ()

    def begin_found(self, context: Context) -> None:
        """Get ready for a run by native code, in which calls of Python find sizes."""
        assert context.sizing is not None
        context.sizing.begin(context, [None] * len(self._outputs))
        context.hosts.frame[SIZING] = context.sizing

    def _new_context(self) -> Context:
        instance = self.instance
        sizing = None if self.decided is None else self.decided.sizing()
        hosts = HostCalls(self._hosts, self._functions, sizing)
        words = None if instance is None else instance.words
        at = 0 if words is None else ctypes.addressof(words)
        context = Context(self._expected, len(self._outputs), self._arena_bytes, hosts, at, sizing)
        context.use_arena(arenas.provide(context, self.free))
        return context

    def reusable(self, outputs: Collection[int]) -> Reusable:
        """Make arrays for the outputs of these numbers."""
        return Reusable(
            recycling.empty(*output) if number in outputs else None
            for number, output in enumerate(self._outputs)
        )

    def _enter_outputs(self, context: Context, reused: Reusable | None, results: list[Any]) -> None:
        table, first = context.table, len(self._expected)
        given = reused or self._nothing
        results += given.arrays
        for number, address in given.addresses:
            table[first + number] = address
        for number in given.missing:
            if number in self._decided:
                continue
            array = recycling.empty(*self._outputs[number])
            table[first + number] = address_of(array)
            results[number] = array

    def raise_error(self, context: Context) -> NoReturn:
        """Raise what the latest run on a context found."""
        try:
            raise self._error(context)  # which no name of this frame, in its traceback, keeps alive
        finally:
            if context.has_hosts:
                context.hosts.finish()

    def _error(self, context: Context) -> BaseException:
        error = context.hosts.error
        if error is None:
            return self._error_of_check(context)
        context.record[0] = 0
        return error

    def maker(
        self, number: int, shapes: Mapping[int, Shape] = MappingProxyType({})
    ) -> tuple[Callable[..., np.ndarray], tuple[Any, ...]]:
        """What makes a new array for an output, with its arguments.

        shapes: of those whose sizes are open.
        """
        shape, dtype, nbytes = self._outputs[number]
        if number in shapes:
            return np.empty, (shapes[number], dtype)
        if nbytes < LARGE_BYTES:
            return np.empty, (shape, dtype)
        return recycling.empty, (shape, dtype, nbytes)

    def _error_of_check(self, context: Context) -> LucidError:
        """Make the error that the record describes, and clear it."""
        number, index = context.record[0] - 1, context.record[1]
        context.record[0] = 0
        error = self._checks[number].failure(index, context.sizing)
        if isinstance(error, (LeavesPath, NotFinite)):
            error.frame = context.hosts.frame
        return error


class Check(NamedTuple):
    """What a check says when it fails, without the graph around it.

    Attributes:
        message: where the index stands where it has `{}`; of an exit its number.
        error: the kind, as of the op `check`; empty for an op that has an index.
        size: what stands where the message has `{size}`, if it is open.
    """

    message: str
    error: str
    location: Location | None
    size: Any = None

    @staticmethod
    def of(node: Node, kernel: CheckKernel) -> Check:
        """That of a node."""
        given = node.attributes
        if node.op is ops.check:
            return Check(given["message"], given["error"], node.location)
        size = kernel.high if is_open(kernel.high) else None
        problem = f"out of range for axis {given['axis']} with size "
        problem += str(kernel.high) if size is None else "{size}"
        return Check(f"{node.op.name}: index {{}} is {problem}", "", node.location, size)

    def failure(self, index: int, sizing: Sizing | None) -> LucidError:
        """The error, of such an index."""
        if not self.error:
            message = self.message.replace("{}", str(index))
            if self.size is not None and sizing is not None:
                message = message.replace("{size}", str(sizing.known(self.size)))
            error: LucidError = IndexOutOfRangeError(message)
        else:
            error = out_of_range(index, self.message, self.error)
        if isinstance(error, (LeavesPath, NotFinite)):
            return error
        return at_line(error, self.location)


class Facts(NamedTuple):
    """What an executable asks of its program, besides code and calls of Python.

    Attributes:
        arena_bytes: for its temps.
        written: numbers of the inputs that it writes.
        checks: in the order of their numbers.
    """

    arena_bytes: int
    written: Sequence[int]
    checks: Sequence[Check]

    @staticmethod
    def of(program: Program) -> Facts:
        """Those of a program whose sizes are known."""
        checks = [Check.of(node, kernel) for node, kernel in program.checks]
        return Facts(program.arena_bytes, program.written, checks)


Keep = Callable[[Program, StepCode, str], object]


def compile_graph(
    graph: Graph,
    strides: Sequence[Strides | None] | None = None,
    *,
    target: Target | None = None,
    fuse: bool = True,
    again: Callable[[], Graph] | None = None,
    log: PassLog | None = None,
    keep: Keep | None = None,
) -> Executable:
    """Compile a flat graph (no calls) to one native function.

    Args:
        strides: of each input in elements; None for C-contiguous ones.
        target: the processor, and the vector width to write code for; default: this one.
        fuse: False gives each op a kernel of its own, to look for a defect of fusion.
        again: makes the graph anew for who looks at kernels later; None: it is kept for that.
        log: what passes do is entered there.
        keep: is given the program, what its code is known by, and how that begins.

    Raises:
        MissingRuleError: an op has no lowering.
        ArgumentError: a written input has several elements at one address.
    """
    begin = time.perf_counter()
    require_rules(graph)
    target = target or host_target()
    given = strides or [None] * len(graph.inputs)
    full = [
        contiguous_strides(entry.value.shape) if known is None else known
        for entry, known in zip(graph.inputs, given, strict=True)
    ]
    at("kernels")
    again = again or (lambda: graph)
    with Ahead(target) as ahead:
        program = make_program(graph, full, target, fuse, log, take=ahead.take)
        return compile_program(
            program, target, lambda: make_program(again(), full, target, fuse), begin, ahead, keep
        )


def expected_inputs(
    graph: Graph, strides: Sequence[Strides], written: Collection[int]
) -> list[Expected]:
    """What the inputs of a graph must be, where a step writes some of them.

    Raises `ArgumentError` for a written one that has several elements at one address.
    """
    return [
        expected_input(
            f"{number} ({entry.source or entry.value.name or entry.kind})",
            entry.value.type,
            strides[number],
            written=number in written,
            live=entry.kind == "live",
        )
        for number, entry in enumerate(graph.inputs)
    ]


def compile_program(
    program: Program,
    target: Target,
    lower: Callable[[], Program],
    begin: float,
    ahead: Ahead | None = None,
    keep: Keep | None = None,
) -> Executable:
    """Compile kernels.

    Args:
        lower: makes the program again; `begin`: when its making began.
        ahead: has begun with it; keep: as of `compile_graph`.

    Raises:
        ArgumentError: a written input has several elements at one address.
    """
    expected_inputs(program.graph, program.strides, program.written)  # which is quick, and raises
    stages = {"kernels": time.perf_counter() - begin}
    ahead = ahead or Ahead(target)
    emitted = emit_program(program, target, find=ahead.known)
    at("machine code")
    stages["emit"] = time.perf_counter() - begin - sum(stages.values())
    library = compiled(
        emitted.write_parts,
        target,
        emitted.links.exports,
        emitted.links.imports,
        key=emitted.key,
        begin=ahead.begin,
        finish=ahead.finish(emitted),
    )
    if keep is not None:
        keep(program, emitted, ahead.begin)
    kernel_code.enter(emitted.links, library)
    if emitted.shared:
        pool.load()
    if program.arena_bytes > HUGE_FROM:
        leave_memory()
    seconds = time.perf_counter() - begin
    stages["machine code"] = seconds - sum(stages.values())
    return Executable(
        program.graph,
        program.strides,
        Facts.of(program),
        program.hosts,
        emitted,
        library,
        lower,
        target,
        seconds,
        stage_seconds=stages,
    )
