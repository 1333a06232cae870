"""Layers that take (n, WIDTH) to (n, WIDTH), whatever n is."""

from __future__ import annotations

from collections.abc import Callable

import lucid
import lucid.nn.functional as F
from lucid import Tensor

WIDTH = 6
Layer = Callable[[Tensor], Tensor]


def _pairs(x: Tensor) -> Tensor:
    d = x[None] - x[:, None]
    r2 = (d * d).sum(-1) + 0.1
    return (d * (r2**-1.5)[..., None]).sum(1)


def _attention(x: Tensor) -> Tensor:
    q = x.reshape(x.shape[0], 2, 3).transpose(0, 1)
    y = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    return y.transpose(0, 1).reshape(x.shape)


def _convolution(x: Tensor) -> Tensor:
    images = x.reshape(-1, 1, 2, 3)
    kernel = lucid.ones(4, 1, 2, 2, dtype=x.dtype) * 0.3
    return F.conv2d(images, kernel, padding=1).sum(1).reshape(x.shape[0], -1)[:, :WIDTH]


def _mixed(x: Tensor) -> Tensor:
    places = lucid.arange(x.shape[0]) // 2
    return lucid.zeros(x.shape, dtype=x.dtype).index_add(0, places, x)


def _layer(x: Tensor, columns: int) -> Tensor:
    weight = lucid.linspace(-1, 1, columns * x.shape[1], dtype=x.dtype)
    return F.linear(x, weight.reshape(columns, -1))


def _gated(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    weight = lucid.linspace(-1, 1, WIDTH * WIDTH, dtype=row.dtype).reshape(WIDTH, WIDTH)
    new = (state @ weight).sigmoid() * state + row.tanh()
    return new, new * 0.5


def _by_round(x: Tensor) -> Tensor:
    """Rounds whose number is open."""
    return lucid.scan(_gated, x.new_zeros(WIDTH), x, reverse=True)[1]


def _for_each(x: Tensor) -> Tensor:
    """Rounds whose kernels have open sizes, and memory of their own."""
    rows = lucid.stack([x, x * 0.5, x.flip(0)])
    return lucid.scan(_gated, x.new_zeros(x.shape[0], WIDTH), rows)[1].sum(0)


def _by_column(x: Tensor) -> Tensor:
    """A loop of Python, which is rolled up."""
    state, columns = x.new_zeros(x.shape[0], WIDTH), []
    for column in range(WIDTH):
        state, made = _gated(state, x[:, column : column + 1])
        columns.append(made[:, 0])
    return lucid.stack(columns, 1)


def _until_small(x: Tensor) -> Tensor:
    """Rounds of which nobody knows how many there are."""
    return lucid.while_loop(
        lambda y: (y * y).sum() > 0.5, lambda y: (y * 0.6 + x.mean(0) * 0.01,), (x,)
    )[0]


def _either(x: Tensor) -> Tensor:
    return lucid.cond(x[0, 0] > 0, lambda: x.softmax(0) * len(x), lambda: x.cumsum(0) * 0.1)


def _nested(x: Tensor) -> Tensor:
    """A loop in each round of another one, both with open sizes."""

    def outer(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        rows = lucid.stack([state * row, state + row])
        return lucid.scan(_gated, state, rows)[0], row.sum() + state

    return lucid.scan(outer, x * 0.1, x)[1].mean(0)


LAYERS: dict[str, Layer] = {
    "softmax over rows": lambda x: F.softmax(x, dim=0),
    "softmax": lambda x: F.softmax(x, dim=1),
    "centred": lambda x: x - x.mean(0),
    "scaled by the size": lambda x: x * (1.0 / x.shape[0]) + len(x),
    "counted": lambda x: x * lucid.arange(x.shape[0]).to(x.dtype).unsqueeze(1) / 50,
    "running sums": lambda x: x.cumsum(0) / 10,
    "running sums of columns": lambda x: x.cumsum(1),
    "differences": lambda x: F.pad(x[1:] - x[:-1], (0, 0, 1, 0)),
    "backwards": lambda x: x.flip(0) - x,
    "rolled": lambda x: x.roll(1, 0),
    "halves": lambda x: lucid.cat([x, x * 2])[::2],
    "gram": lambda x: x @ (x.T @ x) / x.shape[0],
    "all pairs": lambda x: (x @ x.T).tril() @ x / 10,
    "attention": _attention,
    "bodies": _pairs,
    "sorted": lambda x: x.sort(dim=0)[0],
    "the largest": lambda x: x - x.amax(0, keepdim=True),
    "chosen": lambda x: x[x.argmax(0)].sum(0) + x,
    "by place": lambda x: x[lucid.arange(x.shape[0]).flip(0)],
    "a branch": lambda x: lucid.where(x > 0, x, 0.1 * x),
    "a layer": lambda x: _layer(F.gelu(_layer(x, 33)), WIDTH),
    "convolution": _convolution,
    "convolution along rows": lambda x: F.conv1d(
        x.T[None], lucid.ones(WIDTH, WIDTH, 3, dtype=x.dtype) * 0.2, padding=1
    )[0].T,
    "mixed": _mixed,
    "transposed": lambda x: x.T.contiguous().T,
    "summed": lambda x: x * lucid.logsumexp(x, 0),
    "rounds": _by_round,
    "rounds of kernels": _for_each,
    "a loop of Python": _by_column,
    "rounds until": _until_small,
    "one of two": _either,
    "rounds of rounds": _nested,
    "matrices": lambda x: F.pad((x.reshape(-1, 2, 3) @ x.reshape(-1, 3, 2)).flatten(1), (1, 1)),
}  # fmt: skip
