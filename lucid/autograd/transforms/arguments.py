"""Which arguments a transformation is about: `argnums`."""

from __future__ import annotations

from typing import Any

from lucid.ir.errors import ArgumentError, LucidError, OptionError

Argnums = int | tuple[int, ...]


def normalized(argnums: Any, count: int) -> Argnums:
    """Count argument numbers from the start. Raises where there is no such argument."""
    if isinstance(argnums, int):
        return _normalized(argnums, count)
    if not isinstance(argnums, tuple):
        raise ArgumentError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    numbers = tuple(_normalized(number, count) for number in argnums)
    if not numbers:
        raise OptionError("argnums must be non-empty")
    if len({*numbers}) != len(numbers):
        raise OptionError(f"argnums elements must be unique, got {argnums}")
    return numbers


def _normalized(number: Any, count: int) -> int:
    if not isinstance(number, int):
        raise ArgumentError(f"argnum must be int, got: {type(number)}")
    if not -count <= number < count:
        raise LucidError(f"Got argnum={number}, but only {count} positional inputs")
    return number % count


def chosen(args: tuple[Any, ...], numbers: Argnums) -> Any:
    """The argument with this number, or a tuple of them."""
    return args[numbers] if isinstance(numbers, int) else tuple(args[i] for i in numbers)


def replaced(args: tuple[Any, ...], numbers: Argnums, new: Any) -> tuple[Any, ...]:
    """The arguments with `new` in place of those that `chosen` gives."""
    changed = list(args)
    pairs = [(numbers, new)] if isinstance(numbers, int) else zip(numbers, new, strict=True)
    for number, value in pairs:
        changed[number] = value
    return tuple(changed)
