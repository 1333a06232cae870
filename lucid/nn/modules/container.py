"""Modules that hold modules or parameters."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, ClassVar, Self, SupportsIndex, overload

from lucid.choices import check_kind
from lucid.compiler.recording import hooks as trace_hooks
from lucid.device import device
from lucid.functions.arguments import integer
from lucid.ir.errors import ArgumentError, IndexOutOfRangeError
from lucid.nn import tracing
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter
from lucid.tensor.tensor import Tensor

__all__ = [
    "DataParallel", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential",
]  # fmt: skip


_Entries = Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]


def _position(index: SupportsIndex, length: int) -> int:
    """The non-negative position of an index. Raises `IndexOutOfRangeError`."""
    position = integer(index, "modules[index]", "index")
    if not -length <= position < length:
        raise IndexOutOfRangeError(f"index {position} is out of range")
    return position % length


class _Holding(Module):
    """What it holds, modules or parameters, by name."""

    _place: ClassVar = "_modules"

    def _held(self) -> dict[str, Any]:
        """What it holds; a trace that reads it depends on all of that."""
        if trace_hooks.is_tracing():
            tracing.meet(self, tracing.path_of(self))
        return self._registered(self._place)

    def _items(self) -> list[Any]:
        return list(self._held().values())

    def __len__(self) -> int:
        return len(self._held())


class _Sliced(_Holding):
    """Under the names "0", "1", …; a slice is a list of its own."""

    @overload
    def __getitem__(self, index: slice) -> Self: ...
    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, slice):
            return self._part(index)
        items = self._items()
        return items[_position(index, len(items))]

    def _part(self, index: slice) -> Self:
        return type(self)(self._items()[index])  # type: ignore[call-arg]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items())


class _Listed(_Sliced):
    """Submodules under the names "0", "1", …"""

    def _replace_all(self, modules: Iterable[Any]) -> None:
        self._modules.clear()
        tracing.note_change()
        for index, module in enumerate(modules):
            self.add_module(str(index), module)

    def __setitem__(self, index: SupportsIndex, module: Module) -> None:
        self.add_module(list(self._modules)[_position(index, len(self._modules))], module)

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        kept = list(self._modules.values())
        del kept[index if isinstance(index, slice) else _position(index, len(kept))]
        self._replace_all(kept)

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self._modules)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Add a module before a position; those after it move up by one."""
        items = list(self._modules.values())
        items.insert(index, module)
        self._replace_all(items)
        return self

    def pop(self, index: SupportsIndex = -1) -> Any:
        """Remove a module and return it."""
        module = self._items()[_position(index, len(self._modules))]
        del self[index]
        return module


class Sequential(_Listed):
    """Calls its modules one after the other; made of modules, or of a dict of them by name.

    It can be indexed, sliced, and appended to.

    Args:
        *args: modules, in their order, or one dict of them.

    Raises:
        ArgumentError: something that isn't a module.

    >>> nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))(lucid.ones(5, 3)).shape
    lucid.Size([5, 2])
    """

    def __init__(self, *args: Module | Mapping[str, Module]) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
            return
        for index, item in enumerate(args):
            if not isinstance(item, Module):
                raise ArgumentError(f"{item.__class__.__name__} is not a Module subclass")
            self.add_module(str(index), item)

    def _part(self, index: slice) -> Self:
        return type(self)(dict(list(self._modules.items())[index]))  # type: ignore[arg-type]

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        names = list(self._modules)
        for name in names[index] if isinstance(index, slice) else [names[operator.index(index)]]:
            del self._modules[name]
        if all(name.isdigit() for name in names):
            self._replace_all(list(self._modules.values()))
        tracing.note_change()

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *other)

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input


class ModuleList(_Listed):
    """A list of modules; it has no `forward`.

    Its parameters are those of the module that has it, which those of a plain list are not.

    Args:
        modules: what it holds at first. None for nothing.

    >>> len(nn.ModuleList([nn.Linear(3, 3) for _ in range(4)]))
    4
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def _parts(self) -> Iterator[tuple[str, str]]:
        """Equal neighbours are said once."""
        first = 0
        for text, equal in groupby(map(repr, self._items())):
            last = first + len([*equal]) - 1
            yield (
                (str(first), text)
                if first == last
                else (f"{first}-{last}", f"{last - first + 1} x {text}")
            )
            first = last + 1


class _Keyed(_Holding):
    """Under names that the user gives."""

    def __getitem__(self, key: str) -> Any:
        return self._held()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held())

    def __contains__(self, key: object) -> bool:
        return key in self._held()

    def __delitem__(self, key: str) -> None:
        del getattr(self, self._place)[key]
        tracing.note_change()

    def pop(self, key: str) -> Any:
        """Remove what has this name and return it."""
        value = self[key]
        del self[key]
        return value

    def clear(self) -> None:
        """Remove all."""
        for key in list(self):
            del self[key]

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._held().keys()

    def values(self) -> Iterable[Any]:
        """What it holds."""
        return self._held().values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Pairs of a name and what it stands for."""
        return self._held().items()


class ModuleDict(_Keyed):
    """A dict of modules; it has no `forward`.

    Its parameters are those of the module that has it, which those of a plain dict are not.

    Args:
        modules: what it holds at first. None for nothing.

    >>> nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.ReLU()})["b"]
    ReLU()
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add or replace modules."""
        for key, module in dict(modules).items():
            self.add_module(key, module)


class _Shown(_Holding):
    """Parameters, which `repr` lists."""

    _place = "_parameters"

    def extra_repr(self) -> str:
        return "\n".join(
            f"({name}): Parameter containing: [{value._type}]"
            for name, value in self._parameters.items()
            if value is not None
        )


class ParameterList(_Shown, _Sliced):
    """A list of parameters; tensors that are added become parameters.

    Args:
        values: what it holds at first. None for nothing.

    >>> len(nn.ParameterList([lucid.ones(2), lucid.zeros(3)]))
    2
    """

    def __init__(self, values: Iterable[Tensor] | None = None) -> None:
        super().__init__()
        self.extend(values or ())

    def __setitem__(self, index: SupportsIndex, value: Tensor) -> None:
        position = _position(index, len(self._parameters))
        self.register_parameter(str(position), _as_parameter(value))

    def append(self, value: Tensor) -> Self:
        """Add a parameter at the end."""
        self.register_parameter(str(len(self._parameters)), _as_parameter(value))
        return self

    def extend(self, values: Iterable[Tensor]) -> Self:
        """Add parameters at the end."""
        for value in values:
            self.append(value)
        return self

    def __iadd__(self, values: Iterable[Tensor]) -> Self:
        return self.extend(values)


class ParameterDict(_Shown, _Keyed):
    """A dict of parameters; tensors that are added become parameters.

    Those of a plain dict are added in the order of their names, as PyTorch does; those of an
    `OrderedDict`, another `ParameterDict` or of pairs in the order that they have.

    Args:
        parameters: what it holds at first. None for nothing.

    >>> list(nn.ParameterDict({"b": lucid.ones(2), "a": lucid.ones(3)}))
    ['a', 'b']
    """

    def __init__(self, parameters: _Entries | ParameterDict | None = None) -> None:
        super().__init__()
        self.update(() if parameters is None else parameters)

    def __setitem__(self, key: str, value: Tensor) -> None:
        self.register_parameter(key, _as_parameter(value))

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._held())

    def __or__(self, other: ParameterDict) -> ParameterDict:
        copy = self.copy()
        copy.update(other)
        return copy

    def __ior__(self, other: ParameterDict) -> Self:
        self.update(other)
        return self

    def update(self, parameters: _Entries | ParameterDict) -> None:
        """Add or replace parameters."""
        pairs = list(dict(parameters).items())
        is_ordered = isinstance(parameters, (OrderedDict, ParameterDict))
        if isinstance(parameters, Mapping) and not is_ordered:
            pairs.sort(key=operator.itemgetter(0))
        for key, value in pairs:
            self[key] = value

    def copy(self) -> ParameterDict:
        """Another dict of the same parameters."""
        return ParameterDict(self.items())

    @classmethod
    def fromkeys(cls, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new dict with one parameter under all these names."""
        return cls((key, default) for key in keys)

    def get(self, key: str, default: Any = None) -> Any:
        """The parameter of a name, or `default` where there is none."""
        return self._held().get(key, default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The parameter of a name, which is added where there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def popitem(self) -> tuple[str, Any]:
        """Remove the last name and its parameter, and return both."""
        key = next(reversed(self))
        return key, self.pop(key)


def _as_parameter(value: Tensor) -> Parameter:
    return value if isinstance(value, Parameter) else Parameter(value)


class DataParallel(Module):
    """A module behind the name `module`, as PyTorch's is without a GPU.

    Args:
        module: what is called.
        device_ids: numbers of GPUs, of which there are none, as a list; or None.
        output_device: the number of one, or None.
        dim: the axis along which GPUs would share a batch.

    Raises:
        ArgumentError: an argument of another type.

    >>> nn.DataParallel(nn.Linear(3, 2))(lucid.ones(1, 3)).shape
    lucid.Size([1, 2])
    """

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        check_kind(module, Module, "module", "DataParallel")
        check_kind(device_ids, (list, tuple), "device_ids", "DataParallel")
        check_kind(output_device, (int, str, device), "output_device", "DataParallel")
        check_kind(dim, int, "dim", "DataParallel")
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)
