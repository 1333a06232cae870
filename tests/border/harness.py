"""A user's program, run op by op and compiled: every call must give the same.

A program is a function of `compile`. It builds its state anew, makes a step, calls it, changes a
Python value between calls as users do, and returns a list of what the calls gave. The decorators
make a test of it:

- `same_as_eager`: compiled, all results are those of eager mode, and no call went op by op.
- `same_as_eager(or_said=True)`: for values that can't be compared at each call. The calls may go
  op by op with a reason in `step.stats.eager_reasons`, or raise a `LucidError` that names a line of
  the user's and a remedy. Never may a call go on with the old value.
- `same_as_eager(traces=2)`: and the step is traced at most so often.

What the compiled program does otherwise is a `NotAsEagerError`. A program that is itself wrong (its
results don't change with the value, or depend on more than the seed) is another error.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import random
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lucid
from lucid.ir.errors import LucidError

Compile = Callable[..., Any]
Program = Callable[..., list[Any]]
HERE = Path(__file__).parent
INSTALLED = HERE / "site-packages"
X = lucid.tensor([1.0, 2.0, 3.0])


class NotAsEagerError(AssertionError):
    """What a compiled program did isn't what eager mode does, nor an honest refusal."""


class WrongProgramError(Exception):
    """The test's own program is wrong: it says nothing about the compiler."""


class Calls(list[Any]):
    """Results of two calls before the first change and two after each."""


def calls(step: Callable[..., Any], *changes: Callable[[], Any], args: tuple[Any, ...] = (X,)):
    """Call the step twice, and twice more after each of the changes."""
    results = Calls([step(*args), step(*args)])
    for change in changes:
        change()
        results += [step(*args), step(*args)]
    return results


def fresh(name: str) -> types.ModuleType:
    """Import a module as if for the first time, so that no program sees what another left."""
    for known in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[known]
    return importlib.import_module(name)


# ------------------------------------------------------------------ comparing


def observed(value: Any) -> Any:
    """What a result holds, as NumPy arrays and plain containers."""
    if isinstance(value, lucid.Tensor):
        return np.array(value.detach().numpy())
    if isinstance(value, dict):
        return {key: observed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [observed(item) for item in value]
    return value


def is_same(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            is_same(found[k], expected[k]) for k in found
        )
    if isinstance(expected, list):
        is_as_long = isinstance(found, list) and len(found) == len(expected)
        return is_as_long and all(is_same(a, b) for a, b in zip(found, expected, strict=True))
    if isinstance(expected, (np.ndarray, float)) or isinstance(found, np.ndarray):
        found, expected = np.asarray(found), np.asarray(expected)
        if (found.dtype, found.shape) != (expected.dtype, expected.shape):
            return False
        return bool(np.allclose(found, expected, rtol=2e-5, atol=5e-6, equal_nan=True))
    return bool(found == expected)


# ------------------------------------------------------------------ running


class Compiling:
    """`compile` for a program: keeps the steps that it made, to look at their stats."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.steps: list[Any] = []

    def __call__(self, function: Any = None, **options: Any) -> Any:
        if function is None:
            return functools.partial(self, **options)
        self.steps.append(lucid.compile(function, **self.options, **options))
        return self.steps[-1]

    @property
    def traces(self) -> int:
        return sum(step.stats.traces for step in self.steps)

    @property
    def eager_reasons(self) -> list[str]:
        return [reason for step in self.steps for reason in step.stats.eager_reasons]

    @property
    def retrace_reasons(self) -> list[str]:
        return [reason for step in self.steps for reason in step.stats.retrace_reasons]


def uncompiled(function: Any = None, **options: Any) -> Any:
    """`compile` for eager mode: does nothing."""
    return function if function is not None else lambda function: function


def run(program: Program, compile: Compile, *args: Any, **kwargs: Any) -> Any:
    lucid.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    found = program(compile, *args, **kwargs)
    kind = Calls if isinstance(found, Calls) else list
    return kind(observed(list(found)))


def expected_of(program: Program, changes: bool, *args: Any, **kwargs: Any) -> list[Any]:
    """Eager mode's results. Raises `WrongProgramError` if they can't show what they are to show."""
    expected = run(program, uncompiled, *args, **kwargs)
    if not is_same(run(program, Compiling(mode="eager"), *args, **kwargs), list(expected)):
        raise WrongProgramError("two runs in eager mode differ")
    if changes and isinstance(expected, Calls):
        for i in range(0, len(expected) - 2, 2):
            if is_same(expected[i + 2], expected[i]):
                raise WrongProgramError(f"change {i // 2 + 1} makes no difference in eager mode")
    elif changes and all(is_same(result, expected[0]) for result in expected):
        raise WrongProgramError("all results are equal in eager mode")
    return list(expected)


def names_users_line(text: str, program: Program) -> bool:
    """Whether a message names a line of the program's file, or of an installed package."""
    users = {Path(inspect.getsourcefile(program) or "").name}
    users |= {path.name for path in INSTALLED.rglob("*.py")}
    return any(name in users for name in re.findall(r"(\w+\.py):\d+", text))


def is_honest(error: LucidError, program: Program) -> bool:
    return names_users_line(str(error), program) and "hint:" in str(error)


def compare(
    program: Program,
    *args: Any,
    or_said: bool = False,
    changes: bool = True,
    traces: int | None = None,
    **kwargs: Any,
) -> None:
    """Raise `NotAsEagerError` unless the compiled program does what it does in eager mode."""
    expected = expected_of(program, changes, *args, **kwargs)
    compile = Compiling()
    try:
        found = run(program, compile, *args, **kwargs)
    except LucidError as error:
        if or_said and is_honest(error, program):
            return
        raise NotAsEagerError(f"{type(error).__name__}: {error}") from error
    except Exception as error:
        raise NotAsEagerError(f"crashed with {type(error).__name__}: {error}") from error
    said = [*compile.eager_reasons, *compile.retrace_reasons]
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        if not is_same(a, b):
            raise NotAsEagerError(f"result {i} is {a}, in eager mode {b}; {said}")
    if compile.eager_reasons and not or_said:
        raise NotAsEagerError(f"ran op by op: {compile.eager_reasons[0]}")
    if traces is not None and compile.traces > traces:
        raise NotAsEagerError(f"{compile.traces} traces: {compile.retrace_reasons}")


def same_as_eager(program: Program | None = None, /, **options: Any) -> Any:
    """Make a test of a program; further parameters of it are those of the test."""
    if program is None:
        return functools.partial(same_as_eager, **options)

    @functools.wraps(program)
    def test(**kwargs: Any) -> None:
        compare(program, **options, **kwargs)

    first, *parameters = inspect.signature(program).parameters.values()
    assert first.name == "compile"
    test.__signature__ = inspect.Signature(parameters)  # pytest has no fixture `compile`
    return test
