"""Recording a step: arguments become inputs, Python runs once, the outcome becomes a program."""

from __future__ import annotations

import dis
import functools
import gc
import inspect
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lucid.autograd.hooks import hooks_of
from lucid.autograd.host_replay import OpenAxis
from lucid.compiler.guards.calls import GuardCollector
from lucid.compiler.guards.collector import Substitutes
from lucid.compiler.guards.events import UnsupportedError, is_supported, listening
from lucid.compiler.guards.guard import Guard
from lucid.compiler.guards.mutable_sources import Identity, MutableSource
from lucid.compiler.guards.restarts import Known, RestartTrace
from lucid.compiler.guards.table import GuardTable
from lucid.compiler.inputs.cells import Cell
from lucid.compiler.inputs.functions import Kept, cells_in, functions_in, identity_of_function
from lucid.compiler.inputs.objects import visit_leaves
from lucid.compiler.inputs.scalars import SymSource
from lucid.compiler.inputs.signature import Call, name_of, named_arguments
from lucid.compiler.recording.arguments import StandIns
from lucid.compiler.recording.epilogue import Epilogue, EpilogueBuilder
from lucid.compiler.recording.guards import Guards
from lucid.compiler.recording.late import texts
from lucid.compiler.recording.late.growing_lists import GrowingView
from lucid.compiler.recording.late.late_arrays import stand_in_of
from lucid.compiler.recording.names import name_gradients, name_inputs
from lucid.compiler.recording.recorder import Recorder, recording
from lucid.compiler.recording.stand_in_functions import StandInFunctions
from lucid.compiler.results.gradients import shared_gradients
from lucid.compiler.results.output_specs import Views
from lucid.compiler.results.replayed_effects import ReplayedEffects
from lucid.compiler.results.side_effects import SideEffects
from lucid.ir.classes import isinstance
from lucid.ir.errors import EagerOnlyError, LucidError, TraceError
from lucid.ir.extents import NotOpenError, Sizes, replaced
from lucid.ir.graph import Graph, Value
from lucid.ir.location import Location
from lucid.ir.opening import rename_sizes
from lucid.ir.strides import Strides, is_contiguous
from lucid.ir.whose_code import is_interrupt, is_users_file
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.write_locks import close_blocks


@dataclass(slots=True, eq=False)
class Trace:
    """A recorded step: the graph, and how its inputs and outputs connect to Python.

    Attributes:
        function: what was traced.
        guards: what must hold for a call.
        cells: buffers that are inputs of the graph, with their strides where not contiguous.
        undo: takes back the Python state that was created for the step, and for traces before.
        sources: the mutable ones that the trace knew from its start.
        path: the outcomes of the exits; questions: what each of them is, for messages.
        sizes_asked: the exits that ask for numbers, which may be sizes, and where.
        may_catch: whether the step may handle an error that a run finds.
        sizes: the open ones, which values decide; None: there are none. sized: of their symbols
            those that numbers are, by the inputs. are_given: whether they are those of an earlier
            call, whose gradients it computes.
    """

    graph: Graph
    function: Callable[..., Any]
    guards: Guards
    live: list[tuple[Value, SymSource]]
    cells: list[tuple[Cell, Strides | None]]
    epilogue: Epilogue
    effects: ReplayedEffects
    undo: list[Callable[[], object]]
    sources: dict[Identity, MutableSource] = field(default_factory=dict)
    path: tuple[int, ...] = ()
    questions: tuple[str, ...] = ()
    sizes_asked: Mapping[int, OpenAxis] = field(default_factory=dict)
    seconds: float = 0.0
    may_catch: bool = False
    sizes: Sizes | None = None
    sized: Mapping[int, Value] = field(default_factory=dict)
    are_given: bool = False

    def has_other_sizes(self, sizes: Sequence[int]) -> bool:
        """Whether the open sizes are others now."""
        return self.sizes is not None and self.sizes.hints[: len(sizes)] != [*sizes]


def trace(
    function: Callable[..., Any],
    call: Call,
    known: Known,
    sources: dict[Identity, MutableSource],
) -> Trace:
    """Run `function` once on traced stand-ins for its arguments, and record what it does.

    Nothing that is concrete changes: state, `.grad`, versions and flags are put back, and what the
    step changed is in the trace. Only one thread may do this at a time. Raises what the function
    raises, `TraceError`, and `RestartTrace` where it needs something from its start.

    sources: what earlier traces have found that the function binds.
    """
    start = time.perf_counter()
    side_effects = SideEffects(function, sources.values())
    collector = GuardCollector(side_effects.unguarded, frozenset(known.hosts))
    try:
        collector.begin()  # before the recorder, so that all of a trace's cycles is young
        known.taken.clear()
        known.lists.clear()
        if known.functions is not None:
            known.functions.clear()
        recorder = Recorder(name_of(function), known, collector)
        recorder.sizes.has_text = False  # in what the user sees, such as a warning
        try:
            found = _record(recorder, side_effects, call)
            if recorder.sizes.known is not None:
                _close(found, recorder.sizes, recorder.sizes.known)
            elif recorder.sizes.needed:
                raise NotOpenError(_NEEDS_SIZES)
        except Exception as error:
            if is_interrupt(error):
                raise
            if recorder.sizes.symbols and recorder.sizes.known is None:  # which may be why
                traceback.clear_frames(error.__traceback__)
                if recorder.has_given_sizes:  # they are those of a call whose gradients it computes
                    raise NotOpenError(_NEEDS_SIZES) from None
                closed = recorder.sizes.origins_of(recorder.sizes.needed)  # or all
                raise RestartTrace(_NEEDS_SIZES, "closed", closed) from None
            _raise_meaning(recorder, error)
            raise
        finally:
            recorder.sizes.known, recorder.sizes.has_text = None, True
    finally:
        collector.end()
    found.sources = dict(sources)
    found.seconds = time.perf_counter() - start
    return found


_NEEDS_SIZES = "needs to know sizes that values decide"


def _close(found: Trace, sizes: Sizes, values: Sequence[int]) -> None:
    """Let a trace be one for these values of its sizes."""
    at = sizes.at(values)
    rename_sizes(found.graph, at)
    for spec in found.epilogue.leaves:
        views = getattr(spec, "views", None)
        if views:
            spec.views = Views(replaced(views.chain, at))  # type: ignore[attr-defined]
    found.sizes = None


def _raise_meaning(recorder: Recorder, error: Exception) -> None:
    """Raise what it means that a trace has failed, if that is another error."""
    if isinstance(error, UnsupportedError):
        raise EagerOnlyError(f"its instructions can't be followed now: {error}") from None
    if isinstance(error, (EagerOnlyError, TraceError)):  # what stands for others may be why
        known = recorder.at_start
        if known.lists:
            raise RestartTrace(str(error), "exact", [*known.lists]) from None
        if known.taken:
            raise RestartTrace(str(error), "looked_at", [*known.taken]) from None
    if isinstance(error, TypeError) and not isinstance(error, LucidError) and recorder.has_numbers:
        raise_in_eager_mode(error)  # it may be about the type of what stands for a number


def raise_in_eager_mode(
    error: Exception, why: str = "numbers that it would read at each call"
) -> None:
    """Let eager mode say whether there is an error, unless a statement of the user's raised it.

    why: what a trace has that eager mode hasn't.
    """
    last = error.__traceback__
    assert last is not None
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    if code.co_code[last.tb_lasti] != dis.opmap["RAISE_VARARGS"] or not is_users_file(
        code.co_filename
    ):
        raise EagerOnlyError(
            f"with {why} its trace fails: {type(error).__name__}: {error}"
        ) from error


def _record(recorder: Recorder, side_effects: SideEffects, call: Call) -> Trace:
    function, collector = side_effects.function, recorder.collector
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None:
        recorder.graph.location = Location(code.co_filename, code.co_firstlineno)
    recorder.root = _call.__code__
    try:
        try:
            if not is_supported():
                raise EagerOnlyError(
                    "the instructions of this interpreter can't be followed, "
                    f"{sys.implementation.name} {sys.version.partition(' ')[0]}"
                )
            collector.refused = recorder.note_refusal
            recorder.at_start.warnings = recorder.outside.warnings
            collector.substitutes = StandInFunctions(recorder)
            collector.is_gradient = lambda tensor: tensor._storage in recorder.grad_leaf_of
            _name_arguments(collector, function, call)
            call.take(side_effects.values())
            found, handles = _run(recorder, collector, side_effects, call)
            try:
                side_effects.forget()
                _refuse_escaped(recorder, handles)
                name_inputs(recorder, collector)
                name_gradients(recorder.graph, found.epilogue.grads)
                return found
            except BaseException:
                collector.put_back()
                raise
        finally:
            collector.end()
            collector.substitutes = Substitutes()
            recorder.end()
    except BaseException:  # an interrupt of the above as well
        recorder.take_back()
        raise
    finally:
        collector.guards.clear()


def _name_arguments(collector: GuardCollector, function: Callable[..., Any], call: Call) -> None:
    """Let what is in arguments, and hooks of tensors there, have the user's names for it."""

    def note(leaf: Any, path: str) -> None:
        if isinstance(leaf, TensorCore):
            for hook in hooks_of(leaf).values():
                collector.value(hook, f"a hook of {path}", function)
        elif not isinstance(leaf, np.ndarray):
            kept = leaf.value if type(leaf) is Kept else leaf
            collector.value(kept, path, function)

    for name, value in named_arguments(function, *call.marked):
        visit_leaves(note, value, name)


def _run(
    recorder: Recorder,
    collector: GuardCollector,
    side_effects: SideEffects,
    call: Call,
) -> tuple[Trace, list[weakref.ref[TensorCore]]]:
    """Trace the function, in a frame of its own: no frame may hold a traced tensor afterwards.

    Gives also what stood for the arguments; nobody should hold it any more.
    """
    function, sources = side_effects.function, [source.path for source in side_effects.read]
    stand_ins = StandIns(recorder, call, function, sources)
    grad_enabled = context.grad_enabled
    settle = functools.partial(_settle, recorder, collector, side_effects, stand_ins)
    try:
        _enter_stand_ins(recorder, collector, side_effects, stand_ins, call)
        result = _call(recorder, function, stand_ins)
        if context.grad_enabled != grad_enabled:
            recorder.run_op_by_op("it leaves another grad mode than it finds")
        recorder.foreseen.put_back()
        collector.finish()
        recorder.hosts.put_back()
        with recording(recorder):
            of_arguments = stand_ins.changes()
            finals = side_effects.leave(collector, recorder, of_arguments)
        stand_ins.check_apart(side_effects.bound_elsewhere)
        guards = collector.depended_on(recorder.array_owners)
        guards += recorder.guards.values()
        stand_ins.put_back()
        collector.look_again()
        with recording(recorder):
            builder = EpilogueBuilder(recorder, stand_ins.handles, call)
            epilogue = builder.finish(result, finals, side_effects)
        side_effects.note_windows(guards, epilogue.finals, epilogue.leaves)
        settle(failed=False)
        pinned = stand_ins.pinned
        handles = [weakref.ref(h) for i, h in enumerate(stand_ins.handles) if i not in pinned]
        return _trace_of(recorder, side_effects, stand_ins, call, guards, epilogue), handles
    except BaseException as error:
        try:
            close_blocks(error)
            texts.settle(error)
            context.grad_enabled = grad_enabled
            settle(failed=True)
        except BaseException:  # an interrupt of that
            context.grad_enabled = grad_enabled
            settle(failed=True)
            raise
        _refuse_in_error(error)
        raise


def _enter_stand_ins(
    recorder: Recorder,
    collector: GuardCollector,
    side_effects: SideEffects,
    stand_ins: StandIns,
    call: Call,
) -> None:
    """Put stand-ins where the function finds its state, and tell the collector what they are."""
    side_effects.enter(stand_ins.values, recorder)
    for grows in side_effects.growing:
        collector.let_stand(grows.owner, GrowingView(grows, recorder))
    for changes in side_effects.arrays:
        collector.accept(changes.owner, changes.owner)
        with recording(recorder):
            collector.let_stand(changes.owner, stand_in_of(recorder, changes.owner))
    stand_ins.begin()
    remade = functions_in((stand_ins.args, stand_ins.kwargs), but=call.objects)
    objects = filter(identity_of_function, call.objects)
    collector.given_functions = {*map(id, objects), *map(id, remade)}
    collector.given_cells = cells_in(call.given, but=call.objects)
    collector.call(side_effects.function, (), {})
    collector.take_entry = stand_ins.take_entry
    in_graph = [changes.owner for changes in side_effects.arrays]
    collector.written_arrays = functools.partial(recorder.written_arrays, in_graph)


def _call(recorder: Recorder, function: Callable[..., Any], stand_ins: StandIns) -> Any:
    """Run the function on stand-ins, then what the library does at its end; the result.

    Raises also what the function was given as an error, or should have been, and has handled.
    """
    collector = recorder.collector
    try:
        with recording(recorder), listening(collector):
            result = function(*stand_ins.args, **stand_ins.kwargs)
    except (RestartTrace, Exception) as error:
        if isinstance(error, (RestartTrace, ValueError)):
            # Python takes a trace function away that raises, and NumPy makes an error of its
            # own of one that it is given.
            recorder.raise_refused()
        if not isinstance(error, RestartTrace):
            recorder.loops.check_left()
        if not isinstance(error, (RestartTrace, TraceError)):
            recorder.raise_earlier()
        raise
    finally:
        if collector.restart is not None:  # whatever the user's code has made of it
            raise collector.restart from None
    recorder.raise_caught()
    recorder.loops.check_left()
    for end in recorder.endings:
        end()
    recorder.parts.finish()
    return result


def _trace_of(
    recorder: Recorder,
    side_effects: SideEffects,
    stand_ins: StandIns,
    call: Call,
    guards: Sequence[Guard],
    epilogue: Epilogue,
) -> Trace:
    """The trace of what the recorder has recorded."""
    grads_read = [use for use in recorder.grads.values() if use.was_read]
    met = [cell for cell in recorder.cells.values() if cell.value.producer is None]
    cells = [(cell, _strides_of(cell)) for cell in met if cell.kind != "replaced"]
    kept = Guards(
        watched=GuardTable([guard for guard in guards if not guard.gated]),
        gated=GuardTable([guard for guard in guards if guard.gated]),
        formulas=[*recorder.formulas.values()],
        grads_read=grads_read,
        grads_shared=shared_gradients(grads_read, call),
        asked=recorder.collector.asked,
        pinned=stand_ins.pinned,
        state={cell.storage for cell, _ in cells if cell.kind == "state"},
        side_effects=None if side_effects.is_empty else side_effects,
        sources=side_effects.sources,
        moving=stand_ins.moving,
        keys=call.keys,
        is_own=not side_effects.is_empty and side_effects.keeps_guards,
    )
    return Trace(
        graph=recorder.graph,
        function=side_effects.function,
        guards=kept,
        live=[*recorder.live_inputs.values()],
        cells=cells,
        epilogue=epilogue,
        effects=recorder.effects,
        undo=recorder.undo,
        path=tuple(recorder.exits.path),
        questions=tuple(recorder.exits.texts),
        sizes_asked=recorder.exits.sizes_asked,
        may_catch=recorder.may_catch,
        sizes=recorder.sizes if recorder.sizes.symbols else None,
        sized=recorder.sized,
        are_given=recorder.has_given_sizes,
    )


def _refuse_in_error(error: BaseException) -> None:
    """Give a trace up that has ended by an error of the user's with a tensor of the trace."""
    if isinstance(error, LucidError) or not isinstance(error, Exception):
        return
    found = texts.unsettled(error)
    if found is not None:
        kind = type(error).__name__
        what = f"a tensor, {found._describe()}" if isinstance(found, TensorCore) else "a number"
        raise EagerOnlyError(f"it raises {kind} with {what}, which it has computed") from None


def _settle(
    recorder: Recorder,
    collector: GuardCollector,
    side_effects: SideEffects,
    stand_ins: StandIns,
    *,
    failed: bool,
) -> None:
    """Put everything concrete back; after an interrupt it can be done again."""
    recorder.restore(failed)
    stand_ins.cut()
    if failed:
        recorder.foreseen.put_back()
        recorder.hosts.put_back()
        side_effects.put_back()
        if not collector.is_put_back:  # what is put back means something else after `end`
            collector.put_back()
        stand_ins.put_back()  # last: what was seen of their contents may be what stood for these
    collector.end()


def _strides_of(cell: Cell) -> Strides | None:
    strides = cell.storage.strides
    return None if is_contiguous(cell.storage.root_type.shape, strides) else strides


def _refuse_escaped(recorder: Recorder, handles: list[weakref.ref[TensorCore]]) -> None:
    """Raise when a traced tensor is still held by somebody."""
    recorder.forget_arguments()
    recorder.remembered.clear()
    references = [*handles, *recorder.made]
    for generation in range(3):  # cycles of the trace are young, so the first look mostly is enough
        if _alive(references):
            gc.collect(generation)
    escaped = _alive(references)
    if escaped:
        lines = "\n".join(f"  {tensor._describe()}" for tensor in escaped[:4])
        count = "a traced tensor" if len(escaped) == 1 else f"{len(escaped)} traced tensors"
        raise TraceError(
            f"{count} escaped from the compiled function, kept in a list, an attribute or a "
            f"global:\n{lines}\n"
            "hint: return them, or keep tensor.detach() of a result outside"
        )
    recorder.made.clear()


def _alive(references: Sequence[weakref.ref[TensorCore]]) -> list[TensorCore]:
    """The tensors that are still there."""
    tensors = [reference() for reference in references]
    return [tensor for tensor in tensors if tensor is not None]
