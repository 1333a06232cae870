"""`data_ptr()` in a compiled step: whether tensors share memory, and the address of each call."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import TraceError

STATE = lucid.ones(3, 4)


def test_addresses_tell_which_tensors_share_memory(agree):
    def body(x, y):
        z = x * 2
        part = z[1:]
        pairs = [
            (x, x.detach()), (x, z), (part, z), (part, z[1]), (part.t(), part), (x, x.view(-1)),
            (x, y), (x[1:], y), (z.reshape(-1), z), (z.t().reshape(-1), z), (z, z.contiguous()),
            (STATE, STATE[0]), (STATE, x), (STATE[1], STATE), (STATE.clone(), STATE),
            (z.add_(1), z), (z.data, z),
        ]  # fmt: skip
        shared = [a.data_ptr() == b.data_ptr() for a, b in pairs]
        apart = [a.data_ptr() != b.data_ptr() for a, b in pairs]
        distinct = len({t.data_ptr() for pair in pairs for t in pair})
        return shared, apart, distinct

    def scenario(compile):
        step = compile(body)
        x = lucid.zeros(3, 4)
        return [step(x, x), step(x, x[1:]), step(x, lucid.zeros(3, 4))]

    agree(scenario)


def test_a_step_returns_the_address_that_its_tensor_has_in_this_call(agree):
    def scenario(compile):
        step = compile(lambda x: (x.data_ptr(), x[1].data_ptr(), STATE.data_ptr(), x.sum()))
        found = []
        for x in (lucid.ones(3, 4), lucid.ones(3, 4)):
            whole, row, state, _ = step(x)
            found.append([whole == x.data_ptr(), row - whole, state == STATE.data_ptr()])
        return found

    agree(scenario, traces=1)


def test_a_step_whose_branch_depends_on_sharing_is_right_for_arguments_that_do_or_do_not(agree):
    def scenario(compile):
        step = compile(lambda x, y: x * 2 if x.data_ptr() == y.data_ptr() else x * 3)
        x, y = lucid.ones(3), lucid.ones(3)
        return [step(x, y), step(x, x), step(y, x), step(x, x.detach())]

    agree(scenario)


def windows(memory):
    """Pairs of arguments with the same shapes, which begin at one place or at two."""
    a, b = memory(), memory()
    yield a[0:4], b[0:4]
    yield a[0:4], a[0:8][0:4]
    yield a[0:4], a[4:8]
    yield a[0:4], a[2:6]
    yield a[2:6], a[2:6]
    yield a[2:6], a[1:7][1:5]
    yield a[0:4], b[4:8]


MEMORIES = {
    "of views": lambda: lucid.arange(8.0),
    "of NumPy": lambda: np.arange(8, dtype=np.float32),
    "of tensors on NumPy's": lambda: OnArray(np.arange(8, dtype=np.float32)),
}


class OnArray:
    """Its parts are tensors that know nothing of one another."""

    def __init__(self, array):
        self.array = array

    def __getitem__(self, part):
        array = self.array[part]
        return OnArray(array) if len(array) > 4 else lucid.from_numpy(array)


@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)
@pytest.mark.parametrize(
    "use",
    [
        lambda x, y: x.data_ptr() == y.data_ptr(),
        lambda x, y: x.data_ptr() != y.data_ptr(),
        lambda x, y: len({x.data_ptr(), y.data_ptr()}),
        lambda x, y: [x.data_ptr() == y[2:].data_ptr(), x[2:].data_ptr() == y.data_ptr()],
        lambda x, y: {x.data_ptr(): 1, y.data_ptr(): 2}[x.data_ptr()],
    ],
    ids=["equal", "unequal", "in a set", "of parts", "in a dict"],
)
def test_addresses_of_overlapping_arguments_are_compared_as_they_are_in_each_call(
    agree, memory, use
):
    def scenario(compile):
        step = compile(lambda x, y: [use(lucid.as_tensor(x), lucid.as_tensor(y)), x + y])
        return [step(*pair) for _ in range(2) for pair in windows(memory)]

    agree(scenario)


def test_arguments_on_the_memory_of_state_have_its_address(agree):
    def scenario(compile):
        state, array = lucid.zeros(4), np.zeros(4, np.float32)
        step = compile(lambda x: [x.data_ptr() == state.data_ptr(), x + 1, x.sum() + state[0]])
        of_array = compile(lambda x: x.data_ptr() == lucid.from_numpy(array).data_ptr())
        parts = [
            lucid.zeros(4), state.detach(), state[0:4], state, lucid.zeros(8)[0:4],
            lucid.from_numpy(state.numpy()), lucid.from_numpy(array), lucid.from_numpy(array),
        ]  # fmt: skip
        found = [[step(x), of_array(x)] for x in parts]
        before, other = state.data, lucid.zeros(4)
        state.data = other
        return found, [[step(x)[0], step(x)[0]] for x in (before, other, before)]

    agree(scenario)


def test_gradients_have_the_address_that_each_call_finds(agree):
    def scenario(compile):
        w, flat = lucid.zeros(2, requires_grad=True), lucid.ones(6)
        inside = compile(lambda x: [w.grad.data_ptr() == x.data_ptr(), w.grad + x])
        passed = compile(lambda w, x: [w.grad.data_ptr() == x.data_ptr(), w.grad + x])
        found = []
        for gradient in (lucid.ones(2), flat[0:2], flat[2:4], flat[0:2]):
            w.grad = gradient
            for x in (gradient, flat[2:4], lucid.zeros(2), w.grad):
                found += [inside(x), passed(w, x)]
        return found

    agree(scenario)


def test_the_addresses_of_state_are_numbers_that_may_be_looked_up(agree):
    def scenario(compile):
        frozen, free = lucid.ones(2), lucid.ones(2)
        known = {frozen.data_ptr(): 5}

        @compile
        def step(x):
            return [x * known.get(p.data_ptr(), 7) for p in (frozen, free, x.clone())]

        return [step(lucid.ones(2)) for _ in range(2)]

    agree(scenario, traces=1)


def test_a_step_that_compares_addresses_of_state_alone_is_called_natively(entry):
    other = STATE[1:]

    @lucid.compile
    def step(x):
        return x * 2 if STATE.data_ptr() == other.data_ptr() else x * 3

    for _ in range(3):
        step(lucid.ones(2))
    assert step._latest is not None and step._latest.calls is not None


@pytest.mark.parametrize(
    "use",
    [
        lambda pointer: pointer % 64,
        lambda pointer: int(pointer),
        lambda pointer: f"{pointer}",
        lambda pointer: pointer + 4,
        lambda pointer: 1 if pointer else 0,
        lambda pointer: [1, 2][pointer],
    ],
)
@pytest.mark.parametrize("of", ["argument", "state"])
def test_the_number_itself_is_known_to_no_trace(use, of):
    step = lucid.compile(lambda x: use((x if of == "argument" else STATE).data_ptr()))
    with pytest.raises(TraceError) as caught:
        step(lucid.ones(2))
    first, line, hint = str(caught.value).split("\n")
    assert first.startswith("arithmetic on data_ptr() of f32[")
    assert first.endswith("can't be compiled")
    assert line.startswith("  at test_data_pointers.py:")
    assert hint == "hint: compare it with the data_ptr() of another tensor, or return it"


def test_the_address_of_an_argument_is_no_number():
    step = lucid.compile(lambda x: x.data_ptr() == 4096)
    with pytest.raises(TraceError, match="arithmetic on data_ptr"):
        step(lucid.ones(2))
