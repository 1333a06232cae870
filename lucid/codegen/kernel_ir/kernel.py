"""The contract of kernels: what each kind of them answers for itself, in a file in `kernels/`.

A kernel is what a call of the step computes, over buffers, and how threads share that. It says how
long it takes, how it is cut into parts, what memory it touches, what it computes in NumPy, and
writes its own LLVM IR; its text says all of it. Nobody asks of what kind a kernel is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import ClassVar, Literal, Protocol

import numpy as np

from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.kernel_ir.work import Work
from lucid.codegen.llvm.builder import FunctionBuilder, Val
from lucid.codegen.llvm.target import Target
from lucid.ir.hosts import Frame, HostFunction
from lucid.ir.types import DType

Origins = dict[int, int]
"""Where in it the work with an argument begins, in elements, if not at 0."""
Effect = Literal["", "check", "host"]
NewTemp = Callable[[DType, int], Buffer]


@dataclass(frozen=True, slots=True)
class Partition:
    """How the work of a kernel is cut, so that threads can share it: by shapes alone.

    Attributes:
        dim: the loop dim that is cut.
        size: values of the dim in each part but the last one.
        count: how many parts.
        partials: arguments of which each part gets a block of its own, one after the other, and
            the block's elements.
    """

    dim: int
    size: int
    count: int
    partials: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        text = f" in {self.count} parts of {self.size} along i{self.dim}"
        return text + "".join(f", a{arg} {size} for each" for arg, size in self.partials)

    def ranges(self, total: int) -> Iterator[tuple[int, int]]:
        """The values of the dim, of which there are so many, that each part goes through."""
        for number in range(self.count):
            yield number * self.size, min((number + 1) * self.size, total)

    def problems(self, sizes: Sequence[int], unit: int = 1) -> Iterator[str]:
        """Say why the parts aren't all of the work, once, in whole `unit`s."""
        if not 0 <= self.dim < len(sizes):
            yield f"is cut along i{self.dim}, and has {len(sizes)} dims"
            return
        total = sizes[self.dim]
        if not (self.count - 1) * self.size < total <= self.count * self.size:
            yield (
                f"is cut into {self.count} parts of {self.size} along i{self.dim}, "
                f"which has {total} values"
            )
        if self.size % unit and self.count > 1:
            yield f"has parts of {self.size} along i{self.dim}, whose values stay in {unit}s"


@dataclass(frozen=True, slots=True)
class TileGrid:
    """How a product is cut for threads: into blocks of batch indices, rows and columns.

    Attributes:
        size: of a part: batch indices, rows, columns. Rows and columns are whole where several
            batch indices are together.
        counts: parts along batch, rows, columns.
        packs: parts of the copying of the first operand that comes first, of each product; 0 where
            it is read where it lies, or each part copies what it needs alone.
    """

    size: tuple[int, int, int]
    counts: tuple[int, int, int]
    packs: int = 0

    @property
    def count(self) -> int:
        return prod(self.counts)

    def __str__(self) -> str:
        counts, sizes = ("x".join(map(str, entry)) for entry in (self.counts, self.size))
        packs = f", packed in {self.packs}" if self.packs else ""
        return f" in {counts} parts of {sizes}{packs}"

    def blocks(self) -> Iterator[tuple[slice, ...]]:
        """The batch indices, rows and columns of each part."""
        for number in np.ndindex(self.counts):
            pairs = zip(number, self.size, strict=True)
            yield tuple(slice(n * size, (n + 1) * size) for n, size in pairs)

    def problems(self, totals: tuple[int, int, int]) -> Iterator[str]:
        """Say why the parts aren't all of the product's batch, rows and columns, once."""
        names = ("batch indices", "rows", "columns")
        for name, size, count, total in zip(names, self.size, self.counts, totals, strict=True):
            if not (count - 1) * size < total <= count * size:
                yield f"is cut into {count} parts of {size} {name}, of which there are {total}"
        if self.size[0] > 1 and self.counts[1:] != (1, 1):
            yield "cuts products of which it takes several together"


@dataclass(frozen=True, slots=True)
class Access:
    """The memory that a kernel touches by one instruction or operand.

    Attributes:
        low, high: the lowest and the highest element of the argument.
        dtype: that the memory must have.
    """

    arg: int
    low: int
    high: int
    dtype: DType
    writes: bool = False


@dataclass(eq=False, slots=True)
class Memory:
    """An argument of a kernel in the interpreter: element i is `data[start + i]`."""

    data: np.ndarray
    start: int = 0

    def read(self, index: np.ndarray) -> np.ndarray:
        """The elements at these places, in an array of its own."""
        return np.asarray(self.data[self._inside(index)])

    def write(self, index: np.ndarray, values: np.ndarray) -> None:
        """Store; of several values for one place the last one stays."""
        self.data[self._inside(index)] = values

    def add(self, index: np.ndarray, values: np.ndarray) -> None:
        """Add, one value after the other."""
        np.add.at(self.data, self._inside(index), values)

    def _inside(self, index: np.ndarray) -> np.ndarray:
        places = index + self.start
        if places.size and not (places.min() >= 0 and places.max() < self.data.size):
            raise IndexError(
                f"elements {index.min()} to {index.max()} of memory that has "
                f"{-self.start} to {self.data.size - self.start - 1}"
            )
        return places


@dataclass(slots=True)
class World:
    """What calls of Python share in a run of the interpreter."""

    hosts: Mapping[str, HostFunction]
    frame: Frame = field(default_factory=dict)


class CallSite(Protocol):
    """Where in the step a kernel is called; what it may append there.

    Attributes:
        args: addresses of the arguments.
        record: address of what a check that fails leaves.
        python: address of the slot that has the function which calls Python.
        pool: addresses of the function that has threads run a region, and of the pool's state.
    """

    @property
    def args(self) -> Sequence[Val]: ...

    @property
    def record(self) -> Val: ...

    @property
    def python(self) -> Val: ...

    @property
    def pool(self) -> Sequence[Val]: ...

    def call(self, args: Sequence[Val]) -> None:
        """Call the kernel's function, or let threads run its parts."""

    def call_python(self) -> None:
        """Call the next Python function, and leave the step if it raises."""

    def next_hosts(self, count: int) -> Val:
        """The number of the first one of so many calls of Python, which are the next ones."""

    def next_check(self) -> Val:
        """What the next check leaves in the record when it fails."""

    def leave_if_recorded(self) -> None:
        """Leave the step if a check, or Python in a loop, has failed."""


class Kernel(ABC):
    """A computation over buffers, and how threads share it.

    Attributes:
        has_function: whether it is a native function, which calls with equal texts share.
        parts: how threads share it; None if they don't.
    """

    __slots__ = ()
    has_function: ClassVar[bool] = True

    @property
    def effect(self) -> Effect:
        """What else a call does than to fill its arguments; such calls stay in their order.

        A "check" may end the step, and a "host" call runs Python.
        """
        return ""

    @property
    def hosts(self) -> Sequence[Kernel]:
        """The calls of Python that it makes: itself, or some of those that it runs."""
        return ()

    @property
    def parts(self) -> Partition | TileGrid | None:
        return None

    @property
    def is_shared(self) -> bool:
        """Whether threads share its work, or that of kernels that it calls."""
        return self.parts is not None

    @property
    def label(self) -> str:
        """What its users call it; empty for what lucid writes by itself."""
        return ""

    @property
    @abstractmethod
    def kind(self) -> str:
        """What it is in one word: "map", "reduce", "contract", "sort" …"""

    @abstractmethod
    def __str__(self) -> str:
        """All that its code depends on: kernels of equal texts share their code."""

    # Before it is emitted -----------------------------------------------------------------

    @abstractmethod
    def work(self, args: Sequence[Buffer]) -> Work:
        """What a call has to move and to compute at least."""

    @abstractmethod
    def seconds(self, target: Target) -> float:
        """The estimated time of a call in one thread, by shapes alone."""

    def partition(self, args: list[Buffer], new_temp: NewTemp, target: Target) -> list[Call]:
        """Cut it into parts, or make several kernels that do the same, if threads pay."""
        return [(self, args)]

    def relocate(self) -> tuple[Kernel, Origins]:
        """Address each argument from its first access on, and say where that is.

        A loop of the user's that is unrolled does the same at another place in each round: rows of
        a sequence, slices of a state. So these are calls of one function.
        """
        return self, {}

    # What it means ------------------------------------------------------------------------

    @abstractmethod
    def accesses(self) -> Iterator[Access]:
        """All memory that a call touches; that of each part lies one block after the other."""

    def problems(self) -> Iterator[str]:
        """Say what is wrong with it, as the rest of a sentence that begins with its name."""
        yield from ()

    @property
    def scratch(self) -> Sequence[int]:
        """The arguments that are memory of its own, with nothing in it before and after."""
        return ()

    @abstractmethod
    def evaluate(self, memory: Sequence[Memory], world: World) -> None:
        """Do with NumPy what a call does, part by part."""

    # LLVM IR ------------------------------------------------------------------------------

    def regions(self) -> dict[str, int]:
        """What threads share one after the other: the suffix of a function, and its parts."""
        return {} if self.parts is None else {"": self.parts.count}

    def parameters(self) -> list[tuple[str, str]]:
        """Parameters of its function before its arguments."""
        return []

    def emit(self, b: FunctionBuilder, args: Sequence[Val]) -> None:
        """Append all of it to its function."""
        raise NotImplementedError(f"{self.kind} kernels have no function")

    def emit_part(
        self, b: FunctionBuilder, region: str, args: list[Val], part: Val, own: Val
    ) -> None:
        """Append what one part of a region does; `own`: the number of its piece of `scratch`."""
        raise NotImplementedError(f"{self.kind} kernels have no parts")

    def emit_call(self, site: CallSite) -> None:
        """Append a call to the step."""
        site.call(site.args)


Call = tuple[Kernel, list[Buffer]]
