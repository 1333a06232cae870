"""What `lucid.compile(…, nan="raise")` costs: the same training step with and without, in turns.

    LUCID_NUM_THREADS=1 python benchmarks/non_finite.py
    LUCID_NUM_THREADS=1 python benchmarks/non_finite.py --rounds 40

Each line is a step of about a millisecond: a network of three dense layers, with SGD and with Adam,
and a small convolutional one. Two compiled functions take turns, a hundred calls each; of the
rounds the least time of each is shown, and the median of the ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn.functional as F
from lucid import nn

CALLS = 100


def dense() -> tuple[nn.Module, lucid.Tensor]:
    """Three layers, and a batch for them."""
    layers = nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    return nn.Sequential(*layers), lucid.randn(384, 64)


def convolutional() -> tuple[nn.Module, lucid.Tensor]:
    """Two convolutions, and a batch for them."""
    layers = nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU()
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(144, 10))
    return model, lucid.randn(64, 1, 8, 8)


def training_step(make: Callable[[], Any], optimizer: str, nan: str) -> Callable[[], Any]:
    """A compiled step on data of its own."""
    lucid.manual_seed(0)
    model, x = make()
    y = lucid.randint(0, 10, (x.shape[0],))
    opt = getattr(lucid.optim, optimizer)(model.parameters(), lr=1e-3)

    @lucid.compile(nan=nan)
    def step(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss.detach()

    return lambda: step(x, y)


def seconds(step: Callable[[], Any]) -> float:
    """The time of a call, of many in a row."""
    begin = time.perf_counter()
    for _ in range(CALLS):
        step()
    return (time.perf_counter() - begin) / CALLS


def main() -> None:
    """Print a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    for make in (dense, convolutional):
        for optimizer in ("SGD", "Adam"):
            steps = [training_step(make, optimizer, nan) for nan in ("allow", "raise")]
            for step in steps:
                seconds(step)
            pairs = [[seconds(step) for step in steps] for _ in range(rounds)]
            plain, watched = (1e3 * min(times) for times in zip(*pairs, strict=True))
            ratio = statistics.median(after / before for before, after in pairs)
            name = f"{make.__name__}, {optimizer}"
            print(f"{name:22} {plain:.3f} ms, checked {watched:.3f}; median {ratio - 1:+.1%}")


if __name__ == "__main__":
    main()
