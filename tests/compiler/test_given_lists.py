"""Lists of numbers and texts among the arguments, of ever other lengths: one program for all."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn

WORDS = {f"w{i}": i for i in range(40)}
CHARACTERS = {c: i for i, c in enumerate("w 0123456789")}
EMBEDDING = lucid.arange(120).float().reshape(40, 3)
LENGTHS = (7, 6, 12, 5, 6, 30, 9, 2, 8)


def ids(size: int) -> list[int]:
    return [random.Random(size + i).randrange(40) for i in range(size)]


def words(size: int) -> list[str]:
    return [f"w{i}" for i in ids(size)]


def prepare_sequence(sequence: Sequence[str], to_ix: dict[str, int]) -> lucid.Tensor:
    found = [to_ix[w] for w in sequence]
    return lucid.tensor(found, dtype=lucid.long)


def limited(number: int) -> int:
    return 7 if number > 7 else number


def chained(numbers: Sequence[int]) -> lucid.Tensor:
    h = lucid.zeros(3)
    for number in numbers:
        h = (EMBEDDING[number] + 2 * h) % 31
    return h


def chained_words(words: Sequence[str]) -> lucid.Tensor:
    h = lucid.zeros(3)
    for i in range(len(words) - 1):
        h = (EMBEDDING[WORDS[words[i]]] + 2 * h) % 31 + WORDS[words[i + 1]]
    return h


def of_pairs(numbers: list[int]) -> lucid.Tensor:
    h = lucid.zeros(3)
    for number, following in zip(numbers[:-1], numbers[1:], strict=True):  # noqa: RUF007
        h = (EMBEDDING[lucid.tensor([number])][0] + 2 * h) % 31 + following
    return h


def of_following(numbers: list[int]) -> lucid.Tensor:
    h = lucid.zeros(3)
    for number, following in itertools.pairwise(numbers):
        h = (EMBEDDING[number] + 2 * h) % 31 + following
    for number, following in zip(numbers, numbers[1:]):  # noqa: B905, RUF007
        h = (EMBEDDING[number] + 2 * h) % 31 + following
    return h


def numbered(numbers: list[int]) -> lucid.Tensor:
    h = lucid.zeros(3)
    for i, number in enumerate(reversed(numbers)):
        h = h + EMBEDDING[number] * i
    return h


def low_bits(numbers: list[int]) -> int:
    found = 0
    for number in numbers:
        found += number & 3  # which takes ints that are known
    return found


STEPS: dict[str, tuple[Callable[..., Any], Callable[[int], Any]]] = {
    "tensor": (lambda x: EMBEDDING[lucid.tensor(x)].sum(0), ids),
    "LongTensor": (lambda x: EMBEDDING[lucid.LongTensor(x)].sum(0), ids),
    "as_tensor": (lambda x: lucid.as_tensor(x, dtype=lucid.float32).cumsum(0), ids),
    "np.array": (lambda x: lucid.from_numpy(np.array(x)) * 2, ids),
    "an index": (lambda x: EMBEDDING[x].mean(0), ids),
    "a tuple": (lambda x: EMBEDDING[lucid.tensor(x)].sum(0), lambda n: tuple(ids(n))),
    "floats": (lambda x: lucid.tensor(x) * 2, lambda n: [0.5 * i for i in range(n)]),
    "a mean": (lambda x: EMBEDDING[lucid.tensor(x)].sum(0) / len(x), ids),
    "a sum": (lambda x: lucid.ones(2) * sum(x), ids),
    "words": (lambda x: EMBEDDING[prepare_sequence(x, WORDS)].sum(0), words),
    "get": (lambda x: lucid.tensor([WORDS.get(w, 1) for w in x]), words),
    "lower": (lambda x: lucid.tensor([WORDS[w.lower()] for w in x]), lambda n: ["W3"] * n),
    "letters": (lambda x: lucid.tensor([ord(c) for c in x]), lambda n: [*"abcdefgh"][:n] * 4),
    "sorted": (lambda x: EMBEDDING[lucid.tensor(sorted(x))].cumsum(0), ids),
    "kept": (lambda x: (x, lucid.tensor(x)), ids),
    "computed": (lambda x: lucid.tensor([abs(10 - 2 * i) / 3 for i in x]), ids),
    "a loop": (chained, ids),
    "a loop over words": (chained_words, words),
    "pairs": (of_pairs, ids),
    "those that follow": (of_following, ids),
    "numbered": (numbered, ids),
    "a slice": (lambda x: (EMBEDDING[x[:-1]] * EMBEDDING[x[1:]]).sum(0), ids),
    "a slice of words": (lambda x: lucid.tensor([WORDS[w] for w in x[1:]]), words),
    "a slice of what is found": (lambda x: lucid.tensor([WORDS[w] for w in x][:-1]), words),
    "a half": (lambda x: EMBEDDING[lucid.tensor(x[: len(x) // 2])].cumsum(0), lambda n: ids(n + 4)),
    "the other way round": (lambda x: EMBEDDING[lucid.tensor(x[::-1])].cumsum(0), ids),
    "joined": (lambda x: EMBEDDING[lucid.tensor([1] + x + [2])].cumsum(0), ids),
    "in a display": (lambda x: EMBEDDING[lucid.tensor([1, *x, 2])].cumsum(0), ids),
    "words in a display": (lambda x: lucid.tensor([WORDS[w] for w in [*x, "w1"]]), words),
    "joined words": (lambda x: lucid.tensor([WORDS[w] for w in ["w1"] + x]), words),
    "what is found, joined": (lambda x: lucid.tensor([1] + [WORDS[w] for w in x] + [2]), words),
    "itself twice": (lambda x: EMBEDDING[lucid.tensor([*x, *x[::-1]])].cumsum(0), ids),
    "of letters": (lambda x: EMBEDDING[lucid.tensor([WORDS["w" + str(i)] for i in x])].sum(), ids),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_list_of_any_length_is_one_program(name: str) -> None:
    function, given = STEPS[name]
    step = lucid.compile(function)
    for size in LENGTHS:
        argument = given(size)
        expected, found = function(argument), step(argument)
        pairs = [x if type(x) is tuple else (x,) for x in (expected, found)]
        for one, other in zip(*pairs, strict=True):
            assert one is other or (one.dtype, one.tolist()) == (other.dtype, other.tolist())
    assert step.stats.traces <= 4
    assert not step.stats.eager_reasons


def shifted(found: list[float], loss: float) -> Any:
    return (found + [loss])[-6:]


def put_in_front(found: list[float], loss: float) -> Any:
    return [loss] + found[:4]


def copied(found: list[float], loss: float) -> Any:
    made = list(found)
    made.append(loss)
    return made


def copied_by_method(found: list[float], loss: float) -> Any:
    made = found.copy()
    made += [loss]
    return made


def cut(found: list[float], loss: float) -> Any:
    made = found[-5:]
    made.extend([loss, 2 * loss])
    return made


def kept_in_order(found: list[float], loss: float) -> Any:
    return sorted(found + [loss])[:5]


JOINS = [shifted, put_in_front, copied, copied_by_method, cut, kept_in_order]


@pytest.mark.parametrize("join", JOINS)
def test_a_list_of_what_is_given_and_what_the_step_computes_is_one_program(join: Any) -> None:
    def function(x: lucid.Tensor, found: list[float]) -> Any:
        made = join(found, x.sum().item())
        looks = sum(made) / len(made), max(made), np.mean(made), made[-1], made[0]
        return made, looks, {"made": made, "before": len(found)}

    step, found, expected = lucid.compile(function), [], []
    for i in range(24):
        x = lucid.tensor([0.25 * (i * 7 % 11), 1.0])
        now, then = step(x, found), function(x, expected)
        assert now == then
        assert now[0] is now[2]["made"]
        found, expected = now[0], then[0]
    assert step.stats.traces <= 4
    assert not step.stats.eager_reasons


@pytest.mark.parametrize("kind", [list, tuple])
def test_what_is_made_of_a_list_is_of_its_class(kind: Any) -> None:
    def function(x: Any) -> Any:
        made = x[:]
        made += kind([3])
        are_there = type(x) is kind, type(x[1:]) is kind, hasattr(x, "item"), isinstance(x, kind)
        return made, x[1:], x + x[:1], {"x": x, "last": x[-2:]}, f"{x} {x[:1]}", are_there

    step = lucid.compile(function)
    for size in LENGTHS:
        given = kind(ids(size))
        assert step(given) == function(given)
    assert step.stats.traces == 2
    assert not step.stats.eager_reasons


def test_two_lists_of_one_length_train_a_tagger() -> None:
    def training() -> tuple[Callable[..., lucid.Tensor], nn.Module]:
        lucid.manual_seed(0)
        model = nn.ModuleDict({"e": nn.Embedding(40, 4), "o": nn.Linear(4, 3)})
        optimizer = lucid.optim.SGD(model.parameters(), lr=0.1)

        def step(sentence: list[str], tags: list[int]) -> lucid.Tensor:
            optimizer.zero_grad()
            scores = model["o"](model["e"](prepare_sequence(sentence, WORDS)))
            loss = nn.functional.cross_entropy(scores, lucid.tensor(tags))
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step, model

    (eager, _), (function, _) = training(), training()
    step = lucid.compile(function)
    for size in LENGTHS:
        sentence, tags = words(size), [i % 3 for i in range(size)]
        assert step(sentence, tags).item() == pytest.approx(eager(sentence, tags).item(), rel=1e-5)
    assert step.stats.traces <= 3
    assert not step.stats.eager_reasons


def test_words_at_places_of_a_list_are_looked_up_at_each_call() -> None:
    step = lucid.compile(lambda w, t: lucid.tensor([WORDS[x] for x in w]).sum() + WORDS[t])
    for i in range(8):
        found = step([f"w{i}", f"w{2 * i}"], f"w{3 * i}")
        assert found == 6 * i
    assert step.stats.traces == 3


def test_what_the_dict_holds_may_change() -> None:
    to_ix = {"a": 1, "b": 2}
    step = lucid.compile(lambda x: lucid.tensor([to_ix[w] for w in x]))
    for x in (["a", "b"], ["a", "b", "a"], ["b"] * 4):
        step(x)
    to_ix["a"], traces = 7, step.stats.traces
    assert step(["a", "b", "a", "a", "b"]).tolist() == [7, 2, 7, 7, 2]
    assert step.stats.traces == traces


def test_a_recurrent_network_goes_word_by_word() -> None:
    """Each word is looked up in a dict and in a table, and the loss is differentiated."""

    def training() -> Callable[..., float]:
        lucid.manual_seed(0)
        model = nn.ModuleDict(
            {"e": nn.Embedding(40, 4), "cell": nn.GRUCell(4, 4), "o": nn.Linear(4, 3)}
        )
        optimizer = lucid.optim.SGD(model.parameters(), lr=0.1)

        def step(sentence: list[str], label: int) -> float:
            h = lucid.zeros(1, 4)
            for word in sentence:
                h = model["cell"](model["e"](lucid.tensor([WORDS[word]])), h)
            loss = nn.functional.cross_entropy(model["o"](h), lucid.tensor([label]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.item()

        return step

    eager, step = training(), lucid.compile(training())
    for i, size in enumerate((7, 6, 12, 5, 9, 30, 8)):
        assert step(words(size), i % 3) == pytest.approx(eager(words(size), i % 3), rel=1e-5)
    assert step.stats.traces <= 3
    assert not step.stats.eager_reasons


def test_a_word_that_is_not_there_raises_as_eager_mode_does() -> None:
    step = lucid.compile(lambda x: lucid.tensor([WORDS[w] for w in x]))
    for size in (2, 5, 9):
        step(words(size))
    with pytest.raises(KeyError, match="nowhere"):
        step(["w1", "nowhere", "w2"])
    assert step(words(4)).tolist() == ids(4)


def test_a_round_that_does_something_else_is_made_for_each_item() -> None:
    calls: list[str] = []

    def index(word: str) -> int:
        calls.append(word)
        return WORDS[word]

    step = lucid.compile(lambda x: lucid.tensor([index(w) for w in x]))
    for size in (2, 5, 9, 4):
        calls.clear()
        assert step(words(size)).tolist() == ids(size)
        assert calls == words(size)


def padded(batch: list[list[int]]) -> lucid.Tensor:
    longest = max(len(x) for x in batch)
    rows = lucid.tensor([x + [0] * (longest - len(x)) for x in batch])
    return EMBEDDING[rows].sum(1) / lucid.tensor([len(x) for x in batch]).unsqueeze(1)


def padded_by_functions(batch: list[list[int]]) -> lucid.Tensor:
    def pad(x: list[int], size: int) -> list[int]:
        return [1] + x + (size - len(x)) * [0]

    longest = max(map(len, batch))
    return EMBEDDING[lucid.tensor([pad(x, longest) for x in batch])].cumsum(1)


def cut_and_padded(batch: list[list[int]]) -> lucid.Tensor:
    rows = [x[:6] + [39] * (6 - len(x)) for x in batch]
    return EMBEDDING[lucid.tensor(rows)].cumsum(1)


@pytest.mark.parametrize("function", [padded, padded_by_functions, cut_and_padded])
def test_batches_are_padded_by_python_before_the_step(function: Callable[..., Any]) -> None:
    step = lucid.compile(function)
    for sizes in [(3, 7, 5), (8, 2, 4), (4, 9, 9), (2, 3, 6), (5, 5, 5), (12, 3, 9), (3, 7, 5)]:
        batch = [ids(size) for size in sizes]
        assert step([*map(list, batch)]).tolist() == function(batch).tolist()
    assert step.stats.traces <= 4
    assert not step.stats.eager_reasons


@pytest.mark.parametrize(
    "function",
    [
        lambda x: lucid.tensor([*reversed(x)]),
        lambda x: lucid.tensor(sorted(x)),
        lambda x: lucid.tensor([i for i in x if i % 2]),
        lambda x: lucid.tensor(x + [1.5]),
        lambda x: lucid.tensor(x[2:] * 2) if len(x) > 2 else lucid.ones(1),
        lambda x: lucid.tensor(x[:0]).sum() + lucid.tensor(x[-2:]).sum(),
        lambda x: lucid.tensor([i * i for i in x]),
        lambda x: lucid.tensor(x[len(x) // 2 :]),
        lambda x: lucid.ones(3) * (x[0] - x[-1]),
        lambda x: lucid.zeros(*x[:1], 2),
        lambda x: lucid.ones(2) if 3 in x else lucid.zeros(2),
        lambda x: lucid.tensor([i if i != 5 else 0 for i in x]),
        lambda x: lucid.tensor([i or 9 for i in x]),
        lambda x: lucid.tensor([x.count(5), x.index(5)]),
        lambda x: lucid.tensor([i for i in x if i not in (1, 2)]),
        lambda x: lucid.tensor([limited(i) for i in x]),
        lambda x: lucid.tensor([i & 3 for i in x]) - lucid.tensor([-i for i in x]),
        lambda x: lucid.tensor([{i: 1}[i] for i in x]),
        lambda x: lucid.tensor(x) + low_bits(x),
    ],
)
def test_what_else_is_done_with_a_list_is_as_in_eager_mode(function: Callable[..., Any]) -> None:
    step = lucid.compile(function)
    for size in (1, 2, 3, 6, 4, 6, 30):
        given = [0, 5, *ids(size)]
        assert step([*given]).tolist() == function(given).tolist()


def test_a_display_of_a_list_and_of_other_things_has_them_as_in_eager_mode() -> None:
    @lucid.compile
    def step(x: lucid.Tensor, numbers: list[int]) -> Any:
        try:
            made = [*numbers, x.sum().item(), x]
        finally:
            x = 2 * x
        return len(made), made[0], made[-1] + made[-2]

    for size in range(1, 6):
        length, first, last = step(lucid.ones(2), [*range(size)])
        assert (length, first, last.tolist()) == (size + 2, 0, [3.0, 3.0])


def test_a_list_that_the_step_changes_is_changed() -> None:
    def function(x: list[int]) -> lucid.Tensor:
        found = lucid.tensor(x)
        x.append(5)
        return found

    step = lucid.compile(function)
    for size in (3, 6, 4):
        given = ids(size)
        assert step(given).tolist() == ids(size)
        assert given == [*ids(size), 5]


def test_a_list_that_the_step_changes_by_another_name_is_what_it_was_before() -> None:
    log: list[int] = []

    def function(x: list[int]) -> lucid.Tensor:
        log.append(3)
        return lucid.tensor(x)

    step = lucid.compile(function)
    for size in (3, 6, 4):
        step(ids(size))
    log[:] = [1, 2]
    assert step(log).tolist() == [1, 2, 3]


def test_a_list_that_is_changed_after_it_was_joined_is_joined_as_it_was() -> None:
    def function(x: list[int]) -> lucid.Tensor:
        end = [0]
        found = x + end + end * (40 - len(x))
        end[0] = 5
        return lucid.tensor(found)

    step = lucid.compile(function)
    for size in LENGTHS:
        assert step(ids(size)).tolist() == function(ids(size)).tolist()
    assert step.stats.traces <= 3


def test_slices_that_are_equal_by_chance_differ_in_other_calls() -> None:
    def function(x: list[int], low: int, high: int) -> lucid.Tensor:
        return lucid.tensor(x[:low]).sum() + 100 * lucid.tensor(x[:high]).sum()

    step = lucid.compile(function)
    for size, low, high in [(7, 2, 3), (6, 3, 4), (9, 4, 4), (8, 5, 5), (12, 3, 7), (30, 20, 4)]:
        assert step(ids(size), low, high) == function(ids(size), low, high)
    assert step.stats.traces <= 4


def test_numbers_of_another_kind_are_another_program() -> None:
    step = lucid.compile(lambda x: lucid.tensor(x))
    for x in ([1, 2], [1, 2, 3], [0.5, 1.5], [1, 0.5, 2], [True, False], [4], [], [1, 2, 3, 4]):
        assert (step(x).dtype, step(x).tolist()) == (
            lucid.tensor(x).dtype,
            lucid.tensor(x).tolist(),
        )


def padded(batch: Sequence[list[int]]) -> lucid.Tensor:
    longest = max(map(len, batch))
    return EMBEDDING[lucid.tensor([x + [0] * (longest - len(x)) for x in batch])].sum(1)


def test_lists_of_a_batch_that_had_the_same_length_by_chance_have_any_length() -> None:
    step = lucid.compile(padded, audit=False)
    for lengths in ((4, 6, 5), (7, 6, 5), (3, 9, 5), (8, 4, 7), (5, 5, 11), (6, 12, 4)):
        batch = [ids(length) for length in lengths]
        assert lucid.equal(step(batch), padded(batch))
    assert step.stats.traces <= 3
    assert not step.stats.eager_reasons


def test_lists_have_any_length_behind_a_call_that_runs_op_by_op_for_another_reason() -> None:
    first, second = (nn.Parameter(lucid.ones(3)) for _ in range(2))
    optimizer = lucid.optim.SGD([first], lr=0.1)
    calls = [0]

    def body(batch: Sequence[list[int]]) -> lucid.Tensor:
        if calls[0] == 5 and len(optimizer.param_groups) == 1:
            second.requires_grad_()
            optimizer.add_param_group({"params": [second]})
        calls[0] += 1
        optimizer.zero_grad()
        loss = (padded(batch) * first * second).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = lucid.compile(body, audit=False)
    for number, length in enumerate((*LENGTHS, *LENGTHS)):
        step([ids(length), ids(length + number % 3 + 1)])
    assert step.stats.traces <= 5
    assert len(step.stats.eager_reasons) == 1


def in_pairs(text: str) -> lucid.Tensor:
    h = lucid.zeros(3)
    for before, after in zip(text, text[1:]):  # noqa: RUF007, B905
        h = lucid.tanh(h + EMBEDDING[CHARACTERS[before]]) * EMBEDDING[CHARACTERS[after]]
    return h


# What steps make of a text whose words or characters they look up, or count.
OF_TEXTS: dict[str, Callable[[str], Any]] = {
    "words": lambda text: EMBEDDING[prepare_sequence(text.split(), WORDS)].mean(0),
    "words with a default": lambda text: lucid.tensor(
        [WORDS.get(w.strip(), 0) for w in text.lower().split(" ")]
    ),
    "lines": lambda text: lucid.tensor([WORDS.get(w, 0) for w in text.splitlines()]),
    "characters": lambda text: EMBEDDING[lucid.tensor(["w 0123456789".index(c) for c in text])],
    "all but one": lambda text: EMBEDDING[lucid.tensor([ord(c) % 40 for c in text[:-1]])].sum(0),
    "two parts": lambda text: (
        lucid.tensor([ord(c) for c in text[1:]]) - lucid.tensor([ord(c) for c in text[:-1]])
    ),
    "joined lists": lambda text: EMBEDDING[
        lucid.tensor([] + [WORDS[w] for w in text.split()] + [1])
    ],
    "pairs in a loop": in_pairs,
    "how long it is": lambda text: lucid.zeros(len(text)) + EMBEDDING[0, 0],
}


@pytest.mark.parametrize("use", OF_TEXTS)
def test_words_and_characters_of_a_text_need_one_program(agree: Any, use: str) -> None:
    def scenario(compile: Callable[[Any], Any]) -> Any:
        step = compile(OF_TEXTS[use])
        return [step(" ".join(words(size))) for size in (*LENGTHS, *LENGTHS)]

    (step,) = agree(scenario)
    assert step.stats.traces <= 4 and not step.stats.eager_reasons


# What steps ask of a text for which they need its words themselves.
IN_TEXTS: dict[str, Callable[[str], Any]] = {
    "the first word": lambda text: text.split()[0],
    "a word in it": lambda text: "w3" in text.split(),
    "sorted words": lambda text: sorted(text.split()),
    "no more than one split": lambda text: text.split(" ", 1),
    "by keyword": lambda text: text.split(sep="w"),
    "some characters": lambda text: [c for c in text if c.isdigit()],
    "a condition": lambda text: sum(2 if w == "w3" else 1 for w in text.split()),
    "pairs": lambda text: [*itertools.pairwise(text)],
}


@pytest.mark.parametrize("use", IN_TEXTS)
def test_a_step_that_needs_the_words_of_a_text_is_specialized_on_it(agree: Any, use: str) -> None:
    def scenario(compile: Callable[[Any], Any]) -> Any:
        step = compile(lambda x, text: (x + len(text), IN_TEXTS[use](text)))
        return [step(lucid.ones(2), " ".join(words(size))) for size in (*LENGTHS[:4], *LENGTHS)]

    agree(scenario)
