"""The invariants of programs of kernels, checked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lucid.codegen.kernel_ir.kernel import Access
from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.program.program import KernelCall, Program, kernel_names, lifetimes
from lucid.ir.errors import VerifyError
from lucid.ir.memory import ALIGNMENT

Span = tuple[int, int]


def verify_program(program: Program) -> None:
    """Check that a program is well formed. Raises `VerifyError`, which names kernel or buffer.

    Instructions read earlier values of the right types, over dims that there are; the parts that
    threads share are all of the work, once; every access lies inside of its buffer. A call reads
    what earlier ones have written, and stores in inputs only those that are said to be written,
    behind the last check and call of Python. Temps that live at the same time lie apart.
    """
    _Verifier(program).run()


class _Verifier:
    """The checks of one program.

    Attributes:
        written: the first and the last element that calls have written so far, of each buffer.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._names = kernel_names(program.calls)
        self._known: dict[str, list[Access]] = {}
        self._spans = {
            buffer: _span(buffer, program.strides[n], program.graph.inputs[n].value.shape)
            for n, buffer in enumerate(program.inputs)
        }
        self.written: dict[Buffer, Span] = dict(self._spans)

    def run(self) -> None:
        calls = self._program.calls
        effects = [number for number, call in enumerate(calls) if call.kernel.effect]
        for number, call in enumerate(calls):
            self._call(number, call, is_last=number >= max(effects, default=-1))
        for buffer in self._program.outputs:
            if buffer.size and buffer not in self.written:
                raise VerifyError(f"{buffer} is written by no kernel")
        for number, problem in _misplaced(self._program):
            raise self._error(number, problem)

    def _call(self, number: int, call: KernelCall, *, is_last: bool) -> None:
        accesses = self._known.get(call.text)
        if accesses is None:
            for problem in call.kernel.problems():
                raise self._error(number, problem)
            accesses = self._known[call.text] = list(call.kernel.accesses())
        spans = [(access, self._inside(number, call, access)) for access in accesses]
        for access, (low, high) in spans:
            if not access.writes and access.arg not in call.kernel.scratch:
                self._read(number, call.args[access.arg], low, high)
        for access, (low, high) in spans:
            if access.writes:
                buffer = call.args[access.arg]
                self._written(number, buffer, is_last=is_last)
                before = self.written.get(buffer, (low, high))
                self.written[buffer] = min(low, before[0]), max(high, before[1])

    def _error(self, number: int, problem: str) -> VerifyError:
        call = self._program.calls[number].call_text(self._names[number])
        return VerifyError(f"kernel {self._names[number]} {problem}\n  call {number}: {call}")

    def _inside(self, number: int, call: KernelCall, access: Access) -> Span:
        """The elements of the buffer that are touched, all of which must be there."""
        if not 0 <= access.arg < len(call.args):
            raise self._error(number, f"takes a{access.arg}, and is given {len(call.args)}")
        buffer, origin = call.args[access.arg], call.origins.get(access.arg, 0)
        if buffer.dtype is not access.dtype:
            raise self._error(
                number, f"takes {access.dtype.name} in a{access.arg}, {buffer} is of "
                f"{buffer.dtype.name}"
            )  # fmt: skip
        low, high = access.low + origin, access.high + origin
        first, last = self._spans.get(buffer, (0, buffer.size - 1))
        if low < first or high > last:
            raise self._error(
                number,
                f"touches elements {low} .. {high} of {buffer}, which has {first} .. {last}",
            )
        return low, high

    def _read(self, number: int, buffer: Buffer, low: int, high: int) -> None:
        known = self.written.get(buffer)
        if known is None:
            raise self._error(number, f"reads {buffer} before any kernel has written it")
        if low < known[0] or high > known[1]:
            raise self._error(
                number,
                f"reads elements {low} .. {high} of {buffer}, of which only {known[0]} .. "
                f"{known[1]} are written by then",
            )

    def _written(self, number: int, buffer: Buffer, *, is_last: bool) -> None:
        if buffer.kind != "input":
            return
        if buffer.index not in self._program.written:
            raise self._error(number, f"writes {buffer}, which the step doesn't write")
        if not is_last:
            raise self._error(number, f"writes {buffer} before the last check or call of Python")


def _span(buffer: Buffer, strides: tuple[int, ...], shape: tuple[int, ...]) -> Span:
    """The first and the last element of an input, counted from where its index is 0."""
    if not buffer.size:
        return 0, -1
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)


def _misplaced(program: Program) -> Iterator[tuple[int, str]]:
    """Say from which call on a temp isn't in the arena, or lies where another one lives."""
    lives = lifetimes(program.calls)
    temps = list(lives)
    table = np.zeros((4, len(temps)), np.int64)  # start, stop, first and last call
    for number, buffer in enumerate(temps):
        start = program.offsets.get(buffer, -1)
        stop = start + buffer.size * buffer.dtype.itemsize
        if start < 0 or start % ALIGNMENT or stop > program.arena_bytes:
            where = f"{start} .. {stop} of {program.arena_bytes} bytes of arena"
            yield lives[buffer][0], f"uses {buffer}, which lies at {where}"
        table[:, number] = start, stop, *lives[buffer]
    starts, stops, first, last = table
    for number in range(len(temps)):
        others = slice(number + 1, None)
        lows = np.maximum(starts[others], starts[number])
        highs = np.minimum(stops[others], stops[number])
        both = (first[others] <= last[number]) & (last[others] >= first[number]) & (lows < highs)
        for at in np.flatnonzero(both):
            other = number + 1 + int(at)
            begin, end = max(first[number], first[other]), min(last[number], last[other])
            where = f"bytes {lows[at]} .. {highs[at]} of the arena"
            problem = f"finds {temps[number]} and {temps[other]} at {where}"
            yield int(begin), f"{problem}, which both live up to call {end}"
