"""NumPy on what a step computes: its functions are host calls of the one native step."""

from __future__ import annotations

import json
import types

import numpy as np
import pytest

import lucid
from lucid import nn

F64 = lucid.float64


def model():
    lin = nn.Linear(3, 2, dtype=F64)
    with lucid.no_grad():
        for p in lin.parameters():
            p.copy_(lucid.arange(p.numel(), dtype=F64).reshape(p.shape) * 0.25 - 0.5)
    return lin


def inputs():
    return [
        lucid.tensor([[1.0, 2.0, i % 4], [0.5, -i % 3, 1.0]], dtype=F64, requires_grad=False)
        for i in range(8)
    ]


def shown(value):
    """A result with its types, without histories."""
    if isinstance(value, lucid.Tensor):
        return "tensor", value.dtype, value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value), [shown(x) for x in value]
    if isinstance(value, np.ndarray):
        return "array", value.dtype, value.tolist()
    return type(value), value


def runs(make, traces=1):
    """Compares the calls of `make()`, eager and compiled; every call runs natively."""
    step, eager = lucid.compile(make()), make()
    for x in inputs():
        assert shown(step(x)) == shown(eager(x))
    assert not step.stats.eager_reasons
    assert step.stats.traces <= traces
    return step


def test_a_metric_that_numpy_computes(capsys):
    log = []

    def make():
        lin, target = model(), np.array([0, 1])
        opt = lucid.optim.SGD(lin.parameters(), lr=0.25)

        def step(x):
            h = lin(x)
            loss = h.abs().sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            accuracy = (h.detach().numpy().argmax(1) == target).mean()
            log.append(accuracy)
            print(f"{accuracy:.2f} {accuracy}")
            return accuracy

        return step

    runs(make)
    lines = capsys.readouterr().out.splitlines()
    assert lines[::2] == lines[1::2] and log[::2] == log[1::2]
    assert {type(x) for x in log} == {np.float64}


def test_numpy_between_tensors():
    def make():
        lin = model()

        def step(x):
            s = np.clip(lin(x).detach().numpy(), -1, 1) + 1
            return lucid.from_numpy(s / s.sum(axis=1, keepdims=True)) * lin(x)

        return step

    runs(make)


def test_gradients_flow_beside_numpy():
    def make():
        lin = model()

        def step(x):
            lin.zero_grad()
            weight = lucid.tensor(np.abs(x.numpy()).max(axis=1))
            (lin(x) * weight[:, None]).sum().backward()
            return np.linalg.norm(
                np.concatenate([p.grad.numpy().ravel() for p in lin.parameters()])
            )

        return step

    runs(make)


def test_branches_on_what_numpy_finds():
    def step(x):
        a = x.numpy()
        if a.max() > 2.5:
            return x * 2
        if np.allclose(a[1], [0.5, 0, 1]):
            return x * 3
        return x * a.min()

    assert runs(lambda: step, traces=3).stats.exits


def test_branches_on_elements_of_a_view_that_numpy_makes():
    """Another program takes the view over, not the memory of the run that found it."""

    def step(x):
        turned = (x * 2).numpy().T
        return [int(turned[i, j] < 1.5) for i in range(3) for j in range(2)]

    runs(lambda: step, traces=8)


def test_sizes_that_numpy_finds():
    def step(x):
        a = x.numpy()
        return a[a > 0.75], np.unique(a), int((a > 0).sum()), (a > 5).any()

    runs(lambda: step, traces=6)


def test_numbers_of_numpy():
    def make():
        total = []

        def step(x):
            mean = np.mean([x.sum().item(), x.max().item()])
            total.append(mean)
            norm = np.sqrt(x.pow(2).sum().item())
            largest = x.numpy().max()
            if np.isnan(mean) or not np.isfinite(x.numpy()).all():
                return None
            made = lucid.tensor(mean), lucid.tensor([norm, 1.0]), lucid.tensor(float(mean))
            return mean, x / norm, x * largest + np.float32(2), round(float(mean), 1), made

        return step

    runs(make)


def test_a_number_of_numpys_that_was_compared_is_one_still(agree):
    def scenario(compile):
        a = np.array([1, 2, 3, 4])

        def function(x, i):
            smaller, y = min(a[i], 3), a[i]
            return smaller, max(a[i], 2), y if y < 3 else 3, x * y

        step = compile(function)
        return [step(lucid.ones(2), i) for i in (0, 1, 2, 3, 1, 0)]

    agree(scenario)


def test_numbers_of_numpys_of_two_dtypes(agree):
    """Of `float32 > float64` only the second operand knows what to do."""
    threshold, parts = np.float64(2.5), np.array([0.5, 4.0])

    def scenario(compile):
        @compile
        def step(x):
            mean = x.numpy().mean()
            if mean > threshold or mean - parts[1] > 0:
                return x * 2, mean * threshold
            return x + 1, parts[0] - mean

        return [step(lucid.tensor([1.0, 2.0, 3.0]) * i) for i in range(5)]

    (step,) = agree(scenario, traces=2)
    assert not step.stats.eager_reasons


def test_sums_of_parts_of_arrays_are_compared():
    def step(x):
        a = x.double().numpy()
        order = min(
            [(0, 1), (1, 0)], key=lambda places: sum(a[k, place] for k, place in enumerate(places))
        )
        return x[0, order[0]], sum(a[0]) > sum(a[1])

    runs(lambda: step, traces=4)


def test_numbers_before_and_behind_an_array_are_combined_natively():
    def step(x):
        a = x.numpy()
        return 2.0 * a + 1.0, 1.0 - a, 3 + a * 2

    runs(lambda: step)
    compiled = lucid.compile(step)
    compiled(x=lucid.ones(3))
    assert "host" not in compiled.dump_ir()


@pytest.mark.parametrize(
    "use",
    [
        lambda n, a: (n * a, a * n, n - a, n + a, n / (a + 9.0)),
        lambda n, a: (n > a, a < n, n == a, n != a, n >= a),
        lambda n, a: (n // (a + 9.0), n ** (a / 8.0), divmod(n, a + 9.0)),
        lambda n, a: (n * a[1], n > a[1], a[1] - n, n / (a[1] + 9.0)),
    ],
)
def test_a_number_that_moves_is_combined_with_arrays_on_either_side(agree, use):
    def scenario(compile):
        state = types.SimpleNamespace(n=0)

        @compile
        def step(x):
            state.n += 1
            return use(state.n, x.numpy())

        return [step(lucid.tensor([i, 3.0, 0.5 * i])) for i in range(10)]

    (step,) = agree(scenario)
    assert step.stats.traces <= 2 and not step.stats.eager_reasons


def test_parts_and_properties_of_arrays():
    def step(x):
        a = x.numpy().copy()
        pairs = [(float(u), float(v)) for u, v in a.T]
        return a.T, a.shape, a.dtype, a.ndim, len(a), a[0, 1:], a.tolist(), a[-1].tolist(), pairs

    runs(lambda: step)


def test_tensors_indexed_by_arrays():
    def step(x):
        order = np.argsort(x.numpy()[0])
        return x[:, order], x[:, order[0]] * 2, x[lucid.tensor(order[:2] % 2)]

    runs(lambda: step)


def test_a_number_of_numpys_says_a_place_as_an_int_does(agree):
    def scenario(compile):
        rows, found = lucid.zeros(3, 2), []

        def step(x):
            at = np.argmax(x.numpy()[:, 0])
            row, kept = x[at], rows[at]
            kept += 1.0  # which are views
            x[at, 1:] *= 2.0
            return x * row, rows.sum(0) + rows[at] * 2, x[at]

        step = compile(step)
        for i in range(12):
            x = lucid.tensor([[1.0, i], [i % 4, 2.0], [i % 3, 1.0]])
            found.append(step(x))
            x.zero_()
        return found, rows

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


@pytest.mark.parametrize("given", [np.array(2.0), np.array([2]), np.array(True), np.float64(2)])
@pytest.mark.parametrize(
    "use",
    [
        lambda x, n: x[:n],
        lambda x, n: [x, x, x][n],
        lambda x, n: [x for _ in range(n)],
        lambda x, n: x.sum(n - 1),
        lambda x, n: x.reshape(n, -1),
    ],
)
def test_an_array_that_is_no_index_is_none_in_a_step(use, given):
    """An argument, and what NumPy makes of one: NumPy's own `__index__` says which are."""

    def outcome(step):
        try:
            return shown(step(lucid.arange(4.0), given))
        except TypeError as error:
            assert not isinstance(error, lucid.LucidError) or "SymScalar" not in str(error)
            return TypeError

    for made in (lambda n: n, lambda n: n + n * 0):
        expected = outcome(lambda x, n, made=made: use(x, made(n)))
        step = lucid.compile(lambda x, n, made=made: use(x, made(n)))
        assert [outcome(step), outcome(step)] == [expected] * 2


@pytest.mark.parametrize(
    "function",
    [np.sin, np.median, lambda x: np.percentile(x, 25), np.linalg.det, np.asarray(2).item],
)
def test_functions_of_tensors(function):
    def step(x):
        square = x[:, :2] + 0
        return function(square) if function.__name__ != "item" else function()

    runs(lambda: step)


@pytest.mark.parametrize(
    "function",
    [
        np.argsort,
        np.sort,
        np.ptp,
        lambda x: np.cumsum(x, axis=1),
        lambda x: np.take(x, [0, 1]),
        lambda x: np.repeat(x, 2),
        lambda x: x[0][np.argsort(-x[0])[::-1]],
        lambda x: np.mean(x, axis=0),  # by the tensor's method
    ],
)
def test_functions_of_numpys_that_a_tensor_has_no_method_for(function):
    runs(lambda: lambda x: function(x + 0))


def test_a_returned_array_and_its_tensor_share_memory():
    kept = {}

    @lucid.compile
    def step(x):
        y = x * 2
        kept["all"] = y.numpy()
        return y, y.numpy(), y[1:].numpy(), (x * 3).numpy()

    x = lucid.ones(2, 3)
    for _ in range(3):
        y, whole, part, other = step(x)
        y.add_(1)
        assert whole is kept["all"] or np.shares_memory(whole, kept["all"])
        assert whole.tolist() == y.tolist() and part.tolist() == y[1:].tolist()
        assert other.tolist() == (x * 3).tolist()
    assert step.stats.calls == 3


WRITES_OF_CONSTANTS = {
    "an element": lambda x, t, a: a.__setitem__(0, 1),
    "an element that a call knows": lambda x, t, a: a.__setitem__(0, x.sum().item()),
    "by a function": lambda x, t, a: np.add(a, 1, out=a),
    "the tensor": lambda x, t, a: t.add_(x[0]),
    "a part of the tensor": lambda x, t, a: t[:2].fill_(5),
    "by the caller": lambda x, t, a: None,
}


@pytest.mark.parametrize("make", [lucid.zeros, lucid.ones(3).new_zeros])
@pytest.mark.parametrize("write", WRITES_OF_CONSTANTS.values(), ids=WRITES_OF_CONSTANTS)
def test_data_of_constants_are_shared_with_their_tensor(write, make):
    def step(x):
        t = make(3)
        a = t.numpy()
        write(x, t, a)
        return t * 2, t, a

    compiled, x = lucid.compile(step), lucid.ones(2, 3)
    for _ in range(3):
        (double, t, a), (wanted, *_) = compiled(x), step(x)
        assert (
            double.tolist() == wanted.tolist() and a.tolist() == t.tolist() == (wanted / 2).tolist()
        )
        a += 1
        assert a.tolist() == t.tolist()
    assert compiled.stats.traces == 1 and not compiled.stats.eager_reasons


def test_texts_of_arrays(capsys):
    def step(x):
        a = x.numpy()
        print(a, f"{a.mean():.3f}", a.max())
        return json.dumps({"mean": float(np.mean(a)), "list": a[0].tolist()})

    runs(lambda: step)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 32 and lines[0:2] == lines[2:4]


def test_an_error_of_numpys_is_the_users_before_anything_is_stored():
    count = lucid.zeros((), dtype=F64)

    @lucid.compile
    def step(x):
        count.add_(1)
        return lucid.tensor(np.linalg.inv(x.numpy()))

    good, bad = lucid.eye(2, dtype=F64), lucid.ones(2, 2, dtype=F64)
    step(good)
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        step(bad)
    assert count.item() == 1
    assert step(good).tolist() == good.tolist() and step.stats.traces == 1


def test_memory_of_an_argument_is_given_as_it_is():
    step, x = lucid.compile(lambda x: x.numpy()), lucid.ones(2)
    assert np.shares_memory(step(x), x.numpy()) and not step.stats.eager_reasons
    part = lucid.compile(lambda x: x.numpy()[1:])
    assert np.shares_memory(part(x), x.numpy()) and not part.stats.eager_reasons
    other = lucid.compile(lambda x: x.numpy().reshape(1, 2))
    assert np.shares_memory(other(x), x.numpy())
    assert "on memory from outside" in other.stats.eager_reasons[0]


def test_arrays_on_memory_from_outside_are_kept_as_they_are(agree):
    """As meters keep the labels of a batch, `targets.append(y.detach().cpu().numpy())`."""

    def scenario(compile):
        state, rows, kept = lucid.arange(3.0), lucid.zeros(4, 2), []

        @compile
        def step(x, array):
            made = [x.detach().numpy(), x.view(-1)[::2].numpy(), x.t().numpy()]
            made += [state.detach().cpu().numpy(), rows[1:3].numpy()]
            made += [lucid.from_numpy(array).numpy(), lucid.as_tensor(array)[1:].numpy()]
            kept.append(made)
            state.add_(1)
            rows[1] = state[:2]
            with lucid.no_grad():
                x.mul_(2)
            return x.sum()

        found = []
        for n in range(3):
            x, array = lucid.arange(6.0).reshape(2, 3) + n, np.full(2, n, np.float32)
            found.append(step(x, array))
            array += 1
            memory = [x.numpy()] * 3 + [state.numpy(), rows.numpy()] + [array] * 2
            found += map(np.shares_memory, kept[-1], memory)
        state.add_(1)
        return found + kept

    agree(scenario, traces=1)


def test_memory_of_an_argument_that_constants_were_written_to_is_given_as_it_is():
    def step(x):
        x.zero_()
        return x.numpy(), x.sum()

    compiled, x = lucid.compile(step), lucid.ones(3)
    for _ in range(2):
        array, _ = compiled(x.fill_(1))
        assert np.shares_memory(array, x.numpy()) and not array.any()
    assert not compiled.stats.eager_reasons


def test_arrays_beside_a_result_that_is_differentiated_outside():
    w = lucid.tensor([1.0, 2.0], requires_grad=True)
    step = lucid.compile(lambda x: (w * x, np.ones(2), lucid.zeros(3).numpy()))
    for _ in range(3):
        result, ones, zeros = step(lucid.ones(2))
        result.sum().backward()
        assert ones.tolist() == [1, 1] and zeros.tolist() == [0, 0, 0]
    assert w.grad.tolist() == [3, 3] and not step.stats.eager_reasons


def test_what_may_be_a_part_of_memory_that_is_written_runs_op_by_op():
    def step(x):
        y = x * 2
        a = np.ravel(y.numpy())
        y.add_(1)
        return a.mean()

    compiled = lucid.compile(step)
    for x in inputs():
        assert shown(compiled(x)) == shown(step(x))
    assert "it writes memory" in compiled.stats.eager_reasons[0]


def test_other_libraries_get_no_such_array():
    class Meter:
        def __array__(self, *_):
            return np.ones(2)

    step = lucid.compile(lambda x: memoryview(x.numpy() + 1)[0, 0])
    for x in inputs():
        assert step(x) == x.numpy()[0, 0] + 1
    assert step.stats.eager_reasons


@pytest.mark.parametrize("what", ["reads", "changes", "fills", "prints", "makes tensors"])
def test_a_function_that_numpy_calls_sees_what_the_step_has_left_by_then(what, capsys):
    """It is called once, and may read and change anything: the step runs op by op."""

    def run(mode):
        weight, calls = lucid.ones(()), []

        @lucid.compile(mode=mode)
        def step(x):
            weight.add_(1)
            seen = []

            def each(row):
                if what == "reads":
                    return row.sum() * weight.item()
                if what == "makes tensors":
                    return (lucid.tensor(row) * 2).sum().item()
                if what == "prints":
                    print(row.tolist())
                else:
                    (calls if what == "changes" else seen).append(row.sum())
                return row.sum()

            found = np.apply_along_axis(each, 1, x.numpy())
            return found.tolist(), [float(x) for x in seen], weight.item()

        found = [step(lucid.arange(4.0).reshape(2, 2) + i) for i in range(4)]
        return step, (found, [float(x) for x in calls], capsys.readouterr().out)

    step, compiled = run("default")
    assert compiled == run("eager")[1]
    assert "np.apply_along_axis(), which calls it" in step.stats.eager_reasons[0]


def test_arrays_that_are_given_to_constructors_are_read_natively():
    weight = lucid.ones(3, 1, dtype=lucid.float64)

    @lucid.compile
    def step(x, scale):
        given = lucid.as_tensor(x["data"], dtype=lucid.float64)
        return (lucid.from_numpy(x["data"]) @ weight).sum() * scale + given.sum()

    for i in range(4):
        data = np.full((2, 3), i, np.float64)
        assert step({"data": data}, 0.5).item() == data.sum() * 1.5
    assert step.stats.traces == 1 and not step.stats.eager_reasons


@pytest.mark.parametrize(
    "make",
    [
        lucid.tensor, lucid.asarray, lucid.LongTensor, lucid.DoubleTensor, lucid.BoolTensor,
        lucid.Tensor, lucid.ones(2).new_tensor, lucid.ones(2).new,
    ],
)  # fmt: skip
def test_every_constructor_takes_an_array_that_the_step_computes(make):
    def make_step():
        def step(x):
            ids = x.numpy().astype(np.int64)
            ids *= ids != 0
            return make(ids) * 2, make(ids[0])

        return step

    runs(make_step)


def test_a_transposed_view_of_a_square_array_that_changes():
    """No index gives it, though it has the array's shape and begins where that does."""
    kept = np.zeros((2, 2))
    turned = kept.T

    @lucid.compile
    def step(x):
        kept[0, 1] = x.sum().item()
        return float(turned[1, 0]), float(turned[0, 1])

    for x in inputs():
        assert step(x) == (x.sum().item(), 0.0)


def test_the_base_of_an_array_is_asked_of_the_array_itself(agree):
    memory = np.arange(12.0)

    def scenario(compile):
        @compile
        def step(x, array):
            return x * array.sum(), array.base is memory, array.base is None

        arrays = [memory[:3], np.ones(3), memory[2:5], np.ones(3)]
        return [step(lucid.ones(2), array) for array in arrays]

    agree(scenario)


def test_metrics_of_a_library_are_native_calls_of_it():
    """What scikit-learn reads besides the data is no part of the step."""
    metrics = pytest.importorskip("sklearn.metrics")
    weight = lucid.tensor([[1.0, -1.0], [0.5, 1.0]], requires_grad=True)

    def step(x, y):
        p = x @ weight
        weight.grad = None
        nn.functional.cross_entropy(p, y).backward()
        found = p.detach().argmax(1).numpy()
        with_names = metrics.classification_report(y.numpy(), found, zero_division=0)
        counts = metrics.confusion_matrix(y.numpy(), found)
        return metrics.accuracy_score(y.numpy(), found), counts.tolist(), with_names

    compiled = lucid.compile(step)
    rng = np.random.default_rng(0)
    for i in range(8):
        x = lucid.tensor(rng.standard_normal((12, 2)).astype(np.float32))
        y = lucid.tensor(rng.integers(0, 2, 12) if i % 4 else np.zeros(12, np.int64))
        assert compiled(x, y) == step(x, y)
    assert not compiled.stats.eager_reasons
    assert compiled.stats.traces == 1


def test_a_number_of_numpys_that_has_been_compared_is_one(agree):
    """`best` is kept as what `mean()` gives, and no array of no axes."""

    def scenario(compile):
        state, seen = types.SimpleNamespace(best=np.float32(1e9), last=np.float32(0)), []

        @compile
        def step(x):
            found = x.numpy().mean()
            if found < state.best:
                state.best = found
            state.last = state.last * np.float32(0.5) + found
            return state.best, found - state.last

        for i in (4, 3, 5, 1, 2, 8, 0):
            result = step(lucid.ones(2) * i)
            seen += [[type(x), x] for x in (*result, state.best, state.last)]
        return seen

    agree(scenario)
