"""Random valid graphs over the op table, with inputs that hold NaN, infinities and signed zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from lucid.ir import ops
from lucid.ir.errors import LucidError
from lucid.ir.graph import REGION_KINDS, Graph, Node, Region, Value
from lucid.ir.location import Location
from lucid.ir.op import OPS, Attributes, Op, Sample
from lucid.ir.types import DTYPES, DType, TensorType, bool_, dtype_of_numpy, f32, f64, i64

Draw = Callable[[st.SearchStrategy[Any]], Any]

SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 1e-40, np.inf, -np.inf, np.nan)
SAMPLED = tuple((op, sample) for op in OPS.values() for sample in op.samples)
SHAPES = ((), (4,), (3, 1), (3, 4), (1, 4), (2, 3, 4))
# Ops whose rounding in NumPy depends on how many numbers it computes at once.
NOT_EXACT = {"pow"}
ELEMENTWISE = tuple(op for op in OPS.values() if op.kind == "map" and op.name not in NOT_EXACT)
ARITHMETIC = (ops.add, ops.sub, ops.mul, ops.div, ops.neg, ops.abs, ops.where, ops.cast)
NAMES = st.sampled_from(["", "", "x", "x", "y", "x_1", "w.0", "add", "a b", "µ"])


@dataclass
class Case:
    """A graph and arrays to run it with."""

    graph: Graph
    inputs: list[np.ndarray] = field(default_factory=list)

    def add_input(self, array: np.ndarray, name: str = "") -> Value:
        self.inputs.append(array)
        type = TensorType(dtype_of_numpy(array.dtype), array.shape)
        return self.graph.add_input(type, name=name)


def numbers(draw: Draw, type: TensorType) -> np.ndarray:
    """An array of the type, with special numbers in it."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if type.dtype is bool_:
        return rng.integers(0, 2, type.shape).astype(np.bool_)
    if type.dtype.kind == "int":
        return rng.integers(0 if not type.dtype.is_signed else -3, 4, type.shape).astype(
            type.dtype.numpy
        )
    array = np.asarray(rng.normal(size=type.shape))
    special = rng.choice(SPECIAL, type.shape)
    return np.where(rng.random(type.shape) < 0.4, special, array).astype(type.dtype.numpy)


def operand_types(op: Op, sample: Sample, dtype: DType) -> list[TensorType] | None:
    """The operand types of a sample with this dtype; None when the op doesn't take them."""
    types = []
    for operand in sample.operands:
        if isinstance(operand, tuple):
            types.append(TensorType(dtype, operand))
        else:
            fixed = operand.dtype.kind in "ib" and len(sample.operands) > 1
            own = dtype_of_numpy(operand.dtype)
            types.append(TensorType(own if fixed or op.kind == "random" else dtype, operand.shape))
    for fitting in (types, [type.with_dtype(dtype) for type in types]):
        try:
            op.infer(*fitting, **sample.attributes)
        except LucidError:
            continue
        return fitting
    return None


def add_sample(draw: Draw, case: Case) -> None:
    """Append a node of any op, as one of its samples has it."""
    op, sample = draw(st.sampled_from(SAMPLED))
    types = operand_types(op, sample, draw(st.sampled_from(DTYPES)))
    if types is None:
        return
    operands = []
    for given, type in zip(sample.operands, types, strict=True):
        present = [value for value in case.graph.values() if value.type == type]
        if isinstance(given, tuple) and present and draw(st.booleans()):
            operands.append(draw(st.sampled_from(present)))
        else:
            array = numbers(draw, type)
            if not isinstance(given, tuple):
                with np.errstate(invalid="ignore"):
                    array = given.astype(type.dtype.numpy)
            if array.size and draw(st.integers(0, 3)) == 0:  # the same everywhere
                number = case.graph.constant(array.flat[0], type.dtype)
                operands.append(ops.broadcast(number, shape=type.shape))
            else:
                operands.append(case.add_input(array, draw(NAMES)))
    case.graph.append(op, operands, dict(sample.attributes))


def constants(draw: Draw, case: Case) -> None:
    """Append a constant, repeated or not, with a number that identities look at."""
    dtype = draw(st.sampled_from([f32, f64, i64]))
    number = draw(st.sampled_from(SPECIAL if dtype is not i64 else (0, 1, -1, 2, 3)))
    value = case.graph.constant(number, dtype)
    if draw(st.booleans()):
        ops.broadcast(value, shape=draw(st.sampled_from(SHAPES)))


def add_elementwise(draw: Draw, case: Case) -> None:
    """Append an elementwise node on values that are there, if they fit."""
    op = draw(st.sampled_from(ELEMENTWISE) | st.sampled_from(ARITHMETIC))
    values = list(case.graph.values())
    attributes = {"dtype": draw(st.sampled_from(DTYPES))} if op is ops.cast else {}
    count = {"where": 3, "clamp": 3}.get(op.name, 2)
    first = draw(st.sampled_from(values))
    if op is ops.where:
        wanted = [bool_, first.dtype, first.dtype]
    else:
        wanted = [first.dtype] * count
    operands = []
    for dtype in wanted:
        fitting = [value for value in values if value.dtype is dtype]
        if not fitting:
            return
        operands.append(draw(st.sampled_from(fitting)))
    for some in (operands, operands[:1]):
        if op is ops.cast and (some is operands or not _has_one_meaning(some[0], attributes)):
            continue
        try:
            case.graph.append(op, some, attributes)
        except (LucidError, TypeError):
            continue
        return


def _has_one_meaning(x: Value, attributes: Attributes) -> bool:
    """Casts of floats to ints are left out: NaN has no integer."""
    return not (x.dtype.is_floating_point and attributes["dtype"].kind == "int")


def add_with_constant(draw: Draw, case: Case) -> None:
    """Append x op c or c op x with a number that identities look at.

    A power has a constant exponent of this kind: others NumPy rounds differently in other arrays.
    """
    floats = [value for value in case.graph.values() if value.dtype.is_floating_point]
    x = draw(st.sampled_from(floats))
    names = ("add", "sub", "mul", "div", "maximum", "minimum", "pow")
    op = OPS[draw(st.sampled_from(names))]
    number = draw(st.sampled_from((0.0, 1.0, 2.0, -1.0) if op is ops.pow else SPECIAL))
    constant = case.graph.constant(number, x.dtype)
    if op is not ops.pow and draw(st.booleans()):
        constant = ops.broadcast(constant, shape=x.shape) if x.shape else constant
    if op is ops.pow or draw(st.booleans()):
        op(x, constant)
    else:
        op(constant, x)


def add_casts(draw: Draw, case: Case) -> None:
    """Append two casts, one after the other."""
    x = draw(st.sampled_from(list(case.graph.values())))
    for _ in range(2):
        attributes = {"dtype": draw(st.sampled_from(DTYPES))}
        if _has_one_meaning(x, attributes):
            x = ops.cast(x, **attributes)


def add_view(draw: Draw, case: Case) -> None:
    """Append a view of some value."""
    x = draw(st.sampled_from(list(case.graph.values())))
    axes = list(range(len(x.shape)))
    kind = draw(st.sampled_from(["transpose", "reshape", "slice", "broadcast", "update"]))
    if kind == "transpose":
        ops.transpose(x, perm=tuple(draw(st.permutations(axes))))
    elif kind == "reshape":
        shapes = ((x.type.size,), (1, *x.shape), (*x.shape, 1), x.shape, x.shape[::-1])
        ops.reshape(x, shape=draw(st.sampled_from(shapes)))
    elif kind == "broadcast":
        shapes = ((2, *x.shape), (1, *x.shape), x.shape)
        ops.broadcast(x, shape=draw(st.sampled_from(shapes)))
    elif x.type.size:
        place = draw_slices(draw, x)
        part = ops.slice(x, **place)
        if kind == "update":
            update = case.add_input(numbers(draw, part.type))
            changed = ops.update_slice(x, update, **place)
            read = draw(st.sampled_from([place, reverse(place), draw_slices(draw, x)]))
            ops.slice(changed, **read)


def reverse(place: Attributes) -> Attributes:
    """The same elements of the first axis from the last to the first."""
    if not place["starts"]:
        return place
    (start, *starts), (stop, *stops), (step, *steps) = place.values()
    taken = range(start, stop, step)[::-1]
    return {
        "starts": (taken.start, *starts),
        "stops": (taken.stop, *stops),
        "steps": (taken.step, *steps),
    }


def draw_slices(draw: Draw, x: Value) -> Attributes:
    bounds = []
    for size in x.shape:
        start, last = draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1))
        step = draw(st.integers(1, 2))
        if draw(st.booleans()):
            start, last, step = 0, size - 1, 1
        bounds.append((start, last + 1, step) if start <= last else (start, last - 1, -step))
    columns = zip(*bounds, strict=True) if bounds else ((), (), ())
    return dict(zip(("starts", "stops", "steps"), map(tuple, columns), strict=True))


@st.composite
def cases(draw: Draw, steps: int = 12) -> Case:
    """A graph of about this many nodes and its inputs, results included."""
    case = Case(Graph("random"))
    for dtype in (f32, f32, i64, bool_):
        type = TensorType(dtype, draw(st.sampled_from(SHAPES)))
        case.add_input(numbers(draw, type), draw(NAMES))
    add = (
        *(add_elementwise, add_elementwise, add_with_constant, add_with_constant),
        *(add_view, add_view, add_sample, constants, add_casts),
    )
    for _ in range(draw(st.integers(1, steps))):
        draw(st.sampled_from(add))(draw, case)
    values = list(case.graph.values())
    used = case.graph.uses()
    case.graph.outputs = draw(st.lists(st.sampled_from(values), max_size=3))
    case.graph.outputs += [value for value in values if value not in used and value.producer]
    return case


@st.composite
def annotated_graphs(draw: Draw) -> Graph:
    """A random graph with names, lines, scopes, marks, state, writes, regions and calls."""
    graph: Graph = draw(cases(8)).graph
    lines = [
        Location("/home/me/train.py", 3, "x = \"a\\b\" + 'c'"),
        Location("train.py", 3, ""),
        Location("my file.py", 1, "y // z"),
        Location("<stdin>", 7, "\tµ = {1}"),
    ]
    locations = st.none() | st.sampled_from(lines)
    regions: list[Region | None] = [None]
    for name in ("Swish", "Swish.backward", "<lambda>", "inf"):
        kind = draw(st.sampled_from(REGION_KINDS))
        regions.append(Region(name, draw(locations), draw(st.sampled_from(regions)), kind))
    values = list(graph.values())
    for node in graph.nodes:
        node.location = draw(locations)
        node.scope = draw(st.sampled_from(["", "model.0", 'a "b"', "grad"]))
        node.gradient_of = draw(st.none() | st.sampled_from(values))
        node.region = draw(st.sampled_from(regions))
        for result in node.results:
            result.name = draw(NAMES)
    graph.location = draw(locations)
    graph.name = draw(st.sampled_from(["step", "my step", "nan", "train.step"]))
    for entry in graph.inputs:
        entry.kind = draw(st.sampled_from(["arg", "state"]))
        entry.source = draw(st.sampled_from(["", "model.w", "opt['lr']\n\"\\"]))
        same = [value for value in values if value.type == entry.value.type]
        if draw(st.booleans()):
            graph.writes.append((entry.value, draw(st.sampled_from(same))))
    if draw(st.booleans()):
        graph.add_input(TensorType(f64, ()), "live", "lr", "opt.lr")
    if draw(st.booleans()):
        add_call(graph)
    return graph


def add_call(graph: Graph) -> None:
    """Append a call of a function with two results."""
    x = graph.inputs[0].value
    function = Graph("My.Function")
    inner = function.add_input(x.type, name="x")
    y = ops.neg(inner)
    function.outputs = [y, inner]
    graph.functions[function.name] = function
    attributes = {"function": function.name}
    call = Node(ops.call, (x,), attributes, (x.type, x.type), graph)
    graph.nodes.append(call)
    graph.outputs.append(call.results[1])
