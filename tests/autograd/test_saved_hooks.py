"""Hooks on what is saved for the backward."""

from __future__ import annotations

import pytest
from custom_functions import Exp, Square, define, leaf, numbers

import lucid
from lucid.autograd import graph


def same(tensor):
    return tensor


def test_tensors_are_packed_at_the_end_of_forward_and_unpacked_at_each_read(run):
    def forward(ctx, x, seen):
        ctx.save_for_backward(x, None)
        ctx.attribute = x
        ctx.seen = seen
        seen.append("forward")
        return x * x

    def backward(ctx, g):
        ctx.seen.append("backward")
        for _ in range(2):
            x, _ = ctx.saved_tensors
        return 2 * x * g, None

    fn = define(forward, backward)

    def body(x):
        seen = []

        def pack(tensor):
            seen.append("pack")
            return tensor

        def unpack(tensor):
            seen.append("unpack")
            return tensor

        with graph.saved_tensors_hooks(pack, unpack):
            y = fn.apply(x, seen)
        y.sum().backward()
        return seen

    x = leaf([3.0])
    assert run(body, x) == ["forward", "pack", "backward", "unpack", "unpack"]
    assert numbers(x.grad) == [6.0]


def test_what_forward_computes_inside_is_not_packed(run):
    fn = define(lambda ctx, x: (x * x * x).exp(), lambda ctx, g: g)

    def body(x):
        seen = []
        with graph.saved_tensors_hooks(lambda t: seen.append(1), same):
            fn.apply(x)
        return seen

    assert run(body, leaf([1.0])) == []


def test_anything_may_stand_for_a_packed_tensor(run):
    def body(x):
        kept = {}

        def pack(tensor):
            kept[len(kept)] = tensor.float()
            return len(kept) - 1

        with graph.saved_tensors_hooks(pack, lambda key: kept[key].double()):
            y = Square.apply(x)
        y.sum().backward()

    x = leaf([3.0])
    run(body, x)
    assert numbers(x.grad) == [6.0]


def test_the_innermost_hooks_win(run):
    def body(x):
        seen = []

        def packing(name):
            def pack(tensor):
                seen.append(name)
                return tensor

            return pack

        with graph.saved_tensors_hooks(packing("outer"), same):
            with graph.saved_tensors_hooks(packing("inner"), same):
                Square.apply(x)
            Square.apply(x)
        Square.apply(x)
        return seen

    assert run(body, leaf([1.0])) == ["inner", "outer"]


@pytest.mark.parametrize("fn", [Square, Exp])
def test_packed_inputs_and_outputs_keep_their_history(run, fn):
    def body(x):
        with graph.saved_tensors_hooks(lambda t: t.clone(), same):
            y = fn.apply(x * 1)
        (g,) = lucid.autograd.grad(y.sum(), x, create_graph=True)
        return lucid.autograd.grad(g.sum(), x)[0]

    expected = 2.0 if fn is Square else 1.0
    assert numbers(run(body, leaf([0.0]))) == [expected]


def test_unpack_must_return_a_tensor(run):
    def body(x):
        with graph.saved_tensors_hooks(same, lambda packed: 3):
            y = Square.apply(x)
        y.sum().backward()

    with pytest.raises(TypeError) as caught:
        run(body, leaf([1.0]))
    assert str(caught.value) == (
        "Output of saved tensor unpack_hook expected to be a Tensor but got result of type int"
    )


def test_pack_must_not_write_to_its_input(run):
    def body(x):
        with graph.saved_tensors_hooks(lambda t: t.add_(1), same):
            Square.apply(x * 1)

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert str(caught.value).startswith(
        "A saved tensor pack hook is modifying its input in place. Tensors provided as input to "
        "pack hook cannot be modified by in-place operations as this can lead to unexpected "
        "side-effects."
    )


def test_save_on_cpu_keeps_copies(run):
    def body(x):
        with graph.save_on_cpu(pin_memory=True):
            y = Square.apply(x)
        x.detach().zero_()
        y.sum().backward()

    x = leaf([3.0])
    run(body, x)
    assert numbers(x.grad) == [6.0]


def test_disabled_hooks_raise_the_given_message(run):
    def body(x):
        refused = graph.disable_saved_tensors_hooks("no hooks here")
        with refused, graph.saved_tensors_hooks(same, same):
            Square.apply(x)

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert str(caught.value) == "no hooks here"


def test_hooks_cannot_be_disabled_while_some_are_set(run):
    def body(x):
        refused = graph.disable_saved_tensors_hooks("no hooks here")
        with graph.saved_tensors_hooks(same, same), refused:
            Square.apply(x)

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert str(caught.value) == "no hooks here"


def test_hooks_end_with_their_block_though_it_raises(run):
    def body(x):
        for block in (
            graph.saved_tensors_hooks(lambda t: 1 / 0, same),
            graph.disable_saved_tensors_hooks("no"),
            graph.allow_mutation_on_saved_tensors(),
        ):
            try:
                with block:
                    raise KeyError
            except KeyError:
                pass
        with graph.saved_tensors_hooks(same, same):
            return Square.apply(x)

    assert numbers(run(body, leaf([2.0]))) == [4.0]


def test_allow_mutation_keeps_what_was_saved(run):
    def body(x):
        with graph.allow_mutation_on_saved_tensors():
            a = x * 1
            y = Square.apply(a)
            z = a.exp()
            out = z.clone()
            a.zero_()
            z.zero_()
            (y + out).sum().backward()

    x = leaf([0.0])
    run(body, x)
    assert numbers(x.grad) == [1.0]


def test_blocks_that_allow_mutation_do_not_nest(run):
    def body():
        with graph.allow_mutation_on_saved_tensors(), graph.allow_mutation_on_saved_tensors():
            pass

    for _ in range(2):  # the first error has ended the outer block
        with pytest.raises(RuntimeError) as caught:
            run(body)
        assert str(caught.value) == ("allow_mutation_on_saved_tensors contexts cannot be nested")


def test_allow_mutation_keeps_histories(run):
    def body(x):
        with graph.allow_mutation_on_saved_tensors():
            y = Square.apply(x)
            x.detach().zero_()
            (g,) = lucid.autograd.grad(y.sum(), x, create_graph=True)
            return g, lucid.autograd.grad(g.sum(), x)[0]

    assert numbers(run(body, leaf([3.0]))) == [[6.0], [2.0]]


# ---------------------------------------------------------------------- around compiled functions


def test_hooks_around_a_compiled_call_are_those_of_now(prepared):
    """A program was traced before without hooks, or with others."""
    step = prepared(lambda x: Square.apply(x).sum().backward())
    square = prepared(lambda x: Square.apply(x))
    x = leaf([1.0, 2.0])
    for factor in (None, 10, 100, None):
        x.grad = None
        if factor is None:
            y = square(x)
            step(x)
        else:
            with graph.saved_tensors_hooks(lambda t, k=factor: t * k, lambda t: t):
                y = square(x)
                step(x)
        y.sum().backward()
        assert numbers(x.grad) == [4.0 * (factor or 1), 8.0 * (factor or 1)]


def test_what_is_saved_by_a_compiled_call_may_be_written_where_that_is_allowed(prepared):
    square = prepared(lambda a: Square.apply(a))
    for block in (graph.allow_mutation_on_saved_tensors, graph.save_on_cpu):
        x = leaf([1.0, 2.0])
        with block():
            a = x * 1
            y = square(a)
            a.mul_(10)
            y.sum().backward()
        assert numbers(x.grad) == [2.0, 4.0]


def test_hooks_inside_of_a_compiled_function_are_refused_where_they_are_disabled(prepared):
    def body(x):
        with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            return Square.apply(x)

    step = prepared(body)
    step(leaf([1.0]))
    with (
        pytest.raises(RuntimeError) as caught,
        graph.disable_saved_tensors_hooks("not in here"),
    ):
        step(leaf([1.0]))
    assert str(caught.value) == "not in here"
    assert numbers(step(leaf([3.0]))) == [9.0]
