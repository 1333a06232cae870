"""Calls of Python in the middle of a native step."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.codegen.kernels.host import HostKernel
from lucid.ir.extents import is_open
from lucid.ir.hosts import Frame, HostFunction, host_function
from lucid.ir.memory import read_only
from lucid.ir.types import TensorType

if TYPE_CHECKING:
    from lucid.runtime.decided_sizes import Sizing

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


class HostCalls:
    """What a running step calls: the Python functions, in the order of their calls.

    Attributes:
        frame: what the calls of the running step share; it ends with the step.
        error: what Python raised.
    """

    def __init__(
        self,
        kernels: Sequence[HostKernel],
        hosts: Mapping[str, HostFunction],
        sizing: Sizing | None = None,
    ) -> None:
        self._calls = [_Call(host_function(hosts, k.name), k) for k in kernels]
        self._sizing = sizing
        self.frame: Frame = {}
        self.error: BaseException | None = None

    def __bool__(self) -> bool:
        return bool(self._calls)

    def server(self) -> Callable[[int], int]:
        """What native code calls: with the address of a table, and the answer is 0 on failure.

        The table has the number of the call, then the addresses of operands and results.
        An exception must not go through native code: it is kept, and raised after the step. A
        function of Python's can be interrupted before its first line, where nothing catches that;
        a generator goes on in the middle of its `try`.
        """
        serving = self._serving()
        next(serving)
        return serving.send

    def _serving(self) -> Generator[int, int, None]:
        answer = 1
        while True:
            try:
                while True:
                    self._run((yield answer))
                    answer = 1
            except BaseException as error:
                here = error.__traceback__  # who clears a traceback's frames would end this one
                below = None if here is None else here.tb_next
                if below is None and isinstance(error, GeneratorExit):  # nobody calls any more
                    return
                self.error = error.with_traceback(below)
                answer = 0

    def _run(self, table: int) -> None:
        number = ctypes.c_int64.from_address(table).value
        call = self._calls[number]
        if call.is_open and self._sizing is not None:
            self._run_open(number, table + 8, self._sizing)
            return
        operands, targets = call.lent(table + 8)
        found = call.function(self.frame, operands)
        for target, array in zip(targets, found, strict=True):
            np.copyto(target, array)

    def _run_open(self, number: int, places: int, sizing: Sizing) -> None:
        """The same where sizes are open: those of results are known when it has been called."""
        call = self._calls[number]
        addresses = call.addresses(places)
        count = len(call.kernel.operands)
        if call.takes_open:
            operands = call.open_operands_at(addresses[:count], sizing)
        else:
            operands = call.operands_at(addresses[:count])
        found = call.function(self.frame, operands)
        for result, (address, array) in enumerate(zip(addresses[count:], found, strict=True)):
            target = sizing.result(number, result)
            if not array.size:
                continue
            if target is None:
                target = _array_at(address, array.shape, array.dtype)
            np.copyto(target.reshape(array.shape), array)  # the output may be a view of the result

    def finish(self) -> None:
        """Forget the step that ran."""
        self.frame = {}
        self.error = None


class _Call:
    """One call of Python in a step, with arrays on the memory that it gets."""

    def __init__(self, function: HostFunction, kernel: HostKernel) -> None:
        self.function, self.kernel = function, kernel
        self._types = (*kernel.operands, *kernel.results)
        self._count = len(kernel.operands)
        self.addresses: Callable[[int], Sequence[int]]
        read = (ctypes.c_uint64 * len(self._types)).from_address
        self.addresses = lambda places: read(places)[:]
        self.is_open = any(map(_has_open, self._types))
        self.takes_open = any(map(_has_open, kernel.operands))
        self._addresses: Sequence[int] = []
        self._operands: list[np.ndarray] = []
        self._targets: list[np.ndarray] = []
        self._shapes: Callable[[Sequence[int]], Sequence[Sequence[int]]] | None = None

    def lent(self, places: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Arrays on the memory of the operands, and on that of the results.

        Mostly that is where it was at the latest call; and then the arrays are the same.
        """
        addresses = self.addresses(places)
        if addresses != self._addresses:
            arrays = list(map(_array_of, addresses, self._types))
            self._operands, self._targets = arrays[: self._count], arrays[self._count :]
            self._operands = [*map(read_only, self._operands)]
            self._addresses = addresses
        return self._operands, self._targets

    def operands_at(self, addresses: Sequence[int]) -> list[np.ndarray]:
        """Those on the memory of the operands alone."""
        if addresses != self._addresses:
            arrays = map(_array_of, addresses, self._types[: self._count])
            self._operands = [*map(read_only, arrays)]
            self._addresses = addresses
        return self._operands

    def open_operands_at(self, addresses: Sequence[int], sizing: Sizing) -> list[np.ndarray]:
        """The same where their sizes are those of now."""
        operands = self.kernel.operands
        if self._shapes is None:
            self._shapes = sizing.shapes(operands)
        shapes = self._shapes(sizing.values)
        dtypes = [type.dtype.numpy for type in operands]
        return list(map(_array_at, addresses, shapes, dtypes))


def _has_open(type: TensorType) -> bool:
    return any(map(is_open, type.shape))


def _array_of(address: int, type: TensorType) -> np.ndarray:
    return _array_at(address, type.shape, type.dtype.numpy)


def _array_at(address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
    size = math.prod(shape)
    if not size:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(address)
    return np.ndarray(shape, dtype, memoryview(memory).cast("B"))
