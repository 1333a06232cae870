"""Merging of loops that don't need each other, but read the same array: it is then read once."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from lucid.codegen import costs
from lucid.codegen.kernel_ir.affine import IndexMap, SplitNeeded, dot, unbroadcast
from lucid.codegen.lower.groups import FusionGroup
from lucid.codegen.lower.item import Item, reads_elements
from lucid.ir.graph import Value

if TYPE_CHECKING:
    from lucid.codegen.lower.fuse import Fusion

Read = tuple[Item, Value]


def merge_siblings(fusion: Fusion) -> None:
    """Let groups that read an array at all their indices be one, if neither waits for the other."""
    for reads in _reads_of_all(fusion).values():
        rounds = [prod(fusion.group_of[item].sizes.values()) for item, _ in reads]
        alike: dict[int, list[Read]] = {}
        for count, read in zip(rounds, reads, strict=True):
            alike.setdefault(count, []).append(read)
        least = {n: min(fusion.group_of[item].cost for item, _ in alike[n]) for n in alike}
        for count, first in zip(rounds, reads, strict=True):
            rest = alike[count]
            if rest and rest[0] is first:
                alike[count] = _merge_into(fusion, first, rest[1:], costs.LOOP - least[count])


def _merge_into(fusion: Fusion, first: Read, others: list[Read], most: int) -> list[Read]:
    """Let the group of a read take in those of others, while it costs at most so much.

    Returns the others that it has not taken in.
    """
    rest: list[Read] = []
    for number, other in enumerate(others):
        if fusion.group_of[first[0]].cost > most:
            return [*rest, *others[number:]]
        if not _try(fusion, first, other):
            rest.append(other)
    return rest


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
            if not inside and _reads_everywhere(item, operand, group):
                found.setdefault(base, {}).setdefault(group, (item, operand))
    return {value: list(reads.values()) for value, reads in found.items() if len(reads) > 1}


def _forms(fusion: Fusion, read: Read, group: FusionGroup) -> IndexMap | None:
    item, operand = read
    at = group.operand_forms.get(item, group.forms[item])
    return fusion.operand_forms_of(operand, at, group)


def _reads_everywhere(item: Item, operand: Value, group: FusionGroup) -> bool:
    at = group.operand_forms.get(item, group.forms[item])
    dims = frozenset[int]().union(*(f.dims for f in unbroadcast(operand.shape, at)))
    return dims == set(group.sizes)


def _try(fusion: Fusion, read: Read, other_read: Read) -> bool:
    """Merge the groups of two reads; whether they are one now."""
    group, other = fusion.group_of[read[0]], fusion.group_of[other_read[0]]
    if group is other:
        return True
    if group.cost + other.cost > costs.LOOP:
        return False
    waits = fusion.precedence.waits
    if waits(group.number, other.number) or waits(other.number, group.number):
        return False
    while True:
        try:
            return _merge(fusion, read, other_read)
        except SplitNeeded as needed:
            (group if needed.dim in group.sizes else other).split(needed.dim, needed.inner)


def _merge(fusion: Fusion, read: Read, other_read: Read) -> bool:
    group, other = fusion.group_of[read[0]], fusion.group_of[other_read[0]]
    here, there = _forms(fusion, read, group), _forms(fusion, other_read, other)
    if here is None or there is None:
        return False
    names = fusion.unify(here, there, group, other)
    if names is None or {names.get(dim, dim) for dim in other.sizes} != set(group.sizes):
        return False
    reduced = frozenset(names.get(dim, dim) for dim in other.reduced)
    if group.reduced != reduced and not _runs_well(fusion, read, group.reduced | reduced):
        return False
    if group.reduced and reduced and group.reduced != reduced:
        return False
    return fusion.absorb(group, other, names)


def _runs_well(fusion: Fusion, read: Read, reduced: frozenset[int]) -> bool:
    """Whether a map may run along with a reduction: along lines, or with sums that stay near."""
    group = fusion.group_of[read[0]]
    forms = _forms(fusion, read, group)
    assert forms is not None
    address = dot(forms, fusion.source.layout(fusion.source.base(read[1])).strides)
    adjacent = [dim for dim in group.sizes if address.coefficient(dim) == 1]
    return any(dim in reduced or group.sizes[dim] <= costs.COLUMNS for dim in adjacent)
