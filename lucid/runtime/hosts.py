"""Calls of Python in the middle of a native step."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from lucid.codegen.kernel import HostKernel
from lucid.codegen.schedule import Step
from lucid.ir.hosts import Frame, HostFunction, host_function
from lucid.ir.types import TensorType

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)


class HostCalls:
    """What a running step calls: the Python functions, in the order of their calls.

    Attributes:
        frame: what the calls of the running step share; it ends with the step.
        error: what Python raised.
    """

    def __init__(self, steps: Sequence[Step], hosts: Mapping[str, HostFunction]) -> None:
        kernels = [step.kernel for step in steps if isinstance(step.kernel, HostKernel)]
        self._calls = [(host_function(hosts, kernel.name), kernel) for kernel in kernels]
        self.frame: Frame = {}
        self.error: BaseException | None = None

    def __bool__(self) -> bool:
        return bool(self._calls)

    def run(self, number: int, places: int) -> int:
        """One call, with the addresses of its operands and results at `places`; 1 if it fails.

        An exception must not go through native code: it is kept, and raised after the step.
        """
        try:
            function, kernel = self._calls[number]
            types = (*kernel.operands, *kernel.results)
            addresses = (ctypes.c_uint64 * len(types)).from_address(places)
            arrays = list(map(_array_at, addresses, types))
            count = len(kernel.operands)
            found = function(self.frame, arrays[:count])
            for target, array in zip(arrays[count:], found, strict=True):
                np.copyto(target, array)
        except BaseException as error:
            self.error = error
            return 1
        return 0

    def finish(self) -> None:
        """Forget the step that ran."""
        self.frame = {}
        self.error = None


def _array_at(address: int, type: TensorType) -> np.ndarray:
    dtype = type.dtype.numpy
    if not type.size:
        return np.empty(type.shape, dtype)
    memory = (ctypes.c_char * (type.size * dtype.itemsize)).from_address(address)
    return np.ndarray(type.shape, dtype, memoryview(memory).cast("B"))
