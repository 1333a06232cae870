"""Parameter groups, state, closures, saving and loading, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

import lucid
from lucid import optim
from lucid.optim.groups import ParamGroup
from lucid.optim.hyper_parameters import COMMON, hyper_parameters
from lucid.optim.optimizer import Params, decayed, zeros_like
from lucid.tensor.writing import write_


def leaf(*shape: int) -> lucid.Tensor:
    return lucid.ones(shape, requires_grad=True)


def step(optimizer: optim.Optimizer, *parameters: lucid.Tensor) -> None:
    optimizer.zero_grad()
    for parameter in parameters:
        (parameter**2).sum().backward()
    optimizer.step()


def test_a_parameter_without_state_has_no_entry() -> None:
    a = leaf(3)
    optimizer = optim.SGD([a], lr=0.1)
    compiled = lucid.compile(lambda: step(optimizer, a))
    step(optimizer, a)
    compiled()
    assert not optimizer.state
    assert optimizer.state_dict()["state"] == {}


def test_groups_have_their_own_hyper_parameters() -> None:
    a, b = leaf(2), leaf(2)
    optimizer = optim.SGD([{"params": a}, {"params": [b], "lr": 0.5}], lr=0.1)
    step(optimizer, a, b)
    np.testing.assert_allclose(a.tolist(), [0.8, 0.8], rtol=1e-6)
    assert b.tolist() == [0.0, 0.0]
    optimizer.param_groups[0]["lr"] = 0.0
    step(optimizer, a, b)
    np.testing.assert_allclose(a.tolist(), [0.8, 0.8], rtol=1e-6)


def test_names_are_kept() -> None:
    layer = lucid.nn.Linear(2, 1)
    optimizer = optim.Adam(layer.named_parameters())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]


def test_parameters_without_gradient_are_left_out() -> None:
    a, b = leaf(2), leaf(2)
    optimizer = optim.Adam([a, b], weight_decay=0.1)
    step(optimizer, a)
    assert b.tolist() == [1.0, 1.0]
    assert b not in optimizer.state
    assert optimizer.state[a]["step"].item() == 1.0


def test_a_closure_is_called_with_gradients_on() -> None:
    a = leaf()
    optimizer = optim.SGD([a], lr=0.25)

    def closure() -> lucid.Tensor:
        optimizer.zero_grad()
        loss = a * a
        loss.backward()
        return loss

    with lucid.no_grad():
        assert optimizer.step(closure).item() == 1.0
    assert a.item() == 0.5


def test_zero_grad_forgets_or_fills() -> None:
    a = leaf(2)
    optimizer = optim.SGD([a])
    a.grad = lucid.tensor([1.0, float("nan")])
    gradient = a.grad
    optimizer.zero_grad(set_to_none=False)
    assert a.grad is gradient
    assert gradient.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert a.grad is None


def test_updates_are_in_place_and_leave_no_history() -> None:
    a = leaf(2)
    alias = a.detach()
    optimizer = optim.SGD([a], lr=0.5)
    step(optimizer, a)
    assert alias.tolist() == [0.0, 0.0]
    assert a.is_leaf
    assert a.requires_grad


def test_a_learning_rate_may_be_a_tensor() -> None:
    a, rate = leaf(2), lucid.tensor(0.25)
    optimizer = optim.SGD([a], lr=rate)
    step(optimizer, a)
    assert a.tolist() == [0.5, 0.5]
    rate.fill_(0.0)
    step(optimizer, a)
    assert a.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (optim.SGD, {"momentum": 0.9}),
        (optim.SGD, {"momentum": 0.9, "dampening": 0.5}),
        (optim.Adam, {"amsgrad": True}),
        (optim.RMSprop, {"momentum": 0.9, "centered": True}),
        (optim.Adagrad, {}),
    ],
)
def test_a_loaded_optimizer_goes_on_as_the_saved_one(kind: Any, options: dict[str, Any]) -> None:
    a, b = leaf(2), leaf(2)
    first, second = kind([a], lr=0.1, **options), kind([b], lr=0.7, **options)
    for _ in range(3):
        step(first, a)
    with lucid.no_grad():
        b.copy_(a)
    saved = copy.deepcopy(first.state_dict())
    second.load_state_dict(saved)
    assert second.param_groups[0]["lr"] == 0.1
    for _ in range(3):
        step(first, a)
        step(second, b)
    assert a.tolist() == b.tolist()


def test_the_state_dict_has_numbers_in_place_of_parameters() -> None:
    a, b = leaf(2), leaf(3)
    optimizer = optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=0.1, momentum=0.9)
    step(optimizer, b)
    state = optimizer.state_dict()
    assert [group["params"] for group in state["param_groups"]] == [[0], [1]]
    assert list(state["state"]) == [1]
    assert state["state"][1]["momentum_buffer"].tolist() == [2.0, 2.0, 2.0]


def test_loading_writes_into_the_state_that_there_is() -> None:
    a = leaf(2)
    optimizer = optim.SGD([a], momentum=0.9)
    step(optimizer, a)
    moment, saved = optimizer.state[a]["momentum_buffer"], copy.deepcopy(optimizer.state_dict())
    step(optimizer, a)
    optimizer.load_state_dict(saved)
    assert optimizer.state[a]["momentum_buffer"] is moment
    assert moment.tolist() == [2.0, 2.0]


def test_state_dicts_of_other_groups_are_refused() -> None:
    optimizer = optim.SGD([leaf(2)])
    with pytest.raises(ValueError, match="the saved state has 2 groups, the optimizer 1"):
        optimizer.load_state_dict(
            optim.SGD([{"params": [leaf(1)]}, {"params": [leaf(1)]}]).state_dict()
        )
    with pytest.raises(ValueError, match="a group has another number of parameters"):
        optimizer.load_state_dict(optim.SGD([leaf(1), leaf(1)]).state_dict())


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (optim.SGD, {"lr": -1}, "Invalid learning rate: -1"),
        (optim.SGD, {"momentum": -1.0}, "Invalid momentum value: -1.0"),
        (optim.SGD, {"weight_decay": -1.0}, "Invalid weight_decay value: -1.0"),
        (optim.SGD, {"nesterov": True}, "Nesterov momentum requires a momentum and zero dampening"),
        (optim.Adam, {"lr": float("nan")}, "Invalid learning rate: nan"),
        (optim.Adam, {"eps": -1.0}, "Invalid epsilon value: -1.0"),
        (optim.Adam, {"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
        (optim.AdamW, {"betas": (0.9, -1)}, "Invalid beta parameter at index 1: -1"),
        (optim.RMSprop, {"alpha": -1.0}, "Invalid alpha value: -1.0"),
        (optim.Adagrad, {"lr_decay": -1.0}, "Invalid lr_decay value: -1.0"),
        (optim.Adadelta, {"rho": 1.5}, "Invalid rho value: 1.5"),
        (optim.NAdam, {"momentum_decay": -1.0}, "Invalid momentum_decay value: -1.0"),
        (optim.Rprop, {"etas": (1.5, 1.2)}, "Invalid eta values: 1.5, 1.2"),
        (optim.Adafactor, {"eps": (-1.0, 0.1)}, "Invalid epsilon1: -1.0"),
        (optim.Adafactor, {"d": 0.5}, "Clipping threshold d should be >= 1 but is: 0.5"),
        (optim.Muon, {"ns_coefficients": (1, 2)}, "Coefficients must be a tuple of exactly 3 val"),
        (optim.LBFGS, {"line_search_fn": "x"}, "LBFGS: only 'strong_wolfe' is supported, not 'x'"),
    ],
)
def test_hyper_parameters_that_make_no_sense(
    kind: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as caught:
        kind([leaf(1, 1)], **options)
    assert str(caught.value).startswith(message)
    if "nesterov" not in options:  # which a group without momentum doesn't look at
        with pytest.raises(ValueError) as caught:
            kind([{"params": [leaf(1, 1)], **options}])
        assert str(caught.value).startswith(message)


def test_a_group_holds_hyper_parameters_as_the_constructor_does() -> None:
    opt = optim.Adam([{"params": [leaf(1)], "betas": [0.5, 0.6]}], betas=[0.1, 0.2])
    assert opt.defaults["betas"] == (0.1, 0.2) and opt.param_groups[0]["betas"] == (0.5, 0.6)


def test_parameters_that_cannot_be_optimized() -> None:
    a = leaf(2)
    with pytest.raises(TypeError, match="an iterable of Tensors or dicts, but got Tensor"):
        optim.SGD(a)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="optimizer got an empty parameter list"):
        optim.SGD([])
    with pytest.raises(TypeError, match="only optimize Tensors, not float"):
        optim.SGD([1.0])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
        optim.SGD([a * 2])
    with pytest.raises(ValueError, match="some parameters appear in more than one parameter group"):
        optim.SGD([{"params": [a]}, {"params": [a]}])
    with pytest.raises(TypeError, match="the ordering of tensors in sets will change"):
        optim.SGD([{"params": {a}}])
    with pytest.raises(ValueError, match="with names, or all without"):
        optim.SGD([{"params": [("a", a)]}, {"params": [leaf(1)]}])
    with pytest.raises(ValueError, match="learning rate must have one element, not 2"):
        optim.Adam([a], lr=lucid.tensor([0.1, 0.2]))  # type: ignore[arg-type]


def test_an_optimizer_of_the_users_own() -> None:
    class Signs(optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        @lucid.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.sub_(p.grad.sign() * group["lr"])

    a = leaf(2)
    step(Signs([a], 0.25), a)
    assert a.tolist() == [0.75, 0.75]


@pytest.mark.parametrize(
    "read",
    [
        lambda opt, w: opt.state[w]["n"],
        lambda opt, w: opt.state.get(w)["n"],
        lambda opt, w: next(iter(opt.state.values()))["n"],
        lambda opt, w: opt.state_dict()["state"][0]["n"],
        lambda opt, w: next(iter(copy.deepcopy(opt).state.values()))["n"],
    ],
)
def test_a_dict_is_bound_as_a_parameters_state_and_then_filled(read: Any) -> None:
    w = lucid.ones(2, requires_grad=True)
    opt = optim.SGD([w], lr=0.1)
    state = opt.state[w] = {}
    state["n"] = 3
    assert read(opt, w) == 3


def test_state_that_is_popped_is_written_and_goes_to_another_parameter() -> None:
    """As moments go along when parameters are pruned or grow (Gaussian splatting)."""
    w, longer = lucid.ones(2, requires_grad=True), lucid.ones(3, requires_grad=True)
    opt = optim.SGD([w], lr=0.1)
    opt.state[w] = {"moment": lucid.ones(2)}
    state = opt.state.pop(w)
    state["moment"] = lucid.ones(3)
    opt.state[longer] = state
    assert [*opt.state] == [longer]
    assert opt.state[longer]["moment"].shape == (3,)


def test_repr_lists_the_hyper_parameters() -> None:
    assert repr(optim.SGD([leaf(1)], lr=0.1)) == (
        "SGD (\nParameter Group 0\n    dampening: 0.0\n    lr: 0.1\n    maximize: False\n"
        "    momentum: 0.0\n    nesterov: False\n    weight_decay: 0.0\n)"
    )


def test_a_copy_has_its_own_parameters_and_state() -> None:
    model = lucid.nn.Linear(1, 1, bias=False)
    optimizer = optim.Adam(model.parameters())
    step(optimizer, model.weight)
    other, twin = copy.deepcopy((model, optimizer))
    step(twin, other.weight)
    assert twin.state[other.weight]["step"].item() == 2.0
    assert optimizer.state[model.weight]["step"].item() == 1.0


def test_a_search_without_line_search_takes_steps_of_the_learning_rate() -> None:
    a = leaf(2)
    optimizer = optim.LBFGS([a], lr=0.5, max_iter=1)

    def closure() -> lucid.Tensor:
        optimizer.zero_grad()
        loss = (a * a).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 2.0
    assert a.tolist() == [0.75, 0.75]  # 1 - 0.5 * 2 / 4, the first step by the gradient's size
    assert optimizer.state[a]["func_evals"] == 1


def test_what_a_search_refuses() -> None:
    a, b = leaf(1), leaf(1)
    with pytest.raises(ValueError, match="LBFGS doesn't support per-parameter options"):
        optim.LBFGS([{"params": a}, {"params": b}])
    with pytest.raises(ValueError, match="only 'strong_wolfe' is supported, not 'armijo'"):
        optim.LBFGS([a], line_search_fn="armijo")
    with pytest.raises(TypeError, match=r"LBFGS.step: needs a closure"):
        optim.LBFGS([a]).step()


def test_a_compiled_step_with_a_search_runs_eagerly_and_says_so() -> None:
    a = leaf(2)
    optimizer = optim.LBFGS([a], line_search_fn="strong_wolfe")

    @lucid.compile
    def train() -> lucid.Tensor:
        def closure() -> lucid.Tensor:
            optimizer.zero_grad()
            loss = ((a - 3) ** 4).sum()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    losses = [train().item() for _ in range(3)]
    assert losses[0] == 32.0
    assert losses[2] < 1e-6
    assert "LBFGS decides by the values" in train.stats.eager_reasons[0]


def test_a_search_in_a_compiled_step_has_a_native_closure() -> None:
    def trained(compile: Callable[[Any], Any]) -> Any:
        a, told = lucid.ones(2, dtype=lucid.float64, requires_grad=True), []
        optimizer = optim.LBFGS([a], max_iter=3)

        @compile
        def train(target: lucid.Tensor) -> lucid.Tensor:
            def closure() -> lucid.Tensor:
                optimizer.zero_grad()
                loss = ((a - target) ** 4).sum()
                loss.backward()
                told.append(loss.item())
                return loss

            return optimizer.step(closure).detach()

        found = [train(lucid.full((2,), x)).item() for x in (3.0, 2.0, 4.0, 1.0)]
        return optimizer, [*found, *told, *a.tolist()]

    eager, expected = trained(lambda f: f)
    optimizer, found = trained(lucid.compile)
    assert found == pytest.approx(expected, rel=1e-5)
    assert "_native" not in vars(eager)
    stats = vars(optimizer)["_native"].stats
    assert stats.calls == len(found) - 6 and stats.traces <= 2 and not stats.eager_reasons
    assert "_native" not in vars(copy.deepcopy(optimizer))


def test_sparse_adam_names_what_takes_dense_gradients() -> None:
    with pytest.raises(ValueError, match=r"SparseAdam does not support dense(.|\n)*optim\.Adam;"):
        optim.SparseAdam([lucid.ones(2, requires_grad=True)])


def test_adafactor_refuses_what_pytorch_refuses() -> None:
    w = lucid.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match=r"beta2_decay should be <= 0 but is: 0\.5"):
        optim.Adafactor([w], beta2_decay=0.5)
    with pytest.raises(ValueError, match=r"Clipping threshold d should be >= 1 but is: 0\.5"):
        optim.Adafactor([w], d=0.5)


class Lion(optim.Optimizer):
    """param -= lr * sign(c), with c between the gradient and its mean (Chen et al., 2023)."""

    _ranges = COMMON
    _state: ClassVar = {"exp_avg": zeros_like}

    def __init__(
        self,
        params: Params,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, hyper_parameters(locals()))

    def _update(self, group: ParamGroup, parameter: lucid.Tensor, gradient: lucid.Tensor) -> None:
        mean, (beta1, beta2) = self.state[parameter]["exp_avg"], group["betas"]
        value, _ = decayed(group, parameter, gradient, decoupled=True)
        write_(parameter, value - (mean * beta1 + gradient * (1 - beta1)).sign() * group["lr"])
        write_(mean, mean * beta2 + gradient * (1 - beta2))


def test_a_new_optimizer_is_its_declaration_and_its_update() -> None:
    """Checks, groups, state dicts, native and compiled steps come from that, as the recipe says."""
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        Lion([leaf(1)], lr=-1)

    def train(compile: Any) -> Any:
        w = lucid.tensor([1.0, -3.0], requires_grad=True)
        opt = Lion([{"params": [w], "weight_decay": 0.5}], lr=0.125)

        @compile
        def one(x: lucid.Tensor) -> None:
            opt.zero_grad()
            (w * x).sum().backward()
            opt.step()

        for x in ([1.0, 1.0], [-1.0, -8.0], [0.0, 0.0], [1.0, 1.0]):
            one(lucid.tensor(x))
            opt.param_groups[0]["lr"] /= 2
        return w, opt.state_dict()

    (w, state), (compiled, other) = train(lambda step: step), train(lucid.compile)
    assert w.tolist() == compiled.tolist()
    assert state["param_groups"] == other["param_groups"]
    value, mean, lr = np.array([1.0, -3.0], np.float32), np.zeros(2, np.float32), 0.125
    for x in np.array([[1, 1], [-1, -8], [0, 0], [1, 1]], np.float32):
        value = value * (1 - lr * 0.5) - np.sign(mean * 0.9 + x * 0.1) * lr
        mean, lr = mean * 0.99 + x * 0.01, lr / 2
    np.testing.assert_allclose(w.detach().numpy(), value, rtol=1e-6)
    fresh = Lion([leaf(2)])
    fresh.load_state_dict(state)
    assert fresh.param_groups[0]["weight_decay"] == 0.5


def test_options_that_an_older_state_lacks_are_added_when_it_is_loaded() -> None:
    class Older(optim.SGD):
        def __setstate__(self, state: dict[str, Any]) -> None:
            super().__setstate__(state)
            for group in self.param_groups:
                group.setdefault("warmup", 3)

    opt = Older([lucid.ones(2, requires_grad=True)], lr=0.5)
    calls: list[str] = []
    opt.register_step_post_hook(lambda *given: calls.append("stepped"))
    opt.load_state_dict(opt.state_dict())
    assert opt.param_groups[0]["warmup"] == 3
    opt.step()
    assert calls == ["stepped"]
    assert copy.deepcopy(opt).param_groups[0]["warmup"] == 3


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (
            lambda opt: opt.load_state_dict({"state": {}, "param_groups": [{}]}),
            "'param_groups' must",
        ),
        (lambda opt: opt.load_state_dict({"state": {}, "param_groups": 5}), "'param_groups' must"),
        (
            lambda opt: opt.load_state_dict({**opt.state_dict(), "state": 5}),
            "'state' must be a dict",
        ),
        (
            lambda opt: lucid.optim.lr_scheduler.StepLR(opt, 1).load_state_dict(5),
            "a dict is needed, not int",
        ),
        (
            lambda opt: lucid.optim.lr_scheduler.LambdaLR(opt, abs).load_state_dict({}),
            "a dict with 'lr_lambdas' is needed",
        ),
        (lambda opt: lucid.nn.Linear(2, 2).load_state_dict({1: lucid.ones(2)}), "keys .* got 1"),
        (lambda opt: lucid.distributions.Normal(0.0, 1.0).sample(5), "must be a tuple of ints"),
    ],
)
def test_what_is_no_state_dict_and_no_shape_is_refused(load: Any, message: str) -> None:
    optimizer = lucid.optim.SGD([lucid.ones(2, requires_grad=True)], lr=0.1)
    with pytest.raises(lucid.ArgumentError, match=message):
        load(optimizer)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("exp_avg", 5, "'exp_avg' of 1 must be a tensor, not int"),
        ("exp_avg", np.array([None, 1]), "arrays of dtype object"),
        ("exp_avg", lucid.ones(3), r"'exp_avg' of 1 has shape \[3\], and \[2\] is due"),
        ("step", "x", "'step' of 1 must be a tensor, not str"),
        (None, 5, "the state of 1 must be a dict, not int"),
        ("betas", None, "betas can't be None"),
        ("betas", (0.9,), "betas must be two numbers"),
        ("lr", "x", "learning rate must be a number, not str"),
        ("eps", "x", "epsilon value must be a number, not str"),
    ],
)
def test_a_state_that_makes_no_sense_is_refused_and_changes_nothing(
    key: Any, value: Any, message: str
) -> None:
    opt, saved = _stepped(0.1), _stepped(0.2).state_dict()
    if key is None:
        saved["state"][1] = value
    elif key in saved["param_groups"][0]:
        saved["param_groups"][0][key] = value
    else:
        saved["state"][1][key] = value
    before = repr(opt.state_dict())
    with pytest.raises(lucid.LucidError, match=message):
        opt.load_state_dict(saved)
    assert repr(opt.state_dict()) == before


@pytest.mark.parametrize("wrong", ["x", None, lucid.ones(7), np.ones(7)], ids=str)
@pytest.mark.parametrize(
    ("make", "key"),
    [
        (partial(lucid.optim.SGD, momentum=0.9), "momentum_buffer"),
        (partial(lucid.optim.Adam, amsgrad=True), "max_exp_avg_sq"),
        (lucid.optim.Adagrad, "sum"),
        (lucid.optim.Adafactor, "variance"),
        (lucid.optim.ASGD, "eta"),
        (lucid.optim.RMSprop, "square_avg"),
        (lucid.optim.Rprop, "step_size"),
    ],
)
def test_each_optimizer_refuses_state_that_it_cannot_have(make: Any, key: str, wrong: Any) -> None:
    """None: it isn't there yet, and is made by the next step."""
    weight = lucid.ones(2, requires_grad=True)
    opt = make([weight], lr=0.1)
    (weight * weight).sum().backward()
    opt.step()
    saved = opt.state_dict()
    saved["state"][0] = {**saved["state"][0], key: wrong}
    before = repr(opt.state_dict())
    if wrong is None:
        opt.load_state_dict(saved)
        opt.step()
        return
    with pytest.raises(lucid.LucidError, match=f"load_state_dict: '{key}' of 0"):
        opt.load_state_dict(saved)
    assert repr(opt.state_dict()) == before


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("d", lucid.ones(3)),
        ("old_dirs", 5),
        ("old_stps", []),
        ("ro", 5),
        ("t", None),
        ("n_iter", "x"),
    ],
)
def test_lbfgs_refuses_state_that_a_search_does_not_leave(key: str, wrong: Any) -> None:
    weight = lucid.tensor([1.0, -2.0], requires_grad=True)
    opt = lucid.optim.LBFGS([weight], lr=0.1, max_iter=3)

    def closure() -> lucid.Tensor:
        opt.zero_grad()
        loss = (weight * weight * lucid.tensor([1.0, 3.0])).sum()
        loss.backward()
        return loss

    opt.step(closure)
    saved = copy.deepcopy(opt.state_dict())
    before = repr(saved)
    opt.load_state_dict(saved)
    for name in ("max_iter", "tolerance_grad"):
        saved["param_groups"][0][name], value = "x", saved["param_groups"][0][name]
        with pytest.raises(
            lucid.LucidError, match=r"max_iter must be a number|'x' is no tolerance"
        ):
            opt.load_state_dict(saved)
        saved["param_groups"][0][name] = value
    saved["state"][0][key] = wrong
    with pytest.raises(lucid.ArgumentError, match=r"load_state_dict: '.*' of 0, .* over 2 el"):
        opt.load_state_dict(saved)
    assert repr(opt.state_dict()) == before


def test_a_count_of_steps_may_be_a_number_as_older_files_of_pytorch_have_it() -> None:
    opt, other = _stepped(0.1), _stepped(0.1)
    saved = opt.state_dict()
    for entry in saved["state"].values():
        entry["step"] = int(entry["step"])
    other.load_state_dict(saved)
    for optimizer in (opt, other):
        optimizer.step()
    assert repr(other.state_dict()) == repr(opt.state_dict())


def _stepped(lr: float) -> lucid.optim.Adam:
    weights = [lucid.ones(2, requires_grad=True) for _ in range(2)]
    opt = lucid.optim.Adam(weights, lr=lr)
    sum((w * lr).sum() for w in weights).backward()
    opt.step()
    return opt
