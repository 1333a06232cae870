"""A step whose inputs and results are kept, to be compared with what they should be."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence

import numpy as np

from lucid.codegen.program.program import Program
from lucid.ir.types import TensorType
from lucid.runtime.context import Expected


class WatchedStep:
    """Native code as it is; what it got and what it made is copied.

    Only calls of the thread that made this, and of these the outermost one, are watched.

    Attributes:
        inputs: arrays and numbers as they were before the latest call; empty if it failed.
        outputs: after it; `written`: the new values of what the step writes, in its order.
    """

    def __init__(
        self, program: Program, expected: Sequence[Expected], plain: Callable[[int], int]
    ) -> None:
        self._expected = expected
        self._written = program.written
        self._types = [value.type for value in program.graph.outputs]
        self._plain = plain
        self._thread = threading.get_ident()
        self._is_running = False
        self.inputs: list[np.ndarray | float] = []
        self.outputs: list[np.ndarray] = []
        self.written: list[np.ndarray] = []

    def __call__(self, table: int) -> int:
        if self._is_running or threading.get_ident() != self._thread:
            return self._plain(table)
        count = len(self._expected) + len(self._types)
        addresses = list((ctypes.c_uint64 * count).from_address(table))
        before = [self._input(table, number, addresses[number]) for number in self._numbers]
        self._is_running = True
        self.inputs = []
        try:
            failed = self._plain(table)
        finally:
            self._is_running = False
        if not failed:
            self.inputs = before
            places = addresses[len(self._expected) :]
            self.outputs = list(map(_output_at, places, self._types))
            self.written = [_input_at(addresses[n], self._expected[n]) for n in self._written]
        return failed

    @property
    def _numbers(self) -> range:
        return range(len(self._expected))

    def _input(self, table: int, number: int, address: int) -> np.ndarray | float:
        if self._expected[number].live:
            place = table + 8 * number
            if self._expected[number].dtype.kind == "i":
                return int(ctypes.c_int64.from_address(place).value)
            return float(ctypes.c_double.from_address(place).value)
        return _input_at(address, self._expected[number])


def _input_at(address: int, expected: Expected) -> np.ndarray:
    """Copy an input, whatever its strides are."""
    size = expected.high - expected.low
    if not size:
        return np.empty(expected.shape, expected.dtype)
    memory = (ctypes.c_char * size).from_address(address + expected.low)
    view = memoryview(memory).cast("B")
    return np.ndarray(expected.shape, expected.dtype, view, -expected.low, expected.strides).copy()


def _output_at(address: int, type: TensorType) -> np.ndarray:
    dtype = type.dtype.numpy
    if not type.size:
        return np.empty(type.shape, dtype)
    memory = (ctypes.c_char * type.nbytes).from_address(address)
    return np.ndarray(type.shape, dtype, memoryview(memory).cast("B")).copy()
