"""A step that notes how long each of its kernels takes."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

from lucid.codegen.llvm.clock import NOW
from lucid.codegen.llvm.target import Target
from lucid.codegen.program.emit import STEP, emit_program
from lucid.codegen.program.program import Program
from lucid.runtime.cache import compiled
from lucid.runtime.kernel_code import kernel_code

_CALIBRATION_SECONDS = 0.02


class TimedStep:
    """Native code that does what a step does, and notes when it began and each kernel was over.

    Only calls of the thread that made this, and of these the outermost one, run that code: a call
    of Python may call the step again. All others run the step itself.

    Attributes:
        was_called: whether a call has left notes since `forget`.
    """

    def __init__(
        self,
        program: Program,
        target: Target,
        plain: Callable[[int], int],
        kind: Callable[..., type],
    ) -> None:
        emitted = emit_program(program, target, timed=True, find=kernel_code.known)
        links = emitted.links
        self._libraries = links.libraries
        self._library = compiled(
            emitted.write_parts, target, links.exports, links.imports, key=emitted.key
        )
        addresses = self._library.addresses
        self._step = kind(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(addresses[STEP])
        self._now = ctypes.PYFUNCTYPE(ctypes.c_int64)(addresses[NOW])
        self._plain = plain
        self._ticks = (ctypes.c_int64 * (len(program.calls) + 1))()
        self._place = ctypes.addressof(self._ticks)
        self._thread = threading.get_ident()
        self._is_running = False
        self.was_called = False
        self._start = time.perf_counter(), int(self._now())

    def __call__(self, table: int) -> int:
        if self._is_running or threading.get_ident() != self._thread:
            return self._plain(table)
        self._is_running = True
        try:
            failed: int = self._step(table, self._place)
        finally:
            self._is_running = False
        self.was_called = not failed
        return failed

    def forget(self) -> None:
        self.was_called = False

    def read(self) -> list[int]:
        """Ticks that each kernel took in the latest call."""
        ticks = self._ticks
        return [ticks[i + 1] - ticks[i] for i in range(len(ticks) - 1)]

    def seconds_per_tick(self) -> float:
        """Compare the clock with Python's, over the life of this object."""
        seconds, ticks = self._start
        missing = seconds + _CALIBRATION_SECONDS - time.perf_counter()
        if missing > 0:
            time.sleep(missing)
        now, ticks_now = time.perf_counter(), int(self._now())
        return (now - seconds) / (ticks_now - ticks)
