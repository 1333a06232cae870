"""Types, values, constants and modules of LLVM IR, as text.

Text is five times faster to produce than llvmlite's object model, and it parses faster because
a vector constant is one `splat`. A type is its LLVM spelling ("float", "<16 x float>", "i64"); one
lane means the scalar type.
"""

from __future__ import annotations

import functools
import operator
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lucid.codegen.llvm.target import Target
from lucid.ir.extents import Extent

FLOATS = ("float", "double")
_NAME = re.compile(r"@([\w.]+)")
_SUFFIX = {"float": "f32", "double": "f64", "ptr": "p0"}


@functools.cache
def vector(element: str, lanes: int) -> str:
    """The type of `lanes` elements; the element type itself for one lane."""
    return f"<{lanes} x {element}>" if lanes > 1 else element


@functools.cache
def element_of(type_: str) -> str:
    """The element type; a scalar type is its own."""
    return type_[type_.index("x") + 2 : -1] if type_[0] == "<" else type_


@functools.cache
def lanes_of(type_: str) -> int:
    """The number of lanes; 1 for a scalar type."""
    return int(type_[1 : type_.index("x")]) if type_[0] == "<" else 1


@functools.cache
def mangled(type_: str) -> str:
    """The type as it appears in the name of an overloaded intrinsic."""
    element = element_of(type_)
    name = _SUFFIX.get(element, element)
    return f"v{lanes_of(type_)}{name}" if type_[0] == "<" else name


class Val(NamedTuple):
    """An SSA value or a constant: its type and how it is spelled as an operand."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"

    @property
    def element(self) -> str:
        return element_of(self.type)

    @property
    def lanes(self) -> int:
        return lanes_of(self.type)

    @property
    def is_float(self) -> bool:
        return element_of(self.type) in FLOATS


Operand = Val | float
"""A value, or a Python number that takes the type of the other operand."""


def literal(element: str, value: float | Extent) -> str:
    """An exact spelling of one constant; floats are rounded to `element` and given in hex.

    An open size is a value that the function has loaded (`FunctionBuilder.sizes`).
    """
    if isinstance(value, Extent):
        return f"%n{value.sizes.slot(value)}" if element == "i64" else str(operator.index(value))
    if element in FLOATS:
        if element == "float":
            (value,) = struct.unpack("f", struct.pack("f", value))
        (pattern,) = struct.unpack("<Q", struct.pack("<d", value))
        return f"0x{pattern:016X}"
    if element == "i1":
        return "true" if value else "false"
    bits = int(element[1:])
    number = int(value) & ((1 << bits) - 1)
    return str(number - (1 << bits) if number >> (bits - 1) else number)


def const(type_: str, value: float | Extent) -> Val:
    """`value` in every lane of `type_`."""
    if type_ == "i64" and type(value) is int:
        return _index(value)
    text = literal(element_of(type_), value if type_[0] != "<" else _closed(value))
    return Val(type_, f"splat ({element_of(type_)} {text})" if type_[0] == "<" else text)


@functools.lru_cache(maxsize=4096)
def _index(value: int) -> Val:
    return Val("i64", literal("i64", value))


def _closed(value: float | Extent) -> float:
    return operator.index(value) if isinstance(value, Extent) else value


def number_of(value: Val) -> float | None:
    """The float that a constant is in all lanes; None for anything else."""
    found = re.fullmatch(r"(?:splat \(\w+ )?0x([0-9A-F]{16})\)?", value.name)
    if found is None or not value.is_float:
        return None
    (number,) = struct.unpack(">d", bytes.fromhex(found[1]))
    return float(number)


def const_lanes(element: str, values: Sequence[float]) -> Val:
    """A vector constant with a value for each lane."""
    if len(values) == 1:
        return const(element, values[0])
    body = ", ".join(f"{element} {literal(element, _closed(value))}" for value in values)
    return Val(vector(element, len(values)), f"<{body}>")


@functools.lru_cache(maxsize=1024)
def first_lanes(mask: Val | None, lanes: int) -> int | None:
    """How many lanes a mask has that are the first ones; None: that isn't known while compiling."""
    if mask is None:
        return lanes
    if not mask.name.startswith("<i1"):
        return None
    chosen = [lane == "i1 true" for lane in mask.name[1:-1].split(", ")]
    count = sum(chosen)
    return count if all(chosen[:count]) else None


@functools.lru_cache(maxsize=1024)
def lane_mask(lanes: tuple[int, ...]) -> Val:
    """Which lanes a shuffle takes."""
    return const_lanes("i32", lanes)


def iota(element: str, lanes: int) -> Val:
    """The constant 0, 1, 2, ..."""
    return const_lanes(element, range(lanes))


def i64(value: Val | int) -> Val:
    """An index as a value."""
    return value if isinstance(value, Val) else const("i64", value)


class Parameter(NamedTuple):
    """A function parameter; `attributes` such as "noalias readonly"."""

    type: str
    name: str
    attributes: str = ""


class Parts:
    """A module's text as that of modules which are linked together, while it is written.

    A function that calls others comes after them, so what comes first can be compiled meanwhile.

    Args:
        size: about how many characters each has.
        take: gets the text of each as soon as it is complete.
    """

    def __init__(self, module: Module, size: int, take: Callable[[str], None]) -> None:
        self._module, self._size, self._take = module, size, take
        self._names: list[str] = []
        self._before = self._part = 0

    def add(self, name: str) -> None:
        """Go on with a function of the module."""
        part = self._before // self._size
        if part > self._part:
            self._take(self._text())
            self._names, self._part = [], part
        self._names.append(name)
        self._before += len(self._module.functions[name])

    def end(self) -> None:
        """Give the last one, which may be all."""
        self._take(self._text() if self._part else self._module.text())

    def _text(self) -> str:
        """Functions that are internal are seen by the other parts, too."""
        module = self._module
        texts = [module.functions[name] for name in self._names]
        used = dict.fromkeys(used for text in texts for used in _NAME.findall(text))
        lines = [f'target triple = "{module.target.triple}"']
        lines += [module.globals[name] for name in used if name in module.globals]
        for name in used:
            if name in module.declarations:
                lines.append(module.declarations[name])
            elif name in module.functions and name not in self._names:
                head, _, _ = module.functions[name].partition(" {\n")
                lines.append(f"declare {head.removeprefix('define ').removeprefix('internal ')}")
        lines += [text.replace("define internal ", "define hidden ", 1) for text in texts]
        return "\n".join([*lines, ""])


@dataclass(slots=True)
class Module:
    """Functions, declarations and constant tables that become one piece of machine code.

    Attributes:
        parts: what the text goes to meanwhile.
    """

    target: Target
    functions: dict[str, str] = field(default_factory=dict)
    declarations: dict[str, str] = field(default_factory=dict)
    globals: dict[str, str] = field(default_factory=dict)
    parts: Parts | None = None

    def text(self) -> str:
        head = f'target triple = "{self.target.triple}"'
        parts = (self.globals, self.declarations, self.functions)
        return "\n".join([head, *(line for part in parts for line in part.values()), ""])

    def write_parts(self, size: int, take: Callable[[str], None]) -> None:
        """Hand the text of a complete module over in parts."""
        parts = Parts(self, size, take)
        for name in self.functions:
            parts.add(name)
        parts.end()

    def define(self, name: str, text: str) -> None:
        """Add a function; the part before it may be complete then."""
        self.declarations.pop(name, None)
        self.functions[name] = text
        if self.parts is not None:
            self.parts.add(name)

    def declare(self, name: str, result: str, parameters: Sequence[str]) -> None:
        """Declare an external function; a second declaration of the name is ignored."""
        if name not in self.declarations and name not in self.functions:
            self.declarations[name] = f"declare {result} @{name}({', '.join(parameters)})"

    def table(self, name: str, element: str, values: Sequence[float]) -> Val:
        """The address of a constant array."""
        if name not in self.globals:
            body = ", ".join(f"{element} {literal(element, value)}" for value in values)
            array = f"[{len(values)} x {element}]"
            self.globals[name] = (
                f"@{name} = private unnamed_addr constant {array} [{body}], align 64"
            )
        return Val("ptr", f"@{name}")
