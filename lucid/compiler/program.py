"""A compiled step: guards, the native executable, and the Python border around its call."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from lucid.autograd.engine import accumulate
from lucid.compiler.recorder import Cell, GradUse
from lucid.compiler.results import CompiledBackward, flat_tensors, freed_history
from lucid.compiler.scalars import LiveSource
from lucid.compiler.signature import Call
from lucid.compiler.trace import FromCell, FromLive, FromProgram, Outcome, Same, Trace
from lucid.compiler.tree import map_tree
from lucid.ir.errors import LucidError
from lucid.ir.graph import Graph
from lucid.ir.passes.pipeline import optimize
from lucid.ir.passes.regions import inline_calls, outline_regions
from lucid.runtime.executable import Executable, compile_graph
from lucid.tensor.context import context, epoch
from lucid.tensor.core import TensorCore, _new, of_array
from lucid.tensor.storage import Storage
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import replay


class Program:
    """One recorded step, compiled for one signature.

    Attributes:
        stages: text of each stage of the compiler, by name, in order.
        executable: the native program.
        compile_seconds: tracing and compiling together.
    """

    def __init__(self, trace: Trace, is_pure: bool) -> None:
        self.trace = trace
        if is_pure:
            trace.graph.writes.clear()
            trace.grads.clear()
            trace.counters.clear()
            trace.recorder.effects.clear()
        self.stages: dict[str, str] = {}
        self._watches, self._module_watches = trace.environment.split()
        self._epoch = epoch.count
        self._sharing_checked = False
        self._guards = list(trace.recorder.guards.values())
        self._live = [source for _, source in trace.recorder.live.values()]
        guarded = trace.recorder.guarded_sources
        self._guarded = [
            (source, scalar.now)
            for scalar, source in trace.recorder.live.values()
            if source in guarded
        ]
        self._grads_read = [use for use in trace.recorder.grads.values() if use.was_read]
        self._effects = trace.recorder.effects
        self._inputs = self._input_readers(trace.graph)
        self._cells = {cell.value: cell for cell in trace.cells}
        self.executable = self._compile(trace)
        self.compile_seconds = trace.seconds + self.executable.compile_seconds

    def _compile(self, trace: Trace) -> Executable:
        graph = trace.graph
        by_value = {
            cell.value: strides for cell, strides in zip(trace.cells, trace.strides, strict=True)
        }
        strides = [by_value.get(entry.value) for entry in graph.inputs]
        graph.drop_dead_nodes()
        outline_regions(graph)
        self.stages["trace"] = str(graph)
        self.structured = self.stages["trace"]
        inline_calls(graph)
        self.stages["inline"] = str(graph)
        optimize(graph)
        self.stages["optimize"] = str(graph)
        executable = compile_graph(graph, strides=strides)
        self.stages.update(executable.stages)
        return executable

    # ------------------------------------------------------------------ guards

    def failed_guard(self, call: Call) -> str | None:
        """Why this program doesn't hold any more for a call of its signature; None if it does."""
        for watch in self._watches:
            if not watch.holds():
                return watch.failure()
        for guard in self._guards:
            failure = guard.failure()
            if failure is not None:
                return failure
        for source, expected in self._guarded:
            found = self._read_live(source, call)
            if not (found == expected or (found != found and expected != expected)):
                return f"{source.text} (a branch looked at it): {expected!r} -> {found!r}"
        for use in self._grads_read:
            failure = self._grad_failure(use, call)
            if failure is not None:
                return failure
        if epoch.count != self._epoch:
            now = epoch.count
            for watch in self._module_watches:
                if not watch.holds():
                    return watch.failure()
            self._epoch = now
        return None

    def _leaf(self, use: GradUse, call: Call) -> TensorCore:
        if use.leaf.__dict__.get("_is_argument"):
            return call.tensors[self._position(use.leaf)]
        return use.leaf

    def _position(self, handle: TensorCore) -> int:
        return self.trace.recorder.cells[handle._storage].position

    def _grad_failure(self, use: GradUse, call: Call) -> str | None:
        found = self._leaf(use, call)._grad
        if (found is None) != (use.original is None):
            states = ("None", "a tensor")
            before, now = use.original is not None, found is not None
            return f".grad of {use.leaf.type}: {states[before]} -> {states[now]}"
        if found is None or use.original is None:
            return None
        if found.type != use.original.type or found.requires_grad != use.original.requires_grad:
            return f".grad of {use.leaf.type}: {use.original.type} -> {found.type}"
        return None

    # ------------------------------------------------------------------ calling

    def _read_live(self, source: LiveSource, call: Call) -> float:
        if source.argument is not None:
            return call.floats[source.argument]
        assert source.read is not None
        return float(source.read())

    def _input_readers(self, graph: Graph) -> list[Callable[[Call], Any]]:
        """One reader per input of the graph."""
        cells = {cell.value: cell for cell in self.trace.cells}
        live = {scalar.value: source for scalar, source in self.trace.recorder.live.values()}
        readers: list[Callable[[Call], Any]] = []
        for entry in graph.inputs:
            if entry.value in live:
                readers.append(self._live_reader(live[entry.value]))
            else:
                readers.append(self._cell_reader(cells[entry.value]))
        return readers

    def _live_reader(self, source: LiveSource) -> Callable[[Call], Any]:
        return lambda call: self._read_live(source, call)

    def _cell_reader(self, cell: Cell) -> Callable[[Call], Any]:
        if cell.kind == "arg":
            position = cell.position
            return lambda call: call.tensors[position]._array
        if cell.kind == "grad":
            return lambda call: self._grad_storage(cell, call).array
        storage = cell.storage
        return lambda call: storage.array

    def _grad_storage(self, cell: Cell, call: Call) -> Storage:
        leaf = cell.leaf
        assert leaf is not None
        if leaf.__dict__.get("_is_argument"):
            leaf = call.tensors[self._position(leaf)]
        assert leaf._grad is not None
        return leaf._grad._storage

    def run(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the native step, then leave `.grad`, versions and results as eager would."""
        rule = self.trace.differentiable
        if rule is not None:
            before = tuple(of_array(np.array(storage.array)) for storage in rule.written)
            if rule.written_args:
                args, kwargs = _with_copies(args, kwargs, rule.written_args)
        arrays = [read(call) for read in self._inputs]
        if not self._sharing_checked:
            _check_sharing(self.trace.graph, arrays)
            self._sharing_checked = True
        outputs = self.executable.call(arrays)
        for target, delta in self.trace.counters:
            counter = call.tensors[target]._counter if isinstance(target, int) else target
            counter.value += delta
        made: dict[int, Tensor] = {}
        for entry in self.trace.grads:
            leaf = self._leaf(entry.use, call)
            grad = self._result(entry.outcome, outputs, made, call)
            if leaf._grad_fn is not None and grad is not None:
                accumulate(leaf, grad)
            else:
                leaf._grad = grad
        result = map_tree(
            lambda outcome, _: self._result(outcome, outputs, made, call), self.trace.result
        )
        for effect, _ in self._effects:
            effect()
        if rule is not None:
            tensors = flat_tensors(result)
            outputs_with_history = [tensors[i] for i in rule.outputs]
            CompiledBackward(rule, call, args, kwargs, outputs_with_history, before)
        return result

    def _result(
        self, outcome: Outcome, outputs: list[np.ndarray], made: dict[int, Tensor], call: Call
    ) -> Any:
        if isinstance(outcome, Same):
            return outcome.value
        if isinstance(outcome, FromLive):
            return float(outputs[outcome.slot])
        if isinstance(outcome, FromCell):
            return self._cell_view(outcome, call)
        root = made.get(outcome.slot)
        if root is None:
            root = made[outcome.slot] = of_array(outputs[outcome.slot])
        return _viewed(root, outcome)

    def _cell_view(self, outcome: FromCell, call: Call) -> Any:
        cell = outcome.cell
        if cell.kind == "arg":
            tensor = call.tensors[cell.position]
            return _replayed(tensor, outcome.chain) if outcome.chain else tensor
        storage = cell.storage if cell.kind != "grad" else self._grad_storage(cell, call)
        assert storage.array is not None
        return _replayed(_new(storage, storage.root_type, storage.array, ()), outcome.chain)


def _with_copies(args: Any, kwargs: Any, positions: list[int]) -> Any:
    """The arguments, with those at `positions` among the tensors copied before they are written."""
    count = itertools.count()

    def copied(leaf: Any, _: str) -> Any:
        if not isinstance(leaf, (TensorCore, np.ndarray)):
            return leaf
        if next(count) not in positions:
            return leaf
        copy = of_array(np.array(leaf._array if isinstance(leaf, TensorCore) else leaf))
        if isinstance(leaf, TensorCore):
            copy._requires_grad = leaf.requires_grad
        return copy

    return map_tree(copied, (args, kwargs))


def _replayed(tensor: TensorCore, chain: Any) -> Any:
    before = context.grad_enabled
    context.grad_enabled = False
    try:
        return replay(tensor, chain)
    finally:
        context.grad_enabled = before


def _viewed(root: Tensor, outcome: FromProgram) -> Tensor:
    tensor: Tensor = _replayed(root, outcome.chain) if outcome.chain else root
    if outcome.requires_grad and outcome.freed:
        freed_history(tensor)
    return tensor


def _check_sharing(graph: Graph, arrays: list[Any]) -> None:
    """Raise when a buffer that the step writes shares memory with another of its inputs."""
    written = {cell for cell, _ in graph.writes}
    inputs = [
        (entry, array)
        for entry, array in zip(graph.inputs, arrays, strict=True)
        if isinstance(array, np.ndarray)
    ]
    for entry, array in inputs:
        for other, second in inputs if entry.value in written else ():
            if other is not entry and np.shares_memory(array, second):
                names = [e.source or e.value.name for e in (entry, other)]
                raise LucidError(
                    f"two inputs of the step share memory, and one is written: {names[0]} and "
                    f"{names[1]}\nhint: clone() one of them"
                )
