"""One kernel of a step alone, on memory that is given to it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from lucid.codegen.kernel_ir.kernel import Memory
from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.llvm.target import Target
from lucid.codegen.program.program import KernelCall, Program
from lucid.ir.graph import Graph
from lucid.ir.types import TensorType
from lucid.runtime.executable import Executable, compile_program


class SingleKernel:
    """Native code of one call of a kernel, to be compared with the kernel's meaning.

    Args:
        memory: arguments such as it will get, of the same sizes.
    """

    def __init__(self, call: KernelCall, memory: Sequence[Memory], target: Target) -> None:
        numbers = {buffer: n for n, buffer in enumerate(dict.fromkeys(call.args))}
        graph = Graph("kernel")
        inputs = []
        sizes = {buffer: place.data.size for buffer, place in zip(call.args, memory, strict=True)}
        for buffer, number in numbers.items():
            graph.add_input(TensorType(buffer.dtype, (sizes[buffer],)))
            inputs.append(Buffer("input", number, buffer.dtype, sizes[buffer]))
        args = [inputs[numbers[buffer]] for buffer in call.args]
        origins = {number: place.start for number, place in enumerate(memory)}
        alone = KernelCall(call.kernel, args, origins)
        written = list(range(len(inputs)))
        strides = ((1,),) * len(inputs)
        program = Program(graph, [alone], inputs, [], {}, 0, written, [], strides)
        self._first = [call.args.index(buffer) for buffer in numbers]
        self._numbers = [numbers[buffer] for buffer in call.args]
        self._executable: Executable = compile_program(
            program, target, lambda: program, time.perf_counter()
        )

    def __call__(self, memory: Sequence[Memory]) -> list[np.ndarray]:
        """What is in the arguments after a call; they stay as they are."""
        arrays = [memory[n].data.copy() for n in self._first]
        self._executable.call(arrays)
        return [arrays[number] for number in self._numbers]
