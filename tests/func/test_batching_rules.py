"""Every op's batching rule, against a loop over the examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from ir.op_cases import accepted, filled, named, standing_ops

import lucid
from lucid.ir import ops
from lucid.ir.op import Op, Sample
from lucid.ir.types import DTYPES, f64
from lucid.tensor.core import of_array

SIZE = 3
WITHOUT = {"constant", "iota", "parameter", "random_uniform", "random_normal"}


def mapped_ops() -> list[Op]:
    return [op for op in standing_ops() if op.batch is not None]


def test_every_op_on_tensors_has_a_batching_rule() -> None:
    assert {op.name for op in standing_ops() if op.batch is None} == WITHOUT


def choices(count: int) -> list[tuple[bool, ...]]:
    """Which operands are batched: each combination, or for many operands some."""
    found = [flags for flags in product((True, False), repeat=count) if any(flags)]
    return found if count <= 3 else found[:4]


def examples(op: Op, sample: Sample, rng: np.random.Generator) -> list[list[np.ndarray]] | None:
    """Operands of several examples, in the first dtype that the op takes; None: it takes none."""
    for dtype in (f64, *DTYPES):
        rows = [filled(sample, dtype, rng) for _ in range(SIZE)]
        if accepted(op, rows[0], sample.attributes) is not None:
            for i, row in enumerate(rows):
                row[:] = [
                    np.roll(x, i) if isinstance(sample.operands[k], np.ndarray) and x.ndim else x
                    for k, x in enumerate(row)
                ]
            return rows
    return None


def check(op: Op, sample: Sample, rows: Sequence[Sequence[np.ndarray]], flags: Any) -> None:
    """`vmap` of the op is the op on each example, stacked."""
    expected = np.stack(
        [
            op.evaluate(
                *(row[k] if flag else rows[0][k] for k, flag in enumerate(flags)),
                **sample.attributes,
            )
            for row in rows
        ]
    )
    inputs = [
        np.stack([row[k] for row in rows]) if flag else rows[0][k] for k, flag in enumerate(flags)
    ]
    mapped = lucid.vmap(
        lambda *operands: op(*operands, **sample.attributes),
        in_dims=tuple(0 if flag else None for flag in flags),
    )
    found = mapped(*map(of_array, inputs)).numpy()
    assert found.dtype == expected.dtype
    if op.kind == "contract":
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    else:
        np.testing.assert_array_equal(found, expected)


def with_examples(op: Op, rng: np.random.Generator) -> Iterator[tuple[Sample, Any]]:
    for sample in op.samples:
        rows = examples(op, sample, rng)
        if rows is not None:
            yield sample, rows


@pytest.mark.parametrize("op", mapped_ops(), ids=named)
def test_an_op_is_mapped_as_a_loop_would(op: Op, rng: np.random.Generator) -> None:
    for sample, rows in with_examples(op, rng):
        for flags in choices(len(sample.operands)):
            check(op, sample, rows, flags)


@pytest.mark.parametrize("op", mapped_ops(), ids=named)
def test_an_op_is_mapped_twice_as_two_loops_would(op: Op, rng: np.random.Generator) -> None:
    sample, rows = next(with_examples(op, rng))
    columns = [np.stack([row[k] for row in rows]) for k in range(len(sample.operands))]
    inputs = [of_array(np.stack([column, np.roll(column, 1, axis=0)])) for column in columns]

    def function(*operands: Any) -> Any:
        return op(*operands, **sample.attributes)

    found = lucid.vmap(lucid.vmap(function))(*inputs).numpy()
    for i in range(2):
        for j in range(SIZE):
            expected = op.evaluate(*(x.numpy()[i, j] for x in inputs), **sample.attributes)
            np.testing.assert_allclose(found[i, j], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("op", mapped_ops(), ids=named)
def test_an_op_is_mapped_over_no_examples(op: Op, rng: np.random.Generator) -> None:
    sample, rows = next(with_examples(op, rng))
    inputs = [of_array(np.zeros((0, *x.shape), x.dtype)) for x in rows[0]]
    found = lucid.vmap(lambda *operands: op(*operands, **sample.attributes))(*inputs)
    expected = op.evaluate(*rows[0], **sample.attributes)
    assert found.shape == (0, *expected.shape)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("add", lambda op, size, batched, *x: op(*x)),
        ("sum", lambda op, size, batched, x, axes: op(x, axes=axes)),
        (
            "transpose",
            lambda op, size, batched, x, perm: op(x, perm=(*(p for p in perm), len(perm))),
        ),
        ("take", lambda op, size, batched, x, i, axis: op(x, i, axis=axis + 1)),
    ],
)
def test_a_wrong_rule_is_found(name: str, rule: Any, rng: np.random.Generator) -> None:
    op = replace(getattr(ops, name), batch=rule)
    with pytest.raises((AssertionError, lucid.LucidError)):
        for sample, rows in with_examples(op, rng):
            for flags in choices(len(sample.operands)):
                check(op, sample, rows, flags)
