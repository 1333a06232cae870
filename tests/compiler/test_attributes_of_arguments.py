"""What users bind to tensors that are arguments, `x.mask = ...`: who uses it runs op by op."""

from __future__ import annotations

import copy

import pytest

import lucid
from lucid import nn

X = [0.5, -1.0, 2.0]


def batches(count=4):
    return [lucid.tensor(X) * (i + 1) for i in range(count)]


def read(x):
    return x * x.mask


def read_where_there_is_one(x):
    return x * x.mask if hasattr(x, "mask") else x


def read_or_not(x):
    return x * getattr(x, "mask", 1.0)


def tried(x):
    try:
        return x * x.mask
    except:  # noqa: E722 - as users write it
        return x


def deleted(x):
    del x.mask
    return x * 2


def tried_to_delete(x):
    try:
        del x.mask
    except AttributeError:
        return x
    return x * 2


def listed(x):
    return x * len(vars(x)) if "mask" in x.__dict__ else x


def bound(x):
    x.mask = x * 3
    return x.mask + x


READS = "it reads .mask, which is bound to a tensor that it is given"
DELETES = "it deletes .mask of a tensor that it is given"
LISTS = "it looks at the __dict__ of a tensor that it is given"
BINDS = "it binds .mask to a tensor that it is given"


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (read, READS),
        (read_where_there_is_one, READS),
        (read_or_not, READS),
        (tried, READS),
        (deleted, DELETES),
        (tried_to_delete, DELETES),
        (listed, LISTS),
        (bound, BINDS),
    ],
)
def test_a_call_that_uses_an_attribute_of_its_argument_runs_op_by_op(agree, use, reason, is_first):
    def scenario(compile):
        step = compile(lambda x: use(x) + 1)
        found = []
        for i, x in enumerate(batches(6)):
            if is_first or i > 2 or use in (read, deleted):
                x.mask = lucid.tensor([1.0, 0.0, float(i)])
            found.append([step(x), [*vars(x)]])
        return found

    (step,) = agree(scenario)
    assert set(step.stats.eager_reasons) == {reason}
    asks_in_vain = reason == READS and use is not read and not is_first
    assert step.stats.calls == (3 if asks_in_vain else 0)


def test_a_call_that_asks_in_vain_for_an_attribute_is_native(agree):
    def scenario(compile):
        step = compile(lambda x, y: x * 2 if hasattr(x, "keys") or hasattr(y, "mask") else y * 3)
        return [step(x, y) for x, y in zip(batches(), batches(), strict=True)]

    (step,) = agree(scenario, traces=1)
    assert step.stats.calls == 4


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_call_that_copies_its_argument_is_native_unless_something_is_bound_to_it(agree, copied):
    def scenario(compile):
        step = compile(lambda x: (copied(x), copied(x) * 2))
        found = []
        for i, x in enumerate(batches(6)):
            if i in (3, 4):
                x.mask = i
            twin, twice = step(x)
            found.append([twin, twice, [*vars(twin).items()]])
        return found

    (step,) = agree(scenario, traces=1)
    assert step.stats.calls == 4
    assert set(step.stats.eager_reasons) == {READS}


def test_a_call_whose_argument_is_state_and_has_attributes(agree):
    def scenario(compile):
        state = lucid.ones(3)

        @compile
        def step(x):
            x.count = getattr(x, "count", 0) + 1
            return x * state * x.count

        found = []
        for i in range(3):
            alias = state.detach()
            if i:
                alias.count = i
            found.append([step(alias), step(alias), alias.count])
        return found

    agree(scenario)


def test_attributes_that_no_step_asks_for_are_nothing_to_it(agree):
    def scenario(compile):
        step = compile(lambda x: x * 2)
        found = []
        for i, x in enumerate(batches()):
            x.name, x.origin = f"batch {i}", object()
            found.append(step(x))
        return found

    steps = agree(scenario)
    assert steps[0].stats.calls == 4


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


def test_attributes_that_a_step_looks_for_in_vain_are_compared_at_each_call():
    @lucid.compile
    def step(x):
        return x * (1 + sum(hasattr(x, f"mark{i}") for i in range(100)))

    x = lucid.tensor(X)
    assert step(x).tolist() == step(x).tolist() == X
    assert (step.stats.traces, step.stats.restarts) == (1, 0) and not step.stats.eager_reasons
    x.mark50 = True
    for _ in range(3):
        assert step(x).tolist() == [2 * number for number in X]
    assert (step.stats.traces, len(step.stats.eager_reasons)) == (1, 3)
    assert set(step.stats.eager_reasons) == {READS.replace("mask", "mark50")}
    assert step(lucid.tensor(X)).tolist() == X and step.stats.calls == 3
