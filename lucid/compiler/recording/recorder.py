"""The trace that is being recorded: its nodes, and what Python looks at."""

from __future__ import annotations

import operator
import os
import sys
import types
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from lucid.autograd import node as nodes
from lucid.autograd.node import AccumulateGrad, Gradients, Node, OpNode, Traced
from lucid.compiler.guards.age import owner_of
from lucid.compiler.guards.calls import GuardCollector
from lucid.compiler.guards.events import call, is_text_of, unheard
from lucid.compiler.guards.mutable_sources import stands_for_list
from lucid.compiler.guards.restarts import FunctionCall, Known
from lucid.compiler.hosts.recording import HostRecording
from lucid.compiler.inputs.late import Applied, now_of
from lucid.compiler.inputs.present import evaluate
from lucid.compiler.inputs.scalars import SymScalar, is_live, seen
from lucid.compiler.inputs.sharing import Sharing
from lucid.compiler.recording.deferred_calls import DeferredCalls
from lucid.compiler.recording.exits import Exits
from lucid.compiler.recording.foreseen import Foreseen
from lucid.compiler.recording.late import texts
from lucid.compiler.recording.late.drawn_records import all_stacked
from lucid.compiler.recording.late.filled_lists import is_stacked
from lucid.compiler.recording.late.growing_lists import GrowingView
from lucid.compiler.recording.late.iterables import LateRows
from lucid.compiler.recording.late.late_arrays import (
    LateArray,
    LateObject,
    NeedsDataError,
    of_numpy,
    stand_in_of,
)
from lucid.compiler.recording.late.late_numbers import extent_of
from lucid.compiler.recording.late.late_sequences import LateSequence, repeated, rows_of
from lucid.compiler.recording.late.moving_parts import MovingParts
from lucid.compiler.recording.late.texts import LateText
from lucid.compiler.recording.loops.ended_loops import EndedLoops
from lucid.compiler.recording.loops.loops import Loops
from lucid.compiler.results.histories import ExternalGradFn
from lucid.compiler.results.memory import TracedMemory
from lucid.compiler.results.replayed_effects import ReplayedEffects
from lucid.ir import ops
from lucid.ir.attributes import check_arguments
from lucid.ir.errors import EagerOnlyError, LucidError, TraceError
from lucid.ir.extents import is_open
from lucid.ir.graph import Node as GraphNode, Region, RegionKind, Value
from lucid.ir.inference import application
from lucid.ir.location import LIBRARY, Location, here, location_at, user_frame
from lucid.ir.memory import read_only
from lucid.ir.op import Attributes, Op
from lucid.ir.types import DType, shared_type
from lucid.ir.whose_code import is_librarys
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, keep_history, of_value, traced_view, with_origins
from lucid.tensor.size import Size
from lucid.tensor.storage import VersionCounter
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import map_tree

if TYPE_CHECKING:
    from lucid.autograd.engine import BackwardRun
    from lucid.autograd.function import BackwardCFunction


# Files of the library that write texts for the user's code.
_PROTOCOLS = os.path.join(LIBRARY, "functions", "protocols.py")
_WRITERS = (texts.__file__, _PROTOCOLS)
_BETWEEN = (
    *(__file__, _PROTOCOLS, os.path.join(LIBRARY, "tensor", "formatting.py")),
    *(os.path.join(LIBRARY, "ir", "frames.py"), unheard.__code__.co_filename),
)
_AT_BORDER = (
    *(*_BETWEEN, os.path.join(LIBRARY, "functions", "border.py")),
    os.path.join(LIBRARY, "tensor", "tensor.py"),
)


def _behind(frame: types.FrameType | None, files: tuple[str, ...]) -> types.FrameType | None:
    """The innermost frame, from this one outwards, whose code isn't in these files."""
    while frame is not None and frame.f_code.co_filename in files:
        frame = frame.f_back
    return frame


class Recorder(TracedMemory):
    """A trace in progress.

    Attributes:
        at_start: what the trace knows from its start.
        hosts: the host calls.
        loops: loops whose body is a function of the graph; ended_loops: Python loops that end on a
            value.
        parts: parts of tensors at places that move.
        exits: the values that Python has looked at; outside: the deferred calls.
        effects: Python effects to repeat after each call; foreseen: the numbers that they leave.
        own_counters: version counters of what `.data` gave, which count apart for outer memory.
        bound: entries of an optimizer's dicts that the step has set.
        ctx_change: which attribute of its ctx a backward has changed, for messages.
        scopes: names of the modules and functions of the library's that run.
        remembered: what the library keeps of values until the end of the trace, by owner.
        endings: what the library does once the function has returned.
        asks_for_method: whether NumPy asks a tensor for a method, not for data.
        has_given_sizes: whether sizes are those of an earlier call, whose gradients it computes.
    """

    def __init__(
        self, name: str, known: Known | None = None, collector: GuardCollector | None = None
    ) -> None:
        self.at_start = known = Known() if known is None else known
        super().__init__(name, collector or GuardCollector(), known.undo)
        self.hosts = HostRecording(self, known)
        self.exits = Exits(self)
        self.loops = Loops(self)
        self.ended_loops = EndedLoops(self.loops)
        self.parts = MovingParts(self)
        self.hosts.present.run = self.loops.run
        self.hosts.present.refuse_unknown = lambda: self.loops.unroll("looks at a value")
        self.hosts.present.refuse_shared = self._refuse_shared
        self._apart: tuple[int, set[Value]] = 0, set()  # inputs, and those of them that are written
        self.outside = DeferredCalls(self.exits, self.collector)
        self.effects = ReplayedEffects()
        self.foreseen = Foreseen(self)
        self.own_counters: set[VersionCounter] = set()
        self.bound: set[tuple[int, object]] = set()
        self.ctx_change: str | None = None
        self.scopes: list[str] = []
        self.remembered: dict[Any, Any] = {}
        self.endings: list[Callable[[], object]] = []
        self._parts: Counter[str] = Counter()
        self.asks_for_method = False
        self.has_given_sizes = False
        self._region: Region | None = None
        self._deriving: Node | None = None
        self._decided: dict[Value, np.ndarray] = {}  # by constants alone
        self._undecided: set[Value] = set()
        if self.hosts.opened:
            self.call = self._call_with_sizes

    # ------------------------------------------------------------------ recording ops

    unheard = staticmethod(unheard)
    call: Callable[..., Any] = staticmethod(call)

    def _call_with_sizes(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a public function of the library's, within which open sizes are extents."""
        kwargs = {name: extent_of(value) for name, value in kwargs.items()}
        return self.shown(call(function, *map(extent_of, args), **kwargs))

    def as_size(self, number: SymScalar) -> Any:
        return self.exits.as_size(number)

    def note_size(self, number: SymScalar) -> None:
        self.exits.note_size(number)

    def rows_of(self, x: TensorCore, axis: int) -> Any:
        """What stands for the rows of a tensor along an axis of an open size."""
        return LateRows(x, axis, self.exits)

    def rows_in(self, tensors: Any) -> Tensor | None:
        """The stacked tensors of a filled or growing list; None: it is another list."""
        if type(tensors) is GrowingView:
            return all_stacked(self.exits, tensors.collector, tensors)
        return tensors.whole if is_stacked(tensors) and not tensors.has_array else None

    def numbers_in(self, numbers: Any) -> Tensor | None:
        """A tensor of the numbers of live or filled lists; None: they are other lists."""
        is_part = stands_for_list(numbers) and numbers.is_array()
        is_filled = is_stacked(numbers) and numbers.has_array
        return numbers.whole if is_part or is_filled else rows_of(numbers)

    def size_of(self, tensor: TensorCore) -> Any:
        """The number in a tensor as an open size, if it is needed as one; else the tensor."""
        type = tensor._type
        if not self.hosts.opened or type.size != 1 or type.dtype.kind != "int":
            return tensor
        number = None if self.known(tensor) is not None else self.exits.of(tensor, "item()")
        size = extent_of(number)
        return tensor if size is number else size

    def shown(self, x: Any) -> Any:
        """A size or a shape as the asking code sees it: open for the library, late for users."""
        if not is_open(x) and type(x) is not Size:
            return x
        frame = _behind(sys._getframe(1), _AT_BORDER)
        is_own = frame is not None and frame.f_code.co_filename.startswith(LIBRARY)
        return x if is_own else self.exits.shown(x)

    def apply(self, op: Op, operands: Sequence[TensorCore], attributes: Attributes) -> Tensor:
        """Append an op on tensors, and keep its history. Raises the op's errors."""
        if sys.gettrace() is None or context.saved_hooks:
            return self._apply(op, operands, attributes)
        return self._apply_unheard(op, operands, attributes)

    def _apply(self, op: Op, operands: Sequence[TensorCore], attributes: Attributes) -> Tensor:
        """The same; views stay views of their storage."""
        given = {x: seen(value) for x, value in attributes.items()} if attributes else {}
        try:
            known = application(op, operands, given)
            if known.checked is None:
                check_arguments(op, len(operands), given)
                known.checked = given
            given = given if known.has_numbers else known.checked
            values = [self.value_of(operand, op.name) for operand in operands]
            node = self.graph.append_typed(op, values, given, known.result_type)
            self._annotate(node)
            if op is ops.check:
                self.note_failing()
            value = node.results[0]
            if op.is_view:
                result = traced_view(known, operands[0], given, value)
            else:
                result = of_value(value)
        except LucidError as error:
            raise with_origins(error, operands) from None
        self._enter(result, node)
        keep_history(op, operands, given, result, known)
        return result

    _apply_unheard = unheard(_apply)  # where no hook of the user's is told what is saved

    def _enter(self, result: Tensor, node: GraphNode | None) -> None:
        """Note what a node has made, with its line, as one of the tensors that must not escape."""
        self.made.append(weakref.ref(result))
        location = None if node is None else node.location
        if location is not None:
            result._spot = location.file, location.line

    @unheard
    def constant(self, value: Any, dtype: DType) -> Tensor:
        """A 0-d constant, or the value of a live scalar."""
        value = value.number() if type(value) is LateArray else value
        if is_live(value):
            with self.annotated():
                recorded = self.local(self.live_value(value, dtype))
                if dtype is not recorded.dtype:
                    recorded = ops.cast(recorded, dtype=dtype)
        elif is_open(value):
            with self.annotated():
                recorded = self.graph.constant(value, dtype)
        else:
            given = {"value": np.array(value, dtype.numpy)[()], "dtype": dtype}
            node = self.graph.append_typed(ops.constant, (), given, shared_type(dtype, ()))
            self._annotate(node)
            recorded = node.result
        result = of_value(recorded)  # without a line, as eager mode's
        self.made.append(weakref.ref(result))
        return result

    def value_of(self, tensor: TensorCore, what: str = "an operation") -> Value:
        storage = tensor._storage
        if self.parts.by_memory:  # else none has been written either
            self.parts.read(storage)
        if storage in self.loops.away:
            self.loops.unroll("sees by two names what its rounds write")
        return super().value_of(tensor, what)

    def write(self, target: TensorCore, value: TensorCore) -> None:
        self.parts.write(target._storage)
        super().write(target, value)

    # ------------------------------------------------------------------ where nodes come from

    def _annotate(self, *nodes: GraphNode, location: Location | None = None) -> None:
        """Give nodes their location and scope; location: None: where the user's code is."""
        deriving, scope = self._deriving, self.scope
        origin = None if deriving is None else deriving._origin
        if deriving is not None and origin is not None:
            line = deriving._line
            if location is None and line is not None:
                location = location_at(*line)
            if origin.producer is not None:
                scope = origin.producer.scope
        if location is None:
            frame = user_frame(3)  # to look at a frame takes time: Python makes an object for it
            location = frame and location_at(frame.f_code.co_filename, frame.f_lineno)
        for node in nodes:
            node.location, node.scope, node.region = location, scope, self._region
            if origin is not None:
                node.gradient_of = origin

    @property
    def scope(self) -> str:
        return ".".join(filter(None, self.scopes)) if self.scopes else ""

    @contextmanager
    def annotated(self, location: Location | None = None) -> Iterator[None]:
        """Give nodes that are appended to the graph directly their location and scope.

        location: of all of them; None: where the user's code is.
        """
        start = len(self.graph.nodes)
        yield
        nodes = [node for node in self.graph.nodes[start:] if node.location is None]
        if nodes:
            self._annotate(*nodes, location=location)

    @contextmanager
    def region(
        self, name: str, kind: RegionKind = "region", *, scope: str | None = None
    ) -> Iterator[Region]:
        """Tag the nodes of a custom Function's forward or backward, or of a checkpointed block.

        scope: the path of the Module that they belong to; None: of the one that runs.
        """
        before = self._region
        deriving, scopes = self._deriving, self.scopes
        if scope is not None:
            self.scopes = [scope]
        self._region = region = Region(name, here(), before, kind)
        self._deriving = None
        try:
            yield region
        finally:
            self._region = before
            self._deriving, self.scopes = deriving, scopes

    @unheard
    def note_function(
        self, ctx: BackwardCFunction, inputs: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        """Keep what a custom Function of the user's is called with, if somebody verifies it."""
        functions = self.at_start.functions
        if functions is None or is_librarys(ctx._forward_cls) or context.levels:
            return

        def noted(leaf: Any, path: str) -> Any:
            return self.value_of(leaf) if isinstance(leaf, TensorCore) else now_of(leaf)

        args, named = map_tree(noted, (inputs, keywords))
        call = FunctionCall(ctx._forward_cls, args, named, ctx.needs_input_grad, here())
        functions.append(call)

    def derive(
        self, node: Node, apply: Callable[[Node, Gradients], Gradients], gradients: Gradients
    ) -> Gradients:
        """`apply(node, gradients)`, whose nodes compute the gradient of what `node` recorded."""
        if self.is_outer(node) and not self.follow_outer(node):
            self.run_op_by_op(
                f"a backward() in it follows history from outside, {node._name()}{node._place()}"
            )
        before, self._deriving = self._deriving, node
        try:
            return apply(node, gradients)
        finally:
            self._deriving = before

    def differentiate(
        self, node: OpNode, gradient: Traced | None
    ) -> Sequence[Traced | None] | None:
        """The gradients of an op's operands, as its rule's steps compute them in the graph.

        None where the rule has to be asked itself, with tensors: code of the user's is to see some,
        or a gradient would show the memory of another tensor.
        """
        rule, saved = node.derivative.rule, node.saved
        is_value = type(gradient) is Value
        if gradient is None or saved is None:
            return None
        if self.is_outer(node) and not self.follow_outer(node):
            return None
        if not (rule.serves_values if is_value else rule.serves_tensors):
            return None
        values = [self._value(gradient, node.op.name)]
        for tensor in saved.values():
            values.append(self.value_of(tensor.content(node), node.op.name))
        start = len(self.graph.nodes)
        found = rule.record(self.graph, values)
        before, self._deriving = self._deriving, node
        self._annotate(*self.graph.nodes[start:])
        self._deriving = before
        if is_value:
            return found
        return [gradient if n == 0 else x for n, x in zip(rule.results, found, strict=True)]

    def sum_of(self, *gradients: Traced, location: Location | None) -> Value:
        """The sum of two gradients of a walk.

        location: where the user's code asked for that.
        """
        values = [self._value(gradient, "add") for gradient in gradients]
        type = application(ops.add, values, {}).result_type
        node = self.graph.append_typed(ops.add, values, {}, type)
        self._annotate(node, location=location if self._deriving is None else None)
        return node.result

    def tensor_of(self, value: Value) -> Tensor:
        """A tensor for a gradient that somebody is to see; views of one are views of its memory."""
        views: list[Value] = []
        while value.producer is not None and value.producer.op.is_view:
            views.append(value)
            value = value.producer.operands[0]
        result = of_value(value)
        self._enter(result, value.producer)
        for view in reversed(views):
            node = view.producer
            assert node is not None
            known = application(node.op, [result], node.attributes)
            result = traced_view(known, result, node.attributes, view)
            self._enter(result, node)
        return result

    def _value(self, gradient: Traced, what: str) -> Value:
        if isinstance(gradient, Value):
            return gradient
        return self.value_of(gradient, what)

    def origin_of(self, result: TensorCore) -> Value | None:
        return result._value[1] if result._value is not None else result._storage.value

    # ------------------------------------------------------------------ what Python looks at

    def local(self, value: Value) -> Value:
        return self.loops.local(value)

    def note_write(self, target: TensorCore, value: TensorCore) -> None:
        self.loops.note_write(target, value)
        array, collector = target._storage.array, self.collector
        if array is not None and self.is_own_memory(target):
            is_users = id(owner_of(array)) in self.array_owners
            if is_users and collector.stand_in_for(array) is array:
                collector.refuse_beside(array)
                collector.let_stand(array, stand_in_of(self, array, is_made=True))

    def note_hidden_write(self, target: TensorCore) -> None:
        self.loops.note_hidden_write(target)

    def note_grad_read(self, leaf: TensorCore) -> None:
        self.loops.note_gradient(leaf)
        super().note_grad_read(leaf)

    def note_grad_write(self, leaf: TensorCore) -> None:
        self.loops.note_change(leaf, "sets a gradient")
        super().note_grad_write(leaf)

    def note_attributes(self, tensor: TensorCore) -> None:
        """It is copied, with all that users have bound to it."""
        self.collector.look_for_all_attributes(tensor)

    def note_property(self, tensor: TensorCore, name: str) -> None:
        if name == "data":
            self.loops.note_memory(tensor)
        elif name == "requires_grad" and self.is_outside(tensor):
            self.loops.unroll("sets requires_grad")
        super().note_property(tensor, name)

    def refuse_concrete(self, tensor: TensorCore, what: str) -> np.ndarray:
        """The data of a constant; all others are known only when the step runs.

        Memory that is given to NumPy can't be written: no trace would see it. A custom Function
        that asks for memory, which it may write, or for what no constant is, runs on the host.
        """
        if what in ("numpy()", "__dlpack__()"):
            self.hosts.leave()
        found = self.known(tensor)
        if found is None:
            self.hosts.leave()
            self.exits.op_by_op(f"it looks at the data of {tensor._type}, by {what}")
        assert found is not None
        return found

    def has_looked_at(self, container: Any) -> bool:
        """Whether the user's code has read entries of a container, or how many there are."""
        return self.collector.has_looked_at(container)

    def look(self, tensor: TensorCore, what: str) -> Any:
        """What Python gets for the only element of a tensor.

        In a method of a custom Function, which may do anything with it, that is a host call.
        """
        found = self.known(tensor)
        if found is None:
            self.hosts.leave()
            if what != "item()":  # who looks at that number is an exit
                self.loops.look()
            if what != "float()":
                return self.exits.of(tensor, what)
        elif what == "bool()" and self.ended_loops.is_end_of_branches():
            value = self.exits.only(self.value_of(tensor, what))
            return self.exits.truth(value, what, bool(found.item()))
        return self.refuse_concrete(tensor, what).item()

    def array_of(self, tensor: TensorCore) -> np.ndarray:
        """What `numpy()` gives: memory, which nobody may write where no trace would see it."""
        if self.asks_for_method:
            raise NeedsDataError
        self.hosts.leave()
        late = LateArray(self.exits, self.value_of(tensor, "numpy()"), tensor=tensor)
        return cast(np.ndarray, late)

    def with_arrays(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Any
    ) -> Any:
        return of_numpy(self.exits, name, function, args, kwargs)

    def list_of(self, tensor: TensorCore) -> Any:
        """What `tolist()` gives for a tensor that the step computes."""
        self.hosts.leave()
        self.loops.unroll("looks at a value")
        return self.exits.list_of(self.value_of(tensor, "tolist()"))

    def written(
        self, value: SymScalar | LateObject | LateText, write: Callable[..., str], *how: str
    ) -> str:
        """The text of a number, an array or a text that each call has for itself.

        Where nobody follows what becomes of the text, as in code in C, it is looked at.
        """
        if not self.is_followed_text(sys._getframe(2), value):
            return write(value._look(), *how)
        if isinstance(value, LateText) and write in (str, format) and not any(how):
            return value
        return texts.written(write, value, *how)

    def repeated(self, items: Any, count: SymScalar) -> Any:
        """What `items * count` gives of a text, or a list of numbers; None: Python looks at it."""
        if isinstance(items, str):
            return texts.written(operator.mul, items, count)
        return repeated(items, count)

    def parts_of(self, text: LateText, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """The list of texts that a function makes of one that a call has before its step."""
        made = Applied(function, (text, *args))
        shown = ", ".join([*[x.text for x in text.bases.values()], *map(repr, args)])
        name = f"{function.__name__}({shown})"
        self._parts[name] += 1  # another text may follow from the same ones
        return LateSequence.of_call(self, made, f"{name}#{self._parts[name]}", item=str)

    def is_followed_text(self, frame: types.FrameType | None, value: Any) -> bool:
        """Whether a frame waits for the text of a value, and what it does with it is told."""
        if frame is not None and frame.f_code.co_filename in _WRITERS:
            frame = _behind(frame, _BETWEEN)
        if frame is None or not is_text_of(frame, value):
            return False
        return frame.f_code.co_filename == texts.__file__ or self.collector.hears(frame)

    def text_of(self, tensor: Tensor) -> str:
        """What `str` and `repr` give for a tensor."""
        self.hosts.leave()
        self.loops.look()
        value, writer = self.value_of(tensor, "str()"), _behind(sys._getframe(1), _BETWEEN)
        file = "" if writer is None else writer.f_code.co_filename
        is_own = file.startswith(LIBRARY) and file != texts.__file__  # such as a message of ours
        if not is_own and not self.is_followed_text(writer, tensor):
            self.exits.op_by_op("it writes a tensor within a text")
        return texts.of_tensor(tensor, value, self.exits.now_of(value))

    def known(self, tensor: TensorCore) -> np.ndarray | None:
        """The data of what constants alone decide, such as a mask made of `eye` and `arange`."""
        cell = self.cells.get(tensor._storage)
        untouched = cell is not None and cell.value is tensor._storage.value
        is_constant = untouched and cell is not None and cell.kind == "constant"
        if is_constant and tensor._array is not None:
            return read_only(tensor._array)
        if tensor._storage.recorder is not self:
            return None
        value, known = self.value_of(tensor), self._decided
        known |= {
            cell.value: cell.storage.array
            for cell in self.cells.values()
            if cell.kind == "constant" and cell.storage.array is not None
        }
        is_known = evaluate([value], known, undecided=self._undecided)
        return read_only(np.array(known[value], order="C")) if is_known else None

    def refuse_address(self) -> NoReturn:
        """Give up at `data_ptr()`; a custom Function that asks for an address runs on the host."""
        self.hosts.leave()
        self.run_op_by_op("it asks for the address of a tensor, by data_ptr()")

    def raise_refused(self) -> None:
        """Raise what the user's code was given that gives the trace up, and may have caught."""
        if self.hosts.left is not None:
            raise self.hosts.left
        if self.refusal is not None:
            raise self.refusal

    def raise_earlier(self) -> None:
        """Raise what a check of values finds that stands before an error of the user's code."""
        try:
            self.hosts.present.examine(self.graph)
        except LucidError as error:
            if self.may_catch:
                self.run_op_by_op(f"its run raises {type(error).__name__}, which it may handle")
            raise error from None

    def _refuse_shared(self) -> None:
        """Give up when the step has written an input whose memory another input shows.

        The trace has other values of that one than eager mode, by which a branch would go.
        """
        written = {cell.value for cell in self.cells.values() if cell.is_written}
        looked_at = len(self.graph.inputs), written
        if not written or looked_at == self._apart:
            return
        found = {cell.value: cell.storage.array for cell in self.cells.values()}
        entries = self.graph.inputs
        arrays = [found.get(entry.value) for entry in entries]
        try:
            Sharing(entries, arrays, written, {*found})
            self._apart = looked_at
        except EagerOnlyError:  # unless it does nothing with the other one
            read = {value for node in self.graph.nodes for value in node.operands}
            try:
                Sharing(entries, arrays, written, read)
            except EagerOnlyError as error:
                self.run_op_by_op(str(error))

    def raise_caught(self) -> None:
        """As `raise_refused`; also give up if the step has handled an error that values cause.

        Or if it may handle one in a call whose host calls have changed Python objects by then.
        """
        self.raise_refused()
        if self.may_catch and self.collector.has_hosts:
            self.run_op_by_op(
                "it may handle an error of its run, by when it has changed Python objects"
            )
        if self.failed is not None:
            self.run_op_by_op(f"it handles {type(self.failed).__name__}, which only values cause")

    def refuse_retaining(self, tensor: TensorCore) -> None:
        """Give up when a tensor from outside is to keep its gradient: its history may be there."""
        if tensor._array is not None and not self.is_own(tensor):
            self.run_op_by_op(
                "it lets an argument, or a tensor from outside, keep its gradient, by retain_grad()"
            )

    def refuse_paths_outside(self, run: BackwardRun) -> None:
        """Give up when gradients are asked for that may go through the history of an argument."""
        self.loops.note_walk(run)
        if not self.has_histories_outside or run.wanted is None:
            return
        found = [x for x in nodes.iterate_graph(run.roots) if isinstance(x, ExternalGradFn)]
        if found and any(self._is_out(x) for x, _ in run.wanted if x not in found):
            self.run_op_by_op(
                "it asks for the gradient with respect to a tensor that an argument may be "
                f"computed from, outside, by {found[0]._short_name()}"
            )

    def _is_out(self, node: Node) -> bool:
        """Whether a node was there before the trace, or stands for one that was."""
        if not isinstance(node, AccumulateGrad):
            return self.is_outer(node)
        return id(node.variable) in self.positions or self.is_outside(node.variable)

    def note_refusal(self, error: TraceError | EagerOnlyError) -> BaseException:
        """Remember an error that the user's code may catch; the error.

        In a method of a custom Function there is another way: on the host it may do as it likes.
        """
        self.hosts.leave()
        self.refusal = self.refusal or error
        return error

    def end(self) -> None:
        """Let go of those who refer to it: what the trace met must not wait for the collector."""
        self.refusal = self.hosts.left = self.failed = None  # their tracebacks do
        self.exits.end()
        self.parts.end()
        self.ended_loops.end()
        del self.hosts, self.ended_loops, self.exits, self.loops, self.foreseen, self.parts
        del self.outside
        self.collector, self.call = GuardCollector(), call
        self.collector.is_over = True  # who has a value of this trace may ask for its text still
        self.arguments = ()
        self.end_numbers()
        self._on_arrays.clear()
        self.outer = []  # a guard has the list
        self.past.clear()
        self.ends.clear()
        self.numbers = ()


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Record this thread's ops into `recorder`."""
    before = context.recorder
    context.recorder = recorder
    try:
        yield
    finally:
        context.recorder = before
