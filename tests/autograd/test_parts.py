"""Parts of a tensor side by side have one history: their gradients are joined."""

import numpy as np
import pytest

import lucid
from lucid import autograd
from lucid.autograd.node import iterate_graph

CUTS = {
    "split": lambda x: x.split(2),
    "sections": lambda x: x.split([1, 0, 4], 1),
    "chunk": lambda x: x.chunk(3, -1),
    "tensor_split": lambda x: x.tensor_split(3),
    "unbind": lambda x: x.unbind(),
    "unbind of columns": lambda x: x.unbind(1),
    "rows": lambda x: tuple(x),
}
cuts = pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)


def leaf(*shape):
    return lucid.arange(1.0, np.prod(shape) + 1).reshape(shape).requires_grad_()


def one_by_one(cut, x):
    """The parts as compiled functions record them: each a view with a history of its own."""
    with lucid.no_grad():
        parts = cut(x)
    views = []
    for part in parts:
        view = x
        for op, attributes in part._view_chain[len(x._view_chain) :]:
            view = op(view, **attributes)
        views.append(view)
    return views


@cuts
@pytest.mark.parametrize("used", [slice(None), slice(1, None), slice(0, 1)])
def test_gradients_are_those_of_views_one_by_one(cut, used):
    x = leaf(4, 5)

    def gradient(parts):
        weighted = [(i - 1.5) * part * part for i, part in enumerate(parts)]
        return autograd.grad([part.sum() for part in weighted[used]], x)[0]

    parts = cut(x)
    assert len({part.grad_fn for part in parts}) == 1
    want = gradient(one_by_one(cut, x))
    assert gradient(parts).numpy().tobytes() == want.numpy().tobytes()
    compiled = lucid.compile(lambda x: gradient_of(cut, used, x))(x)
    assert compiled.numpy().tobytes() == want.numpy().tobytes()


@pytest.mark.parametrize("cut", [lambda x: x.unbind(), lambda x: x.split(2, 1)])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_many_parts_are_the_views_that_ops_make(cut, requires_grad):
    x = lucid.arange(300.0 * 260).reshape(300, 260).requires_grad_(requires_grad)
    y = (x * 1)[:, ::2]
    parts = cut(y)
    with lucid.no_grad():
        want = one_by_one(cut, y)
    assert len(parts) == len(want) and type(parts) is tuple
    for part, other in zip(parts, want, strict=True):
        assert part.shape == other.shape and part.stride() == other.stride()
        assert part.data_ptr() == other.data_ptr() and part.requires_grad == requires_grad
        assert [op.name for op, _ in part._view_chain] == [op.name for op, _ in other._view_chain]
    assert parts[-1].location.text == parts[0].location.text
    parts[7].detach().fill_(-1.0)
    assert bool((want[7] == -1.0).all()) and y._version == parts[3]._version == 1
    if requires_grad:
        return
    parts[5].mul_(0.0)
    assert bool((want[5] == 0.0).all()) and y._version == 2


def test_rows_of_one_element_and_of_none_are_views():
    for x in (lucid.arange(300.0), lucid.zeros(300, 1), lucid.zeros(300, 0)):
        rows = x.unbind()
        assert len(rows) == 300 and {row.shape for row in rows} == {x.shape[1:]}
        rows[9].fill_(7.0)
        assert x.shape == (300, 0) or x[9].sum().item() == 7.0


def gradient_of(cut, used, x):
    y = x * 1
    weighted = [(i - 1.5) * part * part for i, part in enumerate(cut(y))]
    return autograd.grad([part.sum() for part in weighted[used]], y)[0]


@cuts
def test_a_negative_zero_is_what_it_is_in_a_sum(cut):
    x = leaf(4, 5)
    for count in (1, 2):
        parts, views = cut(x), one_by_one(cut, x)
        ends = [part.numpy(force=True) * np.float32(-0.0) for part in parts][:count]
        given = [lucid.from_numpy(end) for end in ends]
        found = autograd.grad(parts[:count], x, given)[0].numpy()
        want = autograd.grad(views[:count], x, given)[0].numpy()
        assert np.array_equal(np.signbit(found), np.signbit(want))


def test_there_is_one_node_whatever_the_number_of_parts():
    x = leaf(100, 2)
    parts = x.split(1)
    assert [part.grad_fn.name() for part in parts[:2]] == ["SliceBackward"] * 2
    assert [part._output_nr for part in parts] == list(range(100))
    assert len(list(iterate_graph([part.grad_fn for part in parts]))) == 2  # and the leaf's


@cuts
def test_calls_that_come_again_have_one_node_as_well(cut):
    x = leaf(4, 5)
    for _ in range(50):
        assert len({part.grad_fn for part in cut(x)}) == 1
    with lucid.no_grad():
        assert not any(part.requires_grad for part in cut(x))


def test_hooks_and_kept_gradients_are_of_their_part():
    x = leaf(3, 2)
    first, second, third = x.unbind()
    second.register_hook(lambda gradient: gradient * 10)
    third.retain_grad()
    (first + second + third).sum().backward()
    assert x.grad.tolist() == [[1.0, 1.0], [10.0, 10.0], [1.0, 1.0]]
    assert third.grad.tolist() == [1.0, 1.0]


def test_a_hook_on_several_parts_waits_for_those_that_a_walk_comes_to():
    first, second, third = leaf(3).split(1)
    seen = []
    note = lambda gradients: seen.append([g is None for g in gradients])  # noqa: E731
    handle = autograd.graph.register_multi_grad_hook((first, third), note)
    (second * third).sum().backward()
    handle.remove()
    assert seen == [[True, False]]


def test_hooks_of_the_node_see_the_gradients_of_all_parts():
    x = leaf(2, 2)
    first, second = x.split(1)
    seen = []
    first.grad_fn.register_prehook(lambda given: seen.append([g is None for g in given]))
    first.grad_fn.register_hook(lambda found, given: (found[0] * 2,))
    second.sum().backward()
    assert seen == [[True, False]]
    assert x.grad.tolist() == [[0.0, 0.0], [2.0, 2.0]]


def test_a_write_to_a_part_shows_in_the_tensor_and_in_no_other_part():
    x = leaf(3)
    y = x * 1
    first, second, third = y.split(1)
    second.mul_(5)
    assert y.grad_fn.name() == "CopySlices"
    assert second.grad_fn is not first.grad_fn
    ((y * y).sum() + third.sum() + first.sum()).backward()
    assert x.grad.tolist() == [3.0, 100.0, 7.0]


def test_a_write_to_the_tensor_is_seen_by_parts_that_were_there():
    x = leaf(2, 2)
    y = x * 1
    first, second = y.unbind()
    y.mul_(3)
    (first * second).sum().backward()
    assert x.grad.tolist() == [[27.0, 36.0], [9.0, 18.0]]


def test_derivatives_of_gradients():
    x = leaf(2, 2)
    first, second = x.unbind(1)
    (found,) = autograd.grad((first**2 * second).sum(), x, create_graph=True)
    found.sum().backward()
    a, b = x.detach().unbind(1)
    assert x.grad.tolist() == lucid.stack([2 * a + 2 * b, 2 * a], 1).tolist()
    (found,) = autograd.grad(x.split(1)[1].pow(3).sum(), x, create_graph=True)
    assert autograd.grad(found.sum(), x)[0].tolist() == [[0.0, 0.0], [18.0, 24.0]]


def test_gradients_with_respect_to_a_part():
    x = leaf(2, 2)
    first, second = x.split(1)
    assert autograd.grad((first * second).sum(), second)[0].tolist() == [[1.0, 2.0]]
    first, second = x.split(1)
    with pytest.raises(lucid.LucidError, match="to not have been used in the graph"):
        autograd.grad(first.sum(), second)
    first, second = x.split(1)
    assert autograd.grad(first.sum(), (first, second), allow_unused=True)[1] is None


def test_a_second_walk_is_as_good_as_the_first():
    x = leaf(2, 2)
    total = sum(part.sum() for part in x.chunk(2))
    total.backward()
    total.backward()
    assert x.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_a_compiled_step_walks_through_parts_from_outside():
    x = leaf(2, 2)
    first = x.split(1)[0]
    weight = lucid.ones(1, 2)

    @lucid.compile(fullgraph=True)
    def step(weight):
        (first * weight).sum().backward()
        return x.grad

    assert step(weight * 3).tolist() == [[3.0, 3.0], [0.0, 0.0]]
    assert step(weight * 2).tolist() == [[5.0, 5.0], [0.0, 0.0]]


def test_vmap_and_tangents_go_through_parts():
    x = lucid.arange(6.0).reshape(3, 2)

    def f(row):
        a, b = row
        return a * a * b

    assert lucid.func.vmap(lucid.func.grad(f))(x).tolist() == [
        [0.0, 0.0],
        [12.0, 4.0],
        [40.0, 16.0],
    ]
    assert lucid.func.jvp(f, (x[1],), (lucid.ones(2),))[1].item() == 16.0
    assert lucid.func.hessian(f)(x[1]).tolist() == [[6.0, 4.0], [4.0, 0.0]]
