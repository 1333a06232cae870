"""Random steps whose sizes are computed of several numbers, from outside and of the step's own."""

from __future__ import annotations

import builtins
import linecache
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fuzzing import many

import lucid
from lucid.nn import functional as F

COUNT = many(40)
CALLS = 16
NUMBERS = {
    "n": "n",
    "s.length": "s.length",
    "len(s.items)": "len(s.items)",
    "count": "int((x[:, 0] > 0.3).sum())",
    "rows": "x[x[:, 1] > 0].shape[0]",
}


def size_of(choose: random.Random, numbers: list[str], depth: int = 2) -> str:
    if not depth or choose.random() < 0.35:
        return choose.choice(numbers)
    a, b = size_of(choose, numbers, depth - 1), size_of(choose, numbers, depth - 1)
    c = choose.randint(1, 4)
    return choose.choice(
        [
            *(f"({a} + {b})", f"({a} * {b})", f"({a} - {b})", f"({a} + {c})", f"{c} * {a}"),
            *(f"({a} // {c})", f"({a} % ({c} + 4))", f"min({a}, {b})", f"max({a}, {c})"),
            *(f"int({a} * 0.5)", f"abs({a} - {b})", f"({a} // max({b}, 1))"),
        ]
    )


def part_of(choose: random.Random, t: str, size: str) -> str:
    return choose.choice(
        [
            *(f"{t}[:{size}]", f"{t}[-({size}):] * 2", f"{t}[::2][:{size}]", f"{t}[:, :{size}]"),
            f"lucid.cat([{t}, {t}[:{size}]])",
            f"F.pad({t}, (0, 0, 0, {size} % 20))",
            f"{t} * lucid.arange({t}.shape[0])[:, None] / max({size}, 1)",
            f"{t}.repeat({size} % 3 + 1, 1)",
            f"{t} + {t}[:, :{size}].sum(1, keepdim=True)",
            f"{t}[{t}.sum(1) > 0]",
            f"{t}.roll({size} % 7, 0)",
            f"{t}[lucid.arange({size} % 5) % max({t}.shape[0], 1)] if {t}.shape[0] else {t}",
        ]
    )


def source_of(seed: int) -> str:
    choose = random.Random(seed)
    named = choose.sample(sorted(NUMBERS), choose.randint(1, 3))
    numbers = [name if name.isidentifier() else NUMBERS[name] for name in named]
    lines = [f"{name} = {NUMBERS[name]}" for name in named if name.isidentifier() and name != "n"]
    t, results = "x", ["loss"]
    for place in range(choose.randint(1, 3)):
        size = size_of(choose, numbers)
        lines.append(f"y{place} = {part_of(choose, t, size)}")
        t = f"y{place}"
        extra = ["", t + ".shape[0]", t + ".sum(0)", size, f"lucid.arange({size} % 50)"]
        results.append(choose.choice(extra) or t)
    lines += [f"loss = (({t} @ w[:{t}.shape[1]]) ** 2).sum()", "w.grad = None"]
    lines += choose.choice([["loss.backward()"], []])
    lines += choose.choice([["s.length = s.length % 9 + 3"], []])
    lines += choose.choice([[f"s.kept[:{size_of(choose, numbers)} % 30] += 1"], []])
    return "\n    ".join(["def step(x, n, s, w):", *lines, f"return [{', '.join(results)}]"])


def run(seed: int, source: str, compile: Any) -> list[Any]:
    file = f"<random sizes {seed}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    names: dict[str, Any] = {"lucid": lucid, "F": F}
    exec(builtins.compile(source, file, "exec"), names)
    step = compile(names["step"])
    choose, numbers = random.Random(seed), np.random.default_rng(seed)
    s = SimpleNamespace(length=3, items=[0] * 4, kept=lucid.zeros(32))
    w = lucid.tensor(numbers.normal(size=(6, 2)), requires_grad=True)
    seen: list[Any] = []
    for call in range(CALLS):
        least = 0 if call > CALLS - 4 else 3
        x, n = lucid.tensor(numbers.normal(size=(20, 6))), choose.randint(least, 12)
        if choose.random() < 0.5:
            s.length = choose.randint(least, 9)
        if choose.random() < 0.3:
            s.items = [0] * choose.randint(least, 7)
        try:
            seen.append(step(x, n, s, w))
        except (RuntimeError, IndexError, ValueError) as error:
            seen.append(type(error))
        seen += [s.length, s.kept.clone(), w.grad]
    return seen


SEEDS = [*range(COUNT), 216, 361]  # and two that have found faults


@pytest.mark.parametrize("seeds", [SEEDS[n : n + 10] for n in range(0, len(SEEDS), 10)], ids=str)
def test_random_steps_with_sizes_of_several_numbers(agree: Any, seeds: list[int]) -> None:
    for seed in seeds:
        source = source_of(seed)
        print(f"seed {seed}\n{source}")  # pytest shows it where they differ
        agree(lambda compile, seed=seed, source=source: run(seed, source, compile))
