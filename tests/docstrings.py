"""Which public names have no complete docstring: `python tests/docstrings.py [NAMESPACE]`.

Without a namespace it prints how many each has, with one what each name lacks. Complete means:

* a summary that is a sentence, and prose, `Args:` and examples aside, of some words;
* each parameter described, in `Args:`, as `name: text` or `name, other: text`;
* each exception that the function's own text raises, named after `Raises`;
* an example with `>>>`, at the end and without a heading, that uses the name and shows what comes
  of it; doctests run it.

Methods, in-place variants and other names of a function show its text, so it is written once.
"""

from __future__ import annotations

import ast
import doctest
import enum
import importlib
import inspect
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import lucid

LEAST_PROSE = 8  # words
LEAST_DESCRIPTION = 2
# Namespaces that no `__all__` leads to, and classes whose methods are names of their own.
BESIDES = ("lucid.ir", "lucid.ir.passes", "lucid.autograd.forward_ad", "lucid.autograd.functional")
CLASSES = (
    "lucid.Tensor",
    "lucid.Generator",
    "lucid.autograd.Function",
    "lucid.autograd.function.FunctionCtx",
    "lucid.compiler.Compiled",
    "lucid.compiler.Stats",
    "lucid.distributions.Distribution",
    "lucid.nn.Module",
    "lucid.optim.Optimizer",
)
# Methods without an underscore that the library's other folders call, and users don't.
INTERNAL = {
    "lucid.compiler.Compiled": {"call_natively"},
    "lucid.compiler.Stats": {"add_call", "served"},
    "lucid.nn.Module": {"walk"},
    "lucid.optim.Optimizer": {"guard", "is_known_unused", "layout", "trace_name"},
}
SECTIONS = ("Args", "Attributes", "Raises", "Reference", "Returns", "Shapes")
_HEADING = re.compile(rf"^({'|'.join(SECTIONS)}):\s*$")
_ENTRY = re.compile(r"^(\s+)((?:\*{0,2}\w+)(?:, \*{0,2}\w+)*)(?: \([^)]*\))?:(.*)$")


def namespaces() -> dict[str, list[str]]:
    """The public names of each public namespace: what `__all__` leads to from `lucid`."""
    found: dict[str, list[str]] = {}
    pending = ["lucid", *BESIDES]
    while pending:
        place = pending.pop()
        module = importlib.import_module(place)
        names = getattr(module, "__all__", None)
        if names is None:
            names = [name for name in vars(module) if _is_public(module, name)]
        found[place] = sorted(set(names))
        for name in names:
            value = getattr(module, name)
            inner = f"{place}.{name}"
            if isinstance(value, ModuleType) and value.__name__ == inner and inner not in found:
                pending.append(inner)
    for place in CLASSES:
        members = inspect.getmembers_static(owner_of(place))
        internal = INTERNAL.get(place, set())
        found[place] = [n for n, _ in members if not n.startswith("_") and n not in internal]
    return dict(sorted(found.items()))


def _is_public(module: ModuleType, name: str) -> bool:
    """Of a module without `__all__`: what it, or a module of its own, defines."""
    home = getattr(getattr(module, name), "__module__", None) or ""
    return not name.startswith("_") and f"{home}.".startswith(f"{module.__name__}.")


def owner_of(place: str) -> Any:
    """The module or class of that name."""
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError:
        module, _, name = place.rpartition(".")
        return getattr(owner_of(module), name)


def lacks(name: str, value: Any) -> list[str]:
    """What the docstring of a function, class or property lacks; nothing for other values."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, property):
        return [] if value.fget is None else _lacks_text(_doc(value), LEAST_PROSE // 2)
    if isinstance(value, type) and issubclass(value, (BaseException, enum.Enum)):
        return _lacks_text(_doc(value), LEAST_PROSE)
    if not inspect.isroutine(value) and not isinstance(value, type):
        return []
    doc = _doc(value)
    wrong = _lacks_text(doc, LEAST_PROSE)
    described = _described(doc)
    wrong += [f"no {each} in Args" for each in _parameters(value) if each not in described]
    wrong += [f"no Raises of {kind}" for kind in sorted(_raised(value)) if not _says(doc, kind)]
    names = {name, name.rstrip("_"), name.removeprefix("linalg_")}  # of a result its function's
    if not _shows(doc, {*names, getattr(inspect.unwrap(value), "__name__", name)}):
        wrong.append("no example that uses it and shows a result")
    return wrong


def _doc(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "")


def _sections(doc: str) -> dict[str, list[str]]:
    """Lines by section; those before the first heading, and after one at the margin, under ""."""
    found: dict[str, list[str]] = {"": []}
    current = ""
    for line in doc.splitlines():
        heading = _HEADING.match(line)
        if heading:
            current = heading[1]
        elif line.startswith(">>> ") or current == "examples":
            current = "examples"  # to the end
        elif line and not line.startswith(" "):
            current = ""
        if not heading:
            found.setdefault(current, []).append(line)
    return found


def _lacks_text(doc: str, least: int) -> list[str]:
    summary = doc.split("\n\n", 1)[0].strip()
    wrong = [] if re.search(r"\w.*[.:?!]$", summary, re.DOTALL) else ["no summary"]
    sections = _sections(doc)
    lines = [line for name in ("", "Returns", "Shapes") for line in sections.get(name, [])]
    wrong += ["a heading before the example"] * bool(re.search(r"^Examples?:$", doc, re.MULTILINE))
    return wrong + ([] if len(_words(lines)) >= least else ["too little said"])


def _words(lines: list[str]) -> set[str]:
    return set(re.findall(r"[^\W\d_]{2,}", " ".join(lines).lower()))


def _described(doc: str) -> set[str]:
    """The parameters with a description, which may go on at deeper indented lines."""
    entries: list[tuple[list[str], list[str]]] = []
    sections = _sections(doc)
    for line in sections.get("Args", []) + sections.get("Attributes", []):
        entry = _ENTRY.match(line)
        indent = len(line) - len(line.lstrip())
        if entry and indent <= 4:
            entries.append((entry[2].split(", "), [entry[3]]))
        elif entries:
            entries[-1][1].append(line)
    return {
        name.lstrip("*")
        for names, text in entries
        if len(re.findall(r"[\w.]+", " ".join(text))) >= LEAST_DESCRIPTION
        for name in names
    }


def _parameters(value: Any) -> list[str]:
    """The names of the parameters, but for what a method is called on and `out`."""
    try:
        names = [p.name for p in inspect.signature(value).parameters.values()]
    except (TypeError, ValueError):
        return []
    is_bound = isinstance(value, type)
    if not is_bound and names and names[0] in ("self", "cls", "ctx"):
        names = names[1:]
    return [name for name in names if name != "out" and not name.startswith("_")]


def _raised(value: Any) -> set[str]:
    """The classes that the function itself raises, or a class's constructor."""
    if isinstance(value, type):
        value = vars(value).get("__init__")
    value = inspect.unwrap(value) if callable(value) else None
    return set() if not isinstance(value, FunctionType) else set(_raised_by(value))


@cache
def _raised_by(function: FunctionType) -> tuple[str, ...]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except OSError:  # made by a decorator, such as the constructor of a dataclass
        return ()
    found = []
    pending: list[ast.AST] = [*ast.iter_child_nodes(tree.body[0])]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            kind = ast.unparse(node.exc.func).rpartition(".")[2]
            if kind[0].isupper() and kind not in ("NotImplementedError", "StopIteration"):
                found.append(kind)
        pending.extend(ast.iter_child_nodes(node))
    return tuple(found)


def _says(doc: str, kind: str) -> bool:
    return re.search(rf"\bRaises\b.*\b{kind}\b", doc, re.DOTALL) is not None


def _shows(doc: str, names: set[str]) -> bool:
    examples = doctest.DocTestParser().get_examples(doc)
    source = "".join(example.source for example in examples)
    uses = any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", source) for name in names)
    return uses and any(example.want.strip() for example in examples)


def incomplete(place: str, names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The names of a namespace whose docstrings aren't complete, and what they lack."""
    owner = owner_of(place)
    get = inspect.getattr_static if isinstance(owner, type) else getattr
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            wrong = lacks(name, get(owner, name))
            if wrong:
                yield name, wrong


def counts() -> dict[str, int]:
    """How many names of each namespace have no complete docstring."""
    return {place: len([*incomplete(place, names)]) for place, names in namespaces().items()}


if __name__ == "__main__":
    assert lucid.__doc__
    for wanted in sys.argv[1:]:
        for name, wrong in incomplete(wanted, namespaces()[wanted]):
            print(f"{wanted}.{name}: {'; '.join(wrong)}")
    if not sys.argv[1:]:
        for place, count in counts().items():
            print(f"{count:5} {place}")
