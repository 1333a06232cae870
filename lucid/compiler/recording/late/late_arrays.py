"""What functions of Python's give at each call of a step: NumPy's arrays, times, random bytes.

An array of `t.numpy()` is a value of the graph, and so is one from outside that changes from call
to call. Each of NumPy's functions on it is a host call, which native code makes with the arrays of
its call; what comes out is again a value of the graph. One that writes an array does so to a copy,
whose elements the memory of the array gets as that of a tensor does.
Where Python needs more than shape and dtype, numbers are exits, and the rest runs op by op. Objects
of other immutable classes, what `datetime.now()` gives, are values as well: the bytes of a pickle.
"""

from __future__ import annotations

import datetime
import functools
import math
import operator
import pickle
import sys
import time
import types
import uuid
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.compiler.guards.calls import WRITES_ARRAYS, returns_written, written_by
from lucid.compiler.guards.collector import MOST_COMPARED
from lucid.compiler.guards.events import ARITHMETIC, COMPARISONS
from lucid.compiler.inputs.late import Applied, Bases, Late, is_late, now_of, writer
from lucid.compiler.inputs.scalars import OPS, WHOLE, Formula, is_live
from lucid.compiler.recording.late.late_numbers import LateScalar, place_of, within_step
from lucid.compiler.recording.late.texts import written
from lucid.functions.gathering import index_put
from lucid.functions.indexing import getitem
from lucid.functions.joining import cat, stack
from lucid.functions.shape import broadcast
from lucid.ir import ops
from lucid.ir.classes import isinstance
from lucid.ir.errors import LucidError
from lucid.ir.extents import hint, is_open, replaced
from lucid.ir.location import Location, here
from lucid.ir.op import Op
from lucid.ir.ops.rules import broadcast_all
from lucid.ir.types import DType, Shape, bool_, f64, has_dtype, i64
from lucid.ir.whose_code import is_followed, is_users
from lucid.tensor.arrays import native_dtype
from lucid.tensor.core import TensorCore, of_array, of_users_array, of_value
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import Rebuild, flatten
from lucid.tensor.writing import refuse_overlaps

if TYPE_CHECKING:
    from lucid.compiler.recording.exits import Exits
    from lucid.compiler.recording.recorder import Recorder
    from lucid.ir.graph import Value

_STATIC = frozenset({"shape", "dtype", "ndim", "size", "itemsize", "nbytes"})
_COMPUTED = frozenset({"T", "mT", "real", "imag"})
_CHANGE_WHAT_IT_IS = frozenset({"resize", "setflags", "setfield", "byteswap"})


# Immutable classes whose objects are values of the graph.
OBJECTS: frozenset[type] = frozenset(
    {
        *(datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone),
        *(time.struct_time, uuid.UUID, bytes, str),
    }
)
_STEP_OF_SIZES = 64  # of pickles, so that their sizes don't vary


class LateObject(Late):
    """An object of an immutable class that is known after the call, as a value of the graph.

    Attributes:
        kind: its class.
        value: what it is in the graph.
    """

    __slots__ = ("exits", "kind", "value")

    def __init__(self, exits: Exits, value: Value, kind: type) -> None:
        self.exits = exits
        self.value = value
        self.kind = kind

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.kind

    @property
    def now(self) -> Any:
        """What it is in the call that is traced."""
        return _read(self.kind, self.exits.now_of(self.operand()))

    @property
    def bases(self) -> Bases:  # type: ignore[override]
        return {self.operand(): self.operand()}

    @property
    def formula(self) -> Formula:  # type: ignore[override]
        kind, read = self.kind, operator.itemgetter(self.operand())
        return read if kind is np.ndarray else lambda known: _read(kind, read(known))

    @property
    def what(self) -> str:
        """What messages call it."""
        return f"{self.kind.__name__} that each call finds anew"

    def operand(self) -> Value:
        """What a host call gets."""
        return self.value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{self.kind.__name__!r} object has no attribute {name!r}")
        if not hasattr(self.kind, name):
            return getattr(self.now, name)  # which raises an error
        if not callable(getattr(self.kind, name)):
            get = operator.attrgetter(name)
            return computed(self.exits, name, get, (self,), {}, only_computes=True)
        return lambda *args, **kwargs: _call_method(name, self, *args, **kwargs)

    def _look(self) -> Any:
        return self.exits.op_by_op(f"it looks at {self.what}")

    def __len__(self) -> int:
        if not hasattr(self.kind, "__len__"):
            raise TypeError(f"object of type {self.kind.__name__!r} has no len()")
        return int(_call_method("__len__", self))

    def __iter__(self) -> Any:
        return iter([operator.getitem(self, i) for i in range(len(self))])

    def __bool__(self) -> bool:
        return not hasattr(self.kind, "__len__") or len(self) > 0

    def __hash__(self) -> int:
        return hash(self._look())

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: object) -> Any:
        return self.__copy__()

    __str__, __repr__, __format__ = writer(str), writer(repr), writer(format)


class LateArray(LateObject):
    """An array, or a number of NumPy's, that is known after the call.

    Attributes:
        kind: `np.ndarray`, or the class of the number.
        tensor: the one on whose memory it is, or may be a part; None: nobody else has that.
        whole: the array of which it may be a part; key: by which index it is one for sure, and
            line: where.
        owner: the user's array that it stands for; is_made: which the step has made itself.
        found: gives the view of such an array from outside that the user's code would have.
        is_copy: whether eager mode has an array from outside in its place.
    """

    __slots__ = (
        *("_generation", "_shown", "found", "is_copy", "is_made", "key", "line", "owner"),
        *("tensor", "whole"),
    )

    def __init__(
        self,
        exits: Exits,
        value: Value,
        kind: type = np.ndarray,
        tensor: TensorCore | None = None,
        whole: LateArray | None = None,
    ) -> None:
        super().__init__(exits, value, kind)
        memory: Any = tensor if whole is None else whole._on_memory()
        self.tensor: Tensor | None = memory
        self.whole = whole
        self.key: Any = None
        self.line: Location | None = None
        self.owner: np.ndarray | None = None
        self.is_made = self.is_copy = False
        self.found: Callable[[], np.ndarray] | None = None
        self._generation = 0 if self.tensor is None else self.tensor._storage.generation
        self._shown: list[tuple[Tensor, int]] = [] if whole is None else whole._shown

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(self.exits.shown, self._sizes))

    @property
    def _sizes(self) -> Shape:
        """Its shape as the library knows it."""
        return self.value.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.value.dtype.numpy)

    @property
    def what(self) -> str:
        whole = self if self.whole is None else self.whole
        if whole.owner is not None and not whole.is_made:
            return "an array from outside that changes"
        if self.tensor is None:
            return "an array that NumPy computes of the step's data"
        return f"the data of {self.tensor._type}, by numpy()"

    def _is_own(self) -> bool:
        if self.is_copy or not (self.whole is None or self.whole._is_own()):
            return False
        return self.tensor is None or self.exits.recorder.is_own_memory(self.tensor)

    def _on_memory(self) -> Tensor:
        """A tensor on its memory, or on that of which it may be a part; a number has none."""
        if self.kind is not np.ndarray:
            return of_value(self.value)
        if self.tensor is None:
            self.tensor = of_value(self.value)
            self._generation = self.tensor._storage.generation
        return self.tensor

    def operand(self) -> Value:
        """Its elements by now: the memory may have been written."""
        if any(tensor._storage.generation != seen for tensor, seen in self._shown):
            self.exits.op_by_op(f"it writes a tensor on memory of {self.what}")
        if self.tensor is not None and self.tensor._storage.generation != self._generation:
            if self.whole is None:
                self.value = self.exits.recorder.value_of(self.tensor)
            elif self.key is None:
                self.exits.op_by_op(f"it writes memory that it gives as {self.what}")
            else:
                self.value = self.whole[self.key].value
            self._generation = self.tensor._storage.generation
        return self.value

    def settle(self) -> None:
        """Give up where a result would have to be on memory from outside that no tensor shows."""
        self.operand()
        if not self._is_own() and (self.whole is not None or self.owner is not None):
            self.exits.op_by_op(f"it returns or keeps {self.what}, on memory from outside")

    def as_tensor(self, *, is_copied: bool = True) -> Tensor:
        """A tensor of it; one that isn't to be copied is on its memory."""
        value = self.operand()
        if self.whole is None:
            return self._on_memory()._alias()
        tensor = of_value(value)
        if not is_copied:
            if not self._is_own():
                if self.key is None:
                    self.exits.op_by_op(f"it makes a tensor on memory of {self.what}")
                parts = self.exits.recorder.parts
                parts.note(tensor, self.whole._on_memory(), self.key, self.line)
            self._shown.append((tensor, tensor._storage.generation))
        return tensor

    def number(self) -> LateScalar:
        """The only element, as Python's number."""
        value = self.exits.only(self.operand())
        return self.exits.number(value, value, (), f"a number of {self.what}")

    # ------------------------------------------------------------------ writing

    @property
    def can_be_written(self) -> bool:
        """Whether it is known which memory it shows, and who else does."""
        is_known = self.whole is None or self.key is not None
        return is_known and not self._shown and self.kind is np.ndarray

    def write(
        self,
        name: str,
        change: Callable[..., Any],
        *args: Any,
        generator: Any = None,
        **kwargs: Any,
    ) -> None:
        """Let `change(array, …)`, a function that writes its first argument, write it.

        generator: what it draws random numbers from.
        """
        if not self.can_be_written:
            self.exits.op_by_op(f"it writes an array, a part of {self.what}, by {name}()")
        if self._like().nbytes > MOST_COMPARED:
            what = f"it writes an array of {self._like().nbytes:,} bytes, by {name}()"
            self.exits.op_by_op(what, "set single entries or ranges (a[i] = x), or use a tensor")

        def changed(data: np.ndarray, *args: Any, **kwargs: Any) -> np.ndarray:
            data = data.copy()
            change(data, *args, **kwargs)
            return data

        self._hold(computed(self.exits, name, changed, (self, *args), kwargs, generator=generator))

    def _hold(self, elements: LateArray) -> None:
        """Have other elements, those of an array like this."""
        if self.whole is not None:
            self.whole[self.key] = elements
        else:
            self._store(self._on_memory(), of_value(elements.operand()))

    def _store(self, target: TensorCore, elements: TensorCore) -> None:
        """Write its memory, or a part of that, as NumPy does: no version counts it."""
        array = target._storage.array
        if not (self._is_own() or array is None or array.flags.writeable):
            self.exits.op_by_op(f"it writes {self.what}, which is read-only")
        try:
            refuse_overlaps(target)
        except LucidError:  # NumPy writes such an array, and says what comes of it
            self.exits.op_by_op(f"it writes {self.what}, which has elements at one address")
        self.exits.recorder.write(target, elements)

    # ------------------------------------------------------------------ by index

    def __getitem__(self, key: Any) -> Any:
        key = _each_part(_of_numbers, key)
        if self.exits.recorder.parts.are_looked_at():
            key = _each_part(_looked_at, key)
        index = self._index(key)
        if index is None:
            found = self._called_item(key)
            is_part = type(found) is LateArray and found.whole is self
        else:
            at_hand = replaced(self._sizes, hint)
            kind = type(np.broadcast_to(np.empty((), self.dtype), at_hand)[_each_part(now_of, key)])
            tensor = getitem(self._elements(), index)
            value = self.exits.recorder.value_of(tensor)
            if kind is not np.ndarray:
                return result_of(self.exits, "an element of an array", value, kind, None)
            if self.whole is None and not any(isinstance(x, TensorCore) for x in index):
                view = LateArray(self.exits, value, tensor=tensor)
                if (found := self.found) is not None:
                    view.found = lambda: found()[index]
                return view
            found, is_part = LateArray(self.exits, value, whole=self), True
        if is_part:
            found.key, found.line = key, here()
        return found

    def part_for(self, view: np.ndarray, index: tuple[Any, ...]) -> LateArray:
        """What stands for a view of the array that the user has."""
        found: LateArray = self[(*index, ...)]
        found.owner, found.is_made = view, self.is_made
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        key = _each_part(_of_numbers, key)
        index, elements = self._index(key), None
        if index is not None and self.whole is None and self.can_be_written:
            elements = self._as_elements(value, np.shape(self._like()[_each_part(now_of, key)]))
        if index is None or elements is None:
            self._write_item(key, value)
        elif not any(isinstance(x, TensorCore) for x in index):
            self._store(getitem(self._on_memory(), index), elements)
        elif all(isinstance(x, (int, TensorCore)) for x in index):
            constant = self.exits.recorder.constant
            at = [constant(x, i64) if type(x) is int else x for x in index]
            self._store(self._on_memory(), index_put(self._on_memory(), at, elements))
        else:
            self._write_item(key, value)

    def _called_item(self, key: Any) -> Any:
        parts, rebuild = _parts_of_key(key)

        def get(data: np.ndarray, *parts: Any) -> Any:
            return data[rebuild(parts)]

        name, operands = "ndarray.__getitem__", (self, *parts)
        return computed(self.exits, name, get, operands, {}, only_computes=True)

    def _write_item(self, key: Any, value: Any) -> None:
        parts, rebuild = _parts_of_key(key)

        def put(data: np.ndarray, value: Any, *parts: Any) -> None:
            data[rebuild(parts)] = value

        self.write("ndarray.__setitem__", put, value, *parts)

    def _like(self) -> np.ndarray:
        """An array of its type that shows what an index gives."""
        return np.broadcast_to(np.empty((), self.dtype), self._sizes)

    def _static(self, name: str) -> Any:
        """What its type says, of open sizes as well."""
        if not any(map(is_open, self._sizes)):
            return getattr(self._like(), name)
        size, each = math.prod(self.shape), self.dtype.itemsize
        return {"ndim": len(self._sizes), "size": size, "itemsize": each}.get(name, size * each)

    def _elements(self) -> Tensor:
        """A tensor of its elements, on its memory where it is known."""
        return self._on_memory() if self.whole is None else of_value(self.operand())

    def _index(self, key: Any) -> tuple[Any, ...] | None:
        """An index of ints, some of which may move, and of ranges, as tensors have it.

        None for another one.
        """
        found: list[Any] = []
        parts = key if type(key) is tuple else (key,)
        axes = [i for i, part in enumerate(parts) if part is not None and part is not Ellipsis]
        if self.kind is not np.ndarray or len(axes) > self.ndim:
            return None
        is_behind = False  # an ellipsis
        for i, part in enumerate(parts):
            is_behind = is_behind or part is Ellipsis
            part = place_of(part)
            if is_live(part) and issubclass(part.kind, WHOLE):
                part = part.truncated()
                size = self._sizes[axes.index(i) - (len(axes) if is_behind else 0)]
                if not (part < size and part >= -size):
                    return None  # which NumPy refuses, perhaps to code of the user's
                found.append(self.exits.recorder.constant(part, i64))
            elif isinstance(part, (int, np.integer)) and type(part) in (int, np.int64, np.int32):
                found.append(int(part))
            elif part is None or part is Ellipsis or _is_range(part):
                found.append(part)
            else:
                return None
        return tuple(found)

    def _as_elements(self, value: Any, shape: tuple[int, ...]) -> Tensor | None:
        """A value as elements of such an array; None where only NumPy says what they are."""
        dtype = self.value.dtype
        is_float = dtype.kind == "float" and isinstance(value, (int, float))
        is_int = dtype is i64 and value.__class__ is int and abs(now_of(value)) < 2**63
        if type(value) is LateArray and value.dtype == self.dtype:
            tensor = value._elements()
        elif is_float or is_int:
            tensor = self.exits.recorder.constant(value, dtype)
        else:
            return None
        if tensor._type.shape == shape:
            return tensor
        is_less = broadcast_all(tensor._type.shape, shape) == shape
        return broadcast(tensor, shape) if is_less else None

    # ------------------------------------------------------------------ what Python asks

    def __getattr__(self, name: str) -> Any:
        if name in _STATIC:
            return self._static(name)
        if name in ("__array_interface__", "__array_struct__"):
            return self._look()
        is_data = name not in _COMPUTED and not callable(getattr(self.kind, name, callable))
        if name == "base" and not (self.owner is None and is_followed(sys._getframe(1).f_code)):
            return None if self.owner is None else self.owner.base
        if is_data and not name.startswith("__"):
            return self._look()
        if name in _CHANGE_WHAT_IT_IS:
            self.exits.op_by_op(f"it changes {self.what}, by {name}()")
        if name in WRITES_ARRAYS:
            return functools.partial(self.write, f"ndarray.{name}", getattr(np.ndarray, name))
        return super().__getattr__(name)

    def tolist(self) -> Any:
        return self.exits.list_of(self.operand())

    def item(self, *index: Any) -> Any:
        return _call_method("item", self, *index) if index else self.number()

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self._look()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        function = getattr(ufunc, method)
        return of_numpy(self.exits, f"np.{ufunc.__name__}", function, inputs, kwargs)

    def __array_function__(self, function: Any, _: Any, args: Any, kwargs: Any) -> Any:
        return of_numpy(self.exits, f"np.{function.__name__}", function, args, kwargs)

    def __len__(self) -> int:
        return len(self._like())

    def __bool__(self) -> bool:
        if math.prod(self._sizes) != 1:
            return bool(np.broadcast_to(True, self._sizes))  # raises what NumPy raises
        return self.exits.truth(self.exits.only(self.operand()), f"bool() of {self.what}")

    def __float__(self) -> float:
        return float(self.number())

    def __int__(self) -> int:
        return int(self.number())

    def __index__(self) -> int:
        like = self._like()
        operator.index(like if self.kind is np.ndarray else like[()])  # raises what NumPy raises
        return int(self.number())

    def __copy__(self) -> Any:
        return _call_method("copy", self)


def stand_in_of(recorder: Recorder, array: np.ndarray, *, is_made: bool = False) -> LateArray:
    """What stands for an array of the user's that changes, from outside or made by the step."""
    tensor = of_users_array(array)
    found = LateArray(recorder.exits, recorder.value_of(tensor), tensor=tensor)
    found.owner, found.is_made = array, is_made
    found.found = None if is_made else lambda: array
    return found


def _is_range(part: Any) -> bool:
    """Whether a part of an index is a range that a view of a tensor can have."""
    if type(part) is not slice:
        return False
    is_known = all(x is None or type(x) is int for x in (part.start, part.stop, part.step))
    return is_known and (part.step is None or part.step > 0)


def _of_numbers(key: Any) -> Any:
    """A part of an index as NumPy has it, which asks tensors for `__index__` before `__array__`."""
    kind = key._type.dtype.kind if isinstance(key, TensorCore) and key._type.size == 1 else None
    if kind == "bool":
        return operator.index(key)
    return key.item() if kind == "int" else key


def _each_part(function: Callable[[Any], Any], key: Any) -> Any:
    """An index with what a function makes of each part, and of each bound of a range."""
    if type(key) is tuple:
        return tuple([_each_part(function, part) for part in key])
    if type(key) is slice:
        return slice(*map(function, (key.start, key.stop, key.step)))
    return function(key)


def _looked_at(part: Any) -> Any:
    """Python's int for a number that moves."""
    return operator.index(part) if is_live(part) and issubclass(part.kind, WHOLE) else part


def _parts_of_key(key: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """The parts of an index, bounds of ranges apart, and what makes an index of such."""
    is_tuple = type(key) is tuple
    keys = list(key) if is_tuple else [key]
    counts = [3 if type(part) is slice else 1 for part in keys]
    parts = [x for k in keys for x in ((k.start, k.stop, k.step) if type(k) is slice else (k,))]

    def rebuild(parts: Sequence[Any]) -> Any:
        given = iter(parts)
        found = [slice(*islice(given, 3)) if n == 3 else next(given) for n in counts]
        return tuple(found) if is_tuple else found[0]

    return parts, rebuild


def _read(kind: type, array: np.ndarray) -> Any:
    """What an array of the graph is in Python."""
    if kind in OBJECTS:
        return pickle.loads(array.tobytes())
    if kind is Tensor:
        return of_array(array)
    return array if kind is np.ndarray else array[()]


def _data_of(value: Any) -> np.ndarray:
    """What a result of Python's is in the graph."""
    if type(value) not in OBJECTS:
        return np.asarray(value)
    data = pickle.dumps(value)
    return np.frombuffer(data.ljust(-(-len(data) // _STEP_OF_SIZES) * _STEP_OF_SIZES), np.uint8)


def _call_method(name: str, data: LateObject, *args: Any, **kwargs: Any) -> Any:
    def call(data: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(data, name)(*args, **kwargs)

    of, operands = f"{data.kind.__name__}.{name}", (data, *args)
    return of_numpy(data.exits, of, call, operands, kwargs, only_computes=True)


def _operator(name: str, *, is_reflected: bool = False) -> Callable[..., Any]:
    """`__add__`, or `__radd__`, which leaves it to Python which operand knows what to do."""
    method = f"__r{name}__" if is_reflected else f"__{name}__"

    def operate(self: LateObject, *args: Any) -> Any:
        if not hasattr(self.kind, method) or any(isinstance(x, TensorCore) for x in args):
            return NotImplemented
        operands = (*args, self) if is_reflected else (self, *args)
        op = _OPERATORS.get(name) if type(self) is LateArray else None
        found = None if op is None else _by_op(self.exits, op, operands)
        if found is not None:
            return found
        text = f"{self.kind.__name__}.{method}"
        if any(isinstance(x, np.generic) for x in args) and name in _WITH_SCALARS:
            return of_numpy(self.exits, text, _WITH_SCALARS[name], operands, {})
        if not is_reflected:
            return _call_method(method, self, *args)
        return computed(self.exits, text, _BINARY[name], operands, {}, only_computes=True)

    operate.__name__ = method
    return operate


def _in_place(name: str) -> Callable[..., Any]:
    method = f"__i{name}__"

    def operate(self: LateArray, other: Any) -> Any:
        if self.kind is not np.ndarray or isinstance(other, TensorCore):
            return NotImplemented
        op = _OPERATORS.get(name)
        found = None if op is None else _by_op(self.exits, op, (self, other))
        if type(found) is LateArray and found._sizes == self._sizes and self.can_be_written:
            self._hold(found)
        else:
            self.write(f"ndarray.{method}", getattr(np.ndarray, method), other)
        return self if self.owner is None else self.owner

    operate.__name__ = method
    return operate


_BINARY: dict[str, Callable[[Any, Any], Any]] = {"divmod": divmod}
_BINARY |= {name: getattr(operator, f"__{name}__") for name in ARITHMETIC.values()}
# Of two scalars of NumPy's either may know what to do.
_WITH_SCALARS = _BINARY | {name: getattr(operator, name) for name in COMPARISONS.values()}
for _name in _BINARY:
    setattr(LateObject, f"__{_name}__", _operator(_name))
    setattr(LateObject, f"__r{_name}__", _operator(_name, is_reflected=True))
for _name in ARITHMETIC.values():
    setattr(LateArray, f"__i{_name}__", _in_place(_name))
for _name in (*COMPARISONS.values(), "neg", "pos", "abs", "invert", "getitem", "contains", "round"):
    setattr(LateObject, f"__{_name}__", _operator(_name))


# NumPy's functions that ops compute alike, to the last bit; and these ops by their operators.
_COMPARE = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
_OPS: dict[Any, Op] = {x: OPS[x] for x in (np.add, np.subtract, np.multiply, *_COMPARE)}
_OPERATORS = {op.name: op for op in _OPS.values()}


def _by_op(exits: Exits, op: Any, operands: Sequence[Any]) -> Any:
    """What an op gives of arrays of one dtype, and numbers; None: that is for NumPy to say."""
    arrays = [x for x in operands if type(x) is LateArray]
    first, dtypes = arrays[0], {x.dtype for x in arrays}
    if len(dtypes) != 1 or first.value.dtype.kind not in ("float", "int"):
        return None
    shape = broadcast_all(*(x._sizes for x in arrays))
    if shape is None:
        return None  # which NumPy says
    sides: list[Value] = []
    for operand in operands:
        kind = first.dtype.type if type(operand) is LateArray else operand.__class__
        side = first._as_elements(operand, shape)
        if side is None or kind not in (int, float, first.dtype.type):
            return None
        sides.append(exits.recorder.value_of(side))
    collector = exits.recorder.collector
    if first.value.dtype.kind == "float":
        if exits.error_state():
            return None
        collector.answer("numpy.geterr()", np.geterr)  # whether an overflow is an error
        if not {"raise", "call", "log"}.isdisjoint(np.geterr().values()):
            return None
    with exits.recorder.annotated():
        value = op(*sides)
    kind = np.ndarray if shape else np.dtype(value.dtype.numpy).type
    return result_of(exits, f"np.{op.name}", value, kind, None)


_JOINS = (np.array, np.asarray, np.stack, np.vstack, np.concatenate)  # make one array of many
_OF_NUMBERS: dict[type, DType] = {bool: bool_, int: i64, float: f64}


def _joined(exits: Exits, function: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """What comes of a list of arrays, or of numbers, of one shape and dtype; None: NumPy says it.

    It is rows of the graph side by side, as NumPy only copies them.
    """
    is_list = len(args) == 1 and type(args[0]) in (list, tuple)
    is_typed = function in (np.array, np.asarray) and kwargs.keys() == {"dtype"}
    if not is_list or (kwargs and not is_typed):
        return None
    parts, kinds = args[0], {x.__class__ for x in args[0]}
    if len(kinds) != 1 or not all(type(x) in (LateArray, LateScalar) for x in parts):
        return None
    (kind,) = kinds
    if type(parts[0]) is LateArray:
        tensors = [of_value(x.operand()) for x in parts]
    elif kind in _OF_NUMBERS:
        tensors = [exits.recorder.constant(x, _OF_NUMBERS[kind]) for x in parts]
    else:
        return None
    types = {x._type for x in tensors}
    if len(types) != 1 or (function is np.concatenate and tensors[0].ndim == 0):
        return None
    is_by_rows = function is np.concatenate or (function is np.vstack and tensors[0].ndim > 1)
    made = cat(tensors) if is_by_rows else stack(tensors)
    if function is np.vstack and made.ndim == 1:
        made = made.unsqueeze(1)
    value = exits.recorder.value_of(made)
    if is_typed:
        wanted = np.dtype(kwargs["dtype"])
        if wanted not in (np.float32, np.float64) or exits.error_state():
            return None
        with exits.recorder.annotated():
            value = ops.cast(value, dtype=native_dtype(wanted))
    return LateArray(exits, value)


class NeedsDataError(Exception):
    """NumPy has found no method of a tensor's for what it is given."""


def of_numpy(
    exits: Exits,
    name: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Any,
    *,
    only_computes: bool = False,
) -> Any:
    """What a function of NumPy's gives, which may write an array."""
    target = written_by(function, args, kwargs)
    if type(target) is not LateArray:
        op = _OPS.get(function) if len(args) == 2 and not kwargs else None
        is_array = op is not None and any(type(x) is LateArray for x in args)
        found = _by_op(exits, op, args) if is_array else None
        if found is None and function in _JOINS:
            found = _joined(exits, function, args, kwargs)
        if found is not None:
            return found
        computes = only_computes or _only_computes(function)
        how: Any = {"only_computes": computes, "is_unheard": True}
        return computed(exits, name, function, args, kwargs, **how)
    leaves, rebuild = flatten((list(args), kwargs))
    is_target = [leaf is target for leaf in leaves]

    def change(array: np.ndarray, *others: Any) -> None:
        given = [array if x else other for x, other in zip(is_target, others, strict=True)]
        args, kwargs = rebuild(given)
        function(*args, **kwargs)

    target.write(name, change, *(None if leaf is target else leaf for leaf in leaves))
    if not returns_written(function):
        return None
    return target if target.owner is None else target.owner


def computed(
    exits: Exits,
    name: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Any,
    *,
    after: Sequence[Value] = (),
    generator: Any = None,
    only_computes: bool = False,
    is_unheard: bool = False,
) -> Any:
    """What a function gives, by a host call: it gets arrays, numbers and objects of each call.

    after: what is to be computed before the call.
    generator: what it draws random numbers from.
    only_computes: whether it does nothing else with arrays, numbers and texts.
    is_unheard: whether what it reads besides these is no part of the step.

    Gives the trace up where it writes an array, or returns something else than those.
    """
    state = exits.error_state()
    if not {"call", "log"}.isdisjoint(state.values()):
        exits.op_by_op(f"it has NumPy tell a function of errors in floats, of {name}()")
    if state:
        function = _in_error_state(function, state)
    leaves, rebuild = flatten((list(args), kwargs))
    called_back = next(filter(_has_users_code, leaves), None)
    if called_back is not None:
        which = getattr(called_back, "__qualname__", type(called_back).__name__)
        exits.op_by_op(f"it gives {which} to {name}(), which calls it with what the step computes")
    given = (*args, *kwargs.values())
    is_flat = len(leaves) == len(given) and all(map(operator.is_, leaves, given))
    leaves = [_lasting(exits, leaf) for leaf in leaves]
    arrays = {leaf.operand(): leaf for leaf in leaves if type(leaf) is LateArray}
    is_plain = all(map(_runs_no_code, leaves))
    how: Any = {"is_own": only_computes and generator is None and is_plain}
    how["is_unheard"] = is_unheard and is_plain

    def called(*found: Any) -> Any:
        args, kwargs = rebuild([*found])
        return function(*args, **kwargs)

    if is_flat:
        count = len(args)
        whole = Applied(function, leaves[:count], dict(zip(kwargs, leaves[count:], strict=True)))
    else:
        whole = Applied(called, leaves)
    values, compute = within_step(whole)
    call = _Call(compute)
    results, known = exits.call(name, call, values, generator, after, **how)
    if known.kinds is None:
        what = "returns something else than arrays, numbers and texts"
        exits.op_by_op(f"it calls {name}(), which {what}")
    call.kinds, call.restore, call.parts = known.kinds, known.restore, known.parts
    of = [None if part is None else arrays.get(values[part]) for part in call.parts]
    found = map(functools.partial(result_of, exits, f"{name}()"), results, call.kinds, of)
    return call.restore([*found])


def _in_error_state(function: Callable[..., Any], state: dict[Any, Any]) -> Callable[..., Any]:
    """A function that treats errors in floats as the step has said around its call."""

    def called(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(**state):
            return function(*args, **kwargs)

    return called


def _has_users_code(leaf: Any) -> bool:
    """Whether an argument is a function of the user's, which may read and change anything."""
    if is_late(leaf) or is_live(leaf) or not callable(leaf):
        return False
    return is_users(leaf.func if isinstance(leaf, functools.partial) else leaf)


def _runs_no_code(leaf: Any) -> bool:
    """Whether a function of NumPy's can do nothing with an argument that anybody sees."""
    kind = leaf if isinstance(leaf, type) else leaf.__class__
    if issubclass(kind, (np.generic, np.dtype)):
        return kind is not np.object_
    if kind is np.ndarray:
        return type(leaf) is LateArray or not leaf.dtype.hasobject
    return kind in (int, float, bool, str, type(None), type(...), slice) or kind in OBJECTS


def _only_computes(function: Any) -> bool:
    """Whether a function is one of NumPy's own, which calls nothing but what it is given."""
    of = getattr(function, "__self__", None)
    is_methods = not (of is None or isinstance(of, (np.ufunc, types.ModuleType)))
    return type(function) in (np.ufunc, type(np.sum), type(np.array)) and not is_methods


def _lasting(exits: Exits, leaf: Any) -> Any:
    """What each call gets of an argument: an array that the step has made may change later."""
    if isinstance(leaf, TensorCore):
        return leaf.numpy()
    collector = exits.recorder.collector
    is_made = type(leaf) is np.ndarray and not collector.was_there(leaf)
    return leaf.copy() if is_made else leaf


class _Call:
    """A call of Python's within the step, with data for arguments and results.

    Attributes:
        kinds: of the results that it gave last; None: they are something else.
        restore: makes what the function returned of as many results.
        parts: for each of them which operand's memory it may be on; None: it is new.
    """

    def __init__(self, compute: Callable[[Sequence[np.ndarray]], Any]) -> None:
        self._compute = compute
        self.kinds: list[type] | None = None
        self.restore: Rebuild = list
        self.parts: list[int | None] = []

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        result = self._compute(arrays)
        if self.kinds == [type(result)]:
            return [_data_of(result)]
        found, restore = flatten(result)
        kinds = [*map(type, found)]
        if self.kinds != kinds:
            if self.kinds is None and not all(map(_is_data, found)):
                return []
            self.kinds, self.restore = kinds, restore
            self.parts = [_memory_of(x, arrays) for x in found]
        return [*map(_data_of, found)]


def _memory_of(found: Any, arrays: Sequence[np.ndarray]) -> int | None:
    """Which of the arrays a result may share memory with."""
    if not isinstance(found, np.ndarray):
        return None
    return next((i for i, array in enumerate(arrays) if np.may_share_memory(found, array)), None)


def result_of(exits: Exits, text: str, value: Value, kind: type, whole: LateArray | None) -> Any:
    """What the user's code gets for a result."""
    if kind is bool:
        return exits.truth(value, text)
    if kind in (int, float, np.float64):
        return exits.number(value, value, (), text, kind)
    if kind in OBJECTS:
        found = LateObject(exits, value, kind)
        return written(str, found) if kind is str else found
    return LateArray(exits, value, kind, whole=whole)


def _is_data(value: Any) -> bool:
    """Whether the graph can have a value; a time of a zone of the user's may have no pickle."""
    kind = type(value)
    if kind in OBJECTS:
        try:
            return bool(pickle.dumps(value))
        except Exception:
            return False
    is_number = kind in (bool, int, float) or issubclass(kind, (np.number, np.bool_))
    return (is_number or kind is np.ndarray) and has_dtype(np.asarray(value))
