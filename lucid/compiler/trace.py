"""Recording a step: arguments become inputs, Python runs once, the outcome becomes a program."""

from __future__ import annotations

import gc
import inspect
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.autograd.outputs import reaches_freed
from lucid.compiler.environment import Environment, executed_codes
from lucid.compiler.recorder import Cell, GradUse, Recorder, recording
from lucid.compiler.results import Differentiable, flat_tensors, leaves_of
from lucid.compiler.scalars import LiveSource, is_live
from lucid.compiler.signature import Call
from lucid.compiler.tree import map_tree
from lucid.ir.errors import TraceError
from lucid.ir.graph import Graph, Value
from lucid.ir.location import Location
from lucid.ir.strides import Strides, is_contiguous
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, ViewChain, _new
from lucid.tensor.storage import Storage
from lucid.tensor.tensor import Tensor

_one_at_a_time = threading.RLock()


class FromProgram:
    """A result that the program computes: one of its outputs, seen through a view chain."""

    __slots__ = ("chain", "freed", "requires_grad", "slot")

    def __init__(self, slot: int, chain: ViewChain, requires_grad: bool, freed: bool) -> None:
        self.slot = slot
        self.chain = chain
        self.requires_grad = requires_grad
        self.freed = freed


class FromCell:
    """A result that is an argument or a state tensor, or a view of one."""

    __slots__ = ("cell", "chain")

    def __init__(self, cell: Cell, chain: ViewChain) -> None:
        self.cell = cell
        self.chain = chain


class FromLive:
    """A Python float that the program computes."""

    __slots__ = ("slot",)

    def __init__(self, slot: int) -> None:
        self.slot = slot


class Same:
    """A result that doesn't depend on the call."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


Outcome = FromProgram | FromCell | FromLive | Same


@dataclass(slots=True, eq=False)
class GradOutcome:
    """What a leaf's `.grad` is after the step."""

    use: GradUse
    outcome: Outcome


@dataclass(slots=True, eq=False)
class Trace:
    """A recorded step: the graph, and how its inputs and outputs connect to Python."""

    graph: Graph
    recorder: Recorder
    environment: Environment
    cells: list[Cell]
    strides: list[Strides | None]
    result: Any  # a tree with an Outcome in place of each leaf
    grads: list[GradOutcome]
    seconds: float
    counters: list[tuple[Any, int]]
    differentiable: Differentiable | None


def trace(
    function: Callable[..., Any], call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Trace:
    """Run `function` once on traced stand-ins for its arguments, and record what it does.

    Nothing that is concrete changes: state, `.grad`, versions and flags are put back, and what the
    step changed is in the trace. Raises what the function raises, and `TraceError`.
    """
    start = time.perf_counter()
    with _one_at_a_time:
        recorder = Recorder(getattr(function, "__name__", type(function).__name__))
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is not None:
            recorder.graph.location = Location(code.co_filename, code.co_firstlineno)
        environment = Environment(function, _objects_by_name(call))
        recorder.environment = environment
        traced_args, traced_kwargs, handles = _stand_ins(recorder, call, function, args, kwargs)
        grad_enabled = context.grad_enabled
        failed = True
        try:
            with recording(recorder), executed_codes() as executed:
                result = function(*traced_args, **traced_kwargs)
            environment.keep_read(executed)
            _refuse_changed_surroundings(environment)
            with recording(recorder):
                outcome = _Finisher(recorder, handles).finish(result, function)
            failed = False
        finally:
            context.grad_enabled = grad_enabled
            if failed:
                environment.put_back()
            recorder.restore(failed)
        del result, traced_args, traced_kwargs
        _refuse_escaped(recorder, handles)
        _name_inputs(recorder, environment)
    strides = [_strides_of(cell) for cell in recorder.cells.values() if _is_input(recorder, cell)]
    cells = [cell for cell in recorder.cells.values() if _is_input(recorder, cell)]
    return Trace(
        recorder.graph,
        recorder,
        environment,
        cells,
        strides,
        outcome.result,
        outcome.grads,
        time.perf_counter() - start,
        outcome.counters,
        outcome.differentiable,
    )


def _objects_by_name(call: Call) -> dict[str, Any]:
    return {f"argument {type(value).__name__}": value for value in call.objects}


def _is_input(recorder: Recorder, cell: Cell) -> bool:
    return cell.value.producer is None


def _strides_of(cell: Cell) -> Strides | None:
    strides = cell.storage.strides
    return None if is_contiguous(cell.storage.root_type.shape, strides) else strides


def _stand_ins(
    recorder: Recorder,
    call: Call,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Any, Any, list[Tensor]]:
    """The arguments with a traced handle for each tensor and a live scalar for each float."""
    handles: list[Tensor] = []
    by_storage: dict[Storage, Tensor] = {}
    tensors = iter(call.tensors)
    floats = iter(range(len(call.floats)))
    names = _argument_names(function, args, kwargs)

    def stand_in(leaf: Any, path: str) -> Any:
        if isinstance(leaf, (TensorCore, np.ndarray)):
            handle = _handle(recorder, next(tensors), len(handles), by_storage)
            recorder.cells[handle._storage].value.name = path.partition("[")[0].partition(".")[0]
            handles.append(handle)
            return handle
        if type(leaf) is float or isinstance(leaf, np.floating):
            i = next(floats)
            return recorder.live_scalar(LiveSource(path, None, i), call.floats[i])
        return leaf

    new_args = tuple(
        map_tree(stand_in, value, name) for value, name in zip(args, names, strict=False)
    )
    new_kwargs = {name: map_tree(stand_in, kwargs[name], name) for name in sorted(kwargs)}
    return new_args, new_kwargs, handles


def _argument_names(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[str]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "arg")
    extra = len(args) - len(names)
    return names[: len(args)] + [f"{variadic}_{i}" for i in range(max(extra, 0))]


def _handle(
    recorder: Recorder, tensor: TensorCore, position: int, by_storage: dict[Storage, Tensor]
) -> Tensor:
    """A leaf that stands for an argument; arguments on the same memory stand on the same cell."""
    array = tensor._array
    if array is None:
        raise TraceError(f"argument {position} belongs to a trace that has ended")
    same = by_storage.get(tensor._storage)
    if same is not None and same.type == tensor.type:
        return same
    storage = Storage.of_array(array)
    handle = _new(storage, tensor.type, array, ())
    handle._line = tensor._line
    handle._requires_grad = tensor.requires_grad
    handle._grad = tensor._grad
    handle.__dict__["_is_argument"] = True
    recorder.add_cell(storage, "arg", position)
    by_storage[tensor._storage] = handle
    return handle


class _Finisher:
    """Turns what Python holds at the end of a trace into outputs and writes of the graph."""

    def __init__(self, recorder: Recorder, handles: list[Tensor]) -> None:
        self.recorder = recorder
        self.handles = handles
        self.slots: dict[Any, int] = {}
        self.result: Any = None
        self.grads: list[GradOutcome] = []
        self.counters: list[tuple[Any, int]] = []
        self.differentiable: Differentiable | None = None

    def finish(self, result: Any, function: Callable[..., Any]) -> _Finisher:
        recorder = self.recorder
        self.result = map_tree(self._outcome, result)
        self._find_differentiable(result, function)
        for use in recorder.grads.values():
            if use.was_set and use.leaf._grad is not use.original:
                grad = use.leaf._grad
                outcome = Same(None) if grad is None else self._outcome(grad, ".grad")
                self.grads.append(GradOutcome(use, outcome))
        for storage, cell in recorder.cells.items():
            if cell.is_written:
                assert storage.value is not None
                recorder.graph.writes.append((cell.value, storage.value))
        self._check_histories()
        self._count_versions()
        return self

    def _slot(self, key: Any, value: Value) -> int:
        if key not in self.slots:
            self.slots[key] = len(self.recorder.graph.outputs)
            self.recorder.graph.outputs.append(value)
        return self.slots[key]

    def _outcome(self, leaf: Any, path: str) -> Outcome:
        recorder = self.recorder
        if is_live(leaf):
            return FromLive(self._slot(leaf.value, leaf.value))
        if not isinstance(leaf, TensorCore):
            return Same(leaf)
        storage = leaf._storage
        cell = recorder.cells.get(storage)
        if cell is not None and cell.kind != "constant":
            if leaf._array is not None and cell.kind != "arg":
                return Same(leaf)
            if not leaf.requires_grad or leaf.is_leaf:
                return FromCell(cell, leaf._chain)
        recorder.value_of(leaf)
        if storage.recorder is not recorder or (leaf._array is not None and cell is None):
            return Same(leaf)
        assert storage.value is not None
        requires = leaf.requires_grad
        return FromProgram(
            self._slot(storage, storage.value),
            leaf._chain,
            requires,
            requires and reaches_freed(leaf),
        )

    def _find_differentiable(self, result: Any, function: Callable[..., Any]) -> None:
        """Note which results can be differentiated outside, and with respect to what."""
        tensors = flat_tensors(result)
        positions = [
            i
            for i, tensor in enumerate(tensors)
            if tensor.grad_fn is not None
            and tensor._storage.array is None
            and not reaches_freed(tensor)
        ]
        if not positions:
            return
        written = [cell for cell in self.recorder.cells.values() if cell.is_written]
        self.differentiable = Differentiable(
            function,
            positions,
            leaves_of([tensors[i] for i in positions], self.handles),
            [cell.storage for cell in written if cell.kind == "state"],
            [cell.position for cell in written if cell.kind == "arg"],
        )

    def _check_histories(self) -> None:
        for tensor, history in self.recorder.histories.values():
            cell = self.recorder.cells.get(tensor._storage)
            if (
                tensor._requires_grad
                and tensor._grad_fn is not history[0]
                and (cell is not None and cell.kind != "constant")
            ):
                raise TraceError(
                    "a tensor from outside of the compiled function was written with a value that "
                    f"requires grad, so its history would grow with every call\n"
                    f"  {tensor._describe()}\n"
                    "hint: write under lucid.no_grad(), or detach() the value"
                )

    def _count_versions(self) -> None:
        positions = {handle._counter: i for i, handle in enumerate(self.handles)}
        for counter, before in self.recorder.counters.items():
            delta = counter.value - before
            if delta:
                self.counters.append((positions.get(counter, counter), delta))


def _refuse_changed_surroundings(environment: Environment) -> None:
    failure = environment.failure(modules_too=True)
    if failure is not None:
        raise TraceError(
            f"Python state changed while the step was traced: {failure}\n"
            "That would happen once, at this trace, and not at every call.\n"
            "hint: keep the count in a tensor and write it in place (self.n.add_(1)), return the "
            "value, or change it outside of the compiled function"
        )


def _refuse_escaped(recorder: Recorder, handles: list[Tensor]) -> None:
    """Raise when a traced tensor is still held by somebody."""
    handles.clear()
    for use in recorder.grads.values():
        if use.leaf.__dict__.get("_is_argument"):
            use.leaf._grad = None
    alive = [reference for reference in recorder.made if reference() is not None]
    if alive:
        gc.collect()
        escaped = [tensor for reference in alive if (tensor := reference()) is not None]
        if escaped:
            lines = "\n".join(f"  {tensor._describe()}" for tensor in escaped[:4])
            raise TraceError(
                f"{len(escaped)} traced tensor(s) escaped from the compiled function, kept in a "
                f"list, an attribute or a global:\n{lines}\n"
                "hint: return them, or keep tensor.detach() of a result outside"
            )
    recorder.made.clear()


def _name_inputs(recorder: Recorder, environment: Environment) -> None:
    """Give inputs of the graph the user's expressions for them."""
    names = environment.storage_names()
    inputs = {entry.value: entry for entry in recorder.graph.inputs}
    for entry in inputs.values():
        if entry.kind == "live":
            entry.value.name = _identifier(entry.source)
    for storage, cell in recorder.cells.items():
        entry = inputs.get(cell.value)
        if entry is None or cell.kind == "arg":
            continue
        if cell.kind == "constant":
            entry.source = "a constant made inside of the step"
            continue
        entry.source = names.get(storage, "")
        if cell.leaf is not None:
            entry.source = names.get(cell.leaf._storage, "") + ".grad"
        entry.value.name = _identifier(entry.source)


def _identifier(source: str) -> str:
    """A short name for a value from the user's expression: `opt.param_groups[0]['lr']` is `lr`."""
    words: list[str] = re.findall(r"[A-Za-z_]\w*|\d+", source)
    for holder, skipped in (("param_groups", 2), ("state", 1)):
        if holder in words[:-skipped]:
            words = words[words.index(holder) + skipped :]
    return "_".join(words[-5:]).strip("_")
