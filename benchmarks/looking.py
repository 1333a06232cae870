"""What it costs that a step looks at values: the same step with and without, in turn, in lucid.

    python benchmarks/looking.py

An MLP 64-256-256-10 with Adam, batch 128, one thread. Where a model's memory happens to lie makes
several per cent of difference, so each step is there several times; times are medians over all of
these, in random order, ratios those to the step that looks at nothing; of an assertion on the norm
of the gradients, to the step that returns the norm. The target is 1.02 for conditions that hold.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
import lucid
from lucid import nn

ROUNDS, CALLS, INSTANCES = 30, 20, 4
TARGET = 1.02
NORM = "the gradients' norm"
HOLDS = ("10 assertions on the loss", "10 assertions after the update", "an assertion on that norm")


def step_of(kind: str) -> Callable[[], Any]:
    """One step, ready to be called."""
    lucid.manual_seed(0)
    layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
    model = nn.Sequential(*layers)
    opt = lucid.optim.Adam(model.parameters(), lr=1e-3)
    rng = np.random.default_rng(0)
    x = lucid.tensor(rng.normal(size=(128, 64)).astype("f4"))
    y = lucid.tensor(rng.integers(0, 10, 128))
    history: list[float] = []
    sign = [lucid.tensor(1.0), lucid.tensor(-1.0)]

    @lucid.compile(audit=False)
    def step(x: Any, y: Any, sign: Any) -> Any:
        loss = nn.functional.cross_entropy(model(x), y)
        if kind == HOLDS[0]:
            for i in range(10):
                assert loss < 1000.0 + i
        if kind == "a branch that alternates" and loss * 0 + sign > 0:
            loss = loss * 2
        opt.zero_grad()
        loss.backward()
        if kind == HOLDS[2]:
            assert sum((p.grad**2).sum() for p in model.parameters()) < 1e9
        norm = None
        if kind == NORM:
            norm = sum((p.grad**2).sum() for p in model.parameters())
        opt.step()
        if kind == HOLDS[1]:
            for i in range(10):
                assert loss < 1000.0 + i
        if kind == "item() returned":
            return loss.item()
        if kind == "item() kept":
            history.append(loss.item())
        if kind == "print":
            print(f"loss {loss.item():.4f}")
        return loss.detach() if norm is None else (loss.detach(), norm)

    def call() -> Any:
        if kind == "a branch that alternates":
            sign.reverse()
        return step(x, y, sign[0])

    return call


KINDS = (
    "nothing",
    NORM,
    *HOLDS,
    "item() returned",
    "item() kept",
    "print",
    "a branch that alternates",
)


def main() -> int:
    """Print the table; 1 where conditions that hold miss their target."""
    lucid.set_num_threads(1)
    steps = [(kind, step_of(kind)) for _ in range(INSTANCES) for kind in KINDS]
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    shuffled = random.Random(0)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        for _, call in steps:
            for _ in range(20):
                call()
        for _ in range(ROUNDS):
            shuffled.shuffle(steps)
            for kind, call in steps:
                begin = time.perf_counter()
                for _ in range(CALLS):
                    call()
                times[kind].append((time.perf_counter() - begin) / CALLS)
            said.seek(0)
            said.truncate()
    missed = False
    for kind, found in times.items():
        median = statistics.median(found)
        plain = statistics.median(times[NORM if kind == HOLDS[2] else "nothing"])
        missed = missed or (kind in HOLDS and median > TARGET * plain)
        print(f"{kind:32} {median * 1e6:8.1f} us   {median / plain:5.3f}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
