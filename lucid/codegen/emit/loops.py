"""Emission of loop kernels: loops, passes, tails and accumulators, decided once for all ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

from lucid.codegen import costs
from lucid.codegen.emit import lowering, memory, reductions
from lucid.codegen.emit.insts import InstEmitter
from lucid.codegen.kernel_ir.affine import AffineExpr
from lucid.codegen.kernel_ir.instruction import Inst
from lucid.codegen.kernel_ir.nest import LoopNest
from lucid.codegen.llvm.builder import FunctionBuilder, Val, const_lanes, i64
from lucid.ir.extents import hint, is_open
from lucid.ir.types import DType

State = list[list[Val]]  # for each repetition of the body, all accumulators one after the other


class LoopEmitter(InstEmitter):
    """Emits the body of one loop kernel into a function."""

    def __init__(self, b: FunctionBuilder, kernel: LoopNest, args: Sequence[Val]) -> None:
        super().__init__(b, kernel, args)
        self.outer = len(kernel.kept)
        self.depth = len(kernel.sizes)
        self.stage = 0
        self.needed: set[int] = set()
        self.folded: list[int] = []
        self.dtypes: list[DType] = []
        self.scratch: dict[int, Val] = {}
        self.saved: set[int] = set()
        self.cut: tuple[int, Val, Val] | None = None  # a dim, and the part of it to go through
        self.busy = -1
        self.loads_ahead: list[Inst] = []
        self.stores_ahead: list[Inst] = []
        self._choose_prefetches()
        self.straight = self._is_straight()
        if not self.straight:
            self._allocate_scratch()

    def _choose_prefetches(self) -> None:
        """Find the pass that computes most: meanwhile memory is asked for what comes after it.

        That is the next row, and the lines that later passes over this one fill. Without it, each
        pass waits either for memory or for arithmetic.
        """
        kernel = self.kernel
        if kernel.passes < 2 or kernel.vector != self.depth - 1 or not self.outer:
            return
        work = [0] * kernel.passes
        for number, inst in enumerate(kernel.insts):
            if kernel.in_pass(number):
                work[kernel.stages[number]] += costs.cost_of(inst.op)
        self.busy = work.index(max(work))
        for number, inst in enumerate(kernel.insts):
            if not inst.has_address or inst.form is None or not self._is_streamed(inst):
                continue
            if inst.op == "load":
                self.loads_ahead.append(inst)
            elif inst.op == "store" and kernel.stages[number] > self.busy:
                self.stores_ahead.append(inst)

    def _is_streamed(self, inst: Inst) -> bool:
        """Whether each row has a long line of its own, of an array that no cache holds."""
        kernel = self.kernel
        row = hint(kernel.sizes[-1]) * inst.dtype.itemsize
        size = inst.dtype.itemsize * hint(prod(kernel.sizes[dim] for dim in inst.at.dims))
        adjacent = inst.at.coefficient(kernel.vector) == 1
        is_new = inst.at.coefficient(self.outer - 1) != 0
        return adjacent and is_new and row >= costs.STREAMED_ROW and size > costs.CACHE_BYTES

    def _prefetch(self) -> None:
        """Ask for the lines of the current vector, in the next row of what is read."""
        for inst in self.loads_ahead:
            step = inst.at.coefficient(self.outer - 1)
            element = lowering.MEMORY[inst.dtype]
            memory.prefetch(self.b, self.b.at(element, self.places[inst.arg, inst.at], step))
        for inst in self.stores_ahead:
            memory.prefetch(self.b, self.places[inst.arg, inst.at], writes=True)

    def run(self) -> None:
        if 0 in self.kernel.kept:
            return
        self._place(0)
        self._kept(0)

    def _bounds(self, dim: int) -> tuple[Val | int, Val | int]:
        """From where to where this part of the kernel goes along a dim."""
        if self.cut is not None and self.cut[0] == dim:
            return self.cut[1:]
        return 0, self.kernel.sizes[dim]

    # Kept dims --------------------------------------------------------------------------

    def _kept(self, dim: int) -> None:
        if dim == self.outer:
            self._row()
            return

        def inside(state: list[Val]) -> list[Val]:
            self._place(dim + 1)
            self._kept(dim + 1)
            return state

        self._over(dim, [[]], inside)

    def _place(self, level: int) -> None:
        """Emit what is known once `level` loops are open and needs no reduction."""
        for number in range(len(self.kernel.insts)):
            if (
                not self.kernel.in_pass(number)
                and self.kernel.stages[number] == 0
                and self.level(number) == level
            ):
                self.emit(number)

    def level(self, number: int) -> int:
        return max(self.kernel.dims[number], default=-1) + 1

    def _row(self) -> None:
        """The passes over one row, and what is computed between them."""
        passes = self.kernel.passes
        self.saved = set()
        for stage in range(passes + 1):
            if stage:
                for number in range(len(self.kernel.insts)):
                    if not self.kernel.in_pass(number) and self.kernel.stages[number] == stage:
                        self.emit(number)
            if stage < passes:
                self._pass(stage)

    # Passes -----------------------------------------------------------------------------

    def _is_straight(self) -> bool:
        """Whether a row is one vector, so that all of its values stay in registers."""
        inner = self.kernel.reduced
        if not inner:
            return True
        return (
            not is_open(inner[0])
            and len(inner) == 1
            and self.kernel.vector == self.outer
            and inner[0] <= self.lanes
        )

    def _allocate_scratch(self) -> None:
        count = prod(self.kernel.reduced)
        across = 0 <= self.kernel.vector < self.outer
        for number in self.kernel.scratch:
            dtype = self.kernel.insts[number].dtype
            lanes = self.lanes if across and self.is_vector(number) else 1
            self.scratch[number] = self.b.alloca(lowering.MEMORY[dtype], count * lanes)

    def scratch_form(self, number: int) -> AffineExpr:
        """Where a kept value of the current element lies in its scratch."""
        across = 0 <= self.kernel.vector < self.outer
        scale = self.lanes if across and self.is_vector(number) else 1
        terms = []
        for dim in range(self.depth - 1, self.outer - 1, -1):
            terms.append((dim, scale))
            scale *= self.kernel.sizes[dim]
        return AffineExpr(0, tuple(reversed(terms)))

    def is_position(self, number: int) -> bool:
        """Whether a reduction keeps the position of its value too."""
        return self.kernel.insts[number].fold in ("argmax", "argmin")

    def _begin_pass(self, stage: int) -> None:
        """Find what a pass computes."""
        kernel, self.stage = self.kernel, stage
        roots = [
            n
            for n, inst in enumerate(kernel.insts)
            if inst.is_root and kernel.in_pass(n) and kernel.stages[n] == stage
        ]
        self.needed = self._closure(roots)
        self.spilled = self.needed & self.saved
        self.saved |= self.needed & set(self.scratch)
        self.folded = [n for n in sorted(self.needed) if kernel.insts[n].op in ("reduce", "scan")]

    def _pass(self, stage: int) -> None:
        self._begin_pass(stage)
        kernel = self.kernel
        repeat = 1 if 0 in kernel.reduced else self._repetitions()
        self._choose_dtypes(repeat)
        starts = self._starts()
        state: State = [list(starts) for _ in range(repeat)]
        if 0 not in kernel.reduced:
            state = self._inner(self.outer, state)
        self._finish(state)

    def _closure(self, roots: list[int]) -> set[int]:
        """What a pass computes; values kept in scratch end the search."""
        found: set[int] = set()
        todo = list(roots)
        while todo:
            number = todo.pop()
            if number in found:
                continue
            found.add(number)
            if number in self.saved:
                continue
            todo += [
                n
                for n in self.kernel.insts[number].operands
                if self.kernel.in_pass(n) and self.kernel.insts[n].op != "reduce"
            ]
        return found

    def _repetitions(self) -> int:
        insts = self.kernel.insts
        if not self.kernel.reduced or any(insts[n].op in ("scan", "write") for n in self.needed):
            return 1
        if not self.folded or sum(costs.cost_of(insts[n].op) for n in self.needed) > costs.UNROLLED:
            return 1
        last = self.depth - 1
        rounds = hint(self.kernel.sizes[last]) // (self.lanes if self.kernel.vector == last else 1)
        for repeat in (4, 2):
            if rounds >= repeat and (rounds % repeat == 0 or rounds >= 4 * repeat):
                return repeat
        return 1

    def _choose_dtypes(self, repeat: int) -> None:
        """Decide in which precision the pass accumulates."""
        inner_vector = self.kernel.vector >= self.outer
        rounds = hint(prod(self.kernel.reduced)) // (self.lanes if inner_vector else 1) // repeat
        self.dtypes = []
        for number in self.folded:
            inst = self.kernel.insts[number]
            source = self.kernel.insts[inst.operands[0]].dtype
            wide = reductions.accumulated(inst.fold, source, rounds)
            self.dtypes.append(source if inst.op == "scan" else wide)

    def _starts(self) -> list[Val]:
        """First values of all accumulators."""
        starts: list[Val] = []
        for number, dtype in zip(self.folded, self.dtypes, strict=True):
            inst = self.kernel.insts[number]
            wide = self.kernel.vector >= self.outer or any(map(self.is_vector, inst.operands))
            starts += reductions.start(inst.fold, dtype, self.lanes if wide else 1)
        return starts

    def _inner(self, dim: int, state: State) -> State:
        if dim == self.depth:
            return [self._element(part) for part in state]
        if dim == self.depth - 1:
            return self._over(dim, state, self._element)

        def inside(flat: list[Val]) -> list[Val]:
            self._place_inner(dim + 1)
            return _flat(self._inner(dim + 1, _unflat(flat, len(state))))

        return _unflat(self._over(dim, [_flat(state)], inside)[0], len(state))

    def _place_inner(self, level: int) -> None:
        for number in sorted(self.needed):
            if self.level(number) == level and not self.kernel.insts[number].is_root:
                self._emit_or_reload(number)

    def _element(self, accumulators: list[Val]) -> list[Val]:
        """One element of the pass: everything at the deepest level, and the accumulation."""
        if self.stage == self.busy:
            self._prefetch()
        result: list[Val] = []
        position = 0
        for number in sorted(self.needed):
            inst = self.kernel.insts[number]
            if inst.op in ("reduce", "scan"):
                index = self.folded.index(number)
                count = 2 if self.is_position(number) else 1
                old = accumulators[position : position + count]
                position += count
                new = self._accumulate(inst, old, self.dtypes[index])
                result += new
                if inst.op == "scan":
                    self.env[number] = new[0]
                    self._spill(number)
            else:
                self._emit_or_reload(number)
        return result

    def _emit_or_reload(self, number: int) -> None:
        if number in self.env:
            return
        if number in self.spilled:
            self.env[number] = self._scratch_access(number, None)
            self.widen(number)
            return
        self.emit(number)
        self._spill(number)

    def _spill(self, number: int) -> None:
        if number in self.scratch:
            self._scratch_access(number, self.env[number])

    def _scratch_access(self, number: int, value: Val | None) -> Val:
        """Load or store the scratch value of the current element."""
        dtype = self.kernel.insts[number].dtype
        form = self.scratch_form(number)
        pointer = self.address(self.scratch[number], lowering.MEMORY[dtype], form)
        lanes = self.lanes if self.is_vector(number) else 1
        mask = self.mask if self.kernel.vector >= self.outer else None
        if value is None:
            return memory.load(self.b, dtype, pointer, lanes, 1, mask)
        memory.store(self.b, dtype, value, pointer, 1, mask)
        return value

    def _accumulate(self, inst: Inst, old: list[Val], dtype: DType) -> list[Val]:
        op, operand = inst.fold, inst.operands[0]
        source = self.kernel.insts[operand].dtype
        lanes = old[0].lanes
        if inst.op == "scan":
            element = [self.value(n, lanes) for n in inst.operands]
            return reductions.combine(self.b, op, dtype, old, element)
        value = lowering.convert(self.b, source, self.value(operand, lanes), dtype)
        if source is dtype and op in ("any", "all"):
            value = self.value(operand, lanes)
        new = [value]
        if op in ("argmax", "argmin"):
            new.append(self.index_lanes(inst.at, lanes, "i32"))
        if self.mask is not None and self.kernel.vector >= self.outer:
            neutral = reductions.start(op, dtype, lanes)
            new = [self.b.select(self.mask, v, n) for v, n in zip(new, neutral, strict=True)]
        return reductions.combine(self.b, op, dtype, old, new)

    def _finish(self, state: State) -> None:
        """Fold repetitions and lanes; from here on the results are values of the row."""
        position = 0
        for number, dtype in zip(self.folded, self.dtypes, strict=True):
            inst = self.kernel.insts[number]
            op = inst.fold
            count = 2 if self.is_position(number) else 1
            parts = [part[position : position + count] for part in state]
            position += count
            if inst.op == "scan":
                continue
            total = reductions.tree(self.b, op, dtype, parts)
            if self.kernel.vector >= self.outer:
                total = reductions.across_lanes(self.b, op, dtype, total)
            kept = dtype if count == 1 else reductions.POSITION
            result = lowering.convert(self.b, kept, total[-1], inst.dtype)
            self.env[number] = result
            self.widen(number)

    def _slots(self) -> Iterator[tuple[int, slice]]:
        """The reductions of the pass, and where in a part of the state their accumulators are."""
        position = 0
        for index, number in enumerate(self.folded):
            count = 2 if self.is_position(number) else 1
            yield index, slice(position, position + count)
            position += count

    def _mixed(
        self, part: list[Val], starts: list[Val], wide: list[DType], narrow: list[DType]
    ) -> list[Val]:
        """What a block begins with: new accumulators of what is narrow in it, else those so far."""
        result: list[Val] = []
        for index, slot in self._slots():
            result += part[slot] if wide[index] is narrow[index] else starts[slot]
        return result

    def _added(self, old: list[Val], new: list[Val], narrow: list[DType]) -> list[Val]:
        """The accumulators after a block."""
        result: list[Val] = []
        for index, slot in self._slots():
            dtype = self.dtypes[index]
            if dtype is narrow[index]:
                result += new[slot]
                continue
            fold = self.kernel.insts[self.folded[index]].fold
            block = [lowering.convert(self.b, narrow[index], x, dtype) for x in new[slot]]
            result += reductions.combine(self.b, fold, dtype, old[slot], block)
        return result

    # Loops ------------------------------------------------------------------------------

    def _over(self, dim: int, state: State, inside: Callable[[list[Val]], list[Val]]) -> State:
        """Run `inside` for all values of a dim, the parts of the state taking turns."""
        if self.cut is not None and self.cut[0] == dim:
            return self._over_part(dim, self.cut[1], self.cut[2], state, inside)
        size = self.kernel.sizes[dim]
        step = self.lanes if dim == self.kernel.vector else 1
        repeat = len(state)
        main = size // (step * repeat) * step * repeat
        keep = self.straight and dim >= self.outer
        some = is_open(main) or main > 0
        if some and dim == self.depth - 1 and self._sums_blocks(hint(main) // (step * repeat)):
            state = self._blocks(dim, main, step, state, inside)
        elif some:
            state = self._loop(dim, 0, main, step, state, inside, keep)
        return self._rest(dim, main, step, state, inside, keep)

    def _sums_blocks(self, rounds: int) -> bool:
        """Whether sums of f32 that are too long for an accumulator are made of shorter ones."""
        return rounds > reductions.SHORT and self.dtypes != self._narrow_dtypes()

    def _narrow_dtypes(self) -> list[DType]:
        """The dtypes in which a few rounds may be added; of products the range would be less."""
        insts, found = self.kernel.insts, []
        for number, dtype in zip(self.folded, self.dtypes, strict=True):
            is_sum = insts[number].fold == "sum"
            found.append(insts[insts[number].operands[0]].dtype if is_sum else dtype)
        return found

    def _blocks(
        self,
        dim: int,
        main: int,
        step: int,
        state: State,
        inside: Callable[[list[Val]], list[Val]],
    ) -> State:
        """A loop whose sums are narrow for some rounds, and then added to wide ones."""
        b, parts = self.b, len(state)
        stride = step * parts
        block = stride * reductions.SHORT
        wide, narrow = self.dtypes, self._narrow_dtypes()
        with b.loop(0, main, block, _flat(state)) as blocks:
            outer = _unflat(blocks.carried, parts)
            self.dtypes = narrow
            starts = self._starts()
            inner = [self._mixed(part, starts, wide, narrow) for part in outer]
            stop = b.add(blocks.index, block)
            if is_open(main) or main % block:
                stop = b.select(b.lt(stop, main), stop, i64(main))
            with b.loop(blocks.index, stop, stride, _flat(inner)) as loop:
                turn = _unflat(loop.carried, parts)
                loop.carry(*_flat(self._step(dim, loop.index, turn, step, inside, False)))
            self.dtypes = wide
            done = _unflat(loop.results, parts)
            sums = [self._added(old, new, narrow) for old, new in zip(outer, done, strict=True)]
            blocks.carry(*_flat(sums))
        return _unflat(blocks.results, parts)

    def _over_part(
        self,
        dim: int,
        low: Val,
        high: Val,
        state: State,
        inside: Callable[[list[Val]], list[Val]],
    ) -> State:
        """The same for the values from low to high: whole rounds, or up to the end of the dim."""
        b, size = self.b, self.kernel.sizes[dim]
        step = self.lanes if dim == self.kernel.vector else 1
        stride = step * len(state)
        main = size - size % stride
        is_whole = main is size or (not is_open(size) and main == size)
        if is_open(main) or main:
            stop = high if is_whole else b.select(b.lt(high, main), high, main)
            with b.loop(low, stop, stride, _flat(state)) as loop:
                parts = _unflat(loop.carried, len(state))
                loop.carry(*_flat(self._step(dim, loop.index, parts, step, inside, False)))
            state = _unflat(loop.results, len(state))
        if is_whole:
            return state
        with b.if_else(b.eq(high, size)) as branch:
            with branch.then():
                first = self._rest(dim, main, step, state, inside, False)[0]
            with branch.otherwise():
                pass
        merged = [branch.merge(new, old) for new, old in zip(first, state[0], strict=True)]
        return [merged, *state[1:]]

    def _rest(
        self,
        dim: int,
        start: int,
        step: int,
        state: State,
        inside: Callable[[list[Val]], list[Val]],
        keep: bool,
    ) -> State:
        """What is left of a dim after the full rounds, by the first part of the state alone."""
        size = self.kernel.sizes[dim]
        whole = size - size % step
        if is_open(whole - start) or whole > start:
            first = self._loop(dim, start, whole, step, [state[0]], inside, keep)
            state = [*first, *state[1:]]
        if is_open(size - whole):
            return self._open_tail(dim, whole, step, state, inside)
        if size > whole:
            outer_mask = self.mask
            self.mask = const_lanes("i1", [lane < size - whole for lane in range(step)])
            part = self._step(dim, i64(whole), [state[0]], step, inside, keep)
            state = [*part, *state[1:]]
            if not keep:
                self.mask = outer_mask
        return state

    def _open_tail(
        self,
        dim: int,
        whole: int,
        step: int,
        state: State,
        inside: Callable[[list[Val]], list[Val]],
    ) -> State:
        """What is left behind full vectors, where that is only known at run time."""
        b, left = self.b, i64(self.kernel.sizes[dim] - whole)
        outer_mask = self.mask
        with b.if_else(b.gt(left, 0)) as branch:
            with branch.then():
                self.mask = b.tail_mask(step, left)
                (part,) = self._step(dim, i64(whole), [state[0]], step, inside, False)
            with branch.otherwise():
                pass
        self.mask = outer_mask
        return [
            [branch.merge(new, old) for new, old in zip(part, state[0], strict=True)],
            *state[1:],
        ]

    def _loop(
        self,
        dim: int,
        low: int,
        high: int,
        step: int,
        state: State,
        inside: Callable[[list[Val]], list[Val]],
        keep: bool,
    ) -> State:
        stride = step * len(state)
        if not is_open(high - low) and high - low == stride:
            return self._step(dim, i64(low), state, step, inside, keep)
        with self.b.loop(low, high, stride, _flat(state)) as loop:
            parts = _unflat(loop.carried, len(state))
            done = self._step(dim, loop.index, parts, step, inside, False)
            loop.carry(*_flat(done))
        return _unflat(loop.results, len(state))

    def _step(
        self,
        dim: int,
        index: Val,
        state: State,
        step: int,
        inside: Callable[[list[Val]], list[Val]],
        keep: bool,
    ) -> State:
        """The body once for each part of the state, `step` apart."""
        result: State = []
        for number, part in enumerate(state):
            with self.scope(keep):
                at = self._offset(index, number * step)
                self.enter(dim, at)
                result.append(inside(part))
        return result

    def _offset(self, index: Val, offset: int) -> Val:
        if not offset:
            return index
        if index.name.lstrip("-").isdigit():
            return i64(int(index.name) + offset)
        return self.b.add(index, offset)

    @contextmanager
    def scope(self, keep: bool) -> Iterator[None]:
        """Forget at the end what was computed within, unless it stays in registers."""
        saved = dict(self.env), dict(self.wide), dict(self.places), dict(self.index), self.mask
        yield
        if not keep:
            self.env, self.wide, self.places, self.index, self.mask = saved


def _flat(state: State) -> list[Val]:
    return [value for part in state for value in part]


def _unflat(values: Sequence[Val], parts: int) -> State:
    count = len(values) // parts
    return [list(values[i * count : (i + 1) * count]) for i in range(parts)]
