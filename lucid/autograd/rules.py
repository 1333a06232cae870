"""What derivative rules are run on, where it isn't tensors or the values of a graph."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.ir import ops
from lucid.ir.attributes import check_arguments
from lucid.ir.environment import NATIVE_FUNCTIONS, VERIFY
from lucid.ir.extents import LEAST, NotOpenError, hint, is_open, replaced
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.inference import Application, application_to, is_many, is_slow, result_type
from lucid.ir.op import Attributes, Op, Operand
from lucid.ir.opening import Skeleton, opening
from lucid.ir.ops.composites import sum_to_shape
from lucid.ir.types import DType, TensorType, shared_type
from lucid.ir.whose_code import is_defect

if TYPE_CHECKING:
    from lucid.autograd.native import Code
    from lucid.runtime.open_programs import Families

logger = logging.getLogger("lucid")


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
        if is_slow(op, types, type.shape, attributes, self._rule.asked):
            from lucid.tensor import slow_ops

            evaluate = slow_ops.evaluator(op, types, attributes)
        return self._noted(type, evaluate, tuple(numbers), attributes, op.is_view)

    def constant(self, value: float, dtype: DType) -> Operand:
        if is_open(value):
            raise NotOpenError("a size is a number of a rule")
        make = partial(np.array, value, dtype.numpy)
        self._rule.ops[self._rule.count] = value, dtype
        return self._noted(TensorType(dtype, ()), make, (), {}, False)

    def _noted(self, type: TensorType, *step: Any) -> Operand:
        result = _Noted(self._rule, type)
        self._rule.steps.append((result.number, *step))
        return result


def _itself(size: Any) -> Any:
    """An open size, to be compared: what is found is assumed."""
    return size


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
        asked: what is compared of a size, which may be open.
    """

    _types_at: tuple[Sequence[DType], Callable[[], Sequence[Any]]]

    def __init__(
        self,
        of: Application,
        wanted: tuple[bool, ...],
        kept: tuple[int, ...],
        asked: Callable[[Any], Any] = hint,
    ) -> None:
        types, type_of_result, attributes = of.types, of.result_type, of.attributes
        assert of.op.vjp is not None
        self.count, self.asked = 0, asked
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
        are_many = is_many((*types, type_of_result), asked)
        are_parts = not is_itself and self.passed > 1
        self.serves_arrays = is_own and not (are_parts and are_many)
        self.copied = [n for n in found if n in shown and _root(n, shown)]
        computed = [n for n, *_ in self.steps if n not in shown and _goes_over(self.ops[n])]
        has_code = len(computed) > 1 and are_many
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

    @cached_property
    def types(self) -> list[TensorType]:
        """Of the arrays, by number."""
        dtypes, shapes = self._types_at
        pairs = zip(dtypes, shapes(), strict=True)
        return [shared_type(dtype, tuple(shape)) for dtype, shape in pairs]

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

    Attributes:
        types: of the operands.
        needed: which operands the rule looks at for the gradients that are wanted, -1: the result.
        rule: the steps on arrays.
        is_known: whether somebody has asked for the rule, or for that of other sizes.
        words: the same for machine code, once it is asked for; `kept` is what they refer to, and
            `attributes` are those of the steps.
    """

    __slots__ = ("_make", "_rule", "attributes", "is_known", "kept", "needed", "types", "words")

    def __init__(
        self,
        types: tuple[TensorType, ...],
        needed: tuple[int, ...],
        make: Callable[[], Rule],
        table: Sequence[Any] | None = None,
        attributes: tuple[Attributes, ...] = (),
    ) -> None:
        self.types, self.needed = types, needed
        self._rule: Rule | None = None
        self._make = make
        self.is_known = table is not None
        self.attributes = attributes
        self.words: np.ndarray | None = None
        self.kept: Any = None
        if table:
            self.words, self.kept = table

    @property
    def rule(self) -> Rule:
        rule = self._rule
        if rule is None:
            rule = self._rule = self._make()
            self.is_known = True
            if not self.attributes:  # else another thread's machine code may be at them
                self.attributes = tuple([step[3] for step in rule.steps])
        return rule


def derivative_of(of: Application, wanted: tuple[bool, ...]) -> Derivative:
    """The one of an application, kept with it."""
    found: Derivative | None = of.derivatives.get(wanted)
    if found is None:
        found = _of_open_sizes(of.op, of.types, of.attributes, wanted)
        if found is None:
            needed = needed_by(of, wanted)
            found = Derivative(of.types, needed, partial(_rule, of, wanted, needed))
        of.derivatives[wanted] = found
    return found


def derivative_on(
    op: Op, types: tuple[TensorType, ...], attributes: Attributes, wanted: tuple[bool, ...]
) -> Derivative:
    """The one of an op on operands of some types, of which nobody has asked what is known."""
    found = _of_open_sizes(op, types, attributes, wanted)
    return found or derivative_of(application_to(op, types, attributes), wanted)


class _OpenRule:
    """A rule for operands that differ in sizes as those of some samples did.

    Args:
        samples: the sizes, and attributes that are some, of operands with a rule of their own.
        of: the last of these.

    Raises `NotOpenError` where these sizes must be known.
    """

    def __init__(
        self, samples: Sequence[Sequence[int]], of: Application, wanted: tuple[bool, ...]
    ) -> None:
        found = opening([Skeleton(b"", tuple(sample), frozenset()) for sample in samples])
        rest = iter(found.numbers)
        types = [x.with_shape(tuple([next(rest) for _ in x.shape])) for x in of.types]
        attributes = {
            name: tuple([next(rest) for _ in value]) if name in _SIZES else value
            for name, value in of.attributes.items()
        }
        self.needed = needed_by(of, wanted)
        open_ = Application(of.op, attributes, tuple(types))
        self._rule = rule = Rule(open_, wanted, self.needed, _itself)
        sized = [
            (number, name, value)
            for number, step in enumerate(rule.steps)
            for name, value in step[3].items()
            if replaced(value, hint) is not value
        ]
        sizes = found.sizes
        self._sized = [(number, name) for number, name, _ in sized]
        self._attributes_at = sizes.shapes([value for *_, value in sized])
        self._attributes = tuple([step[3] for step in rule.steps])
        self._dtypes = [x.dtype for x in rule.types]
        self._shapes = sizes.shapes([x.shape for x in rule.types])
        self._places, self._numbers = found.places, sizes.evaluator(found.numbers)
        self._holds = sizes.checker()

    def derivative(self, types: tuple[TensorType, ...], numbers: list[int]) -> Derivative | None:
        """That of operands with other sizes; None where these differ in another way."""
        values = [numbers[place] for place in self._places]
        if not self._holds(values) or self._numbers(values) != numbers:
            return None
        attributes = self._attributes
        if self._sized:
            changed = [*attributes]
            pairs = zip(self._sized, self._attributes_at(values), strict=True)
            for (number, name), sizes in pairs:
                changed[number] = {**changed[number], name: tuple(sizes)}
            attributes = tuple(changed)
        make = partial(self._at, values, attributes)
        return Derivative(types, self.needed, make, self._rule.table, attributes)

    def _at(self, values: list[int], attributes: tuple[Attributes, ...]) -> Rule:
        """The rule for other sizes."""
        rule = object.__new__(Rule)
        vars(rule).update(vars(self._rule))
        del rule.types
        rule._types_at = self._dtypes, partial(self._shapes, values)
        rule.steps = [
            (*step[:3], given, step[4]) for step, given in zip(rule.steps, attributes, strict=True)
        ]
        return rule


class _Alike:
    """Operands of an op that are alike but for their sizes.

    Attributes:
        samples: sizes that no open rule is for.
        rules: the open ones.
        tries: how often one was looked for.
    """

    __slots__ = ("rules", "samples", "tries")

    def __init__(self) -> None:
        self.samples: list[list[int]] = []
        self.rules: list[_OpenRule] = []
        self.tries = 0


_SIZES = frozenset(("shape", "starts", "stops", "low", "high", "lengths"))  # attributes
_SAMPLES, _MOST_TRIES, _MOST_ALIKE = 3, 4, 2048
_alike: dict[tuple[Any, ...], _Alike] = {}


def _apart(
    op: Op, types: Sequence[TensorType], attributes: Attributes, wanted: tuple[bool, ...]
) -> tuple[tuple[Any, ...], list[int]] | None:
    """What rules have in common that differ in sizes, and these; None where some are open.

    Sizes of 0 and 1 belong to what they have in common.
    """
    shapes = [type.shape for type in types]
    key: list[Any] = [op, wanted, *[type.dtype for type in types]]
    for name, value in attributes.items():
        if name in _SIZES:
            shapes.append(value)
        else:
            key.append(repr(value) if isinstance(value, np.generic) else value)  # -0.0 isn't 0.0
    numbers = [n for shape in shapes for n in shape]
    if any(map(is_open, numbers)):
        return None
    key += [tuple([n if n < LEAST else LEAST for n in shape]) for shape in shapes]
    return tuple(key), numbers


def _of_open_sizes(
    op: Op, types: tuple[TensorType, ...], attributes: Attributes, wanted: tuple[bool, ...]
) -> Derivative | None:
    """A derivative that operands of other sizes have told."""
    apart = _apart(op, types, attributes, wanted)
    if apart is None:
        return None
    key, numbers = apart
    try:
        alike = _alike.get(key)
    except TypeError:  # an attribute that can't be hashed
        return None
    if alike is not None:
        for known in alike.rules:
            found = known.derivative(types, numbers)
            if found is not None:
                return found
    return None


def _rule(of: Application, wanted: tuple[bool, ...], needed: tuple[int, ...]) -> Rule:
    """The rule of an op on operands of some types; after some others it tells one for any."""
    rule = Rule(of, wanted, needed)
    apart = _apart(of.op, of.types, of.attributes, wanted)
    if apart is None:
        return rule
    key, numbers = apart
    try:
        alike = _alike.get(key)
    except TypeError:
        return rule
    if alike is None:
        if len(_alike) >= _MOST_ALIKE:
            _alike.pop(next(iter(_alike)), None)  # unless another thread has
        alike = _alike[key] = _Alike()
    samples = alike.samples = [*[x for x in alike.samples if x != numbers], numbers]
    if len(samples) == _SAMPLES and alike.tries < _MOST_TRIES:
        alike.tries += 1
        alike.samples = []
        try:
            alike.rules.append(_OpenRule(samples, of, wanted))
        except NotOpenError:
            pass
        except Exception as error:  # of code that takes no extents; each size has its rule
            if VERIFY.read() or not is_defect(error):
                raise
            logger.exception("%s: sizes of its rule can't be open", of.op.name)
    return rule


def _goes_over(made: Op | tuple[float, DType]) -> bool:
    """Whether a step goes over elements, and does little with each: not a number, nor a product."""
    return isinstance(made, Op) and made.kind != "contract"
