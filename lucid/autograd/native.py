"""Calls of the library's Functions outside of traces: forward and backward as native programs.

What most of them do with their tensors follows from dtypes, shapes and the other arguments alone.
So the first call with such arguments is run op by op and noted, as a graph; it is compiled, and
from then on serves all calls with arguments of these types, the first one included: a value never
depends on how often it was computed. The backward is noted and compiled likewise when it first
runs. A graph that comes back with other sizes shares plan and code (`runtime/open_programs.py`),
but for a few that compute much more than they read.

Calls that are alike but for their sizes share a function once they have come with many
(`any_size.py`).

Where anything is to be seen of what happens inside – in a trace, a transformation, a custom
forward, with hooks on saved tensors – calls run op by op. For gradients of gradients it is the ops
of the noted backward that are recorded.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from lucid.autograd.any_size import Table, form_of, of_any_size
from lucid.autograd.function import Function, FunctionMeta, call_function
from lucid.autograd.node import Gradient, Gradients, Node, edge_of, end_of
from lucid.autograd.saved import SavedTensor, with_history, with_history_of
from lucid.dtypes import get_default_dtype
from lucid.ir import ops
from lucid.ir.environment import NATIVE_FUNCTIONS, VERIFY
from lucid.ir.errors import LucidError
from lucid.ir.extents import NotOpenError, symbol_of
from lucid.ir.graph import Graph, Value, unused_name
from lucid.ir.inference import MANY_ELEMENTS, SHORT
from lucid.ir.location import user_spot
from lucid.ir.op import Attributes, Op
from lucid.ir.region_ops import stacked
from lucid.ir.strides import contiguous_strides
from lucid.ir.types import Shape, TensorType, shared_type, type_of_array
from lucid.ir.whose_code import is_defect
from lucid.tensor.context import context
from lucid.tensor.core import (
    TensorCore,
    apply_op,
    is_of_subclass,
    machine_code,
    of_own_array,
)
from lucid.tensor.levels import Level, Result

if TYPE_CHECKING:
    from lucid.autograd.function import BackwardCFunction
    from lucid.runtime.executable import Executable
    from lucid.runtime.open_programs import Families
    from lucid.tensor.applied import Applied

logger = logging.getLogger("lucid")
_MOST = 128  # programs of one Function; calls with further types and other arguments go op by op


class NotStraightError(Exception):
    """A call does what a graph can't hold: it runs op by op."""


class Notes(Level):
    """Notes the ops of a call as a graph of its tensors, while they run one by one.

    Attributes:
        graph: its inputs are the tensors, in order, and then `constants`.
        constants: arrays that the call has made without any tensor.
    """

    def __init__(self, name: str, tensors: Sequence[TensorCore]) -> None:
        self.graph = Graph(name)
        self.constants: list[np.ndarray] = []
        self._known: dict[int, Value] = {}
        self._of_arrays: dict[int, Value] = {}  # an alias shows the array of another tensor
        self._kept: list[TensorCore] = []  # so that no other tensor gets the identity of one
        for tensor in tensors:
            self._note(tensor, self.graph.add_input(tensor._type))
        if len(self._known) < len(tensors):
            raise NotStraightError("one tensor is there twice")

    def _note(self, tensor: TensorCore, value: Value) -> None:
        self._known[id(tensor)] = value
        self._of_arrays.setdefault(id(tensor._array), value)
        self._kept.append(tensor)

    def value_of(self, tensor: TensorCore) -> Value:
        """The value that a tensor of the call is, or a constant."""
        value = self._known.get(id(tensor)) or self._of_arrays.get(id(tensor._array))
        if value is None:
            array = tensor._array
            if array is None or any(self._shares(array, other) for other in self._kept):
                raise NotStraightError("a tensor is reached around the call's ops")
            if array.ndim:
                self.constants.append(array)
                value = self.graph.add_input(tensor._type, "state")
            else:
                value = self.graph.constant(array.item(), tensor.dtype)
            self._note(tensor, value)
        return value

    @staticmethod
    def _shares(array: np.ndarray, other: TensorCore) -> bool:
        return other._array is not None and np.may_share_memory(array, other._array)

    def acts_on(self, op: Op | None, tensors: Sequence[Any], position: int) -> bool:
        return True

    def apply(
        self, op: Op, operands: Sequence[TensorCore], attributes: Attributes, position: int
    ) -> TensorCore:
        values = [self.value_of(operand) for operand in operands]
        levels = context.levels
        context.levels = levels[:position]
        try:
            result = apply_op(_without_work(op), operands, attributes)
        finally:
            context.levels = levels
        assert isinstance(result, TensorCore)
        self._note(result, self.graph.append(op, values, attributes).result)
        return result

    def write(self, target: TensorCore, value: TensorCore, position: int) -> None:
        raise NotStraightError("it writes in place")

    def look(self, tensor: TensorCore) -> None:
        value = self._known.get(id(tensor)) or self._of_arrays.get(id(tensor._array))
        if value is not None and (value.producer is None or value.producer.op is not ops.constant):
            raise NotStraightError("it goes by numbers that another call may have others of")

    def call(
        self,
        function: type[Function],
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        position: int,
    ) -> Result:
        return call_function(function, inputs, keywords)

    def find(
        self, name: str, find: Callable[..., Sequence[np.ndarray]], tensors: Sequence[TensorCore]
    ) -> Sequence[TensorCore]:
        hosts, values = self.graph.hosts, [self.value_of(x) for x in tensors]
        arrays = find(*_arrays(tensors))
        name = unused_name(name, hosts)
        hosts[name] = lambda _, operands: find(*operands)
        node = self.graph.append_host(name, values, [type_of_array(array) for array in arrays])
        results = [of_own_array(array, None) for array in arrays]
        for tensor, value in zip(results, node.results, strict=True):
            self._note(tensor, value)
        return results

    def rounds(
        self,
        name: str,
        body: Callable[[list[Any]], Sequence[TensorCore]],
        tensors: Sequence[TensorCore],
        carries: int,
        rows: int,
        reverse: bool,
    ) -> list[TensorCore]:
        """Note a loop, and return tensors that stand for the last carry, and for stacks.

        What they hold is not what the rounds give, of which only one is run.

        body: what a round makes of its part of the tensors: the carry, a row of each of so many,
            and what else there is.
        """
        first = -1 if reverse else 0
        parts = [
            np.array(x._array[first] if carries <= n < carries + rows else x._array)  # type: ignore[index]
            for n, x in enumerate(tensors)
        ]
        given: list[TensorCore] = [of_own_array(part, None) for part in parts]
        levels, context.levels = context.levels, []
        try:
            made, notes = noted(name, given, lambda: body(given), lambda made: made)
        finally:
            context.levels = levels
        types, carried = [x._type for x in made], [x._type for x in tensors[:carries]]
        if types[:carries] != carried or notes.graph.functions:
            raise NotStraightError("a round isn't like the next one")
        length = tensors[carries]._type.shape[0]
        types[carries:] = [stacked(type, length) for type in types[carries:]]
        values = [self.value_of(x) for x in tensors]
        for entry, array in zip(notes.graph.inputs[len(values) :], notes.constants, strict=True):
            entry.kind = "arg"
            self.constants.append(array)
            values.append(self.graph.add_input(entry.value.type, "state"))
        if name in self.graph.functions:
            name = f"{name}_{len(self.graph.functions)}"
        notes.graph.name = name
        self.graph.functions[name] = notes.graph
        attributes = {"function": name, "carries": carries, "rows": rows, "length": length}
        node = self.graph.append_region(ops.scan, values, attributes | {"reverse": reverse}, types)
        results: list[TensorCore] = [
            of_own_array(np.zeros(x.shape, x.dtype.numpy), None) for x in types
        ]
        for tensor, value in zip(results, node.results, strict=True):
            self._note(tensor, value)
        return results

    def alias(self, tensor: TensorCore, alias: TensorCore) -> None:
        value = self._known.get(id(tensor))
        if value is not None:
            self._note(alias, value)


@cache
def _without_work(op: Op) -> Op:
    """An op that gives zeros, if NumPy would work long: what a noted call computes is dropped."""
    if op.kind not in ("attention", "contract"):
        return op

    def zeros(*arrays: np.ndarray, **attributes: Any) -> np.ndarray:
        type = op.infer(*map(type_of_array, arrays), **attributes)
        return np.zeros(type.shape, type.dtype.numpy)

    return replace(op, evaluate=zeros)


def noted(
    name: str,
    tensors: Sequence[TensorCore],
    call: Callable[[], Any],
    outputs: Callable[[Any], Sequence[TensorCore]],
) -> tuple[Any, Notes]:
    """What a call returns, and its graph, whose outputs are those tensors of what it returned."""
    notes = Notes(name, tensors)
    context.levels = [*context.levels, notes]
    try:
        returned = call()
    finally:
        context.levels = context.levels[:-1]
    notes.graph.outputs = [notes.value_of(tensor) for tensor in outputs(returned)]
    return returned, notes


class Code:
    """The native code of a graph.

    Attributes:
        name: the Function's; of a backward with `.backward`.
        types: of its outputs.
        reads: of each input, whether the code reads it: others may have been written since.
        templates: of the outputs, once machine code makes tensors of these.
        call: the code as a `function_of_arrays`; None: `run` has to be asked.

    Args:
        constants: the last inputs.
        families: of the Function, whose code with open sizes this may be.

    Raises:
        NotStraightError: an op of it can't be compiled.
    """

    __slots__ = ("_constants", "_executable", "call", "name", "reads", "templates", "types")

    def __init__(self, graph: Graph, constants: Sequence[np.ndarray], families: Families) -> None:
        from lucid.ir.passes.pipeline import PassLog, simplify
        from lucid.runtime.entry.arrays import function_of_arrays
        from lucid.runtime.executable import compile_graph

        self.name = graph.name
        # Machine code knows an op that comes again by the types of its operands, as objects.
        self.types = [shared_type(x.dtype, x.shape) for x in graph.outputs]
        self.templates: list[np.ndarray] | None = None
        self._constants = [np.ascontiguousarray(array) for array in constants]
        graph.drop_dead_nodes()
        read = {operand for node in graph.nodes for operand in node.operands}.union(graph.outputs)
        self.reads = [entry.value in read for entry in graph.inputs]
        self.call: Callable[..., tuple[np.ndarray, ...] | None] | None = _only_call(graph)
        if self.call is not None:
            return
        try:
            found = None
            if not families.knows_sizes(graph):
                family, skeleton, strides = families.of(graph, [None] * len(graph.inputs))
                if family is not None:
                    found = family.executable(graph, strides, skeleton, simplify, PassLog())
            if found is None:
                simplify(graph)
                self._executable: Executable = compile_graph(graph)
            else:
                self._executable = found[0]
        except LucidError as error:
            raise NotStraightError(str(error)) from error
        except Exception as error:  # op by op the call is right
            if VERIFY.read() or not is_defect(error):
                raise
            logger.exception("%s runs op by op: its ops can't be compiled", self.name)
            raise NotStraightError(str(error)) from error
        self.call = function_of_arrays(self._executable, self._constants)

    def run(self, arrays: list[np.ndarray]) -> Sequence[np.ndarray]:
        """The outputs for arrays of the noted types, in memory of their own.

        Raises what a check of the graph says.
        """
        if self.call is not None:
            found = self.call(*arrays)
            if found is not None:
                return found
        given = [a if a.flags.c_contiguous else row_major(a) for a in arrays]
        return self._executable.call_known(given + self._constants)


def _only_call(graph: Graph) -> Callable[..., tuple[np.ndarray, ...]] | None:
    """A graph that is nothing but a call of Python, as a function of arrays."""
    nodes, given = graph.nodes, [entry.value for entry in graph.inputs]
    if len(nodes) != 1 or nodes[0].op is not ops.host:
        return None
    if [*nodes[0].operands] != given or [*nodes[0].results] != graph.outputs:
        return None
    host = graph.hosts[nodes[0].attributes["function"]]
    return lambda *arrays: tuple(host({}, arrays))


class Codes:
    """The native code of graphs that follow from the types of their inputs: for each, and for all.

    After some sizes one program serves all others that are alike, and finds out at each call what
    follows from its sizes, which takes a quarter of what it takes to make code for these. Sizes
    stay with the code that served them first: it may add numbers in another order.

    Args:
        graph_of: makes the graph.
    """

    def __init__(self, graph_of: Callable[[Sequence[TensorType]], Graph]) -> None:
        from lucid.runtime.open_programs import Families

        self._graph_of = graph_of
        self._families = Families()
        self._codes: dict[tuple[TensorType, ...], Code] = {}
        self._earlier: dict[Any, list[tuple[TensorType, ...]]] = {}
        self._problem: str | None = None  # why it can't be compiled
        self._of_any_size: dict[Any, list[_OfAnySize]] = {}
        self._tries: dict[Any, int] = {}  # to make such

    def run(self, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """The outputs for arrays, in memory of their own.

        Raises what a check of the graph says, and `NotStraightError` where it can't be compiled.
        """
        types = tuple([type_of_array(array) for array in arrays])
        code = self._codes.get(types)
        if code is None:
            found = self._run_open(types, arrays)
            if found is not None:
                return found
            code = self._enter(types)
        return code.run(list(arrays))

    def _run_open(
        self, types: tuple[TensorType, ...], arrays: Sequence[np.ndarray]
    ) -> Sequence[np.ndarray] | None:
        """The same by code for all sizes; None where there is none for these."""
        for shared in self._of_any_size.get(_form(types), ()):
            if shared.fits(types):
                try:
                    given = [a if a.flags.c_contiguous else row_major(a) for a in arrays]
                    return shared.executable.call(given, is_once=True)
                except NotOpenError:  # what the plan assumes doesn't hold for these
                    return None
        return None

    def _enter(self, types: tuple[TensorType, ...]) -> Code:
        if self._problem is not None:
            raise NotStraightError(self._problem)
        if len(self._codes) >= _MOST_CODES:
            self._codes.pop(next(iter(self._codes)), None)
        try:
            code = self._codes[types] = Code(self._graph_of(types), (), self._families)
        except NotStraightError as problem:
            self._problem = str(problem)
            raise
        form = _form(types)
        tries = self._tries.get(form, 0)
        if tries == _MOST_TRIES:
            return code
        earlier = self._earlier.setdefault(form, [])
        earlier.append(types)
        is_large = sum([type.nbytes for type in types]) > _LARGE
        if len(earlier) >= (2 if is_large else _SIZES_APART) and self._earlier.pop(form, []):
            self._tries[form] = tries + 1  # which another thread hasn't begun
            self._of_any_size.setdefault(form, []).extend(self._shared(earlier))
        return code

    def _shared(self, earlier: Sequence[tuple[TensorType, ...]]) -> list[_OfAnySize]:
        """What runs sizes that differ as these do; nothing: all must be known."""
        from lucid.ir.opening import opened, opening, skeleton_of
        from lucid.ir.passes.pipeline import PassLog, simplify
        from lucid.runtime.decided_sizes import decided_program

        graphs = [self._graph_of(types) for types in earlier]
        strides = [[contiguous_strides(x.value.shape) for x in graph.inputs] for graph in graphs]
        try:
            found = opening([*map(skeleton_of, graphs, strides)])
            graph, steps = opened(graphs[-1], found.numbers)
            program = decided_program(graph, steps, found.sizes, simplify, PassLog(), {})
        except NotOpenError:
            return []
        except Exception as error:  # of code that takes no extents; each size has its code
            if VERIFY.read() or not is_defect(error):
                raise
            logger.exception("%s: sizes can't be open", graphs[0].name)
            return []
        shapes = [entry.value.shape for entry in graph.inputs]
        homes: dict[int | None, tuple[int, int]] = {}
        for number, shape in enumerate(shapes):
            for axis, size in enumerate(shape):
                homes.setdefault(symbol_of(size), (number, axis))
        if not all(n in homes for n in range(len(found.sizes.symbols))):
            return []
        symbols = [homes[n] for n in range(len(found.sizes.symbols))]
        sizes = found.sizes.evaluator(chain.from_iterable(shapes))
        return [_OfAnySize(symbols, sizes, program.executable())]


class _OfAnySize(NamedTuple):
    """Code for sizes that differ as those did that it was found from.

    Attributes:
        symbols: where what is open is said, by the number of an input and its axis.
        sizes: all sizes of the inputs, of what is open.
        executable: what runs them.
    """

    symbols: Sequence[tuple[int, int]]
    sizes: Callable[[Sequence[int]], Sequence[int]]
    executable: Executable

    def fits(self, types: Sequence[TensorType]) -> bool:
        expected = self.sizes([types[number].shape[axis] for number, axis in self.symbols])
        return [*expected] == [n for type in types for n in type.shape]


def _form(types: Sequence[TensorType]) -> tuple[Any, ...]:
    """What inputs have in common that differ in sizes alone, and in none of a short axis."""
    return tuple([(x.dtype, tuple([n if n < SHORT else SHORT for n in x.shape])) for x in types])


_MOST_CODES, _MOST_TRIES = 64, 4
_LARGE = 1 << 20  # bytes: code for each size would keep as much memory
_SIZES_APART = 16  # small ones that have code of their own, and keep it, before one serves all


def row_major(array: np.ndarray) -> np.ndarray:
    """A copy whose elements lie in the order of its axes; by native code where NumPy is slow.

    That is where `array` is a plain one that was transposed, flipped or broadcast.
    """
    if _is_slow_to_copy(array) and NATIVE_FUNCTIONS.read():
        steps = [
            step if size > 1 else 0 for size, step in zip(array.shape, array.strides, strict=True)
        ]
        parts = [slice(None, None if step else 1, -1 if step < 0 else 1) for step in steps]
        order = sorted(range(array.ndim), key=lambda n: (-abs(steps[n]), n))
        base = array[tuple(parts)].transpose(order)
        if base.flags.c_contiguous:
            perm = tuple(sorted(range(array.ndim), key=order.__getitem__))
            flipped = tuple([axis for axis, step in enumerate(steps) if step < 0])
            (copied,) = _copying(type_of_array(base), perm, flipped, array.shape).run([base])
            return copied
    return np.ascontiguousarray(array)


def _is_slow_to_copy(array: np.ndarray) -> bool:
    """Whether NumPy's innermost loop is short, or goes from line to line.

    Of each line it takes one element; where lines are a power of two apart, that takes ten times as
    long.
    """
    if array.size < MANY_ELEMENTS:
        return False
    run, step = 1, 0
    for size, next_step in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if size == 1:
            continue
        if run > 1 and next_step != step * run:
            break
        step, run = step if run > 1 else next_step, run * size
    return run < SHORT or step not in (0, array.itemsize)


@lru_cache(32)
def _copying(
    type: TensorType, perm: tuple[int, ...], flipped: tuple[int, ...], shape: Shape
) -> Code:
    from lucid.runtime.open_programs import Families

    graph = Graph("contiguous")
    value: Value = ops.transpose(graph.add_input(type), perm=perm)
    for axis in flipped:
        value = ops.flip(value, axis)
    graph.outputs = [ops.broadcast(value, shape=shape)]
    key = type.dtype, perm, flipped, value.shape == shape
    return Code(graph, (), _copies.setdefault(key, Families()))


_copies: dict[tuple[Any, ...], Families] = {}


class Recording:
    """The ops of a noted call that its results need, to be applied to other tensors of its types.

    Attributes:
        reads: as those of `Code`.

    Raises:
        NotStraightError: it has a loop, or a result is an argument.
    """

    __slots__ = ("_constants", "_outputs", "_steps", "reads")

    def __init__(self, notes: Notes) -> None:
        graph = notes.graph
        if graph.functions or any(value.producer is None for value in graph.outputs):
            raise NotStraightError("it isn't made of ops alone")
        graph.drop_dead_nodes()
        self._constants = [of_own_array(array, None) for array in notes.constants]
        places = {value: n for n, value in enumerate(graph.values())}
        self._steps = [
            (node.op, [places[x] for x in node.operands], node.attributes) for node in graph.nodes
        ]
        self._outputs = [places[value] for value in graph.outputs]
        read = {operand for node in graph.nodes for operand in node.operands}
        self.reads = [entry.value in read for entry in graph.inputs]

    def run(self, tensors: list[Any]) -> list[Any]:
        """The results for tensors of these types."""
        known = [*tensors, *self._constants]
        for op, operands, attributes in self._steps:
            known.append(apply_op(op, tuple([known[n] for n in operands]), attributes))
        return [known[n] for n in self._outputs]


class Forward:
    """How calls of a Function with arguments of some types run.

    Attributes:
        code: gives the outputs, and behind them what else is saved.
        is_tuple: whether forward returned a tuple.
        saved: what is saved, each by the number of a tensor argument, of an output or of what lies
            behind those; None: nothing is.
        attributes: of the ctx of each call, those that forward sets included.
        tracked: the numbers of the outputs with a gradient.
        backwards, recordings: by the inputs whose gradient is asked for.
    """

    __slots__ = (
        "attributes",
        "backwards",
        "code",
        "count",
        "families",
        "is_tuple",
        "output_types",
        "recordings",
        "saved",
        "tracked",
    )

    def __init__(self, cls: type[Function], inputs: tuple[Any, ...], families: _Families) -> None:
        tensors = [x for x in inputs if isinstance(x, TensorCore)]
        copies = {id(x): _leaf_like(x) for x in tensors}
        given = tuple([copies[id(x)] if isinstance(x, TensorCore) else x for x in inputs])
        leaves = [x for x in given if isinstance(x, TensorCore)]
        extra: list[TensorCore] = []
        sources: list[tuple[str, int] | None] = []

        def results(found: Result) -> list[TensorCore]:
            returned, ctx = found
            raw = list(returned) if isinstance(returned, tuple) else [returned]
            if not all(isinstance(x, TensorCore) for x in raw):
                raise NotStraightError("it returns more than tensors")
            numbers = {id(x): i for i, x in enumerate(leaves)}
            for saved in ctx._saved or ():
                sources.append(_source(saved, numbers, extra))
            return [*raw, *extra]

        found, notes = noted(cls.__name__, leaves, lambda: call_function(cls, given, {}), results)
        returned, ctx = found
        if any(value.producer is None for value in notes.graph.outputs):
            raise NotStraightError("a result is an argument")
        self.is_tuple = isinstance(returned, tuple)
        self.code = Code(notes.graph, notes.constants, families.forward)
        self.count = len(self.code.types) - len(extra)
        self.output_types = tuple(self.code.types[: self.count])
        self.saved = None if ctx._saved is None else sources
        marked, types = ctx._marked_outputs, enumerate(self.output_types)
        self.tracked = [i for i, t in types if i not in marked and t.dtype.is_floating_point]
        own = ctx._own_names
        self.attributes = {k: v for k, v in vars(ctx).items() if k not in own}
        self.attributes["to_save"] = None  # the first call's tensors must not stay
        if any(isinstance(value, TensorCore) for value in self.attributes.values()):
            raise NotStraightError("ctx has a tensor")
        for name in ("_input_types", "_marked_outputs", "needs_input_grad"):
            self.attributes[name] = getattr(ctx, name)
        self.attributes["_native"] = self
        self.families = families
        self.backwards: dict[tuple[bool, ...], Code | None] = {}
        self.recordings: dict[tuple[bool, ...], Recording | None] = {}

    def new_ctx(self, cls: type[Function]) -> BackwardCFunction:
        """The node of a call, but for its place and what it saves."""
        ctx: BackwardCFunction = cls._backward_cls()
        ctx.__dict__.update(self.attributes)
        ctx._led_to = None
        ctx._output_types = self.output_types
        return ctx

    def differentiate(self, ctx: BackwardCFunction, gradients: tuple[Any, ...]) -> Any:
        """The gradients of a call's tensors; `NotImplemented` where its backward runs op by op."""
        if not all(map(_is_at_hand, gradients)):
            return NotImplemented
        if context.grad_enabled:
            return self._recorded(ctx, gradients)
        if ctx.needs_input_grad not in self.backwards:
            if not _is_plain() or ctx._freed is not None:
                return NotImplemented
            given = [*gradients, *[saved.tensor for saved in _dense(ctx)]]
            self.backwards[ctx.needs_input_grad] = _code_of_backward(ctx, given, len(gradients))
        found = self.on_arrays(ctx, gradients)
        if found is None:
            return NotImplemented
        types = [type for type in ctx._input_types if type is not None]
        return tuple(
            [
                None if array is None else gradients[0]._followed_by(array, type)
                for array, type in zip(found, types, strict=True)
            ]
        )

    def _recorded(self, ctx: BackwardCFunction, gradients: tuple[Any, ...]) -> Any:
        """The same by ops that are recorded, for gradients of gradients.

        Of a composite, whose backward would run it again: others say what is to be done.
        """
        is_composite = issubclass(ctx._forward_cls, Composite)
        if not is_composite or not _is_plain() or ctx._freed is not None:
            return NotImplemented
        needs, kept = ctx.needs_input_grad, _dense(ctx)
        if needs not in self.recordings:
            context.grad_enabled = False
            try:
                given = [*gradients, *[saved.tensor for saved in kept]]
                self.recordings[needs] = Recording(_noted_backward(ctx, given, len(gradients)))
            except NotStraightError:
                self.recordings[needs] = None
            finally:
                context.grad_enabled = True
        recording = self.recordings[needs]
        if recording is None:
            return NotImplemented
        reads = recording.reads[len(gradients) :][: len(kept)]  # behind these are constants
        tensors = [x.unpack(ctx) if read else x.tensor for x, read in zip(kept, reads, strict=True)]
        made = iter(recording.run([*gradients, *tensors]))
        pairs = zip(ctx._input_types, needs, strict=True)
        return tuple([next(made) if need else None for type, need in pairs if type is not None])

    def on_arrays(
        self, ctx: BackwardCFunction, gradients: Sequence[Gradient | None]
    ) -> list[np.ndarray | None] | None:
        """The same in memory of their own; None where the backward isn't native, or not yet."""
        needs = ctx.needs_input_grad
        code = self.backwards.get(needs)
        if code is None or not _is_plain() or ctx._freed is not None:
            return None
        given: list[Any] = []
        for gradient, type in zip(gradients, self.output_types, strict=True):
            if gradient is None:
                if not ctx.materialize_grads or all(x is None for x in gradients):
                    return None
                given.append(np.zeros(type.shape, type.dtype.numpy))
                continue
            given.append(gradient if isinstance(gradient, np.ndarray) else gradient._array)
        for saved in _dense(ctx):
            tensor = saved.content(ctx) if code.reads[len(given)] else saved.tensor
            given.append(tensor._array)  # type: ignore[union-attr]
        made = iter(code.run(given))
        pairs = zip(ctx._input_types, needs, strict=True)
        return [next(made) if need else None for kind, need in pairs if kind is not None]


def _leaf_like(tensor: TensorCore) -> TensorCore:
    """A leaf on the tensor's memory that requires grad if that does, and it is recorded."""
    leaf = tensor.detach()
    return leaf.requires_grad_() if tensor.requires_grad and context.grad_enabled else leaf


def _source(saved: Any, numbers: dict[int, int], extra: list[TensorCore]) -> tuple[str, int] | None:
    """Where a saved tensor comes from."""
    if saved is None:
        return None
    if type(saved) is not SavedTensor or saved.tensor is None:
        raise NotStraightError("it saves what is no tensor")
    if saved.output_nr >= 0:
        return "output", saved.output_nr
    number = numbers.get(id(saved.tensor))
    if number is not None:
        return "input", number
    if saved.private_edge is not None:
        raise NotStraightError("it saves what has a history")
    extra.append(saved.tensor)
    return "extra", len(extra) - 1


class _Families(NamedTuple):
    """The code of a Function with open sizes."""

    forward: Families
    backward: Families


_forwards: dict[type[Function], dict[tuple[Any, ...], Forward | None]] = {}
_alike: dict[type[Function], Table] = {}
_families: dict[type[Function], _Families] = {}


def _is_plain() -> bool:
    """Whether nothing is to be seen of what happens inside of a call."""
    state: dict[str, Any] = context.__dict__
    return _watchers(state) == _NOBODY and not (state["levels"] or state["saved_hooks"])


_WATCHERS = "recorder", "forward", "mutation_guard", "lent", "anomaly", "saving", "compared"
_watchers, _NOBODY = itemgetter(*_WATCHERS), (None,) * len(_WATCHERS)


def _known_by(inputs: tuple[Any, ...]) -> tuple[list[Any], list[TensorCore], list[Any]] | None:
    """What calls with such arguments have in common, their tensors, and where gradients go."""
    key: list[Any] = [get_default_dtype()]
    tensors: list[TensorCore] = []
    ends: list[Any] = []
    records = context.grad_enabled
    for x in inputs:
        if isinstance(x, TensorCore):
            if x._array is None:
                return None
            end = end_of(x) if records and (x._requires_grad or x._base is not None) else None
            tensors.append(x)
            ends.append(end)
            type_ = x._type
            key += type_.dtype, type_.shape, end is None
        else:
            key += type(x), x.hex() if type(x) is float else x
    return key, tensors, ends


def forward_of(cls: type[Function], inputs: tuple[Any, ...]) -> Forward | None:
    """How a call that was native has run; None: by a program for all sizes."""
    known = _known_by(inputs)
    return None if known is None else _forwards.get(cls, {}).get(tuple(known[0]))


def call_natively(cls: type[Function], inputs: tuple[Any, ...]) -> Any:
    """What `cls.apply` returns for these arguments; `NotImplemented` where they go op by op."""
    if not _is_plain():
        levels = context.levels
        return levels[-1].program(cls, inputs) if levels else NotImplemented
    given = _known_by(inputs)
    if given is None:
        return NotImplemented
    key, tensors, ends = given
    known = _forwards.setdefault(cls, {})
    try:
        forward = known[tuple(key)]
    except KeyError:
        is_open = not cls._calls_python
        found = _of_any_size(cls, inputs, tensors, ends) if is_open else NotImplemented
        if found is not NotImplemented:
            return found
        forward = _enter(cls, inputs, known, tuple(key))
    except TypeError:  # an argument that can't be hashed
        return NotImplemented
    if forward is None:
        return NotImplemented
    try:
        arrays = forward.code.run(_arrays(tensors))
    except LucidError:  # op by op it is raised again, with operands and line
        return NotImplemented
    spot = user_spot()
    natively, code = machine_code(), forward.code
    if natively is None:
        made = [of_own_array(array, spot) for array in arrays]
    else:
        if code.templates is None:
            code.templates = [natively.templates(type_) for type_ in code.types]
        pairs = zip(code.templates, arrays, strict=True)
        made = [natively.made(templates, array, spot) for templates, array in pairs]
    outputs = made[: forward.count]
    for end in ends:
        if end is not None:
            _give_history(cls, forward, tensors, ends, made, spot, natively)
            break
    return tuple(outputs) if forward.is_tuple else outputs[0]


@contextmanager
def op_by_op() -> Iterator[None]:
    """In the block this thread's calls of Functions run op by op, to be compared with.

    Compiled functions run as they do outside of it.
    """
    before, context.compared = context.compared, True
    try:
        yield
    finally:
        context.compared = before


def _enter(
    cls: type[Function],
    inputs: tuple[Any, ...],
    known: dict[tuple[Any, ...], Forward | None],
    key: tuple[Any, ...],
) -> Forward | None:
    if len(known) >= _MOST or not NATIVE_FUNCTIONS.read():
        return None
    families = _families.get(cls)
    if families is None:
        from lucid.runtime.open_programs import Families

        families = _families[cls] = _Families(Families(), Families())
    try:
        forward = Forward(cls, inputs, families)
    except NotStraightError:
        forward = None
    except LucidError:  # op by op it is raised again, with the user's operands
        return None
    known[key] = forward
    return forward


def _of_any_size(
    cls: type[Function], inputs: tuple[Any, ...], tensors: list[TensorCore], ends: list[Any]
) -> Any:
    """What a call with unfamiliar sizes returns; `NotImplemented`: there were few such, so far.

    Its backward calls hooks in another order than the ops: tensors that have some aren't given.
    """
    key: list[Any] = [get_default_dtype()]
    types: list[TensorType] = []
    for x in inputs:
        if isinstance(x, TensorCore):
            end = ends[len(types)]
            if x._hooks or (type(end) is tuple and end[0]._is_observed):
                return NotImplemented
            key += *form_of(x._type, is_parameter=is_of_subclass(x)), end is None
            types.append(x._type)
        else:
            key += type(x), x.hex() if type(x) is float else x
    given = [_GIVEN if isinstance(x, TensorCore) else x for x in inputs]
    apply = cls._function if issubclass(cls, Composite) else cls.apply

    def traced(*tensors: TensorCore) -> Any:
        rest = iter(tensors)
        return apply(*[next(rest) if x is _GIVEN else x for x in given])

    shown = [_contiguous(tensor) for tensor in tensors]
    table = _alike.setdefault(cls, {})
    output = of_any_size(table, tuple(key), types, shown, traced, cls.__name__)
    if output is NotImplemented:
        return output
    several = output if isinstance(output, tuple) else (output,)
    if any(x is y is not tensor for x in several for y, tensor in zip(shown, tensors, strict=True)):
        return NotImplemented  # it returns an argument, which isn't to be a copy
    if not all(isinstance(x, TensorCore) for x in several):
        return output
    node = several[0]._grad_fn
    spot = user_spot() if node is None else node._spot
    for tensor in several:
        tensor._spot = spot
    return _named_as(cls, output, inputs)


_GIVEN = object()  # a tensor of the call


def _contiguous(tensor: TensorCore) -> TensorCore:
    """The tensor, or a row-major copy: only those does machine code take in any size.

    The copy's gradient is the tensor's, and what saves it is told of writes to that.
    """
    array = tensor._array
    assert array is not None
    if array.flags.c_contiguous:
        return tensor
    copy = with_history_of(tensor, of_own_array(row_major(array), tensor._spot))
    copy._counter = tensor._counter
    return copy


def _give_history(
    cls: type[Function],
    forward: Forward,
    tensors: list[TensorCore],
    ends: list[Any],
    made: list[Any],
    spot: Any,
    natively: Applied | None,
) -> None:
    """Let the outputs have a ctx as their node, as after a call op by op."""
    ctx = forward.new_ctx(cls)
    ctx._spot = spot
    ctx._ends = tuple(ends)
    for number in forward.tracked:
        tensor = made[number]
        tensor._requires_grad = True
        tensor._grad_fn, tensor._output_nr = ctx, number
    if forward.saved is not None:
        templates = forward.code.templates
        saved: list[Any] = []
        for source in forward.saved:
            if source is None:
                saved.append(None)
                continue
            kind, number = source
            if kind == "output" and (number or natively is None):
                saved.append(SavedTensor(made[number], number))
                continue
            if kind == "output":
                assert natively is not None and templates is not None
                saved.append(natively.kept(made[0], templates[0]))
                continue
            tensor = tensors[number] if kind == "input" else made[forward.count + number]
            saved.append(SavedTensor(tensor, -1) if natively is None else natively.kept(tensor))
        ctx._saved = saved


def _dense(ctx: BackwardCFunction) -> list[SavedTensor]:
    """What a call has saved; `_source` has seen that all of it is dense."""
    return [saved for saved in ctx._saved or () if saved is not None]  # type: ignore[misc]


def _arrays(tensors: Sequence[TensorCore]) -> list[np.ndarray]:
    return [tensor._array for tensor in tensors]  # type: ignore[misc]


def _is_at_hand(tensor: TensorCore | None) -> bool:
    return tensor is not None and tensor._array is not None


def _noted_backward(ctx: BackwardCFunction, given: list[Any], count: int) -> Notes:
    """A backward, noted on these gradients and saved tensors.

    Raises: `NotStraightError` where it has no graph.
    """

    def call() -> tuple[TensorCore | None, ...]:
        rest = iter(given[count:])  # whether they were written matters where they are read
        kept = ctx._saved or ()
        ctx._shown_saved = tuple([None if saved is None else next(rest) for saved in kept])
        try:
            return ctx._differentiate(tuple(given[:count]))
        finally:
            ctx._shown_saved = None

    def outputs(parts: tuple[TensorCore | None, ...]) -> list[TensorCore]:
        return [part for part in parts if part is not None]

    pairs = zip(ctx._input_types, ctx.needs_input_grad, strict=True)
    expected = [need for type, need in pairs if type is not None]
    parts, notes = noted(f"{ctx._forward_cls.__name__}.backward", given, call, outputs)
    if [part is not None for part in parts] != expected:
        raise NotStraightError("a gradient is undefined")
    return notes


def _code_of_backward(ctx: BackwardCFunction, given: list[Any], count: int) -> Code | None:
    """The native code of the same; None: it has none."""
    try:
        notes = _noted_backward(ctx, given, count)
        return Code(notes.graph, notes.constants, ctx._native.families.backward)
    except NotStraightError:
        return None


F = TypeVar("F", bound="type[Function]")
C = TypeVar("C", bound=Callable[..., Any])


def runs_natively(cls: F) -> F:
    """Say of a Function of the library that what it does follows from its arguments' types."""
    cls._call_natively = functools.partial(call_natively, cls)
    return cls


def composite(function: C) -> C:
    """Say the same of a function made of ops and Functions; its arguments come by position.

    Outside of traces it is then one program with one node, named after it. Where calls go op by op
    it is as if this weren't there, but for that name: the last nodes have it.
    """
    name = "".join(part.capitalize() for part in function.__name__.split("_"))
    cls: Any = FunctionMeta(name, (Composite,), {"_function": staticmethod(function)})

    @functools.wraps(function)
    def called(*args: Any) -> Any:
        output = call_natively(cls, args)
        return _named_as(cls, function(*args), args) if output is NotImplemented else output

    return called  # type: ignore[return-value]


def _named_as(cls: type[Function], output: Any, args: tuple[Any, ...]) -> Any:
    """What a composite returned op by op, whose last nodes are called as its only one is else."""
    outputs = output if isinstance(output, tuple) else (output,)
    given = [x._grad_fn for x in args if isinstance(x, TensorCore)]
    for tensor in outputs:
        node = tensor._grad_fn
        if node is not None and not any(node is other for other in given):
            node.__dict__["_composite"] = cls._backward_cls.__name__
    return output


def fused(function: C, least: int = MANY_ELEMENTS) -> C:
    """Say the same of a function of few ops, whose calls with many elements are programs.

    These go over memory once. With fewer elements the ops take no longer than a program's entry.
    """
    programs: dict[tuple[int, tuple[str, ...]], Callable[..., Any]] = {}

    def by_position(count: int, names: tuple[str, ...]) -> Callable[..., Any]:
        @functools.wraps(function)
        def positional(*args: Any) -> Any:
            return function(*args[:count], **dict(zip(names, args[count:], strict=True)))

        return composite(positional)

    @functools.wraps(function)
    def called(*args: Any, **keywords: Any) -> Any:
        for x in args:
            if isinstance(x, TensorCore) and x._type.size >= least:
                break
        else:
            return function(*args, **keywords)
        form = len(args), tuple(keywords)
        program = programs.get(form)
        if program is None:
            program = programs[form] = by_position(*form)
        return program(*args, *keywords.values())

    return called  # type: ignore[return-value]


def program(function: C) -> C:
    """Say the same of a function of many ops: its calls are programs, however few the elements."""
    return fused(function, 1)


class _Entrance(Node):
    """Where an argument enters a composite: its gradient is asked for here.

    What one argument may owe to another one lies behind it, and is none of the composite's.
    """

    __slots__ = ()

    def __init__(self, tensor: TensorCore) -> None:
        super().__init__((edge_of(tensor),), (tensor._type,))

    def apply(self, gradients: Gradients) -> Gradients:
        return gradients


class Composite(Function):
    """A function as a Function: its backward runs the function again and differentiates that."""

    _function: Callable[..., Any]

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        ctx.save_for_backward(*[x for x in inputs if isinstance(x, TensorCore)])
        ctx.others = tuple([None if isinstance(x, TensorCore) else x for x in inputs])
        return ctx._forward_cls._function(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: TensorCore) -> tuple[TensorCore | None, ...]:
        from lucid.autograd.entry_points import grad

        saved, create_graph = iter(ctx.saved_tensors), context.grad_enabled
        inputs: list[Any] = []
        for type, other, need in zip(
            ctx._input_types, ctx.others, ctx.needs_input_grad, strict=True
        ):
            given = other if type is None else next(saved)
            inputs.append(with_history(given, (_Entrance(given), 0)) if need else given)
        context.grad_enabled = True
        try:
            outputs = ctx._forward_cls._function(*inputs)
            several = outputs if isinstance(outputs, tuple) else (outputs,)
            pairs = zip(several, gradients, strict=True)
            starts = [g for output, g in pairs if output.requires_grad]
            several = tuple([output for output in several if output.requires_grad])
            wanted = [x for x, need in zip(inputs, ctx.needs_input_grad, strict=True) if need]
            found = iter(
                grad(several, wanted, starts, create_graph=create_graph, allow_unused=True)
            )
        finally:
            context.grad_enabled = create_graph
        return tuple([next(found) if need else None for need in ctx.needs_input_grad])
