"""Numbers that a step reads at each call mean in it what they mean in Python, of any size."""

from __future__ import annotations

import collections
import enum
import itertools
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn

LARGE = 2**53  # from here on f64 has no odd numbers


def shown(value):
    """Values with their types, exactly."""
    if isinstance(value, lucid.Tensor):
        return repr((value.dtype, value.tolist()))
    return [shown(x) for x in value] if isinstance(value, (list, tuple)) else repr(value)


def outcomes(step, calls):
    """What each call returns, or the error that it raises."""
    found = []
    for args in calls:
        try:
            found.append(shown(step(*args)))
        except (ArithmeticError, ValueError, TypeError, lucid.LucidError) as error:
            found.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
    return found


def integers():
    return lucid.tensor([1, 2, 3])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: (x + n, x * n, n - x, x // n, x == n, x < n),
        lambda x, n: (n + 1, n * 3, n - 2 * n, n // 7, n % 7, -n, abs(-n), n**2, divmod(n, 5)),
        lambda x, n: (x + (n + 1), x * (n // 3), x + abs(-n) % 10, n > LARGE + 6, x + n * n),
        lambda x, n: (n / 3, 1 / n, n * 0.5, x * (n / 3), n + 0.5, 2.0**-n, float(n)),
        lambda x, n: (n & 3, n | 1, n ^ 5, n << 3, n >> 2, ~n, 6 & n, x & n, x + (n & 7)),
        lambda x, n: lucid.where(x > n, x, n),
        lambda x, n: (x.clamp(max=n), x.add(x, alpha=n), lucid.full((2,), n), lucid.tensor(n)),
    ],
)
def test_large_ints_as_arguments_are_exact(agree, entry, function):
    def scenario(compile):
        step = compile(function)
        return outcomes(step, [(integers(), LARGE + 1 + 2 * i) for i in range(9)])

    agree(scenario)


@pytest.mark.parametrize("start", [0, LARGE, 2**63 - 4, -(2**63) - 3, 2**70])
def test_large_ints_that_a_step_reads_elsewhere_are_exact(agree, entry, start):
    def scenario(compile):
        n, held = start, {"n": [start]}

        @compile
        def step(x):
            return x.double() * n, n, held["n"][0] + 1, n - held["n"][0], n % 10 + x

        found = []
        for _ in range(8):
            found += outcomes(step, [(integers(),)])
            n += 1
            held["n"][0] += 3
        return found

    agree(scenario)


@pytest.mark.parametrize("start", [0, LARGE, 2**63 - 4])
def test_large_counters_of_a_step_are_exact(agree, entry, start):
    def scenario(compile):
        class Counting(nn.Module):
            def __init__(self):
                super().__init__()
                self.t = start

            def forward(self, x):
                self.t += 1
                return x.double() * self.t, x * (self.t - start), x + self.t % 7, self.t

        module = Counting()
        step = compile(module)
        return [*outcomes(step, [(integers(),)] * 8), module.t]

    agree(scenario)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (lucid.int8, [*range(100, 140, 5), 3]),
        (lucid.uint8, [*range(9, -9, -3), 255, 256]),
        (lucid.int32, [2**31 - 6 + i for i in range(9)]),
        (lucid.int64, [2**63 - 6 + i for i in range(9)]),
    ],
)
def test_an_int_that_is_out_of_its_tensors_range_is_refused(agree, entry, dtype, values):
    def scenario(compile):
        step = compile(lambda x, n: (x + n, n))
        return outcomes(step, [(integers().to(dtype), n) for n in values])

    agree(scenario)


def test_a_float_becomes_an_int_as_python_has_it(agree):
    def scenario(compile):
        step = compile(lambda a: (lucid.full((2,), a, dtype=lucid.int32), a))
        return outcomes(step, [(a,) for a in (1.5, -2.5, 2.0**31, math.nan, -math.inf, 7.9)])

    agree(scenario)


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda x, a: x * (1 / a), (4.0, 0.0, 2.0)),
        (lambda x, a: x * (7 % a) + 7 // a, (4.0, 0.0, 2.0)),
        (lambda x, a: x * divmod(7, a)[0], (4.0, 0.0, 2.0)),
        (lambda x, a: x * math.sqrt(a), (4.0, -4.0, 9.0)),
        (lambda x, a: x * math.log(a), (4.0, 0.0, -1.0, 9.0)),
        (lambda x, a: x * math.exp(a), (4.0, 1000.0, 2.0)),
        (lambda x, a: x * a**2, (4.0, 1e200, 2.0)),
        (lambda x, a: x * a**0.5, (4.0, -4.0, 9.0)),
        (lambda x, a: x * a**-1, (4.0, 0.0, 9.0)),
        (lambda x, a: x * round(a), (4.0, math.nan, math.inf, 9.0)),
        (lambda x, a: x * np.float64(1) ** a / 2, (4.0, 0.0, 9.0)),
    ],
)
def test_what_python_refuses_of_a_number_is_refused_at_each_call(agree, entry, function, values):
    def scenario(compile):
        step = compile(function)
        return outcomes(step, [(lucid.ones(2), a) for a in values])

    agree(scenario)


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda x, a: (x.quantile(a), x.mul(0).bernoulli(a / 9)), (0.5, 1.5, 0.25, 9.5, -0.5)),
        (lambda x, a: lucid.addmm(x / 0, x, x, beta=a), (0.5, 0.25, 0.0, 2.0)),
        (lambda x, a: x.long() ** int(a) + x.long() ** round(a), (2.0, 3.0, -1.0, 4.0)),
        (lambda x, a: nn.functional.dropout(x, a, training=False), (0.5, 0.25, 1.5, 0.75)),
        (lambda x, a: x.clone().normal_(0.0, a) * 0, (0.5, 0.25, -1.0, 0.0)),
        (lambda x, a: lucid.normal(x, a) * 0, (0.5, 0.25, -1.0, 0.0)),
        (lambda x, a: x.clone().uniform_(-a, a) * 0, (0.5, 0.25, -1.0, 0.0)),
        (lambda x, a: x.clone().exponential_(a) * 0, (0.5, 0.25, 0.0, -1.0, 2.0)),
        (lambda x, a: nn.functional.pairwise_distance(x, x + 1, p=a), (2.0, 1.0, 0.0, 3.0)),
    ],
)
def test_what_functions_check_of_numbers_they_check_at_each_call(agree, entry, function, values):
    def scenario(compile):
        step = compile(function)
        return outcomes(step, [(lucid.eye(2), a) for a in values])

    agree(scenario)


@pytest.mark.parametrize("values", [(0.0, 5.0, 6.0, 0.0, 2.0), (5.0, 6.0, 0.0, 2.0, 0.0)])
def test_an_error_of_arithmetic_that_a_step_catches_is_caught_when_it_occurs(agree, values):
    def scenario(compile):
        @compile
        def step(x, a):
            try:
                return x / (1 / a)
            except ZeroDivisionError:
                return x - 1

        return outcomes(step, [(lucid.ones(2), a) for a in values])

    agree(scenario, traces=2)


def test_a_negative_power_of_zero_is_an_error_when_it_occurs(agree):
    def scenario(compile):
        @compile
        def step(x, a):
            try:
                return x * a**-1
            except ZeroDivisionError:
                return x - 1

        return outcomes(step, [(lucid.ones(2), a) for a in (1, 2, 0, 4, 0, 3)])

    agree(scenario)


def test_a_power_of_ints_is_an_int_or_a_float(agree):
    def scenario(compile):
        step = compile(lambda x, n: (2**n, x * 2**n, n**2, (-2) ** n))
        return outcomes(step, [(integers(), n) for n in (1, 2, 3, 4, 5, 6, -1, -2, 0, 7)])

    agree(scenario)


def test_ints_floats_and_bools_are_told_apart_wherever_they_stand(agree, entry):
    def scenario(compile):
        n, values = 1, (1, 2, 3, 4, 1.0, 2.0, 5, True, False, 2, 3.0, np.float64(2), np.float32(2))

        @compile
        def step(x):
            return x * n, n, n + 1

        by_argument = compile(lambda x, n: (x * n, n, n + 1))
        found = []
        for value in values:
            n = value
            found += [*outcomes(step, [(integers(),)]), *outcomes(by_argument, [(integers(), n)])]
        return found

    agree(scenario)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64, np.bool_])
def test_numbers_of_numpys_keep_their_class_and_its_arithmetic(agree, kind):
    def scenario(compile):
        step = compile(lambda x, a: (a, a * 3, a + 0.1, 2 * a, x * a, x * (a * 3)))
        return outcomes(step, [(lucid.ones(2).double(), kind(a)) for a in (1, 0, 3)])

    agree(scenario)


@pytest.mark.parametrize("values", [(1, 2, 3, 4, 5, 6, 7, 8), (1.5, 2.5, 3.25)])
def test_arithmetic_with_numpys_numbers_has_their_types(agree, values):
    def scenario(compile):
        @compile
        def step(x, n):
            products = np.int64(3) * n, n * np.int64(3), np.float64(2) * n, np.float32(2) * n
            functions = np.sqrt(n), np.isnan(n), np.maximum(n, 2), np.array(2.0) * n
            return products, functions, n + np.float32(0.1), x * (np.int64(3) * n)

        return outcomes(step, [(integers(), n) for n in values])

    agree(scenario)


def test_nan_infinities_and_zeros_with_a_sign_are_themselves(agree, entry):
    def scenario(compile):
        step = compile(lambda x, a: (x * a, a, x + a, -a, a == a, a > 0, x / math.copysign(2, a)))
        values = (1.0, math.nan, math.inf, -math.inf, -0.0, 0.0, -0.0, 2.0)
        looking = compile(lambda x, a: x * float(f"{a}"))
        calls = [(lucid.ones(2), a) for a in values]
        return [outcomes(step, calls), outcomes(looking, calls)]

    agree(scenario)


def test_roundings_of_one_number_are_told_apart(agree):
    def scenario(compile):
        step = compile(lambda x, a: x * round(a, 1) + x * round(a, 2) * 100 + round(a))
        return [step(lucid.ones(2).double(), a) for a in (1.234, 5.678, 2.345)]

    agree(scenario, traces=1)


RANGES = {
    "as it is": lambda n, x: (range(n), f"{range(n)}", repr(range(n))),
    "its class": lambda n, x: (type(range(n)) is range, isinstance(range(n), range)),
    "its ends": lambda n, x: (range(n).start, range(n).stop, range(n).step, len(range(n))),
    "a tensor": lambda n, x: (lucid.tensor(range(n)), lucid.as_tensor(range(n))),
    "an array": lambda n, x: (np.array(range(n)), np.random.default_rng(3).permutation(range(n))),
    "an index": lambda n, x: x[range(n)],
    "containers": lambda n, x: (
        [*range(n)],
        set(range(n)),
        dict.fromkeys(range(n)),
        tuple(range(n)),
    ),
    "questions": lambda n, x: (3 in range(n), range(n) == range(3), bool(range(n)), hash(range(n))),
    "counts": lambda n, x: (range(n).count(2), sum(range(n)), any(range(n)), range(n)[:2]),
    "rounds": lambda n, x: [x * i for i in range(n)] + [x - i for i in reversed(range(n))],
    "pairs": lambda n, x: [x[i] * k for i, k in zip(range(n), reversed(range(n)), strict=True)],
    "numbered": lambda n, x: [x * i * k for i, k in enumerate(range(n))],
    "mapped": lambda n, x: [*map(x.__mul__, range(n))],
}


@pytest.mark.parametrize("use", RANGES)
def test_a_range_of_a_number_that_moves_is_that_of_the_call(agree, use):
    def scenario(compile):
        state = types.SimpleNamespace(n=2)

        @compile
        def step(x):
            state.n = (state.n + 1) % 6
            return RANGES[use](state.n, x)

        return [step(lucid.arange(8.0) + i) for i in range(14)]

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons
    assert step.stats.traces <= (1 if use == "as it is" else 7)


def test_arrays_that_numpy_makes_of_numbers_hold_those_of_the_call(agree):
    def scenario(compile):
        @compile
        def step(x, a):
            made = np.array([a, 1]), np.full(2, a), np.asarray(a), np.stack([a, a]), np.zeros(2) + a
            return (
                made,
                np.round(a, 1),
                np.clip(a, 0, 1),
                np.linspace(0, a, 3),
                np.where(a > 1, a, 0),
            )

        calls = [(integers(), a) for a in (0.25, 1.75, math.nan, 3, 4, 5, 6, 7, 8)]
        return outcomes(step, calls)

    agree(scenario)


@pytest.mark.parametrize("values", [(0.5, 2.5, 7.25, 9.5), (2, 3, 4, 5, 6, 7, 8)])
def test_logarithms_to_a_base_are_those_of_python(agree, values):
    def scenario(compile):
        step = compile(lambda x, a: (math.log(a, 10), x * math.log(a, 2.0), math.log(7, a)))
        return outcomes(step, [(lucid.ones(2).double(), a) for a in values])

    agree(scenario, traces=1 if type(values[0]) is float else None)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, a: (a * 1j, 1j * a, a + (1 - 2j), (2 + 1j) / a, 1j**a),
        lambda x, a: pow(a, 2, 5),
        lambda x, a: pow(7, a, 5) if isinstance(a, int) else a,
    ],
)
def test_numbers_with_complex_ones_and_powers_to_a_modulus_are_those_of_python(agree, function):
    def scenario(compile):
        step = compile(function)
        return outcomes(step, [(integers(), a) for a in (0.5, 1.5, 1, 2, 3, 4, 5, 6, 7)])

    agree(scenario)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, k, d: x * k * d.get(k, 9.0),
        lambda x, k, d: x * k * (2.0 if k in d else 3.0),
        lambda x, k, d: x * k * (2.0 if k in [*d] else 3.0),
    ],
)
def test_a_short_float_is_a_key_by_its_hash(agree, function):
    """np.float32(0.1) equals 0.1, and isn't found in a dict that has it; 0.5 is."""

    def scenario(compile):
        table = {0.1: 4.0, 0.5: 5.0}
        step = compile(lambda x, k: function(x, k, table))
        return [step(integers(), np.float32(k)) for k in (0.3, 0.2, 0.1, 0.5, 0.1)]

    agree(scenario)


def test_numbers_that_are_keys_are_the_numbers_of_the_call(agree):
    def scenario(compile):
        class Counting:
            n = 0

        table, given, counting = {}, {"n": 0}, Counting()

        @compile
        def step(x, given):
            counting.n += 1
            table[counting.n] = counting.n * 2
            table["at", counting.n] = x * counting.n
            given["n"] += 1
            given[given["n"]] = x

        for _ in range(6):
            step(integers(), given)
        return [(*map(repr, items), *items.items()) for items in (table, given)]

    agree(scenario)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, r: lucid.tensor([r[0], r[1] * 2]),
        lambda x, r: lucid.as_tensor([[r[0], 1.5], [True, r[1]]], dtype=lucid.float64),
        lambda x, r: lucid.tensor([r[0] + 0.99 * r[1], x.sum().item(), 3]),
        lambda x, r: lucid.tensor([[x.sum(), r[1]], [x[0] > 1, 2]], requires_grad=True),
        lambda x, r: lucid.tensor([x.tolist(), r]),
        lambda x, r: lucid.FloatTensor([int(x.sum()), r[0]]),
    ],
)
def test_lists_of_numbers_that_move_make_tensors_of_each_calls_numbers(agree, function):
    def scenario(compile):
        step = compile(function)
        found = [shown(step(lucid.tensor([i, 0.5 * i]), [i + 0.1, -0.5 * i])) for i in range(5)]
        if compile is lucid.compile:
            assert step.stats.traces == 1, step.stats.retrace_reasons
        return found

    agree(scenario)


class Level(enum.IntEnum):
    LOW = 1


MILESTONES, DROPS = {3, 7, 12}, {0: 0.1, 5: 0.05, 12: 0.01}
TABLE = [0.1 / (1 + i) for i in range(30)]

LOOKS: dict[str, tuple[int, Callable[[int, lucid.Tensor], Any]]] = {
    "in a set": (4, lambda t, x: x * 0.5 if t in MILESTONES else x),
    "not in a set": (4, lambda t, x: x * 0.5 if t not in MILESTONES else x),
    "in a constant": (3, lambda t, x: x * 0.5 if t in {4, 9} else x),
    "in a dict": (4, lambda t, x: x * DROPS[t] if t in DROPS else x),
    "get of a dict": (4, lambda t, x: x * DROPS.get(t, 1.0)),
    "a bool that equals it": (3, lambda t, x: x * {True: 3.0, False: 5.0}.get(t % 4, 7.0)),
    "a member of an enum": (4, lambda t, x: x * 2 if t % 4 in {Level.LOW: 1} else x),
    "a number of NumPy's": (4, lambda t, x: x * 2 if t % 4 in {np.int64(2)} else x),
    "among words": (2, lambda t, x: x * 3 if t in {"a": 1, 2: 5} else x),
    "a list": (1, lambda t, x: x * TABLE[t]),
    "a tuple": (1, lambda t, x: x * tuple(TABLE)[t % 7]),
    "from the end": (1, lambda t, x: x * TABLE[-1 - t]),
    "the last one for ever": (1, lambda t, x: x * TABLE[min(t, 10)]),
    "an array": (1, lambda t, x: x * np.linspace(0.1, 0.2, 30)[t]),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_count_is_looked_up_without_a_program_for_each(name: str) -> None:
    traces, scaled = LOOKS[name]

    def run(is_compiled: bool) -> tuple[list[float], Any]:
        counts = {"t": 0}

        def step(x: lucid.Tensor) -> lucid.Tensor:
            t = counts["t"]
            counts["t"] += 1
            return scaled(t, x).sum()

        called = lucid.compile(step, audit=False) if is_compiled else step
        return [called(lucid.ones(3) * (1 + i % 4)).item() for i in range(24)], called

    expected, _ = run(False)
    found, step = run(True)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert step.stats.traces == traces
    assert not step.stats.eager_reasons


HANDED_ON: dict[str, Callable[[list[float]], Any]] = {
    "pairwise": lambda w: [b - a for a, b in itertools.pairwise(w)],
    "chain": lambda w: list(itertools.chain(w, [1.0])),
    "islice": lambda w: list(itertools.islice(w, 1, None)),
    "cycle": lambda w: list(itertools.islice(itertools.cycle(w), 5)),
    "product": lambda w: [a * b for a, b in itertools.product(w, w)],
    "combinations": lambda w: [a * b for a, b in itertools.combinations(w, 2)],
    "permutations": lambda w: [a - 2 * b for a, b in itertools.permutations(w, 2)],
    "zip_longest": lambda w: [a + b for a, b in itertools.zip_longest(w, [1.0], fillvalue=0.5)],
    "deque": lambda w: list(collections.deque(w, maxlen=2)),
}


@pytest.mark.parametrize("name", HANDED_ON)
def test_numbers_of_a_list_that_iterators_hand_on_are_read_at_each_call(
    agree: Any, name: str
) -> None:
    def scenario(compile: Any) -> Any:
        weights = [0.5, 1.0, 2.0]
        step = compile(lambda x: lucid.stack([x * a for a in HANDED_ON[name](weights)]))
        found = []
        for i in range(6):
            weights[1] += 0.25 * i
            found.append(step(lucid.ones(2)))
        return found

    (step,) = agree(scenario, traces=2)
    assert not step.stats.eager_reasons


class Named:
    """A key that is equal to those of its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def test_an_entry_is_read_by_keys_that_have_become_equal(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        keys, table = [Named("a")], {Named("a"): 1.0, Named("b"): 2.0}
        step = compile(lambda x: x * table[keys[0]])
        found = []
        for i in range(8):
            if i == 2:
                keys[0] = Named("b")
            if i == 4:
                table[Named("b")] = 5.0
            if i == 6:
                keys[0].name = "a"
            found.append(step(lucid.ones(2)))
        return found

    agree(scenario, traces=4)


@pytest.mark.parametrize("kind", [list, lambda numbers: dict(enumerate(numbers))])
def test_a_table_that_changes_is_seen(kind: Callable[[Any], Any]) -> None:
    table, counts = kind([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), {"t": 0}

    @lucid.compile(audit=False)
    def step(x: lucid.Tensor) -> lucid.Tensor:
        counts["t"] += 1
        return x * table[counts["t"]]

    x = lucid.ones(())
    assert [step(x).item() for _ in range(3)] == [2.0, 3.0, 4.0]
    assert step.stats.traces == 1
    table[4] = 50.0
    assert [step(x).item() for _ in range(2)] == [50.0, 6.0]
    with pytest.raises(LookupError):
        step(x)


def test_code_in_c_may_keep_something_by_a_number_of_the_step() -> None:
    found: collections.Counter[int] = collections.Counter()

    @lucid.compile
    def step(y: lucid.Tensor) -> lucid.Tensor:
        found.update(y.tolist())
        return y.sum()

    for k in range(4):
        step(lucid.tensor([0, 1, 1, k]))
    assert found == {0: 5, 1: 9, 2: 1, 3: 1}
    assert {type(key) for key in found} == {int}


def _row(kept, x):
    kept.rows[kept.at] = x
    kept.at = (kept.at + 1) % 7


def _columns(kept, x):
    kept.rows[..., kept.at : kept.at + 2] = lucid.stack([x.sum(), x.mean()])
    kept.at = (kept.at + 1) % 2


def _from_the_end(kept, x):
    kept.rows[None, -1 - kept.at, 1:] = x[1:] * 2
    kept.at += 1


def _an_element_through_a_view(kept, x):
    kept.rows.T[1][kept.at] = x.sum()
    kept.rows[kept.at, 0] = x.mean().item()
    kept.at += 1


def _until_it_is_full(kept, x):
    try:
        kept.rows[kept.at] = x
    except IndexError:
        kept.at = -8
    kept.at += 1


def _rows_with_a_gradient(kept, x):
    w = x.clone().requires_grad_()
    made = kept.rows.clone()
    made[kept.at : kept.at + 3] = w * w
    made.sum().backward()
    kept.rows[kept.at] = w.grad
    kept.at += 1


@pytest.mark.parametrize(
    ("write", "traces"),
    [
        *((_row, 1), (_columns, 2), (_from_the_end, 1), (_an_element_through_a_view, 1)),
        *((_until_it_is_full, 2), (_rows_with_a_gradient, 2)),
    ],
)
def test_a_buffer_is_written_at_a_place_that_moves(write, traces):
    found = []
    for compile in (lambda function: function, lucid.compile):
        kept = types.SimpleNamespace(rows=lucid.zeros(7, 3), at=0)

        def step(x, kept=kept):
            write(kept, x)
            return kept.rows.sum()

        run = compile(step)
        given = [lucid.tensor([1.0, 2.0, 3.0]) + i for i in range(6 if traces == 1 else 5)]
        found.append([(run(x).item(), kept.rows.tolist(), kept.at) for x in [*given, given[0]]])
    assert found[0] == found[1]
    assert run.stats.traces <= traces and not run.stats.eager_reasons


SEEN_ROWS = lucid.arange(60.0, dtype=lucid.float64).reshape(20, 3)
CLASSES = lucid.arange(20) % 3


def _listed(kept, x):
    kept.at += 1
    return SEEN_ROWS[[0, kept.at, -kept.at]] * x, SEEN_ROWS[[kept.at, 1], [0, 2]]


def _batch(kept, x):
    first, after = kept.at * 2, (kept.at + 1) * 2
    kept.at += 1
    return nn.functional.cross_entropy(SEEN_ROWS[first:after] * x, CLASSES[first:after])


def _row_and_element(kept, x):
    kept.at += 1
    return (
        (SEEN_ROWS[kept.at] * x).sum(),
        SEEN_ROWS[None, kept.at, 1] * 2,
        SEEN_ROWS[..., 3 - kept.at].sum(),
    )


def _counted(kept, x):
    kept.rows[kept.at] += x.sum()
    kept.rows[kept.at, 1:] *= 3
    kept.rows[kept.at : kept.at + 2] -= 1
    kept.rows[kept.at + 1] = kept.rows[kept.at]
    kept.at += 1
    return kept.rows.sum()


def _looked_at(kept, x):
    before = kept.rows[kept.at, 0].item()
    kept.rows[kept.at + 1] = x.sum() + before
    kept.at += 1
    return (x if kept.rows[kept.at].sum() > 100 else x * 2), before


def _of_a_parameter(kept, x):
    weight = kept.rows.clone().requires_grad_()
    ((weight[kept.at] + weight[0]) * x).sum().backward()
    kept.rows[kept.at] = weight.grad[kept.at] + weight.grad[0]
    kept.at += 1
    return kept.rows


def _written_as_a_view(kept, x):
    kept.rows[kept.at].add_(x.sum())
    kept.rows[kept.at].view(1, 3)[0, 1] = x.sum()
    kept.at += 1
    return kept.rows.sum()


def _read_after_the_rest_was_written(kept, x):
    row = kept.rows[kept.at]
    kept.rows.add_(1)
    kept.at += 1
    return row.sum()


def _kept_and_returned(kept, x):
    kept.row = kept.rows[kept.at]
    kept.rows[0] = x.sum()
    kept.at += 1
    return SEEN_ROWS[kept.at]


def _written_by_numpy(kept, x):
    array = kept.rows[kept.at].numpy()
    array[0] = x.sum().item()
    kept.at += 1
    return kept.rows.sum()


READS = [_listed, _batch, _row_and_element, _counted, _looked_at, _of_a_parameter]
VIEWS = [_written_as_a_view, _read_after_the_rest_was_written, _kept_and_returned]
VIEWS += [_written_by_numpy]


@pytest.mark.parametrize("read", [*READS, *VIEWS])
def test_parts_are_read_at_a_place_that_moves(read):
    found = []
    for compile in (lambda function: function, lucid.compile):
        kept = types.SimpleNamespace(rows=lucid.zeros(7, 3, dtype=lucid.float64), at=0)

        def step(x, kept=kept):
            return read(kept, x)

        run, results = compile(step), []
        for i in range(3 if read is _row_and_element else 5):
            result = run(lucid.tensor([1.0, 2.0, 3.0], dtype=lucid.float64) + i)
            leaves = result if isinstance(result, tuple) else (result,)
            texts = [x.tolist() if isinstance(x, lucid.Tensor) else x for x in leaves]
            results.append((texts, kept.rows.tolist(), kept.at))
        found.append(results)
    for one, other in zip(*found, strict=True):
        for left, right in zip(one, other, strict=True):
            assert np.allclose(
                np.hstack([*map(np.ravel, left)]) if type(left) is list else left,
                np.hstack([*map(np.ravel, right)]) if type(right) is list else right,
            )
    assert not run.stats.eager_reasons
    assert run.stats.traces <= (2 if read in READS else 3)


def test_a_part_that_a_backward_needs_says_that_it_was_written():
    kept = types.SimpleNamespace(rows=lucid.zeros(4, 3), at=0)

    @lucid.compile
    def step(x, is_written):
        w = x.clone().requires_grad_()
        loss = (kept.rows[kept.at] * w).sum()
        if is_written:
            kept.rows[kept.at] = 5
        kept.at += 1
        loss.backward()
        return w.grad

    for _ in range(2):
        step(lucid.ones(3), False)
    with pytest.raises(lucid.LucidError, match="modified by an inplace operation"):
        step(lucid.ones(3), True)


REFUSED = {
    "+ str": lambda n: n + "x",
    "str +": lambda n: "x" + n,
    "None *": lambda n: None * n,
    "- list": lambda n: n - [1],
    "list +": lambda n: [1] + n,
    "dict /": lambda n: {} / n,
    "** str": lambda n: n ** "x",
    "< None": lambda n: n < None,
    ">= str": lambda n: n >= "b",
    "sum": lambda n: sum([n, None]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_number_is_refused_with_pythons_words(name):
    """Their classes are those of the numbers that move, and that the step computes."""
    settings = types.SimpleNamespace(rate=0.0, count=0)

    def body(x):
        found = []
        for number in (settings.rate, settings.count, x.sum().item(), int(x.sum())):
            with pytest.raises(TypeError) as error:
                REFUSED[name](number)
            found.append(str(error.value))
        return found

    step = lucid.compile(body)
    for i in range(4):
        settings.rate, settings.count = 0.5 + i, i
        assert step(lucid.ones(i + 2)) == body(lucid.ones(i + 2))
