"""What a step reads of the world at each call: random numbers, clocks, entropy, files."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import random
import secrets
import statistics
import sys
import time
import types
import uuid

import numpy as np
import pytest

import lucid
from lucid import nn

F64 = lucid.float64
CALLS = 24


def seeded(make, compile, **options):
    """What calls give and leave, with the same random numbers, and the step."""
    random.seed(5)
    np.random.seed(5)
    step = make(np.random.default_rng(5))
    step = lucid.compile(step, **options) if compile else step
    found = [step(lucid.tensor([1.0, 2.0, i % 5], dtype=F64)) for i in range(CALLS)]
    return [repr(found), random.random(), np.random.rand()], step


def agrees(make, **options):
    expected, _ = seeded(make, False)
    found, step = seeded(make, True, **options)
    assert found == expected
    return step.stats


def test_scheduled_sampling():
    def make(_):
        return lambda x: x * 2 if random.random() < 0.5 else x * 3

    stats = agrees(make)
    assert stats.traces == 2 and stats.exits and not stats.eager_reasons


def test_rounds_that_branch_on_a_draw_are_one_loop():
    """Scheduled sampling: of the first rounds, which are watched, each outcome has a path."""

    def make(rng):
        weights = lucid.tensor(rng.standard_normal((3, 3)), requires_grad=True)

        def step(x):
            weights.grad, given, scores = None, x, []
            for t in range(12):
                scores.append(lucid.tanh(given @ weights))
                teacher = random.random() < 0.5
                given = x * t if teacher else scores[-1].detach() * 2
            lucid.stack(scores).sum().backward()
            return weights.grad

        return step

    stats = agrees(make)
    assert stats.traces <= 8 and not stats.eager_reasons


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_decoders_that_are_called_for_each_token_are_in_one_loop_with_what_teaches_them(kind):
    """The layer's one step is no loop of its own."""

    def make(rng):
        decoder, head = kind(3, 3).double(), nn.Linear(3, 3).double()
        for weight in [*decoder.parameters(), *head.parameters()]:
            weight.data = lucid.tensor(rng.standard_normal(weight.shape))
        optimizer = lucid.optim.SGD([*decoder.parameters(), *head.parameters()], 0.1)

        def step(x):
            optimizer.zero_grad()
            state, given, loss = None, x[None, None], 0.0
            for t in range(9):
                out, state = decoder(given, state)
                out = head(out)
                loss = loss + ((out - x * t) ** 2).mean()
                teacher = random.random() < 0.5
                given = x[None, None] * t if teacher else out.detach()
            loss.backward()
            optimizer.step()
            return loss.detach().float()  # the sums of one call are rounded in another order

        return step

    stats = agrees(make)
    assert stats.traces <= 8 and not stats.eager_reasons


def test_rounds_of_which_one_way_draws_more_have_paths():
    """Which are the same numbers, in the same order, as eager mode draws."""

    def make(_):
        def step(x):
            for _ in range(9):
                x = x + (random.randint(1, 5) if random.random() < 0.9 else 1)
            return x

        return step

    agrees(make)


def test_rounds_of_which_each_way_draws_from_its_own_bounds_have_paths():
    def make(_):
        def step(x):
            for _ in range(9):
                x = x * (random.uniform(1, 2) if random.random() < 0.5 else random.uniform(3, 4))
            return x

        return step

    agrees(make)


def test_lists_of_numbers_are_shuffled_at_each_call():
    """Those that the step makes, and one from outside, which each call leaves in its order."""

    def make(_):
        own, outside = random.Random(3), [0, 2, 1]

        def step(x):
            order, values = list(range(len(x))), [0.5, 1.5]
            random.shuffle(order)
            random.shuffle(outside)
            own.shuffle(values)
            return x[order], order, x[outside[:2]] * values[0], list(outside)

        return step

    stats = agrees(make)
    assert stats.traces == 1 and not stats.eager_reasons


@pytest.mark.parametrize(
    "draw",
    [
        lambda x, rng: x * random.gauss(0.0, 1.0),
        lambda x, rng: x * random.uniform(-1, 1),
        lambda x, rng: x + np.random.rand(),
        lambda x, rng: x + np.random.sample() * np.random.ranf(3).sum(),
        lambda x, rng: x + lucid.tensor(rng.normal(0.0, 2.0, size=x.shape)),
        lambda x, rng: x + lucid.from_numpy(np.random.randn(*x.shape)),
        lambda x, rng: x[rng.permutation(3)[:2]],
        lambda x, rng: x[rng.integers(0, 3, size=5)],
        lambda x, rng: x[random.sample(range(3), 2)],
        lambda x, rng: x * random.choice([0.5, 2.0, 3.0]) + random.choice(range(9)),
        lambda x, rng: x * sum(random.choices([1.0, 2.5], weights=[1, 3], k=2)),
        lambda x, rng: (x, random.sample((1, 2, 4), k=2)),
        lambda x, rng: x[np.random.choice(3, 2, replace=False)].sum() * rng.random(),
        lambda x, rng: x * rng.normal(float(x.sum()), 1.0),
        lambda x, rng: (x, random.random(), rng.random(dtype=np.float32), np.random.rand(2)),
    ],
)
def test_numbers_are_drawn_at_each_call(draw):
    def make(rng):
        return lambda x: draw(x, rng)

    stats = agrees(make)
    assert stats.traces == 1 and not stats.eager_reasons


@pytest.mark.parametrize(
    "step",
    [
        lambda x, rng: (np.random.seed(3), x * np.random.rand())[1],
        lambda x, rng: (x, rng.bit_generator.random_raw() % 1009),
        lambda x, rng: (np.random.set_bit_generator(np.random.MT19937(3)), x * np.random.rand())[1],
    ],
    ids=["seed", "words", "generator"],
)
def test_a_step_that_asks_or_sets_a_state_runs_op_by_op(step):
    try:
        stats = agrees(lambda rng: lambda x: step(x, rng))
    finally:
        np.random.set_bit_generator(np.random.MT19937())
    assert stats.traces == 0 and len(stats.eager_reasons) > 3


def test_objects_are_chosen_at_each_call():
    stats = agrees(lambda _: lambda x: random.choice([lucid.sin, lucid.cos, lucid.tanh])(x))
    assert stats.traces == 3 and not stats.eager_reasons
    assert agrees(lambda _: lambda x: x * random.choice([1, 2.0])).traces == 2
    names = {"sin": lucid.sin, "cos": lucid.cos}
    stats = agrees(lambda _: lambda x: names[random.choices([*names], weights=[1, 3])[0]](x))
    assert stats.traces == 2 and not stats.eager_reasons


@pytest.mark.parametrize("items", [range(4), [0, 2, 1, 2], ["a", "b"]])
@pytest.mark.parametrize("method", [random.sample, random.choices])
def test_as_many_are_drawn_as_a_draw_says(items, method):
    """A program has a list of one length; a call that draws another one is another's."""

    def make(_):
        def step(x):
            found = method(items, k=random.randint(1, 2))
            return x * len(found), found

        return step

    stats = agrees(make)
    assert stats.traces > 1 and not stats.eager_reasons


@pytest.mark.parametrize("options", [{}, {"max_paths": 3}])
def test_draws_of_a_run_that_took_another_path_are_made_once(options):
    def make(rng):
        def step(x):
            a = random.random()
            b = np.random.rand() if (x * a).sum() > 2 else rng.uniform(0, 2)
            count, noise = random.randint(0, 3), np.random.randn()  # the second one is kept
            for _ in range(count):
                x = x + np.random.rand() + noise
            return (x * b, a, count) if x.sum() < 8 else x * random.random()

        return step

    stats = agrees(make, **options)
    assert stats.exits and bool(stats.eager_reasons) == bool(options)


def test_draws_before_an_error_that_the_step_handles_are_made_once():
    def make(rng):
        def step(x):
            a, at = random.random() + np.random.randn(), np.random.randint(0, 5)
            try:
                y = x[lucid.tensor([at])] * rng.random()
            except IndexError:
                y = x[:1] * rng.random()
            return y * a + np.random.choice(9)

        return step

    stats = agrees(make)
    assert stats.calls and "which it may handle" in stats.eager_reasons[0]


def test_the_bounds_of_whole_numbers_may_move():
    def make(_):
        lucid.manual_seed(5)
        buffer = {"size": 0}

        def step(x):
            buffer["size"] += 1
            return x[lucid.randint(0, buffer["size"] % 3 + 1, (4,))]

        return step

    stats = agrees(make)
    assert stats.traces <= 2 and not stats.eager_reasons


@pytest.mark.parametrize(
    "draw",
    [
        lambda n, kept: random.sample(range(n), 2),
        lambda n, kept: random.choices(range(n), k=3),
        lambda n, kept: [random.choice(range(n))],
        lambda n, kept: np.random.choice(range(n), 2),
        lambda n, kept: np.random.choice(n, 2, p=kept[:n] / kept[:n].sum()),
    ],
)
def test_rows_of_a_buffer_that_fills_up_are_drawn(draw):
    def make(_):
        kept, state = np.zeros(16), types.SimpleNamespace(n=1)
        rows = lucid.zeros(16, 3, dtype=F64)

        def step(x):
            kept[state.n % 16] = state.n
            rows[state.n % 16] = x
            state.n += 1
            size = min(state.n, 16)
            places = draw(size, kept)
            return rows[lucid.as_tensor(places)], size * kept[places]

        return step

    stats = agrees(make)
    assert stats.traces <= 5 and not stats.eager_reasons, stats


def test_draws_of_the_step_and_of_a_host_function_keep_their_order():
    class Noise(lucid.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return lucid.from_numpy(x.numpy() + np.random.rand())

        @staticmethod
        def backward(ctx, g):
            return g

    def make(_):
        return lambda x: Noise.apply(x * np.random.rand()) * np.random.rand()

    assert not agrees(make).eager_reasons


@pytest.mark.parametrize(
    "use",
    [
        lambda x: random.sample([x, -x, x, 2 * x], 3)[0],
        lambda x: (random.shuffle(LABELS), x * len(LABELS[0]))[1],
        lambda x: x * len(random.sample("a", 2, counts=[2])),
        lambda x: (random.seed(3), x * random.random())[1],
    ],
)
def test_what_has_no_numbers_for_results_runs_op_by_op(use):
    LABELS[:] = ["a", "bc", "def"]
    expected, _ = seeded(lambda _: use, False)
    LABELS[:] = ["a", "bc", "def"]
    found, step = seeded(lambda _: use, True)
    assert found == expected and len(step.stats.eager_reasons) == CALLS


LABELS: list[str] = []
SYSTEM = random.SystemRandom()


def test_a_generator_of_the_system_runs_op_by_op():
    step = lucid.compile(lambda x: x * SYSTEM.random())
    assert len({step(lucid.ones((), dtype=F64)).item() for _ in range(3)}) == 3
    assert "it draws random numbers, by SystemRandom.random()" in step.stats.eager_reasons[0]


def test_a_generator_of_the_steps_own_draws_by_what_the_step_computes():
    step = lucid.compile(lambda x: np.random.default_rng(3).normal(x.sum().item()))
    for i in range(3):
        expected = np.random.default_rng(3).normal(2.0 * i)
        assert step(lucid.full((2,), float(i))) == expected


def test_a_generator_of_the_steps_own_gives_the_same_numbers_at_each_call():
    step = lucid.compile(lambda x: x * np.random.default_rng(3).normal())
    expected = np.random.default_rng(3).normal()
    assert [step(lucid.ones((), dtype=F64)).item() for _ in range(3)] == [expected] * 3


def test_generators_that_are_arguments():
    step = lucid.compile(lambda x, rng: x * rng.random())
    for seed in (1, 2, 1, 2):
        rng, other = np.random.default_rng(seed), np.random.default_rng(seed)
        for _ in range(3):
            assert step(lucid.ones((), dtype=F64), rng).item() == other.random()


def test_clocks_are_read_when_what_comes_before_has_been_computed(capsys):
    weight, history = lucid.randn(256, 256), []

    @lucid.compile
    def step(x):
        start = time.perf_counter()
        y = x
        for _ in range(8):
            y = y @ weight
        middle = time.perf_counter()
        z = (x @ weight).sum()
        history.append(middle - start)
        print(f"{time.time() - start > 0}")
        return y.sum() + z, time.perf_counter_ns()

    x, before = lucid.randn(256, 256), time.perf_counter_ns()
    ends = [step(x)[1] for _ in range(5)]
    assert step.stats.traces == 1 and not step.stats.eager_reasons
    assert [before, *ends] == sorted([before, *ends])
    assert len(set(history)) == 5 and min(history) > 0
    assert capsys.readouterr().out == "True\n" * 5


def test_branches_on_a_clock():
    class Last:
        said = 0.0

    @lucid.compile
    def step(x):
        now = time.monotonic()
        if now - Last.said > 1e9:
            Last.said = now
            return x
        return x * 2

    assert [step(lucid.ones(1)).item() for _ in range(3)] == [2, 2, 2]
    Last.said = -1e12
    assert step(lucid.ones(1)).item() == 1 and Last.said > 0
    assert step(lucid.ones(1)).item() == 2
    assert step.stats.paths == 1 and not step.stats.eager_reasons


def test_times_in_texts_and_what_python_keeps(capsys):
    start, kept = datetime.datetime.now(), {}

    @lucid.compile
    def step(x):
        now = datetime.datetime.now()
        kept["last"] = now
        print(f"[{now:%Y}] {now.strftime('%Y')} {time.strftime('%Y')} {time.localtime().tm_year}")
        print(str(datetime.timedelta(seconds=int(time.time() - start.timestamp())))[:3])
        ended = datetime.datetime.now() > start + datetime.timedelta(days=1)
        return (x * 2, ended, (now - start).total_seconds(), now.date().isoformat(), now.year)

    for _ in range(5):
        before = datetime.datetime.now()
        _, ended, seconds, day, year = step(lucid.ones(2))
        assert before <= kept["last"] <= datetime.datetime.now() and not ended
        assert seconds == (kept["last"] - start).total_seconds() and year == kept["last"].year
        assert day == kept["last"].date().isoformat()
    assert step.stats.traces == 1 and not step.stats.eager_reasons
    assert capsys.readouterr().out == (f"[{year}] {year} {year} {year}\n" + "0:0\n") * 5


def test_random_bytes_are_other_ones_at_each_call():
    kept = []

    @lucid.compile
    def step(x):
        kept.append({"id": uuid.uuid4(), "short": uuid.uuid4().hex[:8], "raw": os.urandom(4)})
        number = int.from_bytes(os.urandom(2), "little")
        return x * (number >= 0), number, f"run-{secrets.token_hex(4)}", secrets.randbits(40)

    found = [step(lucid.ones(2))[1:] for _ in range(6)]
    assert step.stats.traces == 1 and not step.stats.eager_reasons
    assert all(type(x["id"]) is uuid.UUID and type(x["raw"]) is bytes for x in kept)
    assert all(len(x["short"]) == 8 and len(x["raw"]) == 4 for x in kept)
    assert all(len({x[name] for x in kept}) == 6 for name in kept[0])
    assert all(len({x[i] for x in found}) == 6 for i in (1, 2)) and len({x[0] for x in found}) > 1
    assert all(len(text) == 12 and type(text) is str for _, text, _ in found)


def test_who_looks_into_such_an_object_runs_op_by_op():
    step = lucid.compile(lambda x: x * len({uuid.uuid4(): 1}))
    assert step(lucid.ones(1)).item() == 1
    assert "it looks at UUID that each call finds anew" in str(step.stats.eager_reasons[0])


def test_a_time_that_cannot_be_written_down_runs_op_by_op():
    class Zone(datetime.tzinfo):
        def utcoffset(self, _):
            return datetime.timedelta(hours=1)

        dst = utcoffset

    zone = Zone()
    step = lucid.compile(lambda x: (x * 2, datetime.datetime.now(zone)))
    _, now = step(lucid.ones(1))
    assert now.tzinfo is zone and "it calls datetime.now()" in step.stats.eager_reasons[0]
    near = lucid.compile(lambda x: (x * 2, datetime.datetime.now(datetime.UTC)))
    assert near(lucid.ones(1))[1].tzinfo is datetime.UTC and not near.stats.eager_reasons


def test_a_step_that_reads_a_file_runs_op_by_op(tmp_path):
    path = tmp_path / "settings.json"

    @lucid.compile
    def step(x):
        with open(path) as file:
            return x * json.load(file)["scale"]

    for scale in (1.0, 1.0, 2.0, 2.0, 1.0):
        path.write_text(json.dumps({"scale": scale}))
        assert step(lucid.ones(1)).item() == scale
    path.unlink()
    with pytest.raises(FileNotFoundError):
        step(lucid.ones(1))
    reason = step.stats.eager_reasons[0]
    assert reason.startswith("it uses a file, by io.open()") and "with open(path)" in reason


def test_a_file_that_the_step_writes_and_reads(tmp_path):
    path = tmp_path / "out.txt"

    def writes(x):
        path.write_text(f"{x.item()}")
        return x

    def reads_it(x):
        writes(x)
        return x * float(path.read_text())

    def asks(x):
        (tmp_path / "folder").mkdir(exist_ok=True)
        return x * (tmp_path / "folder").is_dir()

    written, read, asked = map(lucid.compile, (writes, reads_it, asks))
    for i in range(3):
        x = lucid.tensor(i + 2.0)
        assert written(x).item() == float(path.read_text()) == i + 2
        assert read(x).item() == (i + 2) ** 2 and asked(x).item() == i + 2
        (tmp_path / "folder").rmdir()
    assert not written.stats.eager_reasons and written.stats.traces == 1
    assert "it uses a file, by pathlib.read_text()" in str(read.stats.eager_reasons[0])
    assert "it asks is_dir() when it has written files" in str(asked.stats.eager_reasons[0])


def test_a_pipe_is_read_by_the_step_alone(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    kept = os.open(path, os.O_RDWR)  # so that neither side waits for the other

    @lucid.compile
    def step(x):
        with open(path) as lines:
            return x * 1.0, lines.readline()

    os.write(kept, b"a\n")
    assert step(lucid.ones(1))[1] == "a\n"
    assert "it uses a file" in step.stats.eager_reasons[0]
    os.close(kept)


def test_what_is_printed_is_no_file_that_is_written(capsys):
    @lucid.compile
    def step(x):
        sys.stdout.write("a")
        print("b", file=sys.stderr)
        return x * (2 if os.path.exists("/nowhere") else 3)

    assert [step(lucid.ones(1)).item() for _ in range(3)] == [3, 3, 3]
    assert not step.stats.eager_reasons and capsys.readouterr().out == "aaa"


@pytest.mark.parametrize(
    "use",
    [
        lambda n, x: str(datetime.timedelta(seconds=n * 61)),
        lambda n, x: (datetime.datetime(2020, 1, 1) + datetime.timedelta(days=n)).isoformat(),
        lambda n, x: (datetime.timedelta(1) - datetime.timedelta(hours=n)).total_seconds(),
        lambda n, x: statistics.mean([n, 1, 3]),
        lambda n, x: statistics.median([x.sum().item(), n, 2.5]),
        lambda n, x: statistics.mean([int(x.sum().item()), n]),
    ],
)
def test_times_and_statistics_of_a_counter(agree, use):
    """Also where the mean is an int for some calls and a float for others."""

    def scenario(compile):
        state = types.SimpleNamespace(n=0)

        @compile
        def step(x):
            state.n += 1
            return use(state.n, x)

        found = [step(lucid.tensor([i, 1.5 * i])) for i in range(6)]
        return [found, [*map(type, found)]]

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons and step.stats.traces <= 3


@pytest.mark.parametrize(
    "use",
    [
        lambda n, x: str(decimal.Decimal(n)),
        lambda n, x: np.random.default_rng(n).random(),
        lambda n, x: np.random.default_rng(int(x.item())).random(),
    ],
)
def test_what_c_refuses_to_take_instead_of_a_number_is_done_op_by_op(agree, use):
    def scenario(compile):
        state = types.SimpleNamespace(n=0)

        @compile
        def step(x):
            state.n += 1
            return use(state.n, x)

        return [step(lucid.tensor(i)) for i in range(5)]

    (step,) = agree(scenario)
    assert "its trace fails: TypeError" in step.stats.eager_reasons[0]
