"""Every op of the table: its type rule against its meaning, its derivative against differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ir.op_cases import (
    Taped,
    cases,
    differentiable_ops,
    filled,
    gradients,
    named,
    standing_ops,
)

from lucid.ir import inference, ops
from lucid.ir.attributes import check_arguments
from lucid.ir.errors import DTypeError, LucidError, SizeError, TooLargeError
from lucid.ir.op import OPS, Op, Sample, Trait, ops_with
from lucid.ir.types import DTYPES, TensorType, f64, i64, type_of_array


@pytest.mark.parametrize("op", standing_ops(), ids=named)
def test_every_op_has_samples(op: Op) -> None:
    assert len(op.samples) >= 3
    ready = [isinstance(x, np.ndarray) for sample in op.samples for x in sample.operands]
    assert not ready or not all(ready) or op.kind == "random"


def check_type(op: Op, sample: Sample, arrays: Sequence[np.ndarray], result: TensorType) -> None:
    """The type rule says what the meaning gives, and the operands are left alone."""
    before = [array.copy() for array in arrays]
    value = op.evaluate(*arrays, **sample.attributes)
    assert isinstance(value, np.ndarray)
    assert type_of_array(value) == result, f"{type_of_array(value)} instead of {result}"
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)
    if op.kind != "view":
        assert not any(np.may_share_memory(value, array) for array in arrays)


@pytest.mark.parametrize("op", standing_ops(), ids=named)
def test_the_type_rule_says_what_the_meaning_gives(op: Op, rng: np.random.Generator) -> None:
    tested = list(cases(op, rng))
    assert tested
    for sample, arrays, result in tested:
        check_type(op, sample, arrays, result)


@pytest.mark.parametrize("op", ops_with(Trait.COMMUTATIVE), ids=named)
def test_operands_of_a_commutative_op_may_be_swapped(op: Op, rng: np.random.Generator) -> None:
    for sample, arrays, _ in cases(op, rng):
        swapped = op.evaluate(*arrays[::-1], **sample.attributes)
        same_bits(op.evaluate(*arrays, **sample.attributes), swapped)


@pytest.mark.parametrize("op", ops_with(Trait.IDEMPOTENT), ids=named)
def test_an_idempotent_op_gives_a_value_and_itself_back(op: Op, rng: np.random.Generator) -> None:
    for sample, arrays, _ in cases(op, rng):
        for x in arrays:
            same_bits(op.evaluate(x, x, **sample.attributes), x)


@pytest.mark.parametrize("op", ops_with(Trait.INVOLUTION), ids=named)
def test_an_involution_undoes_itself(op: Op, rng: np.random.Generator) -> None:
    for _, (x,), _ in cases(op, rng):
        same_bits(op.evaluate(op.evaluate(x)), x)


def test_each_op_has_a_name_of_its_own() -> None:
    declared = [op for op in vars(ops).values() if isinstance(op, Op)]
    assert len(declared) > 70 and [op for op in declared if OPS[op.name] is not op] == []


def test_traits_follow_from_the_kind_and_from_what_is_declared() -> None:
    assert ops.add.traits == {Trait.ELEMENTWISE, Trait.COMMUTATIVE} and ops.add.is_elementwise
    assert ops.transpose.is_view and ops.amax.is_reduction and not ops.cumsum.is_reduction
    assert {op for op in OPS.values() if op.has_effect} == {ops.check, ops.host}
    indexed = {ops.take, ops.gather, ops.scatter, ops.scatter_add, ops.index_set, ops.index_add}
    assert {*ops_with(Trait.INDEXED)} == indexed
    assert ops_with(Trait.VIEW) == [op for op in OPS.values() if op.strides is not None]


def test_arity_and_schema_are_the_type_rule_s() -> None:
    assert ops.matmul.arity == 2 and not ops.matmul.schema
    assert ops.slice.arity == 1 and list(ops.slice.schema) == ["starts", "stops", "steps"]
    assert [op.arity for op in (ops.neg, ops.mul, ops.clamp)] == [1, 2, 3]
    assert ops.concat.arity is None and ops.concat.schema == {"axis": int}


@pytest.mark.parametrize(
    "op", [op for op in standing_ops() if op.kind in ("map", "move", "reduce")], ids=named
)
def test_operands_may_be_strided(op: Op, rng: np.random.Generator) -> None:
    for sample, arrays, _ in cases(op, rng, (f64, i64)):
        strided = [np.flip(np.flip(x).copy()) if x.ndim else x for x in arrays]
        got = op.evaluate(*strided, **sample.attributes)
        expected = op.evaluate(*arrays, **sample.attributes)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)


def same_bits(a: np.ndarray, b: np.ndarray) -> None:
    """Equal, the sign of zero too; any NaN equals any other."""
    np.testing.assert_array_equal(a, b)
    if a.dtype.kind == "f":
        number = ~np.isnan(a)
        np.testing.assert_array_equal(np.signbit(a)[number], np.signbit(b)[number])


# Derivatives


def smooth_samples(op: Op) -> list[Sample]:
    """Samples at which the op is differentiable: those whose numbers are drawn."""
    return [
        sample
        for sample in op.samples
        if any(isinstance(operand, tuple) for operand in sample.operands)
        and sample.attributes.get("dtype", f64) is f64
    ]


def difference(
    f: Callable[..., np.ndarray], points: Sequence[np.ndarray], tangents: Sequence[np.ndarray]
) -> np.ndarray:
    """The derivative of `f` along the tangents, by a central difference of fourth order."""
    h = 2e-5  # so small that hardly any number drawn lies that near to a kink

    def at(step: float) -> np.ndarray:
        return f(*(np.asarray(x + step * v) for x, v in zip(points, tangents, strict=True)))

    return np.asarray((8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h))


def inner(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> float:
    return float(sum(np.vdot(x, y) for x, y in zip(a, b, strict=True)))


def drawn(sample: Sample) -> list[int]:
    return [i for i, operand in enumerate(sample.operands) if isinstance(operand, tuple)]


def placed(arrays: Sequence[np.ndarray], at: Sequence[int], new: Sequence[Any]) -> list[Any]:
    full: list[Any] = list(arrays)
    for i, value in zip(at, new, strict=True):
        full[i] = value
    return full


def check_vjp(op: Op, sample: Sample, rng: np.random.Generator) -> None:
    """<g, J v> = <J^T g, v>."""
    arrays, moving = filled(sample, f64, rng), drawn(sample)
    points = [arrays[i] for i in moving]
    tangents = [rng.normal(size=x.shape) for x in points]
    leaves = [Taped(x) for x in arrays]
    y = leaves[0].emit(op, leaves, sample.attributes)
    g = Taped(rng.normal(size=y.shape))

    def function(*moved: np.ndarray) -> np.ndarray:
        return op.evaluate(*placed(arrays, moving, moved), **sample.attributes)

    found = arrays_of(gradients(y, g, [leaves[i] for i in moving]), points)
    expected = inner([g.array], [difference(function, points, tangents)])
    np.testing.assert_allclose(inner(found, tangents), expected, rtol=1e-7, atol=1e-8)


def check_second_vjp(op: Op, sample: Sample, rng: np.random.Generator) -> None:
    """The same for (operands, g) -> <J^T g, w>, a function that the rule itself defines."""
    arrays, moving = filled(sample, f64, rng), drawn(sample)
    shape = op.infer(*map(type_of_array, arrays), **sample.attributes).shape
    points = [*(arrays[i] for i in moving), rng.normal(size=shape)]
    tangents = [rng.normal(size=x.shape) for x in points]
    weights = [Taped(rng.normal(size=x.shape)) for x in points[:-1]]

    def first(*moved: Taped) -> Taped:
        leaves = placed([Taped(x) for x in arrays], moving, moved[:-1])
        y = leaves[0].emit(op, leaves, sample.attributes)
        found = gradients(y, moved[-1], moved[:-1])
        products = [g * w for g, w in zip(found, weights, strict=True) if g is not None]
        total = ops.zero(moved[-1])
        for product in products:
            total = total + ops.sum(product, axes=tuple(range(len(product.shape))))
        return total

    leaves = [Taped(x) for x in points]
    total = first(*leaves)
    found = arrays_of(gradients(total, ops.one(total), leaves), points)
    expected = difference(lambda *x: first(*map(Taped, x)).array, points, tangents)
    np.testing.assert_allclose(inner(found, tangents), expected, rtol=1e-6, atol=1e-7)


def arrays_of(found: Sequence[Taped | None], points: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [np.zeros(x.shape) if g is None else g.array for g, x in zip(found, points, strict=True)]


def derivable() -> list[Op]:
    return [op for op in differentiable_ops() if op.kind != "random"]


@pytest.mark.parametrize("op", derivable(), ids=named)
def test_the_vjp_is_the_transpose_of_the_derivative(op: Op, rng: np.random.Generator) -> None:
    samples = smooth_samples(op)
    assert len(samples) >= 3
    for sample in samples:
        check_vjp(op, sample, rng)


@pytest.mark.parametrize("op", derivable(), ids=named)
def test_the_vjp_can_be_differentiated(op: Op, rng: np.random.Generator) -> None:
    for sample in smooth_samples(op):
        check_second_vjp(op, sample, rng)


def test_ops_without_a_derivative_are_those_of_no_real_argument() -> None:
    without = {op.name for op in standing_ops() if op.vjp is None}
    assert without == {
        *("eq", "ne", "lt", "le", "gt", "ge", "any", "all", "argmax", "argmin", "argsort"),
        *("logical_and", "logical_or", "logical_xor", "logical_not"),
        *("bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right"),
        *("constant", "iota", "parameter", "check", "gcd"),
    }


# Planted faults: the checks above can fail


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("mul", lambda g, y, a, b: (g * b, g * b)),
        ("tanh", lambda g, y, x: (g - g * y,)),
        ("sum", lambda g, y, x, axes: (ops.expand_reduced(g * 2.0, x.shape, axes),)),
        ("transpose", lambda g, y, x, perm: (ops.transpose(g, perm=perm),)),
        ("gather", lambda g, y, x, i, axis: (ops.scatter(ops.zeros_like(x), i, g, axis=axis), i)),
        ("matmul", lambda g, y, a, b: (None, ops.matmul(ops.swap_axes(a, -1, -2), g))),
        ("sort", lambda g, y, x, axis, descending: (g,)),
    ],
)
def test_a_wrong_vjp_is_found(name: str, rule: Any, rng: np.random.Generator) -> None:
    op = replace(getattr(ops, name), vjp=rule)
    with pytest.raises((AssertionError, LucidError)):
        for sample in smooth_samples(op):
            check_vjp(op, sample, rng)


def test_a_rule_that_is_right_once_only_is_found(rng: np.random.Generator) -> None:
    """The value is right, but the dependence on x is hidden from the second derivative."""
    op = replace(ops.sin, vjp=lambda g, y, x: (g * Taped(np.cos(x.array)),))
    for sample in smooth_samples(op):
        check_vjp(op, sample, rng)
    with pytest.raises(AssertionError):
        check_second_vjp(op, smooth_samples(op)[1], rng)


@pytest.mark.parametrize(
    "op",
    [
        replace(ops.sum, evaluate=lambda x, axes: x.sum(axes, x.dtype, keepdims=True)),
        replace(ops.eq, infer=ops.add.infer),
        replace(ops.neg, evaluate=lambda x: np.negative(x, out=x)),
        replace(ops.add, evaluate=lambda a, b: a),
        replace(ops.argmax, evaluate=lambda x, axis: np.argmax(x, axis).astype(np.int32)),
    ],
    ids=named,
)
def test_a_wrong_meaning_is_found(op: Op, rng: np.random.Generator) -> None:
    with pytest.raises(AssertionError):
        for sample, arrays, result in cases(op, rng):
            check_type(op, sample, arrays, result)


# Refusals


@pytest.mark.parametrize("op", standing_ops(), ids=named)
def test_wrong_dtypes_are_refused_by_name(op: Op) -> None:
    """Each operand in turn gets each dtype: accepted, or a `DTypeError` that names the op."""
    for sample in op.samples[:3]:
        types = [type_of_array(x) for x in filled(sample, f64, np.random.default_rng(0))]
        for i, type in enumerate(types):
            for dtype in DTYPES:
                mixed = [*types[:i], type.with_dtype(dtype), *types[i + 1 :]]
                try:
                    op.infer(*mixed, **sample.attributes)
                except DTypeError as error:
                    assert str(error).startswith(f"{op.name}: ")
                    assert all(str(t) in str(error) for t in mixed)


@pytest.mark.parametrize(
    "op", [op for op in standing_ops() if op.kind not in ("create", "random")], ids=named
)
def test_wrong_shapes_are_refused_by_name(op: Op) -> None:
    """One operand with a longer last axis, or with one more axis: accepted, or an error."""
    for sample in op.samples:
        types = [type_of_array(x) for x in filled(sample, f64, np.random.default_rng(0))]
        for i, type in enumerate(types):
            shapes = [(*type.shape, 11), (*type.shape[:-1], 13), ()]
            for shape in shapes:
                mixed = [*types[:i], type.with_shape(shape), *types[i + 1 :]]
                try:
                    op.infer(*mixed, **sample.attributes)
                except LucidError as error:
                    assert str(error).startswith(f"{op.name}: ")


# Sizes


@pytest.mark.parametrize("shape", [(2**63,), (2**60,), (2**40, 2**40), (2**62, 0, 2**62)], ids=str)
def test_a_type_whose_bytes_64_bits_cannot_count_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(TooLargeError, match="are more than 64 bits can count"):
        TensorType(f64, shape)


def test_a_type_has_no_negative_size() -> None:
    for shape in ((-1,), (-2, -3), (0, -1), (-(2**70),)):
        with pytest.raises(SizeError, match="a size is negative in f64"):
            TensorType(f64, shape)


@pytest.mark.parametrize("op", standing_ops(), ids=named)
def test_no_op_but_a_view_reads_or_computes_more_than_the_limit(
    op: Op, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a limit of no elements at all, each sample that has some is over it."""
    monkeypatch.setattr(inference, "MOST_ELEMENTS", 0)
    for sample, arrays, result in cases(op, rng, (f64, i64)):
        types = [type_of_array(array) for array in arrays]
        if op.kind == "view" or not any(type.size for type in (*types, result)):
            assert inference.result_type(op, types, sample.attributes) == result
        else:
            with pytest.raises(TooLargeError, match=rf"^{op.name}: would (read|compute) the "):
                inference.result_type(op, types, sample.attributes)


def test_the_limit_lets_a_fused_step_of_minutes_through() -> None:
    type_ = TensorType(f64, (2**20, 2**20 - 1))
    assert inference.result_type(ops.neg, [type_], {}) == type_
    with pytest.raises(TooLargeError) as caught:
        inference.result_type(ops.neg, [TensorType(f64, (2**20, 2**20))], {})
    assert isinstance(caught.value, (ValueError, MemoryError, RuntimeError))
    assert str(caught.value) == (
        "neg: would read the 1,099,511,627,776 elements of f64[1048576,1048576]\n"
        "  operand 0: f64[1048576,1048576]\n"
        "hint: an op computes fewer than 2**40 elements: take parts, one by one"
    )


@pytest.mark.parametrize("op", standing_ops(), ids=named)
def test_the_annotations_of_a_type_rule_are_a_schema_of_its_attributes(op: Op) -> None:
    for sample in op.samples:
        assert op.schema.keys() - op.optional <= set(sample.attributes) <= set(op.schema)
        check_arguments(op, len(sample.operands), sample.attributes)
