"""Arrays of NumPy's that a step writes, from outside or its own, or reads where a call says."""

from __future__ import annotations

import copy
import random
import warnings

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.compiler.guards.collector import index_of

F64 = lucid.float64
CALLS = 7


def inputs():
    return [
        lucid.tensor([[1.0, 2.0, i % 4], [0.5, -i % 3, 1.0]], dtype=F64).clone()
        for i in range(CALLS)
    ]


def model():
    lin = nn.Linear(3, 2, dtype=F64)
    with lucid.no_grad():
        for p in lin.parameters():
            p.copy_(lucid.arange(p.numel(), dtype=F64).reshape(p.shape) * 0.25 - 0.5)
    return lin


class State:
    """What a step keeps."""

    def __init__(self, **values):
        self.__dict__.update(values)


def a_log_of_losses():
    lin, losses, at = model(), np.zeros(CALLS), State(i=0)
    opt = lucid.optim.SGD(lin.parameters(), lr=0.1)

    def step(x):
        loss = lin(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses[at.i] = loss.item()
        at.i += 1
        return loss

    return step, [losses, at]


def a_confusion_matrix():
    lin, counts, by_hand = model(), np.zeros((2, 2), np.int64), np.zeros((2, 2), np.int64)

    def step(x):
        predicted = lin(x).argmax(1)
        np.add.at(counts, (np.array([0, 1]), predicted.numpy()), 1)
        for target, found in zip([0, 1], predicted.tolist(), strict=True):
            by_hand[target, found] += 1
        return counts.sum()

    return step, [counts, by_hand]


def places_that_tensors_say():
    lin, counts, seen = model(), np.zeros((2, 2), np.int64), np.zeros(2, np.int32)

    def step(x):
        labels, predicted = (x[:, 2] > 1).long(), lin(x).argmax(1)
        for label, found in zip(labels, predicted, strict=True):
            counts[label, found] += 1
            seen[found] += 2
        seen[predicted[:1]] += 5  # which is one number for NumPy, not a list of one
        counts[labels[:1, None], 1] -= 1
        seen[x[0, 2] > 2] += 7  # and this is 0 or 1, not a mask
        rows = counts[labels]
        return rows, counts[predicted[0]] + 0, seen[labels[1:]]

    return step, [counts, seen]


def running_statistics():
    kept = State(n=0, mean=np.zeros(3), m2=np.zeros(3))

    def step(x):
        for row in x.numpy():
            kept.n += 1
            before = row - kept.mean
            kept.mean += before / kept.n
            kept.m2 += before * (row - kept.mean)
        std = np.sqrt(kept.m2 / max(kept.n - 1, 1)) + 1e-8
        return (x - lucid.from_numpy(kept.mean.copy())) / lucid.tensor(std)

    return step, [kept]


def a_replay_buffer():
    memory = State(seen=np.zeros((5, 3)), priorities=np.ones(5, np.float32), at=0)
    lin, draws = model(), np.random.default_rng(0)

    def step(x):
        memory.seen[memory.at % 5] = x[0].numpy()
        memory.at += 1
        chosen = draws.integers(0, 5, size=2)
        loss = lin(lucid.tensor(memory.seen[chosen])).abs().sum(1)
        memory.priorities[chosen] = loss.detach().float().numpy()
        return loss.sum()

    return step, [memory]


def a_table_of_values():
    table, at = np.zeros((3, 2)), State(n=0)

    def step(x):
        state = at.n % 3
        at.n += 1
        action = int(np.argmax(table[state]))
        target = float(x[0, 2]) + 0.9 * table[(state + 1) % 3].max()
        table[state, action] += 0.5 * (target - table[state, action])
        return table[state, action]

    return step, [table]


def rows_and_other_parts():
    table = np.arange(12.0).reshape(3, 4)

    def step(x):
        row = table[1]
        row += x.sum().item()
        row[0] = 5
        table[2:, ::2] -= 1
        table[..., -1] = table[:, 0]
        table[::-1][0][1:3] = x.numpy()[0, :2]
        table[[0, 2], 1] *= 2
        return table[2, 0] * x, (row * 1).sum(), table[table > 3]

    return step, [table]


def methods_and_functions():
    a, b = np.arange(4.0), np.zeros(4)

    def step(x):
        a.fill(x.sum().item())
        a[2] = -1
        a.sort()
        np.copyto(b, a)
        np.add(b, 1, out=b)
        np.clip(b, 0, 5, out=b)
        b.cumsum(out=b)
        b[b > 2] *= 2
        np.fill_diagonal(b.reshape(2, 2).copy(), 0)
        return np.maximum(a, b)

    return step, [a, b]


def dtypes():
    arrays = [np.zeros((3, 4), dtype) for dtype in ("f4", "f8", "i8", "i4", "?")]
    at = State(i=0)

    def step(x):
        row = at.i % 3
        at.i += 1
        for array in arrays:
            array[row, 1] = x.sum().item()
            array[0] = 1
            array[:, 2] = row
            array[-1, -1] = True
            array[row] = array[(row + 1) % 3]
            if array.dtype != bool:
                array[1] += 2
                array[1:, 0] *= 3
        return [array[1, 1] for array in arrays], [array.sum() for array in arrays]

    return step, arrays


def seen_by_python():
    seen, texts, kept = np.zeros(2), [], {}

    def step(x):
        seen[0] += x.sum().item()
        texts.append(f"{seen} {seen[0]:.2f}")
        seen[1] -= 1
        texts.append(str(seen))
        kept.update(
            array=seen, copy=[seen.copy(), copy.copy(seen)], sum=seen.sum(), items=seen.tolist()
        )
        return (x * seen[0] if seen[1] > -4 else x), len(seen), max(seen), [*seen]

    return step, [seen, texts, kept]


def views_from_outside():
    rows, by_columns = np.zeros((4, 3)), np.zeros((3, 2), order="F")
    row, part = rows[1], rows[::2, 1:]

    def step(x):
        rows[1:3] += x.numpy()
        row[0] = -1
        part[1] *= 2
        by_columns[0] += x.numpy()[:, 0]
        return row.sum(), part.sum(), rows[2], row, rows[1:, ::2][1]

    return step, [rows, row, part, by_columns]


def bound_anew():
    kept = State(a=np.zeros(3), b=np.ones(3))

    def step(x):
        kept.a = kept.a + x[0].numpy()
        kept.a[1] = 0
        kept.b *= 2
        kept.a, kept.b = kept.b, kept.a
        return kept.a, kept.b.sum()

    return step, [kept]


def made_by_the_step():
    def step(x):
        total = np.zeros((2, 3))
        same = total
        total += x.numpy()
        first = total[0]
        first[1] = 9
        labels = np.zeros((2, 3), np.float32)
        labels[np.arange(2), x.argmax(1).numpy()] = 1
        shared = lucid.from_numpy(labels)
        labels[0, 0] += 0.5
        sums = np.empty(3)
        for i in range(3):
            sums[i] = x[0, i].item() * 2
        rows = []
        for i in range(3):
            sums[0] = i
            rows.append((sums * x.numpy()[0, 0]).sum())
        known = np.zeros(2)
        for i in range(3):
            known[0] = i
            rows.append((known * x[0, 0].item()).sum())
        return total, same, first, shared * x.float(), labels, sums, rows

    return step, []


def given_arrays():
    log, at = np.zeros(CALLS + 1), State(i=0)

    def inner(x, log):
        log[3] = x.sum().item()
        log += 1
        return x * 2

    compiled = []

    def step(x):
        at.i += 1
        return compiled[0](x, log)

    return step, [log], inner, compiled


def memory_of_tensors():
    lin = model()

    def step(x):
        y = x * 2
        array = y.numpy()
        array[0] = 0.5
        y.add_(1)
        mean = array.mean()
        array[1, 1] = 9
        with lucid.no_grad():
            lin.weight.detach().numpy()[...] *= 0.5
        return y, mean, array, lin(x)

    return step, [lin.weight]


def batches_of_a_data_set():
    rows, classes = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 2
    draws, lin, at = np.random.default_rng(1), model(), State(i=0, order=np.arange(30))

    def step(x):
        drawn = draws.integers(0, 30, 4)
        first = at.i * 4
        chosen = at.order[first : first + 4]
        at.i += 1
        if at.i == 4:
            at.order = draws.permutation(30)
        loss = nn.functional.cross_entropy(
            lin(lucid.from_numpy(rows[drawn])), lucid.tensor(classes[drawn])
        )
        part = lucid.tensor(rows[first : first + 4]) * lucid.tensor(rows[at.i])
        made = np.arange(6.0) * 2
        return loss, lin(lucid.tensor(rows[chosen])), part, made[drawn % 6], made[at.i % 6]

    return step, [at]


def a_shuffled_order():
    rows, at = np.arange(30.0).reshape(10, 3), State(order=np.arange(10), i=0)
    draws, others = np.random.default_rng(3), np.random.RandomState(2)

    def step(x):
        if at.i >= 10:
            draws.shuffle(at.order)
            at.i = 0
        batch = rows[at.order[at.i : at.i + 5]]
        at.i += 5
        made = np.arange(4)
        others.shuffle(made)
        return lucid.from_numpy(batch).sum() * x, made

    return step, [at]


NATIVE = [
    *((a_log_of_losses, 1), (a_confusion_matrix, 4), (running_statistics, 1), (a_replay_buffer, 1)),
    *((a_table_of_values, 4), (rows_and_other_parts, 3), (methods_and_functions, 1), (dtypes, 1)),
    *((seen_by_python, 3), (views_from_outside, 1), (bound_anew, 1), (made_by_the_step, 1)),
    *((memory_of_tensors, 1), (given_arrays, 1), (batches_of_a_data_set, 3)),
    *((a_shuffled_order, 3), (places_that_tensors_say, 2)),
]


def plain(value):
    """A value with types, without histories."""
    if isinstance(value, lucid.Tensor):
        return "tensor", value.dtype, value.detach().numpy().copy()
    if isinstance(value, np.ndarray):
        return "array", value.dtype, value.copy()
    if isinstance(value, State):
        return plain(vars(value))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value)
    return value


def assert_same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert_same([*found.items()], [*expected.items()])
    elif isinstance(expected, (np.ndarray, float, np.floating)):
        assert np.allclose(found, expected, rtol=1e-12, atol=1e-12)
    else:
        assert found == expected


def results(make, compile):
    step, state, *inner = make()
    if inner:
        inner[1].append(compile(inner[0]))
        compiled = inner[1][0]
    else:
        step = compiled = compile(step)
    return [(plain(step(x)), plain(x), plain(state)) for x in inputs()], compiled


@pytest.mark.parametrize(("make", "traces"), NATIVE, ids=[make.__name__ for make, _ in NATIVE])
def test_arrays_that_a_step_writes_are_what_eager_mode_makes_of_them(make, traces):
    expected, _ = results(make, lambda function: function)
    found, step = results(make, lucid.compile)
    assert not step.stats.eager_reasons
    assert_same(found, expected)
    assert step.stats.traces <= traces


def test_elements_of_arrays_at_places_that_tensors_say_need_no_call_of_python():
    counts, total = np.zeros((3, 3), np.int64), np.zeros(3)

    @lucid.compile
    def step(found, labels):
        for one, label in zip(found, labels, strict=True):
            counts[label, one] += 1
        total[found.sum() % 3] = total[labels[0]] + 1.5
        return found + labels

    for found, labels in (([0, 1], [2, 1]), ([2, 2], [2, 0]), ([-1, 1], [1, 0])):
        step(lucid.tensor(found), lucid.tensor(labels))
    assert counts.tolist() == [[0, 1, 1], [0, 1, 1], [1, 0, 1]]
    assert total.tolist() == [3.0, 1.5, 0.0]
    assert step.stats.traces == 1 and "host" not in step.dump_ir()
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 1 with size 3"):
        step(lucid.tensor([3, 0]), lucid.tensor([0, 0]))


def test_a_view_of_an_array_from_outside_is_one_of_its_memory():
    log = np.zeros((3, 2))

    @lucid.compile
    def step(x):
        log[1] += x.numpy()
        return log[1:][0]

    for i in range(3):
        found = step(lucid.ones(2, dtype=F64))
        assert np.shares_memory(found, log[1]) and found.tolist() == [i + 1.0] * 2
    assert not step.stats.eager_reasons


def test_a_function_of_the_users_may_call_what_it_reads_out():
    given = np.zeros(3)

    def scaled(x, out):
        return x * len(out.data)

    step = lucid.compile(lambda x: scaled(x, out=given))
    assert step(lucid.ones(2)).tolist() == [3.0, 3.0]
    assert step.stats.traces == 1 and not step.stats.eager_reasons


def test_containers_of_arrays_that_become_late_are_themselves():
    @lucid.compile
    def step(x):
        made = np.zeros((3, 4))
        found = [1, made[:, :]]
        row = made[int(x.argmax()) % 3]
        found.append(2)
        found.extend([np.stack([made, made + x.sum().item()]), (made,)])
        made[0, 0] = x.sum().item()
        return found, row

    for x in inputs():
        found, row = step(x)
        assert [type(item) for item in found] == [int, np.ndarray, int, np.ndarray, tuple]
        total = x.sum().item()
        assert found[1][0, 0] == found[4][0][0, 0] == total and row[0] in (0.0, total)
        assert (found[3][1] == total).all() and not found[3][0].any()
    assert not step.stats.eager_reasons


def test_arithmetic_with_numbers_of_numpys_other_kinds():
    weights, count = np.array([0.5, 2.0], np.float32), np.int64(3)

    def step(x):
        loss = x.sum().item()
        return (
            weights[1] / loss,
            loss - weights[0],
            max(weights[0], loss),
            count * loss,
            loss // count,
        )

    compiled = lucid.compile(step)
    for x in inputs():
        assert repr(compiled(x + 4)) == repr(step(x + 4))
    assert not compiled.stats.eager_reasons


def test_an_array_that_others_change_is_read_at_each_call():
    seen = np.zeros(3)
    step = lucid.compile(lambda x: x * seen.mean() + seen[1])
    x = lucid.ones(2, dtype=F64)
    for i in range(10):
        seen[:] = np.arange(3) * i
        assert step(x).tolist() == [2.0 * i] * 2
    assert step.stats.traces == 3 and not step.stats.eager_reasons


def test_what_only_digits_tell_is_traced_for_each_content_of_an_array():
    seen = np.zeros(3)
    step = lucid.compile(lambda x: x * len(seen.tobytes().strip(b"\0")))
    x = lucid.ones(2)
    for i in range(4):
        seen[0] = i
        assert step(x).tolist() == [len(seen.tobytes().strip(b"\0"))] * 2
    assert step.stats.traces == 4 and not step.stats.eager_reasons


def test_a_failed_step_leaves_arrays_as_they_were():
    log, bad = np.zeros(3), [False]

    @lucid.compile
    def step(x):
        log[1] = x.sum().item()
        if bad[0]:
            raise ValueError("bad")
        return x

    step(lucid.ones(2))
    bad[0] = True
    with pytest.raises(ValueError, match="bad"):
        step(lucid.zeros(2))
    assert log.tolist() == [0.0, 2.0, 0.0]


def test_an_index_outside_of_an_array_is_an_index_error():
    log, at = np.zeros((2, 3)), [0]

    @lucid.compile
    def step(x, is_caught):
        try:
            log[..., at[0], None] = x.sum().item()
        except IndexError:
            if not is_caught:
                raise
            log[:, : x.argmin().item() + 1] = 0
            at[0] = -4
        at[0] += 1
        return x

    for _ in range(3):
        step(lucid.ones(2), False)
    assert log.tolist() == [[2.0] * 3] * 2 and step.stats.traces == 1
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 1 with size 3"):
        step(lucid.ones(2), False)
    assert log.tolist() == [[2.0] * 3] * 2 and at == [3]
    step(lucid.ones(2), True)
    step(lucid.zeros(2), True)
    assert log.tolist() == [[0.0, 2.0, 2.0]] * 2 and at == [-2]
    assert "it handles IndexError" in step.stats.eager_reasons[0]


def test_errors_of_numpys_are_those_of_eager_mode():
    log, whole, fixed = np.zeros(3), np.zeros(3, np.int64), np.zeros(3)
    fixed.flags.writeable = False

    def shape(x):
        log[:] = x.numpy()

    def casting(x):
        whole.__iadd__(x.numpy()[0])

    def read_only(x):
        fixed[0] = 1

    for function in (shape, casting, read_only):
        with pytest.raises((ValueError, TypeError)) as expected:
            function(inputs()[0])
        with pytest.raises(expected.type, match=str(expected.value)[:20]):
            lucid.compile(function)(inputs()[0])
    assert not log.any() and not whole.any()


def test_a_tensor_on_the_memory_of_an_array_that_is_written_makes_the_call_op_by_op():
    buffer = np.zeros((2, 3))
    shared = lucid.from_numpy(buffer)

    @lucid.compile
    def step(x):
        buffer[1] = x[0].numpy()
        return shared.sum()

    for x in inputs():
        assert step(x).item() == x[0].sum().item()
    assert "share memory" in step.stats.eager_reasons[0]


def test_a_branch_on_a_tensor_whose_memory_an_array_has_written_sees_that(agree):
    def scenario(compile):
        base = np.zeros((2, 3))
        rows = [*lucid.from_numpy(base)]

        def body(i):
            base[i] += 1
            return [row for row in rows if float(row.sum()) > 2][-1] * 2

        step = compile(body)
        return [step(i % 2) for i in range(4)]

    (step,) = agree(scenario)
    assert "share memory" in step.stats.eager_reasons[0]


def test_python_that_reads_an_array_whose_memory_a_tensor_has_written_sees_that(agree):
    def scenario(compile):
        base = np.zeros((2, 3))
        whole = lucid.from_numpy(base)

        def waits():
            while base.sum() < 20:
                whole.add_(1)
            return whole * 2

        def looks():
            whole.add_(1)
            return whole * [row for row in base if row.sum() > 2][-1][0]

        return [compile(waits)(), compile(looks)(), base]

    for step in agree(scenario):
        assert step.stats.eager_reasons[0].startswith("it reads base in Python, and writes")


def test_arrays_that_the_graph_can_not_have_are_written_op_by_op():
    small, rows = np.zeros(2, np.float16), np.zeros(3, [("r", "f8"), ("n", "i4")])

    def step(x):
        small[0] = x.sum().item()
        rows["r"][1] = x.sum().item()
        rows[2]["n"] += 1
        return x

    compiled = lucid.compile(step)
    for i, x in enumerate(inputs()):
        compiled(x)
        assert small[0] == np.float16(x.sum().item()) == np.float16(rows["r"][1])
        assert rows["n"][2] == i + 1
    assert len(compiled.stats.eager_reasons) == CALLS


@pytest.mark.parametrize("dtype", ["float16", "complex64", "float32"])
def test_what_a_trace_has_written_through_a_view_is_put_back(dtype):
    array = np.zeros(2, dtype)

    @lucid.compile
    def step(x):
        array[:] -= 1
        return x * 2

    for call in range(3):
        step(lucid.ones(1))
        assert array.tolist() == [-1 - call] * 2


def test_the_index_of_a_view():
    rng, found = random.Random(1), 0
    for _ in range(400):
        shape = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
        array = np.zeros(shape, order=rng.choice("CF"))
        key = []
        for size in shape:
            low, high = sorted(rng.sample(range(size + 1), 2))
            step = rng.choice([1, 1, 2, -1, -2])
            back = slice(high - 1, low - 1 if low else None, step)
            key.append(rng.choice([low, back if step < 0 else slice(low, high, step)]))
        view = array[*key, ...]
        index = index_of(array, view)
        if index is not None:
            same = array[*index, ...]
            same[...] = rng.random()
            assert same.shape == view.shape and (same == view).all() and np.any(view)
        found += index is not None
    assert found > 390
    assert index_of(np.zeros((2, 3)), np.zeros((2, 3))) is None


@pytest.mark.parametrize("read", ["x * buffer[0]", "buffer[x.argsort().numpy()]"])
def test_a_tensor_on_memory_that_the_step_reads_as_an_array_is_written_op_by_op(read):
    buffer = np.zeros(3)
    shared, scope = lucid.from_numpy(buffer), {"buffer": buffer}

    @lucid.compile
    def step(x):
        shared.add_(x)
        return eval(read, {"x": x, **scope})

    for i in range(4):
        x = lucid.tensor([2.0, 0.0, 1.0], dtype=F64) + i
        expected = eval(read, {"x": x, "buffer": buffer + x.numpy()})
        assert step(x).tolist() == expected.tolist()
    assert step.stats.eager_reasons


WRITES = [
    *("array.flat[0] += x.sum().item()", "memoryview(array)[0] = kept[0]", "array.T[0] += kept[0]"),
    *("np.add(array, 1, array)", "np.multiply.at(array, [0], 2)", "[*map(array.fill, kept)]"),
    *("np.fill_diagonal(array.reshape(1, -1), kept[0])", "lucid.from_numpy(array).add_(1)"),
    *("lucid.from_numpy(array).numpy()[0] = kept[0]", "array[:] = array[::-1].copy()"),
]


@pytest.mark.parametrize("write", WRITES)
def test_each_way_to_write_an_array_is_seen(write):
    found = []
    for compile in (lambda function: function, lucid.compile):
        scope = {"np": np, "lucid": lucid, "array": np.arange(3.0), "kept": [0.0]}
        exec(f"def step(x):\n  kept[0] += 1\n  {write}\n  return array.copy()", scope)
        step = compile(scope["step"])
        found.append(
            [(step(lucid.ones(2) * i).tolist(), scope["array"].tolist()) for i in range(4)]
        )
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("write", "native"),
    [
        ("t = t + x", True),
        ("t += x", True),
        ("t[0] = 1.0", True),
        ("t.copy_(x).mul_(2); a[0] += 1; t -= 1", True),
        ("lucid.add(x, 1, out=t)", True),
        ("t.view(-1)[1:].copy_(x.view(-1)[1:])", True),
        ("lucid.from_numpy(a[1]).copy_(x[0])", True),
        ("a = a.T; a = np.zeros(4).reshape(2, 2); t = lucid.from_numpy(a); t += x", True),
        ("a = np.zeros((2, 2)); lucid.from_numpy(a[1]).copy_(x[0])", False),
    ],
)
def test_an_array_that_a_step_makes_has_what_tensors_write_on_its_memory(write, native):
    code = f"def step(x):\n  a = np.zeros((2, 2))\n  t = lucid.from_numpy(a)\n  {write}\n"
    scope = {"np": np, "lucid": lucid}
    exec(f"{code}  return [a, a.sum(), {{'row': a[0]}}['row'], np.square(a), t]", scope)
    step = lucid.compile(scope["step"])
    for i in range(3):
        x = lucid.arange(4.0, dtype=F64).reshape(2, 2) + i
        for found, expected in zip(step(x), scope["step"](x), strict=True):
            assert type(found) is type(expected)
            np.testing.assert_array_equal(found, expected)
    assert bool(step.stats.eager_reasons) is not native


@pytest.mark.parametrize("is_live", [False, True])
def test_an_array_whose_shape_or_dtype_is_set_is_another_one(is_live):
    array = np.arange(4, dtype=np.float32)
    step = lucid.compile(lambda: lucid.as_tensor(array) * 2 if is_live else lucid.tensor(array) * 2)
    for change in (None, ("shape", (2, 2)), ("dtype", np.int32), ("shape", (4,)), ("shape", (4,))):
        if change is not None:
            with warnings.catch_warnings():  # newer NumPys would rather not have it
                warnings.simplefilter("ignore", DeprecationWarning)
                setattr(array, *change)
        for _ in range(2):
            found = step()
            np.testing.assert_array_equal(found.numpy(), array * 2, strict=True)
    assert step.stats.traces == 4
    assert (
        "the layout of array: ((4,), (4,), dtype('float32')) -> " in step.stats.retrace_reasons[0]
    )


def test_numpy_writes_an_array_that_has_elements_at_one_address():
    def windows():
        return np.lib.stride_tricks.as_strided(np.arange(6, dtype=np.float32), (4, 3), (4, 4))

    def step(x):
        x += 1
        return (x * 2).sum()

    compiled, x, y = lucid.compile(step), windows(), windows()
    for _ in range(3):
        assert compiled(x) == step(y)
        np.testing.assert_array_equal(x, y)
    assert "which has elements at one address" in compiled.stats.eager_reasons[-1]
