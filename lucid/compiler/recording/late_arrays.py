"""What functions of Python's give at each call of a step: NumPy's arrays, times, random bytes.

An array of `t.numpy()` is a value of the graph. Each of NumPy's functions on it is a host call,
which native code makes with the arrays of its call; what comes out is again a value of the graph.
Where Python needs more than shape and dtype, numbers are exits, and the rest runs op by op. Objects
of other immutable classes, what `datetime.now()` gives, are values as well: the bytes of a pickle.
"""

from __future__ import annotations

import datetime
import functools
import math
import operator
import pickle
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.compiler.inputs.late import Applied, Bases, Late, writer
from lucid.compiler.inputs.scalars import Formula
from lucid.compiler.recording.late_numbers import LateScalar, operands_of
from lucid.compiler.recording.texts import written
from lucid.ir.types import has_dtype
from lucid.tensor.core import TensorCore, of_value
from lucid.tensor.tree import Rebuild, flatten

if TYPE_CHECKING:
    from lucid.compiler.recording.exits import Exits
    from lucid.ir.graph import Value
    from lucid.tensor.tensor import Tensor

_STATIC = frozenset({"shape", "dtype", "ndim", "size", "itemsize", "nbytes"})
_COMPUTED = frozenset({"T", "mT", "real", "imag"})


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
        return _read(self.kind, self.exits.now_of(self.value))

    @property
    def bases(self) -> Bases:  # type: ignore[override]
        return {self.value: self.value}

    @property
    def formula(self) -> Formula:  # type: ignore[override]
        kind, read = self.kind, operator.itemgetter(self.value)
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
            return computed(self.exits, name, operator.attrgetter(name), (self,), {})
        return lambda *args, **kwargs: _call_method(name, self, *args, **kwargs)

    def _look(self) -> Any:
        return self.exits.op_by_op(f"it looks at {self.what}")

    def __len__(self) -> int:
        if not hasattr(self.kind, "__len__"):
            raise TypeError(f"object of type {self.kind.__name__!r} has no len()")
        return int(_call_method("__len__", self))

    def __iter__(self) -> Any:
        return iter([_call_method("__getitem__", self, i) for i in range(len(self))])

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
        tensor: the one on whose memory it is, if any; is_part: whether it may be a part of that.
    """

    __slots__ = ("_generation", "is_part", "tensor")

    def __init__(
        self,
        exits: Exits,
        value: Value,
        kind: type = np.ndarray,
        tensor: TensorCore | None = None,
        is_part: bool = False,
    ) -> None:
        super().__init__(exits, value, kind)
        self.tensor = tensor
        self.is_part = is_part
        self._generation = 0 if tensor is None else tensor._storage.generation

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.value.dtype.numpy)

    @property
    def what(self) -> str:
        if self.tensor is None:
            return "an array that NumPy computes of the step's data"
        return f"the data of {self.tensor._type}, by numpy()"

    def operand(self) -> Value:
        """Gives up where its memory was written since."""
        if self.tensor is not None and self.tensor._storage.generation != self._generation:
            self.exits.op_by_op(f"it writes memory that it gives as {self.what}")
        return self.value

    def settle(self) -> None:
        """Give up where a result would have to be on memory from outside."""
        self.operand()
        if self.tensor is not None and not self.exits.recorder.is_own_memory(self.tensor):
            self.exits.op_by_op(f"it returns or keeps {self.what}, on memory from outside")

    def as_tensor(self, *, is_copied: bool = True) -> Tensor:
        """A tensor of it; one that isn't to be copied is on its memory."""
        value = self.operand()
        if self.tensor is None:
            self.tensor = of_value(value)
            self._generation = self.tensor._storage.generation
        elif self.is_part:
            if not is_copied:
                self.exits.op_by_op(f"it makes a tensor on memory of {self.what}")
            return of_value(value)
        return self.tensor._alias()

    def number(self) -> LateScalar:
        """The only element, as Python's number."""
        value = self.exits.only(self.operand())
        return self.exits.number(value, value, (), f"a number of {self.what}")

    # ------------------------------------------------------------------ what Python asks

    def __getattr__(self, name: str) -> Any:
        if name in _STATIC:
            return getattr(np.broadcast_to(np.empty((), self.dtype), self.shape), name)
        if name in ("__array_interface__", "__array_struct__"):
            return self._look()
        is_data = name not in _COMPUTED and not callable(getattr(self.kind, name, callable))
        if is_data and not name.startswith("__"):
            return None if name == "base" else self._look()
        return super().__getattr__(name)

    def tolist(self) -> Any:
        return self.exits.list_of(self.operand())

    def item(self, *index: Any) -> Any:
        return (_call_method("__getitem__", self, index) if index else self).number()

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self._look()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        function = getattr(ufunc, method)
        return computed(self.exits, f"np.{ufunc.__name__}", function, inputs, kwargs)

    def __array_function__(self, function: Any, _: Any, args: Any, kwargs: Any) -> Any:
        return computed(self.exits, f"np.{function.__name__}", function, args, kwargs)

    def __len__(self) -> int:
        return len(np.broadcast_to(0, self.shape))

    def __bool__(self) -> bool:
        if math.prod(self.shape) != 1:
            return bool(np.broadcast_to(True, self.shape))  # raises what NumPy raises
        return self.exits.truth(self.exits.only(self.operand()), f"bool() of {self.what}")

    def __float__(self) -> float:
        return float(self.number())

    def __int__(self) -> int:
        return int(self.number())

    def __index__(self) -> int:
        return int(self.number())

    def __setitem__(self, *_: Any) -> None:
        self.exits.op_by_op(f"it writes {self.what}")

    def __copy__(self) -> Any:
        return _call_method("copy", self)


def _read(kind: type, array: np.ndarray) -> Any:
    """What an array of the graph is in Python."""
    if kind in OBJECTS:
        return pickle.loads(array.tobytes())
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

    return computed(data.exits, f"{data.kind.__name__}.{name}", call, (data, *args), kwargs)


def _operator(name: str) -> Callable[..., Any]:
    def operate(self: LateObject, *args: Any) -> Any:
        if not hasattr(self.kind, name) or any(isinstance(x, TensorCore) for x in args):
            return NotImplemented
        return _call_method(name, self, *args)

    operate.__name__ = name
    return operate


def _reflected(name: str) -> Callable[..., Any]:
    """`__radd__`, which leaves it to Python which of the two operands knows what to do."""
    function: Callable[[Any, Any], Any] = _BINARY[name]

    def operate(self: LateObject, other: Any) -> Any:
        if not hasattr(self.kind, operate.__name__) or isinstance(other, TensorCore):
            return NotImplemented
        kind = self.kind.__name__
        return computed(self.exits, f"{kind}.{operate.__name__}", function, (other, self), {})

    operate.__name__ = f"__r{name}__"
    return operate


_BINARY = {"divmod": divmod, "and": operator.and_, "or": operator.or_}
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "xor"):
    _BINARY[_name] = getattr(operator, _name)
_BINARY |= {"lshift": operator.lshift, "rshift": operator.rshift}
for _name in _BINARY:
    setattr(LateObject, f"__{_name}__", _operator(f"__{_name}__"))
    setattr(LateObject, f"__r{_name}__", _reflected(_name))
    if _name != "divmod":
        setattr(LateArray, f"__i{_name}__", LateArray.__setitem__)
for _name in (
    *("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "getitem", "contains"),
    "round",
):
    setattr(LateObject, f"__{_name}__", _operator(f"__{_name}__"))


def computed(
    exits: Exits,
    name: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Any,
    *,
    after: Sequence[Value] = (),
    generator: Any = None,
) -> Any:
    """What a function gives, by a host call: it gets arrays, numbers and objects of each call.

    after: what is to be computed before the call.
    generator: what it draws random numbers from.

    Gives the trace up where it writes an array, or returns something else than those.
    """
    leaves, rebuild = flatten((list(args), kwargs))
    is_flat = not kwargs and len(leaves) == len(args) and all(map(operator.is_, leaves, args))
    leaves = [leaf.numpy() if isinstance(leaf, TensorCore) else leaf for leaf in leaves]
    tensors: dict[Any, TensorCore | None] = {}
    for leaf in leaves:
        if type(leaf) is LateArray:
            tensors[leaf.operand()] = leaf.tensor

    def called(*found: Any) -> Any:
        args, kwargs = rebuild([*found])
        return function(*args, **kwargs)

    whole = Applied(function if is_flat else called, leaves)
    values, read = operands_of(whole.bases)
    call = _Call(whole.formula, read)
    results, known = exits.call(name, call, [*values, *after], generator)
    if known.kinds is None:
        what = "returns something else than arrays, numbers and texts"
        exits.op_by_op(f"it calls {name}(), which {what}")
    call.kinds, call.restore, call.parts = known.kinds, known.restore, known.parts
    of = [None if part is None else tensors.get(values[part]) for part in call.parts]
    found = map(functools.partial(_result, exits, f"{name}()"), results, call.kinds, of)
    return call.restore([*found])


class _Call:
    """A call of Python's within the step, with data for arguments and results.

    Attributes:
        kinds: of the results that it gave last; None: they are something else.
        restore: makes what the function returned of as many results.
        parts: for each of them which operand's memory it may be on; None: it is new.
    """

    def __init__(self, formula: Formula, read: Callable[[Sequence[np.ndarray]], Any]) -> None:
        self._formula = formula
        self._read = read
        self.kinds: list[type] | None = None
        self.restore: Rebuild = list
        self.parts: list[int | None] = []

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        result = self._formula(self._read(arrays))
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


def _result(exits: Exits, text: str, value: Value, kind: type, tensor: TensorCore | None) -> Any:
    """What the user's code gets for a result."""
    if kind is bool:
        return exits.truth(value, text)
    if kind in (int, float, np.float64):
        return exits.number(value, value, (), text, kind)
    if kind in OBJECTS:
        found = LateObject(exits, value, kind)
        return written(str, found) if kind is str else found
    return LateArray(exits, value, kind, tensor, is_part=tensor is not None)


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
