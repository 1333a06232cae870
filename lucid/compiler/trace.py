"""Recording a step: arguments become inputs, Python runs once, the outcome becomes a program."""

from __future__ import annotations

import gc
import inspect
import random
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.compiler.arguments import StandIns
from lucid.compiler.cells import ArgumentIsState, Cell, GradUse, ValueGuard
from lucid.compiler.environment import Environment, executed_codes
from lucid.compiler.finishing import Finisher, GradOutcome, refuse_growing_histories
from lucid.compiler.host_recording import LeavesTrace
from lucid.compiler.names import name_inputs
from lucid.compiler.recorder import Recorder, recording
from lucid.compiler.results import Differentiable
from lucid.compiler.scalars import LiveScalar, LiveSource
from lucid.compiler.signature import Call, objects_by_name
from lucid.compiler.watches import Guard, Watch
from lucid.ir.errors import TraceError
from lucid.ir.graph import Graph
from lucid.ir.location import Location
from lucid.ir.strides import Strides, is_contiguous
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage


@dataclass(slots=True, eq=False)
class Trace:
    """A recorded step: the graph, and how its inputs and outputs connect to Python.

    Attributes:
        cells: buffers that are inputs of the graph, with their strides where not contiguous.
        pinned: tensor arguments that are state of the step as well, by position.
        result: the returned tree with an `Outcome` in place of each leaf.
        training: modules' attributes whose "training" the step sets, and to what.
        grad_enabled: the grad mode that the step leaves; None: the one it found.
        undo: takes back the Python state that was created for the step.
    """

    graph: Graph
    guard: Guard
    values: list[ValueGuard]
    live: list[tuple[LiveScalar, LiveSource, bool]]
    cells: list[tuple[Cell, Strides | None]]
    pinned: dict[int, TensorCore]
    grads_read: list[GradUse]
    result: Any
    grads: list[GradOutcome]
    counters: list[tuple[Any, int]]
    effects: list[tuple[Callable[[], object], str]]
    training: list[tuple[Any, bool]]
    grad_enabled: bool | None
    differentiable: Differentiable | None
    undo: Callable[[], None]
    seconds: float = 0.0


def trace(
    function: Callable[..., Any], call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Trace:
    """Run `function` once on traced stand-ins for its arguments, and record what it does.

    Nothing that is concrete changes: state, `.grad`, versions and flags are put back, and what the
    step changed is in the trace. Only one thread may do this at a time. Raises what the function
    raises, and `TraceError`.
    """
    start = time.perf_counter()
    state: set[Storage] = set()
    leaving: set[object] = set()
    while True:
        try:
            found = _record(function, call, args, kwargs, state, frozenset(leaving))
            break
        except ArgumentIsState as error:
            state.add(error.storage)
        except LeavesTrace as error:
            leaving |= error.codes
    found.seconds = time.perf_counter() - start
    return found


@dataclass(slots=True, eq=False)
class _Ran:
    """What is left of the run on traced tensors.

    Attributes:
        handles: what stood for the arguments; nobody should hold it any more.
    """

    outcome: Finisher
    handles: list[weakref.ref[TensorCore]]
    pinned: dict[int, TensorCore]
    training: list[tuple[Any, bool]]
    grad_enabled: bool | None


def _record(
    function: Callable[..., Any],
    call: Call,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    state: set[Storage],
    leaving: frozenset[object],
) -> Trace:
    recorder = Recorder(getattr(function, "__name__", type(function).__name__), leaving)
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None:
        recorder.graph.location = Location(code.co_filename, code.co_firstlineno)
    objects = objects_by_name(function, args, kwargs)
    environment = recorder.environment = Environment(function, objects, leaving)
    ran = _run(recorder, environment, function, call, args, kwargs, state)
    try:
        _refuse_escaped(recorder, ran.handles)
    except BaseException:
        environment.put_back()
        recorder.undo_all()
        raise
    name_inputs(recorder, environment)
    return Trace(
        recorder.graph,
        Guard(environment.watches),
        list(recorder.guards.values()),
        [(s, source, source in recorder.guarded_sources) for s, source in recorder.live.values()],
        [(cell, _strides_of(cell)) for cell in recorder.cells.values() if _is_input(cell)],
        ran.pinned,
        [use for use in recorder.grads.values() if use.was_read],
        ran.outcome.result,
        ran.outcome.grads,
        ran.outcome.counters,
        recorder.effects,
        ran.training,
        ran.grad_enabled,
        ran.outcome.differentiable,
        recorder.undo_all,
    )


def _run(
    recorder: Recorder,
    environment: Environment,
    function: Callable[..., Any],
    call: Call,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    state: set[Storage],
) -> _Ran:
    """Run the function, in a frame of its own: no frame may hold a traced tensor afterwards."""
    generators = _HostGenerators()
    stand_ins = StandIns(recorder, call, function, args, kwargs, state)
    grad_enabled = context.grad_enabled
    failed = True
    try:
        with recording(recorder), executed_codes() as executed:
            result = function(*stand_ins.args, **stand_ins.kwargs)
        left = None if context.grad_enabled == grad_enabled else context.grad_enabled
        recorder.raise_caught()
        refuse_growing_histories(recorder)
        environment.keep_read(executed.codes, recorder.live_arrays)
        training = environment.settle_training()
        _refuse_changed_surroundings(environment)
        stand_ins.refuse_changes()
        generators.refuse_use()
        with recording(recorder):
            outcome = Finisher(recorder, stand_ins.handles).finish(result, function)
        failed = False
    finally:
        context.grad_enabled = grad_enabled
        if failed:
            environment.put_back()
            generators.put_back()
        recorder.restore(failed)
    pinned = stand_ins.pinned
    handles = [weakref.ref(h) for i, h in enumerate(stand_ins.handles) if i not in pinned]
    return _Ran(outcome, handles, pinned, training, left)


def _is_input(cell: Cell) -> bool:
    return cell.value.producer is None and cell.kind != "replaced"


def _strides_of(cell: Cell) -> Strides | None:
    strides = cell.storage.strides
    return None if is_contiguous(cell.storage.root_type.shape, strides) else strides


def _refuse_changed_surroundings(environment: Environment) -> None:
    watch = environment.failure()
    if watch is None:
        return
    if isinstance(watch, Watch):
        found = watch.found()
        if isinstance(found, TensorCore) and found.is_traced:
            raise TraceError(
                f"a traced tensor was kept in {watch.path}, where it means nothing after the call\n"
                f"  {found._describe()}\n"
                "hint: return it, or keep the state in a tensor made outside and write that in "
                f"place: {watch.path}.copy_(value)"
            )
    raise TraceError(
        f"Python state changed while the step was traced: {watch.failure()}\n"
        "That would happen once, at this trace, and not at every call.\n"
        "hint: keep the count in a tensor and write it in place (self.n.add_(1)), return the "
        "value, or change it outside of the compiled function"
    )


class _HostGenerators:
    """The states of Python's and NumPy's global random generators before a trace."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy = np.random.get_state()

    def refuse_use(self) -> None:
        """Raise when numbers were drawn: the program would have them as constants."""
        for name, now, before in (
            ("random", random.getstate(), self._python),
            ("numpy.random", np.random.get_state(), self._numpy),
        ):
            if repr(now) != repr(before):
                raise TraceError(
                    f"{name} was used while the step was traced: its numbers would be the same at "
                    "every call\n"
                    "hint: draw with lucid.rand, lucid.randn or lucid.randint, which are part of "
                    "the step, or pass the numbers as arguments"
                )

    def put_back(self) -> None:
        random.setstate(self._python)
        np.random.set_state(self._numpy)


def _refuse_escaped(recorder: Recorder, handles: list[weakref.ref[TensorCore]]) -> None:
    """Raise when a traced tensor is still held by somebody."""
    recorder.forget_arguments()
    references = [*handles, *recorder.made]
    if any(reference() is not None for reference in references):
        gc.collect()
        escaped = [tensor for reference in references if (tensor := reference()) is not None]
        if escaped:
            lines = "\n".join(f"  {tensor._describe()}" for tensor in escaped[:4])
            count = "a traced tensor" if len(escaped) == 1 else f"{len(escaped)} traced tensors"
            raise TraceError(
                f"{count} escaped from the compiled function, kept in a list, an attribute or a "
                f"global:\n{lines}\n"
                "hint: return them, or keep tensor.detach() of a result outside"
            )
    recorder.made.clear()
