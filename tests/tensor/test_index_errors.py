"""An index out of its range: the same error in both modes, whatever becomes of the result."""

from __future__ import annotations

import re
from typing import Any

import pytest

import lucid
from lucid.autograd import Function
from lucid.nn import functional as F

CASES: dict[str, tuple[Any, str]] = {
    "one index": (
        lambda x, i: x[i],
        "x[i]: index 7 is out of bounds for dimension 0 with size 3\n"
        "  input: f32[3,4]\n  index: i64[2]",
    ),
    "behind a slice": (
        lambda x, i: x[None, :, i],
        "x[i]: index 7 is out of bounds for dimension 1 with size 4\n"
        "  input: f32[3,4]\n  index: i64[2]",
    ),
    "two indices": (
        lambda x, i: x[i.clamp(0, 2), i],
        "x[i]: index 7 is out of bounds for dimension 1 with size 4\n"
        "  input: f32[3,4]\n  index: i64[2]",
    ),
    "a 0-d index": (
        lambda x, i: x[i[1]],
        "x[i]: index 7 is out of bounds for dimension 0 with size 3\n"
        "  input: f32[3,4]\n  index: i64[]",
    ),
    "an int32 index": (
        lambda x, i: x[i.int()],
        "x[i]: index 7 is out of bounds for dimension 0 with size 3\n"
        "  input: f32[3,4]\n  index: i32[2]",
    ),
    "a write": (
        lambda x, i: x.clone().__setitem__(i, 1.0),
        "x[i] = value: index 7 is out of bounds for dimension 0 with size 3\n"
        "  input: f32[3,4]\n  index: i64[2]",
    ),
    "a write at a 0-d index": (
        lambda x, i: x.clone().__setitem__(i[1], 1.0),
        "x[i] = value: index 7 is out of bounds for dimension 0 with size 3\n"
        "  input: f32[3,4]\n  index: i64[]",
    ),
    "index_select": (
        lambda x, i: x.index_select(1, i),
        "index_select: index 7 is out of bounds for dimension 1 with size 4\n"
        "  input: f32[3,4]\n  index: i64[2]",
    ),
    "take": (
        lambda x, i: x.take(i + 6),
        "take: index 13 is out of bounds for dimension 0 with size 12\n"
        "  input: f32[3,4]\n  index: i64[2]",
    ),
    "gather": (
        lambda x, i: x.gather(0, i[None]),
        "gather: index 7 is out of bounds for dimension 0 with size 3\n"
        "  input: f32[3,4]\n  index: i64[1,2]",
    ),
    "gather from the end": (
        lambda x, i: x.gather(0, -i[None]),
        "gather: index -1 is out of bounds for dimension 0 with size 3\n"
        "  input: f32[3,4]\n  index: i64[1,2]",
    ),
    "take_along_dim": (
        lambda x, i: lucid.take_along_dim(x, i[None], 1),
        "take_along_dim: index 7 is out of bounds for dimension 1 with size 4\n"
        "  input:   f32[3,4]\n  indices: i64[1,2]",
    ),
    "scatter": (
        lambda x, i: x.scatter(0, i[None], 1.0),
        "scatter: index 7 is out of bounds for dimension 0 with size 3\n"
        "  input: f32[3,4]\n  index: i64[1,2]",
    ),
    "scatter_add": (
        lambda x, i: x.scatter_add(0, i[None], lucid.ones(1, 2)),
        "scatter_add: index 7 is out of bounds for dimension 0 with size 3\n"
        "  input: f32[3,4]\n  index: i64[1,2]\n  src:   f32[1,2]",
    ),
    "scatter_reduce": (
        lambda x, i: x.scatter_reduce(0, i[None], lucid.ones(1, 2), "amax"),
        "scatter_reduce: index 7 is out of bounds for dimension 0 with size 3\n"
        "  input: f32[3,4]\n  index: i64[1,2]\n  src:   f32[1,2]",
    ),
    "index_add": (
        lambda x, i: x.index_add(0, i, lucid.ones(2, 4)),
        "index_add: index 7 is out of bounds for dimension 0 with size 3\n"
        "  input:  f32[3,4]\n  index:  i64[2]\n  source: f32[2,4]",
    ),
    "index_copy": (
        lambda x, i: x.index_copy(0, i, lucid.ones(2, 4)),
        "index_copy: index 7 is out of bounds for dimension 0 with size 3\n"
        "  input:  f32[3,4]\n  index:  i64[2]\n  source: f32[2,4]",
    ),
    "index_fill": (
        lambda x, i: x.index_fill(1, i, 2.0),
        "index_fill: index 7 is out of bounds for dimension 1 with size 4\n"
        "  input: f32[3,4]\n  index: i64[2]",
    ),
    "index_put": (
        lambda x, i: x.index_put((i,), lucid.ones(2, 4)),
        "index_put: index 7 is out of bounds for dimension 0 with size 3\n"
        "  input: f32[3,4]\n  index: i64[2]",
    ),
    "put": (
        lambda x, i: x.put(i + 6, lucid.ones(2)),
        "put: index 13 is out of bounds for dimension 0 with size 12\n"
        "  input:  f32[3,4]\n  index:  i64[2]\n  source: f32[2]",
    ),
    "masked_scatter": (
        lambda x, i: x.masked_scatter(i[:, None, None] > x, lucid.ones(3)),
        "masked_scatter: the source has fewer elements than the mask has ones\n"
        "  input:  f32[3,4]\n  mask:   bool[2,3,4]\n  source: f32[3]",
    ),
    "embedding": (
        lambda x, i: F.embedding(i, x),
        "embedding: index 7 is out of range for 3 rows\n  input:  i64[2]\n  weight: f32[3,4]",
    ),
    "embedding_bag": (
        lambda x, i: F.embedding_bag(i, x, lucid.tensor([0])),
        "embedding_bag: index 7 is out of range for 3 rows\n  input:  i64[2]\n  weight: f32[3,4]",
    ),
    "the first bag": (
        lambda x, i: F.embedding_bag(lucid.zeros_like(i), x, i),
        "embedding_bag: offsets[0] has to be 0, not 1\n  input:   i64[2]\n  offsets: i64[2]",
    ),
    "one_hot": (
        lambda x, i: F.one_hot(i, 3),
        "one_hot: Class values must be non-negative and smaller than num_classes=3, not 7\n"
        "  tensor: i64[2]",
    ),
    "multi_margin_loss": (
        lambda x, i: F.multi_margin_loss(x[:2], i),
        "multi_margin_loss: target 7 is out of range for 4 classes\n"
        "  input:  f32[2,4]\n  target: i64[2]",
    ),
    "multilabel_margin_loss": (
        lambda x, i: F.multilabel_margin_loss(x[:1, :2], i[None]),
        "multilabel_margin_loss: target 7 is out of range for 2 classes\n"
        "  input:  f32[1,2]\n  target: i64[1,2]",
    ),
    "ctc_loss": (
        lambda x, i: F.ctc_loss(x[:, None].log_softmax(2), i[None], (3,), (2,)),
        "ctc_loss: target 7 is out of range for 4 classes\n"
        "  log_probs: f32[3,1,4]\n  targets:   i64[1,2]",
    ),
    "max_unpool1d": (
        lambda x, i: F.max_unpool1d(x[:1, None, :2], i[None, None], 2),
        "max_unpool1d: found an invalid max index 7, with 4 elements in the output\n"
        "  input:   f32[1,1,2]\n  indices: i64[1,1,2]",
    ),
}
RIGHT = {"gather from the end": [0, 0], "the first bag": [0, 1]}


def used(body, x, i):
    return body(x, i)


def unused(body, x, i):
    body(x, i)
    return x * 2


def unused_without_gradients(body, x, i):
    with lucid.no_grad():
        body(x, i)
    return x * 2


def in_a_forward_that_nobody_uses(body, x, i):
    class Looks(Function):
        @staticmethod
        def forward(ctx, x):
            body(x, i)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g

    Looks.apply(x)
    return x * 2


def in_a_backward(body, x, i):
    class Looks(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            body(x.detach(), i)
            return g

    Looks.apply(x).sum().backward()
    return x * 2


PLACES = [used, unused, unused_without_gradients, in_a_forward_that_nobody_uses, in_a_backward]
EVERYWHERE = ("two indices", "a write")


@pytest.mark.parametrize("name", CASES)
def test_an_index_out_of_range_is_refused_also_where_nobody_uses_the_result(prepared, name):
    body, text = CASES[name]
    for place in PLACES if name in EVERYWHERE else (unused,):
        step = prepared(lambda x, i, place=place: place(body, x, i))
        x = lucid.arange(12.0).reshape(3, 4).requires_grad_()
        right = lucid.tensor(RIGHT.get(name, [0, 1]))
        step(x, right)
        with pytest.raises(lucid.IndexOutOfRangeError) as caught:
            step(x, lucid.tensor([1, 7]))
        said, line = str(caught.value).rsplit("\n", 1)
        assert said == text, place.__name__
        assert re.match(r"  in test_index_errors.py:\d+   lambda x, i: ", line)
        step(x, right)


def test_the_first_of_several_errors_in_the_programs_order_is_raised(prepared):
    def body(x, i, j, weight):
        seen = x[j + weight.argmax()]  # needs more before it can be looked at
        F.embedding(i, weight)
        return seen, weight[:, i]

    step = prepared(body)
    x, weight = lucid.ones(5), lucid.ones(3, 2)
    good, wrong = lucid.tensor([0, 1]), lucid.tensor([0, 9])
    with pytest.raises(IndexError, match=r"^x\[i\]: index 9 .* size 5"):
        step(x, wrong, wrong, weight)
    with pytest.raises(IndexError, match=r"^embedding: index 9"):
        step(x, wrong, good, weight)
    assert step(x, good, good, weight)[1].shape == (3, 2)


def test_calls_of_python_and_checks_take_turns(prepared):
    seen = []

    class Noted(Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(x.numpy().tolist())
            return x.clone()

    def body(x, i, j):
        x[i]
        y = Noted.apply(x)
        x[j]
        return y * 2

    step = prepared(body)
    x, good, wrong = lucid.ones(2), lucid.tensor([0]), lucid.tensor([2])
    step(x, good, good)
    seen.clear()
    for i, j, calls in [(wrong, good, 0), (good, wrong, 1), (wrong, wrong, 1)]:
        with pytest.raises(IndexError, match="index 2 is out of bounds"):
            step(x, i, j)
        assert len(seen) == calls


def test_shapes_are_looked_at_before_values(run):
    wrong = lucid.tensor([9, 9])
    with pytest.raises(lucid.ShapeError, match=r"^index_add: the source needs the shape"):
        run(lambda x, i: x.index_add(0, i, lucid.ones(3)), lucid.ones(4), wrong)
    with pytest.raises(lucid.ShapeError, match="could not be broadcast together"):
        run(lambda x, i: x[i, i[:1].expand(3)], lucid.ones(4, 4), wrong)
    with pytest.raises(lucid.ShapeError, match="cannot be broadcast to indexing result"):
        run(lambda x, i: x.__setitem__(i, lucid.ones(3)), lucid.ones(4), wrong)


def test_indices_that_cannot_be_out_of_range_are_not_looked_at():
    def body(x, i):
        order = x.argsort(1)
        rows = lucid.arange(3)[:, None]
        best = x[rows, order]
        kept = best.gather(1, x.argmax(1, keepdim=True))
        return kept + x[0, i.clamp(0, 3)].sum() + F.embedding(i % 3, x).sum()

    step = lucid.compile(body)
    step(lucid.randn(3, 4), lucid.tensor([5, -2]))
    assert "check" in step.dump_ir()
    assert "check" not in str(step.stages["optimize"])
    assert not re.search(r"\bcheck\(", str(step.stages["kernels"]))


@pytest.mark.parametrize(
    "body",
    [
        lambda x, i: x[i],
        lambda x, i: F.embedding(i, x),
        lambda x, i: x.index_add(0, i, lucid.ones(2, 4)),
        lambda x, i: x.t().gather(1, i.expand(4, 2)),
    ],
)
def test_an_axis_without_elements_has_no_index(run, body):
    with pytest.raises(lucid.IndexOutOfRangeError, match=": index 0 is out of "):
        run(body, lucid.ones(3, 4)[3:], lucid.tensor([0, 0]))
