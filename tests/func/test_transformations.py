"""`lucid.func`: structures, several arguments, aux, errors, modules as functions."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    replace_all_batch_norm_modules_,
    stack_module_state,
    value_and_grad,
    vjp,
    vmap as mapped,
)

Run = Callable[..., Any]


def t(*numbers: float) -> lucid.Tensor:
    return lucid.tensor(list(numbers), dtype=lucid.float64)


def numbers(tree: Any) -> Any:
    """The tree with lists of numbers for tensors."""
    if isinstance(tree, lucid.Tensor):
        return tree.tolist()
    if isinstance(tree, dict):
        return {key: numbers(value) for key, value in tree.items()}
    return type(tree)(map(numbers, tree)) if isinstance(tree, (tuple, list)) else tree


# ---------------------------------------------------------------------- grad


def test_gradients_have_the_structure_of_the_argument(run: Run) -> None:
    def loss(parameters: Any, x: Any) -> Any:
        return (parameters["w"] * x + parameters["rest"][0]).sum()

    body = lambda w, b, x: grad(loss)({"w": w, "rest": [b]}, x)  # noqa: E731
    assert numbers(run(body, t(1, 2), t(3, 4), t(5, 6))) == {"w": [5.0, 6.0], "rest": [[1.0, 1.0]]}


def test_several_arguments_give_a_tuple(run: Run) -> None:
    function = lambda x, y, k: (x * y * y).sum() * k  # noqa: E731
    body = lambda x, y: (  # noqa: E731
        grad(function, argnums=(1, 0))(x, y, 2),
        grad(function, argnums=-2)(x, y, 2),
        grad(lambda x, y: x.sum(), argnums=(0, 1))(x, y),
    )
    both, one, unused = run(body, t(1, 2), t(3, 4))
    assert numbers(both) == ([12.0, 32.0], [18.0, 32.0])
    assert numbers(one) == [12.0, 32.0]
    assert numbers(unused) == ([1.0, 1.0], [0.0, 0.0])


def test_values_and_aux_come_along(run: Run) -> None:
    function = lambda x: ((x * x).sum(), {"double": x * 2})  # noqa: E731
    body = lambda x: (  # noqa: E731
        grad(function, has_aux=True)(x),
        grad_and_value(function, has_aux=True)(x),
        value_and_grad(function, has_aux=True)(x),
        grad_and_value(lambda x: function(x)[0])(x),
        value_and_grad(lambda x: function(x)[0])(x),
    )
    g, aux = [2.0, 4.0], {"double": [2.0, 4.0]}
    assert numbers(run(body, t(1, 2))) == (
        (g, aux),
        (g, (5.0, aux)),
        ((5.0, aux), g),
        (g, 5.0),
        (5.0, g),
    )


def test_keyword_arguments_pass(run: Run) -> None:
    body = lambda x: grad(lambda x, *, k: (x * k).sum())(x, k=3.0)  # noqa: E731
    assert numbers(run(body, t(1, 2))) == [3.0, 3.0]


def test_the_input_may_be_written(run: Run) -> None:
    def function(x: Any) -> Any:
        x = x * 1
        x[0] = x[1] * 3
        return (x * x).sum()

    assert numbers(run(lambda x: grad(function)(x), t(1, 2))) == [0.0, 40.0]


GRAD = "grad_and_value(f)(*args)"
GRAD_ERRORS: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "vector": (
        lambda x: grad(lambda x: x)(x),
        RuntimeError,
        f"{GRAD}: Expected f(*args) to return a scalar Tensor, got tensor with 1 dims. Maybe you "
        "wanted to use the vjp or jacrev APIs instead?",
    ),
    "number": (
        lambda x: grad(lambda x: 3)(x),
        RuntimeError,
        f"{GRAD}: Expected f(*args) to return a Tensor, got <class 'int'>",
    ),
    "aux": (
        lambda x: grad(lambda x: x.sum(), has_aux=True)(x),
        RuntimeError,
        f"{GRAD}: output of function f should be a tuple: (output, aux) if has_aux is True",
    ),
    "integers": (
        lambda x: grad(lambda x: x.sum())(x.long()),
        RuntimeError,
        "only Tensors of floating point dtype can require gradients, not lucid.int64",
    ),
    "float": (
        lambda x: grad(lambda x: x * 2)(3.0),
        ValueError,
        "Thing passed to transform API must be Tensor, got <class 'float'>",
    ),
    "argnum": (
        lambda x: grad(lambda x: x.sum(), argnums=1)(x),
        RuntimeError,
        "Got argnum=1, but only 1 positional inputs",
    ),
    "argnums kind": (
        lambda x: grad(lambda x: x.sum(), argnums="a")(x),  # type: ignore[arg-type]
        TypeError,
        "argnums must be int or Tuple[int, ...], got: <class 'str'>",
    ),
    "argnums entry": (
        lambda x: grad(lambda x: x.sum(), argnums=("a",))(x),  # type: ignore[arg-type]
        TypeError,
        "argnum must be int, got: <class 'str'>",
    ),
    "argnums empty": (
        lambda x: grad(lambda x: x.sum(), argnums=())(x),
        ValueError,
        "argnums must be non-empty",
    ),
    "argnums twice": (
        lambda x: grad(lambda x, y: x.sum(), argnums=(0, 0))(x, x),
        ValueError,
        "argnums elements must be unique, got (0, 0)",
    ),
}
VJP = "vjp(f, *primals)"
VJP_ERRORS: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "structure": (
        lambda x: vjp(lambda x: (x, {"a": x}), x)[1](x),
        RuntimeError,
        "Expected pytree structure of cotangents to be the same as pytree structure of outputs to "
        "the function. cotangents: *, primal output: (*, {'a': *})",
    ),
    "shape": (
        lambda x: vjp(lambda x: x * 2, x)[1](lucid.ones(3, dtype=lucid.float64)),
        RuntimeError,
        "Mismatch in shape: grad_output[0] has a shape of lucid.Size([3]) and output[0] has a "
        "shape of lucid.Size([2]).",
    ),
    "aux": (
        lambda x: vjp(lambda x: x, x, has_aux=True),
        RuntimeError,
        f"{VJP}: output of function f should be a tuple: (output, aux) if has_aux is True",
    ),
    "integers": (
        lambda x: vjp(lambda x: x.long(), x),
        RuntimeError,
        "vjp(f, ...): All outputs of f must be floating-point Tensors, got Tensor with dtype "
        "lucid.int64",
    ),
    "number": (
        lambda x: vjp(lambda x: 3, x),
        RuntimeError,
        f"{VJP}: expected f(*primals) to return only tensors, got unsupported type <class 'int'>",
    ),
}
JVP = "jvp(f, primals, tangents)"
JVP_ERRORS: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "number": (
        lambda x: jvp(lambda x: 3, (x,), (x,)),
        RuntimeError,
        f"{JVP}: expected f(*primals) to return only tensors, got unsupported type <class 'int'>",
    ),
    "structure": (
        lambda x: jvp(lambda x: x, (x,), (x, x)),
        RuntimeError,
        f"{JVP}: Expected primals and tangents to have the same python structure. For example, if "
        "primals is a tuple of 3 tensors, tangents also must be. Got primals with structure (*,) "
        "and tangents with structure (*, *)",
    ),
    "no tuple": (
        lambda x: jvp(lambda x: x, x, x),
        RuntimeError,
        f"{JVP}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).",
    ),
    "empty": (
        lambda x: jvp(lambda: 3, (), ()),
        RuntimeError,
        f"{JVP}: Expected primals to contain at least one Tensor.",
    ),
    "floats": (
        lambda x: jvp(lambda x: x, (3.0,), (3.0,)),
        RuntimeError,
        f"{JVP}: Expected primals to only contain Tensors, got <class 'float'>",
    ),
    "shape": (
        lambda x: jvp(lambda x: x, (x,), (x[0],)),
        RuntimeError,
        "Trying to set a forward gradient that has a different size than that of the original "
        "Tensor, this is not supported. Tensor is of size [2] while the given forward gradient is "
        "of size [].",
    ),
    "integers": (
        lambda x: jvp(lambda x: x, (x.long(),), (x,)),
        ValueError,
        "Expected primal to be floating point, but got: lucid.int64",
    ),
    "aux": (
        lambda x: jvp(lambda x: x, (x,), (x,), has_aux=True),
        RuntimeError,
        f"{JVP}: output of function f should be a tuple: (output, aux) if has_aux is True",
    ),
    "strict": (
        lambda x: jvp(lambda x: lucid.ones(2), (x,), (x,), strict=True),
        RuntimeError,
        "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. "
        "This is not allowed with strict=True.",
    ),
}
ERRORS = {
    f"{api} {name}": case
    for api, cases in (("grad", GRAD_ERRORS), ("vjp", VJP_ERRORS), ("jvp", JVP_ERRORS))
    for name, case in cases.items()
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_does_not_fit_is_said(run: Run, case: str) -> None:
    call, kind, message = ERRORS[case]
    with pytest.raises(kind, match=f"^{re.escape(message)}(\n  |$)") as info:
        run(call, t(1, 2))
    assert isinstance(info.value, lucid.LucidError)


def test_a_failed_transformation_leaves_nothing_behind(run: Run) -> None:
    x = t(1, 2)

    def fails(*_: Any) -> Any:
        raise ZeroDivisionError

    def body(x: Any) -> Any:
        for transformed in (grad(fails), lucid.vmap(fails), jacrev(fails), jacfwd(fails)):
            with lucid.no_grad(), pytest.raises(ZeroDivisionError):
                transformed(x)
            with pytest.raises(ZeroDivisionError):
                transformed(x)
        assert lucid.is_grad_enabled()
        assert not (x * 2).requires_grad
        return jvp(lambda x: x * x, (x,), (x,))[1]

    assert run(body, x).tolist() == [2.0, 8.0]
    for transform in (grad, lucid.vmap, jacrev, jacfwd):
        with pytest.raises(ZeroDivisionError):
            run(transform(fails), x)
    assert lucid.is_grad_enabled()
    assert jvp(lambda x: x * x, (x,), (x,))[1].tolist() == [2.0, 8.0]


# ---------------------------------------------------------------------- vjp, jvp


def test_the_pull_back_may_be_called_again_and_mapped(run: Run) -> None:
    def body(x: Any) -> Any:
        value, pull_back, aux = vjp(lambda x: (x * x, x * 3), x, has_aux=True)
        ones = lucid.ones_like(x)
        rows = lucid.vmap(pull_back)(lucid.stack([ones, 2 * ones]))
        return value, aux, pull_back(ones), pull_back(ones * 3), rows

    assert numbers(run(body, t(1, 2))) == (
        [1.0, 4.0],
        [3.0, 6.0],
        ([2.0, 4.0],),
        ([6.0, 12.0],),
        ([[2.0, 4.0], [4.0, 8.0]],),
    )


def test_tangents_follow_structures(run: Run) -> None:
    def body(x: Any, y: Any) -> Any:
        function = lambda p, q: ({"a": p["x"] * q, "b": [q * 2]}, p["x"])  # noqa: E731
        return jvp(function, ({"x": x}, y), ({"x": y}, x), has_aux=True)

    value, tangent, aux = numbers(run(body, t(1, 2), t(3, 4)))
    assert value == {"a": [3.0, 8.0], "b": [[6.0, 8.0]]}
    assert tangent == {"a": [10.0, 20.0], "b": [[2.0, 4.0]]}
    assert aux == [1.0, 2.0]


def test_outputs_without_a_tangent_get_zeros(run: Run) -> None:
    body = lambda x: jvp(lambda x: (x > 0, lucid.ones(1)), (x,), (x,))[1]  # noqa: E731
    assert numbers(run(body, t(1, 2))) == ([False, False], [0.0])


# ---------------------------------------------------------------------- Jacobians


@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_jacobians_have_the_structure_of_outputs_then_inputs(run: Run, jacobian: Any) -> None:
    def body(x: Any, y: Any) -> Any:
        function = lambda p, q, k: (p["x"].sum() * k, {"a": q * p["x"]})  # noqa: E731
        return jacobian(function, argnums=(0, 1))({"x": x}, y, 2)

    total, named = numbers(run(body, t(1, 2), t(3, 4)))
    assert total == ({"x": [2.0, 2.0]}, [0.0, 0.0])
    assert named == {"a": ({"x": [[3.0, 0.0], [0.0, 4.0]]}, [[1.0, 0.0], [0.0, 2.0]])}


@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_jacobians_of_any_shapes(run: Run, jacobian: Any, rng: np.random.Generator) -> None:
    w, x = rng.normal(size=(4, 3)), rng.normal(size=(3, 2))

    def body(w: Any, x: Any) -> Any:
        return (
            jacobian(lambda w, x: w @ x, argnums=1)(w, x),
            jacobian(lambda w, x: (w @ x, x * 2), argnums=1, has_aux=True)(w, x)[1],
            jacobian(lambda w: w[:0])(w),
        )

    found, aux, nothing = run(body, lucid.from_numpy(w), lucid.from_numpy(x))
    expected = np.einsum("ij,kl->ikjl", w, np.eye(2))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(aux.numpy(), 2 * x)
    assert nothing.shape == (0, 3, 4, 3)


@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_jacobians_in_chunks(run: Run, jacobian: Any) -> None:
    x = t(1, 2, 3)
    whole = jacobian(lambda x: x * x.sum())(x)
    for size in (1, 2, 7):
        found = run(jacobian(lambda x: x * x.sum(), chunk_size=size), x)
        assert found.tolist() == whole.tolist()


def test_the_chunks_of_a_jacobian_are_positive(run: Run) -> None:
    with pytest.raises(ValueError, match=r"^jacrev: `chunk_size` should be greater than 0\.$"):
        run(lambda x: jacrev(lambda x: x, chunk_size=0)(x), t(1))


def test_func_and_autograd_functional_agree(run: Run, rng: np.random.Generator) -> None:
    a = lucid.from_numpy(rng.normal(size=(3, 3)))

    def function(x: Any) -> Any:
        return ((a @ x).tanh() * x.exp()).sum()

    x = lucid.from_numpy(rng.normal(size=3))
    found = run(lambda x: (hessian(function)(x), jacrev(lambda x: (a @ x).sin())(x)), x)
    functional = lucid.autograd.functional
    np.testing.assert_allclose(found[0].numpy(), functional.hessian(function, x).numpy())
    expected = functional.jacobian(lambda x: (a @ x).sin(), x)
    np.testing.assert_allclose(found[1].numpy(), expected.numpy())


def test_the_hessian_has_the_structure_of_the_argument_twice(run: Run) -> None:
    function = hessian(lambda p: (p["w"] ** 2).sum() * p["b"])
    found = run(function, {"w": t(1, 2), "b": t(3)[0]})
    assert numbers(found) == {
        "w": {"w": [[6.0, 0.0], [0.0, 6.0]], "b": [2.0, 4.0]},
        "b": {"w": [2.0, 4.0], "b": 0.0},
    }


LINEARIZE_STRUCTURE = (
    "jvp(f, primals, tangents): Expected primals and tangents to have the same python structure. "
    "For example, if primals is a tuple of 3 tensors, tangents also must be. Got primals with "
    "structure (*,) and tangents with structure (*, *)"
)


def test_a_linearized_function_pushes_tangents_forward(run: Run) -> None:
    def body(x: Any, y: Any, v: Any) -> Any:
        output, push_forward = linearize(lambda x, y: {"p": x * y, "s": x.sum()}, x, y)
        return output, push_forward(v, y), push_forward(v, 0 * y)

    x, y, v = (lucid.tensor(row) for row in ([1.0, 2.0], [3.0, 4.0], [10.0, 20.0]))
    output, both, one = run(body, x, y, v)
    assert (output["p"].tolist(), output["s"].item()) == ([3.0, 8.0], 3.0)
    assert (both["p"].tolist(), both["s"].item()) == ([33.0, 88.0], 30.0)
    assert (one["p"].tolist(), one["s"].item()) == ([30.0, 80.0], 30.0)
    with pytest.raises(RuntimeError) as info:
        run(lambda x: linearize(lucid.sin, x)[1](x, x), x)
    assert str(info.value) == LINEARIZE_STRUCTURE


# ---------------------------------------------------------------------- functional_call


def test_a_module_is_a_function_of_its_parameters(run: Run) -> None:
    layer = lucid.nn.Linear(2, 1)
    before = layer.weight

    def body(w: Any, x: Any) -> Any:
        return functional_call(layer, {"weight": w, "bias": lucid.zeros(1)}, (x,))

    assert run(body, lucid.tensor([[1.0, 2.0]]), lucid.tensor([3.0, 4.0])).tolist() == [11.0]
    assert layer.weight is before


def test_parameters_come_back_after_an_error(run: Run) -> None:
    layer = lucid.nn.Linear(2, 1)
    before = layer.weight
    call = lambda w, x: functional_call(layer, {"weight": w}, x)  # noqa: E731
    with pytest.raises(
        lucid.ShapeError, match=r"^linear: input of shape \[2\] and weight of shape \[1, 3\]"
    ):
        run(call, lucid.ones(1, 3), lucid.ones(2))
    assert layer.weight is before
    assert run(lambda x: layer(x), lucid.zeros(2)).tolist() == layer.bias.tolist()


def test_an_ensemble_is_mapped_over_parameters(run: Run) -> None:
    model = lucid.nn.Sequential(lucid.nn.Linear(2, 3), lucid.nn.Tanh(), lucid.nn.Linear(3, 1))
    x = lucid.tensor([[1.0, 2.0], [3.0, -1.0]])
    many = {name: lucid.stack([p.detach(), p.detach() * 2]) for name, p in model.named_parameters()}

    def body(many: Any, x: Any) -> Any:
        def loss(parameters: Any, x: Any) -> Any:
            return (functional_call(model, parameters, (x,)) ** 2).sum()

        return lucid.vmap(value_and_grad(loss), in_dims=(0, None))(many, x)

    values, gradients = run(body, many, x)
    for i in range(2):
        one = {name: p[i].detach().requires_grad_() for name, p in many.items()}
        value = (functional_call(model, one, x) ** 2).sum()
        value.backward()
        np.testing.assert_allclose(values[i].item(), value.item(), rtol=1e-5)
        for name, p in one.items():
            np.testing.assert_allclose(
                gradients[name][i].numpy(), p.grad.numpy(), rtol=1e-4, atol=1e-6
            )


def test_states_of_modules_are_stacked_into_leaves(run: Run) -> None:
    models = [lucid.nn.Linear(2, 1) for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    assert buffers == {} and list(parameters) == ["weight", "bias"]
    assert all(p.is_leaf and p.requires_grad for p in parameters.values())

    def body(parameters: Any, x: Any) -> Any:
        each = lambda state: functional_call(models[0], state, (x,))  # noqa: E731
        return mapped(each)(parameters)

    x = lucid.ones(4, 2)
    found = run(body, parameters, x)
    for row, model in zip(found, models, strict=True):
        np.testing.assert_allclose(row.detach().numpy(), model(x).detach().numpy(), rtol=1e-6)


def test_batch_norms_without_statistics_are_mapped_over(run: Run) -> None:
    models = [lucid.nn.Sequential(lucid.nn.BatchNorm1d(2), lucid.nn.ReLU()) for _ in range(2)]
    for model in models:
        assert replace_all_batch_norm_modules_(model) is model
    parameters, buffers = stack_module_state(models)
    assert buffers == {}
    each = lambda state, x: functional_call(models[0], state, (x,))  # noqa: E731
    x = lucid.tensor([[1.0, 2.0], [3.0, 5.0]])
    found = run(lambda state: mapped(each, in_dims=(0, None))(state, x), parameters)
    np.testing.assert_allclose(found[1].detach(), [[0.0, 0.0], [1.0, 1.0]], atol=1e-4)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([], "Expected at least one model, got 0."),
        ([lucid.nn.ReLU(), lucid.nn.Tanh()], "Expected all models to be of the same class."),
        (
            [lucid.nn.ReLU(), lucid.nn.ReLU().eval()],
            "Expected all models to have the same training/eval mode.",
        ),
    ],
)
def test_modules_of_several_kinds_are_not_stacked(models: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^stack_module_state: {re.escape(message)}$"):
        stack_module_state(models)


def test_tied_weights_are_replaced_together(run: Run) -> None:
    class Tied(lucid.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = lucid.nn.Linear(2, 2, bias=False)
            self.b = lucid.nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: Any) -> Any:
            return self.b(self.a(x))

    module, two = Tied(), {"a.weight": 2 * lucid.eye(2)}

    def call(two: Any, x: Any, tie_weights: bool) -> Any:
        return functional_call(module, two, x, tie_weights=tie_weights)

    assert run(call, two, lucid.ones(2), True).tolist() == [4.0, 4.0]
    loose = run(call, two, lucid.ones(2), False)
    np.testing.assert_allclose(
        loose.detach().numpy(), 2 * module.b.weight.detach().numpy().sum(1), rtol=1e-6
    )
    both = two | {"b.weight": lucid.eye(2)}
    with pytest.raises(ValueError, match=r"multiple values for keys \['a.weight', 'b.weight'\]"):
        run(call, both, lucid.ones(2), True)
    assert run(call, both, lucid.ones(2), False).tolist() == [2.0, 2.0]
    same = dict.fromkeys(both, lucid.eye(2))
    assert run(call, same, lucid.ones(2), True).tolist() == [1.0, 1.0]


def test_strict_names_what_is_missing_and_unknown(run: Run) -> None:
    layer, weight = lucid.nn.Linear(2, 1), lucid.ones(1, 2)

    def call(parameters: Any, strict: bool = True) -> Any:
        return functional_call(layer, parameters, lucid.ones(2), strict=strict)

    missing = "Error(s) in reparametrizing for Linear:\n\tMissing key(s): 'bias'."
    with pytest.raises(RuntimeError, match=f"^{re.escape(missing)}$"):
        run(call, {"weight": weight})
    unexpected = "Error(s) in reparametrizing for Linear:\n\tUnexpected key(s): 'c'."
    with pytest.raises(RuntimeError, match=f"^{re.escape(unexpected)}$"):
        run(call, ({"weight": weight, "bias": lucid.ones(1)}, {"c": weight}))
    with pytest.raises(ValueError, match=r"^\['weight'\] appear in multiple dictionaries$"):
        run(call, ({"weight": weight}, {"weight": weight}), False)


def test_an_interrupt_while_tensors_are_put_back_leaves_the_modules_own() -> None:
    class Interrupt(BaseException):
        pass

    def look(frame: Any, event: str, value: Any) -> Any:
        if not frame.f_code.co_filename.endswith("modules.py") or not seen:
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and line not in ("try:", "finally:"):  # of which Python makes no code
            seen.append(frame.f_lineno)
            if len(seen) == number:
                raise Interrupt
        return look

    model, seen, number = lucid.nn.Linear(2, 1), list[int](), 1
    model.register_forward_hook(lambda *_: seen.append(0))  # from then on lines are counted
    own, x = dict(model.named_parameters()), lucid.ones(1, 2)
    other = {name: lucid.zeros_like(parameter) for name, parameter in own.items()}
    is_interrupted = True
    while is_interrupted:
        number, is_interrupted = number + 1, False
        seen.clear()
        before = sys.gettrace()
        sys.settrace(look)
        try:
            functional_call(model, other, (x,))
        except Interrupt:
            is_interrupted = True
        finally:
            sys.settrace(before)
        assert all(found is own[name] for name, found in model.named_parameters())
    assert number > 6
