"""Run a program of kernels with NumPy: what native code is compared with.

Buffers lie where native code has them, temps in one arena by the plan: a value that another one
overwrites too early gives wrong numbers here as well. Memory that nobody has written, and what is
scratch to one kernel only, holds NaN and other values that none should see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid.codegen.kernel_ir.kernel import Memory, World
from lucid.codegen.kernel_ir.regions import Buffer, BufferView
from lucid.codegen.program.program import KernelCall, Program, kernel_names
from lucid.ir.errors import LucidError
from lucid.ir.strides import Strides
from lucid.ir.types import Shape

_POISON = 0xFF  # NaN as floats, -1 as integers

Watch = Callable[[int, "Run"], None]


def interpret_program(
    program: Program, inputs: Sequence[np.ndarray | float], watch: Watch | None = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Run all kernels in their order.

    Args:
        inputs: of the graph's types; nothing is written to them.
        watch: told after each call.

    Returns:
        The outputs, and what the inputs that the step writes hold then, in the graph's order.

    Raises:
        LucidError: what a check or a call of Python raises, with the kernel's name.
    """
    run = Run(program, inputs)
    for number in range(len(program.calls)):
        run.call(number)
        if watch is not None:
            watch(number, run)
    outputs = [
        run.memory(buffer).data.reshape(value.shape)
        for buffer, value in zip(program.outputs, program.graph.outputs, strict=True)
    ]
    shapes = [entry.value.shape for entry in program.graph.inputs]
    written = [
        run.elements(BufferView(program.inputs[n], 0, program.strides[n]), shapes[n]).copy()
        for n in program.written
    ]
    return outputs, written


class Run:
    """The memory of a program that is being interpreted."""

    def __init__(self, program: Program, inputs: Sequence[np.ndarray | float]) -> None:
        self.program = program
        self.names = kernel_names(program.calls)
        self._world = World(program.graph.hosts)
        self._memory: dict[Buffer, Memory] = {}
        arena = np.full(program.arena_bytes, _POISON, np.uint8)
        for buffer, offset in program.offsets.items():
            size = buffer.size * buffer.dtype.itemsize
            self._memory[buffer] = Memory(arena[offset : offset + size].view(buffer.dtype.numpy))
        for buffer in program.outputs:
            self._memory[buffer] = Memory(_poisoned(buffer))
        for number, buffer in enumerate(program.inputs):
            type = program.graph.inputs[number].value.type
            array = np.asarray(inputs[number], type.dtype.numpy).reshape(type.shape)
            self._memory[buffer] = _laid_out(array, program.strides[number])

    def memory(self, buffer: Buffer) -> Memory:
        return self._memory[buffer]

    def given(self, number: int) -> list[Memory]:
        """The arguments of a call, from where its work begins."""
        call = self.program.calls[number]
        places = [self._memory[buffer] for buffer in call.args]
        return [
            Memory(place.data, place.start + call.origins.get(n, 0))
            for n, place in enumerate(places)
        ]

    def elements(self, region: BufferView, shape: Shape) -> np.ndarray:
        """The elements of a region, as they are now."""
        place = self._memory[region.buffer]
        return _strided(place.data, place.start + region.offset, shape, region.strides)

    def call(self, number: int) -> None:
        """Run one kernel."""
        call = self.program.calls[number]
        for arg in call.kernel.scratch:
            _poison(self._memory[call.args[arg]].data)
        try:
            with np.errstate(all="ignore"):
                call.kernel.evaluate(self.given(number), self._world)
        except (LucidError, IndexError) as error:
            error.add_note(f"in kernel {self._named(number, call)}")
            raise

    def _named(self, number: int, call: KernelCall) -> str:
        return f"{self.names[number]}: {call.call_text(self.names[number])}"


def _poisoned(buffer: Buffer) -> np.ndarray:
    array = np.empty(buffer.size, buffer.dtype.numpy)
    _poison(array)
    return array


def _poison(array: np.ndarray) -> None:
    array.view(np.uint8)[:] = _POISON if array.dtype.kind != "b" else 1


def _laid_out(array: np.ndarray, strides: Strides) -> Memory:
    """A copy of an array in memory of these strides, in elements; of nothing, room for one."""
    steps = [(size - 1) * s for size, s in zip(array.shape, strides, strict=True)]
    low = sum(step for step in steps if step < 0) if array.size else 0
    size = sum(step for step in steps if step > 0) - low + 1 if array.size else 1
    memory = Memory(np.zeros(size, array.dtype), -low)
    _strided(memory.data, -low, array.shape, strides)[...] = array
    return memory


def _strided(data: np.ndarray, start: int, shape: Shape, strides: Strides) -> np.ndarray[Any, Any]:
    if 0 in shape:
        return np.empty(shape, data.dtype)
    steps = [stride * data.itemsize for stride in strides]
    return np.ndarray(shape, data.dtype, data.data, start * data.itemsize, steps)
