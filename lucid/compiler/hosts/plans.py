"""What a host forward did, said again with the tensors of the trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from lucid.autograd.host_reading import Entry, Evaluated
from lucid.ir.op import Operand
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, of_value
from lucid.tensor.writing import refuse_overlaps

if TYPE_CHECKING:
    from lucid.autograd.function import BackwardCFunction
    from lucid.compiler.hosts.recording import Operands
    from lucid.compiler.recording.recorder import Recorder
    from lucid.ir.graph import Node, Value


def tensors_of(recorder: Recorder, values: Sequence[Value]) -> list[TensorCore]:
    """Tensors of the trace for the results of a node."""
    import weakref

    tensors: list[TensorCore] = []
    for value in values:
        tensor = of_value(value)
        place = None if value.producer is None else value.producer.location
        tensor._line = None if place is None else (place.file, place.line)
        recorder.made.append(weakref.ref(tensor))
        tensors.append(tensor)
    return tensors


class Traced:
    """The tensors of the trace that stand for those of one evaluation.

    Args:
        name: what messages call the user's method.
    """

    def __init__(
        self,
        recorder: Recorder,
        node: Node,
        found: Evaluated,
        operands: Operands,
        name: str,
    ) -> None:
        self._recorder = recorder
        self._found = found
        self._tensors = operands.tensors
        self._inputs = operands.inputs
        self._name = name
        self._results = tensors_of(recorder, node.results)

    def finish(self, ctx: BackwardCFunction) -> Any:
        """Write what was written, fill in the ctx, and give what forward returned."""
        plan = self._found.plan
        assert plan is not None
        for operand, result in plan.written:
            self._write(operand, self._results[result])
        if self._results and ctx._origin is None:
            ctx._origin = self._results[0]._storage.value
        outputs = tuple(self._output(entry, i) for i, entry in enumerate(plan.outputs))
        ctx.materialize_grads = plan.materialize_grads
        ctx.dirty_tensors = self._all(plan.dirty)
        ctx.non_differentiable = self._all(plan.non_differentiable)
        ctx.to_save = None if plan.saved is None else self._all(plan.saved)
        return outputs if plan.is_tuple else outputs[0]

    def _write(self, operand: int, content: TensorCore) -> None:
        target = self._tensors[operand]
        refuse_overlaps(target)
        if context.mutation_guard is not None:
            context.mutation_guard.before_write(target)
        if context.forward is not None:
            context.forward.guard.before_write(target)
        self._recorder.write(target, content)
        target._counter.value += self._found.tensors[operand]._counter.value

    def _all(self, entries: Sequence[Entry]) -> tuple[Any, ...]:
        return tuple(map(self._tensor, entries))

    def _tensor(self, entry: Entry) -> Any:
        kind = entry[0]
        if kind == "none":
            return None
        if kind == "input":
            return self._tensors[entry[1]]
        if kind == "result":
            return self._results[entry[1]]
        if kind == "shared":
            self._recorder.run_op_by_op(
                f"{self._name}, a host call, gives back a part, or a view, of an argument's memory"
            )
        return self._inputs[entry[1]] if kind == "argument" else entry[1]

    def _output(self, entry: Entry, position: int) -> Any:
        value = self._tensor(entry)
        if entry[0] == "other" and not _holds_tensors(value):
            self._refuse(value, position)
        return value

    def _refuse(self, value: Any, position: int) -> NoReturn:
        self._recorder.refuse(
            f"{self._name}, a host call, that returns a value of type {type(value).__name__} at "
            f"position {position}",
            "it would be the same at every call; return it as a tensor, lucid.tensor(value)",
        )


def _holds_tensors(value: Any) -> bool:
    """Whether it is a container that no Function may return; that error is a better one."""
    if not isinstance(value, (list, dict)):
        return False
    values = value.values() if isinstance(value, dict) else value
    return any(isinstance(item, Operand) for item in values)
