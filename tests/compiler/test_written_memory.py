"""What a step does to memory: versions that it counts, NumPy's memory, assigned memory, results."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import lucid
from lucid.autograd import grad


def ones(*shape: int, requires_grad: bool = False) -> lucid.Tensor:
    return lucid.ones(*shape, requires_grad=requires_grad)


# ---------------------------------------------------------------------- versions


def test_argument_slots_for_one_memory_count_versions_as_the_tensors_do(agree):
    def scenario(compile):
        @compile
        def step(x, y):
            x.add_(1)
            y.mul_(2)
            return x + y, x is y

        a, b, row = ones(3), ones(3), lucid.arange(6.0)
        pairs = [
            (a, b), (a, a), (b, a), (a, a.detach()), (a, a.data), (a, a[:]), (a.detach(), a.data),
            (row[:3], row[2:5]), (row[:3], row[3:]), (row[::2], row[1::2]), (row[:3], row[:3]),
        ]  # fmt: skip
        found = [[step(*pair), *(x._version for x in pair)] for pair in pairs]
        return [found, a, b, row]

    agree(scenario)


@pytest.mark.parametrize("of", ["argument", "state"])
def test_each_call_returns_detached_data_that_counts_for_itself(agree, of):
    def scenario(compile):
        state = ones(4)

        @compile
        def step(x):
            source = x if of == "argument" else state
            data = source.data
            data.add_(1)
            return data, data[1:], source.data, source.detach()

        x = ones(4)
        results = [step(x) for _ in range(3)]
        for number, result in enumerate(results):
            for _ in range(number):
                result[0].mul_(2)
        return [results, x, state]

    agree(scenario, traces=1)


# ---------------------------------------------------------------------- NumPy's memory


def read_only() -> np.ndarray:
    array = np.arange(4, dtype=np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("is_traced_first", [True, False])
@pytest.mark.parametrize("wrap", [lambda a: a, lucid.from_numpy], ids=["array", "tensor"])
def test_read_only_memory_that_is_passed_is_read_and_never_written(agree, wrap, is_traced_first):
    def scenario(compile):
        read, write = compile(lambda x: x * 2), compile(lambda x: lucid.as_tensor(x).add_(1))
        array = read_only()
        if is_traced_first:
            write(wrap(np.ones(4, np.float32)))
        found = [read(wrap(array)), read(wrap(array))]
        for _ in range(2):
            with pytest.raises(RuntimeError, match="the memory of this tensor is read-only"):
                write(wrap(array))
        return [found, array, write(wrap(np.ones(4, np.float32)))]

    agree(scenario)


@pytest.mark.parametrize("is_handled", [True, False])
@pytest.mark.parametrize("is_given", [True, False])
def test_an_array_that_has_become_read_only_is_never_written(agree, is_given, is_handled):
    """NumPy says so, to the step's own handler as well; from then on until it is not any more."""

    def scenario(compile):
        own, found = np.zeros(3), []

        @compile
        def step(x, given):
            array = given if is_given else own
            try:
                array[0] += x.sum().item()
            except ValueError as error:
                if not is_handled:
                    raise
                return str(error)
            return x * array.sum()

        for i in range(8):
            own.flags.writeable = i not in (3, 4)
            try:
                found.append(step(ones(2), own))
            except ValueError as error:
                found.append(str(error))
        return [found, own]

    steps = agree(scenario)
    assert steps[0].stats.traces == 1 and len(steps[0].stats.eager_reasons) == 2


def test_read_only_memory_of_state_is_never_written(agree):
    def scenario(compile):
        array = read_only()
        state = lucid.from_numpy(array)
        step = compile(lambda x: state[1:].add_(x))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="the memory of this tensor is read-only"):
                step(ones(3))
        return [array, state._version, compile(lambda x: state * x)(ones(4))]

    agree(scenario)


def test_memory_is_read_and_written_in_the_order_of_its_strides(agree):
    def scenario(compile):
        rows = np.arange(12, dtype=np.float32).reshape(3, 4)
        read = compile(lambda x: (x * 2, x.sum(0), x.reshape(-1), x.stride(), x.is_contiguous()))
        write = compile(lambda x: x.add_(1) * 2)
        parts = [
            rows, rows.T, rows[::-1], rows[:, ::-1], rows[::2, ::-2], rows[::-1].T, rows[1:1],
            np.asfortranarray(rows),
        ]  # fmt: skip
        for part in (np.broadcast_to(rows[0], (3, 4)), *parts):
            yield read(lucid.from_numpy(part))
        for part in parts:
            yield [write(lucid.from_numpy(part)), rows.copy()]

    agree(lambda compile: list(scenario(compile)))


# ---------------------------------------------------------------------- memory that is assigned


ASSIGNED = {
    "data": lambda x, z: setattr(x, "data", z),
    "data, made in the step": lambda x, z: setattr(x, "data", z * 2),
    "set_": lambda x, z: x.set_(z),
    "resize_ to less": lambda x, z: x.resize_(2, 1),
    "resize_ to more": lambda x, z: x.resize_(3, 3),
}


@pytest.mark.parametrize("of", ["argument", "state"])
@pytest.mark.parametrize("assign", ASSIGNED.values(), ids=ASSIGNED)
def test_a_tensor_whose_memory_a_step_assigns_keeps_its_version(agree, assign, of):
    def scenario(compile):
        state = lucid.arange(4.0)
        view = state[1:]

        @compile
        def step(x, z):
            target = x if of == "argument" else state
            assign(target, z)
            target[1:].mul_(3)
            return target * 2, target.shape

        found = []
        for number in range(3):
            x, z = lucid.arange(5.0), lucid.arange(6.0) + number
            found.append([step(x, z), x, z, x._version, state, state._version])
            found.append(of == "argument" or state.data_ptr() == z.data_ptr())
        found.append([view, step(state, lucid.arange(2.0))])
        return found

    agree(scenario)


# ---------------------------------------------------------------------- results


def test_memory_that_a_step_assigns_has_strides_of_its_own(agree):
    def scenario(compile):
        @compile
        def step(x, empty, y):
            x.data = y * 2
            x.view(-1)[1] = 7
            lucid.maximum(y[None], y, out=empty)
            empty[:, 1] = 9
            return x.stride(), x.is_contiguous(), empty.stride()

        x, empty = lucid.zeros(3, 2).T, lucid.zeros(0, 3)
        return step(x, empty, lucid.arange(6.0).reshape(2, 3)), x, empty

    agree(scenario)


def test_results_on_memory_from_outside_stay_on_it_and_others_are_never_written_again(agree):
    def scenario(compile):
        leaf, x = ones(4, requires_grad=True), ones(4)
        step = compile(
            lambda x: (x, x[1:], x.view(2, 2), leaf, leaf[1:], leaf.detach(), x * 2, (x * 3)[1:])
        )
        first, second = step(x), step(x)
        arrays = [result.numpy() for result in (*step(x)[6:], *step(x)[6:])]
        first[1].add_(1)
        second[2].mul_(3)
        with lucid.no_grad():
            second[5].mul_(2)
            first[4].add_(1)
        third = step(x)
        addresses = [
            result.data_ptr() - origin.data_ptr()
            for result, origin in zip(second[:6], [x] * 3 + [leaf] * 3, strict=True)
        ]
        gradients = grad(first[4].sum() + (third[4] * second[3][1:]).sum(), leaf)
        return [first, second, third, arrays, addresses, gradients]

    agree(scenario, traces=1)


@pytest.mark.parametrize("shared", [(slice(0, 2), slice(2, 6)), (slice(0, 4), slice(2, 6))])
def test_parameters_that_are_parts_of_one_buffer_are_trained_in_it(agree, shared):
    def scenario(compile):
        buffer, gradients = lucid.zeros(6), lucid.zeros(6)
        a, b = (lucid.nn.Parameter(buffer[part]) for part in shared)
        a.grad, b.grad = (gradients[part] for part in shared)
        optimizer = lucid.optim.SGD([a, b], lr=0.1, momentum=0.5)

        @compile
        def step(x):
            optimizer.zero_grad(set_to_none=False)
            loss = ((a - x[shared[0]]) ** 2).sum() + ((b * 2 - x[shared[1]]) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss.detach(), gradients * 1

        found = [step(lucid.arange(6.0)) for _ in range(3)]
        return [found, a, b, buffer, gradients, buffer._version]

    agree(scenario, traces=1)


# ---------------------------------------------------------------------- memory that overlaps itself


class AddsOne(lucid.autograd.Function):
    """Writes into its input by an operation; by NumPy if `by_numpy`."""

    @staticmethod
    def forward(ctx, x, by_numpy):
        ctx.mark_dirty(x)
        if by_numpy:
            x.numpy()[...] += 1
        else:
            x.add_(1)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


def overlapping():
    """Four rows, each on five elements of the one before it."""
    return lucid.from_numpy(as_strided(np.arange(9, dtype=np.float32), (4, 6), (4, 4)))


def take_a_step(x):
    optimizer = lucid.optim.SGD([x.requires_grad_()], lr=0.1)
    (x * x).sum().backward()
    optimizer.step()


OVERLAPPING = {
    "as_strided": overlapping,
    "expand": lambda: lucid.arange(6.0).expand(4, 6),
    "unfold": lambda: lucid.arange(9.0).unfold(0, 6, 1),
    "as_strided, interleaved": lambda: lucid.from_numpy(
        as_strided(np.arange(30, dtype=np.float32), (4, 6), (12, 8))
    ),
}
WRITES = {
    "x[1] = 7": lambda x: operator.setitem(x, 1, 7.0),
    "x[1, 2] = 7": lambda x: operator.setitem(x, (1, 2), 7.0),
    "x[...] = 7": lambda x: operator.setitem(x, ..., 7.0),
    "x[mask] = 7": lambda x: operator.setitem(x, x > 3, 7.0),
    "x[index] = 7": lambda x: operator.setitem(x, lucid.tensor([0, 1]), 7.0),
    "add_": lambda x: x.add_(1),
    "copy_": lambda x: x.copy_(lucid.ones(6)),
    "zero_": lambda x: x.zero_(),
    "normal_": lambda x: x.normal_(),
    "out=": lambda x: lucid.add(lucid.ones(4, 6), 1, out=x),
    "index_put_": lambda x: x.index_put_((lucid.tensor([0]),), lucid.tensor(3.0)),
    "scatter_": lambda x: x.scatter_(0, lucid.zeros(1, 6, dtype=lucid.int64), lucid.ones(1, 6)),
    "of a row": lambda x: x[1].fill_(3.0),
    "of a column": lambda x: x.t()[2].fill_(3.0),
    "of a view": lambda x: x.detach()[1:2].mul_(2),
    ".data": lambda x: x.data.mul_(2),
    "a custom Function": lambda x: AddsOne.apply(x, False),
    "an optimizer": take_a_step,
    "init": lambda x: lucid.nn.init.ones_(x),
}


def refusal_of(write, make, mode):
    """The text of the error; the memory is as it was."""
    x = make()
    before = x.numpy().copy()
    calls = {
        "eager": lambda: write(x),
        "state": lucid.compile(lambda: [write(x), None][1]),
        "argument": lambda: lucid.compile(lambda y: [write(y), None][1])(x),
    }
    with pytest.raises(lucid.LucidError) as caught:
        calls[mode]()
    assert np.array_equal(x.detach().numpy(), before)
    assert x._version == 0
    return str(caught.value)


@pytest.mark.parametrize("memory", OVERLAPPING)
@pytest.mark.parametrize("write", WRITES)
def test_memory_that_overlaps_itself_is_not_written(write, memory):
    texts = {
        refusal_of(WRITES[write], OVERLAPPING[memory], mode)
        for mode in ("eager", "state", "argument")
    }
    assert len(texts) == 1
    assert texts.pop().startswith(
        "unsupported operation: more than one element of the written-to tensor refers to a single "
        "memory location. Please clone() the tensor before performing the operation.\n  target: "
    )


def test_the_refusal_names_what_is_written_and_where(run):
    x = overlapping()

    def step():
        x[1] = 7.0

    with pytest.raises(lucid.LucidError) as caught:
        run(step)
    target, memory, line, hint = str(caught.value).split("\n")[1:]
    assert target.startswith("  target: f32[6] of strides (1,)  from test_written_memory.py:")
    assert memory == "  memory: f32[4,6] of strides (1, 1)"
    assert line.startswith("  in test_written_memory.py:") and line.endswith("   x[1] = 7.0")
    assert hint.endswith("or write into x.clone()")


@pytest.mark.parametrize("mode", ["eager", "state", "argument"])
def test_a_forward_that_marks_overlapping_memory_as_dirty_is_refused(mode):
    text = refusal_of(lambda x: AddsOne.apply(x, True), overlapping, mode)
    assert text.startswith("unsupported operation: more than one element of the written-to tensor")
    assert "\n  memory: f32[4,6] of strides (1, 1)\n" in text


def test_python_functions_of_elements_are_not_written_into_overlapping_memory():
    for write in (lambda x: x.apply_(abs), lambda x: x.map_(x.clone(), max)):
        assert "more than one element" in refusal_of(write, overlapping, "eager")


def test_memory_that_overlaps_itself_is_read(agree):
    def scenario(compile):
        x = overlapping()
        step = compile(lambda y: [x * 2, y.sum(), (x @ y.t())[1], x[1:, 2].clone().add_(1)])
        found = [step(overlapping()), step(x)]
        x.numpy()[0, 1] = 5.0
        return [*found, step(x)]

    agree(scenario)


def test_strided_memory_without_overlaps_is_written(agree):
    def scenario(compile):
        base = np.arange(240, dtype=np.float32)
        arrays = [
            as_strided(base, (4, 6), (8, 36)),
            as_strided(base, (3, 2), (8, 12)),
            base.reshape(10, 24)[::-2, 3::4].T,
            as_strided(base, (1, 6), (0, 4)),
        ]
        step = compile(lambda x: [x.add_(1), x[0].mul_(2), x[:, 1].fill_(5.0)][0] * 1)
        return [[step(lucid.from_numpy(array)), base.copy()] for array in arrays]

    agree(scenario)


def test_an_expanded_tensor_that_repeats_nothing_is_written(agree):
    def scenario(compile):
        def step(x):
            x.expand(1, 2, 3)[0, 1].mul_(3)
            y = (x * 2).expand(1, 2, 3)
            y += 1
            return y

        x = lucid.arange(6.0).reshape(2, 3)
        return [compile(step)(x), x]

    agree(scenario)


def test_windows_side_by_side_are_written_and_those_that_overlap_are_not(run):
    x = lucid.arange(6.0)
    run(lambda: x.unfold(0, 2, 2).add_(1))
    assert x.tolist() == [1, 2, 3, 4, 5, 6]
    with pytest.raises(lucid.LucidError, match="more than one element of the written-to tensor"):
        run(lambda: x.unfold(0, 2, 1).add_(1))
    assert x.tolist() == [1, 2, 3, 4, 5, 6]
