"""What derivative rules are run on, where it isn't tensors or the values of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.ir import ops
from lucid.ir.attributes import check_arguments
from lucid.ir.environment import NATIVE_FUNCTIONS
from lucid.ir.extents import is_open
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.inference import Application, is_many, is_slow, result_type
from lucid.ir.op import Attributes, Op, Operand
from lucid.ir.ops.composites import sum_to_shape
from lucid.ir.types import DType, Shape, TensorType, shared_type

if TYPE_CHECKING:
    from lucid.autograd.native import Code
    from lucid.runtime.open_programs import Families


class Missing(Operand):
    """Stands for an operand whose data was not kept, since no gradient that is asked for needs it.

    Whatever a derivative rule computes with it is missing as well, and costs nothing.
    """

    __slots__ = ("_present", "_type")
    is_stand_in = True

    def __init__(self, type: TensorType, present: Operand) -> None:
        self._type = type
        self._present = present  # some operand with data, which makes constants

    def emit(self, op: Op, operands: Sequence[Operand], attributes: Attributes) -> Operand:
        if not any(isinstance(operand, Missing) for operand in operands):
            return self._present.emit(op, operands, attributes)
        type = op.infer(*(operand._type for operand in operands), **attributes)
        return Missing(type, self._present)

    def constant(self, value: float, dtype: DType) -> Operand:
        return self._present.constant(value, dtype)


class _Noted(Operand):
    """An array that the steps of a rule will have, by its number."""

    __slots__ = ("_rule", "_type", "number")
    is_stand_in = True

    def __init__(self, rule: Rule, type: TensorType) -> None:
        self._rule = rule
        self._type = type
        self.number = rule.count
        rule.count += 1
        rule.types.append(type)

    def emit(self, op: Op, operands: Sequence[Operand], attributes: Attributes) -> Operand:
        numbers = []
        for operand in operands:
            if not isinstance(operand, _Noted):  # one that is missing
                return operand.emit(op, operands, attributes)
            numbers.append(operand.number)
        types = [operand._type for operand in operands]
        type = op.infer(*types, **attributes)
        self._rule.ops[self._rule.count] = op
        evaluate = op.evaluate
        if is_slow(op, types, type.shape, attributes):
            from lucid.tensor import slow_ops

            evaluate = slow_ops.evaluator(op, types, attributes)
        return self._noted(type, evaluate, tuple(numbers), attributes, op.is_view)

    def constant(self, value: float, dtype: DType) -> Operand:
        make = partial(np.array, value, dtype.numpy)
        self._rule.ops[self._rule.count] = value, dtype
        return self._noted(TensorType(dtype, ()), make, (), {}, False)

    def _noted(self, type: TensorType, *step: Any) -> Operand:
        result = _Noted(self._rule, type)
        self._rule.steps.append((result.number, *step))
        return result


# The number of its result, an op, the numbers of its operands, attributes, and its type.
_NodeStep = tuple[int, Op, tuple[int, ...], Attributes, TensorType]


class Rule:
    """An op's derivative rule for operands of some types, as steps on arrays, or on values.

    A backward walk runs these where nobody differentiates what it does: they leave no tensor and
    no history. Those on values are what a trace appends to its graph.

    Attributes:
        count: how many arrays there are: the cotangent, what was saved, the results of the steps.
        kept: how many of these there are before the steps.
        steps: the number of its result, a function of arrays, the numbers of these, attributes, and
            whether the result may show an operand's memory.
        ops: what the steps apply, by the number of its result: an op, or a number and its dtype.
        results: the numbers of the gradients' arrays; None where there is none.
        passed: how many gradients are the cotangent itself, or show its memory.
        serves_tensors: whether no tensor would have to say that a gradient shows the memory of
            another one, or of what was saved.
        serves_values: the same where the cotangent is a value of a trace's graph: whoever is to see
            a gradient gets a tensor of its own.
        serves_arrays: the same where the cotangent is an array of the walk's, which may be several
            gradients, but none shows another one's memory: parts of it are copied where elements
            are few.
        copied: the numbers of gradients that may not be contiguous, and are to be.
        table: the words of the steps for machine code, and what they refer to; empty: there are
            none yet.
        types: of the arrays, by number.

    Args:
        of: the op on such operands.
        wanted: of each operand, whether its gradient is asked for.
        kept: which operands were saved, -1: the result.
    """

    __slots__ = (
        "_code",
        "_copies",
        "_nodes",
        "_of_many",
        "copied",
        "count",
        "kept",
        "ops",
        "passed",
        "results",
        "serves_arrays",
        "serves_tensors",
        "serves_values",
        "steps",
        "table",
        "types",
    )

    def __init__(
        self,
        of: Application,
        wanted: tuple[bool, ...],
        kept: tuple[int, ...],
    ) -> None:
        types, type_of_result, attributes = of.types, of.result_type, of.attributes
        assert of.op.vjp is not None
        self.count = 0
        self.table: list[Any] = []
        self.types: list[TensorType] = []
        self.ops: dict[int, Op | tuple[float, DType]] = {}
        self.steps: list[tuple[int, Callable[..., np.ndarray], tuple[int, ...], Any, bool]] = []
        start = _Noted(self, type_of_result)
        saved = {n: _Noted(self, type_of_result if n < 0 else types[n]) for n in kept}
        given = [saved.get(n) or Missing(type, start) for n, type in enumerate(types)]
        result = saved.get(-1) or Missing(type_of_result, start)
        self.kept = self.count
        results: list[int | None] = []
        parts = of.op.vjp(start, result, *given, **attributes)
        for part, type, is_wanted in zip(parts, types, wanted, strict=True):
            is_one = is_wanted and part is not None
            results.append(sum_to_shape(part, type.shape).number if is_one else None)
        self.results = tuple(results)
        found = [number for number in results if number is not None]
        self._drop_dead(set(found))
        shown = {number: operands[0] for number, _, operands, _, is_view in self.steps if is_view}
        roots = [_root(number, shown) for number in found]
        others = [root for root in roots if root]
        self.passed = len(roots) - len(others)
        is_own = len(set(others)) == len(others) and not any(root <= len(kept) for root in others)
        is_itself = found.count(0) == self.passed
        self.serves_values = is_own
        self.serves_tensors = is_own and is_itself
        are_many = is_many((*types, type_of_result))
        are_parts = not is_itself and self.passed > 1
        self.serves_arrays = is_own and not (are_parts and are_many)
        self.copied = [n for n in found if n in shown and _root(n, shown)]
        has_code = len(self.steps) - len(shown) > 1 and are_many
        self._of_many = (of.op, wanted, kept) if has_code else None
        self._code: Code | None = None
        self._nodes: list[_NodeStep] | None = None
        self._copies: dict[int, int] = {}  # steps of arrays alone: of what each is a copy
        if are_parts and self.serves_arrays:
            self._copy_parts(shown)

    def _copy_parts(self, shown: dict[int, int]) -> None:
        """Let gradients that show the cotangent's memory have memory of their own."""
        results: list[int | None] = []
        for number in self.results:
            if number and not _root(number, shown):
                self._copies[self.count] = number
                self.steps.append((self.count, np.ndarray.copy, (number,), {}, False))
                self.types.append(self.types[number])
                number, self.count = self.count, self.count + 1
            results.append(number)
        self.results = tuple(results)

    def _drop_dead(self, used: set[int]) -> None:
        """Leave out the steps of gradients that nobody wants."""
        alive = []
        for step in reversed(self.steps):
            if step[0] in used:
                used.update(step[2])
                alive.append(step)
        self.steps = alive[::-1]

    @property
    def is_of_any_shape(self) -> bool:
        """Whether it is the same for other shapes, where all operands and the result have one."""
        made = [self.ops[number] for number, *_ in self.steps if number in self.ops]
        is_elementwise = all(isinstance(op, tuple) or op.is_elementwise for op in made)
        return is_elementwise and len(made) == len(self.steps) and self._of_many is None

    def for_shape(self, shape: Shape) -> Rule:
        """One that `is_of_any_shape`, for another one."""
        other = object.__new__(Rule)
        for name in Rule.__slots__:
            setattr(other, name, getattr(self, name))
        other.types = [shared_type(x.dtype, shape) if x.shape else x for x in self.types]
        other._nodes = None
        return other

    @property
    def code(self) -> Code | None:
        """Gives the gradients but those that are the cotangent itself, by native code.

        That is where elements are many, and NumPy would go over them several times. None: the steps
        do.
        """
        if self._of_many is not None:
            key, self._of_many = self._of_many, None
            self._code = self._compiled(key)
        return self._code

    def _compiled(self, key: tuple[Op, tuple[bool, ...], tuple[int, ...]]) -> Code | None:
        """The steps as native code; `key` says of which rule."""
        from lucid.autograd.native import Code, NotStraightError
        from lucid.runtime.open_programs import Families

        graph = Graph(f"{key[0].name}.vjp")
        values = self.record(graph, [*map(graph.add_input, self.types[: self.kept])])
        pairs = zip(self.results, values, strict=True)
        graph.outputs = [value for number, value in pairs if number and value is not None]
        try:
            families = _families.setdefault(key, Families())
            return Code(graph, (), families) if NATIVE_FUNCTIONS.read() else None
        except NotStraightError:
            return None

    def record(self, graph: Graph, values: list[Value]) -> list[Value | None]:
        """The gradients' values, of the cotangent's and the saved ones: nodes of a graph.

        Raises what the ops of the steps raise.
        """
        if self._nodes is None:
            self._nodes = [self._node(*step) for step in self.steps if step[0] in self.ops]
        found: dict[int, Value] = dict(enumerate(values))
        nodes = graph.nodes
        for number, op, operands, attributes, type in self._nodes:
            read = tuple([found[n] for n in operands])
            node = Node(op, read, attributes, (type,), graph)
            nodes.append(node)
            found[number] = node.results[0]
        return [None if n is None else found[self._copies.get(n, n)] for n in self.results]

    def _node(
        self, number: int, _: object, operands: tuple[int, ...], attributes: Attributes, __: object
    ) -> _NodeStep:
        """A step as what a graph is to have, where type rule and schema have been asked."""
        made = self.ops[number]
        if isinstance(made, tuple):
            value, dtype = made
            attributes = {"value": dtype.numpy.type(value), "dtype": dtype}
            return number, ops.constant, (), attributes, self.types[number]
        type = result_type(made, [self.types[n] for n in operands], attributes)
        check_arguments(made, len(operands), attributes)
        return number, made, operands, attributes, shared_type(type.dtype, type.shape)

    def run(self, arrays: list[Any]) -> list[np.ndarray | None]:
        """The gradients' arrays, of the cotangent's and the saved ones.

        Those of their own are contiguous. To the list the arrays between are added.
        """
        if self.code is not None:
            made = iter(self.code.run(arrays))
            return [n if n is None else next(made) if n else arrays[0] for n in self.results]
        arrays += [None] * (self.count - len(arrays))
        for number, evaluate, operands, attributes, is_view in self.steps:
            if attributes:
                array = evaluate(*[arrays[n] for n in operands], **attributes)
            elif len(operands) == 2:
                array = evaluate(arrays[operands[0]], arrays[operands[1]])
            else:
                array = evaluate(*[arrays[n] for n in operands])
            if not is_view:  # NumPy gives a number of two 0-d arrays
                array = np.asarray(array, order="C")
            arrays[number] = array
        for number in self.copied:
            if not arrays[number].flags.c_contiguous:
                from lucid.autograd.native import row_major

                arrays[number] = row_major(arrays[number])
        return [None if n is None else arrays[n] for n in self.results]


_families: dict[tuple[Op, tuple[bool, ...], tuple[int, ...]], Families] = {}


def _root(number: int, shown: dict[int, int]) -> int:
    """The array whose memory an array shows; its own number if that is its own."""
    while number in shown:
        number = shown[number]
    return number


class _Spy(Operand):
    """Runs through a derivative rule to see which operands each of its results depends on."""

    __slots__ = ("_type", "sources")

    def __init__(self, type: TensorType, sources: frozenset[int]) -> None:
        self._type = type
        self.sources = sources

    def emit(self, op: Op, operands: Sequence[Operand], attributes: Attributes) -> _Spy:
        type = op.infer(*(operand._type for operand in operands), **attributes)
        sources = frozenset[int]()
        for operand in operands:
            if isinstance(operand, _Spy):
                sources |= operand.sources
        return _Spy(type, sources)

    def constant(self, value: float, dtype: DType) -> _Spy:
        return _Spy(TensorType(dtype, ()), frozenset())


_looked_at: dict[tuple[Op, int], tuple[frozenset[int], ...]] = {}


def looked_at_by(
    op: Op, operand_types: Sequence[TensorType], attributes: Attributes
) -> tuple[frozenset[int], ...]:
    """Per operand, whose data its cotangent needs: operand numbers, -1 for the result.

    Found by running the rule once on operands without data; it depends on the op, not on shapes.
    """
    key = (op, len(operand_types))
    found = _looked_at.get(key)
    if found is None:
        assert op.vjp is not None
        spies = [_Spy(type, frozenset((i,))) for i, type in enumerate(operand_types)]
        result_type = op.infer(*operand_types, **attributes)
        gradient = _Spy(result_type, frozenset())
        result = _Spy(result_type, frozenset((-1,)))
        parts = op.vjp(gradient, result, *spies, **attributes)
        found = tuple(p.sources if isinstance(p, _Spy) else frozenset() for p in parts)
        _looked_at[key] = found
    return found


_needed: dict[tuple[Op, tuple[bool, ...]], tuple[int, ...]] = {}


def needed_by(of: Application, wanted: tuple[bool, ...]) -> tuple[int, ...]:
    """Whose data the gradients that are wanted need, as `looked_at_by` has it."""
    key = of.op, wanted
    found = _needed.get(key)
    if found is None:
        looked_at = looked_at_by(of.op, of.types, of.attributes)
        pairs = zip(wanted, looked_at, strict=True)
        sources = frozenset[int]().union(*[sources for is_wanted, sources in pairs if is_wanted])
        found = _needed[key] = tuple(sorted(sources))
    return found


class Derivative:
    """What a walk needs to know of an op on operands of some types.

    Args:
        of: the op on them.
        wanted: of each operand, whether its gradient is asked for.

    Attributes:
        types: of the operands.
        needed: which operands the rule looks at for the gradients that are wanted, -1: the result.
        rule: the steps on arrays.
        words: the same for machine code, once it is asked for; `kept` is what they refer to.
    """

    __slots__ = ("_of", "_rule", "_wanted", "kept", "needed", "types", "words")

    def __init__(self, of: Application, wanted: tuple[bool, ...]) -> None:
        self._of, self._wanted, self.types = of, wanted, of.types
        self._rule = _known_rule(of, wanted)
        self.words: np.ndarray | None = None
        self.kept: Any = None
        if self._rule is not None and self._rule.table:
            self.words, self.kept = self._rule.table
        self.needed = needed_by(of, wanted)

    @property
    def is_known(self) -> bool:
        """Whether somebody has asked for the rule."""
        return self._rule is not None

    @property
    def rule(self) -> Rule:
        if self._rule is None:
            self._rule = Rule(self._of, self._wanted, self.needed)
            key = _key_of_any_shape(self._of, self._wanted)
            if key is not None and self._rule.is_of_any_shape:
                _of_any_shape[key] = self._rule
        return self._rule


_Key = tuple[Op, tuple[DType, ...], tuple[bool, ...]]
_of_any_shape: dict[_Key, Rule] = {}


def _key_of_any_shape(of: Application, wanted: tuple[bool, ...]) -> _Key | None:
    """What an op's rules for few elements have in common; None where they follow from shapes."""
    shape, types = of.result_type.shape, of.types
    if of.attributes or not shape or not of.op.is_elementwise:
        return None
    if any(map(is_open, shape)) or is_many(types) or any(x.shape != shape for x in types):
        return None
    return of.op, tuple([x.dtype for x in types]), wanted


def _known_rule(of: Application, wanted: tuple[bool, ...]) -> Rule | None:
    """A rule that operands of another shape have told."""
    key = _key_of_any_shape(of, wanted)
    found = None if key is None else _of_any_shape.get(key)
    return None if found is None else found.for_shape(of.result_type.shape)


def derivative_of(of: Application, wanted: tuple[bool, ...]) -> Derivative:
    """The one of an application, kept with it."""
    found: Derivative | None = of.derivatives.get(wanted)
    if found is None:
        found = of.derivatives[wanted] = Derivative(of, wanted)
    return found
