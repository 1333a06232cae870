"""Products of matrices, block by block, where it pays with copies of the operands.

Rows, columns and inner indices may run along several axes each, as windows do. What is copied, in
the order of the register tile (`lanes.py`), lies in the caches when it is multiplied, and nothing
as large as all windows is ever stored. The first operand, whose elements are loaded one by one, is
read where it lies if few columns would share its copy, and both are if they are small matrices:
all is one block then. Else a block has some of the inner indices, the last one what is left; the
sums of earlier ones wait in memory, so every element is summed in the order of the inner axes,
whatever the blocks and the threads.

Of windows over a padded operand, a block may have one place in them. Columns all of whose windows
have zeros there leave the block out, as long as the first operand is finite.

Reference: M. Dukhan, "The indirect convolution algorithm", 2019; K. Goto and R. van de Geijn,
"Anatomy of high-performance matrix multiplication", 2008.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from lucid.codegen import costs
from lucid.codegen.contraction.axes import Axis
from lucid.codegen.contraction.contract import EpilogueEmitter, TileEmitter
from lucid.codegen.contraction.contraction import Contraction, Plan, Tiling, plan
from lucid.codegen.contraction.gemm import Ask, Bounds, Emitter, Panel
from lucid.codegen.contraction.lanes import MOST_OFFSET, LaneCopier, LaneCopy, Walk, joined
from lucid.codegen.emit import lowering, memory
from lucid.codegen.emit.lines import smaller, split
from lucid.codegen.kernel_ir.affine import AffineExpr, form
from lucid.codegen.kernel_ir.nest import LoopNest
from lucid.codegen.kernel_ir.timing import rows_at_hand
from lucid.codegen.llvm.builder import FunctionBuilder, Val, const, i64, vector
from lucid.codegen.llvm.target import ELEMENT_BYTES, Target
from lucid.ir.extents import NotOpenError, ceil_div, hint, is_multiple, is_open, replaced


@dataclass(frozen=True)
class BlockedPlan(Tiling):
    """How a product goes through its operands.

    Attributes:
        split: the inner axis of which a block has `extent` elements; a block has one element of
            those before it, and all of those behind it.
        columns: of a block of the second operand.
        pack_a: the first operand is copied: "whole", before all else, or a "block" at a time where
            each of its elements meets one block of columns alone; "in place" if it is read where it
            lies.
        pack_b: so is a "block" of the second operand, or it is read "in place".
        rows: of a block of the first one, all of which meet the columns of a panel before the next
            ones.
        skips: a block has one element of the axes behind `split` as well, which are places in
            windows; where these are padding it is left out.
    """

    split: int
    extent: int
    columns: int
    rows: int
    pack_a: str
    pack_b: str
    skips: bool = False

    @property
    def copies(self) -> bool:
        """Whether it needs memory: what is in place as a whole is one block."""
        return (self.pack_a, self.pack_b) != ("in place", "in place")


UNPLANNED = BlockedPlan(1, 1, 1, False, 0, 1, 1, 1, "in place", "in place")


@dataclass(slots=True)
class BlockedProduct:
    """A product for each index of a batch, and instructions for each element of it.

    The dims of `body` are the batch axes, the rows, and the columns; instruction 0 is the product.

    Attributes:
        row_axes, column_axes, inner: what rows, columns and inner indices run along, outermost
            first.
        operands: numbers of the arguments that the operands are. `offsets`: where they begin.
        plan: made by `choose`.
    """

    body: LoopNest
    batch_axes: tuple[Axis, ...]
    row_axes: tuple[Axis, ...]
    column_axes: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    operands: tuple[int, int]
    offsets: tuple[int, int]
    plan: BlockedPlan

    @property
    def batch(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.batch_axes)

    @property
    def rows(self) -> int:
        return prod(axis.size for axis in self.row_axes)

    @property
    def columns(self) -> int:
        return prod(axis.size for axis in self.column_axes)

    @property
    def depth(self) -> int:
        """Inner indices."""
        return prod(axis.size for axis in self.inner)

    @property
    def places(self) -> tuple[AffineExpr, AffineExpr]:
        """Where the operands begin for a batch index."""
        a = form(self.offsets[0], [(n, axis.a) for n, axis in enumerate(self.batch_axes)])
        b = form(self.offsets[1], [(n, axis.b) for n, axis in enumerate(self.batch_axes)])
        return a, b

    def walks(self, side: int) -> tuple[Walk, Walk]:
        """What the lanes and the inner indices of an operand run along."""
        if not side:
            lanes, inner = ([(x.size, x.a) for x in axes] for axes in (self.row_axes, self.inner))
        else:
            lanes, inner = (
                [(x.size, x.b) for x in axes] for axes in (self.column_axes, self.inner)
            )
        return joined(lanes), tuple(inner)

    def copy(self, side: int) -> LaneCopy:
        dtype, plan = self.body.args[0], self.plan
        outer, _ = self.walks(side)
        lanes = plan.lanes if side else min(plan.lanes, 1 << (plan.height - 1).bit_length())
        return LaneCopy(dtype, lowering.MEMORY[dtype], lanes, outer, bool(side))

    @property
    def is_matrix(self) -> bool:
        """Whether the first operand has one axis of rows, and one of inner indices."""
        return len(self.row_axes) == len(self.inner) == 1

    @property
    def are_matrices(self) -> bool:
        """Whether both operands are matrices, which can be read where they lie."""
        return self.is_matrix and len(self.column_axes) == 1

    @property
    def spec(self) -> Contraction:
        """The product for one batch index, of copies where operands aren't matrices."""
        sizes = self.rows, self.columns, self.depth
        am, ak, bn, bk = 0, 0, 1, 0
        if self.are_matrices:
            am, ak, bn, bk = (joined(walk)[-1][1] for side in (0, 1) for walk in self.walks(side))
        return Contraction(*sizes, lowering.MEMORY[self.body.args[0]], (am, ak), (bk, bn))

    @property
    def is_far(self) -> bool:
        """Whether lanes lie too far apart to be copied."""
        reaches = (sum((n - 1) * abs(step) for n, step in self.walks(side)[0]) for side in (0, 1))
        return any(reach >= MOST_OFFSET for reach in reaches)

    @property
    def is_scattered(self) -> bool:
        """Whether the first operand isn't lines of inner indices that are neighbours."""
        lines, inner = self.walks(0)
        return len(lines) > 1 or len(joined(inner)) > 1 or inner[-1][1] != 1

    @property
    def is_near(self) -> bool:
        """Whether a tile finds the first operand where it lies: all of the lines that it meets.

        They are rows of inner indices that are neighbours, or that the next row continues.
        """
        lines, walk = self.walks(0)
        inner = joined(walk)
        (_, apart), (count, step) = lines[-1], inner[-1]
        size = self.body.args[0].itemsize
        is_line = hint(count) * size >= 2 * costs.LINE_BYTES or hint(abs(apart) - count) == 0
        return len(lines) == 1 and len(inner) <= 2 and abs(step) == 1 and is_line

    @property
    def places_apart(self) -> tuple[Axis, ...]:
        """The inner axes of which a block has one element, behind the one that is cut."""
        return self.inner[self.plan.split + 1 :] if self.plan.skips else ()

    @property
    def is_copied_by_lines(self) -> bool:
        """Whether a block of the second operand is some lines of columns."""
        columns, inner = self.walks(1)
        is_one = len(columns) == len(inner) == 1 and columns[0][1] == 1
        return is_one and not self.plan.skips

    @property
    def share_inside(self) -> float:
        """The share of all products that aren't left out."""
        share = 1.0
        for place in self.places_apart:
            padded = place.padded
            (column,) = (axis for axis in self.column_axes if axis.padded == padded)
            assert padded is not None
            count = sum(
                padded.low <= i * column.by + k * place.by < padded.high
                for i in range(column.size)
                for k in range(place.size)
            )
            share *= count / (column.size * place.size)
        return share

    @property
    def copies_of_a(self) -> int:
        """Different first operands in the batch."""
        return prod(axis.size for axis in self.batch_axes if axis.a)

    def cost(self) -> float:
        """What one inner index costs, in multiply-adds of full vectors, copies included."""
        found = self.plan
        vectors = ceil_div(self.columns, found.lanes)
        uses = prod(axis.size for axis in self.batch_axes if not axis.a)
        cost = float(self.rows * vectors) * self.share_inside
        if found.pack_b != "in place":
            cost += vectors * self.copy(1).way(joined(self.walks(1)[1]))[0]
        if found.pack_a != "in place":
            copy = self.copy(0)
            tiles = ceil_div(self.rows, found.height) * ceil_div(found.height, copy.lanes)
            cost += tiles * copy.way(joined(self.walks(0)[1]))[0] / uses
        return cost * prod(self.batch)

    def text(self, parts: str) -> str:
        """The operands and the loops; `parts` says how threads share it."""
        p = self.plan
        blocks = f"{p.extent} of k{p.split}, {p.rows} rows, {p.columns} columns"
        tile = f"{'dots' if p.dots else 'tile'} {p.height}x{p.width} of {p.lanes} lanes"
        skips = ", without padding" if p.skips else ""
        packed = f"a {p.pack_a}, b {p.pack_b}"
        lines = [f"contract in blocks of {blocks}, {packed}, {tile}{skips}{parts}:"]
        groups = (("i", self.batch_axes), ("m", self.row_axes), ("n", self.column_axes))
        named = [
            (f"{letter}{number}", axis)
            for letter, axes in (*groups, ("k", self.inner))
            for number, axis in enumerate(axes)
        ]
        along = _along if p.skips else lambda _: ""  # else the code is the same wherever padding is
        lines += [f"  {axis.kind} {name} in {axis.size}{along(axis)}" for name, axis in named]
        for operand, offset, side in zip(self.operands, self.offsets, "ab", strict=True):
            terms = [f"{name}*{getattr(axis, side)}" for name, axis in named]
            kept = [term for term in terms if not term.endswith("*0")]
            lines.append(f"  {side}: a{operand}[{' + '.join([*kept, str(offset)])}]")
        return "\n".join([*lines, str(self.body)])


def _along(axis: Axis) -> str:
    """What an axis moves along, as text."""
    if axis.padded is None:
        return ""
    number, low, high = axis.padded.number, axis.padded.low, axis.padded.high
    return f" along p{number}*{axis.by} in {low}..{high}"


def choose(product: BlockedProduct, target: Target) -> BlockedPlan:
    """Tile and blocks from the sizes; of open ones from those at hand.

    Raises `NotOpenError` where it holds for some sizes only that an operand is read in place.
    """
    size, at_hand = product.body.args[0].itemsize, replaced(product, hint)
    tile = plan(product.spec, target)
    if product.are_matrices and _is_streamed(product.spec, size):
        return _streamed(product, tile)
    if product.are_matrices and (not tile.copies or product.is_far):
        shape = tile if product.spec.b_strides[1] == 1 or tile.dots else replace(tile, lanes=1)
        whole = product.depth, product.columns, product.rows
        return BlockedPlan(*shape.shape, 0, *whole, "in place", "in place")
    rows, columns = at_hand.rows, at_hand.columns
    uses = prod(axis.size for axis in at_hand.batch_axes if not axis.a)
    packs = _packs_a(product, at_hand, uses)
    most = costs.PANEL_BYTES // (tile.panel * size)
    split, extent = _split(product.inner, most)
    lone = _split(product.inner[:1], most)
    skips = _has_padding_apart(product) and product.inner[0].size % lone[1] == 0
    if skips:
        packs, (split, extent) = True, lone
    elif not packs and columns * uses < costs.PACK_COLUMNS and _is_large(at_hand):
        split, extent = 0, product.inner[0].size  # long lines are read faster
    count = hint(extent)
    if not skips:
        count *= prod(axis.size for axis in at_hand.inner[split + 1 :])
    waits = count < at_hand.depth
    has_rows = uses == 1 and rows >= 2 * costs.PART_ROWS  # parts have rows of their own

    def panels_of(rows: int) -> int:
        """Panels of a block of columns that fit with the sums that wait of so many rows."""
        waiting = rows if waits else 0
        return max(1, costs.BLOCK_BYTES // ((count + waiting) * size * tile.panel or 1))

    panels = panels_of(min(rows, costs.WAITING_ROWS))
    is_used_once = packs and has_rows and not skips and panels * tile.panel >= columns
    if not is_used_once:
        panels = panels_of(rows)
    height = costs.BLOCK_BYTES // (count * size or 1)
    height = min(height, rows_at_hand(product.body, len(product.batch_axes), height))
    height = max(1, height // tile.height) * tile.height
    if not is_open(product.columns):
        panels = min(panels, ceil_div(columns, tile.panel))
    if not is_open(product.rows):
        height = min(height, ceil_div(rows, tile.height) * tile.height)
    pack_a = ("block" if is_used_once else "whole") if packs else "in place"
    blocks = split, extent, panels * tile.panel, height
    return BlockedPlan(*tile.shape, *blocks, pack_a, "block", skips)


def _is_large(at_hand: BlockedProduct) -> bool:
    return at_hand.rows * at_hand.depth * at_hand.body.args[0].itemsize > costs.PACK_BYTES


def _packs_a(product: BlockedProduct, at_hand: BlockedProduct, uses: int) -> bool:
    """Whether the first operand, which so many products have in common, is copied."""
    is_copied = _is_large(at_hand) and at_hand.columns * uses >= costs.PACK_COLUMNS
    if product.is_matrix:
        return is_copied and not product.is_near
    if at_hand is product:
        return (is_copied or product.is_scattered) and not product.is_near
    if not is_copied and not at_hand.is_scattered and product.is_scattered:
        raise NotOpenError("an operand lies in one line for some sizes only")
    return is_copied or at_hand.is_scattered


def _has_padding_apart(product: BlockedProduct) -> bool:
    """Whether inner indices are one axis and places in windows, and images lie side by side."""
    first, *places = product.inner
    along = [axis.padded for axis in product.column_axes]
    return (
        bool(places)
        and not any(is_open(axis.size) for axis in product.inner)
        and first.size >= costs.PADDED_MATRIX
        and prod(axis.size for axis in places) <= costs.PLACES
        and first.padded is along[-1] is None
        and all(axis.padded is not None and axis.padded in along for axis in places)
    )


def _is_streamed(spec: Contraction, size: int) -> bool:
    """Whether few rows meet a large matrix, which is read once, in blocks of long lines.

    A tile that goes through all lines of it meets another page with each, which it looks up anew
    for each panel. Of many rows, what tiles read stays in the caches from one to the next.
    """
    least, most = costs.STREAMED_ROWS
    is_streamed = least <= hint(spec.m) <= most and (spec.a_strides[1], spec.b_strides[1]) == (1, 1)
    is_streamed &= hint(spec.n) * size >= costs.PAGE_BYTES // 2
    elements: int = hint(spec.k * spec.n)
    return is_streamed and elements * size > costs.BLOCK_BYTES


def _streamed(product: BlockedProduct, tile: Plan) -> BlockedPlan:
    panels = max(1, costs.STREAMED_LINE_BYTES // (product.body.args[0].itemsize * tile.panel))
    blocks = 0, costs.STREAMED_LINES, panels * tile.panel, tile.height
    return BlockedPlan(*tile.shape, *blocks, "in place", "block")


def _split(inner: Sequence[Axis], most: int) -> tuple[int, int]:
    """The axis to cut, and how much of it is in a block of about `most` inner indices.

    That is the same in all blocks but perhaps the last one. Twice as many stay together: no sums
    wait then, and what follows the product has all of it to wait for memory.
    """
    if hint(prod(axis.size for axis in inner)) <= 2 * most:
        return 0, inner[0].size
    most = most * 3 // 2
    number, rest = next(
        (number, rest)
        for number in range(len(inner))
        if (rest := hint(prod(axis.size for axis in inner[number + 1 :]))) <= max(most, 1)
    )
    size, fitting = inner[number].size, max(most // rest, 1)
    if hint(size) <= fitting:
        return number, size
    if not is_open(size):
        even = max(n for n in range(1, fitting + 1) if size % n == 0)
        if even * 3 >= fitting:
            return number, even
    count = ceil_div(hint(size), fitting)
    return number, ceil_div(ceil_div(hint(size), count), 16) * 16  # whole blocks of lanes


def aligned_bytes(elements: int, element: str) -> int:
    """The size of an array, rounded up so that another one may follow."""
    return -(-elements * ELEMENT_BYTES[element] // 64) * 64


class BlockMemory:
    """Where copies and waiting sums lie in a kernel's scratch memory, in bytes."""

    def __init__(self, product: BlockedProduct, rows: int) -> None:
        """`rows`: of a part."""
        plan = product.plan
        element = lowering.MEMORY[product.body.args[0]]
        lanes = product.copy(0).lanes
        padded = ceil_div(plan.height, lanes) * lanes
        # Vectors that are stored reach into the next row, which comes later.
        self.pitch = plan.height if plan.height <= lanes and not plan.skips else padded
        tiles = ceil_div(product.rows, plan.height)
        self.places = prod(axis.size for axis in product.places_apart)
        axes, cut = product.inner[: plan.split], product.inner[plan.split].size
        behind = prod(axis.size for axis in product.inner[plan.split + 1 :])
        self.rounds = ceil_div(cut, plan.extent)
        self.is_even = is_multiple(cut, plan.extent)
        self.blocks = prod(axis.size for axis in axes) * self.rounds * self.places
        self.behind = behind // self.places
        self.block = plan.extent * self.behind
        self.staged = 0
        if plan.skips:  # inner indices that are copied at all places at once, in the nearest cache
            most = costs.PANEL_BYTES // 2 // (self.places * self.pitch * ELEMENT_BYTES[element])
            self.staged = max(n for n in range(1, max(most, 1) + 1) if plan.extent % n == 0)
        self.of_tile = self.pitch * self.block + padded - self.pitch
        self.of_rows = tiles * self.of_tile  # elements of a block of all rows
        whole = self.of_rows * self.blocks * product.copies_of_a
        own = plan.rows // plan.height * self.of_tile
        waiting = ceil_div(rows, plan.height) * plan.height * plan.columns
        self.has_waiting = is_open(self.blocks) or self.blocks > 1
        self.of_a = aligned_bytes(whole if plan.pack_a == "whole" else 0, element)
        # A zero for each tile of finite rows.
        self.of_signs = aligned_bytes(tiles * product.copies_of_a if plan.skips else 0, element)
        self.tiles, self.of_all = tiles, self.of_a + self.of_signs
        of_b = self.block * plan.columns if plan.pack_b == "block" else 0
        self.of_b = aligned_bytes(of_b, element)
        self.of_waiting = aligned_bytes(waiting if self.has_waiting else 0, element)
        of_block = aligned_bytes(own if plan.pack_a == "block" else 0, element)
        self.of_part = self.of_b + self.of_waiting + of_block


class BlockedEmitter(Emitter):
    """Writes the loops of a blocked product.

    Args:
        scratch: memory of all copies of the first operand, then of each part.
        own: the number of the part's piece of it.
    """

    def __init__(
        self,
        b: FunctionBuilder,
        product: BlockedProduct,
        args: Sequence[Val],
        epilogue: EpilogueEmitter,
        rows: int,
        own: Val,
    ) -> None:
        found, spec = product.plan, product.spec
        self.memory, self.rows = BlockMemory(product, rows), rows
        memory = self.memory
        self.product, self.blocking, self.args, self.after = product, found, args, epilogue
        (lines, inner), b_strides = product.walks(0), spec.b_strides
        block = joined([(found.extent, inner[found.split][1]), *inner[found.split + 1 :]])
        self.around = (1, 0) if found.pack_a != "in place" or len(block) == 1 else block[0]
        a_strides = lines[0][1], block[-1][1]
        if found.pack_a != "in place":
            a_strides = 1, memory.pitch
        if found.pack_b != "in place":
            b_strides = found.panel, 1
        spec = replace(
            spec,
            k=memory.block // self.around[0],
            a_strides=a_strides,
            b_strides=b_strides,
            tiling=found.tiling,
        )
        super().__init__(b, spec, (args[0], args[1]), epilogue.element)
        self.lines *= hint(self.around[0])
        self.is_padded = found.pack_b != "in place"
        if epilogue.asks(self.is_padded):
            self.prepare = epilogue.prefetch
        if not found.copies:
            return
        start = b.add(b.mul(own, memory.of_part), memory.of_all)
        self.block = b.at("i8", args[-1], start)
        self.waiting = b.at("i8", self.block, memory.of_b)
        self.block_of_a = b.at("i8", self.waiting, memory.of_waiting)
        copies = [product.copy(side) for side in (0, 1)]
        self.copiers = [LaneCopier(b, copy, b.alloca("i32", copy.lanes)) for copy in copies]
        if found.skips:
            self.staged = b.alloca(spec.element, memory.staged * memory.places * memory.pitch)

    # The first operand --------------------------------------------------------------------

    def _source(self, side: int) -> Val:
        """Where an operand begins for the batch indices that are bound."""
        b, place = self.b, self.product.places[side]
        start = b.at(self.spec.element, self.args[self.product.operands[side]], place.offset)
        return self.after.address(start, self.spec.element, place)

    def _copy_of_a(self) -> Val:
        """The number of the first operand's copy for the batch indices that are bound."""
        b, number = self.b, i64(0)
        for dim, axis in enumerate(self.product.batch_axes):
            if axis.a:
                number = b.add(b.mul(number, axis.size), self.after.index[dim])
        return number

    def _whole_a(self) -> Val:
        """That copy."""
        own = self.memory.of_a // self.product.copies_of_a
        return self.b.at("i8", self.args[-1], self.b.mul(self._copy_of_a(), own))

    def _sign(self, tile: Val) -> Val:
        """Where it is said whether a tile of rows of that copy is finite."""
        b = self.b
        number = b.add(b.mul(self._copy_of_a(), self.memory.tiles), tile)
        return b.at(self.spec.element, b.at("i8", self.args[-1], self.memory.of_a), number)

    def enter_copy(self, number: Val) -> None:
        """Bind the batch indices of a copy of the first operand; it is the same for all others."""
        b = self.b
        for dim, axis in reversed([*enumerate(self.product.batch_axes)]):
            index = i64(0)
            if axis.a:
                rest = b.binary("udiv", number, axis.size)
                index, number = b.sub(number, b.mul(rest, axis.size)), rest
            self.after.index[dim] = index

    def pack_a(self, low: Val | int, high: Val | int) -> None:
        """Copy tiles of rows of the whole first operand: each block of inner indices apart."""
        b, memory = self.b, self.memory
        source, target = self._source(0), self._whole_a()
        if self.blocking.skips:
            with b.loop(low, high) as tile:
                b.store(const(self.spec.element, 0), self._sign(tile.index))
        with b.loop(0, memory.blocks // memory.places) as blocks:
            start, _, count = self._starts(blocks.index, (source, source))
            number = b.mul(blocks.index, memory.places)
            block = b.at(self.spec.element, target, b.mul(number, memory.of_rows))
            if self.blocking.skips:
                self._pack_places(start, block, (low, high))
            else:
                self._pack_tiles(start, block, i64(0), (low, high), count)

    def _pack_tiles(
        self, source: Val, target: Val, first: Val, tiles: Bounds, count: Val | None
    ) -> None:
        """Copy tiles of rows for a block of inner indices; the first one comes to the target.

        An inner axis whose elements are further apart than rows goes around all of them.
        """
        b, found, element = self.b, self.blocking, self.spec.element
        lines, walk = self.product.walks(0)
        inner = joined([(found.extent, walk[found.split][1]), *walk[found.split + 1 :]])
        size, stride = inner[-1]
        is_cut = len(inner) == lines[-1][1] == 1 and is_multiple(size, self.line)
        if is_cut and count is None:
            # Tiles have parts of the same lines, which should still be near for the next one.
            inner = (size // self.line, self.line * stride), (self.line, stride)
        is_outside = len(inner) > 1 and abs(inner[0][1]) > abs(lines[-1][1])
        around, within = (inner[0], inner[1:]) if is_outside else ((1, 0), inner)
        rows, pitch = prod(size for size, _ in within), self.memory.pitch
        if count is not None:
            count = b.mul(count, inner[0][0] // found.extent)
        with b.loop(0, count if is_outside and count is not None else around[0]) as outer:
            start = b.at(element, source, b.mul(outer.index, around[1]))
            place = b.at(element, target, b.mul(outer.index, rows * pitch))
            with b.loop(*tiles) as tile:
                to = b.mul(b.sub(tile.index, first), self.memory.of_tile)
                to = b.at(element, place, to)
                for lane in range(0, found.height, self.copiers[0].copy.lanes):
                    row = b.add(b.mul(tile.index, found.height), lane)
                    lane_of = b.at(element, to, lane)
                    some = None if is_outside else count
                    self.copiers[0].emit(start, lane_of, row, within, pitch, some)

    def _pack_places(self, source: Val, target: Val, tiles: Bounds) -> None:
        """Copy tiles of rows, those of each place in the windows apart, and look at their signs.

        Some inner indices are copied at all places at once, as they lie, and then put in order.
        """
        b, found, element, memory = self.b, self.blocking, self.spec.element, self.memory
        lines, (first, *places) = self.product.walks(0)
        pitch, lanes, staged = memory.pitch, self.copiers[0].copy.lanes, self.staged
        count, type_ = memory.staged, vector(element, lanes)
        is_outside = abs(first[1]) > abs(lines[-1][1])
        ranges = [(0, found.extent, count), (*tiles, 1)]
        outer, inner = ranges if is_outside else ranges[::-1]
        with b.loop(*outer) as around, b.loop(*inner) as within:
            k, tile = (around.index, within.index)[:: 1 if is_outside else -1]
            start = b.at(element, source, b.mul(k, first[1]))
            for lane in range(0, found.height, lanes):
                row = b.add(b.mul(tile, found.height), lane)
                walk = joined([(count, first[1]), *places])
                self.copiers[0].emit(start, b.at(element, staged, lane), row, walk, pitch)
            offset = b.add(b.mul(tile, memory.of_tile), b.mul(k, pitch))
            with b.loop(0, memory.places, 1, [const(type_, 0)]) as place:
                to = b.at(element, target, b.add(offset, b.mul(place.index, memory.of_rows)))
                with b.loop(0, count, 1, [place.carried[0]]) as loop:
                    row = b.add(b.mul(loop.index, memory.places), place.index)
                    signs = loop.carried[0]
                    for lane in range(0, pitch, lanes):
                        x = b.load(type_, b.at(element, staged, b.add(b.mul(row, pitch), lane)))
                        b.store(x, b.at(element, to, b.add(b.mul(loop.index, pitch), lane)))
                        signs = b.add(signs, b.sub(x, x))
                    loop.carry(signs)
                place.carry(loop.results[0])
            sign = self._sign(tile)
            total = b.reduce(place.results[0], b.add)
            b.store(b.add(b.load(element, sign), total), sign)

    # Blocks -------------------------------------------------------------------------------

    def run_part(self, rows: Bounds, columns: Bounds) -> None:
        """Some rows and columns for the batch indices that are bound."""
        b, found = self.b, self.blocking
        sources = self._source(0), self._source(1)
        if found.pack_a == "whole":
            sources = self._whole_a(), sources[1]
        if found.skips:
            self.is_finite = self._are_finite(rows)

        def run(columns: Bounds) -> None:
            if not self.memory.has_waiting:
                self._block_of(sources, rows, columns, i64(0))
                return
            with b.loop(0, self.memory.blocks) as blocks:
                self._block_of(sources, rows, columns, blocks.index)

        self._in_blocks(columns, found.columns, self.spec.n, run)

    def _in_blocks(
        self, bounds: Bounds, size: int, total: int, inside: Callable[[Bounds], None]
    ) -> None:
        """Run `inside` for so many indices at a time: at once, if there are no more in all."""
        b = self.b
        if is_open(size) == is_open(total) and size >= total:
            inside(bounds)
            return
        with b.loop(*bounds, size) as loop:
            inside((loop.index, smaller(b, b.add(loop.index, size), bounds[1])))

    def _are_finite(self, rows: Bounds) -> Val:
        b, zero = self.b, const(self.spec.element, 0)
        first, last = self._tiles(rows)
        with b.loop(first, last, 1, [zero]) as loop:
            sign = b.load(self.spec.element, self._sign(loop.index))
            loop.carry(b.add(loop.carried[0], sign))
        return b.eq(loop.results[0], zero)

    def _tiles(self, rows: Bounds) -> tuple[Val, Val]:
        """The numbers of the tiles of rows that begin with these, and the one behind the last."""
        b, height = self.b, self.blocking.height
        low, high = map(i64, rows)
        return b.binary("udiv", low, height), b.binary("udiv", b.add(high, height - 1), height)

    def _block_of(
        self, sources: tuple[Val, Val], rows: Bounds, columns: Bounds, number: Val
    ) -> None:
        """All rows against some columns, for a block of inner indices."""
        b, found, memory = self.b, self.blocking, self.memory
        element = self.spec.element
        if memory.has_waiting:
            self.is_first, self.is_last = b.eq(number, 0), b.eq(number, memory.blocks - 1)
        group, self.place = number, i64(0)
        if found.skips:
            group, self.place = split(b, number, memory.places)
        left, right, self.count = self._starts(group, sources)
        if memory.has_waiting:
            self.next = self._starts(b.add(group, 1), sources)[:2]
        for axis, index in self._places():
            right = b.at(element, right, b.mul(index, axis.b))
        if found.pack_b != "in place":
            self._pack_block(right, columns)
        self.b_source, self.columns = right, columns
        self.low, self.first_column = i64(rows[0]), i64(columns[0])
        self.a, self.first_row = left, i64(0)
        if found.pack_a == "whole":
            self.a = b.at(element, sources[0], b.mul(number, memory.of_rows))

        def run(rows: Bounds) -> None:
            if found.pack_a == "block":
                tiles = self._tiles(rows)
                self._pack_tiles(left, self.block_of_a, tiles[0], tiles, self.count)
                self.a, self.first_row = self.block_of_a, i64(rows[0])
            self.run(rows)

        self._in_blocks(rows, found.rows, self.spec.m, run)

    def _places(self) -> list[tuple[Axis, Val]]:
        """The axes of places in windows, and the indices of the block's place."""
        b, rest, found = self.b, self.place, []
        for number, axis in reversed([*enumerate(self.product.places_apart)]):
            index = rest
            if number:
                rest = b.binary("udiv", index, axis.size)
                index = b.sub(index, b.mul(rest, axis.size))
            found.append((axis, index))
        return found

    def _depth(self, column: Val) -> Val | None:
        """Inner indices of the block for a panel: none where its windows have padding there.

        None for as many as blocks have.
        """
        if not self.blocking.skips:
            if self.count is None or self.around[0] != 1:
                return None
            return self.b.mul(self.count, self.memory.behind)
        b, size, is_used = self.b, self.spec.n, const("i1", 1)
        ends = column, smaller(b, b.add(column, self.plan.panel - 1), size - 1)
        is_one = is_used  # whether the axes before have one index in the panel
        for axis in self.product.column_axes:
            size //= axis.size
            low, high = (b.binary("udiv", end, size) for end in ends)
            ends = b.sub(ends[0], b.mul(low, size)), b.sub(ends[1], b.mul(high, size))
            first, last = b.select(is_one, low, 0), b.select(is_one, high, axis.size - 1)
            is_one = b.and_(is_one, b.eq(low, high))
            for place, index in self._places():
                if axis.padded is not None and place.padded == axis.padded:
                    at = b.mul(index, place.by)
                    starts = b.lt(b.add(b.mul(first, axis.by), at), axis.padded.high)
                    ends_in = b.ge(b.add(b.mul(last, axis.by), at), axis.padded.low)
                    is_used = b.and_(is_used, b.and_(starts, ends_in))
        is_used = b.or_(is_used, b.not_(self.is_finite))
        return b.select(is_used, i64(self.memory.block), i64(0))

    def _starts(self, number: Val, sources: tuple[Val, Val]) -> tuple[Val, Val, Val | None]:
        """Where both operands begin for a block of inner indices.

        And how many elements of the axis that is cut are in it; None: as many as in all blocks.
        """
        b, found, count = self.b, self.blocking, None
        left, right = sources
        if self.memory.is_even and not self.memory.has_waiting:
            return left, right, None
        axes = self.product.inner[: found.split + 1]
        for axis in reversed(axes):
            is_cut = axis is axes[-1]
            step, rounds = (found.extent, self.memory.rounds) if is_cut else (1, axis.size)
            index = number
            if axis is not axes[0]:
                number = b.binary("udiv", index, rounds)
                index = b.sub(index, b.mul(number, rounds))
            if is_cut and not self.memory.is_even:
                count = smaller(b, b.sub(i64(axis.size), b.mul(index, step)), step)
            left = b.at(self.spec.element, left, b.mul(index, axis.a * step))
            right = b.at(self.spec.element, right, b.mul(index, axis.b * step))
        return left, right, count

    def _pack_block(self, start: Val, columns: Bounds) -> None:
        b, found, lanes = self.b, self.blocking, self.blocking.lanes
        _, inner = self.product.walks(1)
        size, stride = found.extent, inner[found.split][1]
        behind = () if found.skips else inner[found.split + 1 :]
        walk, count = joined([(size, stride), *behind]), self.count
        if count is not None:
            count = b.mul(count, walk[0][0] // size)
        if self.product.is_copied_by_lines:
            self._pack_lines(start, columns, stride)
            return
        with b.loop(*columns, self.plan.panel) as loop:
            place, depth = self._of_column(loop.index, i64(columns[0])), self._depth(loop.index)
            end = i64(self.plan.panel)
            if depth is not None:
                end = b.select(b.ne(depth, 0), end, i64(0))
            with b.loop(0, end, lanes) as vectors:
                to = b.at(self.spec.element, place, vectors.index)
                first = b.add(loop.index, vectors.index)
                self.copiers[1].emit(start, to, first, walk, self.plan.panel, count)

    def _pack_lines(self, start: Val, columns: Bounds, stride: int) -> None:
        """Copy a block of lines, one after the other, each from its beginning to its end."""
        b, element, lanes = self.b, self.spec.element, self.plan.lanes

        def copy(column: Val, width: int, tail: int | None) -> None:
            at = b.mul(loop.index, self.plan.panel)
            to = b.at(element, self._of_column(column, i64(columns[0])), at)
            mask = self._tail_mask(b, tail, column, width)
            for v in range(width):
                place = b.at(element, b.at(element, line, column), v * lanes)
                value = self._load(place, mask if v == width - 1 else None)
                b.store(value, b.at(element, to, v * lanes))

        self.columns = columns
        with b.loop(0, self.memory.block if self.count is None else self.count) as loop:
            line = b.at(element, start, b.mul(loop.index, stride))
            self._over_columns(copy)

    def _of_column(self, column: Val, first: Val) -> Val:
        """Where a panel of the block lies, or a narrower one that begins within it."""
        b, behind = self.b, self.b.sub(column, first)
        if not is_open(self.spec.n):
            return b.at(self.spec.element, self.block, b.mul(behind, self.memory.block))
        within = b.binary("urem", behind, self.plan.panel)
        panel = b.mul(b.sub(behind, within), self.memory.block)
        return b.at(self.spec.element, self.block, b.add(panel, within))

    def _panel(self, col: Val, width: int, tail: int | None) -> Panel:
        if not self.is_padded:
            return super()._panel(col, width, tail)
        place, depth = self._of_column(col, self.first_column), self._depth(col)
        return Panel(col, width, place, self.plan.panel, tail, depth)

    # Tiles --------------------------------------------------------------------------------

    def _tile(
        self,
        tile: Val,
        height: int,
        panel: Panel,
        before: Sequence[Val] = (),
        ask: Ask | None = None,
    ) -> list[Val]:
        """Sums over a block, of which an operand that is read in place may have two axes."""
        b, (size, stride) = self.b, self.around
        if size == 1:
            return super()._tile(tile, height, panel, before, ask)
        each = self.lines // hint(size) * self.line
        sums = list(before) or [const(self.type, 0)] * (height * panel.width)
        end: Val | int = size
        if self.count is not None:
            end = b.mul(self.count, size // self.blocking.extent)
        with b.loop(0, end, 1, sums) as loop:
            a = b.at(self.spec.element, tile, b.mul(loop.index, stride))
            lines = b.mul(loop.index, self.spec.k * panel.stride)
            part = replace(panel, pointer=b.at(self.spec.element, panel.pointer, lines))
            asks = ask and _behind(b, b.mul(loop.index, each), ask)
            loop.carry(*super()._tile(a, height, part, loop.carried, asks))
        return loop.results

    def _lines(self, row: Val, height: int) -> Val:
        """Where a tile lies: of a copy, perhaps one of several lower ones."""
        b, found, element = self.b, self.blocking, self.spec.element
        if found.pack_a == "in place":
            return super()._lines(row, height)
        behind = b.sub(row, self.first_row)
        number = b.binary("udiv", behind, found.height)
        tile = b.at(element, self.a, b.mul(number, self.memory.of_tile))
        if height == found.height:
            return tile
        return b.at(element, tile, b.binary("urem", behind, found.height))

    def _tile_at(self, row: Val, height: int, panel: Panel) -> None:
        if not self.memory.has_waiting:
            super()._tile_at(row, height, panel)
            return
        b, element, found = self.b, self.spec.element, self.blocking
        tile = self._lines(row, height)
        offset = b.mul(b.sub(row, self.low), found.columns)
        offset = b.add(offset, b.mul(b.sub(panel.col, self.first_column), height))
        kept = b.pinned(b.at(element, self.waiting, offset))
        places = [b.at(element, kept, n * self.plan.lanes) for n in range(height * panel.width)]
        with b.if_else(self.is_first) as branch:
            with branch.then():
                pass
            with branch.otherwise():
                waiting = [b.load(self.type, place) for place in places]
        before = [branch.merge(const(self.type, 0), value) for value in waiting]
        sums = self._tile(tile, height, panel, before, self._asking(row, height, panel))
        with b.if_else(self.is_last) as branch:
            with branch.then():
                self._finish(sums, row, height, panel)
            with branch.otherwise():
                for value, place in zip(sums, places, strict=True):
                    b.store(value, place)

    def _asking(self, row: Val, height: int, panel: Panel) -> Ask | None:
        """Ask for rows of the next tile that are read in place, and for what else comes.

        That is rows of the result in the last block, else what the next block copies.
        """
        b, spec, of_result = self.b, self.spec, super()._asking(row, height, panel)
        own = hint(height * spec.k) * ELEMENT_BYTES[spec.element]
        is_near = own <= costs.PANEL_BYTES // 2  # both tiles' rows stay in the nearest cache
        is_line = self.around[0] == spec.a_strides[1] == 1 and self.blocking.pack_a == "in place"
        reads_next = self.is_padded and is_line and is_near
        if not (reads_next or self.memory.has_waiting):
            return of_result
        tile = self._lines(row, height)

        def ask(k: Val) -> None:
            for i in range(height, 2 * height) if reads_next else ():
                place = b.add(k, b.mul(i64(i), spec.a_strides[0]))
                memory.prefetch(b, b.at(spec.element, tile, place))
            if not self.memory.has_waiting:
                if of_result is not None:
                    of_result(k)
                return
            with b.if_else(self.is_last) as branch:
                with branch.then():
                    if of_result is not None:
                        of_result(k)
                with branch.otherwise():
                    self._ask_next(k, row, panel)

        return ask

    def _ask_next(self, k: Val, row: Val, panel: Panel) -> None:
        """Ask for what the next block copies, if that is lines of rows, or of columns.

        Tiles ask for their own rows, those of each panel for some inner indices, and for their own
        columns.
        """
        b, p, found, line = self.b, self.product, self.blocking, self.line
        tile = b.binary("udiv", b.sub(row, self.low), found.height)
        number = b.binary("udiv", b.sub(panel.col, self.first_column), found.panel)
        sides = []  # first line and its step, pieces of a line, whose share of how many it is
        if found.pack_a == "block" and p.is_matrix and p.row_axes[0].a == 1:
            panels = ceil_div(min(hint(found.columns), hint(self.spec.n)), found.panel)
            sides.append((self.next[0], row, p.inner[0].a, 1, number, panels))
        if p.is_copied_by_lines:
            pieces, tiles = ceil_div(found.panel, line), ceil_div(hint(self.rows), found.height)
            sides.append((self.next[1], panel.col, p.inner[0].b, pieces, tile, tiles))
        for start, first, step, pieces, share, shares in sides:
            each, place = ceil_div(line * pieces, shares), b.at(self.spec.element, start, first)
            with b.loop(0, each) as loop:
                piece = b.add(b.mul(share, each), loop.index)
                inner = b.add(k, b.binary("udiv", piece, pieces))
                within = b.mul(b.binary("urem", piece, pieces), line)
                at = b.at(self.spec.element, place, b.add(b.mul(inner, step), within))
                memory.prefetch(b, at, is_soon=False)


def _behind(b: FunctionBuilder, count: Val, ask: Ask) -> Ask:
    """The same in a loop's round: so many inner indices were before it."""
    return lambda k: ask(b.add(count, k))


class BlockedTileEmitter(BlockedEmitter, TileEmitter):
    """The same for an epilogue that is emitted once."""

    @property
    def finishing(self) -> EpilogueEmitter:
        return self.after


def blocked_emitter(
    b: FunctionBuilder, product: BlockedProduct, args: Sequence[Val], rows: int, own: Val
) -> BlockedEmitter:
    """What writes a part of so many rows, with what follows it prepared."""
    epilogue = EpilogueEmitter(b, product, args)
    epilogue.prepare()
    if epilogue.sums is None:
        return BlockedEmitter(b, product, args, epilogue, rows, own)
    return BlockedTileEmitter(b, product, args, epilogue, rows, own)
