"""Random programs made of lines of text: written, loaded, and compared by all that can be seen.

A table has a form of a statement or an expression per line; `$t` in it stands for something that is
drawn from what the program has of that kind, and `\\n` ends a line of the program.
"""

from __future__ import annotations

import collections
import dataclasses
import linecache
import random
import re
from types import SimpleNamespace
from typing import Any

import numpy as np

import lucid
from lucid import nn, optim

NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?")
CONTAINERS = (list, tuple, collections.deque)


def table(text: str) -> list[str]:
    """The lines of a table."""
    return [line.replace("\\n", "\n") for line in text.strip().splitlines()]


def filled(rng: random.Random, form: str, kinds: dict[str, Any]) -> str:
    """A form with what is drawn for each `$x`: of a list of names, or by a function."""

    def drawn(match: re.Match[str]) -> str:
        kind = kinds[match[1]]
        return str(kind() if callable(kind) else rng.choice(kind))

    return re.sub(r"\$([a-z])", drawn, form)


def load(source: str, file: str) -> dict[str, Any]:
    """The names that a program defines."""
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    names: dict[str, Any] = {"__name__": file}
    exec(compile(source, file, "exec", dont_inherit=True), names)
    return names


def parts_of(value: Any) -> dict[str, Any] | None:
    """What is in a container or an object of plain data, by name; None for others."""
    if isinstance(value, dict):
        return {str(key): item for key, item in value.items()}
    if isinstance(value, CONTAINERS):
        return {str(i): item for i, item in enumerate(value)}
    if isinstance(value, SimpleNamespace) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    ):
        return vars(value)
    return None


def shown(value: Any) -> Any:
    """What a user can see of a value."""
    if isinstance(value, lucid.Tensor):
        data = np.array(value.detach().numpy())
        gradient = shown(value.grad) if value.is_leaf else None
        return [str(value.dtype), value.requires_grad, value.is_leaf, data, gradient]
    if isinstance(value, (np.ndarray, np.generic)):
        return np.array(value)
    if isinstance(value, nn.Module):
        plain = {
            f"{path}.{name}": shown(x)
            for path, module in value.named_modules()
            for name, x in vars(module).items()
            if isinstance(x, (int, float, lucid.Tensor)) and not name.startswith("_")
        }
        tensors = dict(value.named_parameters()), dict(value.named_buffers())
        return [*map(shown, tensors), plain]
    if isinstance(value, (optim.Optimizer, optim.lr_scheduler.LRScheduler)):
        return shown({k: x for k, x in value.state_dict().items() if not callable(x)})
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    parts = parts_of(value)
    if parts is not None:
        return [type(value).__name__, {key: shown(item) for key, item in parts.items()}]
    if value is None or isinstance(value, (int, float, str)):
        return value
    return type(value).__name__


def difference(found: Any, expected: Any, path: str = "") -> str | None:
    """Where two values that were shown differ by more than rounding; None: nowhere."""
    if type(found) is not type(expected):
        return f"{path}: {found!r} is not {expected!r}"
    if isinstance(expected, (list, tuple)):
        found, expected = dict(enumerate(found)), dict(enumerate(expected))
    if isinstance(expected, dict):
        if list(found) != list(expected):
            return f"{path}: there is {[*found]}, not {[*expected]}"
        parts = (difference(found[x], expected[x], f"{path}.{x}") for x in expected)
        return next((part for part in parts if part is not None), None)
    if isinstance(expected, (float, np.ndarray)):
        is_same = np.shape(found) == np.shape(expected) and _are_close(found, expected)
    elif isinstance(expected, str):
        is_same = NUMBER.sub("#", found) == NUMBER.sub("#", expected) and _are_close(
            [*map(float, NUMBER.findall(found))], [*map(float, NUMBER.findall(expected))]
        )
    else:
        is_same = found == expected
    return None if is_same else f"{path}: {found!r} is not {expected!r}"


def _are_close(found: Any, expected: Any) -> bool:
    found, expected = np.asarray(found), np.asarray(expected)
    if expected.dtype.kind != "f":
        return found.dtype == expected.dtype and bool((found == expected).all())
    most = max([1.0, *np.abs(expected[np.isfinite(expected)]).ravel()])
    tolerance = 1e-9 if expected.dtype == np.float64 else 2e-4
    return np.allclose(found, expected, tolerance, tolerance * most, equal_nan=True)


def aliases(value: Any) -> list[str]:
    """Which objects in a value are the same, or share memory."""
    paths: dict[int, str] = {}
    arrays: list[tuple[str, np.ndarray]] = []
    found: list[str] = []

    def go(x: Any, path: str) -> None:
        parts = parts_of(x)
        is_array = isinstance(x, (lucid.Tensor, np.ndarray))
        if is_array or (parts is not None and not isinstance(x, tuple)):
            if id(x) in paths:
                found.append(f"{path} is {paths[id(x)]}")
                return
            paths[id(x)] = path
        if is_array:
            array = x.detach().numpy() if isinstance(x, lucid.Tensor) else x
            found.extend(f"{path} ~ {p}" for p, a in arrays if np.shares_memory(a, array))
            arrays.append((path, array))
        for key, item in (parts or {}).items():
            go(item, f"{path}.{key}")

    go(value, "")
    return found


def outcome(records: list[Any], expected: list[Any]) -> str | None:
    """Where the records of two runs differ: one per call, the last one perhaps an error's class."""
    for i, (ours, theirs) in enumerate(zip(records, expected, strict=False)):
        at = difference(ours, theirs, f"call {i}")
        if at is not None:
            return at
    return None if len(records) == len(expected) else "one has ended earlier"
