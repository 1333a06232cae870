"""Kernels with open sizes: one piece of code, or a few, is right for all of them."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor
from lucid.codegen import costs
from lucid.codegen.contraction.contraction import panels_of
from lucid.codegen.kernels.attention import AttentionKernel
from lucid.codegen.llvm.target import host_target
from lucid.codegen.program.open_kernels import emit_variant
from lucid.ir.extents import Sizes, is_open, replaced
from lucid.nn import functional as F
from lucid.runtime import open_programs

Array = np.ndarray[Any, Any]

ALL_SIZES = [33, 20, 48, *(n for n in range(2, 201) if n not in (33, 20, 48))]
SOME = [33, 20, 48, 2, 3, 5, 15, 16, 17, 31, 32, 47, 49, 63, 64, 65, 100, 127, 200]
MOST_VARIANTS = 3  # of a kernel: parts are one or more, lines are short or long


@pytest.fixture
def variants(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each open kernel is compiled from here on."""
    made: Counter[str] = Counter()

    def counting(module: Any, name: str, given: Any, *rest: Any) -> Any:
        made[given.key] += 1
        return emit_variant(module, name, given, *rest)

    monkeypatch.setattr(open_programs, "emit_variant", counting)
    return made


WIDTHS = (64, 32, 16)


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes of the vectors of open kernels."""
    host = host_target()
    wide: int = min(request.param, host.vector_bytes)
    target = host.with_vector_bytes(wide)
    monkeypatch.setattr(open_programs, "host_target", lambda: target)
    return wide


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = lucid.get_num_threads()
    lucid.set_num_threads(request.param)
    yield request.param
    lucid.set_num_threads(before)


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float32) -> Tensor:
    if np.dtype(dtype).kind == "i":
        return lucid.tensor(rng.integers(-(2**15), 2**15, shape).astype(dtype))
    return lucid.tensor(rng.normal(size=shape).astype(dtype))


def as_laid_out(x: Tensor, layout: str) -> Tensor:
    """A matrix whose memory has it by rows (N), by columns (T), or every second column (S)."""
    if layout == "N":
        return x
    return x.transpose(-1, -2) if layout == "T" else x[..., ::2]


def as_array(x: Array, layout: str) -> Array:
    return x.swapaxes(-1, -2) if layout == "T" else x[..., :: 2 if layout == "S" else 1]


def shape_in(layout: str, rows: int, columns: int) -> tuple[int, int]:
    if layout == "N":
        return rows, columns
    return (columns, rows) if layout == "T" else (rows, 2 * columns)


def assert_serves(
    function: Callable[..., Any],
    given: Callable[[int], tuple[Tensor, ...]],
    expected: Callable[..., Any],
    sizes: list[int],
    tolerance: float,
) -> str:
    """Call a compiled function with each size, and compare it with a function of arrays.

    Returns the kernels of the last call.
    """
    compiled = lucid.compile(function)
    for size in sizes:
        args = given(size)
        found = compiled(*args).numpy()
        wanted = expected(*(x.numpy() for x in args))
        scale = np.abs(wanted).max(initial=1.0)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale, err_msg=str(size))
    assert not compiled.stats.eager_reasons
    assert compiled.stats.traces < 8
    return compiled.stages["kernels"]


@pytest.mark.parametrize("lanes, width", [(1, 1), (4, 1), (16, 2), (16, 3), (8, 5), (2, 8)])
def test_panels_cover_each_column_once(lanes: int, width: int) -> None:
    sizes = Sizes([37], is_strict=False)
    (n,) = sizes.symbols
    at_all = panels_of(n, lanes, width)
    assert not sizes.assumptions
    for count in range(2, 200):
        at = sizes.at([count])
        for cut in (
            panels_of(count, lanes, width),
            [replaced(x, at) for x in at_all],
        ):
            end = 0
            for panels in cut:
                assert panels.low == end
                assert panels.width <= width
                end = panels.high
                if panels.tail:
                    assert end - panels.low == (panels.width - 1) * lanes + panels.tail
                elif panels.low < end and panels.tail == 0:
                    assert (end - panels.low) % (panels.width * lanes) == 0
            assert count <= end < count + lanes


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("opened", ["m", "n", "k", "mn", "mk", "nk", "mnk"])
def test_a_product_has_one_code_for_all_sizes(
    opened: str, dtype: Any, variants: Counter[str], rng: np.random.Generator
) -> None:
    layouts = rng.choice(list("NTS"), 2)

    def given(size: int) -> tuple[Tensor, ...]:
        other = 2 + (size * 7) % 61
        m, n, k = (
            (size if name == opened[0] else other) if name in opened else known
            for name, known in zip("mnk", (5, 21, 19), strict=True)
        )
        shapes = shape_in(layouts[0], m, k), shape_in(layouts[1], k, n)
        return tuple(random(rng, (2, *shape), dtype) for shape in shapes)

    def product(a: Any, b: Any) -> Any:
        return as_laid_out(a, layouts[0]) @ as_laid_out(b, layouts[1])

    def expected(a: Array, b: Array) -> Array:
        return as_array(a, layouts[0]) @ as_array(b, layouts[1])

    tolerance = {"float32": 1e-5, "float64": 1e-14, "int32": 0}[np.dtype(dtype).name]
    assert_serves(product, given, expected, ALL_SIZES, tolerance)
    assert max(variants.values(), default=0) <= MOST_VARIANTS


@pytest.mark.parametrize("layouts", [a + b for a, b in itertools.product("NTS", repeat=2)])
def test_tails_are_right_for_vectors_of_any_width(
    layouts: str, width: int, variants: Counter[str], rng: np.random.Generator
) -> None:
    def given(size: int) -> tuple[Tensor, ...]:
        a, b = shape_in(layouts[0], size, 35), shape_in(layouts[1], 35, 2 + size * 5 % 77)
        return random(rng, a), random(rng, b)

    def step(a: Tensor, b: Tensor) -> Tensor:
        product = as_laid_out(a, layouts[0]) @ as_laid_out(b, layouts[1])
        return F.gelu(product * 0.1).sum(0) + product.amax(0)

    def expected(a: Array, b: Array) -> Array:
        found: Array = step(lucid.tensor(a), lucid.tensor(b)).numpy()
        return found

    assert_serves(step, given, expected, SOME, 1e-5)
    assert max(variants.values(), default=0) <= MOST_VARIANTS


def test_parts_of_a_product_with_open_columns_are_right(
    threads: int, variants: Counter[str], rng: np.random.Generator
) -> None:
    def given(size: int) -> tuple[Tensor, ...]:
        return random(rng, (size, 130)), random(rng, (130, 2 * size + 1))

    sizes = [150, 163, 290, *rng.integers(120, 500, 12).tolist()]
    assert_serves(lambda a, b: a @ b, given, np.matmul, sizes, 1e-5)
    assert max(variants.values(), default=0) <= MOST_VARIANTS


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("layouts", ["NN", "TN", "NT", "ST"])
def test_the_last_block_of_inner_indices_has_what_is_left(
    layouts: str, dtype: Any, threads: int, variants: Counter[str], rng: np.random.Generator
) -> None:
    def given(size: int) -> tuple[Tensor, ...]:
        a, b = shape_in(layouts[0], 67, size), shape_in(layouts[1], size, 155)
        return random(rng, a, dtype), random(rng, b, dtype)

    def product(a: Any, b: Any) -> Any:
        return as_laid_out(a, layouts[0]) @ as_laid_out(b, layouts[1])

    def expected(a: Array, b: Array) -> Array:
        return as_array(a, layouts[0]) @ as_array(b, layouts[1])

    tolerance = {"float32": 1e-5, "float64": 1e-14, "int32": 0}[np.dtype(dtype).name]
    sizes = [700, 713, 690, *range(185, 194), 150, 376, 377, 1000, 1001, 1024]
    assert "contract in blocks" in assert_serves(product, given, expected, sizes, tolerance)
    assert max(variants.values(), default=0) <= MOST_VARIANTS


def test_a_product_of_open_sizes_is_the_same_with_any_number_of_threads(
    rng: np.random.Generator,
) -> None:
    given = [(random(rng, (n, 130)), random(rng, (n + 7, 130))) for n in (150, 163, 290, 205, 333)]
    compiled = lucid.compile(lambda a, b: (a @ b.T).tanh())
    found: list[list[bytes]] = []
    before = lucid.get_num_threads()
    for count in (1, 2):
        lucid.set_num_threads(count)
        found.append([compiled(*args).numpy().tobytes() for args in given * 2])
    lucid.set_num_threads(before)
    assert found[0][5:] == found[1][5:] == found[1][:5]


def test_attention_has_one_code_for_all_lengths(
    variants: Counter[str], rng: np.random.Generator
) -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        place = lucid.arange(q.shape[-2])
        scores = (q @ k.transpose(-1, -2)) * 0.3
        scores = scores.masked_fill(place[:, None] < place, float("-inf"))
        return scores.softmax(-1) @ v

    def expected(q: Array, k: Array, v: Array) -> Array:
        scores = np.where(np.tri(q.shape[-2]), q @ k.swapaxes(-1, -2) * 0.3, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)

    def given(size: int) -> tuple[Tensor, ...]:
        q, k, v = (random(rng, (2, 2, size, 8)) for _ in range(3))
        return q, k, v

    assert_serves(attention, given, expected, ALL_SIZES, 1e-5)
    assert max(variants.values(), default=0) <= MOST_VARIANTS


@pytest.mark.parametrize(
    ("mask", "dtype", "width"),
    [  # each mask with each width and dtype, and these with each other
        (mask, (np.float32, np.float64)[(i + j) % 2], width)
        for i, mask in enumerate(["", "causal", "bool", "float", "keys"])
        for j, width in enumerate(WIDTHS)
    ],
    indirect=["width"],
)
def test_attention_in_blocks_has_one_code_for_all_lengths(
    mask: str,
    dtype: Any,
    width: int,
    variants: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
) -> None:
    """Also its gradient; with blocks of keys that are whole, cut, or not there."""
    monkeypatch.setattr(costs, "ATTENTION_BYTES", 0)
    monkeypatch.setattr(costs, "ATTENTION_ROWS", 1)
    planned: list[bool] = []
    partition = AttentionKernel.partition

    def noting(kernel: AttentionKernel, *rest: Any) -> Any:
        planned.append(is_open(kernel.spec.sizes.rows))
        return partition(kernel, *rest)

    monkeypatch.setattr(AttentionKernel, "partition", noting)

    def step(q: Tensor, k: Tensor, v: Tensor, mask_: Tensor | None) -> list[Any]:
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        output = F.scaled_dot_product_attention(q, k, v, mask_, is_causal=mask == "causal")
        return [output, *lucid.autograd.grad((output * output).sum(), (q, k, v))]

    def expected(q: Array, k: Array, v: Array, mask_: Array | None) -> list[Array]:
        scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        if mask == "causal":
            mask_ = np.tri(*scores.shape[-2:], dtype=np.bool_)
        if mask_ is not None:
            is_bool = mask_.dtype == np.bool_
            scores = np.where(mask_, scores, -np.inf) if is_bool else scores + mask_
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        output = weights @ v
        dweights = 2 * output @ v.swapaxes(-1, -2)
        dscores = weights * (dweights - (weights * dweights).sum(-1, keepdims=True))
        dscores /= q.shape[-1] ** 0.5
        dv = weights.swapaxes(-1, -2) @ (2 * output)
        return [output, dscores @ k, dscores.swapaxes(-1, -2) @ q, dv]

    compiled = lucid.compile(step)
    tolerance = 2e-5 if dtype == np.float32 else 1e-12
    for rows in (70, 33, 20, 2, 3, 16, 63, 64, 65, 127, 128, 129, 150):
        keys = rows if mask == "causal" else 2 + rows * 5 % 140
        q, k, v = (
            random(rng, (2, 2, count, size), dtype)
            for count, size in ((rows, 19), (keys, 19), (keys, 7))
        )
        given = None
        if mask == "float":
            given = random(rng, (rows, keys), dtype)
        elif mask in ("bool", "keys"):
            flags = rng.random((rows, keys) if mask == "bool" else (2, 1, 1, keys)) < 0.7
            flags[..., 0] = True
            given = lucid.tensor(flags)
        arrays: list[Any] = [None if x is None else x.numpy() for x in (q, k, v, given)]
        results = compiled(q, k, v, given)
        for found, wanted in zip(results, expected(*arrays), strict=True):
            np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=0, atol=tolerance)
    assert any(planned)
    assert not compiled.stats.eager_reasons
    assert compiled.stats.traces < 8
    assert max(variants.values(), default=0) <= MOST_VARIANTS


def test_queries_that_are_not_there_add_nothing_to_infinite_keys(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """A block of queries is filled up with zeros, and 0 * inf isn't 0."""
    monkeypatch.setattr(costs, "ATTENTION_BYTES", 0)

    def step(q: Tensor, k: Tensor, v: Tensor) -> Any:
        v = v.detach().requires_grad_()
        (found,) = lucid.autograd.grad(F.scaled_dot_product_attention(q, k, v).sum(), (v,))
        return found

    compiled = lucid.compile(step)
    for size in (70, 33, 20, 50, 100):
        q, k, v = (random(rng, (size, 8)).abs() for _ in range(3))
        k[0] = -float("inf")
        weights = np.exp(q.numpy() @ k.numpy()[1:].T / 8**0.5)
        weights /= weights.sum(1, keepdims=True)
        found = compiled(q, k, v).numpy()
        assert (found[0] == 0).all()
        np.testing.assert_allclose(found[1:, 0], weights.sum(0), rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("axis", [0, 1])
def test_lines_of_any_length_are_sorted_by_the_same_code(
    axis: int, dtype: Any, variants: Counter[str], rng: np.random.Generator
) -> None:
    def given(size: int) -> tuple[Tensor, ...]:
        return (random(rng, (size, 3) if axis == 0 else (3, size), dtype),)

    assert_serves(lambda x: x.sort(dim=axis)[0], given, lambda x: np.sort(x, axis), ALL_SIZES, 0)
    assert_serves(
        lambda x: x.topk(2, dim=axis)[0],
        given,
        lambda x: np.flip(np.sort(x, axis), axis).take(range(2), axis),
        ALL_SIZES,
        0,
    )
    assert max(variants.values(), default=0) <= MOST_VARIANTS


_WITHIN_PAGES = """
import ctypes, itertools, mmap
import numpy as np
import lucid
from lucid.codegen import costs
from lucid.nn import functional as F

PAGE = mmap.PAGESIZE
kept = []
protect = ctypes.CDLL(None).mprotect
protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int

def at_the_end(shape):
    "A tensor behind whose last element a page begins that can't be read."
    count = 4 * shape[0] * shape[1]
    pages = -(-count // PAGE)
    memory = mmap.mmap(-1, (pages + 1) * PAGE)
    kept.append(memory)
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert protect(first + pages * PAGE, PAGE, 0) == 0
    array = np.frombuffer(memory, np.float32, count // 4, pages * PAGE - count).reshape(shape)
    array[...] = 1
    return lucid.from_numpy(array)

def product(a, b):
    return a @ b
def by_columns(a, b):
    return a @ b.T
def every_second(a, b):
    return a @ b[:, ::2]
def sorted_rows(a, b):
    return (a.sort(1)[0] @ b).sort(0)[0]
def attention(a, b, mask):
    return F.scaled_dot_product_attention(a, b, b, mask) * 19

costs.ATTENTION_BYTES = 0
for function, shapes in (
    (product, lambda n: [(n + 1, 19), (19, n)]),
    (by_columns, lambda n: [(n + 1, 19), (n, 19)]),
    (every_second, lambda n: [(n + 1, 19), (19, 2 * n - 1)]),
    (sorted_rows, lambda n: [(n + 1, 19), (19, n)]),
    (attention, lambda n: [(n + 1, 19), (n, 19), (n + 1, n)]),
):
    compiled = lucid.compile(function)
    for n in (33, 20, 48, 2, 3, 16, 17, 31, 50, 63, 65):
        found = compiled(*map(at_the_end, shapes(n))).numpy()
        assert found.shape[0] == n + 1 and abs(found - 19).max() < 1e-4
    assert not compiled.stats.eager_reasons
for function, shapes in (
    (product, lambda n: [(40, n), (n, 130)]),
    (by_columns, lambda n: [(40, n), (130, n)]),
    (lambda a, b: a.T @ b, lambda n: [(n, 40), (n, 130)]),
):
    compiled = lucid.compile(function)
    for n in (700, 713, 1001, 187, 193, 150):
        assert (compiled(*map(at_the_end, shapes(n))).numpy() == n).all()
    assert "contract in blocks" in compiled.stages["kernels"]
for step in (2, 3, 4):
    compiled = lucid.compile(lambda a: a[:, ::step] * 19, dynamic=False)
    for n in (2, 3, 7, 9, 15):
        found = compiled(at_the_end((3, step * (n - 1) + 1))).numpy()
        assert found.shape == (3, n) and (found == 19).all()
    assert not compiled.stats.eager_reasons
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="protects pages by mprotect")
def test_nothing_behind_an_operand_is_read() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHIN_PAGES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
