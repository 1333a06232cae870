"""Formulas of sizes as steps on registers, which machine code does (`entry/sizes.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid.ir.extents import LEAST, Extent, NotOpenError, Sizes
from lucid.runtime.entry.words import ADD, EQUAL, LESS, MULTIPLY, QUOTIENT

_RELATIONS = {"<": (LESS, 1), ">=": (LESS, 0), "==": (EQUAL, 1), "!=": (EQUAL, 0)}


class Register:
    """A number that the steps have there; it computes like an int, by more steps."""

    __slots__ = ("_steps", "number")

    def __init__(self, steps: SizeSteps, number: int) -> None:
        self._steps, self.number = steps, number

    def __add__(self, other: Register | int) -> Register:
        return self if other == 0 else self._steps.apply(ADD, self, other)

    def __mul__(self, other: Register | int) -> Register:
        return self if other == 1 else self._steps.apply(MULTIPLY, self, other)

    def __floordiv__(self, other: Register | int) -> Register:
        return self._steps.apply(QUOTIENT, self, other)

    def __rfloordiv__(self, other: int) -> Register:
        return self._steps.apply(QUOTIENT, other, self)

    __radd__, __rmul__ = __add__, __mul__


class SizeSteps:
    """What follows from some sizes: words, and whether they are such that it is right for.

    Raises `NotOpenError` for a number that has no 64 bits.

    Args:
        count: of the sizes.

    Attributes:
        given: the registers of the sizes.
        registers: what these hold before the steps.
        steps: what to do, the registers of two operands, and that of the result.
        required: registers, and what they must hold after the steps.
        stored: addresses of words, and the registers that go there.
    """

    def __init__(self, count: int) -> None:
        self.registers = [0] * count
        self.given = [Register(self, number) for number in range(count)]
        self.steps: list[tuple[int, int, int, int]] = []
        self.required: dict[tuple[int, int], None] = {}
        self.stored: list[tuple[int, int]] = []
        self._known: dict[Any, Register] = {}

    def register(self, value: Register | int) -> Register:
        """The one of a value, or of a constant."""
        if isinstance(value, Register):
            return value
        found = self._known.get(value)
        if found is None:
            if not -(2**63) <= value < 2**63:
                raise NotOpenError(f"{value} has no 64 bits")
            found = self._known[value] = Register(self, len(self.registers))
            self.registers.append(value)
        return found

    def apply(self, op: int, x: Register | int, y: Register | int) -> Register:
        """One more step, unless there is such a one."""
        key = op, self.register(x).number, self.register(y).number
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Register(self, len(self.registers))
            self.registers.append(0)
            self.steps.append((*key, found.number))
        return found

    def require(self, value: Register | int, relation: str, other: Register | int = 0) -> None:
        """Let sizes be refused for which this doesn't hold."""
        op, expected = _RELATIONS[relation]
        self.required[self.apply(op, value, other).number, expected] = None

    def require_all(self, sizes: Sizes, symbols: Sequence[Any]) -> None:
        """The same of all that `Sizes.checker` looks at."""
        for value, relation, other in _tests(sizes, symbols):
            self.require(value, relation, other)

    def refuse_all(self, sizes: Sizes, symbols: Sequence[Any]) -> None:
        """Let sizes be refused for which all of that holds."""
        self._refuse(_tests(sizes, symbols))

    def refuse(self, values: Sequence[Any], others: Sequence[int]) -> None:
        """Let sizes be refused for which values are all equal to others."""
        self._refuse([(value, "==", other) for value, other in zip(values, others, strict=True)])

    def _refuse(self, tests: Sequence[tuple[Any, str, int]]) -> None:
        both: Register | int = 1
        for value, relation, other in tests:
            op, expected = _RELATIONS[relation]
            both = self.apply(EQUAL, self.apply(op, value, other), expected) * both
        self.require(both, "==")

    def store(self, address: int, value: Register | int) -> None:
        """Put a value into a word; once all that is required holds."""
        self.stored.append((address, self.register(value).number))


def _tests(sizes: Sizes, symbols: Sequence[Any]) -> list[tuple[Any, str, int]]:
    value = sizes.renamed(symbols)
    found: list[tuple[Any, str, int]] = [
        (value(extent), relation, 0) for extent, relation in sizes.tests() if _is_formula(extent)
    ]
    for number in sizes.counted:
        found += (symbols[number], ">=", LEAST), (symbols[number], "<", sizes.most + 1)
    return found


def _is_formula(extent: Extent) -> bool:
    return any(monomial for monomial, _ in extent.key)
