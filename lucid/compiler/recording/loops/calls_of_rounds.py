"""Deferred calls of a loop's rounds, where one is recorded for all: `print(i, loss.item())`.

The calls of the recorded round are made once for each round. The values that they need are stacked
like the items of a list, and each call of the step makes the calls of all rounds from these rows,
one by one. Where a round branches, one more row says which way it has gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lucid.compiler.inputs.late import Applied, Bases, Late, bases_of, formula_of, is_late
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

_MOST_BYTES = 2**14  # of the values that a round's call is made of


def may_be_of_rounds(call: DeferredCall) -> bool:
    """Whether a deferred call may be made by rounds: its arguments are numbers and texts.

    Texts of large tensors aren't among them: all rounds' elements would be kept until the end.
    """
    leaves, _ = flatten((call.args, call.kwargs))
    is_known = all(is_late(x) or is_live(x) or type(x) in SCALARS for x in leaves)
    if not is_known or not call.is_said or call.owners:
        return False
    bases = [x for x in bases_of(leaves).values() if not is_live(x)]
    return bool(sum(hint(x.type.nbytes) for x in bases) <= _MOST_BYTES)


class CallsOfRounds(Late):
    """The list of all rounds' deferred calls, as each call of the step makes it.

    Args:
        ways: the deferred calls of the recorded round, for each way through it.

    Attributes:
        rows: for each way, the tensors that the loop is to stack.
    """

    __slots__ = ("_calls", "_columns", "_count", "_stacks", "_told", "bases", "rows")

    def __init__(self, ways: Sequence[Sequence[DeferredCall]]) -> None:
        self._told = [call for way in ways for call in way]
        self._calls = [[*map(_made_by, way)] for way in ways]
        of_ways = [*map(bases_of, self._calls)]
        found = {key: x for bases in of_ways for key, x in bases.items()}
        self._columns = {key: x for key, x in found.items() if not is_live(x)}
        self.bases: Bases = {key: x for key, x in found.items() if is_live(x)}
        self.rows: list[list[TensorCore]] = [[] for _ in ways]
        for number, bases in enumerate(of_ways if any(ways) else ()):
            known = [of_value(x) if k in bases else _zeros(x) for k, x in self._columns.items()]
            self.rows[number] = [constant(number, i64), *known]

    def fill(self, recorder: Recorder, rows: Sequence[TensorCore], count: Any) -> None:
        """Let each call of the step make the calls from the stacked rows of `count` rounds."""
        if rows:
            self._stacks = [*map(recorder.value_of, rows)]
            self._count = formula_of(count)
            self.bases |= {x: x for x in self._stacks} | bases_of([count])
            recorder.outside.deferred.append(DeferredCall(list, [self], {}, of_rounds=self._told))

    @property
    def formula(self) -> Formula:  # type: ignore[override]
        makers = [[*map(formula_of, way)] for way in self._calls]
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


def _made_by(call: DeferredCall) -> Applied:
    """The calls that a round's deferred call stands for: several where it is an inner loop's."""
    leaves, rebuild = flatten((call.args, call.kwargs))
    return Applied(lambda *found: call.made(*rebuild([*found])), leaves)


def _zeros(value: Value) -> TensorCore:
    return ops.broadcast(constant(0, value.dtype), shape=value.shape)
