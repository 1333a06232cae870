"""What it costs that a step looks at values: the same step with and without, in turn, in lucid.

    python benchmarks/looking.py

An MLP 64-256-256-10 with Adam, batch 128, one thread; times are medians, ratios those to the step
that looks at nothing. The target is 1.02 for conditions that hold.
"""

from __future__ import annotations

import contextlib
import io
import os
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

ROUNDS, CALLS = 60, 20
TARGET = 1.02
HOLDS = ("10 assertions on the loss", "10 assertions after the update")


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
        if kind == "an assertion on the gradients":
            assert sum((p.grad**2).sum() for p in model.parameters()) < 1e9
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
        return loss.detach()

    def call() -> Any:
        if kind == "a branch that alternates":
            sign.reverse()
        return step(x, y, sign[0])

    return call


KINDS = (
    "nothing",
    *HOLDS,
    "an assertion on the gradients",
    "item() returned",
    "item() kept",
    "print",
    "a branch that alternates",
)


def main() -> int:
    """Print the table; 1 where conditions that hold miss their target."""
    lucid.set_num_threads(1)
    steps = {kind: step_of(kind) for kind in KINDS}
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        for call in steps.values():
            for _ in range(30):
                call()
        for _ in range(ROUNDS):
            for kind, call in steps.items():
                begin = time.perf_counter()
                for _ in range(CALLS):
                    call()
                times[kind].append((time.perf_counter() - begin) / CALLS)
            said.seek(0)
            said.truncate()
    plain = times["nothing"]
    missed = False
    for kind, found in times.items():
        ratio = statistics.median(a / b for a, b in zip(found, plain, strict=True))
        missed = missed or (kind in HOLDS and ratio > TARGET)
        print(f"{kind:32} {statistics.median(found) * 1e6:8.1f} us   {ratio:5.3f}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
