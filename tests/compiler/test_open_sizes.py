"""A step that comes back with other sizes: the code of an earlier one serves them.

Programs are compared with eager mode at each of several sizes, the second of which opens them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from lucid.autograd.native import op_by_op
from lucid.codegen import costs
from lucid.compiler.inputs import signature
from lucid.ir.errors import IndexOutOfRangeError

SIZES = (11, 16, 5, 8, 40, 13, 7, 33)


@pytest.fixture(autouse=True, scope="module")
def _known_sizes_of_arguments() -> Iterator[None]:
    """Each size is traced; `test_open_arguments.py` has those that are open in the trace."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signature, "MOVES_OF_SIZES", 10**9)
        yield


def gradients(function: Callable[..., Tensor], array: np.ndarray) -> list[np.ndarray]:
    x = lucid.tensor(array, requires_grad=True)
    result = function(x)
    assert x.grad is not None
    return [result.detach().numpy().copy(), x.grad.numpy().copy()]


def agrees_at(layers: Sequence[Layer], sizes: Sequence[int], dtype: str) -> Any:
    """Compare a step of these layers with eager mode at all sizes, and return it."""

    def step(x: Tensor) -> Tensor:
        y = x
        for layer in layers:
            y = layer(y)
        (y * y).sum().backward()
        return y

    compiled = lucid.compile(step)
    tolerance = 1e-3 if dtype == "float32" else 1e-9
    for size in sizes:
        array = np.random.default_rng(size).normal(size=(size, WIDTH)).astype(dtype)
        for found, expected in zip(gradients(compiled, array), gradients(step, array), strict=True):
            scale = np.abs(expected).max(initial=1.0)
            np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)
    return compiled


@pytest.mark.parametrize("name", LAYERS)
def test_a_step_with_other_sizes_is_right_and_runs_code_that_is_there(name: str) -> None:
    stats = agrees_at([LAYERS[name]], SIZES, "float32").stats
    assert stats.traces == len(SIZES)
    assert not stats.eager_reasons
    assert stats.reused == len(SIZES) - 1


@pytest.mark.parametrize(
    "name", ["all pairs", "a layer", "convolution", "gram", "rounds of kernels", "sorted"]
)
def test_kernels_that_threads_share_are_right_for_other_sizes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "WORTH_SECONDS", 0.0)
    step = agrees_at([LAYERS[name]], (40, 37, 64, 21, 96, 130), "float64")
    assert step.stats.reused == 5


@hypothesis.settings(max_examples=many(8), derandomize=not FUZZED, deadline=None)
@hypothesis.given(
    st.lists(st.sampled_from(list(LAYERS)), min_size=2, max_size=4),
    st.lists(st.integers(2, 70), min_size=3, max_size=5, unique=True),
)
def test_random_steps_are_right_for_random_sizes(names: list[str], sizes: list[int]) -> None:
    agrees_at([LAYERS[name] for name in names], sizes, "float64")


# Models ---------------------------------------------------------------------------------------


class _Trained:
    """A model with state, trained by a compiled step and by an eager one."""

    def __init__(self) -> None:
        lucid.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(8, 32, bias=False),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(32, 5),
        )
        self.optimizer = lucid.optim.Adam(self.model.parameters(), lr=1e-2)

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss


def _batch(size: int) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(size)
    return lucid.tensor(rng.normal(size=(size, 8)).astype("f4")), lucid.tensor(
        rng.integers(0, 5, size)
    )


def test_a_model_is_trained_with_batches_of_all_sizes() -> None:
    compiled, eager = _Trained(), _Trained()
    step = lucid.compile(compiled.step)
    for size in (16, 12, 30, 7, 16, 25, 50):
        lucid.manual_seed(size)
        found = step(*_batch(size))
        lucid.manual_seed(size)
        expected = eager.step(*_batch(size))
        assert found.item() == pytest.approx(expected.item(), rel=1e-4)
    assert (step.stats.traces, step.stats.reused) == (6, 5)
    pairs = zip(
        compiled.model.state_dict().values(), eager.model.state_dict().values(), strict=True
    )
    for a, b in pairs:
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-4)


def test_a_python_loop_over_sequences_of_other_lengths_costs_no_more_than_its_trace() -> None:
    def trained(compile: Any) -> tuple[list[float], Any]:
        lucid.manual_seed(0)
        cell, head = nn.LSTMCell(5, 7), nn.Linear(7, 3)
        optimizer = lucid.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            h, c = lucid.zeros(2, 7), lucid.zeros(2, 7)
            for t in range(x.shape[0]):
                h, c = cell(x[t], (h, c))
            loss = nn.functional.cross_entropy(head(h), y)
            loss.backward()
            optimizer.step()
            return loss

        step = compile(step)
        sequences = [lucid.randn(length, 2, 5) for length in (20, 25, 33, 18, 41, 25)]
        return [step(x, lucid.tensor([0, 1])).item() for x in sequences], step

    expected, _ = trained(lambda step: step)
    found, step = trained(lucid.compile)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert (step.stats.traces, step.stats.reused) == (5, 4)
    assert all(str(text) for text in step.stages.values())
    assert "roll_up_rounds" in [*step.stages]


def test_what_an_instance_is_can_be_seen_and_checked() -> None:
    trained = _Trained()
    step = lucid.compile(trained.step)
    for size in (16, 12, 30):
        step(*_batch(size))
    assert step.stats.reused == 2
    assert step.check(*_batch(30)).agrees
    assert "30" in step.stages["kernels"]
    assert "in n0" not in step.stages["kernels"]  # but columns of products have that name
    assert all(str(text) for text in step.stages.values())
    assert "matmul" in str(step.profile(*_batch(30)))


def test_an_index_that_is_out_of_range_is_told_with_the_sizes_of_its_call() -> None:
    step = lucid.compile(_Trained().step)
    for size in (16, 12, 30):
        step(*_batch(size))
    x, y = _batch(21)
    with pytest.raises(
        IndexOutOfRangeError, match=r"target 7 is out of range for 5 classes"
    ) as error:
        step(x, y * 0 + 7)
    assert "i64[21]" in str(error.value)
    assert step.stats.reused == 3


def test_an_index_that_is_out_of_range_is_told_with_the_line_of_its_call() -> None:
    chosen = [False]

    @lucid.compile
    def step(x: Tensor, places: Tensor) -> Tensor:
        if chosen[0]:
            return x[places]  # here
        return x[places]

    for size in (9, 11, 13):
        step(_rows(size), lucid.tensor([1]))
    chosen[0] = True
    step(_rows(15), lucid.tensor([1]))
    with pytest.raises(IndexError, match="# here"):
        step(_rows(15), lucid.tensor([99]))


def test_results_have_the_same_bits_for_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(costs, "WORTH_SECONDS", 0.0)
    found = []
    for threads in (1, 2):
        before = lucid.get_num_threads()
        lucid.set_num_threads(threads)
        try:
            step = lucid.compile(lambda x: F.softmax(x @ x.T, dim=0) @ x)
            found.append([step(_rows(size)).numpy() for size in (90, 70, 133)])
            assert step.stats.reused == 2
        finally:
            lucid.set_num_threads(before)
    for one, two in zip(*found, strict=True):
        assert one.tobytes() == two.tobytes()


def _rows(size: int) -> Tensor:
    return lucid.tensor(np.random.default_rng(size).normal(size=(size, 24)).astype("f4"))


# What isn't open ------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(5, 1, 7), (1, 6, 3), (4, 2, 9), (0, 3, 8), (5, 0, 6)])
def test_sizes_of_none_and_one_have_code_of_their_own(sizes: tuple[int, ...]) -> None:
    def step(x: Tensor) -> Tensor:
        return x * x.sum(0) + x.shape[0]

    compiled = lucid.compile(step)
    for size in sizes:
        x = _rows(size)
        np.testing.assert_allclose(compiled(x).numpy(), step(x).numpy(), rtol=1e-5)


@pytest.mark.parametrize("first", [(1,), (0,), (1, 0), (5, 1)])
def test_sizes_are_open_though_one_was_none_or_one_at_first(first: tuple[int, ...]) -> None:
    """A sequence grows from its first element, a loop begins with a single row."""

    def step(x: Tensor) -> Tensor:
        return x.softmax(0) * x.shape[0] + x.sum(0)

    compiled = lucid.compile(step)
    for size in (*first, 6, 4, 9, 7, 1, 8):
        x = _rows(size)
        expected = step(x).numpy()
        np.testing.assert_allclose(compiled(x).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert compiled.stats.reused >= 3


def test_the_tokens_behind_a_prompt_have_open_sizes_of_their_own() -> None:
    def step(queries: Tensor, keys: Tensor) -> Tensor:
        return (queries @ keys.T).softmax(1) @ keys

    compiled = lucid.compile(step)
    for count, length in ((6, 6), (1, 7), (1, 8), (1, 9), (9, 9), (1, 10), (4, 10)):
        queries, keys = lucid.randn(count, 4), lucid.randn(length, 4)
        expected = step(queries, keys).numpy()
        np.testing.assert_allclose(compiled(queries, keys).numpy(), expected, rtol=1e-4, atol=1e-6)
    assert compiled.stats.reused == 5  # all but the prompt, and the first token


def test_a_step_may_have_open_places_and_no_kernel_with_open_sizes() -> None:
    """Rows that lie further and further apart: where each begins is open, what is copied isn't."""
    compiled = lucid.compile(lambda x: lucid.stack([row * i for i, row in enumerate(x)]))
    for apart in (1, 2, 3, 5):
        x = lucid.arange(4.0 * apart * 3).reshape(-1, 3)[::apart]
        expected = x * lucid.arange(4.0)[:, None]
        assert compiled(x).tolist() == expected.tolist()
    assert not compiled.stats.eager_reasons


def test_a_size_that_equals_another_one_by_chance_is_that_of_its_call_alone() -> None:
    def step(x: Tensor, y: Tensor) -> Tensor:
        return x.sum(0) @ y if x.shape[0] == y.shape[0] else (x @ y.T).sum(0)

    compiled = lucid.compile(step)
    y = _rows(24)
    for size in (9, 24, 13, 24, 30):
        x = _rows(size)
        np.testing.assert_allclose(compiled(x, y).numpy(), step(x, y).numpy(), rtol=1e-3, atol=1e-3)


def test_a_size_for_which_assumptions_do_not_hold_is_no_instance() -> None:
    compiled = lucid.compile(lambda x: x * x.sum(0))
    for size, reused in ((3, 0), (4, 1), (1, 1), (2, 2), (5, 3)):
        x = _rows(size)
        expected = x * x.sum(0)
        np.testing.assert_allclose(compiled(x).numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
        assert compiled.stats.reused == reused


@pytest.mark.parametrize(
    "sizes",
    [
        ((9, 20), (11, 30), (9, 33), (15, 15), (40, 22)),
        ((8, 16), (10, 20), (12, 30), (9, 18), (13, 20)),  # one is twice the other at first
    ],
)
def test_two_sizes_may_change_by_themselves(sizes: tuple[tuple[int, int], ...]) -> None:
    def step(x: Tensor, y: Tensor) -> Tensor:
        return F.softmax(x @ y.T, dim=1) @ y

    compiled = lucid.compile(step)
    for rows, others in sizes:
        x, y = _rows(rows), _rows(others)
        np.testing.assert_allclose(compiled(x, y).numpy(), step(x, y).numpy(), rtol=1e-4, atol=1e-5)
    assert compiled.stats.reused >= 2


def test_an_open_stride_that_is_one_now_is_told_from_one_that_always_is() -> None:
    """The bias' gradients sum a column: n0 rows here, n0 * n1 there, where a width is open too."""
    for shape, width in (((9,), 1), ((6, 8), 3), ((8,), 1), ((3, 12), 1)):
        layer = nn.Linear(8, width)
        layer(lucid.ones(*shape, 8, requires_grad=True)).sum().backward()
        assert layer.bias.grad is not None
        assert layer.bias.grad.tolist() == [float(np.prod(shape))] * width


def test_sizes_far_from_those_of_a_plan_get_another_one() -> None:
    compiled = lucid.compile(lambda x: F.softmax(x @ x.T, dim=1).sum(0))
    for size in (4, 6, 1000, 900, 5):
        x = _rows(size)
        expected = F.softmax(x @ x.T, dim=1).sum(0)
        np.testing.assert_allclose(compiled(x).numpy(), expected.numpy(), rtol=1e-3, atol=1e-4)
    assert compiled.stats.reused == 4


def test_a_step_with_passes_of_the_users_knows_its_sizes() -> None:
    seen: list[tuple[int, ...]] = []

    def look(graph: Any) -> bool:
        seen.append(graph.inputs[0].value.shape)
        return False

    compiled = lucid.compile(lambda x: x.sum(0), passes=[look])
    for size in (9, 11, 13):
        compiled(_rows(size))
    assert {shape[0] for shape in seen} == {9, 11, 13}
    assert compiled.stats.reused == 0


def _deep() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 48, 3, stride=2), nn.Tanh()
    )


def _generator() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(32, 64, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(64, 32, 4, 2, 1)
    )


def _grouped() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(32, 64, 3, padding=1, groups=4), nn.ReLU(), nn.Conv2d(64, 40, 3, dilation=2)
    )


@pytest.mark.parametrize("threads", ["one", "many"])
@pytest.mark.parametrize("make", [_deep, _generator, _grouped])
def test_convolutions_of_open_sizes_make_what_numpy_does(
    make: Callable[[], nn.Module], threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products in blocks: of images and batches of other sizes, with all gradients."""
    if threads == "many":
        monkeypatch.setattr(costs, "WORTH_SECONDS", 0.0)
    lucid.manual_seed(0)
    net = make().to(lucid.float64)

    def step(x: Tensor) -> list[Tensor]:
        x = x.clone().requires_grad_()
        y = net(x)
        loss = (y * y).mean()
        return [y.detach(), *lucid.autograd.grad(loss, [x, *net.parameters()])]

    compiled = lucid.compile(step)
    for batch, height, width in ((8, 9, 9), (5, 9, 9), (11, 9, 9), (5, 13, 7), (7, 15, 23)):
        images = lucid.randn(batch, 32, height, width, dtype=lucid.float64)
        with op_by_op():
            reference = step(images)
        for found, expected in zip(compiled(images), reference, strict=True):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-9, atol=1e-11)
    assert compiled.stats.reused >= 3
