"""What is saved as a tree that JSON can hold, and back: data, and nothing that could be run.

Ints, floats, strings, True, False, None and lists stand for themselves. All else is an object of
JSON with one entry, `{kind: contents}`, by the table at the end of this module:
`{"tuple": [1, 2]}`, `{"tensor": ["Parameter", "net.0.weight", true]}`. A reader makes what the
kinds say, by the same table; there is no entry that names a class or a function.

What may be the same object twice – an array, a tensor, a container – has a number, counted as they
are completed; `{"same": n}` is the n-th once more. So tied weights stay tied, and what is shared
takes no more room. It can only refer back: nothing holds itself.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.device import device
from lucid.ir.errors import OptionError
from lucid.ir.types import DTYPES, DType
from lucid.serialization.arrays import (
    TENSOR_CLASSES,
    array_of_bytes,
    check_elements,
    dtype_of_code,
    is_storable,
    little_endian,
    stored_name,
    tensor_of,
)
from lucid.sparse.tensor import SparseTensor, sparse_coo_tensor
from lucid.tensor.size import Size
from lucid.tensor.tensor import Tensor

DEEPEST = 100  # levels of containers; each is two or three of JSON, whose readers recurse
_MOST_ALIKE = 100  # different keys with one hash; nobody's data has more than some ten
_SAME = "same"
_PICKLE = "pickle"
_ATOMS = (type(None), bool, int, float, str)
_FACTORIES: dict[str, type] = {
    kind.__name__: kind for kind in (bool, dict, float, int, list, set, str, tuple)
}


class NotDataError(Exception):
    """The object to be saved holds something that isn't data: the message names class and place."""


class PickledError(Exception):
    """A file's tree stands for a pickle; the message says what made it one.

    Attributes:
        data: the pickle.
    """

    def __init__(self, what: str, data: bytes) -> None:
        super().__init__(what)
        self.data = data


def pickled(data: bytes, reason: str) -> tuple[object, Encoder]:
    """The tree that stands for a pickle, and what has its bytes."""
    encoder = Encoder()
    encoder.arrays[_PICKLE] = np.frombuffer(data, np.uint8)
    return {_PICKLE: [_PICKLE, reason]}, encoder


class Encoder:
    """Makes a tree of an object.

    Attributes:
        arrays: what the tree names, contiguous and little-endian.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._numbers: dict[int, int] = {}
        self._open: set[int] = set()
        self._kept: list[object] = []  # so that no id is used again
        self._place: list[object] = []
        self._depth = 0

    def encode(self, value: Any) -> object:
        """The tree. Raises `NotDataError`, `OptionError` for what holds itself or is too deep."""
        kind = type(value)
        if kind in _ATOMS:
            return _encoded_atom(value)
        known = self._numbers.get(id(value))
        if known is not None:
            return {_SAME: known}
        rule = _KINDS_BY_CLASS.get(kind)
        if rule is None:
            raise self.not_data(value)
        if id(value) in self._open:
            raise OptionError(f"save: {self._where()} holds itself, which a file can't say")
        self._open.add(id(value))
        self._go_down()
        contents = rule.encode(self, value)
        self._depth -= 1
        self._open.remove(id(value))
        if rule.has_identity:
            self._numbers[id(value)] = len(self._numbers)
            self._kept.append(value)
        return contents if rule.name == "list" else {rule.name: contents}

    def entry(self, value: Any, place: object) -> object:
        """The tree of something within the present object, at a key or an index."""
        self._place.append(place)
        tree = self.encode(value)
        self._place.pop()
        return tree

    def key(self, value: Any) -> object:
        """The tree of a key or of an element of a set, in which nothing is shared."""
        kind = type(value)
        if kind in _ATOMS:
            return _encoded_atom(value)
        if kind in (tuple, frozenset):
            self._go_down()
            parts = [self.key(part) for part in value]
            self._depth -= 1
            return {kind.__name__: parts}
        if kind in _KEYS:
            return {_KINDS_BY_CLASS[kind].name: _KINDS_BY_CLASS[kind].encode(self, value)}
        raise self.not_data(value)

    def array(self, array: np.ndarray) -> object:
        """The name of an array, with its dtype if it is kept as bytes."""
        if type(array) is not np.ndarray or not is_storable(array.dtype):
            raise self.not_data(array)
        stored = little_endian(array)
        name = base = ".".join(map(str, self._place)) or "value"
        number = 1
        while name in self.arrays or name == "__metadata__":
            number += 1
            name = f"{base}#{number}"
        if stored_name(stored.dtype) is not None:
            self.arrays[name] = stored
            return name
        self.arrays[name] = stored.reshape((*stored.shape, 1)).view(np.uint8)
        return [name, stored.dtype.str]

    def _go_down(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise OptionError(f"save: {self._where()[:200]} is nested more than {DEEPEST} deep")

    def not_data(self, value: object) -> NotDataError:
        """What to raise for an object that is no data."""
        kind = type(value)
        what = f"{kind.__module__}.{kind.__qualname__}"
        if isinstance(value, np.ndarray):
            what += f" of {value.dtype}"
        return NotDataError(f"a {what} at {self._where()}")

    def _where(self) -> str:
        return "obj" + "".join(f"[{place!r}]" for place in self._place)


class Decoder:
    """Makes the object of a tree. What it raises for a wrong tree is a `ValueError` or `TypeError`.

    Arguments:
        arrays: by the names that the tree has for them.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = arrays
        self._made: list[Any] = []
        self._depth = 0
        self._hashes = Hashes()

    def decode(self, tree: Any) -> Any:
        """The object. Raises `PickledError` for a tree that stands for a pickle."""
        if type(tree) in _ATOMS:
            return tree
        name, contents = _kind_of(tree)
        if name == _SAME:
            if type(contents) is int and 0 <= contents < len(self._made):
                return self._made[contents]
            raise ValueError(f"the tree refers to object {str(contents)[:80]}, which isn't there")
        if name == _PICKLE and self._depth == 0:
            array, reason = _parts(contents, 2)
            raise PickledError(str(reason), self.array(array).tobytes())
        rule = _KINDS.get(name)
        if rule is None:
            raise ValueError(f"no kind of data is called {name[:80]!r}")
        self._go_down()
        value = rule.decode(self, contents)
        self._depth -= 1
        if rule.has_identity:
            self._made.append(value)
        return value

    def key(self, tree: Any) -> Any:
        """A key or an element of a set, whose hash takes no longer than the file."""
        if type(tree) in _ATOMS:
            return tree
        name, contents = _kind_of(tree)
        self._go_down()
        if name in ("tuple", "frozenset"):
            value: Any = (
                tuple(map(self.key, _list(contents)))
                if name == "tuple"
                else frozenset(self.elements(contents))
            )
        elif name in _KINDS and _KINDS[name].kind in _KEYS:
            value = _KINDS[name].decode(self, contents)
        else:
            raise ValueError(f"a {name[:80]} is no key")
        self._depth -= 1
        return value

    def _go_down(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise ValueError(f"the tree is nested more than {DEEPEST} deep")

    def parts(self, contents: Any) -> list[Any]:
        """The objects of a list of trees."""
        return [self.decode(part) for part in _list(contents)]

    def pairs(self, contents: Any) -> list[tuple[Any, Any]]:
        """Keys and values."""
        pairs = [_parts(pair, 2) for pair in _list(contents)]
        return [(self._hashes.checked(self.key(key)), self.decode(value)) for key, value in pairs]

    def elements(self, contents: Any) -> list[Any]:
        """The elements of a set."""
        return [self._hashes.checked(self.key(part)) for part in _list(contents)]

    def array(self, contents: Any) -> np.ndarray:
        """The array of a name."""
        name, code = (contents, None) if isinstance(contents, str) else _parts(contents, 2)
        if not isinstance(name, str) or name not in self._arrays:
            raise ValueError(f"the file has no array {str(name)[:80]!r}")
        array = self._arrays[name]
        if code is None:
            return array
        dtype = dtype_of_code(code)
        if array.dtype != np.uint8 or not array.ndim or array.shape[-1] != dtype.itemsize:
            raise ValueError(f"array {name!r} doesn't hold the bytes of elements of {dtype}")
        array = array.view(dtype).reshape(array.shape[:-1])
        check_elements(array)
        return array


class Hashes:
    """Refuses keys that somebody has chosen for their hashes: each would be compared with all.

    Only those of strings and bytes are nobody's choice: Python computes them with a secret.
    """

    def __init__(self) -> None:
        self._alike: dict[int, list[Any]] = {}

    def checked(self, key: Any) -> Any:
        """The key. Raises `ValueError` where too many others have its hash."""
        if type(key) in (str, bytes):
            return key
        alike = self._alike.setdefault(hash(key), [])
        if key not in alike:
            if len(alike) == _MOST_ALIKE:
                raise ValueError(f"more than {_MOST_ALIKE} different keys have one hash")
            alike.append(key)
        return key


# The parts of trees ---------------------------------------------------------------------------


def _encoded_atom(value: Any) -> object:
    if type(value) is float and not math.isfinite(value):
        return {"float": str(value)}
    if type(value) is int and not -(2**63) <= value < 2**63:
        return {"int": hex(value)}
    return value


def _kind_of(tree: Any) -> tuple[str, Any]:
    if type(tree) is list:
        return "list", tree
    if type(tree) is dict and len(tree) == 1:
        return next(iter(tree.items()))
    raise ValueError("an object in the tree has one entry, its kind")


def _list(contents: Any) -> list[Any]:
    if type(contents) is not list:
        raise ValueError(f"a list is expected in the tree, not {str(contents)[:80]}")
    return contents


def _parts(contents: Any, count: int) -> list[Any]:
    if len(_list(contents)) != count:
        raise ValueError(f"{count} parts are expected in the tree, not {len(contents)}")
    return contents  # type: ignore[no-any-return]


def _text(contents: Any) -> str:
    if type(contents) is not str:
        raise ValueError(f"a string is expected in the tree, not {str(contents)[:80]}")
    return contents


def _ints(contents: Any) -> list[int]:
    for number in _list(contents):
        if type(number) is not int:
            raise ValueError(f"ints are expected in the tree, not {str(number)[:80]}")
    return contents  # type: ignore[no-any-return]


def _base64(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(contents: Any) -> bytes:
    return base64.b64decode(_text(contents), validate=True)


def _float(contents: Any) -> float:
    if contents not in ("nan", "inf", "-inf"):
        raise ValueError(f"{str(contents)[:80]} is no float")
    return float(contents)


def _int(contents: Any) -> int:
    return int(_text(contents), 16)


def _float_or_int(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"a number is expected in the tree, not {str(value)[:80]}")
    return float(value)


# Kinds ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """A class of data, and how its objects are written and read.

    Attributes:
        kind: the class; objects of subclasses are no data.
        has_identity: it is one object, however often it occurs.
    """

    name: str
    kind: type
    encode: Callable[[Encoder, Any], object]
    decode: Callable[[Decoder, Any], Any]
    has_identity: bool = True


def _encode_parts(encoder: Encoder, value: Any) -> object:
    return [encoder.entry(part, number) for number, part in enumerate(value)]


def _encode_keys(encoder: Encoder, value: Any) -> object:
    return [encoder.key(part) for part in value]


def _encode_pairs(encoder: Encoder, value: Mapping[Any, Any]) -> object:
    return [[encoder.key(key), encoder.entry(part, key)] for key, part in value.items()]


def _encode_dict(encoder: Encoder, value: dict[Any, Any]) -> object:
    """An object of JSON if all keys are strings, else pairs."""
    if all(type(key) is str for key in value):
        return {key: encoder.entry(part, key) for key, part in value.items()}
    return _encode_pairs(encoder, value)


def _decode_dict(decoder: Decoder, contents: Any) -> dict[Any, Any]:
    if type(contents) is dict:
        return {key: decoder.decode(part) for key, part in contents.items()}
    return dict(decoder.pairs(contents))


def _encode_default(encoder: Encoder, value: defaultdict[Any, Any]) -> object:
    factory = value.default_factory
    name = getattr(factory, "__name__", None)
    if factory is not None and _FACTORIES.get(str(name)) is not factory:
        raise encoder.not_data(value)
    return [name, _encode_pairs(encoder, value)]


def _decode_default(decoder: Decoder, contents: Any) -> Any:
    name, pairs = _parts(contents, 2)
    factory = None if name is None else _FACTORIES[_text(name)]
    return defaultdict(factory, decoder.pairs(pairs))


def _encode_tensor(encoder: Encoder, value: Any) -> object:
    array = value._concrete("save").reshape(value._type.shape)
    kind = type(value).__name__
    return [kind, encoder.array(np.asarray(array)), value.requires_grad]


def _decode_tensor(decoder: Decoder, contents: Any) -> Any:
    kind, array, requires_grad = _parts(contents, 3)
    return tensor_of(kind, decoder.array(array), requires_grad)


def _encode_sparse(encoder: Encoder, value: SparseTensor) -> object:
    if value.is_pending:
        raise encoder.not_data(value)
    parts = encoder.entry(value.coordinates, "indices"), encoder.entry(value.entries, "values")
    return [*parts, list(value.size_), value.is_sorted]


def _decode_sparse(decoder: Decoder, contents: Any) -> Any:
    coordinates, entries, size, is_sorted = _parts(contents, 4)
    places, values = decoder.parts([coordinates, entries])
    if type(places) is not Tensor or type(values) is not Tensor:  # a range may have no end
        raise ValueError("a sparse tensor is made of two tensors")
    made = sparse_coo_tensor(places, values, _ints(size))
    return made.coalesce() if is_sorted else made


def _encode_scalar(encoder: Encoder, value: np.generic) -> object:
    array = little_endian(np.asarray(value))
    if not is_storable(array.dtype):
        raise encoder.not_data(value)
    return [array.dtype.str, _base64(array.tobytes())]


def _decode_scalar(decoder: Decoder, contents: Any) -> Any:
    code, data = _parts(contents, 2)
    return array_of_bytes(dtype_of_code(code), (1,), _bytes(data))[0]


def _encode_dtype(encoder: Encoder, value: np.dtype[Any]) -> object:
    if not is_storable(value):
        raise encoder.not_data(value)
    return value.str


def _decode_complex(decoder: Decoder, contents: Any) -> complex:
    real, imag = decoder.parts(_parts(contents, 2))
    return complex(_float_or_int(real), _float_or_int(imag))


def _encode_bounds(encoder: Encoder, value: Any) -> object:
    return [encoder.entry(b, "bounds") for b in (value.start, value.stop, value.step)]


_DTYPES = {dtype.torch_name: dtype for dtype in DTYPES}
_NUMBERS = {np.dtype(code).type for code in "?bBhHiIlLqQefdFDSU"}

_TABLE = (
    Kind("float", float, lambda e, v: str(v), lambda d, c: _float(c), has_identity=False),
    Kind("int", int, lambda e, v: hex(v), lambda d, c: _int(c), has_identity=False),
    Kind(
        "complex", complex,
        lambda e, v: [_encoded_atom(v.real), _encoded_atom(v.imag)], _decode_complex,
        has_identity=False,
    ),
    Kind("bytes", bytes, lambda e, v: _base64(v), lambda d, c: _bytes(c), has_identity=False),
    Kind("bytearray", bytearray, lambda e, v: _base64(v), lambda d, c: bytearray(_bytes(c))),
    Kind("list", list, _encode_parts, lambda d, c: d.parts(c)),
    Kind("tuple", tuple, _encode_parts, lambda d, c: tuple(d.parts(c))),
    Kind("set", set, _encode_keys, lambda d, c: set(d.elements(c))),
    Kind("frozenset", frozenset, _encode_keys, lambda d, c: frozenset(d.elements(c))),
    Kind("dict", dict, _encode_dict, _decode_dict),
    Kind("OrderedDict", OrderedDict, _encode_pairs, lambda d, c: OrderedDict(d.pairs(c))),
    Kind("Counter", Counter, _encode_pairs, lambda d, c: Counter(dict(d.pairs(c)))),
    Kind("defaultdict", defaultdict, _encode_default, _decode_default),
    Kind("slice", slice, _encode_bounds, lambda d, c: slice(*d.parts(_parts(c, 3)))),
    Kind("range", range, _encode_bounds, lambda d, c: range(*d.parts(_parts(c, 3)))),
    Kind("size", Size, lambda e, v: list(v), lambda d, c: Size(_ints(c)), has_identity=False),
    Kind(
        "dtype", DType, lambda e, v: v.torch_name, lambda d, c: _DTYPES[_text(c)],
        has_identity=False,
    ),
    Kind("device", device, lambda e, v: str(v), lambda d, c: device(c), has_identity=False),
    Kind("array", np.ndarray, lambda e, v: e.array(v), lambda d, c: d.array(c)),
    Kind("sparse", SparseTensor, _encode_sparse, _decode_sparse),
)  # fmt: skip
_TENSOR = Kind("tensor", object, _encode_tensor, _decode_tensor)
_SCALAR = Kind("scalar", np.generic, _encode_scalar, _decode_scalar, has_identity=False)
_NUMPY_DTYPE = Kind(
    "numpy_dtype", np.dtype, _encode_dtype, lambda d, c: dtype_of_code(c), has_identity=False
)
_KINDS = {kind.name: kind for kind in (*_TABLE, _TENSOR, _SCALAR, _NUMPY_DTYPE)}
_KINDS_BY_CLASS: dict[type, Kind] = {
    **{kind.kind: kind for kind in _TABLE},
    **dict.fromkeys(TENSOR_CLASSES.values(), _TENSOR),
    **dict.fromkeys(_NUMBERS, _SCALAR),
    **{type(np.dtype(code)): _NUMPY_DTYPE for code in "?bBhHiIlLqQefdFDSU"},
}
# What besides atoms, tuples and frozensets may be a key.
_KEYS = {complex, bytes, float, int, np.generic, Size, DType} | _NUMBERS
