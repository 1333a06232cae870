"""`vmap`: axes, nesting, randomness, writes, errors."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.func import grad, vmap as mapped

Run = Callable[..., Any]
X = np.arange(6.0).reshape(2, 3)


def tensor(array: Any = X) -> lucid.Tensor:
    return lucid.from_numpy(np.array(array))


def f(x: Any) -> Any:
    return x


# ---------------------------------------------------------------------- axes


def test_lucid_vmap_is_the_same() -> None:
    assert lucid.vmap is lucid.func.vmap


@pytest.mark.parametrize("in_dim", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("out_dim", [0, 1, -1, -2])
def test_the_mapped_axis_may_be_any(
    run: Run, in_dim: int, out_dim: int, rng: np.random.Generator
) -> None:
    x = rng.normal(size=(2, 3, 4))
    body = lambda x: mapped(lambda t: t.sum(0) * 2, in_dim, out_dim)(x)  # noqa: E731
    parts = [part.sum(0) * 2 for part in np.moveaxis(x, in_dim, 0)]
    found = run(body, tensor(x)).numpy()
    np.testing.assert_allclose(found, np.stack(parts, out_dim), rtol=1e-12)


def test_arguments_and_results_may_be_nested(run: Run) -> None:
    def body(x: Any, y: Any) -> Any:
        def function(pair: Any, named: Any, k: int) -> Any:
            a, b = pair
            return {"sum": a + b, "rest": [named["c"] * k, (a, a * 0 + 1.0)]}

        dims = ((0, None), {"c": 1}, None)
        outs = {"sum": 1, "rest": [0, (0, 0)]}
        return mapped(function, dims, outs)((x, y[:, 0]), {"c": y}, 3)

    y = X[::-1].T.copy()
    found = run(body, tensor(), tensor(y))
    np.testing.assert_allclose(found["sum"].numpy(), X.T + y[:, :1])
    np.testing.assert_allclose(found["rest"][0].numpy(), y.T * 3)
    np.testing.assert_allclose(found["rest"][1][0].numpy(), X)


def test_keyword_arguments_are_shared(run: Run) -> None:
    body = lambda x, y: mapped(lambda a, *, b: (a * b).sum())(x, b=y)  # noqa: E731
    assert run(body, tensor(), tensor(X[1])).tolist() == [14.0, 50.0]


def test_what_is_not_batched_is_repeated(run: Run) -> None:
    assert run(mapped(lambda x: lucid.ones(2)), tensor()).tolist() == [[1.0, 1.0]] * 2
    assert run(mapped(lambda x: (x, 3), out_dims=(0, None)), tensor())[1] == 3


def test_nested_maps_give_outer_products(run: Run) -> None:
    def body(x: Any, y: Any) -> Any:
        return mapped(mapped(lambda a, b: a * b, (None, 0)), (0, None))(x, y)

    x, y = tensor([1.0, 2.0]), tensor([3.0, 4.0, 5.0])
    np.testing.assert_array_equal(run(body, x, y).numpy(), np.outer([1.0, 2.0], [3.0, 4.0, 5.0]))


def test_chunks_give_the_same(run: Run) -> None:
    x = tensor(np.arange(15.0).reshape(5, 3))
    function = lambda t: (t * 2, t.sum())  # noqa: E731
    whole = mapped(function, out_dims=(1, 0))(x)
    for size in (1, 2, 5, 9):
        parts = run(mapped(function, out_dims=(1, 0), chunk_size=size), x)
        assert [p.tolist() for p in parts] == [w.tolist() for w in whole]


def test_closures_are_shared_and_differentiable(run: Run) -> None:
    def body(x: Any, w: Any) -> Any:
        w = w.detach().requires_grad_()
        mapped(lambda t: (t * w).tanh())(x).sum().backward()
        return w.grad

    x, w = tensor(), tensor([0.1, 0.2, 0.3])
    expected = (X * (1 - np.tanh(X * w.numpy()) ** 2)).sum(0)
    np.testing.assert_allclose(run(body, x, w).numpy(), expected, rtol=1e-12)


def test_gradients_inside_are_those_of_each_example(run: Run) -> None:
    def body(x: Any, w: Any) -> Any:
        w = w.detach().requires_grad_()
        return mapped(lambda t: lucid.autograd.grad((t * w).sum(), w)[0])(x)

    np.testing.assert_array_equal(run(body, tensor(), tensor([1.0, 1.0, 1.0])).numpy(), X)


def test_a_leaf_made_inside_keeps_its_gradients_inside(run: Run) -> None:
    def function(t: Any) -> Any:
        leaf = t.detach().requires_grad_()
        (leaf * leaf).sum().backward()
        return leaf.grad

    np.testing.assert_array_equal(run(mapped(function), tensor()).numpy(), 2 * X)


SURFACE: dict[str, Callable[..., Any]] = {
    "index": lambda t: t[1:],
    "negative step": lambda t: t.flip(0),
    "picks": lambda t: t[lucid.tensor([0, 2, 2])],
    "picks of its own": lambda t: lucid.arange(10.0)[t.long()],
    "both": lambda t: t[t.long() % 3],
    "gather": lambda t: t.gather(0, lucid.tensor([0, 0])),
    "sort": lambda t: t.sort(descending=True).values,
    "topk": lambda t: t.topk(2).indices,
    "where": lambda t: lucid.where(t.sum() > 5, t, -t),
    "softmax": lambda t: lucid.softmax(t, 0),
    "std": lambda t: t.std(),
    "einsum": lambda t: lucid.einsum("i,j->ij", t, t),
    "matrix": lambda t: lucid.eye(3, dtype=lucid.float64) @ t,
    "dot": lambda t: t @ t,
    "cat": lambda t: lucid.cat([t, lucid.ones(2, dtype=lucid.float64)]),
    "stack": lambda t: lucid.stack(list(t)),
    "norm": lambda t: t.norm(),
    "prod": lambda t: t.prod(),
    "cumsum": lambda t: t.cumsum(0),
    "len": lambda t: t * len(t),
    "one_hot": lambda t: lucid.nn.functional.one_hot(t.long(), 8),
    "gelu": lambda t: lucid.nn.functional.gelu(t),
    "layer_norm": lambda t: lucid.nn.functional.layer_norm(t, (3,)),
}


@pytest.mark.parametrize("name", SURFACE)
def test_functions_of_the_library_are_mapped(run: Run, name: str) -> None:
    function = SURFACE[name]
    found = run(mapped(function), tensor())
    expected = np.stack([function(tensor(row)).numpy() for row in X])
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-15)


def test_modules_are_mapped(run: Run) -> None:
    model = lucid.nn.Sequential(lucid.nn.Linear(3, 4), lucid.nn.Tanh(), lucid.nn.LayerNorm(4))
    x = tensor().float()
    found = run(lambda x: mapped(model)(x), x)
    np.testing.assert_allclose(
        found.detach().numpy(), model(x).detach().numpy(), rtol=1e-5, atol=1e-6
    )


# ---------------------------------------------------------------------- writes


def test_writes_go_to_each_example(run: Run) -> None:
    def body(x: Any) -> Any:
        def function(t: Any) -> Any:
            out = lucid.zeros_like(t)
            out[0] = t[0]
            out[1:].add_(t[1:] * 2)
            return out

        return mapped(function)(x)

    assert run(body, tensor()).tolist() == [[0.0, 2.0, 4.0], [3.0, 8.0, 10.0]]


def test_a_write_to_the_input_is_seen_outside(run: Run) -> None:
    x = tensor()
    run(mapped(lambda t: t.mul_(2), in_dims=1), x)
    np.testing.assert_array_equal(x.numpy(), 2 * X)


def test_writes_are_differentiated(run: Run) -> None:
    def body(x: Any) -> Any:
        def function(t: Any) -> Any:
            out = t.new_zeros(3)
            out[:2] = t[1:] * t[:1]
            out *= t
            return out.sum()

        return mapped(grad(function))(x), grad(lambda t: mapped(function)(t).sum())(x)

    a, b, c = X.T
    expected = np.stack([2 * a * b + b * c, a * a + a * c, a * b], 1)
    for found in run(body, tensor()):
        np.testing.assert_allclose(found.numpy(), expected)


def test_a_shared_tensor_is_not_written_with_examples(run: Run) -> None:
    def function(t: Any) -> Any:
        out = lucid.zeros(3, dtype=lucid.float64)
        out[0] = t[0]
        return out

    message = (
        "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor "
        "`other` in extra_args that has more elements than `self`. This happened due to `other` "
        "being vmapped over but `self` not being vmapped over in a vmap. Please try to use "
        "out-of-place operators instead of inplace arithmetic.\n"
    )
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}  self:  f64"):
        run(lambda x: mapped(function)(x), tensor())


def test_gradients_of_examples_are_not_accumulated_outside(run: Run) -> None:
    w = lucid.ones(3, dtype=lucid.float64, requires_grad=True)

    def function(t: Any) -> Any:
        (t * w).sum().backward()
        return t

    with pytest.raises(RuntimeError, match=r"^vmap: a gradient for each example can't be accumu"):
        run(mapped(function), tensor())
    assert w.grad is None


# ---------------------------------------------------------------------- randomness


def test_random_numbers_are_refused_by_default(run: Run) -> None:
    message = (
        "vmap: called random operation while in randomness error mode. Please either use the "
        "'same' or 'different' randomness flags on vmap or perform the randomness operation out of "
        "vmap"
    )
    for function in (lambda t: t + lucid.rand(3), lambda t: lucid.nn.functional.dropout(t)):
        with pytest.raises(RuntimeError, match=f"^{re.escape(message)}"):
            run(lambda x, function=function: mapped(function)(x), tensor().float())


def test_random_numbers_differ_or_not_as_asked(run: Run) -> None:
    def draw(t: Any) -> Any:
        return lucid.rand(4)

    def nested(x: Any) -> Any:
        return mapped(mapped(draw, randomness="same"), randomness="different")(x)

    lucid.manual_seed(0)
    different = run(lambda x: mapped(draw, randomness="different")(x), tensor())
    same = run(lambda x: mapped(draw, randomness="same")(x), tensor())
    mixed = run(nested, tensor())
    after = run(draw, tensor())
    assert len({*different.reshape(-1).tolist()}) == 8
    assert same[0].tolist() == same[1].tolist()
    assert mixed[0, 0].tolist() == mixed[0, 2].tolist() != mixed[1, 0].tolist()
    every = [*different.reshape(-1).tolist(), *same[0].tolist(), *mixed[:, 0].reshape(-1).tolist()]
    lucid.manual_seed(0)
    assert [*every, *after.tolist()] == lucid.rand(24).tolist()


def test_dropout_draws_for_each_example(run: Run) -> None:
    lucid.manual_seed(0)
    function = functools.partial(lucid.nn.functional.dropout, p=0.5)
    found = run(mapped(function, randomness="different"), lucid.ones(4, 64))
    assert len({tuple(row) for row in found.tolist()}) == 4


# ---------------------------------------------------------------------- errors

INPUTS: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "randomness": (
        lambda x: mapped(f, randomness="x"),
        ValueError,
        "Only allowed values for randomness are 'error', 'different', or 'same'. Got x",
    ),
    "chunk": (
        lambda x: mapped(f, chunk_size=0),
        ValueError,
        "vmap: chunk_size should be None or greater than 0. (got 0)",
    ),
    "0-d": (
        lambda x: mapped(f)(x.sum()),
        ValueError,
        "vmap(f, in_dims=0, ...)(<inputs>): Got in_dim=0 for some input, but that input is a "
        "Tensor of dimensionality 0 so expected in_dim to satisfy -0 <= in_dim < 0.",
    ),
    "structure": (
        lambda x: mapped(f, in_dims=(0, 0))(x),
        ValueError,
        "vmap(f, in_dims=(0, 0), ...)(<inputs>): in_dims is not compatible with the structure of "
        "`inputs`. in_dims has structure (*, *) but inputs has structure (*,).",
    ),
    "kind": (
        lambda x: mapped(f, in_dims="a")(x),
        ValueError,
        "vmap(f, in_dims=a, ...)(<inputs>): expected `in_dims` to be int or a (potentially nested) "
        "tuple matching the structure of inputs, got: <class 'str'>.",
    ),
    "entry": (
        lambda x: mapped(f, in_dims=("a",))(x),
        ValueError,
        "vmap(f, in_dims=('a',), ...)(<inputs>): Got in_dim=a for an input but in_dim must be "
        "either an integer dimension or None.",
    ),
    "number": (
        lambda x: mapped(lambda a, b: a)(x, 3),
        ValueError,
        "vmap(<lambda>, in_dims=0, ...)(<inputs>): Got in_dim=0 for an input but the input is of "
        "type <class 'int'>. We cannot vmap over non-Tensor arguments, please use None as the "
        "respective in_dim",
    ),
    "sizes": (
        lambda x: mapped(lambda a, b: a)(x, x[0]),
        ValueError,
        "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
        "[2, 3] for the mapped dimension",
    ),
    "nothing mapped": (
        lambda x: mapped(f, in_dims=(None,))(x),
        ValueError,
        "vmap: Expected at least one Tensor to vmap over",
    ),
    "no inputs": (
        lambda x: mapped(f)(),
        ValueError,
        "vmap(f)(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to "
        "vmap over a function with no inputs. The latter is unsupported.",
    ),
    "out_dims kind": (
        lambda x: mapped(f, out_dims="a")(x),
        ValueError,
        "vmap(f, ..., out_dims=a): `out_dims` must be an int, None or a python collection of ints "
        "representing where in the outputs the vmapped dimension should appear.",
    ),
    "out_dims structure": (
        lambda x: mapped(lambda t: (t, t), out_dims=(0,))(x),
        ValueError,
        "vmap(<lambda>, ..., out_dims=(0,))(<inputs>): out_dims is not compatible with the "
        "structure of `outputs`. out_dims has structure (*,) but outputs has structure (*, *).",
    ),
    "out_dims range": (
        lambda x: mapped(f, out_dims=5)(x),
        IndexError,
        "Dimension out of range (expected to be in range of [-2, 1], but got 5)",
    ),
    "out_dims None": (
        lambda x: mapped(f, out_dims=None)(x),
        ValueError,
        "vmap(f, ...): `f` can not return a BatchedTensor when out_dim is None",
    ),
    "output": (
        lambda x: mapped(lambda t: (t, 3))(x),
        ValueError,
        "vmap(<lambda>, ...): `<lambda>` must only return Tensors, got type <class 'int'>. Did you "
        "mean to set out_dims= to None for output?",
    ),
}


@pytest.mark.parametrize("case", INPUTS)
def test_what_does_not_fit_is_said(run: Run, case: str) -> None:
    call, kind, message = INPUTS[case]
    with pytest.raises(kind, match=f"^{re.escape(message)}$") as info:
        run(call, tensor())
    assert isinstance(info.value, lucid.LucidError)


DATA: dict[str, tuple[Callable[..., Any], str]] = {
    "item": (
        lambda t: t.sum().item(),
        "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over "
        "calling .item() on a Tensor, please try to rewrite what you're doing with other "
        "operations.\n  f64[]",
    ),
    "if": (
        lambda t: t if t.sum() > 0 else -t,
        "vmap: It looks like you're attempting to use a Tensor in some data-dependent control "
        "flow. We don't support that yet.\n  bool[]",
    ),
    "numpy": (
        lambda t: t.numpy(),
        "vmap: numpy() needs the data of one example, but all are computed at once\n  f64[3]",
    ),
    "mask": (
        lambda t: t[t > 0],
        "vmap: indexing with a bool mask, whose result's size depends on its data, needs the data "
        "of one example, but all are computed at once\n  bool[3]",
    ),
}


@pytest.mark.parametrize("case", DATA)
def test_the_data_of_one_example_cannot_be_looked_at(run: Run, case: str) -> None:
    function, message = DATA[case]
    with pytest.raises(RuntimeError) as info:
        run(lambda x: mapped(function)(x), tensor())
    first, operand, *_ = str(info.value).split("\n")
    assert f"{first}\n{operand.partition('  from ')[0]}" == message


def test_errors_speak_of_one_example(run: Run) -> None:
    with pytest.raises(lucid.ShapeError, match=r"^add: the shapes don't broadcast: axis -1 has"):
        run(mapped(lambda t: t + lucid.ones(2, dtype=lucid.float64)), tensor())


def test_an_escaped_handle_says_so(run: Run) -> None:
    def body(x: Any) -> Any:
        kept: list[Any] = []
        mapped(lambda t: (kept.append(t), t)[1])(x)
        return kept[0] + 1

    with pytest.raises(lucid.LucidError) as info:
        run(body, tensor())
    first, operand, hint = str(info.value).split("\n")
    assert first == "add: a tensor f64[3] belongs to a vmap that has ended"
    assert operand.startswith("  input: f64[3]  from test_vmap.py:")
    assert hint == "hint: return it from the mapped function instead of keeping it elsewhere"


def test_a_handle_prints_as_one_example(run: Run) -> None:
    def body(x: Any) -> Any:
        texts: list[str] = []
        mapped(lambda t: (texts.extend([repr(t), str(t)]), t)[1])(x)
        return texts

    assert run(body, tensor()) == ["Batched(f64[3], each of 2)"] * 2


def test_the_mapped_function_keeps_its_name(run: Run) -> None:
    assert mapped(f).__name__ == "f"
    assert grad(f).__name__ == "f"
    assert run(mapped(functools.partial(f)), tensor()).shape == (2, 3)
