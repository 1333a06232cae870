"""Options that change nothing here, or have one value that lucid knows: their values are checked.

What a program asks for is done, or refused: an option without effect takes the values of which that
is true by definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid.ir.errors import ArgumentError, OptionError


def check_flag(value: Any, name: str, op: str, or_none: bool = False) -> None:
    """Accept True and False, of an option whose result is the same for both; and None, `or_none`.

    Raises `ArgumentError`.
    """
    if not isinstance(value, (bool, np.bool_)) and not (or_none and value is None):
        raise ArgumentError(f"{op}: {name} must be True or False, not {value!r}")


def check_flags(op: str, **values: Any) -> None:
    """As `check_flag`, of several that may all be None."""
    for name, value in values.items():
        check_flag(value, name, op, or_none=True)


def check_choice(value: Any, name: str, op: str, choices: Sequence[Any]) -> None:
    """Accept one of the choices. Raises `ArgumentError` for another type, else `OptionError`."""
    if any(
        value is choice or (type(value) is type(choice) and value == choice) for choice in choices
    ):
        return
    kinds = {type(choice) for choice in choices}
    error = OptionError if type(value) in kinds else ArgumentError
    listed = ", ".join(map(repr, choices))
    raise error(f"{op}: {name} must be one of {listed}, not {value!r}")


def refuse(value: Any, name: str, op: str, because: str) -> None:
    """Accept False and None, of an option that lucid hasn't. Raises `OptionError` for True."""
    check_flag(value, name, op, or_none=True)
    if value:
        raise OptionError(f"{op}: {name}=True is not supported: {because}")


def check_kind(value: Any, kind: type | tuple[type, ...], name: str, op: str) -> None:
    """Accept None and values of a type. Raises `ArgumentError`."""
    if value is not None and not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(each.__name__ for each in kinds)
        raise ArgumentError(f"{op}: {name} must be {wanted} or None, not {value!r}")
