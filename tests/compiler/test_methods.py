"""Methods, Modules, copies, threads, stances: compiled things where functions and Modules go."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn


class Trainer:
    def __init__(self, scale=2.0):
        self.model = nn.Linear(2, 1)
        self.scale = scale

    @lucid.compile
    def step(self, x):
        return self.model(x) * self.scale

    @staticmethod
    @lucid.compile
    def twice(x):
        return x * 2

    @classmethod
    def make(cls):
        return cls(5.0)


class Sub(Trainer):
    @lucid.compile
    def step(self, x):
        return super().step(x) + 1


class Slotted:
    __slots__ = ("w",)

    def __init__(self):
        self.w = lucid.ones(2)

    @lucid.compile
    def step(self, x):
        return x * self.w


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("seen", lucid.zeros(()))

    @lucid.compile
    def forward(self, x):
        self.seen.add_(1)
        return self.drop(self.fc(x))


@lucid.compile
def double(x):
    return x * 2


def test_methods_have_programs_per_object():
    a, b = Trainer(), Trainer.make()
    x = lucid.ones(1, 2)
    np.testing.assert_allclose(a.step(x).item(), a.model(x).item() * 2, rtol=1e-6)
    np.testing.assert_allclose(b.step(x).item(), b.model(x).item() * 5, rtol=1e-6)
    a.step(x)
    assert (a.step.stats.traces, a.step.stats.calls, b.step.stats.calls) == (1, 2, 1)
    assert "objects' methods: in stats of their own" in str(Trainer.step.stats)
    assert Trainer.twice(x).tolist() == [[2.0, 2.0]] and a.step.__name__ == "step"
    a.scale = 3.0
    np.testing.assert_allclose(a.step(x).item(), a.model(x).item() * 3, rtol=1e-6)


def test_static_and_class_methods_are_what_they_are_in_either_order():
    class Steps:
        scale = 3

        @lucid.compile
        @staticmethod
        def doubled(x, y=None):
            return x * 2 if y is None else y

        @lucid.compile(fullgraph=True)
        @classmethod
        def scaled(cls, x):
            return x * cls.scale

    class Other(Steps):
        scale = 5

    x = lucid.ones(2)
    for owner, scale in ((Steps, 3.0), (Steps(), 3.0), (Other, 5.0), (Other(), 5.0)):
        assert owner.doubled(x).tolist() == [2.0, 2.0]
        assert owner.scaled(x).tolist() == [scale, scale]
    assert Steps.doubled.stats.calls == 4


def test_a_parameter_may_be_called_self():
    step = lucid.compile(lambda self, other=1: self + other)
    assert step(self=lucid.ones(1), other=2).tolist() == [3.0]


def test_super_reaches_the_base_class():
    sub, x = Sub(), lucid.ones(1, 2)
    np.testing.assert_allclose(sub.step(x).item(), sub.model(x).item() * 2 + 1, rtol=1e-6)
    assert Slotted().step(lucid.ones(2)).tolist() == [1.0, 1.0]


def test_a_compiled_forward_method(agree):
    def scenario(compile):
        net = Net()
        if compile(abs)._options.mode == "eager":
            net.forward = net.forward.__wrapped__
        outs = [net(lucid.ones(1, 2)).detach()]
        net.eval()
        outs += [net(lucid.ones(1, 2)).detach(), net.seen]
        return [outs, net.state_dict()]

    agree(scenario)


def test_objects_with_compiled_methods_can_be_copied_and_pickled():
    trainer, x = Trainer(), lucid.ones(1, 2)
    expected = trainer.step(x).item()
    for twin in (copy.deepcopy(trainer), pickle.loads(pickle.dumps(trainer))):
        assert twin.step(x).item() == expected
        with lucid.no_grad():
            twin.model.weight.add_(1)
        assert twin.step(x).item() != expected == trainer.step(x).item()
    assert copy.deepcopy(double) is double and pickle.loads(pickle.dumps(double)) is double


def test_functions_that_cannot_be_pickled_say_so():
    step = lucid.compile(lambda x: x)
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(step)
    assert copy.copy(step)(lucid.ones(2)).tolist() == [1.0, 1.0]


def test_a_compiled_module_is_a_module():
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5), nn.Linear(3, 1))
    compiled = lucid.compile(model)
    assert isinstance(compiled, nn.Module) and isinstance(compiled, nn.Sequential)
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in model.parameters()]
    assert compiled[0] is model[0] and len(compiled) == 3 and list(compiled) == list(model)
    assert compiled.eval() is model and not model.training
    compiled.train()
    assert model.training and "Linear" in repr(compiled)
    compiled.extra = 3
    assert model.extra == 3
    del compiled.extra
    assert not hasattr(model, "extra")
    compiled.load_state_dict(model.state_dict())
    compiled.zero_grad()


def test_a_compiled_module_inside_of_a_module(agree):
    def scenario(compile):
        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = compile(nn.Linear(2, 2))
                self.head = nn.Linear(2, 1)

            def forward(self, x):
                return self.head(self.inner(x))

        outer = Outer()
        opt = lucid.optim.SGD(outer.parameters(), lr=0.1)
        names = list(outer.state_dict())

        @compile
        def step(x):
            opt.zero_grad()
            loss = outer(x).square().mean()
            loss.backward()
            opt.step()
            return loss

        first = outer(lucid.ones(1, 2)).detach()
        return [names, first, step(lucid.ones(1, 2)).detach(), outer]

    agree(scenario)


def test_a_compiled_module_can_be_copied():
    compiled = lucid.compile(nn.Linear(2, 1))
    x = lucid.ones(1, 2)
    before = compiled(x).item()
    twin = copy.deepcopy(compiled)
    with lucid.no_grad():
        twin.weight.add_(1)
    assert compiled(x).item() == before != twin(x).item()
    assert pickle.loads(pickle.dumps(compiled))(x).item() == before


def test_what_has_no_name_of_its_own_can_be_traced_again():
    calls = [nn.Linear(2, 1), functools.partial(lucid.add, lucid.ones(2))]
    for function in calls:
        compiled = lucid.compile(function)
        for shape in ((1, 2), (3, 2)):
            np.testing.assert_allclose(
                compiled(lucid.ones(*shape)).detach().numpy(),
                function(lucid.ones(*shape)).detach().numpy(),
                rtol=1e-6,
            )
        assert compiled.stats.traces == 2
    with pytest.raises(lucid.LucidError, match=r"^Linear has not been called yet"):
        lucid.compile(nn.Linear(2, 1)).dump_ir()


# ---------------------------------------------------------------------- threads


def in_threads(*jobs):
    errors = []

    def run(job):
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_one_function_in_several_threads():
    w = lucid.tensor([2.0])
    step = lucid.compile(lambda x, n: x * w * n)

    def job():
        for n in range(20):
            assert step(lucid.full((3,), float(n)), n % 3).tolist() == [2.0 * n * (n % 3)] * 3

    in_threads(job, job, job, job)
    assert step.stats.traces == 3 and step.stats.calls == 80


def test_threads_that_trace_while_others_run_eagerly():
    model = nn.Linear(4, 4)
    x = lucid.ones(2, 4)
    expected = model(x).detach()

    def traced():
        for i in range(10):
            step = lucid.compile(lambda x, i=i: model(x) + i)
            assert lucid.allclose(step(x).detach(), expected + i)

    def eager():
        for _ in range(100):
            assert model(x).detach().equal(expected)
            y = lucid.ones(2, requires_grad=True)
            (y * 3).sum().backward()
            assert y.grad.tolist() == [3.0, 3.0]

    in_threads(traced, eager, traced)


def test_training_in_two_threads_is_independent():
    def train():
        lucid_model = nn.Linear(2, 1)
        with lucid.no_grad():
            lucid_model.weight.fill_(1.0)
            lucid_model.bias.fill_(0.0)
        opt = lucid.optim.SGD(lucid_model.parameters(), lr=0.1)

        @lucid.compile
        def step(x):
            opt.zero_grad()
            loss = F.mse_loss(lucid_model(x), lucid.zeros(1, 1))
            loss.backward()
            opt.step()
            return loss

        return [step(lucid.ones(1, 2)).item() for _ in range(5)]

    found, expected = [], train()
    in_threads(lambda: found.append(train()), lambda: found.append(train()))
    assert found == [expected, expected]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_goes_on():
    code = (
        "import os, lucid\n"
        "w = lucid.ones(2)\n"
        "step = lucid.compile(lambda x: x * w)\n"
        "step(lucid.ones(2))\n"
        "pid = os.fork()\n"
        "good = step(lucid.ones(2)).tolist() == [1.0, 1.0]\n"
        "good = good and step(lucid.ones(3, 2)).shape == (3, 2)\n"
        "if pid == 0: os._exit(0 if good else 3)\n"
        "assert good and os.waitpid(pid, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ---------------------------------------------------------------------- stances


def test_eager_stances_run_python(monkeypatch):
    calls = []

    def step(x):
        calls.append(float(x.sum()))
        return x * 2

    x = lucid.ones(2)
    eager = lucid.compile(mode="eager")(step)
    assert eager(x).tolist() == [2.0, 2.0] and calls == [2.0]
    native = lucid.compile(step)
    with lucid.compiler.set_stance("force_eager"):
        assert native(x).tolist() == [2.0, 2.0]
        assert native.stats.calls == 0
        with lucid.compiler.set_stance("default"):
            native(x)
        assert native.stats.calls == 1
        native(x)
    native(x)
    assert calls == [2.0] * 5 and native.stats.calls == 2
    with pytest.raises(lucid.OptionError) as error:
        lucid.compiler.set_stance("fast")
    assert str(error.value) == "unknown stance 'fast'; there are default, force_eager"


def test_a_stance_ends_with_its_block_also_by_an_error():
    step = lucid.compile(lambda x: x * 2)
    with pytest.raises(ValueError), lucid.compiler.set_stance("force_eager"):
        raise ValueError
    step(lucid.ones(2))
    assert step.stats.calls == 1


@pytest.mark.parametrize(
    ("value", "expected"), [("1", "0"), ("True", "0"), ("0", "1"), ("off", "1"), ("", "1")]
)
def test_the_environment_can_force_eager(value, expected):
    code = (
        "import lucid\nstep = lucid.compile(lambda x: x * 2)\nstep(lucid.ones(2))\n"
        "print(step.stats.calls)"
    )
    environment = {**os.environ, "LUCID_EAGER": value}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert run.stdout.strip() == expected, run.stderr


def test_a_compiled_module_leaves_the_module_its_attributes(agree):
    def scenario(compile):
        model = nn.Linear(2, 2)
        before, first, second = set(vars(model)), compile(model), compile(model)
        first(lucid.ones(1, 2)), second(lucid.ones(3, 2))
        first.stats_mean = 3.0
        assert set(vars(model)) - before == {"stats_mean"}
        return model.stats_mean, second(lucid.ones(1, 2))

    agree(scenario)


def test_a_module_compiles_itself_in_place():
    layers = lucid.nn.Linear(3, 4), lucid.nn.ReLU(), lucid.nn.Linear(4, 1)
    model, x = lucid.nn.Sequential(*layers), lucid.randn(5, 3)
    expected, names = model(x), list(model.state_dict())
    seen = []
    model.register_forward_hook(lambda module, args, result: seen.append(tuple(result.shape)))
    model.compile(fullgraph=True)
    for _ in range(3):
        np.testing.assert_allclose(model(x).detach().numpy(), expected.detach().numpy(), 1e-6)
    assert seen == [(5, 1)] * 3 and list(model.state_dict()) == names
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(lucid.nn.Linear(3, 1)))):
        other.compile()
        with lucid.no_grad():
            next(other.parameters()).zero_()
        assert not np.array_equal(other(x).detach().numpy(), expected.detach().numpy())
    opt = lucid.optim.SGD(model.parameters(), lr=0.1)
    before = (model(x) ** 2).mean()
    before.backward()
    opt.step()
    assert (model(x) ** 2).mean() < before


def test_what_means_another_function_says_which(caplog):
    def sorts(x):
        return sorted(x)

    def stops(x):
        breakpoint()
        return x * 2

    step = lucid.compile(sorts)
    assert [v.item() for v in step(lucid.tensor([3.0, 1.0]))] == [1.0, 3.0]
    assert "hint: use lucid.sort" in step.stats.eager_reasons[0]
    stopped = []
    hook, sys.breakpointhook = sys.breakpointhook, lambda *_: stopped.append(1)
    try:
        step = lucid.compile(stops)
        for _ in range(2):
            step(lucid.ones(2))
    finally:
        sys.breakpointhook = hook
    assert stopped == [1, 1] and "LUCID_EAGER=1" in step.stats.eager_reasons[0]
