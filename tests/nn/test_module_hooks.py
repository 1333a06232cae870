"""Hooks of modules, their own and global ones: what they see, replace and refuse, in both modes.

The numbers and the order of the calls are PyTorch's.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest

import lucid
from lucid import nn
from lucid.nn.modules import module as modules

Prepared = Callable[[Callable[..., Any]], Callable[..., Any]]


class Mixed(nn.Module):
    """Tensors and other values go in and come out."""

    def forward(self, x: Any, name: str, y: Any = None, *, scale: float = 1.0) -> Any:
        return x * 3 * scale, name, x + (0 if y is None else y)


class Seen:
    """What hooks saw, kept as attributes, which a compiled step binds anew at each call."""

    def __init__(self) -> None:
        self.grad_input: Any = None
        self.grad_output: Any = None
        self.order: Any = ()

    def note(self, name: str, result: Any = None) -> Callable[..., Any]:
        def hook(*args: Any) -> Any:
            self.order = (*self.order, name)
            return result

        return hook

    def gradients(self, module: nn.Module, grad_input: Any, grad_output: Any) -> None:
        self.grad_input, self.grad_output = grad_input, grad_output


def numbers(values: Any) -> Any:
    return [value.tolist() if isinstance(value, lucid.Tensor) else value for value in values]


def vector() -> lucid.Tensor:
    return lucid.tensor([1.0, 2.0], requires_grad=True)


def test_gradients_stand_at_the_places_of_their_arguments_and_results(run: Any) -> None:
    model, seen = Mixed(), Seen()
    model.register_full_backward_hook(seen.gradients)

    def body(x: lucid.Tensor, y: lucid.Tensor) -> None:
        first, _, second = model(x, "text", y)
        (first * second).sum().backward()

    x = vector()
    run(body, x, lucid.tensor([1.0, 2.0]))
    assert x.grad is not None
    assert x.grad.tolist() == [9.0, 18.0]
    assert numbers(seen.grad_input) == [[9.0, 18.0], None, [0.0, 0.0]]
    assert numbers(seen.grad_output) == [[2.0, 4.0], None, [3.0, 6.0]]


def test_outputs_that_nobody_differentiates_have_no_gradient(run: Any) -> None:
    model, seen = Mixed(), Seen()
    model.register_full_backward_hook(seen.gradients)
    x = vector()
    run(lambda x: model(x, "text")[0].sum().backward(), x)
    assert numbers(seen.grad_input) == [[3.0, 3.0], None]
    assert numbers(seen.grad_output) == [[1.0, 1.0], None, None]


def test_hooks_replace_gradients_on_both_sides_of_the_module(prepared: Prepared) -> None:
    model = Mixed()
    model.register_full_backward_hook(lambda module, gi, go: (gi[0] * 10, None, None))
    model.register_full_backward_pre_hook(lambda module, go: (go[0] * 2, None, go[2]))

    @prepared
    def step(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
        first, _, second = model(x, "text", y)
        return lucid.autograd.grad((first * second).sum(), x)[0]

    for _ in range(3):
        assert step(vector(), lucid.tensor([1.0, 2.0])).tolist() == [150.0, 300.0]


def test_hooks_run_in_pytorchs_order_global_ones_first(run: Any) -> None:
    seen, model = Seen(), nn.Sequential(nn.ReLU(), nn.Tanh())
    handles = [
        modules.register_module_forward_hook(seen.note("all after")),
        modules.register_module_forward_pre_hook(seen.note("all before")),
        modules.register_module_full_backward_hook(seen.note("all gradients")),
        modules.register_module_full_backward_pre_hook(seen.note("all gradients before")),
    ]
    model[0].register_forward_hook(seen.note("own after"))
    model[0].register_forward_hook(seen.note("own first"), prepend=True)
    model[0].register_forward_pre_hook(seen.note("own before"))
    model[0].register_full_backward_hook(seen.note("own gradients"))
    model[0].register_full_backward_hook(seen.note("own gradients first"), prepend=True)
    model[0].register_full_backward_pre_hook(seen.note("own gradients before"))
    try:
        run(lambda x: model(x).sum().backward(), vector())
    finally:
        for handle in handles:
            handle.remove()
    forward = "all before, all before, own before, all after, own first, own after"
    rest = "all before, all after, all after"
    backward = "all gradients before, all gradients before, all gradients, all gradients before"
    last = "own gradients before, all gradients, own gradients first, own gradients, all gradients"
    assert ", ".join(seen.order) == ", ".join((forward, rest, backward, last))


def test_a_global_hook_is_noticed_by_a_compiled_step_when_it_comes_and_goes() -> None:
    model = nn.Tanh()
    step = lucid.compile(lambda x: model(x))
    x = lucid.zeros(2)
    assert step(x).tolist() == [0.0, 0.0]
    with modules.register_module_forward_hook(lambda module, args, result: result + 1):
        assert step(x).tolist() == [1.0, 1.0]
    assert step(x).tolist() == [0.0, 0.0]


def test_a_backward_hook_is_noticed_by_a_compiled_step_when_it_comes_and_goes() -> None:
    model = nn.Tanh()
    step = lucid.compile(lambda x: lucid.autograd.grad(model(x).sum(), x)[0])
    x = lucid.zeros(2, requires_grad=True)
    assert step(x).tolist() == [1.0, 1.0]
    handle = model.register_full_backward_hook(lambda module, gi, go: (gi[0] * 5,))
    assert step(x).tolist() == [5.0, 5.0]
    handle.remove()
    assert step(x).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("keeps", ["nothing", "values", "history"])
def test_hooks_on_gradients_in_a_model_that_is_compiled_by_itself(layer: int, keeps: str) -> None:
    """Grad-CAM: a layer's activations, and the gradient that comes to them after the call."""
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    seen: dict[str, Any] = {}

    def forward(module: nn.Module, args: Any, result: lucid.Tensor) -> None:
        seen["activations"] = result.detach() if keeps == "values" else result

    if keeps != "nothing":
        model[layer].register_forward_hook(forward)
    model[layer].register_full_backward_pre_hook(lambda module, go: (go[0] * 2,))
    model[layer].register_full_backward_hook(lambda module, gi, go: seen.update(gradient=go[0]))

    def shown(called: Any) -> list[Any]:
        found = []
        for k in range(3):
            x = lucid.arange(6.0, requires_grad=True).reshape(2, 3) - k
            called(x)[:, 0].sum().backward()
            found.append({key: value.detach().clone() for key, value in seen.items()})
        return found

    called = lucid.compile(model)
    for one, other in zip(shown(called), shown(model), strict=True):
        assert one.keys() == other.keys()
        assert all(lucid.allclose(one[key], other[key]) for key in one)
    reasons = ["it keeps a tensor that a module's hooks on gradients are around"] * 3
    assert called.stats.eager_reasons == (reasons if keeps == "history" else [])


def test_forward_hooks_may_see_and_replace_keyword_arguments(run: Any) -> None:
    def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
        return (args[0] * 2, *args[1:]), {**kwargs, "scale": kwargs["scale"] * 5}

    def after(module: nn.Module, args: Any, kwargs: Any, result: Any) -> Any:
        return result[0] + kwargs["scale"]

    model = Mixed()
    handles = [
        model.register_forward_pre_hook(before, with_kwargs=True),
        model.register_forward_hook(after, with_kwargs=True),
    ]
    assert run(lambda x: model(x, "text", scale=2.0), lucid.ones(2)).tolist() == [70.0, 70.0]
    for handle in handles:
        handle.remove()
    assert not model._hooks_with_kwargs


def test_what_a_pre_hook_with_keywords_returns_is_a_pair(run: Any) -> None:
    model = nn.ReLU()
    model.register_forward_pre_hook(lambda module, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match=r"must return None or a tuple of .*, but got 3\."):
        run(lambda x: model(x), lucid.ones(1))


@pytest.mark.filterwarnings("default:module forward hook with ``always_call=True``:UserWarning")
def test_hooks_that_are_always_called_see_a_module_fail() -> None:
    class Failing(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("no")

    def fails(module: nn.Module, args: Any, result: Any) -> None:
        raise TypeError("the hook, too")

    model, seen = Failing(), Seen()
    model.register_forward_hook(seen.note("always"), always_call=True)
    model.register_forward_hook(seen.note("otherwise"))
    model.register_forward_hook(fails, always_call=True)
    message = r"module forward hook .* as another error was raised in forward: the hook, too"
    with pytest.warns(UserWarning, match=message), pytest.raises(ValueError, match="no"):
        model(lucid.ones(1))
    assert seen.order == ("always",)


def test_writing_what_crosses_a_hooked_border_is_an_error(run: Any) -> None:
    model: nn.Module = nn.ReLU(inplace=True)
    model.register_full_backward_hook(lambda module, gi, go: None)
    message = "Output 0 of BackwardHookFunction is a view and is being modified inplace"
    with pytest.raises(RuntimeError, match=message):
        run(lambda x: model(x * 2), vector())
    model = nn.ReLU()
    model.register_full_backward_hook(lambda module, gi, go: None)
    with pytest.raises(RuntimeError, match=message):
        run(lambda x: model(x).add_(1), vector())


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (
            lambda module, gi, go: gi + gi,
            "Backward hook returned an invalid number of grad_input, got 2, but expected 1\n"
            "  hook '<lambda>' of Tanh",
        ),
        (
            lambda module, gi, go: (lucid.ones(3),),
            "hook '<lambda>' has changed the size of value",
        ),
        (
            lambda module, gi, go: (gi[0].double(),),
            "hook '<lambda>' has changed the type of value (was lucid.float32 got lucid.float64)",
        ),
        (
            lambda module, gi, go: 3,
            "Backward hook must return None, a tensor or a tuple, not 'int'\n"
            "  hook '<lambda>' of Tanh",
        ),
    ],
    ids=["number", "size", "dtype", "kind"],
)
def test_a_gradient_that_does_not_fit_is_refused(run: Any, hook: Any, message: str) -> None:
    model = nn.Tanh()
    model.register_full_backward_hook(hook)
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: model(x).sum().backward(), vector())
    assert str(caught.value) == message


def test_a_pre_hook_returns_as_many_gradients_as_there_are(run: Any) -> None:
    model = nn.Tanh()
    model.register_full_backward_pre_hook(lambda module, go: go + go)
    message = "pre hook returned an invalid number of grad_output, got 2, but expected 1"
    with pytest.raises(RuntimeError, match=message):
        run(lambda x: model(x).sum().backward(), vector())


NO_INPUT = "Full backward hook is firing when gradients are computed with respect to module outputs"


@pytest.mark.filterwarnings(f"ignore:{NO_INPUT}:UserWarning")
def test_without_inputs_that_require_grad_hooks_run_at_the_outputs(run: Any) -> None:
    model, seen = nn.Linear(2, 1), Seen()
    handle = model.register_full_backward_hook(seen.gradients)
    run(lambda x: model(x).sum().backward(), lucid.ones(1, 2))
    assert seen.grad_input == (None,)
    assert numbers(seen.grad_output) == [[[1.0]]]
    handle.remove()
    model.register_full_backward_hook(lambda module, gi, go: (go[0],))
    with pytest.raises(RuntimeError, match="no input requires gradient should always return None"):
        run(lambda x: model(x).sum().backward(), lucid.ones(1, 2))


def test_a_result_that_is_no_tensor_is_warned_of() -> None:
    class Named(nn.Module):
        def forward(self, x: Any) -> Any:
            return {"y": x * 2}

    model, seen, x = Named(), Seen(), vector()
    model.register_full_backward_hook(seen.gradients)
    with pytest.warns(UserWarning, match="module output should be a Tensor or a tuple of Tensors"):
        result = model(x)
    result["y"].sum().backward()
    assert seen.grad_output is None


Pair = namedtuple("Pair", "first second")


def test_a_named_tuple_stays_one(run: Any) -> None:
    class Two(nn.Module):
        def forward(self, x: Any) -> Any:
            return Pair(x * 2, x * 3)

    model, seen, x = Two(), Seen(), vector()
    model.register_full_backward_hook(seen.gradients)
    run(lambda x: model(x).second.sum().backward(), x)
    assert numbers(seen.grad_output) == [None, [1.0, 1.0]]
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]


def test_a_second_derivative_runs_hooks_once(run: Any) -> None:
    model, seen = nn.Tanh(), Seen()
    model.register_full_backward_hook(seen.note("gradients"))

    def body(x: lucid.Tensor) -> None:
        (first,) = lucid.autograd.grad(model(x).sum(), x, create_graph=True)
        first.sum().backward()

    x = lucid.tensor([0.5], requires_grad=True)
    run(body, x)
    assert seen.order == ("gradients",)
    assert x.grad is not None
    assert x.grad.item() == pytest.approx(-0.72686195)


def test_without_gradients_no_border_is_made(run: Any) -> None:
    model = nn.Linear(2, 1)
    model.register_full_backward_hook(lambda module, gi, go: None)
    with lucid.no_grad():
        assert run(lambda x: model(x), lucid.ones(1, 2)).grad_fn is None


def test_hooks_run_under_a_transformation(run: Any) -> None:
    model = nn.Tanh()
    model.register_full_backward_hook(lambda module, gi, go: (gi[0] * 2,))
    slope = lucid.func.grad(lambda x: model(x).sum())
    assert run(slope, lucid.tensor([0.5])).item() == pytest.approx(2 * 0.78644773)


def test_grad_cam_weighs_what_hooks_keep(run: Any) -> None:
    """Feature maps weighed by their mean gradients, as Selvaraju et al. (2017) do."""
    model, seen = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)), {}
    model[1].register_forward_hook(lambda module, args, result: seen.update(maps=result))
    model[1].register_full_backward_hook(lambda module, gi, go: seen.update(weights=go[0]))

    def heat(x: lucid.Tensor) -> lucid.Tensor:
        model(x)[0, 1].backward()
        weights = seen["weights"].mean(dim=(2, 3), keepdim=True)
        return (seen["maps"] * weights).sum(1).relu()

    x = lucid.linspace(-1, 1, 16).reshape(1, 1, 4, 4)
    x.requires_grad_()
    maps = model[1](model[0](x))
    weights = model[3].weight[1].reshape(1, 2, 2, 2).mean(dim=(2, 3), keepdim=True)
    expected = (maps * weights).sum(1).relu()
    assert (run(heat, x) - expected).abs().max() < 1e-6
