"""The backwards of a step's custom Functions, against central differences of their forwards."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lucid.autograd.entry_points import grad
from lucid.autograd.function import Function, backward_of
from lucid.autograd.modes import enable_grad, no_grad
from lucid.compiler.guards.restarts import FunctionCall
from lucid.compiler.inputs.signature import argument_names
from lucid.ir.clone import copy_graph
from lucid.ir.graph import Graph, Value
from lucid.ir.interpret import interpret
from lucid.ir.location import Location
from lucid.ir.logs import say
from lucid.ir.types import f64
from lucid.random import fork_rng, get_rng_state, set_rng_state
from lucid.tensor.core import of_array
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import flatten

STEP = 1e-6  # of a central difference, relative to 1 + |x|
TOLERANCE = 1e-3  # of the terms' sum; a difference in f64 is right to 1e-9 where ops are smooth
WIDER = 4.0  # times `STEP`: where that gives another slope, rounding hides the derivative
MOST_ROUGH = 0.5  # of a result's elements may have no derivative that differences find


class CalledFunctions:
    """The calls of custom Functions in a recorded step: one of each Function and signature.

    What they are called with, the step's graph computes.
    """

    def __init__(self, graph: Graph, calls: Iterable[FunctionCall]) -> None:
        chosen: dict[object, _Call] = {}
        for call in calls:
            made = _Call(call)
            is_inside = any(value.graph is not graph for value in made.values())  # of a loop
            if not (is_inside or call.function.surrogate_gradient):
                types = [x.type if isinstance(x, Value) else x for x in made.leaves]
                chosen.setdefault((call.function, repr(types)), made)
        self._calls = [*chosen.values()]
        self._values = [*dict.fromkeys(x for call in self._calls for x in call.values())]
        self._graph = copy_graph(graph, self._values)
        self._graph.drop_dead_nodes()

    def wrong(self, inputs: Sequence[np.ndarray | float]) -> str:
        """What to say of the first backward that isn't the derivative; empty where all are.

        inputs: of the step. The Functions run in Python, op by op and in float64.
        """
        if not self._calls:
            return ""
        arrays = dict(zip(self._values, interpret(self._graph, inputs)[0], strict=True))
        return next(filter(None, (call.wrong(arrays) for call in self._calls)), "")


class _RoughError(Exception):
    """Differences don't find a derivative."""


class _Call:
    """A call to be tried.

    Attributes:
        leaves: of the arguments and keywords, with a value of the graph for each tensor.
    """

    def __init__(self, call: FunctionCall) -> None:
        self.leaves, self._rebuild = flatten((call.args, call.keywords))
        self._function, self._line = call.function, call.line
        pairs = zip(call.args, call.needed, _names_of(call), strict=True)
        names = {id(x): name for x, flag, name in pairs if flag and isinstance(x, Value)}
        # Of the tensors that have a gradient, by their number among the leaves.
        self._names = {i: names[id(x)] for i, x in enumerate(self.leaves) if id(x) in names}

    def values(self) -> list[Value]:
        """What stands for its tensors."""
        return [leaf for leaf in self.leaves if isinstance(leaf, Value)]

    def wrong(self, arrays: Mapping[Value, np.ndarray]) -> str:
        """What to say if its backward isn't the derivative; and say it where that isn't known."""
        random = np.random.default_rng(0)
        try:
            with fork_rng():
                state = get_rng_state()
                texts = (self._wrong(at, arrays, random, state) for at in self._names)
                return next(filter(None, texts), "")
        except Exception as error:
            reason = str(error) if isinstance(error, _RoughError) else f"{error!r}"
            at = "" if self._line is None else f" at {self._line}"
            text, name = "the backward of %s%s is not verified: %s", self._function.__name__
            say("compile", text, name, at, reason, level=logging.WARNING)
            return ""

    def _wrong(
        self,
        at: int,
        arrays: Mapping[Value, np.ndarray],
        random: np.random.Generator,
        state: Tensor,
    ) -> str:
        """The same of the gradient for one tensor."""
        x = arrays[self.leaves[at]].astype(np.float64)
        along = random.normal(size=x.shape) * (1 + np.abs(x))

        def moved(step: float) -> list[np.ndarray]:
            with no_grad():
                tensors = self._apply(arrays, at, x + step * along, state)
            return [tensor.numpy() for tensor in tensors]

        slopes, weights = _slopes(moved, random)
        leaf = of_array(x).requires_grad_()
        with enable_grad():
            results = zip(self._apply(arrays, at, leaf, state), weights, strict=True)
            pairs = [(y, of_array(g)) for y, g in results if y.requires_grad]
            outputs, cotangents = [y for y, _ in pairs], [g for _, g in pairs]
            found = grad(outputs, leaf, cotangents, allow_unused=True)[0] if pairs else None
        if found is None:  # the rule says that there is none
            return ""
        expected = [slope * g for slope, g in zip(slopes, weights, strict=True)]
        terms = found.numpy() * along
        size = sum(float(np.abs(part).sum()) for part in (*expected, terms))
        says, is_so = float(terms.sum()), sum(float(part.sum()) for part in expected)
        is_right = abs(says - is_so) <= TOLERANCE * max(size, STEP)
        return "" if is_right or np.isnan(says) else self._text(self._names[at], says, is_so)

    def _apply(
        self,
        arrays: Mapping[Value, np.ndarray],
        at: int,
        value: np.ndarray | Tensor,
        state: Tensor,
    ) -> list[Tensor]:
        """The results that are floats, in float64 and with another value of one tensor."""

        def given(number: int, leaf: Any) -> Any:
            found = value if number == at else arrays[leaf] if isinstance(leaf, Value) else leaf
            if isinstance(found, Tensor):
                return found.clone()  # a forward may write it, which a leaf refuses
            if not isinstance(leaf, Value):
                return leaf
            return of_array(np.array(found, np.float64 if found.dtype.kind == "f" else found.dtype))

        set_rng_state(state)
        args, keywords = self._rebuild([given(i, leaf) for i, leaf in enumerate(self.leaves)])
        result = self._function.apply(*args, **keywords)
        tensors = [x for x in flatten(result)[0] if isinstance(x, Tensor)]
        floats = [x for x in tensors if x.dtype.is_floating_point]
        if any(x.dtype is not f64 for x in floats):
            raise _RoughError("its forward gives another dtype than it is given")
        return [x for x in floats if x.numel()]

    def _text(self, name: str, says: float, is_so: float) -> str:
        code = getattr(backward_of(self._function), "__code__", None)
        place = "" if code is None else f" ({Location(code.co_filename, code.co_firstlineno)})"
        at = "" if self._line is None else f", called at {self._line},"
        return (
            f"the backward of {self._function.__name__}{place}{at} is not the derivative of its "
            f"forward: along a random direction of {name} it gives {says:.6g}, a central "
            f"difference {is_so:.6g}\n"
            "hint: where that is meant, as of a straight-through estimator, "
            "surrogate_gradient = True in the class says so"
        )


def _slopes(
    moved: Callable[[float], list[np.ndarray]], random: np.random.Generator
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The derivative of each result along a direction, and random cotangents for them.

    Both are 0 where there is no derivative. Raises `_RoughError` where that is most of one.

    moved: the results so far along it.
    """
    steps = (-STEP * WIDER, -STEP, 0.0, STEP, STEP * WIDER)
    slopes, weights = [], []
    with np.errstate(all="ignore"):
        for below, behind, here, ahead, above in zip(*map(moved, steps), strict=True):
            near, is_smooth = _slope(behind, here, ahead, STEP)
            far, is_smooth_far = _slope(below, here, above, STEP * WIDER)
            same = np.abs(near - far) <= TOLERANCE * (np.abs(near) + np.abs(far) + 1)
            is_known = is_smooth & is_smooth_far & same
            if np.mean(is_known) < 1 - MOST_ROUGH:
                raise _RoughError("differences of its forward in float64 find no derivative")
            slopes.append(np.where(is_known, near, 0.0))
            weights.append(np.where(is_known, random.normal(size=here.shape), 0.0))
    return slopes, weights


def _slope(
    behind: np.ndarray, here: np.ndarray, ahead: np.ndarray, step: float
) -> tuple[np.ndarray, np.ndarray]:
    """The central difference, and where those to both sides agree: the others are at a kink."""
    left, right = (here - behind) / step, (ahead - here) / step
    is_smooth = np.abs(left - right) <= TOLERANCE * (np.abs(left) + np.abs(right) + 1)
    return (left + right) / 2, is_smooth


def _names_of(call: FunctionCall) -> list[str]:
    """How forward calls its positional arguments."""
    function = call.function
    first = (None,) if function.setup_context is Function.setup_context else ()  # for ctx
    return argument_names(function.forward, (*first, *call.args))[len(first) :]
