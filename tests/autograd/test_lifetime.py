"""Graphs and saved tensors end without the cycle collector; long chains and deep nesting work."""

from __future__ import annotations

import gc
import queue
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest
from custom_functions import AddOne, Exp, Identity, Square, define, leaf, numbers

import lucid
from lucid.autograd import Function, grad


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


SaveIntermediate = define(
    lambda ctx, x: (ctx.save_for_backward(x * x), x * x * x)[1],
    lambda ctx, g: g * 3 * ctx.saved_tensors[0],
)
SaveView = define(
    lambda ctx, x: (y := (x * 2).view(3, 1), ctx.save_for_backward(y))[0],
    lambda ctx, g: (g * 2 + 0 * ctx.saved_tensors[0]).view(3),
)


def in_place_exp(ctx, x):
    x.copy_(x.exp())
    ctx.mark_dirty(x)
    ctx.save_for_backward(x)
    return x


InPlaceExp = define(in_place_exp, lambda ctx, g: g * ctx.saved_tensors[0])


def dirty_view(x):
    a = x * 1
    InPlaceExp.apply(a[1:])
    return a * a


def two_outputs(x):
    def forward(ctx, x):
        y, z = x.exp(), x.sin()
        ctx.save_for_backward(z, x, y)
        return y, z

    y, z = define(forward, lambda ctx, g, h: g * ctx.saved_tensors[2]).apply(x)
    return y * z


CASES = {
    "a saved input": Square.apply,
    "a saved output": Exp.apply,
    "a saved intermediate": SaveIntermediate.apply,
    "a saved view": SaveView.apply,
    "two saved outputs": two_outputs,
    "in place": lambda x: AddOne.apply(x * 1),
    "in place, saved": lambda x: InPlaceExp.apply(x * 1),
    "in place on a view": dirty_view,
    "an identity": Identity.apply,
    "an op that looks at its result": lambda x: x.exp(),
}


@pytest.mark.parametrize("fn", CASES.values(), ids=CASES.keys())
def test_the_graph_dies_with_its_output(no_collector, prepared, fn):
    x = leaf([0.1, 0.2, 0.3])
    y = prepared(lambda x: fn(x))(x)
    alive = [weakref.ref(y), weakref.ref(y.grad_fn)]
    del y
    assert [reference() for reference in alive] == [None, None]


@pytest.mark.parametrize("fn", CASES.values(), ids=CASES.keys())
def test_so_it_does_after_a_backward_with_create_graph(no_collector, prepared, fn):
    x = leaf([0.1, 0.2, 0.3])
    y = prepared(lambda x: fn(x))(x)
    (g,) = grad(y.sum(), x, create_graph=True)
    alive = [weakref.ref(y), weakref.ref(y.grad_fn), weakref.ref(g)]
    del y, g
    assert [reference() for reference in alive] == [None, None, None]


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_saved_tensors_die_at_backward_though_the_output_lives(no_collector, mode):
    kept = weakref.WeakSet()

    def forward(ctx, x):
        kept.add(saved := x * 2)
        ctx.save_for_backward(saved)
        return x * x

    fn = define(forward)
    x = leaf([1.0])
    y = fn.apply(x) if mode == "eager" else lucid.compile(lambda x: fn.apply(x))(x)
    assert len(kept) == 1  # noting it there is no part of a graph: the call runs op by op
    y.sum().backward()
    assert len(kept) == 0
    assert y.grad_fn is not None


def test_nothing_is_kept_after_an_exception_in_forward(no_collector, prepared):
    kept = weakref.WeakSet()

    def forward(ctx, x):
        kept.add(saved := x * 2)
        ctx.save_for_backward(saved)
        raise ValueError("no")

    step = prepared(define(forward).apply)
    with pytest.raises(ValueError, match=r"^no$") as caught:
        step(leaf([1.0]))
    del caught
    assert len(kept) == 0


def test_nothing_is_kept_after_an_exception_in_backward(no_collector, prepared):
    kept = weakref.WeakSet()

    def forward(ctx, x):
        kept.add(saved := x * 2)
        ctx.kept = Kept()
        kept.add(ctx.kept)
        ctx.save_for_backward(saved)
        return x * x

    def backward(ctx, g):
        raise ValueError("no")

    fn = define(forward, backward)
    step = prepared(lambda x: fn.apply(x * 1).sum().backward())
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^no$") as caught:
            step(leaf([1.0]))
        del caught
    assert len(kept) == 0


class Kept:
    """Something that a forward leaves on its ctx."""


@pytest.mark.parametrize("fails", [False, True])
def test_a_trace_keeps_no_ctx(no_collector, fails):
    noted = queue.SimpleQueue()  # a trace can't see that it changes state

    def forward(ctx, x):
        ctx.kept = Kept()
        _ = noted.put(weakref.ref(ctx)), noted.put(weakref.ref(ctx.kept))
        y = x * 2
        ctx.save_for_backward(x, x * 3, y)
        return y

    def backward(ctx, g):
        if fails:
            raise ValueError("no")
        return g * 2

    fn = define(forward, backward)
    x = leaf([1.0])
    step = lucid.compile(lambda x: fn.apply(x).sum().backward())
    if fails:
        with pytest.raises(ValueError, match=r"^no$") as caught:
            step(x)
        del caught
    else:
        step(x)
    assert not noted.empty()
    while not noted.empty():
        assert noted.get()() is None


def test_the_history_inside_of_a_forward_ends_with_it(no_collector, run):
    kept = weakref.WeakSet()
    buffer = leaf([0.0], False)

    def forward(ctx, x):
        kept.add(inner := x * 2)
        buffer.add_(inner * inner)
        return inner * 3

    y = run(define(forward).apply, leaf([1.0]))
    assert len(kept) == 0
    assert numbers([y, buffer]) == [[6.0], [4.0]]


def test_backward_does_not_recurse_through_a_chain_of_ten_thousand_nodes():
    x = leaf([1.0])
    y = x
    for i in range(10_000):
        y = Identity.apply(y) * 0.5 if i % 100 == 0 else y * 1
    y.sum().backward()
    assert numbers(x.grad) == [1.0]


def test_so_it_does_not_in_a_trace():
    x = leaf([1.0])

    @lucid.compile
    def step(x):
        y = x
        for i in range(2_000):
            y = Identity.apply(y) * 0.5 if i % 100 == 0 else y * 1
        y.sum().backward()

    step(x)
    assert numbers(x.grad) == [1.0]


@pytest.mark.parametrize("step", [Identity.apply, lambda y: y * 1], ids=["Function", "op"])
def test_releasing_a_chain_of_fifty_thousand_nodes_does_not_recurse(no_collector, step):
    x = leaf([1.0])
    y = x
    for _ in range(50_000):
        y = step(y)
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None


class Nested(Function):
    """Its backward calls backward, `depth` levels deep."""

    @staticmethod
    def forward(ctx, x, depth):
        ctx.depth = depth
        ctx.save_for_backward(x)
        return x * 1

    @staticmethod
    def backward(ctx, g):
        if ctx.depth == 0:
            return g * 5, None
        (x,) = ctx.saved_tensors
        with lucid.enable_grad():
            inner = x.detach().requires_grad_()
            y = Nested.apply(inner, ctx.depth - 1).sum()
        y.backward()
        return inner.grad * g, None


def test_backward_may_be_called_in_backward_200_levels_deep(run):
    limit = sys.getrecursionlimit()
    x = leaf([1.0, 2.0])
    run(lambda x: Nested.apply(x, 200).sum().backward(), x)
    assert numbers(x.grad) == [5.0, 5.0]
    run(lambda x: Nested.apply(x, 20), x).sum().backward()
    assert numbers(x.grad) == [10.0, 10.0]
    assert sys.getrecursionlimit() == limit


def test_endless_nesting_ends_in_an_error(monkeypatch):
    """In a trace as well, which takes its seconds for a thousand levels."""
    monkeypatch.setenv("LUCID_TRACEBACK", "full")  # each level would cut the whole one
    limit = sys.getrecursionlimit()
    with pytest.raises(RecursionError, match=r"^maximum recursion depth exceeded"):
        Nested.apply(leaf([1.0]), 10_000).sum().backward()
    assert sys.getrecursionlimit() == limit


def test_threads_accumulate_into_one_leaf_without_losing_anything(prepared):
    x = leaf([0.0] * 100)
    step = prepared(lambda: Square.apply(x + 1).sum().backward())

    def work():
        for _ in range(20):
            step()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers(x.grad) == [240.0] * 100


def test_grad_mode_belongs_to_the_thread(prepared):
    found = []
    is_enabled = prepared(lambda: lucid.is_grad_enabled())
    with lucid.no_grad():
        assert not is_enabled()
        thread = threading.Thread(target=lambda: found.append(is_enabled()))
        thread.start()
        thread.join()
    assert found == [True]


def test_compiled_calls_of_a_thread_have_its_grad_mode(prepared):
    found = []
    double = prepared(lambda x: x * 2)
    x = leaf([1.0])
    with lucid.no_grad():
        assert not double(x).requires_grad
        thread = threading.Thread(target=lambda: found.append(double(x).requires_grad))
        thread.start()
        thread.join()
        assert not double(x).requires_grad
    assert found == [True]


def test_backward_runs_in_the_calling_thread(run):
    found = []
    note = found.append  # a trace can't see that it changes state

    def backward(ctx, g):
        note(threading.get_ident())
        return g

    fn = define(lambda ctx, x: x * 2, backward)
    run(lambda x: fn.apply(x).sum().backward(), leaf([1.0]))
    run(lambda x: fn.apply(x), leaf([1.0])).sum().backward()
    assert set(found) == {threading.get_ident()}
