"""What a function of elements makes of its operands, as one op that writes into the first of them.

An in-place variant that computes a result first goes over memory twice or more, and a large result
costs the first touch of its pages too. So where nobody keeps what happens inside, the ops of such a
function are noted, without being run, and are native code that writes where it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lucid.autograd.native import Code, NotStraightError
from lucid.ir.environment import NATIVE_FUNCTIONS
from lucid.ir.graph import Graph
from lucid.ir.inference import application, application_to
from lucid.ir.op import Attributes, Op, Trait
from lucid.ir.types import TensorType, shared_type, type_of_array
from lucid.ir.whose_code import is_interrupt
from lucid.runtime.open_programs import Families
from lucid.tensor import slow_ops
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, of_own_array
from lucid.tensor.levels import Level, Result

_MOST = 128  # programs of one combination of ops
_PAYS = 1 << 21  # elements that NumPy goes over until native code has paid for its making
_CALL = 1 << 11  # elements that take as long as what else a call of NumPy costs


class Step(NamedTuple):
    """An op of a combination: `numbers` of its operands, the results of steps among them.

    attributes: as pairs.
    """

    op: Op
    numbers: tuple[int, ...]
    attributes: tuple[tuple[str, Any], ...]


class _Noting(Level):
    """Notes ops on elements, whose results stand for what they would give.

    Attributes:
        operands: the target, and what else the ops read; results: what they gave, for each step.
    """

    def __init__(self, target: TensorCore) -> None:
        self.operands = [target]
        self.results: list[TensorCore] = []
        self._steps: list[tuple[Op, list[TensorCore], Attributes]] = []

    def acts_on(self, op: Op | None, tensors: Sequence[Any], position: int) -> bool:
        return True

    def apply(
        self, op: Op, operands: Sequence[TensorCore], attributes: Attributes, position: int
    ) -> TensorCore:
        if not op.is_elementwise:
            raise NotStraightError("it is no function of elements")
        for operand in operands:
            if any(operand is x for x in self.operands) or any(operand is x for x in self.results):
                continue
            if operand._array is None or (context.grad_enabled and operand.requires_grad):
                raise NotStraightError("an operand isn't plain memory")
            self.operands.append(operand)
        known = application(op, operands, attributes)
        if Trait.APPROXIMATE in op.traits and not known.is_slow:
            raise NotStraightError("native code may round it otherwise")
        type = known.result_type
        nothing = np.ndarray(type.shape, type.dtype.numpy, _NOTHING, 0, (0,) * len(type.shape))
        result = of_own_array(nothing, None)
        self._steps.append((op, [*operands], attributes))
        self.results.append(result)
        return result

    def steps(self) -> tuple[Step, ...]:
        """The steps, by numbers of operands and then of results."""
        numbers = {id(x): n for n, x in enumerate((*self.operands, *self.results))}
        return tuple(
            [
                Step(op, tuple([numbers[id(x)] for x in operands]), tuple(attributes.items()))
                for op, operands, attributes in self._steps
            ]
        )

    def write(self, target: TensorCore, value: TensorCore, position: int) -> None:
        raise NotStraightError("it writes in place")

    def look(self, tensor: TensorCore) -> None:
        raise NotStraightError("it looks at numbers")

    def call(
        self,
        function: type[Any],
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        position: int,
    ) -> Result:
        raise NotStraightError("it calls a Function")


_NOTHING = bytes(16)


def combined(
    function: Callable[..., Any], target: TensorCore, args: Sequence[Any], keywords: dict[str, Any]
) -> tuple[Op, list[TensorCore]] | None:
    """The op that writes what a function gives into its first operand, and the op's operands.

    None where the function does more, gives another type, or fails: it is to be called, then.
    """
    noting = _Noting(target)
    try:
        made = noting.run(function, target, *args, **keywords)
        if not noting.results or made is not noting.results[-1] or made._type != target._type:
            return None
        return _op_of(noting.steps(), len(noting.operands)), noting.operands
    except Exception as error:  # it comes again, with the user's operands
        if is_interrupt(error):
            raise
        return None


@lru_cache(512)
def _op_of(steps: tuple[Step, ...], operands: int) -> Op:
    """One op for these, which only writes."""
    combination = Combination(steps, operands)
    return Op("combined", combination.infer, combination, kind="move", overwrite=combination)


class Combination:
    """Some ops on elements, the last of which gives the result, which is written over operand 0."""

    def __init__(self, steps: tuple[Step, ...], operands: int) -> None:
        self.steps, self.operands = steps, operands
        self.families = Families()
        self._programs: dict[tuple[TensorType, ...], Callable[..., bool]] = {}

    def infer(self, *types: TensorType) -> TensorType:
        return self._types(types)[-1]

    def _types(self, types: Sequence[TensorType]) -> list[TensorType]:
        """Of the operands and all results."""
        found = [*types]
        for op, numbers, attributes in self.steps:
            given = [found[n] for n in numbers]
            found.append(application_to(op, given, dict(attributes)).result_type)
        return found

    def _functions(
        self, types: Sequence[TensorType]
    ) -> list[tuple[Callable[..., np.ndarray], tuple[int, ...], Attributes]]:
        """What gives the steps' results, one by one, with the numbers of its arrays."""
        found, functions = self._types(types), []
        for op, numbers, pairs in self.steps:
            given, attributes = [found[n] for n in numbers], dict(pairs)
            is_slow = application_to(op, given, attributes).is_slow
            evaluate = slow_ops.evaluator(op, given, attributes) if is_slow else op.evaluate
            functions.append((evaluate, numbers, attributes))
        return functions

    def __call__(self, memory: np.ndarray, *others: np.ndarray, most: int = 0) -> bool:
        """Write the result over the first operand, with which no other one shares memory."""
        return self.program(*map(type_of_array, (memory, *others)))(memory, *others)

    def program(self, *types: TensorType) -> Callable[..., bool]:
        """The same for operands of these types. It says False where one shares the memory."""
        found = self._programs.get(types)
        if found is None:
            if len(self._programs) >= _MOST:
                self._programs.pop(next(iter(self._programs)), None)
            found = self._programs[types] = self._program(types)
        return found

    def _program(self, types: tuple[TensorType, ...]) -> Callable[..., bool]:
        functions = self._functions(types)
        left = _PAYS if NATIVE_FUNCTIONS.read() else -1
        code: Code | None = None  # it rounds as the steps do: nobody sees when it comes
        call: Callable[..., Any] | None = None

        def run(memory: np.ndarray, *others: np.ndarray) -> bool:
            nonlocal left, code, call
            if call is not None and call(memory, *others):
                return True
            for other in others:
                if np.may_share_memory(memory, other):
                    return False
            if left > 0:
                left -= memory.size + _CALL
                if left <= 0:
                    code = self._code(types)
                    call = None if code is None else code.call
            if code is not None and all(x.flags.c_contiguous for x in (memory, *others)):
                code.run([memory, *others])
            else:
                memory[...] = _last(functions, (memory, *others))
            return True

        return run

    def _code(self, types: Sequence[TensorType]) -> Code | None:
        """Native code that writes over the first operand, whose elements are in a row if they may.

        Sizes are one number then.
        """
        if all(type.shape in (types[0].shape, ()) for type in types):
            flat = (types[0].size,)
            types = [shared_type(x.dtype, flat if x.shape else ()) for x in types]
        graph = Graph("combined")
        target = graph.add_input(types[0], "state")
        values = [target, *map(graph.add_input, types[1:])]
        for op, numbers, attributes in self.steps:
            node = graph.append(op, [values[n] for n in numbers], dict(attributes))
            values.append(node.result)
        graph.writes = [(target, values[-1])]
        try:
            return Code(graph, (), self.families)
        except NotStraightError:
            return None


def _last(
    functions: Sequence[tuple[Callable[..., np.ndarray], tuple[int, ...], Attributes]],
    arrays: Sequence[np.ndarray],
) -> np.ndarray:
    """What the last one gives."""
    found = [*arrays]
    for evaluate, numbers, attributes in functions:
        given = [found[n] for n in numbers]
        found.append(evaluate(*given, **attributes) if attributes else evaluate(*given))
    return found[-1]
