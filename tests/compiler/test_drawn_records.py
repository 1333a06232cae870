"""Records that a step draws from a container: a replay buffer's `random.sample`."""

from __future__ import annotations

import random
from collections import deque, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn

Transition = namedtuple("Transition", ("state", "action", "reward", "done"))
SIZE = 12


def filled(leaf: Callable[[Any], Any], kind: type = list, count: int = 40) -> Any:
    """A buffer of transitions; leaf: makes of NumPy's arrays and numbers what they hold."""
    rng = np.random.default_rng(0)
    return kind(
        Transition(
            leaf(rng.normal(size=4).astype(np.float32)),
            leaf(rng.integers(2)),
            leaf(rng.normal()),
            leaf(rng.random() < 0.5),
        )
        for _ in range(count)
    )


def as_pythons(x: Any) -> Any:
    return x if isinstance(x, np.ndarray) else x.item() if isinstance(x, np.generic) else x


def of_namedtuples(batch: list[Any]) -> Any:
    columns = Transition(*zip(*batch, strict=True))
    return [lucid.stack(x) for x in columns]


def of_rows(batch: list[Any]) -> Any:
    states, actions, rewards, done = zip(*batch, strict=True)
    others = lucid.tensor(actions), lucid.tensor(rewards), lucid.tensor(done, dtype=lucid.float32)
    return [lucid.tensor(np.array(states)), *others]


def of_mapped(batch: list[Any]) -> Any:
    return [lucid.from_numpy(x) for x in map(np.stack, zip(*batch, strict=True))]


def of_attributes(batch: list[Any]) -> Any:
    states = np.vstack([x.state for x in batch if x is not None])
    done = np.vstack([x.done for x in batch]).astype(np.uint8)
    rewards = np.array([x.reward for x in batch], dtype=np.float32)
    actions = np.concatenate([[x.action] for x in batch])
    return [lucid.from_numpy(x).float() for x in (states, actions, rewards, done)]


def of_a_loop(batch: list[Any]) -> Any:
    states, rest = [], []
    for state, action, reward, done in batch:
        states.append(state)
        rest.append([action, reward, 1.0 - done])
    return lucid.tensor(np.array(states)), lucid.tensor(rest)


@pytest.mark.parametrize(
    ("leaf", "read"),
    [
        (lambda x: lucid.tensor(x), of_namedtuples),
        (as_pythons, of_rows),
        (as_pythons, of_mapped),
        (as_pythons, of_attributes),
        (as_pythons, of_a_loop),
        (lambda x: x, of_mapped),
    ],
    ids=["tensors", "rows", "mapped", "attributes", "a loop", "numbers of NumPy"],
)
@pytest.mark.parametrize("kind", [list, deque])
def test_a_step_trains_on_records_that_each_call_draws(
    agree: Any, leaf: Any, read: Any, kind: type
) -> None:
    def scenario(compile: Any) -> Any:
        random.seed(1)
        memory, layer = filled(leaf, kind), nn.Linear(4, 1)
        opt = lucid.optim.SGD(layer.parameters(), lr=0.1)

        @compile
        def step() -> Any:
            states, *rest = read(random.sample(memory, SIZE))
            loss = layer(states).pow(2).mean() + sum(x.double().mean() for x in rest)
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss, rest

        found = []
        for _ in range(6):
            found.append(step())
            memory.append(memory[0])  # it grows
            del memory[0]
            memory.append(memory[3])
        return found, random.random()

    agree(scenario, traces=1)


def test_a_buffer_that_is_asked_for_its_length_grows(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        random.seed(1)
        others, memory = filled(as_pythons), deque(maxlen=30)

        @compile
        def step() -> Any:
            if len(memory) < SIZE:
                return None
            batch = Transition(*zip(*random.sample(memory, SIZE), strict=True))
            return lucid.tensor(batch.reward) * 2

        return [(memory.append(x), step()) for x in others]

    agree(scenario, traces=3)  # by its length; by the one that moves; when it is long enough


def test_the_buffer_is_the_one_that_is_there(agree: Any) -> None:
    class Agent:
        def __init__(self) -> None:
            self.memory = filled(as_pythons)

        def learn(self) -> Any:
            batch = random.choices(self.memory, k=SIZE)
            return lucid.tensor([x.reward for x in batch])

    def scenario(compile: Any) -> Any:
        random.seed(1)
        agent = Agent()
        step, found = compile(agent.learn), []
        for i in range(4):
            found.append(step())
            agent.memory = filled(as_pythons, count=20 + i)
        return found

    agree(scenario, traces=1)


def test_records_of_another_kind_are_another_program(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        random.seed(1)
        memory = [(1.5, "a")] * 20

        @compile
        def step() -> Any:
            batch = random.sample(memory, SIZE)
            numbers = lucid.tensor([x[0] for x in batch])
            return numbers, type(batch[0]).__name__, batch[0][1]

        found = []
        for record in ((1.5, "a"), (2.5, "a"), (2.5, "b"), (1, "b"), [2, "b"], (3.5, "a")):
            memory[:] = [record] * 20
            found += [step(), step()]
        return found

    agree(scenario, traces=5)


@pytest.mark.parametrize(
    ("memory", "use", "reason"),
    [
        ([(lucid.ones(2), None), (lucid.ones(2), 1.0)] * 20, len, "NoneType and float"),
        ([(lucid.ones(2),), (lucid.ones(3),)] * 20, len, "arrays of other shapes or dtypes"),
        ([(object(),)] * 20, len, "objects of object"),
        ([(lucid.ones(2, requires_grad=True),)] * 20, len, "tensors that require grad"),
        ([(1 << 70,)] * 20, len, "ints of more than 64 bits"),
    ],
)
def test_records_that_differ_are_drawn_op_by_op(memory: Any, use: Any, reason: str) -> None:
    step = lucid.compile(lambda: use(random.sample(memory, SIZE)))
    assert step() == SIZE
    (said,) = step.stats.eager_reasons
    assert reason in said
    assert "hint: draw in a function with @lucid.compiler.disable" in said


@pytest.mark.parametrize("leaf", [float, lucid.tensor])
def test_a_buffer_that_is_an_argument_is_drawn_from_op_by_op(agree: Any, leaf: Any) -> None:
    """In the user's words: what stands for a number while tracing is nothing to them."""

    def scenario(compile: Any) -> Any:
        memory, rng = [(leaf(float(i)),) for i in range(20)], random.Random(1)
        step = compile(lambda memory: lucid.tensor([float(x) for (x,) in rng.sample(memory, 4)]))
        return [step(memory) for _ in range(3)]

    (step,) = agree(scenario)
    reason = step.stats.eager_reasons[0]
    assert "each call is given the list from which it draws, by rng.sample()" in reason


def test_who_writes_returns_or_keeps_what_is_drawn_has_what_is_in_the_buffer(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        random.seed(1)
        kept: list[Any] = []
        found = []
        for use in (
            lambda state, array: state.add_(1.0),
            lambda state, array: array.__iadd__(1.0),
            lambda state, array: array.__setitem__(0, 5.0),
            lambda state, array: (state, array),
            lambda state, array: kept.append(array[1:]),
            lambda state, array: lucid.from_numpy(array).mul_(3.0),
        ):
            memory = [(lucid.full((2,), float(i)), np.full(2, float(i))) for i in range(30)]

            @compile
            def step(use: Any = use, memory: Any = memory) -> Any:
                batch = random.sample(memory, SIZE)
                use(*batch[0])
                return lucid.stack([state for state, _ in batch])

            found.append(([step() for _ in range(3)], memory))
        return found, kept

    agree(scenario)


def test_records_that_a_call_is_given_to_write_are_drawn_as_written(agree: Any) -> None:
    """As an argument, or as the record at a place that moves from call to call."""

    def scenario(compile: Any) -> Any:
        random.seed(1)
        memory = [lucid.full((2,), float(i)) for i in range(6)]
        calls: list[int] = []

        def given(x: Any) -> Any:
            x.add_(1.0)
            return lucid.stack(random.sample(memory, 4))

        def found() -> Any:
            calls.append(0)
            return given(memory[len(calls) % 5])

        steps = compile(given), compile(found)
        return [(steps[0](memory[i % 3]), steps[1]()) for i in range(8)]

    steps = agree(scenario)
    assert all("what it draws, by random.sample()" in str(x.stats.eager_reasons) for x in steps)


def test_a_record_that_a_call_has_put_at_a_place_of_its_own_is_drawn(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        random.seed(1)
        memory = [lucid.full((2,), float(i)) for i in range(4)]

        @compile
        def step(n: int) -> Any:
            memory[n % 4] = lucid.full((2,), float(n))
            return lucid.stack([memory[i] for i in random.sample(range(4), 2)])

        return [step(n) for n in (10, 21, 32, 43, 54, 65, 76, 87, 98)]

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons  # of few records each is looked at


def test_one_record_that_is_chosen_is_what_the_call_has_put_there(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        generator = random.Random(1)
        memory = [lucid.full((2,), float(i + 1)) for i in range(4)]

        @compile
        def step(n: int) -> Any:
            memory[n] = memory[0] * 2
            return generator.choice(memory) * 2

        return [step(n) for n in (0, 1, 2, 3, 1, 2, 0, 3, 2, 1, 0, 3)]

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


@pytest.mark.parametrize("keep", [lambda kept, x: x, lambda kept, x: kept.append(x[0])])
def test_records_that_are_returned_or_kept_are_those_of_the_buffer(agree: Any, keep: Any) -> None:
    def scenario(compile: Any) -> Any:
        random.seed(1)
        kept: list[Any] = []
        memory = [{"action": i, "rewards": [0.5, 1.0]} for i in range(30)]

        @compile
        def step() -> Any:
            return keep(kept, random.sample(memory, SIZE)), None

        for _ in range(3):
            found = step()[0] or kept[-1:]
            found[0]["action"] += 100
        return memory, kept

    agree(scenario)


def test_who_writes_memory_that_is_drawn_draws_it_as_it_is_by_then(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        random.seed(1)
        state, array = lucid.zeros(2), np.zeros(2)
        memory = [(state, array)] * 20

        @compile
        def step() -> Any:
            state.add_(1.0)
            batch = random.sample(memory, SIZE)
            state.add_(1.0)
            array[0] += 1.0
            return sum(x for x, _ in batch), sum(x for _, x in batch)

        return [step() for _ in range(3)], memory

    agree(scenario)


def test_a_function_that_draws_as_python_does_may_find_other_sizes() -> None:
    rng = random.Random(1)
    memory = [(float(i), None if i % 3 == 0 else lucid.full((1, 2), float(i))) for i in range(60)]

    def draw() -> Any:
        _, following = zip(*rng.sample(memory, SIZE), strict=True)
        mask = lucid.tensor([x is not None for x in following])
        return mask, lucid.cat([x for x in following if x is not None])

    drawn = lucid.compiler.disable(draw)

    @lucid.compile(fullgraph=True)
    def step() -> Any:
        mask, following = drawn()
        values = lucid.zeros(SIZE)
        values[mask] = following.sum(1)
        return values

    for _ in range(30):
        state = rng.getstate()
        found = step()
        after = rng.getstate()
        rng.setstate(state)
        mask, following = draw()
        assert rng.getstate() == after
        assert (found[mask] == following.sum(1)).all()
        assert found.sum() == following.sum()
    assert step.stats.traces <= 3  # the first; one whose sizes are open; and all that follow them


def test_a_call_that_finds_records_that_differ_draws_once(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        rng = random.Random(1)
        memory = [(lucid.full((2,), float(i)), i) for i in range(8)]
        step = compile(lambda: [i for _, i in rng.sample(memory, 4)])
        found = [step() for _ in range(3)]
        memory.extend((lucid.ones(3), 100 + i) for i in range(8))
        return found, [step() for _ in range(6)], rng.random()

    agree(scenario)


def test_weights_are_those_of_the_moment(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        rng = random.Random(1)
        memory, weights = [(float(i),) for i in range(6)], [1.0] * 6

        @compile
        def step() -> Any:
            weights[0] += 9.0
            batch = rng.choices(memory, weights, k=SIZE)
            weights[1] += 1.0
            return [x for (x,) in batch]

        return [step() for _ in range(4)], weights

    agree(scenario)


def _a_drawn_one(memory: Any, batch: Any, count: int) -> None:
    batch[0]["n"] = count


def _one_of_the_buffer(memory: Any, batch: Any, count: int) -> None:
    memory[0]["n"] = count


@pytest.mark.parametrize("change", [_a_drawn_one, _one_of_the_buffer])
def test_records_that_a_step_changes(agree: Any, change: Any) -> None:
    def scenario(compile: Any) -> Any:
        rng = random.Random(1)
        memory, count = [{"x": lucid.full((2,), float(i)), "n": 0} for i in range(8)], [0]

        @compile
        def step() -> Any:
            count[0] += 1
            batch = rng.sample(memory, 5)
            change(memory, batch, count[0])
            return sum(x["x"] for x in batch), [x["n"] for x in batch]

        return [step() for _ in range(4)], [x["n"] for x in memory]

    agree(scenario)


def test_an_entry_that_a_step_puts_in_the_buffer_may_be_drawn(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        rng = random.Random(1)
        memory = [(lucid.full((2,), float(i)), i) for i in range(6)]

        @compile
        def step(x: Any) -> Any:
            memory[0] = (x * 2, 7)
            return sum(x * i for x, i in rng.sample(memory, 5))

        return [step(lucid.full((2,), float(i))) for i in range(6)]

    agree(scenario)


def _as_tuple(x: Any, action: int, reward: float) -> Any:
    return x, action, reward


def _as_namedtuple(x: Any, action: int, reward: float) -> Any:
    return Transition(x * 2, action, reward * 2, False)


def _as_arrays(x: Any, action: int, reward: float) -> Any:
    return x.numpy() + 1, action, reward


@pytest.mark.parametrize("record", [_as_tuple, _as_namedtuple, _as_arrays])
@pytest.mark.parametrize("kind", [list, lambda: deque(maxlen=9)])
@pytest.mark.parametrize("draw", ["sample", "choices", "places"])
def test_records_that_a_step_has_put_in_the_buffer_are_drawn(
    agree: Any, record: Any, kind: Any, draw: str
) -> None:
    def scenario(compile: Any) -> Any:
        random.seed(1)
        rng, memory, layer = np.random.default_rng(2), kind(), nn.Linear(4, 1)
        of_arrays = lambda x: lucid.tensor(np.stack(x))  # noqa: E731
        join = of_arrays if record is _as_arrays else lucid.stack
        opt = lucid.optim.SGD(layer.parameters(), lr=0.1)

        def drawn() -> list[Any]:
            if draw == "places":
                return [memory[i] for i in rng.choice(len(memory), 4)]
            return random.sample(memory, 4) if draw == "sample" else random.choices(memory, k=4)

        @compile
        def step(x: Any, action: int, reward: float) -> Any:
            memory.append(record(x, action, reward))
            if len(memory) < 4:
                return None
            states, actions, rewards, *_ = zip(*drawn(), strict=True)
            states = join(states)
            loss = (layer(states) - lucid.tensor(rewards).unsqueeze(1)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss.detach(), lucid.tensor(actions), rewards

        found = [step(lucid.randn(4), i % 2, i / 4) for i in range(20)]
        return found, [*map(tuple, memory)], random.random()

    (step,) = agree(scenario)
    assert step.stats.traces <= 6, step.stats.retrace_reasons
    assert not step.stats.eager_reasons


def _writes_what_it_has_put_there(record: dict[str, Any]) -> None:
    record["x"].add_(1.0)


def _puts_another_in_it(record: dict[str, Any]) -> None:
    record["n"] = 5.0


@pytest.mark.parametrize("change", [_writes_what_it_has_put_there, _puts_another_in_it])
def test_a_record_that_changes_when_it_was_drawn_is_drawn_op_by_op(agree: Any, change: Any) -> None:
    def scenario(compile: Any) -> Any:
        rng, memory = random.Random(1), [{"x": lucid.ones(2), "n": float(i)} for i in range(9)]

        @compile
        def step(x: Any) -> Any:
            memory.append(record := {"x": x * 2, "n": 1.0})
            batch = rng.sample(memory, len(memory))
            change(record)
            return sum(x["x"] * x["n"] for x in batch)

        return [step(lucid.full((2,), float(i))) for i in range(6)]

    (step,) = agree(scenario)
    assert "it changes, when it has put it there, a record" in step.stats.eager_reasons[0]


def test_as_many_records_are_drawn_as_there_are(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        rng, memory = random.Random(1), []

        @compile
        def step(x: Any, weight: float) -> Any:
            memory.append((x, weight))
            return sum(x * weight for x, weight in rng.sample(memory, min(len(memory), 5)))

        return [step(lucid.full((2,), float(i)), i / 2) for i in range(12)]

    agree(scenario)


# ------------------------------------------------------------------ None in some of the records

Step = namedtuple("Step", ("state", "next_state"))


def with_none(share: float = 0.3, count: int = 40) -> list[Any]:
    """Transitions, some of which end an episode."""
    rng = random.Random(0)
    rows = [lucid.full((1, 2), float(i)) for i in range(2 * count)]
    pairs = zip(rows[:count], rows[count:], strict=True)
    return [Step(a, None if rng.random() < share else b) for a, b in pairs]


def masked(following: Any) -> Any:
    found = lucid.zeros(len(following), 2)
    mask = lucid.tensor(tuple(map(lambda s: s is not None, following)), dtype=lucid.bool)  # noqa: C417
    found[mask] = lucid.cat([s for s in following if s is not None]) * 2
    return found


NATIVE = {
    "a mask": masked,
    "listed": lambda x: lucid.tensor([s is not None for s in x]),
    "missing": lambda x: lucid.tensor([s is None for s in x]),
    "as bytes": lambda x: lucid.tensor([s is not None for s in x], dtype=lucid.uint8),
    "of NumPy": lambda x: lucid.from_numpy(np.array([s is None for s in x])),
    "as numbers": lambda x: lucid.tensor([float(s is not None) for s in x]),
    "joined": lambda x: lucid.cat([s for s in x if s is not None]).sum(0),
    "stacked": lambda x: lucid.stack([s for s in x if not s is None]).sum(0),  # noqa: E714
}


@pytest.mark.parametrize("use", NATIVE.values(), ids=NATIVE)
def test_some_of_the_records_have_none(agree: Any, use: Any) -> None:
    """The last state of an episode has no next one."""

    def scenario(compile: Any) -> Any:
        rng, memory = random.Random(1), with_none()

        @compile
        def step() -> Any:
            batch = Step(*zip(*rng.sample(memory, SIZE), strict=True))
            return use(batch.next_state), lucid.cat(batch.state)

        return [step() for _ in range(20)]

    (step,) = agree(scenario)
    assert step.stats.traces <= 4
    assert step.stats.eager_reasons == []


def test_none_of_the_records_has_none_or_all_have(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        rng, memory = random.Random(1), with_none(0.0, 12)

        @compile
        def step() -> Any:
            found = [x.next_state for x in rng.sample(memory, 4)]
            return lucid.tensor([s is None for s in found])

        found = [step() for _ in range(3)]
        for i in range(12):
            memory[i] = Step(memory[i].state, None)
            found += [step(), step()]
        memory[:] = [Step(x.state, x.state) for x in memory]
        return found + [step() for _ in range(5)]

    agree(scenario, traces=2)


def _by_a_loop(following: Any) -> Any:
    found = lucid.zeros(1, 2)
    for s in following:
        if s is None:
            continue
        found = found + s
    return found


LOOKS = {
    "a loop": _by_a_loop,
    "zeros": lambda x: lucid.cat([lucid.zeros(1, 2) if s is None else s for s in x]),
    "the missing": lambda x: len([s for s in x if s is None]),
    "a part": lambda x: lucid.cat([s for s in x[1:] if s is not None]),
    "changed": lambda x: lucid.cat([s * 2 for s in x if s is not None]),
    "a filter": lambda x: lucid.cat([*filter(lambda s: s is not None, x)]),
    "a generator": lambda x: lucid.cat(tuple(s for s in x if s is not None)),
    "any": lambda x: any(s is None for s in x),
    "contains": lambda x: None in x,
    "counted": lambda x: x.count(None),
    "isinstance": lambda x: [isinstance(s, lucid.Tensor) for s in x],
    "types": lambda x: [type(s).__name__ for s in x],
    "equal": lambda x: [s == None for s in x],  # noqa: E711
    "a default": lambda x: [0.0 if s is None else s.sum() for s in x],
    "returned": lambda x: x,
    "the list": lambda x: [s for s in x if s is not None],
    "one of the list": lambda x: [s for s in x if s is not None][0] * 2,  # noqa: RUF015
    "over the list": lambda x: [s * 2 for s in [s for s in x if s is not None]],
    "its length": lambda x: len([s for s in x if s is not None]),
    "truth": lambda x: [s for s in x if s is not None and s.sum() > 3],
    "a text": lambda x: f"{[s is None for s in x]}",
    "an attribute": lambda x: [getattr(s, "shape", None) for s in x],
    "a class": lambda x: [s.__class__.__name__ for s in x],
}


@pytest.mark.parametrize("use", LOOKS.values(), ids=LOOKS)
def test_who_asks_otherwise_which_records_have_none(agree: Any, use: Any) -> None:
    def scenario(compile: Any) -> Any:
        rng, memory = random.Random(1), with_none()
        step = compile(lambda: use(tuple(x.next_state for x in rng.sample(memory, SIZE))))
        return [step() for _ in range(5)]

    agree(scenario)


def test_the_reason_says_what_to_write_for_none() -> None:
    memory, rng = with_none(), random.Random(1)
    step = lucid.compile(lambda: _by_a_loop([x.next_state for x in rng.sample(memory, SIZE)]))
    step()
    (reason,) = step.stats.eager_reasons
    assert "it looks at what is None in some of the records of rng.sample()" in reason
    assert "x is not None for x in" in reason


# ------------------------------------------------------------------ records at drawn places

PLACES = {
    "choice": lambda n: np.random.choice(n, SIZE, replace=False),
    "randint": lambda n: np.random.randint(0, n, size=SIZE),
    "permutation": lambda n: np.random.permutation(n)[:SIZE],
    "sample": lambda n: random.sample(range(n), SIZE),
    "choices": lambda n: random.choices(range(n), k=SIZE),
    "randrange": lambda n: [random.randrange(n) for _ in range(SIZE)],
    "randperm": lambda n: lucid.randperm(n)[:SIZE].tolist(),
    "a tensor": lambda n: lucid.randint(0, n, (SIZE,)),
}


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("kind", [list, deque])
def test_a_step_reads_records_at_places_that_each_call_draws(
    agree: Any, places: Any, kind: type
) -> None:
    def scenario(compile: Any) -> Any:
        random.seed(1)
        np.random.seed(1)
        memory, others = filled(as_pythons, kind), iter(filled(as_pythons))

        @compile
        def step() -> Any:
            batch = [memory[i] for i in places(len(memory))]
            return of_rows(batch), len(memory)

        found = []
        for _ in range(8):
            found.append(step())
            memory.append(next(others))
        return found, random.random(), np.random.rand()

    (step,) = agree(scenario)
    assert step.stats.traces <= 3  # by the length; by the one that moves; for a size that is open
    assert step.stats.eager_reasons == []


@pytest.mark.parametrize("entry", [lucid.tensor, lambda x: np.asarray(x, np.float32)])
def test_entries_at_drawn_places_are_tensors_or_arrays(agree: Any, entry: Any) -> None:
    def scenario(compile: Any) -> Any:
        rng = np.random.default_rng(1)
        data = [entry([float(i), 1.0]) for i in range(30)]

        @compile
        def step() -> Any:
            batch = [data[i] for i in rng.integers(0, len(data), 5)]
            return lucid.tensor(np.stack(batch)).sum(0)

        return [step() for _ in range(6)]

    agree(scenario, traces=1)


def test_a_place_that_is_not_there_is_an_error(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        rng = random.Random(1)
        memory = [(float(i),) for i in range(20)]

        @compile
        def step(n: int) -> Any:
            try:
                return [memory[rng.randrange(n)][0] for _ in range(3)]
            except IndexError as error:
                return str(error)

        return [step(n) for n in (20, 20, 200, 20, 200, 20)], rng.random()

    agree(scenario)


def _in_a_line(memory: Any, rng: Any, _: Any) -> Any:
    a, b = rng.randrange(10), rng.randrange(10**6)
    return memory[a][0] + b


def _of_an_array(memory: Any, _: Any, rng: Any) -> Any:
    i, j = rng.integers(0, 1000, 2)
    return memory[i][0] if i < 20 else j


@pytest.mark.parametrize("use", [_in_a_line, _of_an_array])
def test_a_number_that_was_found_with_a_place_may_be_none(agree: Any, use: Any) -> None:
    def scenario(compile: Any) -> Any:
        memory, others = [(float(i),) for i in range(20)], np.random.default_rng(1)
        rng = random.Random(1)
        step = compile(lambda: use(memory, rng, others))
        return [float(step()) for _ in range(80)], rng.random(), others.random()

    agree(scenario)


def test_records_may_have_nothing_in_them(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        rng, memory = random.Random(1), [()] * 20
        step = compile(lambda: (len(rng.sample(memory, 4)), memory[rng.randrange(20)]))
        return [step() for _ in range(3)]

    agree(scenario)


def test_records_of_few_that_differ_are_looked_at(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        rng = random.Random(1)
        data = [(lucid.ones(2),), (lucid.ones(3),)]
        step = compile(lambda: data[rng.randrange(2)][0].sum())
        return [step() for _ in range(12)]

    agree(scenario, traces=2)


def test_a_record_of_few_at_a_drawn_place_is_returned_or_changed(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        rng = random.Random(1)
        data = [{"x": lucid.full((2,), float(i)), "n": 0} for i in range(3)]

        @compile
        def step() -> Any:
            record = data[rng.randrange(3)]
            record["n"] = record["n"] + 1
            return record

        kept = [step() for _ in range(12)]
        return [x["n"] for x in kept], [any(x is y for y in data) for x in kept]

    agree(scenario)
