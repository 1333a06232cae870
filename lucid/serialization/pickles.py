"""Reads the files of earlier versions: pickles of tensors and plain data, interpreted, not run.

`pickle.load` calls whatever a file names, and sets whatever it says of objects. Here a closed list
of opcodes, those that `pickle.dumps(state, protocol=4)` uses for data, works on a stack of our own;
a name is a name, and what it would have been called with is checked and made by the table at the
end. Nothing is imported, nothing of the file's choice is called, no object gets a state.
Reference: the opcodes as `pickletools` documents them.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lucid.device import CPU
from lucid.ir.types import DType, dtype_named
from lucid.serialization.arrays import TENSOR_CLASSES, array_of_bytes, dtype_of_code, tensor_of
from lucid.serialization.container import Source
from lucid.serialization.tree import DEEPEST, Hashes
from lucid.tensor.size import Size
from lucid.tensor.tensor import Tensor

_LONGEST_INT = 1 << 12  # bytes
# Parts of keys, for each byte read: hashing and comparing takes time for each. What is shared
# counts as often as it occurs; a long string counts as several.
_KEY_PARTS_PER_BYTE = 2
_LARGEST_KEY = 1000
_PART_BYTES = 1000
_ATOMS = (type(None), bool, int, float, complex, str, bytes, Size, DType)
_CONTAINERS = (list, tuple, set, frozenset, dict, slice)


@dataclass(frozen=True, slots=True)
class _Name:
    """A class or function that a file names; it stands for nothing but the table's entry."""

    module: str
    name: str


@dataclass(slots=True)
class _Unbuilt:
    """A dtype or array whose contents come with the next BUILD.

    Attributes:
        code: of a dtype; None for an array.
        memo: the numbers under which it is remembered, as the finished one is to be.
    """

    code: str | None
    memo: list[int] = field(default_factory=list)


class PickleReader:
    """Interprets one pickle from where a source stands."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._hashes = Hashes()
        self._key_parts = 0
        self._copied = 0

    def read(self) -> Any:
        """The object. Raises `FileFormatError`, `ValueError` or `TypeError` for all but data."""
        while True:
            at = self._source.offset
            opcode = self._source.exactly(1, "an instruction of the pickle")
            if opcode == b".":
                break
            run = _OPCODES.get(opcode)
            if run is None:
                raise self._source.error(f"no instruction {opcode!r} is among those of data", at)
            run(self)
        result = self._pop()
        self._expect_data(result)
        return result

    def _expect_data(self, result: Any) -> None:
        """Raise `ValueError` where a bare name or something unfinished is left in the object."""
        level, seen, depth = [result], set(), 0
        while level:
            depth += 1
            if depth > DEEPEST:
                raise ValueError(f"the object is nested more than {DEEPEST} deep")
            below: list[Any] = []
            for value in level:
                if isinstance(value, _Name):
                    self._refuse(value)
                if isinstance(value, _Unbuilt):
                    raise ValueError("an array or a dtype has no contents")
                if not isinstance(value, _CONTAINERS) or id(value) in seen:
                    continue
                seen.add(id(value))
                if isinstance(value, slice):
                    below += [value.start, value.stop, value.step]
                else:
                    below += [*value, *value.values()] if isinstance(value, dict) else value
            level = below

    def _refuse(self, name: _Name) -> None:
        self._source.refuse(f"a {name.module[:80]}.{name.name[:80]}")

    # The stack ----------------------------------------------------------------------------

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self, kind: type | None = None) -> Any:
        bottom = self._marks[-1] if self._marks else 0
        if len(self._stack) <= bottom:
            raise ValueError("an instruction finds nothing on the stack")
        value = self._stack.pop()
        if kind is not None and type(value) is not kind:
            raise ValueError(f"a {kind.__name__} is expected on the stack")
        return value

    def _top(self, *kinds: type) -> Any:
        value = self._pop()
        self._stack.append(value)
        if type(value) not in kinds:
            raise ValueError(f"a {kinds[0].__name__} is expected on the stack")
        return value

    def _marked(self) -> list[Any]:
        """Take what is above the last mark, with the mark."""
        if not self._marks:
            raise ValueError("an instruction finds no mark on the stack")
        start = self._marks.pop()
        found = self._stack[start:]
        del self._stack[start:]
        return found

    def _int(self, count: int, *, signed: bool = False) -> int:
        data = self._source.exactly(count, "a number of the pickle")
        return int.from_bytes(data, "little", signed=signed)

    def _text(self, length_bytes: int) -> None:
        data = self._source.exactly(self._int(length_bytes), "a string of the pickle")
        self._push(data.decode("utf-8", "surrogatepass"))

    def _data(self, length_bytes: int) -> None:
        self._push(self._source.exactly(self._int(length_bytes), "bytes of the pickle"))

    def _long(self, length_bytes: int) -> None:
        count = self._int(length_bytes)
        if count > _LONGEST_INT:
            raise ValueError(f"an int of {count} bytes, and {_LONGEST_INT} are possible")
        self._push(self._int(count, signed=True))

    # Instructions -------------------------------------------------------------------------

    def _protocol(self) -> None:
        if self._int(1) != 4:
            raise ValueError("lucid wrote pickles of protocol 4 alone")

    def _frame(self) -> None:
        self._source.expect(self._int(8), "a frame of the pickle")

    def _tuple(self, count: int) -> None:
        parts = [self._pop() for _ in range(count)]
        self._push(tuple(reversed(parts)))

    def _memoize(self) -> None:
        value = self._pop()
        self._push(value)
        if isinstance(value, _Unbuilt):
            value.memo.append(len(self._memo))
        self._memo[len(self._memo)] = value

    def _get(self, count: int) -> None:
        number = self._int(count)
        if number not in self._memo:
            raise ValueError(f"object {number} of the pickle isn't there")
        self._push(self._memo[number])

    def _global(self) -> None:
        name, module = self._pop(str), self._pop(str)
        found = _Name(module, name)
        if found not in _MAKERS and found not in _CLASSES:
            self._refuse(found)
        self._push(found)

    def _append(self) -> None:
        value = self._pop()
        self._top(list).append(value)

    def _extend(self) -> None:
        values = self._marked()
        self._top(list).extend(values)

    def _add(self) -> None:
        values = self._marked()
        self._top(set).update(map(self._key, values))

    def _set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._top(dict, OrderedDict, defaultdict)[self._key(key)] = value

    def _set_items(self) -> None:
        values = self._marked()
        if len(values) % 2:
            raise ValueError("a key has no value")
        target = self._top(dict, OrderedDict, defaultdict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            target[self._key(key)] = value

    def _reduce(self) -> None:
        """Call a name; also with NEWOBJ, for classes."""
        arguments, name = self._pop(tuple), self._pop(_Name)
        make = _MAKERS.get(name)
        if make is None:
            self._refuse(name)
            return
        self._expect_own(arguments)
        self._push(make(*arguments))

    def _build(self) -> None:
        state, target = self._pop(tuple), self._pop(_Unbuilt)
        self._expect_own(state)
        built = _built_array(*state) if target.code is None else _built_dtype(target.code, *state)
        for number in target.memo:
            self._memo[number] = built
        self._push(built)

    def _expect_own(self, arguments: tuple[Any, ...]) -> None:
        """Raise `ValueError` where copies of one object are made, more than the file has bytes."""
        self._copied += sum(len(x) for x in arguments if type(x) in (bytes, dict, tuple))
        if self._copied > self._source.offset:
            raise ValueError("objects share contents that each has for itself")

    def _key(self, value: Any) -> Any:
        """A key or an element of a set: atoms and tuples, not so many that hashing takes long.

        A tuple that holds another one twice, which does so again, is short in a file and takes for
        ever to hash.
        """
        left, count = [value], 0
        most = _LARGEST_KEY + _KEY_PARTS_PER_BYTE * self._source.offset - self._key_parts
        while left:
            part = left.pop()
            count += 1
            if count > most or count > _LARGEST_KEY:
                raise ValueError(f"a key has more than {_LARGEST_KEY} parts, or all have too many")
            if type(part) in (tuple, frozenset):
                left += part
            elif type(part) in (str, bytes):
                count += len(part) // _PART_BYTES
            elif type(part) not in _ATOMS and not isinstance(part, np.generic):
                raise ValueError(f"a {type(part).__name__} is no key")
        self._key_parts += count
        return self._hashes.checked(value)


_OPCODES: dict[bytes, Callable[[PickleReader], None]] = {
    b"\x80": PickleReader._protocol,
    b"\x95": PickleReader._frame,
    b"N": lambda r: r._push(None),
    b"\x88": lambda r: r._push(True),
    b"\x89": lambda r: r._push(False),
    b"K": lambda r: r._push(r._int(1)),
    b"M": lambda r: r._push(r._int(2)),
    b"J": lambda r: r._push(r._int(4, signed=True)),
    b"\x8a": lambda r: r._long(1),
    b"\x8b": lambda r: r._long(4),
    b"G": lambda r: r._push(struct.unpack(">d", r._source.exactly(8, "a float"))[0]),
    b"\x8c": lambda r: r._text(1),
    b"X": lambda r: r._text(4),
    b"\x8d": lambda r: r._text(8),
    b"C": lambda r: r._data(1),
    b"B": lambda r: r._data(4),
    b"\x8e": lambda r: r._data(8),
    b"(": lambda r: r._marks.append(len(r._stack)),
    b")": lambda r: r._push(()),
    b"\x85": lambda r: r._tuple(1),
    b"\x86": lambda r: r._tuple(2),
    b"\x87": lambda r: r._tuple(3),
    b"t": lambda r: r._push(tuple(r._marked())),
    b"]": lambda r: r._push([]),
    b"}": lambda r: r._push({}),
    b"\x8f": lambda r: r._push(set()),
    b"\x91": lambda r: r._push(frozenset(map(r._key, r._marked()))),
    b"a": PickleReader._append,
    b"e": PickleReader._extend,
    b"s": PickleReader._set_item,
    b"u": PickleReader._set_items,
    b"\x90": PickleReader._add,
    b"\x94": PickleReader._memoize,
    b"h": lambda r: r._get(1),
    b"j": lambda r: r._get(4),
    b"\x93": PickleReader._global,
    b"R": PickleReader._reduce,
    b"\x81": PickleReader._reduce,
    b"b": PickleReader._build,
}


# What may be named ----------------------------------------------------------------------------


def _is(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise ValueError(f"a {kinds[0].__name__} is expected, not a {type(value).__name__}")
    return value


def _new_dtype(code: Any, align: Any, copy: Any) -> _Unbuilt:
    if type(code) is not str or (align, copy) != (False, True):
        raise ValueError("a dtype that NumPy didn't write")
    return _Unbuilt(code)


def _built_dtype(code: str, *state: Any) -> np.dtype[Any]:
    """The dtype of a code and a byte order; no fields, no objects."""
    dtype = dtype_of_code(f"{_is(state[1], str)}{code}")
    sizes = {"U": (dtype.itemsize, 4, 8), "S": (dtype.itemsize, 1, 0)}.get(dtype.kind, (-1, -1, 0))
    if state != (3, state[1], None, None, None, *sizes):
        raise ValueError(f"a dtype {dtype} with a state that it doesn't have")
    return dtype


def _new_array(kind: Any, shape: Any, code: Any) -> _Unbuilt:
    if (kind, shape, code) != (_NDARRAY, (0,), b"b"):
        raise ValueError("an array that NumPy didn't write")
    return _Unbuilt(None)


def _built_array(version: Any, shape: Any, dtype: Any, columns_first: Any, data: Any) -> np.ndarray:
    if version != 1 or not isinstance(dtype, np.dtype):
        raise ValueError("an array with a state that it doesn't have")
    _is(shape, tuple)
    return array_of_bytes(dtype, shape, _is(data, bytes), columns_first=_is(columns_first, bool))


def _scalar(dtype: Any, data: Any) -> Any:
    if not isinstance(dtype, np.dtype):
        raise ValueError("a number of NumPy's without its dtype")
    return array_of_bytes(dtype, (1,), _is(data, bytes))[0]


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(dtype, np.dtype) or order not in ("C", "F"):
        raise ValueError("an array that NumPy didn't write")
    return array_of_bytes(dtype, _is(shape, tuple), _is(data, bytes), columns_first=order == "F")


def _tensor(kind: Any, array: Any, requires_grad: Any) -> Tensor:
    return tensor_of(_CLASSES.get(_is(kind, _Name)), array, requires_grad)


def _default(factory: Any = None) -> defaultdict[Any, Any]:
    return defaultdict(factory and _FACTORIES[_is(factory, _Name).name])


def _empty_ordered() -> OrderedDict[Any, Any]:
    return OrderedDict()


def _bytearray(data: Any = b"") -> bytearray:
    return bytearray(_is(data, bytes))


def _complex(real: Any, imag: Any) -> complex:
    return complex(_is(real, float), _is(imag, float))


def _range(start: Any, stop: Any, step: Any) -> range:
    return range(_is(start, int), _is(stop, int), _is(step, int))


def _counter(counts: Any) -> Any:
    return Counter(_is(counts, dict))


def _size(sizes: Any) -> Size:
    return Size(_is(size, int) for size in _is(sizes, tuple))


def _dtype_named(name: Any) -> DType:
    return dtype_named(_is(name, str))


_FACTORIES: dict[str, type] = {
    kind.__name__: kind for kind in (bool, dict, float, int, list, set, str, tuple)
}
_NDARRAY = _Name("numpy", "ndarray")
# What stands as an argument: classes, and their names in the table of tensors.
_CLASSES: dict[_Name, str] = {
    _Name("lucid.tensor.tensor", "Tensor"): "Tensor",
    **{_Name("lucid.nn.parameter", name): name for name in TENSOR_CLASSES if name != "Tensor"},
    **{_Name("builtins", name): name for name in _FACTORIES},
    _NDARRAY: "ndarray",
}
_OF_NUMPY: dict[_Name, Callable[..., Any]] = {
    _Name(f"numpy.{core}.{module}", name): make
    for core in ("core", "_core")
    for module, name, make in (
        ("multiarray", "_reconstruct", _new_array),
        ("multiarray", "scalar", _scalar),
        ("numeric", "_frombuffer", _from_buffer),
    )
}
_MAKERS: dict[_Name, Callable[..., Any]] = {
    **_OF_NUMPY,
    _Name("numpy", "dtype"): _new_dtype,
    _Name("builtins", "bytearray"): _bytearray,
    _Name("builtins", "complex"): _complex,
    _Name("builtins", "range"): _range,
    _Name("builtins", "slice"): lambda start, stop, step: slice(start, stop, step),
    _Name("collections", "OrderedDict"): _empty_ordered,
    _Name("collections", "defaultdict"): _default,
    _Name("collections", "Counter"): _counter,
    _Name("lucid.functions.protocols", "_rebuilt"): _tensor,
    _Name("lucid.nn.parameter", "_restore"): _tensor,
    _Name("lucid.tensor.size", "Size"): _size,
    _Name("lucid.ir.types", "dtype_named"): _dtype_named,
    _Name("lucid.device", "device"): lambda: CPU,
}
