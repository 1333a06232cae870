"""Merging of loops that don't need each other, but read the same array: it is then read once."""

from __future__ import annotations

from bisect import bisect_right
from math import prod
from typing import TYPE_CHECKING

from lucid.codegen import costs
from lucid.codegen.kernel_ir.affine import IndexMap, SplitNeeded, dot, unbroadcast
from lucid.codegen.lower.groups import LONG_ROW, OTHER_LOOPS, TOO_MUCH, FusionGroup
from lucid.codegen.lower.item import Item, reads_elements
from lucid.ir import ops
from lucid.ir.graph import Value
from lucid.ir.passes.rewrite import uniform

if TYPE_CHECKING:
    from lucid.codegen.lower.fuse import Fusion

Read = tuple[Item, Value]


def merge_siblings(fusion: Fusion) -> None:
    """Let groups that read an array at all their indices be one, if neither waits for the other."""
    for reads in _reads_of_all(fusion).values():
        alike: dict[int, list[Read]] = {}
        for read in reads:
            alike.setdefault(prod(fusion.group_of[read[0]].sizes.values()), []).append(read)
        for same in alike.values():
            _Siblings(fusion, same).merge()
    _merge_constants(fusion)


def _merge_constants(fusion: Fusion) -> None:
    """Let groups that store nothing but single constants be one: a kernel fills a table."""
    whole: FusionGroup | None = None
    for group in [*fusion.groups.values()]:
        (item, *others) = group.items
        if group.sizes or others or item.op != "store" or uniform(item.operands[0]) is None:
            continue
        waits = fusion.precedence.waits
        if (
            whole is None
            or len(whole.items) == costs.NUMBERS
            or waits(whole.number, group.number)
            or waits(group.number, whole.number)
            or not fusion.absorb(whole, group, {})
        ):
            whole = group


class _Siblings:
    """Reads of an array by loops of as many rounds, by what their groups cost at least.

    Each takes in, in order, those behind it that it can. Only groups that cost little enough are
    looked at, so that many which all read one number aren't compared with each other.
    """

    def __init__(self, fusion: Fusion, reads: list[Read]) -> None:
        self._fusion, self._reads = fusion, reads
        self._by_cost: dict[int, list[int]] = {}
        self._of_group: dict[FusionGroup, list[int]] = {}
        for number, (item, _) in enumerate(reads):
            group = fusion.group_of[item]
            self._by_cost.setdefault(group.cost, []).append(number)
            self._of_group.setdefault(group, []).append(number)
        self._gone = [False] * len(reads)

    def merge(self) -> None:
        """Merge all groups that can be."""
        for first, (item, _) in enumerate(self._reads):
            if self._gone[first]:
                continue
            group = self._fusion.group_of[item]
            self._drop(group, first)
            other = self._next(group, first)
            while other is not None and (group.sizes or len(group.items) < costs.STRAIGHT):
                old = self._fusion.group_of[self._reads[other][0]]
                if _try(self._fusion, self._reads[first], self._reads[other]):
                    self._drop(old, other - 1)
                    self._of_group[group] += self._of_group.pop(old)
                other = self._next(group, other)
            self._note_too_much(group, first)

    def _drop(self, group: FusionGroup, after: int) -> None:
        """Let go of the reads of a group behind one of them: they are in that one's by now."""
        for number in self._of_group[group]:
            if number > after:
                self._gone[number] = True

    def _note_too_much(self, group: FusionGroup, first: int) -> None:
        """Note of the next read whose group costs too much that it stays apart."""
        behind: list[int] = []
        for cost, numbers in self._by_cost.items():
            at = bisect_right(numbers, first)
            if group.cost + cost > costs.LOOP and at < len(numbers):
                other = self._fusion.group_of[self._reads[numbers[at]][0]]
                behind += [numbers[at]] if other is not group else []
        if behind:
            pair = self._reads[first][0], self._reads[min(behind)][0]
            self._fusion.beside[pair] = TOO_MUCH

    def _next(self, group: FusionGroup, after: int) -> int | None:
        """The next read whose group may be taken in by this one."""
        found: int | None = None
        for cost, numbers in self._by_cost.items():
            if group.cost + cost > costs.LOOP:
                continue
            at = bisect_right(numbers, after)
            while at < len(numbers) and self._gone[numbers[at]]:
                del numbers[at]
            if at < len(numbers) and (found is None or numbers[at] < found):
                found = numbers[at]
        return found


def _reads_of_all(fusion: Fusion) -> dict[Value, list[Read]]:
    """For each value in memory one read of every loop that goes through all of it."""
    found: dict[Value, dict[FusionGroup, Read]] = {}
    for item, group in fusion.group_of.items():
        if group.kind != "loop" or group.closed or not reads_elements(item):
            continue
        for operand in fusion.source.reads(item):
            base = fusion.source.base(operand)
            producer = fusion.computed.get(base)
            inside = producer is not None and producer in group.forms
            if not inside and _reads_everywhere(fusion, item, operand):
                found.setdefault(base, {}).setdefault(group, (item, operand))
    return {value: list(reads.values()) for value, reads in found.items() if len(reads) > 1}


def _forms(fusion: Fusion, read: Read, group: FusionGroup) -> IndexMap | None:
    item, operand = read
    at = group.operand_forms.get(item, group.forms[item])
    return fusion.operand_forms_of(operand, at, group)


def _reads_everywhere(fusion: Fusion, item: Item, operand: Value) -> bool:
    """Whether an operand differs for each round, and is read from the beginning of its array.

    What a map reads is then an element of its own for each round: a number that is repeated would
    be compared with all that read it, and the dims of those can't be told from it.
    """
    group = fusion.group_of[item]
    at = group.operand_forms.get(item, group.forms[item])
    dims = frozenset[int]().union(*(f.dims for f in unbroadcast(operand.shape, at)))
    views = fusion.views(operand)
    if not group.reduced and any(view.op is ops.broadcast for view in views):
        return False
    slices = (view for view in views if view.op is ops.slice)
    return dims == set(group.sizes) and not any(any(x.attributes["starts"]) for x in slices)


def _try(fusion: Fusion, read: Read, other_read: Read) -> bool:
    """Merge the groups of two reads; whether they are one now. If not, note why."""
    group, other = fusion.group_of[read[0]], fusion.group_of[other_read[0]]
    if group is other:
        return True
    why = _refusal(fusion, read, other_read)
    if why:
        fusion.beside[read[0], other_read[0]] = why
    return not why


def _refusal(fusion: Fusion, read: Read, other_read: Read) -> str:
    """Why the groups of two reads can't be one; empty if they are now."""
    group, other = fusion.group_of[read[0]], fusion.group_of[other_read[0]]
    if group.cost + other.cost > costs.LOOP:
        return TOO_MUCH
    waits = fusion.precedence.waits
    if waits(group.number, other.number) or waits(other.number, group.number):
        return "one has to wait for the other"
    while True:
        try:
            return _merged(fusion, read, other_read)
        except SplitNeeded as needed:
            (group if needed.dim in group.sizes else other).split(needed.dim, needed.inner)


def _merged(fusion: Fusion, read: Read, other_read: Read) -> str:
    group, other = fusion.group_of[read[0]], fusion.group_of[other_read[0]]
    here, there = _forms(fusion, read, group), _forms(fusion, other_read, other)
    if here is None or there is None:
        return OTHER_LOOPS
    names = fusion.unify(here, there, group, other)
    if names is None or {names.get(dim, dim) for dim in other.sizes} != set(group.sizes):
        return OTHER_LOOPS
    reduced = frozenset(names.get(dim, dim) for dim in other.reduced)
    if group.reduced != reduced and not _runs_well(fusion, read, group.reduced | reduced):
        return "along the axis that one of them sums, vectors aren't adjacent in memory"
    if group.reduced and reduced and group.reduced != reduced:
        return "they sum over different axes"
    return "" if fusion.absorb(group, other, names) else LONG_ROW


def _runs_well(fusion: Fusion, read: Read, reduced: frozenset[int]) -> bool:
    """Whether a map may run along with a reduction: along lines, or with sums that stay near."""
    group = fusion.group_of[read[0]]
    forms = _forms(fusion, read, group)
    assert forms is not None
    address = dot(forms, fusion.source.layout(fusion.source.base(read[1])).strides)
    adjacent = [dim for dim in group.sizes if address.coefficient(dim) == 1]
    return any(dim in reduced or group.sizes[dim] <= costs.COLUMNS for dim in adjacent)
