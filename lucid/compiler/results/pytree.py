"""The containers and objects that a step makes, as trees: flattened once, rebuilt by each call.

Nodes are those of arguments: lists, deques, tuples, named tuples, sets, dicts, dataclass instances
and objects of plain data. What is made and is none of these has no program: the call runs op by op.
"""

from __future__ import annotations

import enum
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from lucid.compiler.inputs.late import key_of
from lucid.compiler.results.output_specs import Assembly, OutputSpec, Run
from lucid.ir.classes import isinstance
from lucid.ir.errors import EagerOnlyError
from lucid.ir.whose_code import is_as_users, is_librarys, is_users
from lucid.runtime.entry.words import A_DICT, A_TUPLE, CALLED_ON
from lucid.tensor.core import TensorCore
from lucid.tensor.size import Size
from lucid.tensor.tree import attributes_beside, fields_of, is_record, named_tuple

_CONTAINERS = (list, tuple, set, frozenset, deque, bytearray, dict)
DICTS = (dict, OrderedDict, defaultdict)
_BASES = (OrderedDict, defaultdict, dict, list)  # of the classes that users define
_HEAP_TYPE = 1 << 9  # of `__flags__`: a class that Python code has defined
_OF_LIBRARY = "lucid.distributions."  # whose objects are plain data
Rebuild = Callable[[list[Any]], Any]


class BuiltContainer(OutputSpec):
    """A container or an object that each call makes anew.

    Attributes:
        children: what is in it.
    """

    __slots__ = ("_rebuild", "children")

    def __init__(self, rebuild: Rebuild) -> None:
        self.children: Sequence[OutputSpec] = ()
        self._rebuild = rebuild

    def make(self, run: Run) -> Any:
        return self._rebuild([child.of(run) for child in self.children])

    def assemble(self, assembly: Assembly) -> int | None:
        rebuild, children = self._rebuild, self.children
        if rebuild is tuple:
            return assembly.part(A_TUPLE, None, children)
        if isinstance(rebuild, partial) and rebuild.func is _dict and rebuild.args[0] is dict:
            return assembly.part(A_DICT, rebuild.args[1], children)
        return assembly.part(CALLED_ON, lambda *values: rebuild([*values]), children)


def is_node(value: Any) -> bool:
    """Whether it is a container or an object of data; all else is a leaf."""
    return isinstance(value, _CONTAINERS) or _is_data(value)


def flatten(value: Any) -> tuple[Iterable[Any], Rebuild]:
    """The children of a node, and what rebuilds it from others.

    The library's own containers, which notice what is put into them, are rebuilt as Python's.
    Raises `EagerOnlyError` for what can't be rebuilt from its children.
    """
    kind = type(value)
    if isinstance(value, tuple) and (kind in (tuple, Size) or hasattr(kind, "_fields")):
        beside = attributes_beside(value)
        names = [key.name for key in beside]
        children = [*value, *beside.values()]
        return children, tuple if kind is tuple else partial(_named_tuple, kind, names)
    if _is_plain(value, (list, deque)):
        return value, partial(deque, maxlen=value.maxlen) if isinstance(value, deque) else list
    if _is_plain(value, (set, frozenset)):
        return value, set if isinstance(value, set) else frozenset
    if _is_plain(value, DICTS) and all(map(_is_fixed, value)):
        return value.values(), partial(_dict, _dict_like(value), [*map(key_of, value)])
    slots = {x for base in kind.__mro__ for x in _listed(vars(base).get("__slots__", ()))}
    is_defined = isinstance(value, _BASES) and (is_users(kind) or kind in (Counter, OrderedDict))
    keys = value if isinstance(value, dict) else ()
    if is_defined and kind.__dictoffset__ and not slots and all(map(_is_fixed, keys)):
        return _flatten_defined(value)
    if not isinstance(value, _CONTAINERS):
        attributes = fields_of(value) if is_record(value) else getattr(value, "__dict__", {})
        if is_record(value) or not slots - {"__weakref__"}:
            names = [*map(key_of, attributes)]
            made = partial(_object, kind, names, slots & attributes.keys())
            return attributes.values(), made
    raise EagerOnlyError(
        f"it makes and returns or keeps a {kind.__name__}, which is no plain list, tuple, dict, "
        "set or object of data"
    )


def _named_tuple(kind: type, names: Sequence[str], children: Sequence[Any]) -> Any:
    count = len(children) - len(names)
    return named_tuple(kind, children[:count], dict(zip(names, children[count:], strict=True)))


def _is_plain(value: Any, kinds: tuple[type, ...]) -> bool:
    """Whether it is of such a class, without attributes, or of the library's."""
    if type(value) in kinds:
        return not getattr(value, "__dict__", None)
    return isinstance(value, kinds) and is_librarys(type(value))


def _is_fixed(key: Any) -> bool:
    """Whether a key is the same at each call."""
    if isinstance(key, tuple):
        return all(map(_is_fixed, key))
    return not isinstance(key, TensorCore)


def is_made_key(key: Any, was_there: Callable[[object], bool]) -> bool:
    """Whether a key of a dict is an object that each call makes anew, and equal to itself alone.

    was_there: whether an object is known from before the step.
    """
    if isinstance(key, (tuple, frozenset)):
        return any(is_made_key(part, was_there) for part in key)
    hashes: Any = type(key).__hash__
    return hashes is object.__hash__ and _is_data(key) and not was_there(key)


def _listed(slots: str | Iterable[str]) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else slots


def _dict_like(value: dict[Any, Any]) -> Callable[..., dict[Any, Any]]:
    if isinstance(value, defaultdict):
        return partial(defaultdict, value.default_factory)
    return OrderedDict if isinstance(value, OrderedDict) else dict


def _dict(kind: Callable[..., Any], keys: Sequence[Any], items: list[Any]) -> Any:
    return kind(zip(keys, items, strict=True))


def _flatten_defined(value: Any) -> tuple[Iterable[Any], Rebuild]:
    """Of a list or dict that has attributes, or methods of the user's, which ran while tracing."""
    base: Any = next(x for x in _BASES if isinstance(value, x))
    is_its_own = vars(value) is value  # by `self.__dict__ = self`
    names = [] if is_its_own else [*map(key_of, vars(value))]
    keys = [*range(list.__len__(value))] if base is list else [*map(key_of, base.keys(value))]
    items = list.__iter__(value) if base is list else base.values(value)
    factory = value.default_factory if base is defaultdict else None
    children = [*items, *(vars(value)[name] for name in names)]
    return children, partial(_defined, type(value), base, keys, names, is_its_own, factory)


def _defined(
    kind: type,
    base: Any,
    keys: Sequence[Any],
    names: Sequence[str],
    is_its_own: bool,
    factory: Any,
    values: list[Any],
) -> Any:
    made = base.__new__(kind)
    items, attributes = values[: len(keys)], values[len(keys) :]
    if base is list:
        list.extend(made, items)
    else:
        for key, item in zip(keys, items, strict=True):
            base.__setitem__(made, key, item)
    if base is defaultdict:
        object.__setattr__(made, "default_factory", factory)
    own = made if is_its_own else dict(zip(names, attributes, strict=True))
    object.__setattr__(made, "__dict__", own)
    return made


def _object(kind: type, names: Sequence[str], in_slots: set[str], values: list[Any]) -> Any:
    """Made without its `__init__`, which ran while tracing."""
    made = kind.__new__(kind) if kind is types.SimpleNamespace else object.__new__(kind)
    for name, value in zip(names, values, strict=True):
        if name in in_slots:
            object.__setattr__(made, name, value)
        else:
            made.__dict__[name] = value
    return made


def _is_data(value: Any) -> bool:
    """Whether an object that is no container is known by its attributes."""
    kind = type(value)
    advances = getattr(kind, "__next__", None)  # in C: by what no attribute shows
    is_pythons = advances is None or isinstance(advances, types.FunctionType)
    if isinstance(value, (type, enum.Enum)) or not is_pythons:
        return False
    if kind is types.SimpleNamespace:
        return True
    if not all(base is object or base.__flags__ & _HEAP_TYPE for base in kind.__mro__):
        return False
    if kind.__module__.startswith(_OF_LIBRARY) or is_record(value):  # as a sparse matrix is
        return True
    if is_as_users(kind):
        return True
    return kind is not object and is_users(kind) and not any(map(is_librarys, kind.__mro__))
