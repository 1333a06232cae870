"""`requires_grad` set inside a function whose results are differentiated outside of it."""

from __future__ import annotations

import pytest

import lucid
from lucid import LucidError
from lucid.autograd import grad

FLAGS = [(start, during, end) for start in (0, 1) for during in (0, 1) for end in (0, 1)]


@pytest.mark.parametrize(("start", "during", "end"), FLAGS)
def test_an_argument_gets_gradients_if_it_required_them_when_it_was_used(
    prepared, start, during, end
):
    def body(x, w):
        x.requires_grad_(bool(during))
        y = x * x * w
        x.requires_grad_(bool(end))
        return y

    step = prepared(body)
    for _ in range(2):
        x = lucid.tensor([1.0, 2.0], requires_grad=bool(start))
        w = lucid.tensor([3.0, 5.0], requires_grad=True)
        y = step(x, w)
        assert x.requires_grad == bool(end)
        y.sum().backward(retain_graph=True)
        y.sum().backward()
        assert w.grad.tolist() == [2.0, 8.0]
        if during:
            assert x.grad.tolist() == [12.0, 40.0]
        else:
            assert x.grad is None
        assert x.requires_grad == bool(end)


@pytest.mark.parametrize(("start", "during", "end"), FLAGS)
def test_state_gets_gradients_if_it_required_them_when_it_was_used(prepared, start, during, end):
    w = lucid.tensor([3.0, 5.0])

    def body(x):
        w.requires_grad_(bool(during))
        y = x * w
        w.requires_grad_(bool(end))
        return y

    step = prepared(body)
    for _ in range(2):
        w.requires_grad_(bool(start)).grad = None
        x = lucid.tensor([1.0, 2.0], requires_grad=True)
        step(x).sum().backward()
        assert x.grad.tolist() == [3.0, 5.0]
        assert (w.grad is not None) == bool(during)
        assert w.requires_grad == bool(end)


def test_a_leaf_made_inside_that_asks_for_no_more_gradients_still_gets_them(run):
    def body(x):
        made = (x * 2).detach().requires_grad_()
        y = made * made
        made.requires_grad_(False)
        return made, y

    made, y = run(body, lucid.tensor([1.0, 2.0]))
    y.sum().backward()
    assert made.grad.tolist() == [4.0, 8.0]
    assert not made.requires_grad


def test_the_gradient_of_a_leaf_made_inside_that_asks_for_no_more_is_kept(run):
    def body(x):
        made, shown = (x * 2).detach().requires_grad_(), x.detach().requires_grad_()
        (made * made * shown).sum().backward()
        return made.requires_grad_(False), shown.requires_grad_(False)

    made, shown = run(body, lucid.tensor([1.0, 2.0]))
    assert (made.grad.tolist(), shown.grad.tolist()) == ([4.0, 16.0], [4.0, 16.0])


def test_autograd_grad_refuses_an_argument_that_requires_grad_no_longer(run):
    def body(x):
        y = x * x
        x.requires_grad_(False)
        return y

    x = lucid.tensor([1.0, 2.0], requires_grad=True)
    y = run(body, x)
    with pytest.raises(LucidError, match="does not require grad"):
        grad(y.sum(), x)


def test_second_derivatives_go_through_an_argument_frozen_after_its_use(run):
    def body(x, w):
        y = x**3 * w
        x.requires_grad_(False)
        return y

    x = lucid.tensor([1.0, 2.0], requires_grad=True)
    w = lucid.tensor([3.0, 5.0], requires_grad=True)
    (first,) = grad(run(body, x, w).sum(), w, create_graph=True)
    first.sum().backward()
    assert x.grad.tolist() == [3.0, 12.0]


MODES = ("no_grad", "inference_mode", "set_grad_enabled")


@pytest.mark.parametrize("name", MODES)
def test_a_generator_that_is_decorated_runs_in_the_mode_and_its_caller_does_not(name):
    mode = lucid.set_grad_enabled(False) if name == "set_grad_enabled" else getattr(lucid, name)
    seen = []

    @mode
    def generated(x):
        try:
            sent = yield x * 2
            seen.append((sent, lucid.is_grad_enabled()))
            yield x * 3
        except KeyError:
            seen.append(("thrown", lucid.is_grad_enabled()))
            yield x * 4
        finally:
            seen.append(("closed", lucid.is_grad_enabled()))
        return "the end"

    def returned(values):
        seen.append((yield from values))

    x = lucid.ones(2, requires_grad=True)
    values = generated(x)
    assert not next(values).requires_grad and (x * 2).requires_grad
    assert not values.send("sent").requires_grad and (x * 2).requires_grad
    assert not values.throw(KeyError).requires_grad and (x * 2).requires_grad
    assert list(returned(values)) == [] and (x * 2).requires_grad
    assert seen == [("sent", False), ("thrown", False), ("closed", False), "the end"]
    other = generated(x)
    next(other)
    other.close()
    assert seen[4:] == [("closed", False)] and lucid.is_grad_enabled()
