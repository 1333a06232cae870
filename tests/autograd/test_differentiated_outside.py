"""Custom Functions in a function that is compiled alone: its results are differentiated outside."""

from __future__ import annotations

import pytest
from custom_functions import (
    FREED,
    Exp,
    Identity,
    Square,
    define,
    first_line,
    leaf,
    numbers,
    text_of,
)

import lucid


def test_needs_input_grad_is_false_for_inputs_that_nobody_asked_for(prepared):
    def backward(ctx, grad):
        return grad * (10 if ctx.needs_input_grad == (True, True) else 1), grad

    apply = prepared(define(lambda ctx, x, y: x * y, backward).apply)
    for _ in range(2):
        x, y = leaf([1.0]), leaf([2.0])
        (alone,) = lucid.autograd.grad(apply(x, y).sum(), x)
        both = lucid.autograd.grad(apply(x, y).sum(), [x, y])
        apply(x, y).sum().backward()
        assert numbers([alone, *both, x.grad]) == [[1.0], [10.0], [1.0], [10.0]]


def test_a_comprehension_in_backward_asks_the_ctx(prepared):
    def backward(ctx, grad):
        needed = (grad * scale if ctx.needs_input_grad[1:][n] else None for n, scale in ctx.scales)
        return None, *needed

    def forward(ctx, factor, *terms):
        ctx.scales = [(n, n + factor) for n in range(len(terms))]
        return sum(terms)

    apply = prepared(lambda x, y: define(forward, backward).apply(2, x, y.detach(), y))
    for _ in range(2):
        x, y = leaf([1.0]), leaf([2.0])
        apply(x, y).sum().backward()
        assert numbers([x.grad, y.grad]) == [[2.0], [4.0]]


@pytest.mark.parametrize("dtype", [lucid.float32, lucid.float64])
def test_a_saved_output_that_was_written_is_noticed(prepared, dtype):
    apply = prepared(Exp.apply)
    for _ in range(2):
        x = lucid.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
        y = apply(x)
        y.detach()[0] = 3.0
        with pytest.raises(RuntimeError) as caught:
            y.sum().backward()
        kind = "FloatTensor" if dtype is lucid.float32 else "DoubleTensor"
        assert text_of(caught).partition("\n")[0] == (
            "one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: [{kind} [2]], which is output 0 of Exp, is at version 1; expected version "
            "0 instead."
        )
        assert x.grad is None


def test_an_output_that_nobody_saved_may_be_written(prepared):
    pair = prepared(lambda x: (Square.apply(x), Exp.apply(x)))
    for _ in range(2):
        x = leaf([3.0])
        y, z = pair(x)
        for written in y, z:
            written.detach().zero_()
        y.sum().backward()
        assert numbers(x.grad) == [6.0]


def test_what_is_freed_is_named(prepared):
    def apply(x):
        return Exp.apply(Square.apply(x))

    apply = prepared(apply)
    for _ in range(2):
        y = apply(leaf([1.0])).sum()
        y.backward()
        with pytest.raises(RuntimeError) as caught:
            y.backward()
        message = f"{FREED}\n  in Exp, recorded at test_differentiated_outside.py"
        assert text_of(caught) == message


def test_what_was_freed_inside_is_named(run):
    def body(x):
        y = Square.apply(x)
        y.sum().backward()
        return y

    y = run(body, leaf([1.0]))
    with pytest.raises(RuntimeError) as caught:
        y.sum().backward()
    assert text_of(caught) == f"{FREED}\n  in Square, recorded at test_differentiated_outside.py"


# ---------------------------------------------------------------------- attributes of the ctx


def counting(change):
    def forward(ctx, x):
        ctx.runs = 0
        return x * 2

    def backward(ctx, g):
        change(ctx)
        return g * ctx.runs

    return define(forward, backward, "Counting")


def count(ctx):
    ctx.runs += 1


def go_on(ctx):
    ctx.late = getattr(ctx, "late", 0) + 1
    ctx.runs = ctx.late


@pytest.mark.parametrize(("change", "name"), [(count, "runs"), (go_on, "late")])
def test_a_ctx_that_backward_changes_is_good_for_one_backward(change, name):
    """In eager mode the change persists; a compiled function's ctx is made anew for each."""
    fn = counting(change)
    x = leaf([1.0])
    y = fn.apply(x).sum()
    for _ in range(3):
        y.backward(retain_graph=True)
    assert numbers(x.grad) == [1.0 + 2.0 + 3.0]
    apply = lucid.compile(fn.apply)
    for _ in range(2):
        x = leaf([1.0])
        y = apply(x).sum()
        y.backward(retain_graph=True)
        with pytest.raises(RuntimeError) as caught:
            y.backward()
        assert numbers(x.grad) == [1.0]
        assert text_of(caught) == (
            f"Counting.backward changes ctx.{name}, recorded at test_differentiated_outside.py\n"
            "  a second backward through the result of a compiled function would not find the "
            "change\nhint: call backward() inside of the compiled function"
        )


def test_a_ctx_that_keeps_what_backward_computes_is_good_for_several(prepared):
    def backward(ctx, g):
        ctx.scaled = g * ctx.factor
        ctx.log.append("backward")
        ctx.rank = g.ndim + 0
        return ctx.scaled, None

    def forward(ctx, x, factor):
        ctx.factor, ctx.rank, ctx.log = factor, x.ndim, []
        return x * factor

    apply = prepared(define(forward, backward).apply)
    for factor in 2.0, 3.0:
        x = leaf([1.0])
        y = apply(x, factor).sum()
        for _ in range(2):
            y.backward(retain_graph=True)
        assert numbers(x.grad) == [2 * factor]


def test_what_backward_changes_in_containers_of_a_ctx_is_there_for_who_sees_it(prepared):
    log, settings = [], {"scale": 1.0}

    def forward(ctx, x):
        ctx.log, ctx.settings, ctx.own, ctx.counts = log, settings, [], {"backward": 0}
        return x * 2

    def backward(ctx, g):
        ctx.log.append(len(ctx.log))
        ctx.own.append("backward")
        ctx.counts["backward"] += 1
        return g * ctx.settings["scale"] * ctx.counts["backward"]

    apply = prepared(define(forward, backward).apply)
    for scale in 2.0, 3.0, 4.0:
        x = leaf([1.0])
        y = apply(x)
        settings["scale"] = scale
        y.backward()
        assert numbers(x.grad) == [scale]
    assert log == [0, 1, 2]


class Counts:
    def __init__(self) -> None:
        self.backward, self.seen = 0, []


def test_an_object_that_forward_makes_is_a_new_one_for_each_call(prepared):
    def forward(ctx, x):
        ctx.counts = ctx.again = Counts()
        return x * 2

    def backward(ctx, g):
        ctx.counts.backward += 1
        ctx.again.seen.append(ctx.again.backward)
        return g * (ctx.counts.backward + len(ctx.counts.seen))

    apply = prepared(define(forward, backward).apply)
    for _ in range(4):
        x = leaf([1.0])
        apply(x).backward()
        assert numbers(x.grad) == [2.0]


def test_calls_whose_ctx_keeps_an_object_that_forward_makes_run_op_by_op():
    """A second backward counts on in the object of its call."""

    def forward(ctx, x):
        ctx.counts = Counts()
        return x * 2

    def backward(ctx, g):
        ctx.counts.backward += 1
        return g * ctx.counts.backward

    step = lucid.compile(define(forward, backward).apply)
    for _ in range(3):
        x = leaf([1.0])
        y = step(x)
        y.backward(retain_graph=True)
        y.backward()
        assert numbers(x.grad) == [3.0]
    reason = str(step.stats.eager_reasons)
    assert "its results have a history, and a ctx holds a Counts that forward has made" in reason


def test_a_second_backward_that_would_count_on_in_a_container_of_a_ctx_is_refused():
    def forward(ctx, x):
        ctx.log = []
        return x * 2

    def backward(ctx, g):
        ctx.log.append(len(ctx.log))
        return g * ctx.log[-1]

    y = lucid.compile(define(forward, backward).apply)(leaf([1.0]))
    y.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"^Fn.backward changes ctx\.log"):
        y.backward()


# ---------------------------------------------------------------------- memory of what is returned


def shown(prepare, *forwards):
    """What each Function makes of an input, and what becomes of that when the input is written."""
    found = []
    for forward in forwards:
        fn = prepare(define(forward, lambda ctx, g: g.sum() * leaf([2.0, 2.0], False)).apply)
        for values in [1.0, 2.0], [3.0, 4.0]:
            x = leaf(values)
            y = fn(x)
            x.detach().mul_(10)
            found.append((y.tolist(), y.requires_grad))
    return found


def test_a_returned_input_or_a_view_of_it_shares_its_memory_outside_of_the_step(prepared):
    assert shown(prepared, lambda ctx, x: x, lambda ctx, x: x[1:], lambda ctx, x: x.view(2, 1)) == [
        ([10.0, 20.0], True),
        ([30.0, 40.0], True),
        ([20.0], True),
        ([40.0], True),
        ([[10.0], [20.0]], True),
        ([[30.0], [40.0]], True),
    ]


def test_so_does_a_returned_parameter(prepared):
    w = leaf([1.0, 2.0])
    apply = prepared(lambda: Identity.apply(w))
    for expected in 2.0, 3.0:
        y = apply()
        y.sum().backward()
        w.detach().add_(1)
        assert y.tolist() == numbers(w) == [expected, expected + 1]
    assert numbers(w.grad) == [4.0, 4.0]


def test_a_returned_input_without_history_shares_its_memory_as_well(prepared):
    apply = prepared(define(lambda ctx, x: x.detach(), lambda ctx, g: g * 5).apply)
    for _ in range(2):
        x = leaf([1.0, 2.0])
        y = apply(x)
        x.detach().mul_(3)
        y.sum().backward()
        assert (numbers(y), numbers(x.grad)) == ([3.0, 6.0], [5.0, 5.0])


STALE = (
    "Output 0 of Identity is a view and its base or another view of its base has been modified "
    "inplace. This view was created inside a custom Function (or because an input was returned "
    "as-is) and the autograd logic to handle view+inplace would override the custom backward "
    "associated with the custom Function, leading to incorrect gradients. This behavior is "
    "forbidden. You can fix this by cloning the output of the custom Function."
)

ITS_BASE = "its base or another view of its base has been "


@pytest.mark.parametrize(
    "write",
    [lambda x, y: x.detach().mul_(3), lambda x, y: y.detach()[0:1].zero_()],
    ids=["input", "output"],
)
@pytest.mark.parametrize("makes", [False, True], ids=["of the input", "of its own"])
def test_a_returned_view_whose_memory_was_written_has_no_history_any_more(prepared, write, makes):
    own = define(lambda ctx, x: (x * 2)[0:2], lambda ctx, g: g * 2, "Identity")
    apply = prepared((own if makes else Identity).apply)
    for _ in range(2):
        x = leaf([1.0, 2.0])
        y = apply(x)
        write(y if makes else x, y)
        with pytest.raises(RuntimeError) as caught:
            y.sum().backward()
        assert first_line(caught) == STALE
        assert x.grad is None


def test_writing_to_a_returned_input_would_lose_the_backward_and_is_refused(prepared):
    apply = prepared(Identity.apply)
    for _ in range(2):
        x = leaf([1.0])
        with pytest.raises(RuntimeError) as caught:
            apply(x).add_(1)
        assert first_line(caught) == STALE.replace(ITS_BASE, "is being ")
        assert (numbers(x), x._version) == ([1.0], 0)


def test_a_tensor_from_outside_is_no_output_of_a_compiled_function():
    """In eager mode it gets the history of the last call, as in PyTorch."""
    w = leaf([5.0], False)
    fn = define(lambda ctx, x: w, lambda ctx, g: g * 7)
    with pytest.raises(lucid.TraceError) as caught:
        lucid.compile(fn.apply)(leaf([1.0]))
    assert text_of(caught) == (
        "Fn.forward returned a tensor from outside of the compiled function, whose history would "
        "be that of the last call\n  f64[1]  from custom_functions.py\n"
        "  in Fn, recorded at test_differentiated_outside.py\n"
        "hint: return tensor.detach(), which shares its memory"
    )
    assert (w.requires_grad, w.grad_fn) == (False, None)
    detached = define(lambda ctx, x: w.detach(), lambda ctx, g: g * 7)
    for apply in detached.apply, lucid.compile(detached.apply):
        x = leaf([1.0])
        y = apply(x)
        y.sum().backward()
        assert (numbers(y), numbers(x.grad)) == ([5.0], [7.0])
