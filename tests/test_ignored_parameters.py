"""Nothing that is accepted is ignored: each parameter of a public function is read by its code.

A parameter is read where its value reaches an expression that isn't just a binding. It is ignored
where it is deleted, put into a local that nobody reads, rebound after a look at itself, handed to a
function of the library's that ignores it, kept in an attribute or in a dict of settings that no
code of the class reads, or where of `**kwargs` some entries alone are looked up. Code that can't be
followed counts as reading.
"""

from __future__ import annotations

import ast
import enum
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import docstrings
import pytest

import lucid
from lucid.optim.hyper_parameters import FLAGS, hyper_parameters

# Parameters that have no effect by what they mean, each with the reason.
_IS_OFF = "a scaler that is off does nothing, by definition"
_NO_GROUP = "PyTorch's, of what raises whatever it is given"
_DEPRECATED = "what it is a parameter of is deprecated, and warns"
IGNORED = {
    "lucid.amp.GradScaler.load_state_dict(state_dict)": _IS_OFF,
    "lucid.amp.GradScaler.unscale_(optimizer)": _IS_OFF,
    "lucid.amp.GradScaler.update(new_scale)": _IS_OFF,
    "lucid.autograd.function.Function.__init__(args)": _DEPRECATED,
    "lucid.autograd.function.Function.__init__(kwargs)": _DEPRECATED,
    "lucid.autograd.function.FunctionCtx.mark_shared_storage(pairs)": _DEPRECATED,
    "lucid.autograd.function.InplaceFunction.__init__(inplace)": "an attribute for who makes one",
    **{
        f"lucid.distributed.{name}({part})": _NO_GROUP
        for name in (
            *("DistributedDataParallel.__init__", "destroy_process_group"),
            *("get_rank", "get_world_size"),
        )
        for part in ("args", "kwargs")
    },
    "lucid.jit.annotate(the_type)": "a mark of the type for TorchScript",
    "lucid.nn.modules.lazy._LazyConvolution.initialize_parameters(_)": "of `forward`",
    "lucid.nn.modules.linear.Identity.__init__(args)": "it stands for modules of any arguments",
    "lucid.nn.modules.linear.Identity.__init__(kwargs)": "it stands for modules of any arguments",
    "lucid.nn.utils.prune.BasePruningMethod.__call__(inputs)": "of hooks before `forward`",
}
_PROTOCOL = ("__init__", "__new__", "__call__")
_SHOWING = ("__repr__", "__str__", "extra_repr", "__getstate__", "__setstate__", "__reduce__")
_UNKNOWN = object()


# -------------------------------------------------------------------- the public functions


def public_functions() -> dict[str, tuple[FunctionType, type | None]]:
    """The functions that users call, by a name, with the class of which they are methods."""
    found: dict[tuple[FunctionType, type | None], str] = {}
    for place, names in docstrings.namespaces().items():
        owner = docstrings.owner_of(place)
        is_class = isinstance(owner, type)
        for name in names:
            value = inspect.getattr_static(owner, name) if is_class else getattr(owner, name)
            for text, function, cls in _functions_of(f"{place}.{name}", value, owner):
                found.setdefault((function, cls), text)
    return {text: key for key, text in sorted(found.items(), key=lambda item: item[1])}


def _functions_of(text: str, value: Any, owner: Any) -> Iterator[tuple[str, FunctionType, Any]]:
    if isinstance(value, type):
        if issubclass(value, (BaseException, enum.Enum)):
            return
        for name, member in inspect.getmembers_static(value):
            if name in _PROTOCOL or not name.startswith("_"):
                function = _plain(member)
                if function is not None:
                    home = next(c for c in value.__mro__ if name in vars(c))
                    if _is_librarys(home):
                        yield f"{home.__module__}.{home.__name__}.{name}", function, home
        return
    function = _plain(value)
    if function is not None and function.__module__.partition(".")[0] == "lucid":
        yield text, function, owner if isinstance(owner, type) else None


def _plain(value: Any) -> FunctionType | None:
    """The function that the user wrote, without decorators."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if not callable(value):
        return None
    value = inspect.unwrap(value)
    return value if type(value) is FunctionType else None


def _is_librarys(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "lucid"


# -------------------------------------------------------------------- what a function reads


def ignored(function: FunctionType, cls: type | None) -> list[str]:
    """The parameters of a function that none of its code reads."""
    names = list(_signature(function).parameters)
    tree = _tree(function)
    if tree is None or _only_refuses(tree):
        return []
    if names and cls is not None and _is_bound(function.__name__, cls):
        names = names[1:]
    read = _read(function, cls)
    return [
        name
        for place, name in enumerate(names)
        if name not in read and not (cls and _belongs_to_a_protocol(function, cls, place, name))
    ]


def _signature(function: FunctionType) -> inspect.Signature:
    """What its code takes, where the signature that it shows spells `**options` out."""
    plain = FunctionType(function.__code__, {}, closure=function.__closure__)
    plain.__defaults__, plain.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return inspect.signature(plain)


def _belongs_to_a_protocol(function: FunctionType, cls: type, place: int, name: str) -> bool:
    """Whether a class must take it: `__new__` and `__init__` get the same, as do overrides.

    It is enough that one of those methods reads the parameter at that place.
    """
    if function.__name__ in ("__init__", "__new__"):
        other = "__new__" if function.__name__ == "__init__" else "__init__"
        sisters = [vars(cls).get(other)]
    else:
        bases = [base for base in cls.__mro__[1:] if function.__name__ in vars(base)]
        family = [*bases, *(each for base in bases for each in _below(base))]
        sisters = [vars(each).get(function.__name__) for each in family if each is not cls]
    for sister in map(_plain, filter(None, sisters)):
        if sister is None or sister is function or (tree := _tree(sister)) is None:
            continue
        names = list(_signature(sister).parameters)[1:]
        same = name in names or place < len(names)
        read = _read(sister, cls)
        if same and not _only_refuses(tree) and (name if name in names else names[place]) in read:
            return True
    return False


def _is_bound(name: str, cls: type) -> bool:
    return name == "__new__" or not isinstance(vars(cls).get(name), staticmethod)


@lru_cache(maxsize=64)
def _tree(function: FunctionType) -> ast.FunctionDef | ast.Lambda | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, IndentationError):  # made by a decorator, as a dataclass's
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function.__code__.co_name:
            return node
    return None


def _only_refuses(tree: ast.FunctionDef | ast.Lambda) -> bool:
    """Whether a body is `raise` alone, as of a method that subclasses define."""
    if isinstance(tree, ast.Lambda):
        return False
    body = [node for node in tree.body if not _is_text(node)]
    return bool(body) and all(isinstance(node, ast.Raise) for node in body)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


_running: set[Any] = set()


@cache
def _read(function: FunctionType, cls: type | None) -> frozenset[str]:
    """The names of a function, locals included, whose values reach more than a binding."""
    tree = _tree(function)
    assert tree is not None
    reader = _Reader(function, cls)
    for node in tree.body if isinstance(tree, ast.FunctionDef) else [tree.body]:
        reader.visit(node)
    return frozenset(reader.read_names())


class _Reader(ast.NodeVisitor):
    """Collects which names reach an expression that counts, and which reach only other names."""

    def __init__(self, function: FunctionType, cls: type | None) -> None:
        self.function, self.cls = function, cls
        self.places = {**function.__globals__, **_cells(function)}
        kinds = _signature(function).parameters.values()
        self.rest = next((p.name for p in kinds if p.kind is p.VAR_KEYWORD), "")
        self.reaches: dict[str, set[str]] = {}  # name -> names that get its value
        self.read: set[str] = set()
        self.targets: list[set[str]] = []

    def read_names(self) -> set[str]:
        found, grown = set(self.read), True
        while grown:
            more = {name for name, others in self.reaches.items() if others & found} - found
            found |= more
            grown = bool(more)
        return found

    def _flow(self, value: ast.AST, targets: set[str]) -> None:
        """Visit an expression whose value goes into locals and nowhere else."""
        self.targets.append(targets)
        self.visit(value)
        self.targets.pop()

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            return
        if self.targets and self.targets[-1] is not None:
            for target in self.targets[-1] - {node.id}:
                self.reaches.setdefault(node.id, set()).add(target)
        else:
            self.read.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        targets: set[str] = set()
        for target in node.targets:
            names = _bound(target)
            if names is None:
                if (kept := _attribute_of_self(target)) is not None:
                    if _is_attribute_read(kept, self.cls):
                        names = {_READ}
                    else:
                        names = set()
                else:
                    self.visit(target)
                    names = {_READ}
            targets |= names
        if (
            isinstance(node.value, ast.Tuple)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Tuple)
            and len(node.value.elts) == len(node.targets[0].elts)
        ):
            for target, value in zip(node.targets[0].elts, node.value.elts, strict=True):
                self.visit_Assign(ast.Assign([target], value))
            return
        self._flow_or_read(node.value, targets)

    def _flow_or_read(self, value: ast.AST, targets: set[str]) -> None:
        self.read.add(_READ)
        self._flow(value, targets - {"_"})

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit_Assign(ast.Assign([node.target], node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit_Assign(ast.Assign([node.target], node.value))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Name):
                self.visit(target)

    def visit_If(self, node: ast.If) -> None:
        body = [*node.body, *node.orelse]
        if all(isinstance(each, ast.Assign) for each in body):
            bound = [_bound(target) for each in body for target in each.targets]
            if None not in bound:
                self._flow(node.test, set().union(*bound))
                for each in body:
                    self.visit(each)
                return
        self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._inner(node, [node.body])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._inner(node, node.body)

    def _inner(self, node: ast.FunctionDef | ast.Lambda, body: list[Any]) -> None:
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        own = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        inner = _Reader(self.function, self.cls)
        for each in body:
            inner.visit(each)
        self.read |= inner.read_names() - own

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Name):
            self.visit(node.value)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None:
                self.visit(key)
            if not isinstance(key, ast.Constant) or self._is_entry_read(key.value):
                self.visit(value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not (_is_name(node.value, self.rest) and isinstance(node.ctx, ast.Load)):
            self.visit(node.value)
        self.visit(node.slice)

    def visit_Call(self, node: ast.Call) -> None:
        if (
            isinstance(node.func, ast.Attribute)
            and _is_name(node.func.value, self.rest)
            and node.func.attr in ("get", "pop", "setdefault")
        ):
            for argument in node.args:
                self.visit(argument)
            return
        if _is_name(node.func, "locals"):  # `hyper_parameters` takes all settings from there
            names = inspect.signature(self.function).parameters
            self.read |= {key for key in names if key in FLAGS or self._is_entry_read(key)}
        callee = self._callee(node.func)
        if callee is dict:
            for keyword in node.keywords:
                if keyword.arg is None or self._is_entry_read(keyword.arg):
                    self.visit(keyword.value)
            for argument in node.args:
                self.visit(argument)
            return
        takes = _Taken(callee) if isinstance(callee, tuple) else None
        if takes is None:
            self.generic_visit(node)
            return
        self.visit(node.func)
        for position, argument in enumerate(node.args):
            if isinstance(argument, ast.Starred) or takes.reads_position(position):
                self.visit(argument)
        for keyword in node.keywords:
            if keyword.arg is None:
                if takes.reads_others([k.arg for k in node.keywords]):
                    self.visit(keyword.value)
            elif takes.reads(keyword.arg):
                self.visit(keyword.value)

    def _is_entry_read(self, key: Any) -> bool:
        """Whether an optimizer's setting is looked up; entries of other dicts count as read."""
        is_setting = self.cls is not None and issubclass(self.cls, lucid.optim.Optimizer)
        return not is_setting or key in _uses()[2]

    def _callee(self, node: ast.expr) -> Any:
        """The library's function that a call certainly reaches, with its class and its shift."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
            inner = node.value
            if _is_name(inner.func, "super") and self.cls:
                return _method(self.cls.__mro__[1:], node.attr)
        if isinstance(node, ast.Attribute) and _is_name(node.value, "self") and self.cls:
            return _method(self.cls.__mro__, node.attr)
        value = self._value(node)
        if value is dict:
            return dict
        if isinstance(value, type) and _is_librarys(value):
            if "__new__" in vars(value) or type(value) is not type:
                return None
            return _method(value.__mro__, "__init__")
        if value is _UNKNOWN:
            return None
        function = _plain(value)
        if function is None:
            return None
        is_known = function.__module__.partition(".")[0] == "lucid"
        return (function, None, 0) if is_known or function.__module__ == __name__ else None

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            if node.id in self.function.__code__.co_varnames:
                return _UNKNOWN
            builtin = dict if node.id == "dict" else _UNKNOWN
            return self.places.get(node.id, builtin)
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value)
            if isinstance(owner, ModuleType):
                return getattr(owner, node.attr, _UNKNOWN)
        return _UNKNOWN


_READ = "a place that is read"


class _Taken:
    """Which arguments a function reads."""

    def __init__(self, callee: tuple[FunctionType, type | None, int]) -> None:
        self.function, self.cls, self.shift = callee
        parameters = _signature(self.function).parameters
        self.parameters = list(parameters.values())[self.shift :]
        self.ignored = _ignored_or_running(self.function, self.cls)

    def reads_position(self, position: int) -> bool:
        if position < len(self.parameters):
            return self.parameters[position].name not in self.ignored
        return True

    def reads(self, name: str) -> bool:
        if name in {parameter.name for parameter in self.parameters}:
            return name not in self.ignored
        rest = [p.name for p in self.parameters if p.kind is p.VAR_KEYWORD]
        return not rest or rest[0] not in self.ignored

    def reads_others(self, given: list[str | None]) -> bool:
        rest = [p for p in self.parameters if p.kind is not p.VAR_POSITIONAL]
        return any(p.name not in self.ignored for p in rest if p.name not in given)


def _ignored_or_running(function: FunctionType, cls: type | None) -> set[str]:
    key = (function, cls)
    if key in _running:  # a function that calls itself: what it reads is found elsewhere in it
        return set()
    _running.add(key)
    try:
        return set(ignored(function, cls))
    finally:
        _running.discard(key)


def _method(classes: tuple[type, ...], name: str) -> Any:
    for cls in classes:
        if name in vars(cls):
            value = vars(cls)[name]
            function = _plain(value) if _is_librarys(cls) else None
            if function is None or isinstance(value, property):
                return None
            return (function, cls, 0 if isinstance(value, staticmethod) else 1)
    return None


def _cells(function: FunctionType) -> dict[str, Any]:
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not yet bound
            found[name] = _UNKNOWN
    return found


def _bound(target: ast.expr) -> set[str] | None:
    """The names that an assignment binds; None: it writes elsewhere."""
    if isinstance(target, ast.Name):
        return {target.id}
    if isinstance(target, (ast.Tuple, ast.List)):
        parts = [_bound(part) for part in target.elts]
        return None if None in parts else set().union(*parts)
    if isinstance(target, ast.Starred):
        return _bound(target.value)
    return None


def _attribute_of_self(target: ast.expr) -> str | None:
    if isinstance(target, ast.Attribute) and _is_name(target.value, "self", "ctx"):
        return target.attr
    return None


def _is_name(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


# -------------------------------------------------------------------- what the library reads


@cache
def _uses() -> tuple[dict[str, set[str]], set[str], set[Any]]:
    """Attributes read of `self`, by class; those read of something else anywhere; and entries.

    No tree is kept: the objects of all would be three times those of all other tests, for the
    collector to go over.
    """
    own: dict[str, set[str]] = {}
    others: set[str] = set()
    entries: set[Any] = set()
    for path in Path(lucid.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        _find_attributes(tree, "", own, others)
        entries |= set(_entries(tree))
    return own, others, entries


def _find_attributes(node: ast.AST, cls: str, own: dict[str, set[str]], others: set[str]) -> None:
    if isinstance(node, ast.ClassDef):
        cls = node.name
    if isinstance(node, ast.FunctionDef) and node.name in _SHOWING:
        return
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        is_own = _is_name(node.value, "self", "ctx")
        (own.setdefault(cls, set()) if is_own else others).add(node.attr)
    if isinstance(node, ast.Call) and len(node.args) > 1:  # getattr(self, "name")
        name = node.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            is_own = _is_name(node.args[0], "self")
            (own.setdefault(cls, set()) if is_own else others).add(name.value)
    for child in ast.iter_child_nodes(node):
        _find_attributes(child, cls, own, others)


def _is_attribute_read(name: str, cls: type | None) -> bool:
    own, others, _ = _uses()
    if name in others or cls is None:
        return True
    kin = [*cls.__mro__, *_below(cls)]
    handed = (getattr(each, "_handed", ()) for each in kin)  # what a Module hands its function
    return any(name in own.get(each.__name__, ()) for each in kin) or any(name in x for x in handed)


def _below(cls: type) -> Iterator[type]:
    for each in type.__subclasses__(cls):
        yield each
        yield from _below(each)


def _entries(tree: ast.Module) -> Iterator[Any]:
    """The constants with which the library looks entries up."""
    for node in ast.walk(tree):
        key: Any = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            key = node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            key = node.args[0] if node.func.attr in ("get", "pop", "raw", "is_nonzero") else None
        if isinstance(key, ast.Constant):
            yield key.value


# -------------------------------------------------------------------- the tests


FUNCTIONS = public_functions()


@pytest.mark.parametrize("place", sorted({text.rpartition(".")[0] for text in FUNCTIONS}))
def test_no_parameter_is_ignored(place: str) -> None:
    found = {
        f"{text}({name})"
        for text, key in FUNCTIONS.items()
        if text.rpartition(".")[0] == place
        for name in ignored(*key)
    }
    assert found - set(IGNORED) == set()


def test_what_is_listed_as_ignored_is() -> None:
    found = {f"{text}({name})" for text, key in FUNCTIONS.items() for name in ignored(*key)}
    assert set(IGNORED) <= found


# Each of the following reads `first` alone.


def _deleting(first: Any, second: Any) -> Any:
    del second
    return first


def _binding(first: Any, second: Any) -> Any:
    _ = second
    unused = second, first  # noqa: F841
    return first


def _side_effects(first: Any, second: Any = None) -> Any:
    if second is None:
        second = 3
    return first


def _handing_on(first: Any, second: Any) -> Any:
    return _deleting(first, second=second)


def _swallowing(first: Any, *second: Any) -> Any:
    return (lambda second: second)(first)


def _looking_up(first: Any, **second: Any) -> Any:
    return first, second.get("known"), second["other"]


class _Keeping:
    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.never_read_again = first, second

    def __repr__(self) -> str:
        return f"{self.never_read_again}"

    def shown(self) -> Any:
        return self.first


class _Settings(lucid.optim.Optimizer):
    def __init__(self, first: Any, second: Any) -> None:
        super().__init__(first, {"never looked up": second})


class _Declared(lucid.optim.Optimizer):
    def __init__(self, params: Any, second: Any, lr: Any = 0.1, foreach: Any = None) -> None:
        super().__init__(params, hyper_parameters(locals()))


@pytest.mark.parametrize(
    "function",
    [_deleting, _binding, _side_effects, _handing_on, _swallowing, _looking_up],
)
def test_a_parameter_that_is_ignored_is_found(function: Any) -> None:
    assert ignored(function, None) == ["second"]


@pytest.mark.parametrize("cls", [_Keeping, _Settings, _Declared])
def test_one_that_is_kept_where_nobody_reads_is_found(cls: type) -> None:
    assert ignored(vars(cls)["__init__"], cls) == ["second"]


def test_what_is_read_in_some_way_is_not() -> None:
    def reading(a: Any, b: Any, c: Any, d: Any, *e: Any, **f: Any) -> Any:
        kept = (a, b)
        if c:
            raise ValueError
        return [kept for _ in d], lambda: e, _deleting(f, None)

    assert ignored(reading, None) == []
