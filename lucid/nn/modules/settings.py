"""Modules that are a function with settings: a class declares these, and has all else from both.

    @settings_of(F.softplus)
    class Softplus(UnaryModule):
        beta: float = 1.0
        threshold: float = 20.0

The constructor keeps the settings as attributes, and `forward` hands them to the function. A type
checker sees a dataclass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, dataclass_transform

from lucid import docstrings
from lucid.functions.border import recorded
from lucid.nn.modules.module import Module
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor

M = TypeVar("M", bound="FunctionModule")
N = TypeVar("N", bound=Module)


class FunctionModule(Module):
    """A module that calls a function with what it was made with."""

    _handed: ClassVar[tuple[str, ...]]  # what of the module the function takes, by its name there

    def _result(self, *operands: Any, **named: Any) -> Tensor:
        """What the function gives for these operands and the settings; made for each class."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        if self._shown:
            return super().extra_repr()
        given = [name for name in self._handed if name not in ("inplace", "training")]
        shown = [f"{name}={getattr(self, name)!r}" for name in given]
        return ", ".join(shown + ["inplace=True"] * getattr(self, "inplace", False))


class UnaryModule(FunctionModule):
    """One that is called with a tensor."""

    def forward(self, input: Tensor) -> Tensor:
        return self._result(input)


class OfRank(Module):
    """A module about one, two or three axes, as its class says: `class Conv2d(_Direct, rank=2)`.

    One that is `like` another has its docstring, about as many axes. Of a family that says which
    function is called, up to the one of three axes, each has all from its own.
    """

    rank: ClassVar[int]
    _functions: ClassVar[Sequence[Callable[..., Any]]] = ()

    def __init_subclass__(cls, rank: int = 0, like: type | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if rank:
            cls.rank = rank
        if rank and cls._functions:
            family: Any = cls
            calling(cls._functions[rank - 4])(family)
        if like is not None:
            docstrings.like(like, axes=cls.rank)(cls)


@dataclass_transform(eq_default=False)
def settings(cls: type[N]) -> type[N]:
    """Let a class's annotations declare what its constructor takes, as those of a dataclass do.

    A setting that may be a tensor is a buffer, the others are attributes; `__post_init__` checks
    them, and gets each `InitVar`.
    """
    if "__init__" not in vars(cls) and inspect.get_annotations(cls):
        setattr(cls, "__init__", _constructor(cls))  # noqa: B010
    return cls


@dataclass_transform(eq_default=False)
def settings_of(function: Callable[..., Any]) -> Callable[[type[M]], type[M]]:
    """Let a class's annotations declare the settings with which its function is called."""
    return lambda cls: calling(function)(settings(cls))


def calling(function: Callable[..., Any]) -> Callable[[type[M]], type[M]]:
    """Let a class that has a constructor call its function with what it was made with."""

    def complete(cls: type[M]) -> type[M]:
        made_with = inspect.signature(cls).parameters
        taken = inspect.signature(function).parameters
        cls._handed = tuple(name for name in taken if name in made_with or name == "training")
        setattr(cls, "_result", _calling(cls, function))  # noqa: B010
        docstrings.say_as(function, cls)
        return cls

    return complete


def _calling(cls: type[FunctionModule], function: Callable[..., Any]) -> Callable[..., Any]:
    """`return elu(*operands, alpha=live_attribute(self, "alpha"), inplace=self.inplace)`."""
    floats = {n for n, p in inspect.signature(cls).parameters.items() if p.annotation == "float"}
    given = [
        f"{name}=live_attribute(self, {name!r})" if name in floats else f"{name}=self.{name}"
        for name in cls._handed
    ]
    given = ["*operands", "**named", *given]
    text = f"def _result(self, *operands, **named):\n    return function({', '.join(given)})"
    return _made(text, cls, {"function": recorded(function), "live_attribute": live_attribute})


def _constructor(cls: type) -> Callable[..., None]:
    """`def __init__(self, beta: float = 1.0)`, as the annotations of the class say.

    Those of a base that declares settings come first.
    """
    first = [c for c in cls.__mro__ if c is cls or "_declared" in vars(c)][-1]
    declared = dict(getattr(cls, "_declared", {}))
    parameters, body, given = ["self"], ["super(first, self).__init__()"], []
    names: dict[str, Any] = {"first": first}
    for name, kind in inspect.get_annotations(cls).items():
        declared[name] = kind, vars(cls).get(name, inspect.Parameter.empty)
        if name in vars(cls):
            delattr(cls, name)
    cls._declared = declared  # type: ignore[attr-defined]
    for name, (kind, default) in declared.items():
        if kind == "KW_ONLY":
            parameters.append("*")
            continue
        if kind.startswith("ClassVar"):
            continue
        is_given = kind.startswith("InitVar[")
        parameters.append(f"{name}: {kind[8:-1] if is_given else kind}")
        if default is not inspect.Parameter.empty:
            parameters[-1] += f" = _{name}"
            names[f"_{name}"] = default
        if is_given:
            given.append(name)
        elif kind == "Tensor | None":
            body.append(f"self.register_buffer({name!r}, {name})")
        else:
            body.append(f"self.{name} = {name}")
    if hasattr(cls, "__post_init__"):
        body.append(f"self.__post_init__({', '.join(given)})")
    text = f"def __init__({', '.join(parameters)}) -> None:\n    " + "\n    ".join(body)
    return _made(text, cls, names)


def _made(text: str, cls: type, names: dict[str, Any]) -> Callable[..., Any]:
    """The function of that text, as one of the class's."""
    exec(compile(text, __file__, "exec"), names)
    made: Callable[..., Any] = [*names.values()][-1]
    made.__module__, made.__qualname__ = cls.__module__, f"{cls.__qualname__}.{made.__name__}"
    return made
