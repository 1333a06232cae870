"""`data_ptr()` in a compiled step: whether tensors share memory, and the address of each call."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    "use",
    [
        lambda pointer: pointer % 64,
        lambda pointer: int(pointer),
        lambda pointer: f"{pointer}",
        lambda pointer: pointer == 4096,
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
