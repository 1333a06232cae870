"""What of a call decides which program runs: structure of the arguments, tensor types, values."""

from __future__ import annotations

import enum
import functools
import inspect
import re
import types
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.hooks import hooks_of
from lucid.compiler.inputs.functions import (
    Kept,
    identity_of_function,
    name_of_code,
    with_contents,
)
from lucid.compiler.inputs.objects import (
    BY_VALUE,
    SETS,
    MarkedObject,
    data_of,
    is_set_of_values,
    kind_of_items,
    owners_of,
    text_by_value,
    types_and_items,
    visit_leaves,
    walk,
)
from lucid.compiler.inputs.scalars import is_whole
from lucid.dtypes import get_default_dtype
from lucid.ir.classes import isinstance
from lucid.ir.errors import EagerOnlyError, LucidError
from lucid.ir.extents import LEAST, MOST
from lucid.ir.strides import is_contiguous
from lucid.ir.types import Shape, TensorType
from lucid.runtime.entry.words import LEAF, NO_GRAD, WITH_HISTORY
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, of_array
from lucid.tensor.storage import Storage
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import attributes_beside, fields_of, is_record, items_of, map_tree
from lucid.tensor.writing import made_without_grad, refusal_of_writes

if TYPE_CHECKING:
    from lucid.autograd.host_replay import OpenAxis

Description = dict[str, str]
PlainType = tuple[TensorType, Shape, int, type]
TENSOR = re.compile(r"(\w+)(\[[n\d,]*\])(.*)")  # a tensor in a description: dtype, shape, the rest
_MOVING = re.compile(r"(str|u?int\d*) ")  # a whole number or a text there
_FUNCTION = re.compile(r"the (function|partial) \S.* at ")  # one that a line makes each time
_ENTRY = re.compile(r"\[\d+\](?=[\[.])")  # of a list, in which something stands
MOST_IN_MESSAGES = 4  # changes, or arguments, that a message names
MOVES = 2  # programs for other ints or texts: one more is made for all of their values
MOVES_OF_SIZES = 3  # sizes of an axis: the last of these is one of any
_ARGUMENT = "argument"
LISTS = (list, tuple)
_OFTEN = frozenset((bool, str, type(None)))  # of those that are known by their values
_NOTHING: list[Any] = []
_NO_AXES: Mapping[int, Mapping[int, int]] = types.MappingProxyType({})


class LiveArgument:
    """An int or a text that a step reads at each call, as it does floats; or a list of such."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def what(self) -> tuple[type, type | None]:
        """The argument's class, and the class of its items if it is a list."""
        is_list = type(self.value) in LISTS
        return type(self.value), kind_of_items(self.value) if is_list else None


def live_text(value: Any) -> Any:
    """A place's value as an argument: a text is live, since the step binds another one there."""
    return LiveArgument(value) if type(value) is str else value


def with_live_arguments(
    names: Collection[str],
    kept: Mapping[int, Any],
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with a `LiveArgument` for each int, text and list of these names.

    Others are part of the signature: shapes and branches may depend on them. Each list among those
    that are kept, by its identity, has a `Kept`, and so has a set of these names; a function of
    these names is what it holds. A list that is there twice is a container, which is known as one.
    """
    if not names and not kept:
        return args, kwargs
    known: dict[int, Any] = {}
    places: Counter[int] = Counter()

    def mark(leaf: Any, path: str) -> Any:
        if (attributes := data_of(leaf)) is not None:
            made = known[id(leaf)] = MarkedObject(leaf)
            made.attributes |= {name: within(x, f"{path}.{name}") for name, x in attributes.items()}
            return made
        if type(leaf) is list:
            places[id(leaf)] += 1
        if path not in names:
            return leaf
        if type(leaf) in SETS:
            return Kept(leaf)
        is_live = type(leaf) is str or type(leaf) in LISTS or is_whole(leaf)
        return LiveArgument(leaf) if is_live else with_contents(leaf, path, mark)

    pairs = named_arguments(function, args, kwargs)
    lists = {id(x) for path, x in lists_in(pairs) if path in names and id(x) not in kept}
    within = functools.partial(map_tree, mark, leaves=lists, known=known, is_whole=True)
    while True:
        known |= {key: Kept(found) for key, found in kept.items()}
        marked = [(name, within(x, name)) for name, x in pairs]
        again = {key for key, count in places.items() if count > 1}
        if not again:
            return tuple(x for _, x in marked[: len(args)]), dict(marked[len(args) :])
        lists -= again
        known.clear()
        places.clear()


def lists_in(named: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The lists and tuples of numbers or texts of one class, by the user's expressions."""
    parts = [part for name, x in named for part in walk(x, name, set())]
    return [(path, x) for path, x, _ in parts if type(x) in LISTS and kind_of_items(x)]


def moving_lists(named: Iterable[tuple[str, Any]], earlier: Collection[Description]) -> set[str]:
    """The lists of numbers or texts that had another length in an earlier call.

    With one of a batch, all: the others had the same length by chance.
    """

    def is_other(path: str, size: int, before: Description) -> bool:
        is_there, is_long = f"{path}[0]" in before, f"{path}[{size - 1}]" in before
        return is_there and (f"{path}[{size}]" in before or not is_long)

    lists = lists_in(named)
    found = {path for path, x in lists if any(is_other(path, len(x), y) for y in earlier)}
    places = {_place_in_sample(f"{path}[0]") for path in found} - {None}
    return found | {path for path, _ in lists if _place_in_sample(f"{path}[0]") in places}


def moving_arguments(now: Description, earlier: Iterable[Description]) -> set[str]:
    """The ints, texts and functions in which a call differs from some earlier ones.

    Of ints and texts from two: shapes and branches may depend on them. A function of the same code
    is another one in each call, at once.
    """
    remade: set[str] = set()
    moved: list[set[str]] = []
    for before in earlier:
        alike = {x for x in differences(now, before) if _are_alike(now.get(x), before.get(x))}
        remade |= {path for path in alike if _FUNCTION.match(now[path])}
        moved += [alike - remade] if alike - remade else []
    found = remade.union(*moved) if len(moved) >= MOVES else remade
    places = {_place_in_sample(path) for path in found} - {None}
    return found | {x for x in now if _place_in_sample(x) in places and _MOVING.match(now[x])}


def _place_in_sample(path: str) -> str | None:
    """An argument's path without the index of the sample that it is in: `batch[][1]`.

    So all labels of a batch are live, though in a few calls some of them may have stayed equal.
    None: it is in no list.
    """
    place = _ENTRY.sub("[]", path)
    return None if place == path else place


def axis_of_argument(position: int, axis: int) -> OpenAxis:
    """An axis of a call's tensor, as one whose size may be open."""
    return _ARGUMENT, None, position, axis


def is_of_argument(axis: OpenAxis) -> bool:
    """Whether an axis is one of a call's tensors."""
    return axis[0] is _ARGUMENT


def axes_of_arguments(
    axes: Iterable[OpenAxis], least: Mapping[OpenAxis, int]
) -> dict[int, dict[int, int]]:
    """The axes of a call's tensors among some axes, by tensor, with the least open size of each.

    least: least sizes that differ from the usual one.
    """
    found: dict[int, dict[int, int]] = {}
    for place in sorted(filter(is_of_argument, axes)):
        *_, position, axis = place
        found.setdefault(position, {})[axis] = least.get(place, LEAST)
    return found


def moving_axes(
    now: Sequence[TensorType], earlier: Sequence[Sequence[TensorType]], least: int | None = None
) -> set[OpenAxis]:
    """The axes of a call's tensors that have had other sizes in each of some calls before.

    earlier: the tensors' types of those calls, which may have more or fewer tensors: the common
        beginning counts.
    least: how many sizes an axis must have had; None: the default.
    """
    least = MOVES_OF_SIZES if least is None else least
    moved: set[OpenAxis] = set()
    known = list(earlier)
    for position, type_ in enumerate(now):
        known = [types for types in known if _begins_like(types[position:], type_)]
        for axis, size in enumerate(type_.shape):
            sizes = {size, *(types[position].shape[axis] for types in known)}
            if len(sizes) >= least and LEAST <= size <= MOST:
                moved.add(axis_of_argument(position, axis))
    return moved


def _begins_like(types: Sequence[TensorType], first: TensorType) -> bool:
    return bool(types) and (types[0].dtype, types[0].ndim) == (first.dtype, first.ndim)


def sizes_seen(
    now: Sequence[TensorType], earlier: Sequence[Sequence[TensorType]]
) -> dict[OpenAxis, tuple[int, ...]]:
    """The sizes of all axes of a call's tensors, in it and in earlier ones that begin like it."""
    known = [[(x.dtype, x.ndim) for x in types[: len(now)]] for types in (now, *earlier)]
    alike = [types for types, begin in zip(earlier, known[1:], strict=True) if begin == known[0]]
    return {
        axis_of_argument(position, axis): (size, *[x[position].shape[axis] for x in alike])
        for position, type_ in enumerate(now)
        for axis, size in enumerate(type_.shape)
    }


def _are_alike(text: str | None, before: str | None) -> bool:
    """Whether two values are whole numbers of one kind, texts, or functions of the same code."""
    if text is None or before is None:
        return False
    kind = _FUNCTION.match(text) or _MOVING.match(text)
    begin = text.rpartition(" at ")[0] if _FUNCTION.match(text) else kind and kind[0]
    return bool(begin) and before.startswith(f"{begin}")


class Call:
    """The arguments of one call, flattened, and after them what the step's places hold.

    Args:
        opened: axes of tensors that may have any size from a least one on, by tensor.

    Attributes:
        tensors: tensor arguments; NumPy arrays are among them, as tensors on their memory.
        floats: float arguments, and ints and texts that are read live.
        objects: arguments of other classes; the key holds their identity.
        known: objects of which the key holds the identity alone, by their places in the key.
        kept: the identities of objects in the arguments that are state.
        values: what the places hold; keys: of each, what kind of value that is, as `key` has it.
        given: the arguments as they are; marked: with a `LiveArgument` for each that is read live.
        open_axes: by tensor the axes of open sizes.
    """

    __slots__ = (
        "_arrays",
        "_containers",
        "_counts",
        "_in_places",
        "_opened",
        "_owners",
        "_parts",
        "_storages",
        "_tensors",
        "floats",
        "given",
        "kept",
        "keys",
        "known",
        "marked",
        "objects",
        "open_axes",
        "tensors",
        "values",
    )

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        opened: Mapping[int, Mapping[int, int]] = _NO_AXES,
    ) -> None:
        self._opened = opened
        self.open_axes: dict[int, Sequence[int]] = {}
        self._parts: list[Any] = [context.grad_enabled, get_default_dtype()]
        self._tensors: list[TensorCore] = []
        self.tensors: Sequence[TensorCore] = self._tensors
        self.floats: list[Any] = []
        self.objects: list[Any] = []
        self.kept: set[int] = set()
        self.known: list[tuple[int, Any]] = []
        self._storages: dict[Storage, int] = {}
        self._arrays: dict[int, TensorCore] = {}
        self._counts: tuple[int, ...] = ()
        self.given = self.marked = args, kwargs
        self._owners: list[Any] | None = None
        self._containers: dict[int, int] = {}
        self._in_places = False
        for value in args:
            self._add(value)
        for name, value in kwargs.items():
            self._parts.append(name)
            self._add(value)
        self.values: list[Any] = []
        self.keys: list[tuple[Any, ...]] = []

    def take(self, values: Sequence[Any]) -> None:
        """Add what the places of the step hold to the arguments."""
        if not self._in_places:
            lists = (self._parts, self._tensors, self.floats, self.objects, self._containers)
            self._counts, self._in_places = (*map(len, lists),), True
        _, tensors, floats, objects, containers = self._counts
        del self._tensors[tensors:], self.floats[floats:], self.objects[objects:]
        self._storages = {s: first for s, first in self._storages.items() if first < tensors}
        self._containers = {x: n for x, n in self._containers.items() if n < containers}
        self.open_axes = {x: axes for x, axes in self.open_axes.items() if x < tensors}
        self.values, self.keys = [], []
        for value in values:
            self.take_one(value)

    def take_one(self, value: Any) -> None:
        """Add what one more place holds to the arguments."""
        parts = self._counts[0]
        self._owners = None
        self.values.append(value)
        self._add(live_text(value))
        self.keys.append(tuple(self._parts[parts:]))
        del self._parts[parts:]

    @staticmethod
    def of_tensors(tensors: Sequence[TensorCore]) -> Call:
        """The call of a program that is known to fit: its key is not needed."""
        call = object.__new__(Call)
        call.tensors = tensors
        call._owners = _NOTHING
        call.open_axes = {}
        call.floats = call.objects = call.known = _NOTHING
        call.values = _NOTHING
        return call

    def types(self) -> list[TensorType]:
        """Those of the tensors, in places as well."""
        return [tensor._type for tensor in self.tensors]

    def plain_types(self) -> list[PlainType] | None:
        """What native code compares of each; None if some isn't plain."""
        tensors: Sequence[Any] = self.tensors
        if len(self._storages) != len(tensors) or not all(map(is_plain, tensors)):
            return None
        return types_of(tensors)

    def open_leaves(self) -> dict[int, Collection[int]]:
        """The open axes of tensors and arrays among the arguments, by their identities."""
        arrays = {id(tensor): array for array, tensor in self._arrays.items()}
        pairs = [(id(self.tensors[x]), axes) for x, axes in self.open_axes.items()]
        return {arrays.get(x, x): axes for x, axes in pairs}

    def owners(self) -> list[Any]:
        """The containers and objects in arguments and places, in order; as the call found them."""
        if self._owners is None:
            args, kwargs = self.given
            values = (*args, *kwargs.values(), *self.values)
            found = owners_of([("", value) for value in values], self.kept)
            self._owners = [owner for _, owner in found]
        return self._owners

    def containers(self) -> list[Any]:
        """`owners()`, and the lists that are read live."""
        return [*self.owners(), *(x for x in self.floats if type(x) in LISTS)]

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for calls that the same program may serve."""
        return tuple(self._parts)

    @property
    def key_of_others(self) -> tuple[Any, ...]:
        """Equal for calls that differ in no more than which objects are given that are `known`."""
        parts = [*self._parts]
        for number, _ in self.known:
            parts[number] = None
        return tuple(parts)

    def _add(self, value: Any) -> None:
        kind = type(value)
        if kind is Tensor or isinstance(value, TensorCore):
            self._add_tensor(value)
        elif kind in _OFTEN or (kind is int and not self._in_places):
            self._parts += (kind, value)
        elif kind is tuple or (isinstance(value, tuple) and hasattr(value, "_fields")):
            own = attributes_beside(value)
            self._parts += (kind, len(value), *own)
            for item in (*value, *own.values()):
                self._add(item)
        elif kind is float or isinstance(value, np.floating):
            self._parts.append(kind)
            self.floats.append(value)
        elif kind is LiveArgument or (self._in_places and is_whole(value)):
            live = value if kind is LiveArgument else LiveArgument(value)
            self._parts += (LiveArgument, *live.what)
            self.floats.append(live.value)
            if type(live.value) in LISTS:
                self.kept.add(id(live.value))
        elif kind is slice or kind is range:  # ranges of the same numbers are equal
            self._parts.append((kind, value.start, value.stop, value.step))
        elif isinstance(value, BY_VALUE):
            self._parts += (kind, value)
        elif is_set_of_values(value):
            self._parts += (kind, len(value), *types_and_items(value))
        elif kind is list or kind is deque:
            self._add_owner(value, (len(value), getattr(value, "maxlen", None)), value)
        elif isinstance(value, dict):
            if isinstance(value, defaultdict):
                self._add(value.default_factory)
            own = attributes_beside(value)
            items = [item for _, item in items_of(value)]
            self._add_owner(value, (*value, *own), [*items, *own.values()])
        elif kind is Kept:
            self._parts += (kind, id(value.value))
            self._know(value.value)
            self.kept.add(id(value.value))
        elif isinstance(value, np.ndarray):
            self._parts.append(np.ndarray)
            tensor = self._arrays.get(id(value))
            if tensor is None:
                tensor = self._arrays[id(value)] = _memory_of(value)
            self._add_tensor(tensor)
        elif (text := text_by_value(value)) is not None:
            self._parts += (kind, text)
        elif is_record(value):
            fields = fields_of(value)
            self._add_owner(value, tuple(fields), fields.values())
        elif kind is MarkedObject:
            self._add_owner(value.value, tuple(value.attributes), value.attributes.values())
        elif (attributes := data_of(value)) is not None:
            self._add_owner(value, tuple(attributes), attributes.values())
        else:
            identity = identity_of_function(value)
            self._parts += (kind, *(identity or (id(value),)))
            if identity is None:
                self._know(value)
            else:
                self.objects.append(value)

    def _know(self, value: Any) -> None:
        """Note an object whose identity is the key's latest part."""
        self.objects.append(value)
        if not self._in_places:
            self.known.append((len(self._parts) - 1, value))

    def _add_owner(self, value: Any, shape: tuple[Any, ...], items: Iterable[Any]) -> None:
        """A container or an object; one that is met again is known by its number."""
        self._parts += (type(value), shape)
        number = len(self._containers)
        first = self._containers.setdefault(id(value), number)
        if first != number:
            self._parts.append(("again", first))
            return
        for item in items:
            self._add(item)

    def _open_type(self, number: int, type_: TensorType) -> tuple[object, ...]:
        """What is known of a tensor's type."""
        shape = [*type_.shape]
        opened = self._opened[number].items()
        axes = [x for x, least in opened if x < len(shape) and least <= shape[x] <= MOST]
        for axis in axes:
            shape[axis] = -1
        self.open_axes[number] = axes
        return type_.dtype, *shape

    def _add_tensor(self, tensor: TensorCore) -> None:
        number, array = len(self.tensors), tensor._array
        strides = None
        if array is None or not array.flags.c_contiguous:
            strides = tensor.element_strides()
            strides = None if is_contiguous(tensor._type.shape, strides) else strides
        is_view = tensor._base is not None
        history = _history_of(tensor) if is_view or tensor._grad_fn else tensor._requires_grad
        type_: object = tensor._type
        steps: object = strides
        if number in self._opened and (strides is None or history is False):
            type_ = self._open_type(number, tensor._type)
            steps = strides and _COPIED
        self._parts += (type_, steps, history)
        if type(tensor) is not Tensor:
            self._parts.append(type(tensor))
        if is_view and made_without_grad(tensor):
            self._parts.append("made without grad")
        if tensor._requires_grad and (hooks := hooks_of(tensor)):
            self._parts.append(("hooks", *hooks))
        if self._storages.setdefault(tensor._storage, number) != number:
            same = (i for i, earlier in enumerate(self.tensors) if earlier is tensor)
            self._parts += [("again", i) for i in same][:1]
        self._tensors.append(tensor)


_COPIED = object()  # strides of a tensor of open sizes that a step gets a row-major copy of


def _memory_of(array: np.ndarray) -> TensorCore:
    """A tensor on an array's memory. Raises `EagerOnlyError` where there is none."""
    if type(array) not in (np.ndarray, np.memmap):
        raise EagerOnlyError(f"it is given a {type(array).__name__}, an array of another class")
    try:
        return of_array(array)
    except LucidError as error:
        reason = str(error).partition("\n")[0]
        raise EagerOnlyError(f"it is given an array that no tensor can lie on: {reason}") from None


def types_of(tensors: Sequence[Any]) -> list[PlainType]:
    """Of each tensor the type, strides in bytes, how it requires grad, and the class."""
    return [(x._type, x._array.strides, _grad_of(x), type(x)) for x in tensors]


def _grad_of(tensor: TensorCore) -> int:
    if not tensor._requires_grad:
        return NO_GRAD
    return LEAF if tensor._grad_fn is None else WITH_HISTORY


def is_plain(tensor: TensorCore) -> bool:
    """Whether its type, strides, flag and class say all of a tensor that a program depends on.

    A class that adds no fields, such as `Parameter`, says so by its `__slots__`.
    """
    kind = tensor.__class__
    if (kind is not Tensor and vars(kind).get("__slots__") != ()) or tensor._array is None:
        return False
    base = tensor._base
    if tensor._requires_grad:
        return base is None and tensor._guard is None and not hooks_of(tensor)
    return base is None or not (tensor.requires_grad or base.requires_grad)


def _history_of(tensor: TensorCore) -> bool | str:
    """Whether a tensor requires grad; of a non-leaf, the error that a write to it would raise."""
    if not tensor.requires_grad or tensor._grad_fn is None:
        return tensor._requires_grad
    return refusal_of_writes(tensor) or ""


# ---------------------------------------------------------------------- in the user's words


def name_of(function: Callable[..., Any]) -> str:
    """What messages call it; a Module, or another object that can be called, by its class."""
    return getattr(function, "__name__", type(function).__name__)


def in_order(function: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments in the order of the parameters; those for `**` in the caller's."""
    code = getattr(function, "__code__", None)
    if code is None:
        return kwargs
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    named = {name: kwargs[name] for name in parameters if name in kwargs}
    return {**named, **kwargs}


def named_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """The arguments by what the function calls them."""
    return [*zip(argument_names(function, args), args, strict=True), *kwargs.items()]


def argument_names(function: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    """What the function calls its positional arguments."""
    if type(function) is types.FunctionType and not function.__dict__:  # without `inspect`, at once
        code = function.__code__
        names = [*code.co_varnames[: code.co_argcount]]
        has_more = code.co_flags & inspect.CO_VARARGS
        variadic = code.co_varnames[len(names) + code.co_kwonlyargcount] if has_more else "arg"
    else:
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [p.name for p in parameters if p.kind in kinds]
        variadic = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "arg")
    extra = len(args) - len(names)
    return names[: len(args)] + [f"{variadic}_{i}" for i in range(max(extra, 0))]


def describe(function: Callable[..., Any], call: Call) -> Description:
    """What a call's key says, by the user's name for each part."""
    found: Description = {
        "grad mode": "on" if context.grad_enabled else "off",
        "default dtype": repr(get_default_dtype()),
    }
    seen: dict[int, str] = {}
    opened = call.open_leaves()

    def note(leaf: Any, path: str) -> None:
        found[path] = _described(leaf, path, seen, opened.get(id(leaf), ()))

    for name, value in named_arguments(function, *call.marked):
        visit_leaves(note, value, name)
    return found


def _described(leaf: Any, path: str, seen: dict[int, str], opened: Collection[int]) -> str:
    if isinstance(leaf, np.ndarray):
        sizes = _sizes_of(leaf.shape, opened, ", ")
        steps = "" if opened else f" of strides {leaf.strides}"
        return f"an array {leaf.dtype}[{sizes}]{steps}"
    if isinstance(leaf, TensorCore):
        strides = leaf.element_strides()
        text = f"{leaf._type.dtype.name}[{_sizes_of(leaf._type.shape, opened, ',')}]"
        text += f", a {type(leaf).__name__}" if type(leaf) is not Tensor else ""
        if not is_contiguous(leaf._type.shape, strides):
            text += " that isn't row-major" if opened else f" of strides {strides}"
        if leaf.requires_grad:
            text += " that requires grad" + " and is no leaf" * (leaf._grad_fn is not None)
            hooks = len(hooks_of(leaf))
            if hooks:
                text += f" and has {hooks} hook{'s'[: hooks - 1]}"
        first = seen.setdefault(id(leaf._storage), path)
        return text if first == path else f"{text} on the memory of {first}"
    if type(leaf) is float or isinstance(leaf, np.floating):
        return f"a {type(leaf).__name__}"
    if type(leaf) is LiveArgument:
        kind, item = leaf.what
        if item is not None:
            return f"a {kind.__name__} of any number of {item.__name__}s"
        return f"an {kind.__name__}" if kind.__name__.startswith("int") else f"a {kind.__name__}"
    if isinstance(leaf, (*BY_VALUE, slice)) or is_set_of_values(leaf):
        return f"{type(leaf).__name__} {leaf!r}" if leaf is not None else "None"
    if isinstance(leaf, enum.Enum):
        return f"{type(leaf).__name__}.{leaf._name_}"
    by_value = text_by_value(leaf)
    if by_value is not None:
        return by_value
    leaf = leaf.value if type(leaf) is Kept else leaf
    identity = identity_of_function(leaf)
    at = id(leaf) if identity is None else hash(identity) & (1 << 48) - 1
    code = leaf.__qualname__ if type(leaf) is type else name_of_code(leaf)
    return f"the {type(leaf).__name__} {code}{' ' * bool(code)}at {at:#x}"


def _sizes_of(shape: Shape, opened: Collection[int], separator: str) -> str:
    """The sizes of axes; n for those that are open."""
    return separator.join(["n" if x in opened else str(size) for x, size in enumerate(shape)])


def differences(now: Description, before: Description) -> list[str]:
    """The names of what differs between two calls."""
    return [path for path in {**before, **now} if before.get(path) != now.get(path)]


def changes(now: Description, earlier: Iterable[Description]) -> str:
    """What differs from the most similar earlier call, the latest of these, old -> new."""
    calls = list(earlier)
    nearest = min(reversed(calls), key=lambda before: _distance(now, before))
    found = [
        f"{path}: {nearest.get(path, 'absent')} -> {now.get(path, 'absent')}"
        for path in differences(now, nearest)
    ]
    return in_short("; ", found) or "a new structure of the arguments"


def in_short(separator: str, parts: Sequence[str]) -> str:
    """Some parts of a message; of many the first ones, and how many more there are.

    >>> in_short(", ", ["a", "b", "c", "d", "e", "f"])
    'a, b, c, d and 2 more'
    """
    if len(parts) <= MOST_IN_MESSAGES + 1:
        return separator.join(parts)
    more = len(parts) - MOST_IN_MESSAGES
    return f"{separator.join(parts[:MOST_IN_MESSAGES])} and {more} more"


def _distance(now: Description, before: Description) -> int:
    """In how much two calls differ: of a tensor dtype, shape and the rest count for themselves."""
    count = 0
    for path in differences(now, before):
        one, other = (TENSOR.fullmatch(x.get(path, "")) for x in (now, before))
        parts = zip(one.groups(), other.groups(), strict=True) if one and other else ((0, 1),)
        count += sum(x != y for x, y in parts)
    return count
