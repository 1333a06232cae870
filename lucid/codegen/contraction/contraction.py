"""What a matrix product is, and how it is blocked on a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from lucid.codegen import costs
from lucid.codegen.llvm.target import ELEMENT_BYTES, Target
from lucid.ir.extents import ceil_div, hint, is_open, replaced


@dataclass(frozen=True, slots=True)
class Contraction:
    """C[m, n] = A[m, k] B[k, n].

    Attributes:
        element: "float", "double", "i32" or "i64".
        a_strides, b_strides: of rows and columns, in elements; any values. Unit column strides of B
            are the fast case.
        tiling: what was chosen already, where sizes are open, or were when it was.
    """

    m: int
    n: int
    k: int
    element: str
    a_strides: tuple[int, int]
    b_strides: tuple[int, int]
    tiling: Tiling | None = None


@dataclass(frozen=True, slots=True)
class Panels:
    """Panels of equal width, side by side.

    Attributes:
        low, high: the columns of the first one, and those behind the last one.
        width: vectors.
        tail: lanes of the last vector; 0 for all; None: code finds out how many there are.
    """

    low: int
    high: int
    width: int
    tail: int | None


def panels_of(n: int, lanes: int, width: int) -> list[Panels]:
    """How n columns are cut: into panels of so many vectors, and what is narrower behind them.

    That is one panel; of an open n some, each half as wide as those before. Any may be the last.
    """
    rest = n % (width * lanes)
    if not is_open(rest):
        behind = [Panels(n - rest, n, -(-rest // lanes), rest % lanes)] if rest else []
        return [Panels(0, n - rest, width, 0), *behind]
    vectors, tail = ceil_div(n, lanes), None if lanes > 1 else 0
    low, found = 0, []
    for each in (width, *(lower for lower in (8, 4, 2, 1) if lower < width)):
        high = low + (vectors - low) // each * each
        found.append(Panels(low * lanes, high * lanes, each, tail))
        low = high
    return found


@dataclass(frozen=True)
class Tiling:
    """What is chosen for a contraction on a target, before code is written.

    Attributes:
        lanes: of the vectors that accumulate; along n, or along k for dot products.
        height: rows of a tile.
        width: vectors of a row of a tile.
        dots: both operands are contiguous along k, and one has few rows: dot products, of which a
            tile has height x width.
    """

    lanes: int
    height: int
    width: int
    dots: bool

    @property
    def panel(self) -> int:
        """Columns of a tile."""
        return self.width if self.dots else self.width * self.lanes

    @property
    def shape(self) -> tuple[int, int, int, bool]:
        """All of it."""
        return self.lanes, self.height, self.width, self.dots

    @property
    def tiling(self) -> Tiling:
        """It alone, without what a subclass has beside."""
        return Tiling(*self.shape)


@dataclass(frozen=True)
class Plan(Tiling):
    """How a contraction is computed.

    Attributes:
        copies: the second operand had better be copied, and the first one may be.
    """

    spec: Contraction
    copies: bool = False

    @cached_property
    def panels(self) -> list[Panels]:
        """How a row of C is cut."""
        return panels_of(self.spec.n, self.lanes, self.width)


def plan(spec: Contraction, target: Target) -> Plan:
    """Choose a tile, and whether to copy, from the sizes; of open ones from those at hand."""
    if spec.tiling is not None:
        return Plan(**vars(spec.tiling), spec=spec)
    at_hand = replaced(spec, hint)
    many = costs.OPEN_VECTORS * target.lanes(spec.element)
    fitting = (
        costs.OPEN_ROWS if is_open(spec.m) else at_hand.m,
        many if is_open(spec.n) else at_hand.n,
        many if is_open(spec.k) else at_hand.k,
    )
    chosen = _chosen(at_hand, fitting, target)
    return chosen if at_hand is spec else replace(chosen, spec=spec)


@lru_cache(maxsize=1024)
def _chosen(spec: Contraction, fitting: tuple[int, int, int], target: Target) -> Plan:
    """Choose for sizes that are known; the tile for these rows, columns and inner indices."""
    rows, columns, inner = fitting
    # A vector no wider than the rows of C: the next power of two of n.
    lanes = min(target.lanes(spec.element), 1 << max(columns - 1, 0).bit_length())
    height, width = _tile(rows, -(-columns // lanes), target.registers)
    size = ELEMENT_BYTES[spec.element]
    dots = are_dots(spec.m if spec.m <= 2 else rows, spec.n, spec.k, spec.a_strides, spec.b_strides)
    if dots:
        lanes = min(target.lanes(spec.element), 1 << max(inner - 1, 0).bit_length())
        height, width = (max(1, min(n, costs.DOTS_AT_ONCE)) for n in (rows, columns))
        if height > 1 < width:
            height, width = _tile(rows, columns, target.registers)
    large = spec.k * spec.n * size > costs.PACK_BYTES and spec.m >= costs.PACK_ROWS
    is_far = abs(spec.a_strides[1]) * size >= costs.PAGE_BYTES and spec.n >= costs.PACK_COLUMNS
    is_far &= spec.m * spec.k * size > costs.PACK_BYTES
    copies = large or is_far or spec.b_strides[1] != 1
    copies |= spec.m >= costs.PACK_ALL_ROWS and spec.k >= costs.PACK_ALL_INNER
    return Plan(lanes, height, width, dots, spec, copies and not dots)


def are_dots(m: int, n: int, k: int, a_strides: Sequence[int], b_strides: Sequence[int]) -> bool:
    """Whether each element is summed by itself, in lanes along k: its epilogue has one lane.

    Few rows don't pay for a copy of B; those of longer sums for folding them, one by one. An open
    number of rows may be any.
    """
    if a_strides[1] != 1 or b_strides[0] != 1:
        return False
    few = 2 if is_open(m) or k < costs.DOT_LENGTH * m else costs.DOT_ROWS
    return hint(n) == 1 or (b_strides[1] != 1 and hint(m) <= few)


def _tile(m: int, vectors: int, registers: int) -> tuple[int, int]:
    """The tile that covers m rows and `vectors` columns in the least time.

    A round of k multiplies and adds each row with each vector, and loads both.
    """
    best: tuple[float, int, int] | None = None
    for width in range(1, min(vectors, 8) + 1):
        for height in range(1, min(m, 14) + 1):
            if height * width + width + 1 >= registers:
                break
            cost = 0.0
            bodies = 0
            for h, rows in ((height, m // height), (m % height, int(m % height > 0))):
                for w, cols in ((width, vectors // width), (vectors % width, 1)):
                    if h and w and rows and cols:
                        loads = costs.SCALAR_LOAD * h + costs.VECTOR_LOAD * w
                        cost += rows * cols * (h * w + loads)
                        bodies += 1
            score = cost * (1 + 0.01 * bodies)
            if best is None or score < best[0] * (1 - 1e-9):
                best = score, height, width
    return best[1:] if best else (1, 1)
