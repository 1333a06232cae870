"""What `lucid.compile(…, nan="raise")` costs: the same training step with and without, in turns.

    LUCID_NUM_THREADS=1 python benchmarks/non_finite.py
    LUCID_NUM_THREADS=1 python benchmarks/non_finite.py --rounds 400

Each line is a step of about a millisecond: a network of three dense layers, one of more parameters
and fewer examples, and a small convolutional one, each with SGD and with Adam. Two compiled
functions take turns, ten calls each, the first of them last in the next round; the least time of
each is shown, the median of the ratios, and the ratio of the least times.
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

CALLS = 10


def dense() -> tuple[nn.Module, lucid.Tensor]:
    """Three layers, and a batch for them."""
    layers = nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    return nn.Sequential(*layers), lucid.randn(384, 64)


def wide() -> tuple[nn.Module, lucid.Tensor]:
    """Half a million parameters, and 32 examples: a third of the step is their updates."""
    layers = nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    return nn.Sequential(*layers), lucid.randn(32, 256)


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
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    for make in (dense, wide, convolutional):
        for optimizer in ("SGD", "Adam"):
            steps = [training_step(make, optimizer, nan) for nan in ("allow", "raise")]
            for step in steps * 5:
                seconds(step)
            pairs = []
            for number in range(rounds):
                times = [seconds(step) for step in steps[:: -1 if number % 2 else 1]]
                pairs.append(times[:: -1 if number % 2 else 1])
            plain, watched = (1e3 * min(times) for times in zip(*pairs, strict=True))
            ratio = statistics.median(after / before for before, after in pairs)
            name = f"{make.__name__}, {optimizer}"
            print(
                f"{name:22} {plain:.3f} ms, checked {watched:.3f} ({watched / plain - 1:+.1%}); "
                f"median {ratio - 1:+.1%}"
            )


if __name__ == "__main__":
    main()
