"""`GradientEdge`s in place of tensors: as what is differentiated, and with respect to what."""

from __future__ import annotations

import pytest
from custom_functions import Square, leaf, numbers

import lucid
from lucid.autograd import backward, grad
from lucid.autograd.graph import GradientEdge, get_gradient_edge


def refused(run, body, *args):
    with pytest.raises(RuntimeError) as caught:
        run(body, *args)
    return str(caught.value)


def test_a_gradient_with_respect_to_an_edge(run):
    def body(x):
        y = Square.apply(x)
        edges = [get_gradient_edge(y), get_gradient_edge(x), GradientEdge(y.grad_fn, 0)]
        z = (y * 3).sum()
        del y  # an edge keeps the graph alive, not the tensor
        return grad(z, edges, retain_graph=True) + grad(z, edges[0])

    assert numbers(run(body, leaf([1.0, 2.0]))) == [[3.0, 3.0], [6.0, 12.0], [3.0, 3.0], [3.0, 3.0]]


def test_the_gradient_of_an_edge(run):
    def body(x):
        edge = get_gradient_edge(Square.apply(x).sum())
        (of_edge,) = grad(edge, x, retain_graph=True)
        backward([edge], retain_graph=True)
        backward(edge, lucid.tensor(3.0))
        return of_edge

    x = leaf([1.0, 2.0])
    assert numbers([run(body, x), x.grad]) == [[2.0, 4.0], [8.0, 16.0]]


def test_backward_accumulates_at_the_edge_of_a_leaf(run):
    def body(x, w):
        backward((x * w).sum(), inputs=[get_gradient_edge(x)])

    x, w = leaf([1.0]), leaf([3.0])
    run(body, x, w)
    assert numbers([x.grad, w.grad]) == [[3.0], None]


def test_backward_has_nowhere_to_accumulate_at_the_edge_of_an_intermediate(run):
    def body(x):
        y = Square.apply(x)
        backward(y.sum(), inputs=[get_gradient_edge(y)])

    assert refused(run, body, leaf([1.0])) == (
        "backward: input 0 is the GradientEdge of an intermediate, of SquareBackward, so there is "
        "no tensor for its .grad\nhint: autograd.grad returns its gradient"
    )


def test_what_holds_for_tensors_holds_for_edges(run):
    def unused(x, **options):
        return grad(x.sum(), get_gradient_edge(x * 2), **options)

    assert refused(run, unused, leaf([1.0])) == (
        "The differentiated Tensor at index 0 appears to not have been used in the graph. "
        "Set allow_unused=True if this is the desired behavior."
    )
    assert run(lambda x: unused(x, allow_unused=True), leaf([1.0])) == (None,)
    assert refused(run, lambda x: unused(x, materialize_grads=True), leaf([1.0])) == (
        "materialize_grads cannot be used when the given input is a GradientEdge"
    )
    several = "grad can be implicitly created only for scalar outputs"
    text = refused(run, lambda x: grad(get_gradient_edge(Square.apply(x)), x), leaf([1.0, 2.0]))
    assert text == (
        f"{several}\n  output 0: output 0 of SquareBackward\n"
        "hint: l.sum().backward() or l.backward(gradient)"
    )
    text = refused(
        run, lambda x: backward(get_gradient_edge(x * 2), lucid.ones(3)), leaf([1.0, 2.0])
    )
    first, gradient, output = text.split("\n")
    assert first == (
        "Mismatch in shape: grad_output[0] has a shape of lucid.Size([3]) and output[0] has a "
        "shape of lucid.Size([2])."
    )
    assert gradient.startswith("  grad_output[0]: f32[3]  from test_gradient_edges.py:")
    assert output == "  output[0]:      output 0 of MulBackward"


def test_an_input_is_a_tensor_or_an_edge(run):
    with pytest.raises(TypeError) as caught:
        run(lambda x: grad(x.sum(), [x, None]), leaf([1.0]))
    assert str(caught.value) == "all inputs have to be Tensors or GradientEdges, but got NoneType"
