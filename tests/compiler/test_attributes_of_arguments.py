"""What users bind to tensors that are arguments: `x.mask = ...`, read and bound in a step."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np

import lucid
from lucid import nn

X = [0.5, -1.0, 2.0]


def batches(count=4):
    return [lucid.tensor(X) * (i + 1) for i in range(count)]


def test_a_step_reads_what_is_bound_to_its_argument(agree):
    def scenario(compile):
        weight = nn.Parameter(lucid.ones(3))

        def step(x):
            weight.grad = None
            loss = (weight * x * x.mask).sum() * x.scale * x.times
            loss.backward()
            weight.detach().sub_(weight.grad, alpha=0.1)
            return loss.detach() if x.kind == "loss" else weight.grad.clone()

        step = compile(step)
        found = []
        for i, x in enumerate(batches()):
            x.mask = lucid.tensor([1.0, float(i), 0.0])
            x.scale, x.times, x.kind = 0.5 * i, i, "loss"
            found.append(step(x))
        x.kind = "gradient"
        return [found, step(x), weight]

    steps = agree(scenario, traces=2)
    assert steps[0].stats.retrace_reasons == ["x.kind: str 'loss' -> str 'gradient'"]
    assert steps[0].stats.calls == 5


def test_what_a_step_binds_to_its_argument_stays_there(agree):
    def scenario(compile):
        def step(x):
            x.cache = x * 2
            x.count = getattr(x, "count", 0) + 1
            x.itself = x
            return x.cache.sum() * x.count

        step = compile(step)
        x, y = lucid.tensor(X), lucid.ones(3)
        found = []
        for tensor in (x, x, y, x, y):
            found.append([step(tensor), tensor.cache, tensor.count])
            assert tensor.itself is tensor and type(tensor.count) is int
        return [found, sorted(vars(x)), sorted(vars(y))]

    agree(scenario, traces=2)


def test_each_call_finds_whether_there_is_an_attribute(agree):
    def scenario(compile):
        def step(x):
            try:
                mask = x.mask
            except:  # noqa: E722 - as users write it
                mask = None
            return x.sum() if mask is None else (x * mask).sum()

        step = compile(step)
        found = []
        for i, x in enumerate(batches(6)):
            if i % 2:
                x.mask = lucid.tensor([1.0, 0.0, float(i)])
            if i == 5:
                x.mask = None
            found.append(step(x))
        return found

    steps = agree(scenario, traces=3)
    assert steps[0].stats.calls == 6


def test_attributes_that_no_step_asks_for_are_nothing_to_it(agree):
    def scenario(compile):
        step = compile(lambda x: x * 2)
        found = []
        for i, x in enumerate(batches()):
            x.name, x.origin = f"batch {i}", object()
            found.append(step(x))
        return found

    steps = agree(scenario, traces=1)
    assert steps[0].stats.calls == 4


def test_a_step_takes_attributes_of_its_argument_away(agree):
    def scenario(compile):
        def step(x):
            del x.mask
            if hasattr(x, "again"):
                del x.again
                x.again = x + 1
            return x.sum()

        step = compile(step)
        found = []
        for i, x in enumerate(batches()):
            x.mask = lucid.ones(3)
            if i > 1:
                x.again = 3
            found.append([step(x), sorted(vars(x))])
        return [found, x.again]

    agree(scenario, traces=2)


def test_one_tensor_in_two_places_has_its_attributes_once(agree):
    def scenario(compile):
        def step(x, y):
            x.total = getattr(x, "total", 0.0) + 1.0
            y.total = getattr(y, "total", 0.0) + 10.0
            return (x * x.total + y * y.total).sum()

        step = compile(step)
        x, y = lucid.tensor(X), lucid.ones(3)
        found = [step(x, y), step(x, x), step(x, y), step(y, y), step(y, x)]
        return [found, x.total, y.total]

    agree(scenario)


def test_containers_and_objects_that_are_bound_to_an_argument(agree):
    class Lengths:
        def __init__(self, lengths):
            self.lengths, self.used = lengths, 0

    def scenario(compile):
        def step(batch):
            x = batch["x"]
            x.meta["calls"] += 1
            x.meta["latest"] = x.parts[0] * x.meta["calls"]
            x.parts.append(x.meta["latest"] + 1)
            x.parts.popleft() if len(x.parts) > 2 else None
            x.pair = (x.lengths.lengths.sum(), {"double": x * 2})
            return x.parts[-1].sum() + x.pair[0]

        step = compile(step)
        found = []
        x = lucid.tensor(X)
        x.meta, x.parts = {"calls": 0}, deque([lucid.ones(3)])
        x.lengths = Lengths(lucid.tensor([3.0, 4.0]))
        meta, parts = x.meta, x.parts
        for _ in range(5):
            found.append(step({"x": x}))
        assert x.meta is meta and x.parts is parts
        return [found, x.meta, list(x.parts), x.pair]

    agree(scenario)


def test_what_is_bound_is_written_in_place(agree):
    def scenario(compile):
        def step(x):
            if not hasattr(x, "velocity"):
                x.velocity = lucid.zeros_like(x)
            x.velocity.mul_(0.5).add_(x)
            return x.velocity.sum()

        step = compile(step)
        x = lucid.tensor(X)
        found = [step(x), step(x)]
        velocity = x.velocity
        found += [step(x), step(x)]
        assert x.velocity is velocity
        return [found, velocity]

    agree(scenario, traces=2)


def test_the_hidden_state_that_a_step_keeps_may_carry_attributes(agree):
    def scenario(compile):
        layer = nn.Linear(3, 3)
        layer.state = lucid.zeros(3)
        layer.state.age = 0

        def step(x):
            age = layer.state.age
            layer.state = lucid.tanh(layer.state + x)
            return layer.state.sum() * age

        step = compile(step)
        found = []
        for x in batches():
            found.append(step(x))
            layer.state.age = len(found)
        return found

    agree(scenario)


def test_results_that_are_differentiated_outside_follow_attributes_op_by_op(agree):
    def scenario(compile):
        weight = nn.Parameter(lucid.ones(3))

        def loss_of(x):
            x.hidden = weight * x * x.mask
            return x.hidden.square().sum()

        loss_of = compile(loss_of)
        found = []
        for x in batches(3):
            x.mask = lucid.tensor([1.0, 0.0, 2.0])
            loss = loss_of(x)
            x.mask = None
            (loss + x.hidden.sum()).backward()
            found.append([loss.detach(), x.hidden.detach(), weight.grad.clone()])
        return found

    steps = agree(scenario)
    assert len(steps[0].stats.eager_reasons) == 3
    assert "attributes of tensors" in steps[0].stats.eager_reasons[0]


def test_a_failed_step_leaves_attributes_as_they_were(agree):
    def scenario(compile):
        def step(x):
            x.seen += 1
            x.cache = x * 2
            if x.seen > 1:
                raise ValueError("enough")
            return x.sum()

        step = compile(step)
        x = lucid.tensor(X)
        x.seen = 0
        found = [step(x)]
        cache = x.cache
        try:
            step(x)
        except ValueError as error:
            found.append(str(error))
        return [found, cache]

    agree(scenario)


def test_a_missing_attribute_is_an_attribute_error_in_the_step_as_outside():
    @lucid.compile
    def step(x):
        return x.maks

    x = lucid.ones(3)
    x.mask = 1
    for _ in range(2):
        try:
            step(x)
        except AttributeError as error:
            assert str(error) == "'Tensor' object has no attribute 'maks'"
        else:
            raise AssertionError
    assert "__getattr__" not in vars(lucid.Tensor)
    assert not hasattr(type(x), "__getattr__")


def test_sizes_arrays_functions_and_views_that_are_bound_to_an_argument(agree):
    def scenario(compile):
        def step(x):
            rows = x.whole.view(x.rows, -1).sum(0) * x.array.sum() + lucid.tensor(x.array)
            x.flat.mul_(2.0)
            return x.change(rows).sum() + x.sum()

        step = compile(step)
        found = []
        for rows in (2, 3, 2):
            x = lucid.arange(6.0)
            x.whole, x.rows, x.flat = lucid.arange(6.0) * rows, rows, x[2:4]
            x.array = np.full(6 // rows, 0.5 * rows, np.float32)
            x.change = lucid.tanh if rows == 2 else lucid.square
            found.append([step(x), x, x.flat, step(x)])
        return found

    agree(scenario)


def test_parameters_and_state_that_are_bound_to_an_argument(agree):
    def scenario(compile):
        layer = nn.Linear(3, 2, bias=False)
        layer.weight.detach().copy_(lucid.arange(6.0).reshape(2, 3) / 10)

        def step(x):
            layer.zero_grad()
            (layer(x) + (x.weight * x).sum() * x.weight.scale).sum().backward()
            x.weight.detach().sub_(layer.weight.grad, alpha=0.1)
            x.gradient = x.weight.grad
            return x.weight.sum().detach()

        step = compile(step)
        found = []
        layer.weight.scale = 3.0
        for x in batches():
            x.weight = layer.weight
            found.append([step(x), x.gradient.clone()])
            assert x.gradient is layer.weight.grad
        return [found, layer.weight]

    agree(scenario)


def test_attributes_of_an_argument_in_a_custom_function(agree):
    class Masked(lucid.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.mask = x.mask
            return x * w * x.mask

        @staticmethod
        def backward(ctx, g):
            return None, g * ctx.mask

    def scenario(compile):
        weight = nn.Parameter(lucid.ones(3))

        def step(x):
            weight.grad = None
            Masked.apply(x, weight).sum().backward()
            return weight.grad.clone()

        step = compile(step)
        found = []
        for i, x in enumerate(batches()):
            x.mask = lucid.tensor([1.0, float(i), 0.0])
            found.append(step(x))
        return found

    agree(scenario)


def test_attributes_of_parameters_that_are_arguments(agree):
    def scenario(compile):
        def step(parameters):
            for p in parameters:
                p.grad = None
            sum((p * p).sum() * p.decay for p in parameters).backward()
            for p in parameters:
                p.momentum = 0.9 * getattr(p, "momentum", 0.0) + p.grad
                p.detach().sub_(p.momentum, alpha=0.1)
                p.steps += 1

        step = compile(step)
        parameters = [nn.Parameter(lucid.ones(3)), nn.Parameter(lucid.full((2,), 3.0))]
        for i, p in enumerate(parameters):
            p.decay, p.steps = 0.1 * (i + 1), i
        for _ in range(4):
            step(parameters)
        return [[p, p.momentum, p.steps] for p in parameters]

    agree(scenario, traces=2)


def test_keyword_arguments_and_methods_of_modules_read_attributes(agree):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, *, batch):
            hidden = self.layer(batch)
            return hidden * batch.mask if hasattr(batch, "mask") else hidden

    def scenario(compile):
        net = Net()
        optimizer = lucid.optim.SGD(net.parameters(), 0.001)

        def step(batch):
            optimizer.zero_grad()
            loss = net(batch=batch).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = compile(step)
        found = []
        for i, x in enumerate(batches(5)):
            if i > 1:
                x.mask = lucid.tensor([1.0, float(i), 0.0])
            found.append(step(batch=x))
        return found

    agree(scenario, traces=2)


def test_a_compiled_function_in_a_custom_forward_finds_attributes(agree):
    def scenario(compile):
        weight = nn.Parameter(lucid.tensor(X))
        inner = compile(lambda x: (x * x.mask).square())

        class Outer(lucid.autograd.Function):
            @staticmethod
            def forward(ctx, w):
                x = w * 2
                x.mask = lucid.tensor([1.0, 0.0, 3.0])
                y = inner(x)
                ctx.save_for_backward(x)
                return y.sum()

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                return g * x * 4

        found = []
        for _ in range(2):
            weight.grad = None
            loss = Outer.apply(weight)
            loss.backward()
            found.append([loss.detach(), weight.grad])
        return found

    agree(scenario)


def test_threads_bind_attributes_to_their_own_tensors():
    @lucid.compile
    def step(x):
        x.count = getattr(x, "count", 0) + 1
        x.total = getattr(x, "total", 0.0) + x
        return x.total.sum()

    tensors = [lucid.full((3,), float(i)) for i in range(4)]

    def work(x):
        for _ in range(20):
            step(x)

    threads = [threading.Thread(target=work, args=(x,)) for x in tensors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [x.count for x in tensors] == [20] * 4
    assert [x.total.tolist() for x in tensors] == [[20.0 * i] * 3 for i in range(4)]


def test_attributes_of_parameters_that_the_function_knows_by_another_name(agree):
    def scenario(compile):
        weight, bias = nn.Parameter(lucid.ones(3)), nn.Parameter(lucid.tensor(X))
        weight.steps, bias.steps = 0, 5

        def step(p):
            weight.steps += 1
            p.steps += 10
            p.latest = p * weight.steps
            return (p * p.steps + weight * weight.steps).sum().detach()

        def mark(p):
            p.marked = p * 2
            return weight.detach() + bias

        step, mark = compile(step), compile(lucid.no_grad()(mark))
        found = [step(weight), step(weight), step(bias), step(weight), mark(weight), mark(bias)]
        return [found, [[p.steps, p.latest.detach(), p.marked] for p in (weight, bias)]]

    agree(scenario)
