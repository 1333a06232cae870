"""Attributes that a host forward sets on its ctx, for a backward that is recorded.

What backward reads there must be what the forward of the same call set. An argument is known; so is
what the source of forward shows to depend on nothing but arguments that can't change, and shapes.
Tensors and arrays become results of the host call. All else is withheld: a backward that reads it
becomes a host call as well.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.function import BackwardCFunction, Function
from lucid.autograd.host_reading import Evaluated
from lucid.compiler.inputs.scalars import is_live
from lucid.ir.errors import DTypeError
from lucid.ir.types import DType, type_of_array
from lucid.tensor.core import TensorCore
from lucid.tensor.size import Size

if TYPE_CHECKING:
    from collections.abc import Callable

_OWN = frozenset(vars(BackwardCFunction())) | {
    *BackwardCFunction.__annotations__,
    *BackwardCFunction.__mro__[1].__annotations__,
    "_metadata",
}
_PLAIN = (bool, int, float, str, bytes, type(None), DType, slice)
# What is read of a tensor and says nothing of its elements.
_SHAPE_ATTRIBUTES = frozenset({"shape", "ndim", "dtype", "requires_grad", "device"})
_SHAPE_METHODS = frozenset({"size", "dim", "numel", "nelement", "ndimension"})
_FUNCTIONS = frozenset({"len", "int", "float", "bool", "str", "tuple", "min", "max", "abs"})


def attributes_of(ctx: BackwardCFunction) -> dict[str, Any]:
    """What the user set on a ctx."""
    return {name: value for name, value in vars(ctx).items() if name not in _OWN}


@dataclass(slots=True)
class Attributes:
    """What the backward finds on ctx.

    Attributes:
        known: values in the trace: constants and arguments.
        constants: those that each call must set again; it is checked.
        shown: names of those that hold tensors or arrays.
        withheld: names of the others.
    """

    known: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)
    withheld: set[str] = field(default_factory=set)


def sort_attributes(
    found: Evaluated, inputs: Sequence[Any], keywords: Mapping[str, Any]
) -> Attributes:
    """Sort what one evaluation of a forward set.

    Args:
        inputs, keywords: the arguments of `apply`, as the trace has them.
    """
    result = Attributes()
    values = attributes_of(found.ctx)
    sources = _sources(found.ctx._forward_cls, inputs, keywords) if values else {}
    shapes = {tuple(x.shape) for x in found.tensors if isinstance(x, TensorCore)}
    for name, value in values.items():
        source = sources.get(name)
        given = [i for i, x in enumerate(found.inputs) if x is value]
        is_size = isinstance(value, Size) and tuple(value) in shapes
        if source is not None and _is_argument(value, source.argument, bool(given)):
            assert source.argument is not None
            result.known[name] = source.argument[0]
        elif is_size or (source is not None and source.argument is None and _is_plain(value)):
            result.known[name] = result.constants[name] = value
        elif given and not isinstance(value, (*_PLAIN, tuple, frozenset)):
            result.known[name] = inputs[given[0]]  # numbers that are equal may be one object
        elif _is_typed(value):
            result.shown.append(name)
        else:
            result.withheld.add(name)
    return result


def _is_argument(value: Any, argument: list[Any] | None, is_given: bool) -> bool:
    """Whether forward has set what the source says that it sets."""
    if argument is None:
        return False
    expected = argument[0]
    if is_live(expected):
        return type(value) is float
    return is_given or (_is_plain(expected) and type(value) is type(expected) and value == expected)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN) and not is_live(value)


def _is_typed(value: Any) -> bool:
    """Whether a value is a tensor or array that can be a result of a host call."""
    if isinstance(value, TensorCore):
        return not getattr(value, "is_sparse", False)
    if type(value) is not np.ndarray:
        return False
    try:
        type_of_array(value)
    except DTypeError:
        return False
    return True


# What the source says ------------------------------------------------------------------------


@dataclass(slots=True)
class _Source:
    """What an attribute is set from.

    Attributes:
        argument: it is just this one, in a list of its own; None: it is computed from such.
    """

    argument: list[Any] | None = None


class _Impure(Exception):  # noqa: N818 - a finding, not an error
    """An expression may depend on the elements of a tensor, or on something else that changes."""


def _sources(
    function: type[Function], inputs: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, _Source]:
    """The attributes that depend on nothing that changes from call to call."""
    two_methods = function.setup_context is not Function.setup_context
    method: Callable[..., Any] = function.setup_context if two_methods else function.forward
    node = _definition(method)
    if node is None:
        return {}
    if not _FUNCTIONS.isdisjoint(getattr(inspect.unwrap(method), "__globals__", _FUNCTIONS)):
        return {}  # they mean something else there
    names = [parameter.arg for parameter in (*node.args.posonlyargs, *node.args.args)]
    if not names:
        return {}
    given: dict[str, Any] = {}
    if not two_methods:
        parameters = inspect.signature(method).parameters.values()
        given = {p.name: p.default for p in parameters if p.default is not p.empty}
        given |= dict(zip(names[1:], inputs, strict=False)) | dict(keywords)
        if node.args.vararg is not None:
            given[node.args.vararg.arg] = tuple(inputs[len(names) - 1 :])
    elif len(names) > 1:
        given = {names[1]: tuple(inputs)}
    return _Reading(node, names[0], given).found


def _definition(method: Callable[..., Any]) -> ast.FunctionDef | None:
    try:
        lines = textwrap.dedent(inspect.getsource(inspect.unwrap(method)))
        (node,) = ast.parse(lines).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    return node if isinstance(node, ast.FunctionDef) else None


class _Reading:
    """Goes through the statements of a method that always run, once each, in order.

    Args:
        ctx: what it calls its ctx.
        given: the arguments by its names for them.
    """

    def __init__(self, node: ast.FunctionDef, ctx: str, given: Mapping[str, Any]) -> None:
        self._ctx = ctx
        self._stored = _stored(node)
        self._values = {n: [x] for n, x in given.items() if self._stored.get(n, 0) == 0}
        self._pure: set[str] = set()
        self.found: dict[str, _Source] = {}
        if any(isinstance(x, (ast.Global, ast.Nonlocal)) for x in ast.walk(node)):
            return
        if not _FUNCTIONS.isdisjoint(self._stored) or _is_handed_on(node, ctx):
            return
        for statement in node.body:
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    self._assign(target, statement.value)
            elif any(isinstance(part, ast.Return) for part in ast.walk(statement)):
                return  # what follows doesn't always run

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            arguments = self._argument(value)
            known = arguments is not None and isinstance(arguments[0], tuple)
            for position, part in enumerate(target.elts):
                if arguments is not None and known and position < len(arguments[0]):
                    self._note(part, [arguments[0][position]], pure=False)
                elif not isinstance(part, ast.Starred):
                    self._note(part, None, self._is_pure(value))
            return
        self._note(target, self._argument(value), self._is_pure(value))

    def _note(self, target: ast.expr, argument: list[Any] | None, pure: bool) -> None:
        if isinstance(target, ast.Name):
            if self._stored[target.id] == 1:
                if argument is not None:
                    self._values[target.id] = argument
                elif pure:
                    self._pure.add(target.id)
        elif isinstance(target, ast.Attribute) and self._is_ctx(target.value):
            is_known = pure or argument is not None
            if is_known and self._stored[f"ctx.{target.attr}"] == 1:
                self.found[target.attr] = _Source(argument)

    def _is_ctx(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self._ctx

    def _argument(self, node: ast.expr) -> list[Any] | None:
        """The argument that an expression is, itself."""
        if isinstance(node, ast.Name):
            return self._values.get(node.id)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            whole, index = self._argument(node.value), node.slice.value
            if whole is not None and type(whole[0]) is tuple and type(index) is int:
                return [whole[0][index]] if -len(whole[0]) <= index < len(whole[0]) else None
        return None

    def _is_pure(self, node: ast.expr) -> bool:
        try:
            self._require_pure(node)
        except _Impure:
            return False
        return True

    def _require_pure(self, node: ast.expr) -> None:
        """Raise unless the value follows from constants, plain arguments and shapes."""
        argument = self._argument(node)
        if argument is not None:
            if not _is_plain(argument[0]):
                raise _Impure
        elif isinstance(node, ast.Name):
            if node.id not in self._pure:
                raise _Impure
        elif not isinstance(node, ast.Constant) and not self._is_of_shape(node):
            for part in _parts(node):
                self._require_pure(part)

    def _is_of_shape(self, node: ast.expr) -> bool:
        """Whether it is `x.shape`, `x.size(0)`, `len(x)` of an argument; arguments are pure."""
        place: ast.expr | None = None
        if isinstance(node, ast.Attribute) and node.attr in _SHAPE_ATTRIBUTES:
            place = node.value
        elif isinstance(node, ast.Call) and not node.keywords:
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr in _SHAPE_METHODS:
                place = function.value
                for part in node.args:
                    self._require_pure(part)
            elif isinstance(function, ast.Name) and function.id == "len" and len(node.args) == 1:
                place = node.args[0]
        argument = None if place is None else self._argument(place)
        return argument is not None and isinstance(argument[0], (TensorCore, tuple, str))


def _is_handed_on(node: ast.FunctionDef, ctx: str) -> bool:
    """Whether somebody else may set attributes: a function that gets ctx, or another name of it."""
    uses = sum(isinstance(part, ast.Name) and part.id == ctx for part in ast.walk(node))
    own = [
        part
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Name)
        and part.value.id == ctx
    ]
    return len(own) != uses or any(part.attr.startswith("__") for part in own)


def _parts(node: ast.expr) -> list[ast.expr]:
    """The operands of an expression that computes with nothing else. Raises `_Impure`."""
    if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.IfExp, ast.Tuple, ast.Slice)):
        return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Subscript):
        return [node.value, node.slice]
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
        raise _Impure
    if node.func.id not in _FUNCTIONS:
        raise _Impure
    return node.args


def _stored(node: ast.FunctionDef) -> dict[str, int]:
    """How often each name is bound, and each attribute, by its last name as `ctx.name`."""
    counts: dict[str, int] = {}
    for name in _bindings(node):
        counts[name] = counts.get(name, 0) + 1
    return counts


def _bindings(node: ast.FunctionDef) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            yield part.id
        elif isinstance(part, ast.Attribute) and not isinstance(part.ctx, ast.Load):
            yield f"ctx.{part.attr}"
        elif isinstance(part, (ast.FunctionDef, ast.ClassDef)) and part is not node:
            yield part.name
        elif isinstance(part, ast.alias):
            yield (part.asname or part.name).partition(".")[0]
        elif isinstance(part, ast.ExceptHandler) and part.name:
            yield part.name
