"""Which module an error comes from: its path from the variable that the user has called."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lucid.ir.errors import LucidError, TraceError
from lucid.ir.location import user_frame

if TYPE_CHECKING:
    from lucid.nn.modules.module import Module


def note_module(error: Exception, module: Module) -> None:
    """Let the message say that the error has left a call of `module`; inner modules come first.

    The operands that are the module's own get their names: `"net.3.weight"`.
    """
    if not isinstance(error, LucidError) or isinstance(error, TraceError):
        return
    kept = error.__dict__
    called = kept.setdefault("_modules", [])
    called.append(module)
    text = kept.setdefault("_outside_of_modules", str(error))
    path = ".".join([_variable(module), *_steps(called[::-1])])
    inner = called[0]
    problem, hint, remedy = text.partition("\nhint: ")
    problem = _with_names(problem, path, inner, kept.get("_operands", {}))
    kind = type(inner).__name__
    place = path if path == kind else f"{path} ({kind})"
    error.args = (f"{problem}\n  in {place}{hint}{remedy}",)


def _variable(module: Module) -> str:
    """What the user's line calls a module: a local, an attribute of `self`, a global."""
    frame = user_frame()
    if frame is not None:
        names = frame.f_locals
        itself = getattr(names.get("self"), "__dict__", {})
        own = itself | itself.get("_modules", {}) if type(itself) is dict else {}
        for prefix, scope in (("", names), ("self.", own), ("", frame.f_globals)):
            for name, value in scope.items():
                if value is module and name != "_":
                    return f"{prefix}{name}"
    return type(module).__name__


def _steps(called: list[Module]) -> Iterator[str]:
    """The names of modules in each other, from the outermost."""
    for outer, inner in pairwise(called):
        names = (name for name, module in outer.named_modules() if module is inner)
        yield next(names, type(inner).__name__)


def _with_names(text: str, path: str, module: Module, operands: dict[str, Any]) -> str:
    named = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
    lines = text.split("\n")
    for name, tensor in operands.items():
        own = next((key for key, value in named if value is tensor), None)
        for i, line in enumerate(lines):
            if own is not None and line.startswith(f"  {name}:"):
                kind = str(tensor._type)
                lines[i] = line.replace(kind, f'{kind}  "{path}.{own}"', 1)
    return "\n".join(lines)
