"""Random steps that read and write arrays of NumPy's: compiled, they do what eager mode does."""

from __future__ import annotations

import importlib.util
import random
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from fuzzing import many

import lucid

ARRAYS = {
    "a": ("f8", (3, 4)),
    "b": ("f4", (4,)),
    "c": ("i8", (3,)),
    "d": ("f8", (4,)),
    "e": ("i4", (2, 2)),
    "m": ("?", (3,)),
    "w": ("f4", (4,)),
    "z": ("f8", (3, 4)),
}
OF_THE_STEP = ("z", "w")
SETS = many(3)
PROGRAMS = 20  # in each


def index(rng, shape):
    parts = []
    for size in shape:
        low, live = rng.randrange(size), f"(kept.i % {size})"
        ranges = [f"{low}:{rng.randint(low + 1, size)}", f"{low}::2", ":", "::-1"]
        part = rng.choice([str(rng.randrange(-size, size)), live, *ranges])
        if len(shape) == 1 and rng.random() < 0.1:
            part = str([rng.randrange(size), low])
        parts.append(part)
        if rng.random() < 0.3:
            break
    return ", ".join(parts)


def expression(rng, depth=0):
    name = rng.choice([*ARRAYS])
    method = rng.choice(["sum()", "mean()", "max()", "copy()", "T", "reshape(-1)"])
    first = ", ".join("0" for _ in ARRAYS[name][1])
    found = [
        *(f"{name}[{index(rng, ARRAYS[name][1])}]", f"{name}.{method}", f"float({name}[{first}])"),
        *("x.sum().item()", f"x[0, {rng.randrange(4)}].item()", "x.numpy()[1]", "x.numpy()"),
        *("kept.v", str(rng.choice([0, 1, 3, -1.5])), f"np.{rng.choice(['abs', 'sign'])}({name})"),
        f"({name} {rng.choice(['>', '<=', '=='])} {rng.choice(['1', 'x.sum().item()'])})",
    ]
    if depth < 2:
        sides = (expression(rng, depth + 1), expression(rng, depth + 1))
        found += [f"({sides[0]} {rng.choice('+-*')} {sides[1]})"] * 3
    return rng.choice(found)


def statement(rng):
    name = rng.choice([*ARRAYS])
    place, sign = f"{name}[{index(rng, ARRAYS[name][1])}]", rng.choice("+-*")
    function = rng.choice(["add", "multiply", "maximum"])
    return rng.choice(
        [
            *(f"{place} = {expression(rng)}", f"{place} {sign}= {expression(rng)}"),
            *(f"{name} {sign}= {expression(rng)}", f"found.append({expression(rng)})"),
            f"np.{function}({name}, {expression(rng)}, out={name})",
            f"{name}.fill({rng.choice(['0', '1', 'kept.i'])})",
            f"row = {name}[0:1]; row += {rng.choice(['1', 'x.sum().item()'])}",
            f"found.append(str({name}) + f'{{{name}.sum():.3f}}')",
            f"found.append({name}.tolist())",
        ]
    )


def program(seed):
    rng = random.Random(seed)
    names = ", ".join(x for x in ARRAYS if x not in OF_THE_STEP)
    lines = ["import numpy as np", f"def make(kept, {names}):", "  def step(x):"]
    lines += [f"    nonlocal {names}", "    found, z, w = [], np.zeros((3, 4)), np.ones(4, 'f4')"]
    lines += ["    kept.i += 1; kept.v = kept.i * 0.5"]
    for _ in range(rng.randint(2, 7)):
        lines += ["    try:", f"      {statement(rng)}"]
        lines += ["    except (ValueError, TypeError, IndexError) as error:"]
        lines += ["      found.append(type(error).__name__)"]
    return "\n".join([*lines, "    return found, z, w", "  return step", ""])


def shown(value):
    if isinstance(value, (np.ndarray, np.generic)):
        return type(value), value.dtype, value.shape, value.astype(float).round(9).tolist()
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    return round(value, 9) if isinstance(value, float) else value


def results(make, compile):
    rng, kept = np.random.default_rng(0), SimpleNamespace(i=0, v=0.0)
    arrays = [
        (rng.normal(size=shape) * 3).astype(dtype) if dtype != "?" else rng.random(shape) > 0.5
        for name, (dtype, shape) in ARRAYS.items()
        if name not in OF_THE_STEP
    ]
    step, found = compile(make(kept, *arrays)), []
    for seed in range(4):
        given = np.random.default_rng(seed).integers(-2, 3, size=(3, 4)).astype("f8")
        found.append((shown(step(lucid.tensor(given))), shown(arrays), kept.i))
    return found, step


@pytest.mark.parametrize("first", range(0, SETS * PROGRAMS, PROGRAMS))
def test_random_steps_with_arrays(tmp_path, first):
    native = 0
    for seed in range(first, first + PROGRAMS):
        path = tmp_path / f"program_{seed}.py"
        path.write_text(program(seed))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected, _ = results(module.make, lambda function: function)
            found, step = results(module.make, lucid.compile)
        assert found == expected, path.read_text()
        native += all("it handles" in reason for reason in step.stats.eager_reasons)
    assert native > 0.8 * PROGRAMS
