"""A compiled graph as a callable on NumPy arrays."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence

import numpy as np

from lucid.codegen.emit import STEP, Emitted, emit_program, require_rules
from lucid.codegen.jit import Library, compile_object, link_object
from lucid.codegen.kernel import CheckKernel
from lucid.codegen.schedule import Program, make_program
from lucid.codegen.target import Target, host_target
from lucid.ir.errors import ArgumentError, DTypeError, IndexOutOfRangeError, ShapeError
from lucid.ir.graph import Graph
from lucid.ir.strides import Strides, contiguous_strides
from lucid.runtime.addresses import address_of

_ALIGNMENT = 64
_RECORD_WORDS = 8


class _Context:
    """What one running call owns: table, arena and error record; a thread takes one at a time.

    Attributes:
        bound: the arrays whose addresses are in the table; kept alive, so that they stay right.
    """

    def __init__(self, program: Program) -> None:
        inputs, outputs = len(program.inputs), len(program.outputs)
        self.table = (ctypes.c_uint64 * (inputs + outputs + 2))()
        self.doubles = (ctypes.c_double * inputs).from_buffer(self.table)
        self.record = (ctypes.c_int64 * _RECORD_WORDS)()
        self.memory = np.empty(program.arena_bytes + _ALIGNMENT, np.uint8)
        start = address_of(self.memory)
        self.table[inputs + outputs] = start + -start % _ALIGNMENT
        self.table[inputs + outputs + 1] = ctypes.addressof(self.record)
        self.address = ctypes.addressof(self.table)
        self.bound: list[np.ndarray | None] = [None] * inputs


class Executable:
    """One native function for a graph.

    Attributes:
        stages: the program by the name of each stage: "kernels", "buffers", "llvm".
        compile_seconds: time from graph to callable code.
        kernel_count: calls of kernels in a step.
        function_count: different kernels among them.
    """

    def __init__(
        self, program: Program, emitted: Emitted, library: Library, strides: Sequence[Strides]
    ) -> None:
        self._program = program
        self._emitted = emitted
        self._library = library
        self._inputs = [entry.value.type for entry in program.graph.inputs]
        self._outputs = [
            (value.type.shape, value.type.dtype.numpy) for value in program.graph.outputs
        ]
        self._live = frozenset(program.live)
        self._expected = [
            (type.dtype.numpy, type.shape, tuple(s * type.dtype.itemsize for s in given))
            for type, given in zip(self._inputs, strides, strict=True)
        ]
        self._checks = [step for step in program.steps if isinstance(step.kernel, CheckKernel)]
        self._step = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(library.addresses[STEP])
        self._free: list[_Context] = []
        self.compile_seconds = 0.0
        self.kernel_count = emitted.calls
        self.function_count = emitted.kernels

    @property
    def stages(self) -> Mapping[str, str]:
        return {
            "kernels": self._program.kernel_text(),
            "buffers": self._program.buffer_text(),
            "llvm": self._emitted.text,
        }

    @property
    def llvm(self) -> str:
        return self._emitted.text

    def call(self, inputs: Sequence[np.ndarray | float]) -> list[np.ndarray]:
        """Run the step: writes go into the input arrays, outputs are fresh contiguous arrays.

        Several threads may call at once, as long as they don't write the same arrays.

        Raises:
            ArgumentError, DTypeError, ShapeError: an input isn't what the code was made for.
            IndexOutOfRangeError: nothing was written then.
        """
        try:
            context = self._free.pop()
        except IndexError:
            context = _Context(self._program)
        self._bind(context, inputs)
        table, position = context.table, len(self._inputs)
        results = []
        for shape, dtype in self._outputs:
            result = np.empty(shape, dtype)
            table[position] = address_of(result)
            position += 1
            results.append(result)
        if self._step(context.address):
            error = self._index_error(context)
            self._free.append(context)
            raise error
        self._free.append(context)
        return results

    __call__ = call

    def _bind(self, context: _Context, inputs: Sequence[np.ndarray | float]) -> None:
        """Enter the inputs in the table; arrays that are there already cost next to nothing."""
        bound = context.bound
        if len(inputs) != len(bound):
            raise ArgumentError(f"the step takes {len(bound)} inputs, {len(inputs)} were given")
        changed = False
        for number, given in enumerate(inputs):
            if given is bound[number] and given is not None:
                continue
            if number in self._live:
                context.doubles[number] = float(given)
                continue
            array = self._checked(number, given)
            bound[number] = array
            context.table[number] = address_of(array)
            changed = True
        if changed and self._program.written:
            self._separate(context)

    def _checked(self, number: int, given: object) -> np.ndarray:
        """Return an input that the code can run on. Raises what is wrong with it."""
        dtype, shape, strides = self._expected[number]
        if not isinstance(given, np.ndarray):
            name = type(given).__name__
            raise ArgumentError(f"input {self._name(number)} is an array, not a {name}")
        if given.dtype != dtype:
            raise DTypeError(f"input {self._name(number)}: {dtype} expected, not {given.dtype}")
        if given.shape != shape:
            raise ShapeError(
                f"input {self._name(number)}: shape {shape} expected, not {given.shape}"
            )
        if given.strides != strides and not _same_strides(shape, given.strides, strides):
            raise ArgumentError(
                f"input {self._name(number)}: compiled for strides of {strides} bytes, "
                f"not {given.strides}"
            )
        if number in self._program.written and not given.flags.writeable:
            raise ArgumentError(f"input {self._name(number)} is written, but is read-only")
        return given

    def _name(self, number: int) -> str:
        entry = self._program.graph.inputs[number]
        return f"{number} ({entry.source or entry.value.name or entry.kind})"

    def _separate(self, context: _Context) -> None:
        """Give inputs that share memory with a written one a copy to be read from."""
        written = self._program.written
        spans = [
            (0, 0) if array is None else np.lib.array_utils.byte_bounds(array)
            for array in context.bound
        ]
        for target in written:
            low, high = spans[target]
            for number, (start, stop) in enumerate(spans):
                array = context.bound[number]
                if number == target or array is None or start >= high or stop <= low:
                    continue
                if number in written:
                    raise ArgumentError(
                        f"inputs {self._name(target)} and {self._name(number)} are both written "
                        "and share memory"
                    )
                self._use_copy(context, number, array)

    def _use_copy(self, context: _Context, number: int, array: np.ndarray) -> None:
        strides = self._expected[number][2]
        copy = np.empty_like(array, order="K")
        if copy.strides != strides:
            copy = _array_with_strides(array, strides)
        copy[...] = array
        context.table[number] = address_of(copy)
        context.bound[number] = None  # copied again at the next call
        context.copies = copy

    def _index_error(self, context: _Context) -> IndexOutOfRangeError:
        """Make the error that the record describes, and clear it."""
        number, index = context.record[0] - 1, context.record[1]
        context.record[0] = 0
        step = self._checks[number]
        node = step.node
        assert node is not None and isinstance(step.kernel, CheckKernel)
        message = (
            f"{node.op.name}: index {index} is out of range for axis {node.attributes['axis']} "
            f"with size {step.kernel.limit}"
        )
        if node.location is not None:
            message += f"\n  in {node.location}   {node.location.text}".rstrip()
        return IndexOutOfRangeError(message)


def _same_strides(shape: Sequence[int], given: Sequence[int], expected: Sequence[int]) -> bool:
    """Whether strides agree where they matter: on axes of more than one element."""
    if 0 in shape:
        return True
    pairs = zip(shape, given, expected, strict=True)
    return all(size == 1 or a == b for size, a, b in pairs)


def compile_graph(
    graph: Graph,
    strides: Sequence[Strides | None] | None = None,
    *,
    target: Target | None = None,
    fuse: bool = True,
) -> Executable:
    """Compile a flat graph (no calls) to one native function.

    Args:
        strides: of each input in elements; None for C-contiguous ones.
        target: the processor, and the vector width to write code for; default: this one.
        fuse: False gives each op a kernel of its own, to look for a defect of fusion.

    Raises:
        MissingRuleError: an op has no lowering.
    """
    begin = time.perf_counter()
    require_rules(graph)
    target = target or host_target()
    given = list(strides) if strides is not None else [None] * len(graph.inputs)
    program = make_program(graph, given, target, fuse)
    emitted = emit_program(program, target)
    library = link_object(compile_object(emitted.text, target), [STEP])
    full = [
        contiguous_strides(entry.value.shape) if s is None else s
        for entry, s in zip(graph.inputs, given, strict=True)
    ]
    executable = Executable(program, emitted, library, full)
    executable.compile_seconds = time.perf_counter() - begin
    return executable
