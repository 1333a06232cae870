"""What only values tell is wrong: the call raises, compiled or not."""

from __future__ import annotations

import pytest
from host_functions import place_of

import lucid
from lucid import nn
from lucid.nn import functional as F


def refused(run, body, *args):
    """The message, with lines of the body counted from its first."""
    with pytest.raises(lucid.LucidError) as caught:
        run(body, *args)
    text, start = str(caught.value), body.__code__.co_firstlineno
    for _, _, line in body.__code__.co_lines():
        text = text.replace(f"test_run_time_checks.py:{line}   ", f"+{(line or 0) - start} ")
    return type(caught.value), text


@pytest.mark.parametrize("wrong", [3, -1, 100, -101])
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_a_target_that_is_no_class(prepared, name, wrong):
    count = lucid.zeros(())
    targets = lucid.tensor([0, wrong])

    def body(target):
        count.add_(1)
        x = lucid.ones(2, 3)
        return getattr(F, name)(x, target)

    step = prepared(body)
    step(lucid.tensor([0, 2]))
    kind, text = refused(lambda body, *args: step(*args), body, targets)
    assert kind is lucid.IndexOutOfRangeError
    assert text == (
        f"{name}: target {wrong} is out of range for 3 classes\n"
        "  input:  f32[2,3]\n"
        "  target: i64[2]\n"
        "  in +3 return getattr(F, name)(x, target)\n"
        "hint: only ignore_index (-100) may lie outside"
    )
    eager = prepared(body) is body
    assert count.item() == (2 if eager else 1), "a compiled step that fails writes nothing"
    assert step(lucid.tensor([0, -100])).isfinite()


def test_a_loss_that_nobody_looks_at_raises_as_well(run):
    def body(target):
        F.cross_entropy(lucid.ones(2, 3), target)
        return target

    with pytest.raises(IndexError, match="cross_entropy: target 7 is out of range"):
        run(body, lucid.tensor([0, 7]))


@pytest.mark.parametrize("value", [1.5, -0.25, float("nan")])
@pytest.mark.parametrize("which", ["input", "target"])
def test_what_is_no_probability(run, value, which):
    def body(wrong, right):
        pair = (wrong, right) if which == "input" else (right, wrong)
        return F.binary_cross_entropy(*pair)

    wrong, right = lucid.tensor([0.5, value]), lucid.tensor([0.5, 1.0])
    kind, text = refused(run, body, wrong, right)
    assert kind is lucid.OptionError
    assert text == (
        f"binary_cross_entropy: all elements of {which} should be between 0 and 1\n"
        "  input:  f32[2]\n"
        "  target: f32[2]\n"
        "  in +2 return F.binary_cross_entropy(*pair)\n"
        "hint: binary_cross_entropy_with_logits takes any input"
    )


@pytest.mark.parametrize("wrong", [4, -1])
def test_a_row_that_an_embedding_has_not(run, wrong):
    def body(index):
        weight = lucid.ones(4, 2)
        return F.embedding(index, weight)

    kind, text = refused(run, body, lucid.tensor([0, wrong]))
    assert kind is lucid.IndexOutOfRangeError
    assert text == (
        f"embedding: index {wrong} is out of range for 4 rows\n"
        "  input:  i64[2]\n"
        "  weight: f32[4,2]\n"
        "  in +2 return F.embedding(index, weight)"
    )


@pytest.mark.parametrize("wrong", [4, -1])
def test_a_class_that_one_hot_has_not(run, wrong):
    with pytest.raises(IndexError, match=f"smaller than num_classes=4, not {wrong}\n  tensor: i64"):
        run(lambda index: F.one_hot(index, 4), lucid.tensor([0, wrong]))


@pytest.mark.parametrize(
    "use",
    [
        lambda a: a.to_dense(),
        lambda a: a @ lucid.ones(3, 2),
        lambda a: lucid.ones(4, 2) @ a,
        lambda a: a.t().to_dense(),
        lambda a: a.coalesce().to_dense(),
    ],
)
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ((0, 4), "for dim 1, size is 3 but found index 4"),  # its row-major number exists
        ((5, 0), "for dim 0, size is 2 but found index 5"),
        ((-1, 0), "for dim 0, size is 2 but found index -1"),
        ((1, 10**12), "for dim 1, size is 3 but found index 1000000000000"),
    ],
)
def test_a_place_outside_of_a_sparse_tensor(run, use, place, said):
    def body(places, values):
        a = lucid.sparse_coo_tensor(places, values, (2, 3))
        return use(a)

    row, column = place
    kind, text = refused(run, body, lucid.tensor([[0, row], [1, column]]), lucid.ones(2))
    assert kind is lucid.IndexOutOfRangeError
    assert text == (
        f"sparse_coo_tensor: size is inconsistent with indices: {said}\n"
        "  indices: i64[2,2]\n"
        "  in +1 a = lucid.sparse_coo_tensor(places, values, (2, 3))"
    )


@pytest.mark.parametrize("write", [False, True])
def test_an_index_outside_of_its_own_axis_of_several(run, write):
    def body(x, i, j):
        if write:
            x = x.clone()
            x[i, j] = 1.0
            return x
        return x[i, j]

    pair = lucid.tensor([0, 0]), lucid.tensor([1, 4])
    kind, text = refused(run, body, lucid.ones(2, 3), *pair)
    assert kind is lucid.IndexOutOfRangeError
    assert text == (
        f"{'x[i] = value' if write else 'x[i]'}: index 4 is out of bounds for dimension 1 with "
        "size 3\n"
        "  input: f32[2,3]\n"
        "  index: i64[2]\n"
        f"  in {'+3 x[i, j] = 1.0' if write else '+5 return x[i, j]'}"
    )


def test_indexed_ops_say_where(run):
    def body(x, i):
        return x.gather(1, i)

    kind, text = refused(run, body, lucid.ones(2, 3), lucid.tensor([[5], [0]]))
    assert kind is lucid.IndexOutOfRangeError
    assert text == (
        "gather: index 5 is out of bounds for dimension 1 with size 3\n"
        "  input: f32[2,3]\n"
        "  index: i64[2,1]\n"
        "  in +1 return x.gather(1, i)"
    )


def test_a_norm_that_is_not_finite_is_refused_before_anything_is_scaled(run):
    def body(x):
        (w * x).sum().backward()
        return nn.utils.clip_grad_norm_([w], 1.0, error_if_nonfinite=True)

    w = lucid.ones(2, requires_grad=True)
    assert run(body, lucid.tensor([3.0, 4.0])).item() == 5.0
    w.grad = None
    with pytest.raises(RuntimeError, match=r"total norm of order 2.0 .* is non-finite"):
        run(body, lucid.tensor([3.0, float("inf")]))


def test_checks_hold_for_each_example_of_a_vmap(run):
    def body(x, targets):
        return lucid.vmap(lambda target: F.cross_entropy(x, target))(targets)

    x = lucid.ones(2, 3)
    assert run(body, x, lucid.tensor([[0, 1], [2, 2]])).shape == (2,)
    with pytest.raises(IndexError, match="target 3 is out of range"):
        run(body, x, lucid.tensor([[0, 1], [2, 3]]))


def test_a_check_stands_in_the_dump_of_a_step():
    step = lucid.compile(lambda x, t: F.cross_entropy(x, t))
    step(lucid.ones(2, 3), lucid.tensor([0, 1]))
    text = step.dump_ir()
    assert "= check %" in text
    assert 'message = "cross_entropy: target {} is out of range for 3 classes' in text


VALUES = {
    "a quotient of integers": (
        lambda x, y: x.long() // y.long(),
        [0.0, 1.0],
        lucid.ir.errors.DivisionByZeroError,
        "floor_divide: an integer can't be divided by 0\n  input: i64[2]\n  other: i64[2]",
    ),
    "a rest of integers": (
        lambda x, y: 7 % y.int(),
        [2.0, 0.0],
        lucid.ir.errors.DivisionByZeroError,
        "remainder: an integer can't be divided by 0\n  input: i32[]\n  other: i32[2]",
    ),
    "C's rest of integers": (
        lambda x, y: x.long().fmod(y.long()),
        [2.0, 0.0],
        lucid.ir.errors.DivisionByZeroError,
        "fmod: an integer can't be divided by 0\n  input: i64[2]\n  other: i64[2]",
    ),
    "a quotient of integers towards zero": (
        lambda x, y: x.long().div(y.long(), rounding_mode="trunc"),
        [0.0, 1.0],
        lucid.ir.errors.DivisionByZeroError,
        "div: an integer can't be divided by 0\n  input: i64[2]\n  other: i64[2]",
    ),
    "a probability": (
        lambda x, y: (y / 8).bernoulli(),
        [2.0, 9.0],
        lucid.OptionError,
        "bernoulli: expects p to be in [0, 1]\n  p: f32[2]",
    ),
    "a standard deviation": (
        lambda x, y: lucid.normal(x, y),
        [2.0, -1.0],
        lucid.OptionError,
        "normal: expects all elements of std >= 0.0\n  std: f32[2]",
    ),
    "a rank": (
        lambda x, y: x.quantile(y[1] - 1),
        [2.0, -1.0],
        lucid.OptionError,
        "quantile: q must be in the range [0, 1]\n  input: f32[2]\n  q:     f32[]",
    ),
    "a number to count": (
        lambda x, y: y.long().bincount(),
        [2.0, -1.0],
        lucid.OptionError,
        "bincount: only supports non-negative integers, not -1\n  input: i64[2]",
    ),
    "a number of repeats": (
        lambda x, y: x.repeat_interleave(y.long()),
        [2.0, -1.0],
        lucid.OptionError,
        "repeat_interleave: repeats can not be negative, not -1\n  repeats: i64[2]",
    ),
    "a variance": (
        lambda x, y: F.gaussian_nll_loss(x, x, y),
        [2.0, -1.0],
        lucid.OptionError,
        "gaussian_nll_loss: var has negative entry/entries\n  input: f32[2]\n  var:   f32[2]",
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_wrong_value_is_refused_and_the_step_works_afterwards(prepared, name):
    make, wrong, kind, expected = VALUES[name]
    count = lucid.zeros(())

    def body(x, y):
        count.add_(1)
        make(x, y)
        return x + y

    step = prepared(body)
    x, right = lucid.tensor([3.0, 4.0]), lucid.tensor([1.0, 2.0])
    assert step(x, right).tolist() == [4.0, 6.0]
    with pytest.raises(kind) as caught:
        step(x, lucid.tensor(wrong))
    said, line = str(caught.value).rsplit("\n", 1)
    assert said == expected
    assert line.startswith("  in test_run_time_checks.py:")
    assert step(x, right).tolist() == [4.0, 6.0]
    assert count.item() == (3 if prepared(body) is body else 2)


def test_a_division_by_a_number_that_is_not_0_is_not_checked():
    step = lucid.compile(lambda x: x // 2 + x % 3)
    assert step(lucid.tensor([7, -7])).tolist() == [4, -2]
    assert "= check" not in step.dump_ir()
    with pytest.raises(ZeroDivisionError, match="floor_divide: an integer can't be divided by 0"):
        lucid.compile(lambda x: x // 0)(lucid.tensor([7]))


def test_a_matrix_that_has_no_solution(prepared):
    def body(a):
        return lucid.cholesky_solve(lucid.ones(2, 1), a)

    step = prepared(body)
    right = lucid.eye(2)
    assert step(right).tolist() == [[1.0], [1.0]]
    with pytest.raises(lucid.linalg.LinAlgError) as caught:
        step(lucid.zeros(2, 2))
    assert str(caught.value) == (
        "linalg.solve_triangular: Singular matrix (of f32[2,2], f32[2,1])"
        f"\n  in {place_of(body, 'cholesky_solve')}"
    )
    assert step(right).tolist() == [[1.0], [1.0]]
