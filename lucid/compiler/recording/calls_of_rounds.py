"""What the rounds of a loop tell the world, where one is recorded for all: `print(i, loss.item())`.

What the recorded round tells isn't told once, but in each round. What that follows from is stacked
like the items of a list, and each call of the step makes the calls of all rounds of the rows, one
by one. Where a round branches, one more row says which way it has gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lucid.compiler.inputs.late import Bases, Late, bases_of, formula_of, is_late
from lucid.compiler.inputs.objects import SCALARS
from lucid.compiler.inputs.scalars import Formula, is_live
from lucid.compiler.recording.deferred_calls import DeferredCall
from lucid.ir import ops
from lucid.ir.extents import hint
from lucid.ir.graph import Value
from lucid.ir.types import i64
from lucid.tensor.core import TensorCore, constant, of_value
from lucid.tensor.tree import flatten

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder

_MOST_BYTES = 2**14  # that a call of one round is made of


def may_be_of_rounds(call: DeferredCall) -> bool:
    """Whether rounds may tell it: its arguments are copies of numbers and texts, no objects.

    Nor texts of large tensors, all of which would have to be there until the call ends.
    """
    leaves = flatten((call.args, call.kwargs))[0]
    is_known = all(is_late(x) or is_live(x) or type(x) in SCALARS for x in leaves)
    if not is_known or not call.is_said or call.owners:
        return False
    bases = [x for x in bases_of(leaves).values() if not is_live(x)]
    return bool(sum(hint(x.type.nbytes) for x in bases) <= _MOST_BYTES)


class CallsOfRounds(Late):
    """The calls that all rounds make, which a call of the step has as a list.

    Args:
        ways: what the recorded round tells on each of its ways.

    Attributes:
        rows: of each way, what the loop is to stack for its calls.
    """

    __slots__ = ("_calls", "_columns", "_count", "_stacks", "bases", "rows")

    def __init__(self, ways: Sequence[Sequence[DeferredCall]]) -> None:
        self._calls = [[_Template(x) for x in way] for way in ways]
        of_ways = [bases_of(x for call in way for x in call.leaves) for way in self._calls]
        found = {key: x for bases in of_ways for key, x in bases.items()}
        self._columns = {key: x for key, x in found.items() if not is_live(x)}
        self.bases: Bases = {key: x for key, x in found.items() if is_live(x)}
        self.rows: list[list[TensorCore]] = [[] for _ in ways]
        for number, bases in enumerate(of_ways if any(ways) else ()):
            known = [of_value(x) if k in bases else _zeros(x) for k, x in self._columns.items()]
            self.rows[number] = [constant(number, i64), *known]

    def fill(self, recorder: Recorder, rows: Sequence[TensorCore], count: Any) -> None:
        """Have each call of the step make them, of what so many rounds have stacked."""
        if rows:
            self._stacks = [*map(recorder.value_of, rows)]
            self._count = formula_of(count)
            self.bases |= {x: x for x in self._stacks} | bases_of([count])
            calls = [template.call for way in self._calls for template in way]
            recorder.outside.deferred.append(DeferredCall(list, [self], {}, of_rounds=calls))

    @property
    def formula(self) -> Formula:  # type: ignore[override]
        makers = [[template.maker() for template in way] for way in self._calls]
        stacks, columns, count = self._stacks, [*self._columns], self._count

        def formula(known: Any) -> list[DeferredCall]:
            ways, *stacked = (known[x] for x in stacks)
            found: list[DeferredCall] = []
            for i, way in enumerate(ways[: count(known)].tolist()):
                row = known | {key: x[i, ...] for key, x in zip(columns, stacked, strict=True)}
                for made in makers[way]:
                    found += made(row)
            return found

        return formula


class _Template:
    """A call that a round tells, as what only a run knows makes it.

    Attributes:
        leaves: what is in its arguments.
    """

    __slots__ = ("_rebuild", "call", "leaves")

    def __init__(self, call: DeferredCall) -> None:
        self.call = call
        self.leaves, self._rebuild = flatten((call.args, call.kwargs))

    def maker(self) -> Formula:
        """What gives those of a round: more than one where it stands for an inner loop's."""
        formulas, call, rebuild = [*map(formula_of, self.leaves)], self.call, self._rebuild
        return lambda known: call.made(*rebuild([of(known) for of in formulas]))


def _zeros(value: Value) -> TensorCore:
    return ops.broadcast(constant(0, value.dtype), shape=value.shape)
