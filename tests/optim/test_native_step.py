"""`opt.step()` from Python: one native call, and the same bits as op by op."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.compiler import set_stance
from lucid.compiler.repeated import MANY, WARM_UP, WORTH

CASES: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: lucid.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "Nesterov": lambda p: lucid.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, maximize=True),
    "Adam": lambda p: lucid.optim.Adam(p, lr=0.1, weight_decay=0.01),
    "amsgrad": lambda p: lucid.optim.Adam(p, lr=0.1, amsgrad=True),
    "AdamW": lambda p: lucid.optim.AdamW(p, lr=0.1),
    "maximizing AdamW": lambda p: lucid.optim.AdamW(p, lr=0.1, amsgrad=True, maximize=True),
    "Adamax": lambda p: lucid.optim.Adamax(p, lr=0.1),
    "NAdam": lambda p: lucid.optim.NAdam(p, lr=0.1),
    "RAdam": lambda p: lucid.optim.RAdam(p, lr=0.1),
    "Adagrad": lambda p: lucid.optim.Adagrad(p, lr=0.1),
    "Adadelta": lambda p: lucid.optim.Adadelta(p, lr=0.1),
    "RMSprop": lambda p: lucid.optim.RMSprop(p, lr=0.1, centered=True, momentum=0.5),
    "Rprop": lambda p: lucid.optim.Rprop(p, lr=0.1),
    "ASGD": lambda p: lucid.optim.ASGD(p, lr=0.1),
    "a tensor as rate": lambda p: lucid.optim.Adam(p, lr=lucid.tensor(0.1)),
}


@pytest.fixture(autouse=True)
def no_optimizers_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of the optimizers of other tests, and how little they were used."""
    monkeypatch.setattr("lucid.compiler.repeated._warm_ups", {})


def parameters() -> list[nn.Parameter]:
    lucid.manual_seed(0)
    return [nn.Parameter(lucid.randn(size)) for size in ((7, 5), (33,), ())]


def train(opt: lucid.optim.Optimizer, steps: int = 8) -> None:
    """Gradients of every size, NaN and 0 included; the rate changes at each step."""
    for number in range(steps):
        for group in opt.param_groups:
            for p in group["params"]:
                p.grad = lucid.randn(tuple(p.shape)) * 10.0 ** (number - 3)
            if isinstance(group["lr"], float):
                group["lr"] *= 0.9
        if number == 5:
            opt.param_groups[0]["params"][0].grad[0] = 0.0
            opt.param_groups[0]["params"][1].grad[3] = float("nan")
        opt.step()


def state_of(opt: lucid.optim.Optimizer) -> list[np.ndarray]:
    found = [p for group in opt.param_groups for p in group["params"]]
    found += [x for entry in opt.state.values() for x in entry.values()]
    return [x.detach().numpy() for x in found if isinstance(x, lucid.Tensor)]


def assert_same_bits(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """NaN for NaN, whatever its sign; the sign of zero counts."""
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))


def versions_of(opt: lucid.optim.Optimizer) -> list[int]:
    """Of parameters, gradients and state."""
    found = [p for group in opt.param_groups for p in group["params"]]
    found += [p.grad for p in found]
    found += [x for entry in opt.state.values() for x in entry.values()]
    return [x._version for x in found if isinstance(x, lucid.Tensor)]


def native(opt: lucid.optim.Optimizer) -> Any:
    """The compiled updates, or None."""
    return vars(opt)["_native"].compiled


@pytest.mark.parametrize("name", CASES)
def test_native_updates_are_those_of_single_ops_bit_for_bit(name: str) -> None:
    opts = [CASES[name](parameters()) for _ in range(2)]
    train(opts[0])
    with set_stance("force_eager"):
        lucid.manual_seed(0)
        opts[1] = CASES[name](parameters())
        train(opts[1])
    assert native(opts[0]).stats.calls == 8 - WARM_UP
    assert native(opts[0]).stats.traces == 1
    assert_same_bits(*map(state_of, opts))
    assert versions_of(opts[0]) == versions_of(opts[1])


@pytest.mark.parametrize("make", [lucid.optim.Muon, lucid.optim.Adafactor])
def test_updates_that_sum_are_native_from_the_first_call_on(make: Any) -> None:
    """They are rounded otherwise: a value mustn't depend on how many steps came before."""
    opt = make([nn.Parameter(lucid.ones(4, 3))], lr=0.1)
    train(opt, 1)
    assert native(opt).stats.calls == 1


def test_a_loop_as_people_write_it_trains_natively() -> None:
    lucid.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    opt = lucid.optim.Adam(net.parameters(), lr=0.05)
    schedule = lucid.optim.lr_scheduler.StepLR(opt, 5)
    x = lucid.randn(16, 3)
    for _ in range(20):
        opt.zero_grad()
        loss = ((net(x) - x.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        schedule.step()
    assert (native(opt).stats.traces, native(opt).stats.calls) == (1, 20 - WARM_UP)


def steps_of_new_optimizers(count: int, steps: int) -> list[int]:
    """How many native calls each of some optimizers has, each of `steps` steps."""
    found = []
    for _ in range(count):
        parameter = nn.Parameter(lucid.ones(3))
        opt = lucid.optim.SGD([parameter], lr=0.1)
        for _ in range(steps):
            parameter.grad = lucid.ones(3)
            opt.step()
        found.append(0 if native(opt) is None else native(opt).stats.calls)
    return found


def test_optimizers_of_an_inner_loop_are_not_compiled_in_vain() -> None:
    """Meta-learning makes one for each task, and takes a few steps with it."""
    found = steps_of_new_optimizers(count=MANY + 6, steps=8)
    warm_ups = [WARM_UP] * (MANY + 1) + [2 * WARM_UP]
    assert found == [8 - n for n in warm_ups] + [0] * 4


def test_optimizers_whose_steps_pay_go_on_being_compiled() -> None:
    found = steps_of_new_optimizers(count=MANY + 4, steps=WORTH + WARM_UP)
    assert found == [WORTH] * (MANY + 4)


def test_a_target_that_follows_leaves_the_step_native() -> None:
    """What else changes a Module, at each step, only has guards looked at."""
    net, target = nn.Linear(3, 2), nn.Linear(3, 2)
    opt = lucid.optim.AdamW(net.parameters(), lr=0.05)
    for _ in range(MANY + 6):
        opt.zero_grad()
        (net(lucid.ones(5, 3)) - target(lucid.ones(5, 3)).detach()).square().mean().backward()
        opt.step()
        target.load_state_dict(net.state_dict())
        net.eval()
        net.train()
    assert (native(opt).stats.traces, native(opt).stats.calls) == (1, MANY + 6 - WARM_UP)


def test_hooks_closures_and_versions_are_as_op_by_op() -> None:
    (p, *_) = parameters()
    opt = lucid.optim.SGD([p], lr=0.1)
    seen = []
    opt.register_step_pre_hook(lambda *_: seen.append("before"))
    opt.register_step_post_hook(lambda *_: seen.append("after"))

    def closure() -> lucid.Tensor:
        opt.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        seen.append("closure")
        return loss

    for _ in range(WARM_UP + 2):
        version = p._version
        assert opt.step(closure).item() > 0
        assert p._version == version + 1
    assert seen == ["before", "closure", "after"] * (WARM_UP + 2)
    assert native(opt).stats.calls == 2


def test_a_graph_that_saved_a_parameter_knows_that_it_was_written() -> None:
    (p, *_) = parameters()
    opt = lucid.optim.SGD([p], lr=0.1)
    for _ in range(WARM_UP + 1):
        loss = (p * p).sum()
        loss.backward(retain_graph=True)
        opt.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_gradients_that_come_and_go_are_followed_for_a_while() -> None:
    rows = [(1, 1, 1), (1, 1, 1), (1, 0, 1), (0, 1, 1), (1, 1, 0), (0, 0, 1), (1, 0, 0), (0, 1, 0)]
    assert len(set(rows)) > MANY

    def trained() -> lucid.optim.Adam:
        ps = parameters()
        opt = lucid.optim.Adam(ps, lr=0.1)
        for row in [*rows, *rows]:
            for p, has in zip(ps, row, strict=True):
                p.grad = lucid.full(tuple(p.shape), 0.5) if has else None
            opt.step()
        return opt

    opt = trained()
    assert native(opt) is None  # a program for each pattern isn't worth it
    with set_stance("force_eager"):
        assert_same_bits(state_of(opt), state_of(trained()))


def test_a_group_that_is_added_later_is_trained() -> None:
    a, b, _ = parameters()
    opt = lucid.optim.SGD([a], lr=0.1)
    train(opt, 4)
    opt.add_param_group({"params": [b], "lr": 0.5})
    before = b.detach().clone()
    train(opt, 1)
    assert not np.array_equal(before, b.detach())
    assert native(opt).stats.traces == 2


def test_a_copy_or_a_pickle_has_native_code_of_its_own() -> None:
    net = nn.Linear(3, 2)
    opt = lucid.optim.Adam(net.parameters(), lr=0.1)
    train(opt, 4)
    for other in (copy.deepcopy(opt), pickle.loads(pickle.dumps(opt))):
        assert "_native" not in vars(other)
        before = [p.detach().clone() for p in net.parameters()]
        train(other, 4)
        for p, old in zip(net.parameters(), before, strict=True):
            np.testing.assert_array_equal(p.detach(), old)


def test_a_deep_copy_of_model_and_optimizer_compiles() -> None:
    net = nn.Linear(3, 2)
    net, opt = copy.deepcopy((net, lucid.optim.Adam(net.parameters(), lr=0.1)))
    before = net.weight.detach().clone()

    @lucid.compile
    def step(x: lucid.Tensor) -> None:
        opt.zero_grad()
        net(x).sum().backward()
        opt.step()

    step(lucid.ones(1, 3))
    np.testing.assert_allclose(net.weight.detach(), before - 0.1, rtol=1e-5)


def test_native_code_goes_with_its_optimizer() -> None:
    opt = lucid.optim.Adam(parameters(), lr=0.1)
    train(opt, 4)
    code = weakref.ref(native(opt))
    del opt
    gc.collect()
    assert code() is None


def both_ways(change: Callable[[Any, list[nn.Parameter], int], None]) -> list[list[np.ndarray]]:
    """Parameters after each step, natively and op by op; `change` is called before each."""
    found = []
    for is_native in (True, False):
        parameters = [nn.Parameter(lucid.ones(3)), nn.Parameter(lucid.ones(2))]
        opt = lucid.optim.Adam(parameters, lr=0.1)
        values = []
        for number in range(8):
            for i, p in enumerate(parameters):
                p.grad = lucid.full(p.shape, float(number + i + 1))
            change(opt, parameters, number)
            if is_native:
                opt.step()
            else:
                with lucid.no_grad():
                    opt._step_groups()
            values += [p.detach().numpy().copy() for p in parameters]
        found.append(values)
    return found


@pytest.mark.parametrize(
    "forget",
    [
        lambda state, p: state.__delitem__(p),
        lambda state, p: state.pop(p),
        lambda state, p: state.popitem(),
        lambda state, p: state.update({p: {}}),
        lambda state, p: state[p].clear(),
        lambda state, p: state.clear(),
    ],
)
def test_state_that_is_forgotten_begins_anew(forget: Callable[[Any, Any], Any]) -> None:
    """A compiled step went on with the moments that it knew."""

    def change(opt: Any, parameters: list[nn.Parameter], number: int) -> None:
        if number == 5:
            forget(opt.state, parameters[1])

    for a, b in zip(*both_ways(change), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_gradient_on_the_memory_of_its_parameter_is_not_expected_ever_after() -> None:
    """The step for such a gradient wrote into the one that came next, and not into the weights."""

    def change(opt: Any, parameters: list[nn.Parameter], number: int) -> None:
        if number == 4:
            parameters[0].grad = parameters[0].detach()

    for a, b in zip(*both_ways(change), strict=True):
        np.testing.assert_array_equal(a, b)


def test_calls_with_gradients_of_the_same_types_are_left_to_native_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading `.grad` made each call look at all guards in Python, 70 us for an MLP."""
    opt = lucid.optim.Adam(parameters(), lr=0.1)
    train(opt, WARM_UP + 2)
    program = native(opt)._latest_program()
    monkeypatch.setattr(type(program), "run", lambda *_: pytest.fail("went through Python"))
    if program.enter is None:
        pytest.skip("calls go through Python here")
    train(opt, 4)
    assert native(opt).stats.calls == 6


def with_history(opt: Any, parameters: list[nn.Parameter], number: int) -> None:
    for p in parameters:
        p.grad = None
    lucid.add(*((p**3).sum() for p in parameters)).backward(create_graph=True)


def on_one_buffer(opt: Any, parameters: list[nn.Parameter], number: int) -> None:
    buffer = lucid.arange(5.0) + number
    parameters[0].grad, parameters[1].grad = buffer[:3], buffer[3:]


def overlapping(opt: Any, parameters: list[nn.Parameter], number: int) -> None:
    array = np.arange(4, dtype=np.float32) + number
    parameters[0].grad, parameters[1].grad = map(lucid.from_numpy, (array[:3], array[2:]))


def of_another_stride(opt: Any, parameters: list[nn.Parameter], number: int) -> None:
    parameters[number % 2].grad = (lucid.arange(6.0) + number)[:: 2 + number % 2][: 3 - number % 2]


def repeated_along_an_axis(opt: Any, parameters: list[nn.Parameter], number: int) -> None:
    parameters[0].grad = lucid.tensor(float(number)).expand(3)


def a_moment(opt: Any, parameters: list[nn.Parameter], number: int) -> None:
    if number > 3:
        parameters[0].grad = opt.state[parameters[0]]["exp_avg"]


def a_part_of_a_parameter(opt: Any, parameters: list[nn.Parameter], number: int) -> None:
    if number > 3:
        parameters[1].grad = parameters[0].detach()[:2]


@pytest.mark.parametrize(
    "change",
    [
        with_history,
        on_one_buffer,
        overlapping,
        of_another_stride,
        repeated_along_an_axis,
        a_moment,
        a_part_of_a_parameter,
    ],
)
def test_gradients_may_lie_on_any_memory(change: Any) -> None:
    for a, b in zip(*both_ways(change), strict=True):
        np.testing.assert_array_equal(a, b)
