"""Arguments whose sizes keep changing: one program serves all of them.

The third size of an axis is open in the trace. Each step is compared with eager mode at sizes that
don't come back.
"""

from __future__ import annotations

import copy
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import hypothesis
import numpy as np
import pytest
from fuzzing import FUZZED, many
from hypothesis import strategies as st
from row_layers import LAYERS, WIDTH, Layer

import lucid
import lucid.nn.functional as F
from lucid import Tensor, nn
from lucid.compiler.inputs.signature import moving_axes
from lucid.compiler.programs import native
from lucid.compiler.programs.program import Program
from lucid.ir.errors import ShapeError
from lucid.ir.types import TensorType, f32
from lucid.runtime.entry.words import Word

SIZES = (11, 16, 5, 8, 40, 13, 7, 33, 1, 22, 3)
OPENED = 4  # traces: of two sizes, of all others, and of a single row


def rows(size: int, width: int = 4) -> Tensor:
    return lucid.tensor(np.random.default_rng(size).normal(size=(size, width)).astype("f4"))


def agree(found: Any, expected: Any) -> None:
    """Compare results, and what is in them."""
    assert type(found) is type(expected)
    if isinstance(found, Tensor):
        assert found.shape == expected.shape
        assert found.dtype is expected.dtype
        np.testing.assert_allclose(
            found.detach().numpy(), expected.detach().numpy(), rtol=1e-3, atol=1e-4
        )
    elif isinstance(found, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            agree(one, other)
    elif isinstance(found, float):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)
    else:
        assert found == expected


def compared(
    make: Callable[[], Callable[..., Any]],
    given: Callable[[int], tuple[Any, ...]],
    sizes: Sequence[int] = SIZES,
) -> Any:
    """Call a step compiled and in eager mode at all sizes, and return the compiled one."""
    lucid.manual_seed(0)
    eager = make()
    lucid.manual_seed(0)
    step = lucid.compile(make())
    for size in sizes:
        lucid.manual_seed(size)
        expected = eager(*given(size))
        lucid.manual_seed(size)
        agree(step(*given(size)), expected)
    return step


def trained(step: Callable[..., Any], *models: nn.Module) -> Callable[..., Any]:
    """A step that trains models on the loss of another one."""
    parameters = [p for model in models for p in model.parameters()]
    optimizer = lucid.optim.SGD(parameters, lr=0.1)

    def train(*args: Any) -> Any:
        optimizer.zero_grad()
        loss = step(*args)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss, [p.detach().clone() for p in parameters]

    return train


# What is open ---------------------------------------------------------------------------------


def test_an_axis_is_open_when_it_has_had_three_sizes() -> None:
    def types(*shapes: tuple[int, ...]) -> list[TensorType]:
        return [TensorType(f32, shape) for shape in shapes]

    def found(now: list[TensorType], *earlier: list[TensorType]) -> list[tuple[int, int]]:
        return sorted((position, axis) for *_, position, axis in moving_axes(now, earlier))

    first, second = types((4, 9), (4,)), types((5, 9), (5,))
    assert found(second, first) == []
    assert found(types((6, 9), (6,)), second, first) == [(0, 0), (1, 0)]
    assert found(types((6, 9), (5,)), second, first) == [(0, 0)]
    assert found(types((1, 9), (6,)), second, first) == [(1, 0)]  # of one row there is another
    assert found(types((6, 9, 1), (6,)), second, first) == []  # of another structure
    assert found(types((6, 9), (6,)), types((5, 9)), types((4, 9))) == [(0, 0)]  # in part


@pytest.mark.parametrize(("dynamic", "traces"), [(None, 3), (True, 2), (False, 5)])
def test_who_compiles_says_how_soon_sizes_are_open(dynamic: bool | None, traces: int) -> None:
    step = lucid.compile(lambda x: x.softmax(0), dynamic=dynamic)
    for size in (5, 7, 6, 9, 8):
        agree(step(rows(size)), rows(size).softmax(0))
    assert step.stats.traces == traces


@pytest.mark.parametrize("name", LAYERS)
def test_one_program_serves_all_sizes(name: str) -> None:
    layer = LAYERS[name]

    def make() -> Callable[..., Any]:
        def step(x: Tensor) -> Any:
            x = x.clone().requires_grad_()
            y = layer(x)
            (y * y).sum().backward()
            return y, x.grad

        return step

    sizes = [size for size in SIZES if size > 1]
    step = compared(make, lambda size: (rows(size, WIDTH),), sizes)
    assert step.stats.traces == 3
    assert not step.stats.eager_reasons


@hypothesis.settings(max_examples=many(8), derandomize=not FUZZED, deadline=None)
@hypothesis.given(
    st.lists(st.sampled_from(list(LAYERS)), min_size=2, max_size=4),
    st.lists(st.integers(2, 70), min_size=4, max_size=7, unique=True),
)
def test_random_steps_are_right_for_random_sizes(names: list[str], sizes: list[int]) -> None:
    layers: list[Layer] = [LAYERS[name] for name in names]

    def make() -> Callable[..., Any]:
        def step(x: Tensor) -> Any:
            x = x.clone().requires_grad_()
            y = x
            for layer in layers:
                y = layer(y) * 0.5
            (y * y).mean().backward()
            return y, x.grad

        return step

    def given(size: int) -> tuple[Tensor]:
        return (rows(size, WIDTH).double(),)

    assert not compared(make, given, sizes).stats.eager_reasons


def _language_model() -> Callable[..., Any]:
    embedding, layer, head = nn.Embedding(11, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 11)

    def loss(words: Tensor) -> Tensor:
        states, _ = layer(embedding(words[:, :-1]))
        return F.cross_entropy(head(states).flatten(0, 1), words[:, 1:].flatten())

    return trained(loss, embedding, layer, head)


def _transformer() -> Callable[..., Any]:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    places = nn.Embedding(64, 8)

    def loss(x: Tensor) -> Tensor:
        length = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        y = x + places(lucid.arange(length))
        return (layer(y, src_mask=mask) ** 2).mean()

    return trained(loss, layer, places)


def _graph_network() -> Callable[..., Any]:
    first, second = nn.Linear(4, 8), nn.Linear(8, 3)

    def passed(x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        sums = lucid.zeros_like(x).index_add(0, target, x[source])
        degrees = lucid.zeros(len(x)).index_add(0, target, lucid.ones(target.shape[0]))
        return sums / (degrees.unsqueeze(1) + 1)

    def loss(x: Tensor, edges: Tensor, labels: Tensor) -> Tensor:
        hidden = first(passed(x, edges)).relu()
        return F.cross_entropy(second(passed(hidden, edges)), labels)

    return trained(loss, first, second)


def _convolutions() -> Callable[..., Any]:
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 1),
    )
    return trained(lambda x: net(x).square().mean(), net)


def _of_arrays() -> Callable[..., Any]:
    layer = nn.Linear(4, 1)

    def loss(batch: dict[str, np.ndarray]) -> Tensor:
        return F.mse_loss(layer(lucid.from_numpy(batch["x"])), lucid.as_tensor(batch["y"]))

    return trained(loss, layer)


def _integers(size: int, *shape: int, below: int) -> Tensor:
    return lucid.tensor(np.random.default_rng(size).integers(0, below, shape))


TRAINED: dict[str, tuple[Callable[[], Any], Callable[[int], tuple[Any, ...]]]] = {
    "language model": (_language_model, lambda n: (_integers(n, 3, n + 2, below=11),)),
    "batches of sequences": (
        _language_model,
        lambda n: (_integers(n, 2 + n % 7, n + 2, below=11),),
    ),
    "transformer": (_transformer, lambda n: (rows(3 * n, 8).reshape(3, n, 8),)),
    "graph": (
        _graph_network,
        lambda n: (
            rows(n, 4),
            _integers(n, 2, 3 * n + n % 4, below=n),
            _integers(n, n, below=3),
        ),
    ),
    "convolutions": (_convolutions, lambda n: (rows(2 * n, 2 * 42).reshape(2 * n, 2, 6, 7),)),
    "arrays": (_of_arrays, lambda n: ({"x": rows(n).numpy(), "y": rows(n, 1).numpy()},)),
}


@pytest.mark.parametrize("name", TRAINED)
def test_training_on_batches_of_all_sizes_is_one_program(name: str) -> None:
    make, given = TRAINED[name]
    step = compared(make, given)
    assert step.stats.traces <= OPENED + 1
    assert not step.stats.eager_reasons
    calls = step.stats.calls
    step(*given(29))
    assert (step.stats.calls, step.stats.traces) == (calls + 1, step.stats.traces)


def test_sizes_that_were_equal_so_far_may_differ_later() -> None:
    def make() -> Callable[..., Any]:
        return lambda x, y: (x.sum(0) * y.sum(0), (x @ y.T).mean())

    step = compared(
        make, lambda n: (rows(n), rows(n if n > 6 else n + 1)), (8, 9, 10, 11, 4, 12, 3)
    )
    assert step.stats.traces == 4
    assert not step.stats.eager_reasons


def test_what_a_step_says_of_sizes_is_that_of_each_call() -> None:
    """Shapes that are returned, printed and counted, and branches on them."""

    def make() -> Callable[..., Any]:
        seen = SimpleNamespace(rows=0, texts=[])

        def step(x: Tensor) -> Any:
            seen.rows += x.shape[0]
            seen.texts.append(f"{x.shape[0]} of {tuple(x.shape)}")
            even = x.sum() if len(x) % 2 == 0 else x.mean()
            tensors = lucid.tensor(x.shape), lucid.tensor([len(x), 1.5]), lucid.tensor(len(x))
            mean = x.sum() / float(len(x)) ** 0.5
            return x.shape, x.size(0), x.numel(), even, seen.rows, seen.texts[-1], mean, tensors

        return step

    step = compared(make, lambda n: (rows(n),))
    assert step.stats.traces <= 6
    assert not step.stats.eager_reasons


def test_a_shape_that_is_printed_or_logged_is_that_of_each_call(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def step(x: Tensor) -> Tensor:
        print("x:", x.shape, [x.shape], f"{x.shape} {x.size()!r:>22}", f"{x.shape[1:]}")
        logging.getLogger("steps").warning("%s, %d rows", x.shape, len(x))
        return x.sum()

    compiled = lucid.compile(step)
    for size in SIZES:
        said = []
        for call in (step, compiled):
            caplog.clear()
            agree(call(rows(size)), rows(size).sum())
            said.append((capsys.readouterr().out, caplog.messages))
        assert said[0] == said[1]
    assert compiled.stats.traces == OPENED
    assert not compiled.stats.eager_reasons


def test_what_numpy_says_of_an_array_of_any_size_is_that_of_each_call() -> None:
    def make() -> Callable[..., Any]:
        seen = SimpleNamespace(rows=0)

        def step(x: np.ndarray, weights: np.ndarray) -> Any:
            seen.rows += x.shape[0]
            y = lucid.from_numpy((x - x.mean(0)) * weights[:, None])
            is_large = x.size > 80
            return y.sum(0), len(x), x.shape, x.ndim, x.nbytes, is_large, seen.rows

        return step

    step = compared(make, lambda n: (rows(n).numpy(), rows(n, 1).numpy()[:, 0]))
    assert step.stats.traces <= OPENED + 1
    assert not step.stats.eager_reasons


def test_a_loop_of_python_that_keeps_its_rows_from_the_last_knows_how_many_there_are() -> None:
    def make() -> Callable[..., Any]:
        def step(x: Tensor, y: Tensor) -> Tensor:
            kept = []
            for row in range(x.shape[0]):
                kept = [lucid.tanh(x[row]), *kept]
            return lucid.stack(kept).sum(0) * y.mean()

        return step

    step = compared(make, lambda n: (rows(n), rows(n + 30)), (4, 6, 5, 9, 7))
    assert step.stats.traces == 5
    assert step.stats.exits == 0
    signatures = [served.signature for served in step.stats.programs]
    assert all("y: f32[n,4]" in text for text in signatures[2:])  # of which the rest is open


def test_a_loop_of_python_over_rows_is_one_program() -> None:
    def make() -> Callable[..., Any]:
        def step(x: Tensor) -> Tensor:
            state = lucid.zeros(4)
            for row in range(x.shape[0]):
                state = lucid.tanh(state + x[row])
            return state

        return step

    step = compared(make, lambda n: (rows(n),), (5, 6, 8, 9, 7))
    assert step.stats.traces == 3
    assert not step.stats.eager_reasons


def test_a_model_compiled_alone_is_differentiated_outside() -> None:
    lucid.manual_seed(0)
    eager = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
    model = lucid.compile(copy.deepcopy(eager))
    for size in SIZES:
        found = []
        for each in (eager, model):
            each.zero_grad()
            x = rows(size).requires_grad_()
            each(x).square().mean().backward()
            found.append([x.grad, *[p.grad.clone() for p in each.parameters()]])
        agree(found[1], found[0])
    assert model.stats.traces == OPENED
    assert not model.stats.eager_reasons


# State of a size that grows -------------------------------------------------------------------


def _caching(place: str) -> Callable[..., Any]:
    """Attention over keys that each call adds to."""
    if place == "argument":
        return lambda x, past: (lambda keys: ((x @ keys.T).softmax(1) @ keys, keys))(
            lucid.cat([past, x])
        )
    held = SimpleNamespace(keys=lucid.zeros(1, 4))
    entries = {"keys": lucid.zeros(1, 4)}

    def in_attribute(x: Tensor) -> Tensor:
        held.keys = lucid.cat([held.keys, x])
        return (x @ held.keys.T).softmax(1) @ held.keys

    def in_dict(x: Tensor) -> Tensor:
        entries["keys"] = lucid.cat([entries["keys"], x])
        return (x @ entries["keys"].T).softmax(1) @ entries["keys"]

    return in_attribute if place == "attribute" else in_dict


def test_a_distribution_that_is_returned_has_the_shape_of_its_call() -> None:
    """Whatever sizes the library has noted in its own objects, as a policy hands them on."""

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits, self.value = nn.Linear(4, 3), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> tuple[Any, Tensor]:
            return lucid.distributions.Categorical(logits=self.logits(x)), self.value(x)

    lucid.manual_seed(0)
    plain = Policy()
    model = lucid.compile(copy.deepcopy(plain))
    for size in SIZES:
        for policy in (plain, model):
            choices, value = policy(rows(size))
            assert str(choices.batch_shape) == f"lucid.Size([{size}])"
            assert all(type(x) is int for x in choices.batch_shape)
            (value.sum() - choices.log_prob(lucid.arange(size) % 3).sum()).backward()
    assert model.stats.traces == OPENED
    assert not model.stats.eager_reasons
    for p, q in zip(plain.parameters(), model.parameters(), strict=True):
        agree(q.grad, p.grad)


@pytest.mark.parametrize("place", ["attribute", "dict"])
def test_a_cache_that_grows_in_a_place_is_one_program(place: str) -> None:
    step = compared(lambda: _caching(place), lambda n: (rows(n)[:1],), range(1, 25))
    assert step.stats.traces <= OPENED
    assert not step.stats.eager_reasons


def test_a_cache_that_is_handed_on_is_one_program() -> None:
    eager, step = _caching("argument"), lucid.compile(_caching("argument"))
    past = [lucid.zeros(1, 4), lucid.zeros(1, 4)]
    for size in range(1, 25):
        x = rows(size)[:1]
        expected, past[0] = eager(x, past[0])
        found, past[1] = step(x, past[1])
        agree(found, expected)
    assert step.stats.traces <= OPENED
    assert not step.stats.eager_reasons


def test_batches_of_other_sizes_that_a_number_chooses_are_one_program() -> None:
    """They are further arguments, which the trace comes to one by one."""

    def make() -> Callable[..., Any]:
        batches = [(rows(size), rows(size, 1)) for size in (5, 7, 6, 9, 12, 8, 3)]
        layer, state = nn.Linear(4, 1), SimpleNamespace(calls=0)

        def loss() -> Tensor:
            x, y = batches[state.calls % len(batches)]
            state.calls += 1
            return F.mse_loss(layer(x), y)

        return trained(loss, layer)

    step = compared(make, lambda _: (), range(20))
    assert step.stats.traces <= OPENED
    assert not step.stats.eager_reasons


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("width", [(2, 2), (0, 3), (-1, 2), (2, -3)], ids=str)
def test_an_axis_of_any_size_is_padded_with_its_own_elements(
    mode: str, width: tuple[int, int]
) -> None:
    def padded(x: Tensor) -> tuple[Tensor, Tensor | None]:
        x = x.T.detach().requires_grad_()
        y = F.pad(x * 1.5, width, mode=mode)
        (y * lucid.arange(y.shape[-1])).sum().backward()
        return y.detach(), x.grad

    step = lucid.compile(padded)
    for size in (11, 16, 8, 40, 13):
        agree(step(rows(size)), padded(rows(size)))
    assert step.stats.traces == 3
    assert not step.stats.eager_reasons
    agree(step(rows(4)), padded(rows(4)))  # where a cut may leave less than is added


# Memory, and what isn't open -------------------------------------------------------------------


def test_what_is_written_is_never_on_the_memory_of_an_argument_of_any_size() -> None:
    """A batch whose last rows are the first ones of the state: eager mode sees what is written."""

    def made() -> tuple[np.ndarray, Callable[[Tensor], Tensor]]:
        whole = np.arange(400, dtype="f4").reshape(100, 4) / 100
        table = lucid.from_numpy(whole[50:])

        def step(x: Tensor) -> Tensor:
            table.mul_(0.5)
            return x + table[0]

        return whole, step

    (whole, step), (expected, eager) = made(), made()
    step = lucid.compile(step, audit=False)
    for size in (5, 7, 6, 9, 8, 4, 3):
        for _ in range(3):  # native code knows the size by then
            agree(step(rows(size)), eager(rows(size)))
        given = [lucid.from_numpy(x[48 : 48 + size]) for x in (whole, expected)]
        agree(step(given[0]), eager(given[1]))
    assert step.stats.traces == 3


def test_an_argument_that_is_written_has_a_program_for_each_size() -> None:
    def make() -> Callable[..., Any]:
        def step(x: Tensor) -> Tensor:
            x.mul_(2)
            return x.sum(0)

        return step

    step = compared(make, lambda n: (rows(n),), (5, 7, 6, 9, 8))
    assert step.stats.traces == 5


def test_a_branch_that_needs_a_size_has_a_program_for_each() -> None:
    def make() -> Callable[..., Any]:
        return lambda x: lucid.cond(x.sum() > 0, lambda: x.unbind(0)[-1], lambda: x[0] * 2)

    step = compared(make, lambda n: (rows(n),), (5, 7, 6, 9, 8))
    assert step.stats.traces == 5
    assert not any(served.path for served in step.stats.programs)  # it stays in the graph


LAYOUTS: dict[str, Callable[[int], Tensor]] = {
    "transposed": lambda n: rows(4, n).T,
    "every second": lambda n: rows(2 * n)[::2],
    "all but the last": lambda n: rows(4, n + 1)[:, :-1].T,
    "from the third on": lambda n: rows(4, n + 2)[:, 2:].T,
    "expanded": lambda n: rows(1).expand(n, 4),
}
READS: dict[str, Callable[[Tensor], Any]] = {
    "computes": lambda x: x.softmax(0) @ x.T,
    "reshapes": lambda x: x.reshape(-1),
    "asks for another order": lambda x: x.contiguous().view(-1),
    "asks for the order": lambda x: x * 2 if x.is_contiguous() else x * 3,
    "returns it": lambda x: (x, x + 1),
    "returns a view": lambda x: (x[1:], x.T),
    "picks": lambda x: x[x > 0].sum(),
    "uses NumPy": lambda x: lucid.from_numpy(x.numpy() * 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", READS)
def test_what_is_not_row_major_is_read_in_one_program(name: str, layout: str) -> None:
    step = compared(lambda: READS[name], lambda n: (LAYOUTS[layout](n),), SIZES[:8])
    assert step.stats.traces <= 4 and not step.stats.eager_reasons


def test_what_is_row_major_has_a_program_of_its_own() -> None:
    eager = READS["asks for the order"]
    step = lucid.compile(eager)
    for size in SIZES[:8]:
        for x in (rows(size), rows(4, size).T):
            agree(step(x), eager(x))


def test_views_of_one_batch_are_read_in_one_program() -> None:
    """As a language model's: the tokens before, and those that follow."""
    step = lucid.compile(lambda x, y: ((x - y) ** 2).mean())
    for size in SIZES[:8]:
        batch = rows(4, size + 1)
        x, y = batch[:, :-1], batch[:, 1:]
        assert step(x, y).item() == pytest.approx(((x - y) ** 2).mean().item(), rel=1e-5)
    assert step.stats.traces == 3
    assert "x: f32[4,n] that isn't row-major, y: f32[4,n]" in str(step.stats)


def test_a_write_to_a_part_of_what_is_not_row_major_shows_in_all_of_it() -> None:
    """Though the step would get a row-major copy of what it only reads."""
    step = lucid.compile(lambda x, part: part.mul_(2) + x.sum())
    for size in SIZES[:8]:
        batch = rows(4, size + 1)
        before = batch.clone()
        step(batch[:, :-1], batch[:, :2])
        before[:, :2] *= 2
        agree(batch, before)
    assert step.stats.calls == 0


def test_a_result_that_is_an_argument_of_any_order_is_that() -> None:
    step = lucid.compile(lambda x: (x, x[1:], x * 2))
    for size in SIZES[:8]:
        batch = rows(4, size + 1)
        x = batch[:, :-1]
        same, part, _ = step(x)
        assert same is x
        part.zero_()
        assert not batch[1:, :-1].any() and batch[0].all() and batch[:, -1].all()
    assert step.stats.traces == 3


def test_bags_of_any_number_are_one_program() -> None:
    bags = nn.EmbeddingBag(20, 8)
    step = lucid.compile(lambda ids, begins: bags(ids, begins).tanh())
    for size in SIZES:
        lengths = np.random.default_rng(size).integers(0, 5, size)
        begins = lucid.tensor([0, *lengths.cumsum()[:-1].tolist()])
        ids = lucid.arange(int(lengths.sum()) + 1) * 7 % 20
        agree(step(ids, begins), step.__wrapped__(ids, begins))
    assert step.stats.traces == OPENED and not step.stats.eager_reasons


@pytest.mark.parametrize("right", [False, True])
def test_places_in_a_row_of_any_length_are_found_by_one_program(right: bool) -> None:
    step = lucid.compile(lambda row, x: lucid.searchsorted(row, x, right=right))
    for size in SIZES:
        random = np.random.default_rng(size)
        row = np.sort(random.integers(0, 2 * size + 1, size)).astype("f4")
        row[size - size // 8 :] = np.nan
        x = random.integers(-1, 2 * size + 2, size + 5).astype("f4")
        x[0] = np.nan
        found = step(lucid.tensor(row), lucid.tensor(x)).numpy()
        np.testing.assert_array_equal(found, np.searchsorted(row, x, "right" if right else "left"))
    assert step.stats.traces == OPENED and not step.stats.eager_reasons


def test_a_field_that_some_batches_have_leaves_the_sizes_of_the_others_open() -> None:
    layer = nn.Linear(4, 3)

    @lucid.compile
    def step(batch: dict[str, Tensor]) -> Tensor:
        found = layer(batch["x"])
        return found * batch["weights"].unsqueeze(1) if "weights" in batch else found

    for number, size in enumerate((11, 16, 5, 8, 40, 13, 7, 33, 22, 3)):
        batch = {"x": rows(size)} | ({"weights": rows(size)[:, 0]} if number == 3 else {})
        agree(step(batch), step.__wrapped__(batch))
    assert step.stats.traces == 4


def test_a_ctc_loss_of_any_lengths_is_one_program() -> None:
    def given(n: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(n)
        scores = lucid.tensor(rng.normal(size=(2 * n + 1, 2, 5)).astype("f4"))
        targets = lucid.tensor(rng.integers(1, 5, (2, n)))
        return scores, targets, lucid.tensor([2 * n + 1, 2 * n]), lucid.tensor([n, n - 1])

    def loss(scores: Tensor, *rest: Tensor) -> Tensor:
        return F.ctc_loss(scores.log_softmax(-1), *rest)

    step = compared(lambda: loss, given, SIZES[:8])
    assert step.stats.traces <= 4 and not step.stats.eager_reasons


def test_lengths_of_sequences_may_be_a_list_that_each_call_has_another_of() -> None:
    lucid.manual_seed(0)
    layer = nn.LSTM(4, 3, batch_first=True)

    def last(x: Tensor, lengths: list[int]) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths, batch_first=True, enforce_sorted=False
        )
        return layer(packed)[1][0][-1]

    def given(n: int) -> tuple[Tensor, list[int]]:
        return rows(2 * n).view(2, n, 4), [n, max(1, n // 2)]

    step = compared(lambda: last, given, (11, 16, 5, 8, 40, 13, 7, 33, 22, 3, 9, 12))
    assert not step.stats.eager_reasons
    with pytest.raises(lucid.OptionError, match=r"pack_padded_sequence: 12 isn.t from 1 to 10"):
        step(rows(20).view(2, 10, 4), [10, 12])


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_any_of_the_sequences_that_are_padded_may_be_the_longest(
    batch_first: bool, side: str
) -> None:
    rnn = nn.utils.rnn

    def make() -> Callable[..., Any]:
        layer = nn.GRU(4, 3, batch_first=batch_first)

        def loss(parts: list[Tensor]) -> Tensor:
            counts = [len(part) for part in parts]
            padded = rnn.pad_sequence(parts, batch_first, 0.5, padding_side=side)
            packed = rnn.pack_padded_sequence(padded, counts, batch_first, enforce_sorted=False)
            weights = lucid.arange(padded.shape[1 if batch_first else 0]) + 1.0
            weighted = padded * weights.reshape((-1, 1) if batch_first else (-1, 1, 1))
            return layer(packed)[1].square().sum() + weighted.sum()

        return trained(loss, layer)

    def given(seed: int) -> tuple[list[Tensor]]:
        sizes = np.random.default_rng(seed).integers(2, 9, 3)
        return ([rows(int(size)) for size in sizes],)

    longest = {int(np.argmax([len(x) for x in given(seed)[0]])) for seed in range(6, 16)}
    step = compared(make, given, range(16))
    assert longest == {0, 1, 2}
    assert step.stats.traces <= 5 and not step.stats.eager_reasons


@pytest.mark.parametrize("keys", [(0, 1), ("x", "y")])
@pytest.mark.parametrize("sizes", [(5, 6), (2, 9)])
def test_labels_of_a_listed_batch_move_all_together(
    sizes: tuple[int, int], keys: tuple[Any, Any]
) -> None:
    """Also beside sequences of ever other lengths; some of the labels stay in a few calls."""

    def make() -> Callable[..., Any]:
        layer = nn.Linear(4, 7)

        def loss(batch: list[Any]) -> Tensor:
            means = lucid.stack([sample[keys[0]].mean(0) for sample in batch])
            labels = lucid.tensor([sample[keys[1]] for sample in batch])
            return F.cross_entropy(layer(means), labels)

        return trained(loss, layer)

    def given(seed: int) -> tuple[list[Any]]:
        random = np.random.default_rng(seed)
        pairs = [(rows(int(random.integers(*sizes))), int(random.random() < 0.2)) for _ in range(8)]
        return ([pair if keys == (0, 1) else dict(zip(keys, pair, strict=True)) for pair in pairs],)

    step = compared(make, given, range(20))
    assert step.stats.traces <= 6 and not step.stats.eager_reasons, step.stats


def test_strides_that_a_step_reads_are_those_of_each_call() -> None:
    for read in (lambda x: (x.stride(), x * 2), lambda x: (x[1:].stride(0), x.stride(-1))):
        compared(lambda read=read: read, lambda n: (rows(4, n + 1)[:, :-1],), (5, 7, 6, 9, 8, 3))


@pytest.mark.parametrize("through", ["itself", "a view"])
def test_what_is_written_is_the_memory_of_the_argument(through: str) -> None:
    def write(x: Tensor) -> Tensor:
        (x if through == "itself" else x[0]).mul_(2)
        return x.sum(0)

    step = lucid.compile(write)
    for size in (5, 7, 6, 9, 8, 3, 4):
        given, expected = rows(4, size + 1), rows(4, size + 1)
        agree(step(given[:, :-1]), write(expected[:, :-1]))
        agree(given, expected)


def test_a_model_alone_is_differentiated_for_inputs_of_any_order() -> None:
    lucid.manual_seed(0)
    eager = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    model = lucid.compile(copy.deepcopy(eager))
    for size in SIZES[:8]:
        x = rows(size + 1, 8).view(size + 1, 2, 4).transpose(0, 1)[:, :-1]
        for each in (eager, model):
            each.zero_grad()
            each(x).pow(2).mean().backward()
        for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
            agree(ours.grad, theirs.grad)
    assert model.stats.traces == 3


def test_an_error_in_a_step_with_open_sizes_tells_those_of_its_call() -> None:
    step = lucid.compile(lambda x, y: x @ y)
    for size in (5, 7, 6, 9):
        step(rows(size), rows(4, 3))
    for width in (3, 5):  # of which the trace is another one
        with pytest.raises(ShapeError, match=r"\[8,3\]|\[8,5\]") as error:
            step(rows(8, width), rows(4, 3))
        assert f"f32[8,{width}]" in str(error.value)
    agree(step(rows(12), rows(4, 3)), rows(12) @ rows(4, 3))
    assert step.stats.traces == 3


def test_many_threads_call_it_with_sizes_of_their_own() -> None:
    step = lucid.compile(lambda x: (x @ x.T).softmax(1) @ x, audit=False)
    given = {size: rows(size) for size in range(2, 41)}
    expected = {size: ((x @ x.T).softmax(1) @ x).numpy() for size, x in given.items()}
    for size in (3, 4, 5):
        step(given[size])
    wrong: list[int] = []

    def work(seed: int) -> None:
        for size in np.random.default_rng(seed).integers(2, 41, 200).tolist():
            if not np.allclose(step(given[size]).numpy(), expected[size], atol=1e-5):
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert step.stats.traces == 3


def test_what_a_running_call_reads_of_its_sizes_stays_until_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread may meet sizes meanwhile for which temporaries need more room."""
    monkeypatch.setattr(native, "_MOST_FORMS", 1)
    step = lucid.compile(lambda x: (x @ x.T).softmax(1) @ x, audit=False)
    for size in (3, 4, 5, 8, 7):
        step(rows(size))
    calls = step._programs.latest.native
    running = weakref.ref(*calls._fillings.values())
    calls._plan[Word.IS_BUSY] = 1
    for size in (90, 91):
        step(rows(size))
    assert running() is not None and running() not in calls._fillings.values()
    calls._plan[Word.IS_BUSY] = 0
    for size in (190, 191):
        step(rows(size))
    gc.collect()
    assert running() is None


def test_machine_code_fills_in_what_follows_from_new_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where kernels have the code of sizes before, Python has no part in it."""

    def eager(x: Tensor, y: Tensor) -> Tensor:
        return (x @ y).softmax(-1).sum(0, keepdim=True) * x[:1, :1]

    step, y = lucid.compile(eager), rows(3, 50)
    for size in (20, 21, 22, 23, 24):
        step(rows(size, 3), y)
    given = [rows(size, 3) for size in (19, 26, 23, 25, 24)]
    expected, calls = [eager(x, y) for x in given], step.stats.calls
    monkeypatch.delattr(Program, "run")
    for x, known in zip(given, expected, strict=True):
        agree(step(x, y), known)
    assert step.stats.calls == calls + len(given) and step.stats.traces == 3


def test_sizes_that_were_equal_in_what_came_before_differ_in_machine_code() -> None:
    step = lucid.compile(lambda x, y: (x * y).softmax(-1))
    for size in (20, 21, 22, 23, 24, 25):
        step(rows(size), rows(size))
    with pytest.raises(ShapeError, match="the sizes 26 and 27"):
        step(rows(26), rows(27))
    for given in ((rows(26), rows(26)), (rows(26), rows(1)), (rows(1), rows(31))):
        agree(step(*given), (given[0] * given[1]).softmax(-1))


def test_a_tensor_that_is_row_major_is_none_that_is_not() -> None:
    """Of sizes that have come often as well, when machine code does the calls."""
    eager = READS["asks for the order"]
    step = lucid.compile(eager)
    for size in SIZES[:6]:
        for _ in range(4):
            agree(step(rows(4, size).T), eager(rows(4, size).T))
        agree(step(rows(size)), eager(rows(size)))


def test_a_gradient_that_is_passed_on_has_the_size_of_its_call() -> None:
    """As that of a sum is: its backward gives back what it is given, which lies anyhow."""
    step = lucid.compile(lambda x: x + lucid.arange(x.shape[0])[:, None])
    for size in SIZES:
        x = rows(size).requires_grad_()
        (step(x) * size).sum().backward()
        assert x.grad is not None
        assert str(x.grad.shape) == str(x.shape)
        agree(x.grad, lucid.full(x.shape, float(size)))


def test_an_audit_of_a_program_of_any_size_finds_nothing() -> None:
    """Though two sizes, of a batch and of its sequences, are equal in some calls."""
    make, given = TRAINED["batches of sequences"]
    step = lucid.compile(make())
    for size in SIZES:
        step(*given(size))
        step._call_audit(given(size), {})
        assert step._distrust is None
    assert step.stats.audits


def test_code_is_looked_at_with_the_sizes_of_a_call() -> None:
    step = lucid.compile(lambda x: (x @ x.T).softmax(1) @ x)
    for size in (5, 7, 6, 9):
        step(rows(size))
    assert step.check(rows(9)).agrees
    assert "matmul" in str(step.profile(rows(11)))
    assert all(str(text) for text in step.stages.values())
