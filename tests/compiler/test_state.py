"""State is found: whatever tensor the step meets is read at each call, and written back."""

from __future__ import annotations

import copy
import functools
import gc
import weakref
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn

GLOBAL = lucid.tensor([1.0, 2.0])
TABLE = {"w": lucid.tensor([3.0, 4.0]), "deep": [lucid.tensor([5.0, 6.0])]}


def test_a_closure_tensor_is_read_and_written(agree):
    def scenario(compile):
        w = lucid.tensor([1.0, 2.0])

        @compile
        def step(x):
            y = w * x
            w.add_(x)
            return y

        results = [step(lucid.tensor([1.0, 3.0])) for _ in range(3)]
        w.mul_(10)
        results.append(step(lucid.tensor([1.0, 3.0])))
        return [results, w]

    agree(scenario, traces=1)


def test_globals_and_containers_of_tensors_are_state(agree):
    def scenario(compile):
        GLOBAL.copy_(lucid.tensor([1.0, 2.0]))
        TABLE["w"].fill_(3.0)
        version = GLOBAL._version

        @compile
        def step(x):
            GLOBAL.add_(x * TABLE["w"] + TABLE["deep"][0])
            return GLOBAL.sum()

        results = [step(lucid.ones(2)), step(lucid.ones(2))]
        TABLE["w"].fill_(7.0)
        return [results, step(lucid.ones(2)), GLOBAL.detach().clone(), GLOBAL._version - version]

    agree(scenario, traces=1)


@dataclass
class Bag:
    w: lucid.Tensor
    others: list = field(default_factory=list)


class Plain:
    def __init__(self):
        self.w = lucid.tensor([2.0])
        self.inner = SimpleNamespace(b=lucid.tensor([0.5]))


def test_tensors_inside_of_user_objects_are_state(agree):
    def scenario(compile):
        bag, plain = Bag(lucid.tensor([1.0]), [lucid.tensor([4.0])]), Plain()

        @compile
        def step(x):
            plain.inner.b.add_(bag.w * x)
            bag.others[0].mul_(2)
            return plain.w * x + plain.inner.b

        return [step(lucid.tensor([3.0])), step(lucid.tensor([3.0])), bag.w, bag.others, plain.w]

    agree(scenario, traces=1)


def test_a_rebound_tensor_is_noticed(agree):
    def scenario(compile):
        plain = Plain()
        items = [lucid.tensor([1.0])]
        w = lucid.tensor([1.0])

        @compile
        def step(x):
            return x * plain.w + items[0] + w

        results = [step(lucid.tensor([2.0]))]
        plain.w = lucid.tensor([5.0])
        results.append(step(lucid.tensor([2.0])))
        items[0] = lucid.tensor([7.0])
        results.append(step(lucid.tensor([2.0])))
        w = lucid.tensor([9.0])
        results.append(step(lucid.tensor([2.0])))
        return results

    steps = agree(scenario, traces=4)
    assert steps[0].stats.retrace_reasons == [
        "plain.w: a tensor f32[1] -> a tensor f32[1]",
        "items[0]: a tensor f32[1] -> a tensor f32[1]",
        "w: a tensor f32[1] -> a tensor f32[1]",
    ]


def test_assigned_data_is_noticed(agree):
    def scenario(compile):
        layer = nn.Linear(2, 1)
        with lucid.no_grad():
            layer.weight.fill_(1.0)
            layer.bias.fill_(0.0)

        @compile
        def step(x):
            return layer(x).sum()

        results = [step(lucid.ones(3, 2)).detach()]
        layer.weight.data = lucid.full((1, 2), 5.0)
        results.append(step(lucid.ones(3, 2)).detach())
        return results

    steps = agree(scenario, traces=2)
    assert steps[0].stats.retrace_reasons == ["layer.weight.data: assigned anew"]


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.t_(),
        lambda w: w.transpose_(0, 1),
        lambda w: w.squeeze_(0),
        lambda w: setattr(w, "data", w.data.T),
        lambda w: setattr(w, "data", w.data.flip(0)),
    ],
)
@pytest.mark.parametrize("make", [lambda x: x, lambda x: x[:], lambda x: nn.Parameter(x)])
def test_a_tensor_that_shows_its_memory_in_another_way_is_noticed(agree, make, change):
    def scenario(compile):
        w, part = make(lucid.tensor([[1.0, 2.0], [3.0, 4.0]])), None
        part = w.detach()[0]

        @compile
        def step(x):
            with lucid.no_grad():
                w[0].add_(x)
            return w * part

        results = [step(lucid.ones(2)).detach() for _ in range(2)]
        with lucid.no_grad():
            change(w if not w.requires_grad else w.data)
            if w.requires_grad:
                w.data = w.data.T
        return [results, [step(lucid.ones(2)).detach() for _ in range(3)], w, part]

    (step,) = agree(scenario)
    assert step.stats.traces <= 2
    assert not step.stats.eager_reasons


def test_memory_that_two_parameters_share_from_some_call_on_is_traced_once_more(agree):
    def scenario(compile):
        layer, other = nn.Linear(2, 2), nn.Linear(2, 2)

        @compile
        def step(x):
            with lucid.no_grad():
                layer.weight.mul_(0.5).add_(x)
                other.weight.mul_(0.9)
            return layer(x) + other(x)

        results = []
        for i in range(8):
            if i == 3:
                other.weight.data = layer.weight.data
            results.append(step(lucid.ones(2)).detach())
        return [results, layer, other]

    agree(scenario, traces=2)


def test_a_view_from_outside_that_a_step_makes_another_view_runs_op_by_op(agree):
    def scenario(compile):
        w = lucid.tensor([[1.0, 2.0], [3.0, 4.0]])[:]

        @compile
        def step(x):
            w.t_()
            return w[0] * x

        return [[step(lucid.ones(2)) for _ in range(3)], w]

    (step,) = agree(scenario)
    assert "it calls t_() of a view from outside" in step.stats.eager_reasons[0]


def test_a_loaded_state_dict_needs_no_new_trace(agree):
    def scenario(compile):
        model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
        saved = copy.deepcopy(model.state_dict())

        @compile
        def step(x):
            loss = model(x).sum()
            model.zero_grad()
            loss.backward()
            with lucid.no_grad():
                for p in model.parameters():
                    p.sub_(0.1 * p.grad)
            return loss

        x = lucid.arange(12.0).reshape(4, 3)
        results = [step(x).detach(), step(x).detach()]
        model.load_state_dict(saved)
        results.append(step(x).detach())
        return [results, model]

    agree(scenario, traces=1)


def test_shared_parameters_are_one_state(agree):
    def scenario(compile):
        first, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        second.weight = first.weight
        opt = lucid.optim.SGD([first.weight], lr=0.1)

        @compile
        def step(x):
            opt.zero_grad()
            loss = second(F.relu(first(x))).square().mean()
            loss.backward()
            opt.step()
            return loss

        return [[step(lucid.ones(2, 3)).detach() for _ in range(3)], first]

    agree(scenario, traces=1)


def test_several_modules_share_a_step(agree):
    def scenario(compile):
        encoder, decoder = nn.Linear(3, 2), nn.Linear(2, 3)
        params = [*encoder.parameters(), *decoder.parameters()]
        opt = lucid.optim.Adam(params, lr=0.01)

        @compile
        def step(x):
            opt.zero_grad()
            loss = F.mse_loss(decoder(encoder(x).tanh()), x)
            loss.backward()
            opt.step()
            return loss

        x = lucid.arange(6.0).reshape(2, 3)
        return [[step(x).detach() for _ in range(4)], encoder, decoder]

    agree(scenario, traces=1)


def test_a_view_of_a_parameter_is_that_parameter(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.arange(6.0).reshape(2, 3))
        row = w.detach()[1]

        @compile
        def step():
            loss = (w * w).sum() + (row * 2).sum()
            w.grad = None
            loss.backward()
            with lucid.no_grad():
                w.sub_(0.1 * w.grad)
                row.add_(1)
            return loss

        return [[step().detach() for _ in range(3)], w, row]

    agree(scenario, traces=1)


def test_a_view_with_history_made_outside_passes_gradients_on(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.arange(6.0).reshape(2, 3))
        row = w[1]

        @compile
        def step(x):
            w.grad = None
            (row * x).sum().backward()
            return w.grad * 2

        return [step(lucid.ones(3)), step(lucid.full((3,), 2.0)), w]

    agree(scenario, traces=1)


def test_a_history_made_outside_that_saved_nothing_is_followed_by_each_call(agree):
    """Points that a residual is asked for at, `tensor(points, requires_grad=True).float()`."""

    def scenario(compile):
        points = lucid.tensor([0.0, 0.5, 1.0], dtype=lucid.float64, requires_grad=True)
        x = points.float().reshape(3, 1)
        w = nn.Parameter(lucid.tensor([[2.0]]))

        @compile
        def step():
            u = lucid.tanh(x @ w)
            (slope,) = lucid.autograd.grad(u, x, lucid.ones_like(u), create_graph=True)
            points.grad = w.grad = None
            loss = (slope**2 + u).sum()
            loss.backward()
            with lucid.no_grad():
                w.sub_(0.1 * w.grad)
            return loss.detach(), points.grad * 1

        found = [step(), step()]
        hook = x.grad_fn.register_hook(lambda ins, outs: (2 * ins[0],))
        found.append(step())
        hook.remove()
        return [*found, step(), w]

    (step,) = agree(scenario, traces=1)
    assert step.stats.eager_reasons[0].startswith("a backward() in it follows history from outside")
    assert len(step.stats.eager_reasons) == 1


def test_a_history_made_outside_is_looked_at_by_each_call(agree):
    def scenario(compile):
        first, second = (lucid.ones(2, requires_grad=True) for _ in range(2))
        shown = -first

        @compile
        def step():
            (shown * 3).sum().backward()

        step()
        with lucid.no_grad():
            shown.mul_(1)  # no other history
        step()
        shown.copy_(second)
        step()
        return [first.grad, second.grad]

    (step,) = agree(scenario, traces=3)  # of which one finds a gradient
    reasons = step.stats.retrace_reasons
    assert reasons[1] == "the history of a tensor from outside: True -> False"


def test_a_history_made_outside_that_saved_something_is_used_up_by_a_backward(agree):
    def scenario(compile):
        x = lucid.ones(2, requires_grad=True)
        square = x * x
        step = compile(lambda: (square * 3).sum().backward())
        step()
        with pytest.raises(lucid.LucidError, match="second time"):
            step()
        return x.grad

    (step,) = agree(scenario, traces=0)
    assert all("follows history from outside" in x for x in step.stats.eager_reasons)


def test_strided_and_scalar_state_is_written_in_place(agree):
    def scenario(compile):
        base = lucid.arange(12.0).reshape(3, 4)
        column, scalar, nothing = base.t()[1], lucid.tensor(2.0), lucid.zeros(0, 3)

        @compile
        def step(x):
            column.mul_(x)
            scalar.add_(column.sum() + nothing.sum())
            return scalar.clone(), nothing + 1

        return [step(lucid.tensor(2.0)), step(lucid.tensor(3.0)), base, column, scalar]

    agree(scenario, traces=1)


def test_a_closure_array_is_live(agree):
    def scenario(compile):
        weights = np.array([1.0, 2.0], np.float32)

        @compile
        def step(x):
            return x * lucid.from_numpy(weights) + lucid.tensor(weights) + lucid.as_tensor(weights)

        results = [step(lucid.ones(2))]
        weights[:] = [10.0, 20.0]
        return [results, step(lucid.ones(2))]

    agree(scenario, traces=1)


def test_views_and_operators_of_a_closure_array_are_live(agree):
    def scenario(compile):
        data = np.arange(12, dtype=np.float32).reshape(3, 4)

        @compile
        def step(x):
            return lucid.from_numpy(data[1:, ::2]) + x, x * lucid.tensor(data.T)[:2, :1]

        results = [step(lucid.ones(2, 2))]
        data *= 3
        return [results, step(lucid.ones(2, 2))]

    agree(scenario, traces=1)


def test_numpy_arithmetic_on_a_closure_array_is_never_frozen(agree):
    def scenario(compile):
        data = np.arange(4, dtype=np.float32)

        @compile
        def step(x):
            return x * lucid.from_numpy(data / 2) + float(data[1])

        results = [step(lucid.ones(4)), step(lucid.ones(4))]
        data += 1
        return [results, step(lucid.ones(4)), step(lucid.ones(4))]

    steps = agree(scenario, traces=2)
    assert steps[0].stats.retrace_reasons == ["data: the contents of the array changed"]


def test_writes_to_a_tensor_on_a_closure_array_reach_it(agree):
    def scenario(compile):
        data = np.zeros(3, np.float32)

        @compile
        def step(x):
            lucid.from_numpy(data).add_(x)
            copied = lucid.tensor(data)
            copied.add_(100)
            return copied

        return [step(lucid.ones(3)), step(lucid.ones(3)), data.tolist()]

    agree(scenario, traces=1)


def test_lists_are_constants_and_their_changes_are_noticed(agree):
    def scenario(compile):
        numbers = [1.0, 2.0]

        @compile
        def step(x):
            return x + lucid.tensor(numbers)

        results = [step(lucid.zeros(2))]
        numbers[1] = 5.0
        return [results, step(lucid.zeros(2))]

    steps = agree(scenario, traces=2)
    assert steps[0].stats.retrace_reasons == ["numbers[1]: 2.0 -> 5.0"]


def test_data_made_inside_is_new_at_each_call(agree):
    def scenario(compile):
        @compile
        def step(x):
            made = lucid.tensor([1.0, 2.0])
            made.add_(x)
            return made

        first = step(lucid.ones(2))
        first.add_(100)
        return [first, step(lucid.ones(2))]

    agree(scenario, traces=1)


def test_a_buffer_is_written_and_its_module_attribute_read(agree):
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", lucid.zeros(()))
            self.scale = 2.0

        def forward(self, x):
            self.n.add_(1)
            return x * self.scale + self.n

    def scenario(compile):
        module = Counter()
        step = compile(lambda x: module(x))
        results = [step(lucid.ones(2)), step(lucid.ones(2))]
        module.scale = 3.0
        results.append(step(lucid.ones(2)))
        module.n = lucid.tensor(10.0)
        return [results, step(lucid.ones(2)), module]

    steps = agree(scenario, traces=3)
    assert steps[0].stats.retrace_reasons[0] == "module.scale: 2.0 -> 3.0"


def test_models_and_optimizers_may_be_arguments(agree):
    def scenario(compile):
        @compile
        def step(model, opt, x):
            opt.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            opt.step()
            return loss

        found = []
        for _ in range(2):
            model = nn.Linear(2, 1)
            opt = lucid.optim.Adam(model.parameters(), lr=0.1)
            found.append([[step(model, opt, lucid.ones(3, 2)).detach() for _ in range(3)], model])
        return found

    agree(scenario, traces=1)


def test_nothing_keeps_arguments_gradients_or_models_alive():
    model, w, x = nn.Linear(2, 1), nn.Parameter(lucid.ones(3)), lucid.ones(3)
    w.grad = lucid.ones(3)
    forward = lucid.compile(functools.partial(nn.Module.__call__, model))
    backward = lucid.compile(lambda x: (w * x).sum())
    forward(lucid.ones(1, 2))
    backward(x).backward()
    references = [weakref.ref(thing) for thing in (model, w.grad, x)]
    w.grad = None
    del forward, model, x
    gc.collect()
    assert [reference() for reference in references] == [None, None, None]


def test_slices_of_one_data_set_share_a_program(agree):
    def scenario(compile):
        data = lucid.arange(40.0).reshape(20, 2)
        step = compile(lambda x: x.sum(1))
        return [step(data[i : i + 4]) for i in range(0, 20, 4)]

    agree(scenario, traces=1)
