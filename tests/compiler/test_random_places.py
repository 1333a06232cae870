"""Random steps that read and write tensors at places that move do what eager mode does."""

from __future__ import annotations

import importlib.util
import random
from types import SimpleNamespace

import numpy as np
import pytest
from fuzzing import many

import lucid

SHAPES = {"a": (5, 4), "b": (6,), "c": (3, 5, 2)}
SETS = many(2)
PROGRAMS = 25  # in each


def index(rng, shape):
    parts, moves = [], False
    for size in shape:
        kind = rng.random()
        if kind < 0.35 and not moves:
            ints = [f"kept.i % {size}", f"-1 - kept.i % {size}"]
            parts.append(rng.choice([*ints, f"kept.i % {size - 1}:kept.i % {size - 1} + 2"]))
            moves = rng.random() < 0.9
        elif kind < 0.8:
            parts.append(rng.choice([str(rng.randrange(-size, size)), ":", "1:", ":2", "::2"]))
        else:
            break
    return ", ".join(["None"] * (rng.random() < 0.1) + parts or [f"kept.i % {shape[0]}"])


def statement(rng):
    name, other = rng.choice([*SHAPES]), rng.choice([*SHAPES])
    part = f"{name}[{index(rng, SHAPES[name])}]"
    second = f"{other}[{index(rng, SHAPES[other])}]"
    value = rng.choice([second, f"{second}.sum()", "x.sum()", "1.5"])
    number = rng.choice(["1", "x.sum()", "2.5"])
    return rng.choice(
        [
            *[f"{part} = {value}", f"{part} {rng.choice('+-*')}= {number}"] * 2,
            f"row = {part}; row += 1",
            f"row = {part}; {name}.mul_(0.5); found.append(row + 1)",
            f"row = {part}; {part} = row * 3; found.append(row.reshape(-1) * x.sum())",
            f"{part}.{rng.choice(['add_(x.sum())', 'zero_()', 'mul_(2)'])}",
            *(f"found.append({value})", f"found.append({part} * 2)"),
            f"found.append({part}.sum().item())",
        ]
    )


def program(seed):
    rng = random.Random(seed)
    names = ", ".join(SHAPES)
    lines = [f"def make(kept, {names}):", "  def step(x):", f"    nonlocal {names}"]
    lines += ["    found = []", "    kept.i += 1"]
    for _ in range(rng.randint(1, 5)):
        lines += ["    try:", f"      {statement(rng)}"]
        lines += ["    except (ValueError, TypeError, IndexError, RuntimeError) as error:"]
        lines += ["      found.append(type(error).__name__)"]
    return "\n".join([*lines, "    return found", "  return step", ""])


def shown(value):
    if isinstance(value, lucid.Tensor):
        return value.dtype, value.shape, np.round(value.tolist(), 8).tolist()
    if isinstance(value, list):
        return [shown(item) for item in value]
    return round(value, 8) if isinstance(value, float) else value


def results(make, compile):
    rng, kept = np.random.default_rng(0), SimpleNamespace(i=0)
    tensors = [lucid.tensor(rng.normal(size=shape)) for shape in SHAPES.values()]
    step, found = compile(make(kept, *tensors)), []
    for seed in range(6):
        given = np.random.default_rng(seed).integers(-2, 3, size=3).astype("f8")
        result = shown(step(lucid.tensor(given)))
        versions = [tensor._version for tensor in tensors]
        found.append((result, shown(tensors), versions, kept.i))
    return found, step


@pytest.mark.parametrize("first", range(0, SETS * PROGRAMS, PROGRAMS))
def test_random_steps_with_places_that_move(tmp_path, first):
    once = 0
    for seed in range(first, first + PROGRAMS):
        path = tmp_path / f"program_{seed}.py"
        path.write_text(program(seed))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        expected, _ = results(module.make, lambda function: function)
        found, step = results(module.make, lucid.compile)
        assert found == expected, path.read_text()
        assert not step.stats.eager_reasons
        once += step.stats.traces == 1
    assert once > 0.25 * PROGRAMS
