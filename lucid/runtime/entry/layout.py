"""Makes Python functions of the native entry, on interpreters whose objects it knows."""

from __future__ import annotations

import ctypes
import functools
import sys
import sysconfig
import types
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from lucid.codegen import costs
from lucid.codegen.llvm.builder import Module
from lucid.codegen.llvm.jit import Library
from lucid.codegen.llvm.target import host_target
from lucid.ir.errors import UnsupportedPythonError
from lucid.runtime.cache import compiled
from lucid.runtime.entry.text import ENTER, LEAVE, entry_module
from lucid.runtime.entry.words import CONTIGUOUS, IMPORTS, Layout
from lucid.runtime.once import Once

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise UnsupportedPythonError(
        f"lucid.compiler: Python {sys.version.partition(' ')[0]} is a free-threaded build, whose "
        "objects compiled code can't share with other threads\n"
        "hint: use the ordinary build, such as python3.13 in place of python3.13t"
    )

SLOW_PATH = object()  # the answer to a call that is left to more general code: nothing has happened
_WORD = 8
_HAS_MANAGED_DICT, _MANAGED_DICT = 1 << 4, -3 * _WORD  # as CPython has it since 3.11
_METH_FASTCALL = 0x80
_PY_TP_NEW = 65  # of the stable ABI

_get_slot = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_int)(
    ("PyType_GetSlot", ctypes.pythonapi)
)
_new_function = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
)(("PyCFunction_NewEx", ctypes.pythonapi))


class UnknownLayoutError(Exception):
    """Objects don't lie in memory as the native entry expects."""


def constructor_of(kind: type) -> int:
    """Address of the C function that `kind.__new__` is, (class, args, keywords)."""
    address = _get_slot(kind, _PY_TP_NEW)
    if not address:
        raise UnknownLayoutError(f"{kind.__name__} has no constructor")
    return int(address)


def words_in(value: object, size: int) -> list[int]:
    """The words that an object consists of, or its first bytes."""
    return list((ctypes.c_uint64 * (size // _WORD)).from_address(id(value)))


def slot_offset(value: object, name: str) -> int:
    """Where a slot of an object lies, found by putting something in it."""
    mark = object()
    object.__setattr__(value, name, mark)  # of frozen ones, too
    found = words_in(value, type(value).__basicsize__)
    if found.count(id(mark)) != 1:
        raise UnknownLayoutError(f"slot {name}")
    return _WORD * found.index(id(mark))


@functools.cache
def field_offset(name: str, kind: type) -> int | None:
    """Where objects of a class have what no dict holds; None where that isn't known.

    name: `__class__`, `__dict__`, a function's code or defaults, a class's order of bases.
    """
    if name == "__class__":
        return general_layout()["kind"]
    if name == "__dict__":
        return _offset_of_dict(kind)
    if kind is types.FunctionType:
        mark = _probe.__defaults__ = (object(),)
        named = _probe.__kwdefaults__ = {"b": object()}
        known = {"__code__": _probe.__code__, "__defaults__": mark, "__kwdefaults__": named}
        words = words_in(_probe, kind.__basicsize__)
        value = known.get(name)
    elif name == "__mro__":
        metaclass: Any = type
        words, value = words_in(_Probe, metaclass.__basicsize__), _Probe.__mro__
    else:
        return None
    return _WORD * words.index(id(value)) if words.count(id(value)) == 1 else None


def _offset_of_dict(kind: type) -> int | None:
    """Where objects of a class have their dict: among their own words, or before them."""
    if not kind.__flags__ & _HAS_MANAGED_DICT:
        return kind.__dictoffset__ if kind.__dictoffset__ > 0 else None
    probe = _Probe()
    attributes = vars(probe)
    word = ctypes.c_uint64.from_address(id(probe) + _MANAGED_DICT).value
    return _MANAGED_DICT if word == id(attributes) else None


def _probe(a: object = None, *, b: object = None) -> None:
    """A function to look at."""


class _Probe:
    """A class to look at."""


def general_layout() -> dict[str, int]:
    """The offsets of fields of CPython's and NumPy's objects; checked, not only assumed.

    Raises `UnknownLayoutError`.
    """
    if sys.implementation.name != "cpython":
        raise UnknownLayoutError("another interpreter")
    if ctypes.sizeof(ctypes.c_void_p) != _WORD or sys.byteorder != "little":
        raise UnknownLayoutError("another word")
    header = object.__basicsize__
    mark = object()
    kinds = words_in(mark, header)
    cell = words_in(types.CellType(mark), types.CellType.__basicsize__)
    if kinds.count(id(object)) != 1 or cell.count(id(mark)) != 1:
        raise UnknownLayoutError("objects")
    fields = ("data", "axes", "shape", "strides", "base", "dtype", "flags")
    found = {f"array_{name}": header + _WORD * i for i, name in enumerate(fields)}
    for array in _probes():
        _check_array(array, found)
    kind = _WORD * kinds.index(id(object))
    values = [mark] * 1000
    counted = ctypes.c_int32.from_address(id(mark) + kind - _WORD).value
    values.append(mark)
    if ctypes.c_int32.from_address(id(mark) + kind - _WORD).value != counted + 1 or counted < 1000:
        raise UnknownLayoutError("references")
    known = {"references": kind - _WORD, "kind": kind, "cell": _WORD * cell.index(id(mark))}
    return known | found | _slice_offsets()


def _slice_offsets() -> dict[str, int]:
    names = "start", "stop", "step"
    marks = [object() for _ in names]
    words = words_in(slice(*marks), slice.__basicsize__)
    if any(words.count(id(mark)) != 1 for mark in marks):
        raise UnknownLayoutError("slices")
    pairs = zip(names, marks, strict=True)
    return {f"slice_{name}": _WORD * words.index(id(mark)) for name, mark in pairs}


def _probes() -> list[np.ndarray]:
    base = np.arange(24, dtype=np.float64)
    cube = np.zeros((2, 3, 5), np.int32)
    return [base, base[3::2], base.reshape(4, 6).T, cube, cube[1], np.zeros((), np.float32)]


def _check_array(array: np.ndarray, offsets: dict[str, int]) -> None:
    place = id(array)

    def at(name: str, kind: Any = ctypes.c_size_t) -> int:
        return int(kind.from_address(place + offsets[name]).value)

    right = at("array_data") == array.ctypes.data
    right = right and at("array_axes", ctypes.c_int32) == array.ndim
    right = right and at("array_dtype") == id(array.dtype)
    right = right and at("array_base") == (0 if array.base is None else id(array.base))
    is_contiguous = bool(at("array_flags", ctypes.c_int32) & CONTIGUOUS)
    right = right and is_contiguous == array.flags.c_contiguous
    if right and array.ndim:
        for name, expected in (("array_shape", array.shape), ("array_strides", array.strides)):
            found = (ctypes.c_int64 * array.ndim).from_address(at(name))
            right = right and tuple(found) == expected
    if not right:
        raise UnknownLayoutError("arrays")


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class NativeFunctions:
    """Machine code as functions of the interpreter, each of which gets its plan's address."""

    def __init__(self, module: Module, *names: str) -> None:
        imports = {name: _address(name) for name in IMPORTS}
        write = functools.partial(module.write_parts, costs.ENTRY_CHARACTERS)
        self._library: Library = compiled(write, module.target, names, imports, key=module.text())
        addresses = self._library.addresses
        self._definitions = {
            name: _MethodDef(b"call", addresses[name], _METH_FASTCALL, None) for name in names
        }

    def function(self, plan: np.ndarray, name: str = "") -> Callable[..., Any]:
        """The step of a plan as a function of the interpreter; it keeps the plan alive.

        name: which one it is, of several.
        """
        definition = self._definitions[name] if name else next(iter(self._definitions.values()))
        made: Callable[..., Any] = _new_function(ctypes.addressof(definition), plan, None)
        return made


class Entry(NativeFunctions):
    """The machine code of the entry for one layout; one in a process."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(entry_module(host_target(), layout), ENTER, LEAVE)
        self.layout = layout


@Once
def entry_for(layout: Layout) -> Entry:
    """The entry; made once."""
    return Entry(layout)


def layout_of(others: dict[str, int]) -> Layout:
    """All offsets: those of this module, and `others`."""
    known = Layout(**general_layout(), **others)
    if any(offset % _WORD for offset in asdict(known).values()):
        raise UnknownLayoutError("a field between two words")
    return known


def _address(name: str) -> int:
    found = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert found is not None
    return found
