"""What one running call owns, and which arrays it may run on."""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.ir.errors import ArgumentError, DTypeError, ShapeError
from lucid.ir.extents import is_open
from lucid.ir.memory import address_of
from lucid.ir.strides import Strides, overlaps_itself
from lucid.ir.types import TensorType
from lucid.runtime.arena import Arena, arenas
from lucid.runtime.entry.words import ARENA_BYTES, IS_READY, IS_TOUCHED
from lucid.runtime.hosts import CALLBACK, HostCalls
from lucid.runtime.threads import pool

if TYPE_CHECKING:
    from lucid.runtime.decided_sizes import Sizing

_RECORD_WORDS = 8
_NOTHING = object()  # no input is this one


@dataclass(frozen=True, slots=True)
class Expected:
    """What an input must be.

    Attributes:
        name: how messages call it.
        strides: in bytes.
        low, high: the bytes that its elements span, from the address of the first one; of one with
            open sizes each call finds them.
        written: the step writes it.
        live: it is a Python number, not an array.
    """

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    low: int
    high: int
    written: bool
    live: bool

    def check(self, given: object) -> np.ndarray:
        """Return an array that the code can run on. Raises what is wrong with it."""
        if not isinstance(given, np.ndarray):
            kind = type(given).__name__
            raise ArgumentError(f"input {self.name} is an array, not a {kind}")
        if given.dtype != self.dtype:
            raise DTypeError(f"input {self.name}: {self.dtype} expected, not {given.dtype}")
        if given.shape != self.shape:
            raise ShapeError(f"input {self.name}: shape {self.shape} expected, not {given.shape}")
        if given.strides != self.strides and not self._fits(given.strides):
            raise ArgumentError(
                f"input {self.name}: compiled for strides of {self.strides} bytes, "
                f"not {given.strides}"
            )
        if self.written and not given.flags.writeable:
            raise ArgumentError(f"input {self.name} is written, but is read-only")
        return given

    def span(self, given: Any) -> tuple[int, int]:
        """The bytes that the elements of an array span which fits."""
        return self.low, self.high

    def _fits(self, given: Sequence[int]) -> bool:
        """Whether strides agree where they matter: on axes of more than one element."""
        if 0 in self.shape:
            return True
        pairs = zip(self.shape, given, self.strides, strict=True)
        return all(size == 1 or a == b for size, a, b in pairs)


class OpenExpected(Expected):
    """The same with open sizes: a row-major array that the step reads, and nothing that it writes.

    Who fills in the sizes looks at them.
    """

    __slots__ = ()

    def check(self, given: object) -> np.ndarray:
        assert isinstance(given, np.ndarray) and given.dtype == self.dtype
        assert given.ndim == len(self.shape) and given.flags.c_contiguous
        return given

    def span(self, given: Any) -> tuple[int, int]:
        return 0, given.nbytes


def expected_input(
    name: str, type: TensorType, strides: Strides, *, written: bool, live: bool
) -> Expected:
    """Raises `ArgumentError` for a written array with several elements at one address."""
    if any(map(is_open, type.shape)):
        return OpenExpected(name, type.dtype.numpy, type.shape, (), 0, 0, written, live)
    size = type.dtype.itemsize
    steps = [(n - 1) * s for n, s in zip(type.shape, strides, strict=True)] if type.size else []
    low = sum(step for step in steps if step < 0) * size
    high = (sum(step for step in steps if step > 0) + (type.size > 0)) * size
    if written and overlaps_itself(type.shape, tuple(strides)):
        raise ArgumentError(
            f"input {name} is written, but several of its elements, {type} of strides "
            f"{tuple(strides)}, lie at one address"
        )
    given = tuple(stride * size for stride in strides)
    return Expected(name, type.dtype.numpy, type.shape, given, low, high, written, live)


class Context:
    """Table, arena and error record of one call; a thread takes one at a time.

    Attributes:
        bound: the arrays whose addresses are in the table; kept alive, so that these stay right.
        entered: the inputs that the native entry enters without a note in `bound`.
        arena: memory for temporaries; None until the next `bind` where another program got it.
        sizing: takes the sizes that values decide; None: there are none.
        hosts: the calls of Python; `has_hosts`: whether there are any.
        words: whether all inputs are bound, and none is a copy; whether the native entry has
            entered arguments since, which `bound` doesn't know of; and `arena_bytes`.
    """

    def __init__(
        self,
        expected: Sequence[Expected],
        outputs: int,
        arena_bytes: int,
        hosts: HostCalls,
        open_words: int = 0,
        sizing: Sizing | None = None,
    ) -> None:
        inputs = len(expected)
        self.expected = expected
        self.hosts, self.sizing = hosts, sizing
        self.has_hosts = bool(hosts)
        self.table = (ctypes.c_uint64 * (inputs + outputs + 6))()
        self.doubles = (ctypes.c_double * inputs).from_buffer(self.table)
        self.integers = (ctypes.c_int64 * inputs).from_buffer(self.table)
        self.record = (ctypes.c_int64 * _RECORD_WORDS)()
        self.arena_bytes = arena_bytes
        self.arena: Arena | None = None
        self._arena_at = inputs + outputs
        self.table[inputs + outputs + 1] = ctypes.addressof(self.record)
        if hosts:
            self._callback = CALLBACK(hosts.server())
            place = ctypes.cast(self._callback, ctypes.c_void_p).value
            self.table[inputs + outputs + 2] = place or 0
        self.table[inputs + outputs + 3] = pool.entry
        self.table[inputs + outputs + 4] = pool.address
        self.table[inputs + outputs + 5] = open_words
        self.address = ctypes.addressof(self.table)
        self.bound: list[object] = [_NOTHING] * inputs
        self.entered: Sequence[int] = ()
        self._addresses = [0] * inputs
        self._copies: dict[int, np.ndarray] = {}
        self.words = (ctypes.c_int64 * 3)()
        self._written: list[tuple[int, int, int]] = []
        self._writes = any(x.written for x in expected)

    def use_arena(self, arena: Arena) -> None:
        """Run on this arena from now on."""
        self.arena = arena
        self.table[self._arena_at] = arena.address
        self.words[ARENA_BYTES] = self.arena_bytes

    def need(self, arena_bytes: int) -> None:
        """Run on an arena of so many bytes.

        Raises `TooLargeError` where there is no room for it; then all is as before.
        """
        before = self.arena_bytes
        if before != arena_bytes or self.arena is None:
            self.arena_bytes = arena_bytes
            try:
                self.use_arena(arenas.provide(self))
            except BaseException:
                self.arena_bytes = before
                raise

    @property
    def words_at(self) -> int:
        """Where the address of the words is that a step reads of its sizes."""
        return self.address + 8 * (self._arena_at + 5)

    def enter_words(self, address: int) -> None:
        """Let the step read these words of its sizes."""
        self.table[self._arena_at + 5] = address

    @property
    def record_at(self) -> int:
        """The address of the error record."""
        return ctypes.addressof(self.record)

    def give_up_arena(self) -> None:
        """Run on none until the next `bind`, which native code leaves to Python as well."""
        self.words[IS_READY] = 0
        self.table[self._arena_at] = 0
        self.arena = None

    @property
    def is_ready(self) -> bool:
        return bool(self.words[IS_READY])

    def forget(self, numbers: Iterable[int]) -> None:
        """Let go of inputs, which each call gives anew; a call that runs has them still."""
        for number in numbers:
            self.bound[number] = _NOTHING

    def forget_touched(self) -> None:
        """Look at all arguments again, if native code has entered others."""
        if self.words[IS_TOUCHED]:
            self.words[IS_TOUCHED] = 0
            for number in self.entered:
                self.bound[number] = _NOTHING

    def bind(self, inputs: Sequence[np.ndarray | float]) -> None:
        """Enter the inputs in the table; arrays that are there already cost next to nothing."""
        self.forget_touched()
        bound = self.bound
        if len(inputs) != len(bound):
            raise ArgumentError(f"the step takes {len(bound)} inputs, {len(inputs)} were given")
        if self.arena is None:
            self.use_arena(arenas.provide(self))
        changed = list(self._copies)
        for number, given in enumerate(inputs):
            if given is bound[number]:
                continue
            expected = self.expected[number]
            if expected.live:
                self._enter_converted(number, expected, given)
                continue
            bound[number] = _NOTHING
            self.words[IS_READY] = 0
            array = expected.check(given)
            self._addresses[number] = self.table[number] = address_of(array)
            bound[number] = array
            changed.append(number)
        if changed:
            self.words[IS_READY] = 0
            if self._writes:
                self._separate(changed)
        self.words[IS_READY] = not self._copies

    def enter_number(self, number: int, given: object) -> bool:
        """Enter a Python number; whether it is of the input's type, and fits."""
        if self.expected[number].dtype.kind == "f":
            if type(given) is not float:
                return False
            self.doubles[number] = given
        else:
            if type(given) is not int or not -(2**63) <= given < 2**63:
                return False
            self.integers[number] = given
        return True

    def _enter_converted(self, number: int, expected: Expected, given: object) -> None:
        """The same, also for numbers of other types."""
        is_int = expected.dtype.kind == "i"
        if not isinstance(given, (int, np.integer) if is_int else (int, float, np.number)):
            wanted, kind = "an int" if is_int else "a number", type(given).__name__
            raise ArgumentError(f"input {expected.name} is {wanted}, not a {kind}")
        if not self.enter_number(number, int(given) if is_int else float(given)):
            raise ArgumentError(f"input {expected.name} is an i64, and {given} is out of its range")

    # Shared memory ----------------------------------------------------------------------

    def _separate(self, changed: Sequence[int]) -> None:
        """Give inputs that share memory with a written one a copy to be read from."""
        if any(self.expected[number].written for number in changed):
            self._find_written()
            changed = range(len(self.expected))
        for number in changed:
            if self._shares(number):
                self._use_copy(number)
            elif number in self._copies:
                del self._copies[number]
                self.table[number] = self._addresses[number]

    def _find_written(self) -> None:
        """Sort what the step writes by address. Raises where two overlap."""
        spans = []
        for number, expected in enumerate(self.expected):
            start = self._addresses[number]
            if expected.written and expected.high:
                spans.append((start + expected.low, start + expected.high, number))
        self._written = sorted(spans)
        for (_, stop, first), (start, _, second) in pairwise(self._written):
            if start < stop:
                self.bound[first] = self.bound[second] = _NOTHING
                names = (self.expected[n].name for n in sorted((first, second)))
                raise ArgumentError(
                    f"inputs {' and '.join(names)} are both written and share memory"
                )

    def _shares(self, number: int) -> bool:
        expected = self.expected[number]
        if expected.written or expected.live:
            return False
        low, high = expected.span(self.bound[number])
        start, stop = self._addresses[number] + low, self._addresses[number] + high
        if start == stop:
            return False
        before = bisect_left(self._written, (stop, 0, 0)) - 1
        return before >= 0 and self._written[before][1] > start

    def _use_copy(self, number: int) -> None:
        """Copy the bytes that an input spans, so that its strides stay the same."""
        low, high = self.expected[number].span(self.bound[number])
        copy = np.empty(high - low, np.uint8)
        ctypes.memmove(address_of(copy), self._addresses[number] + low, copy.size)
        self._copies[number] = copy
        self.table[number] = address_of(copy) - low
