"""Docstrings that follow from another's: a variant's, and a module's from its function.

What is the same is written once. Whoever asks for help, or runs doctests, finds the whole text.
What a parameter means in all functions of a file, or of a folder, its docstring says in `Args:`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Collection
from functools import cache
from types import FunctionType
from typing import Any, TypeVar

T = TypeVar("T", bound=Callable[..., Any])

_HEADING = re.compile(r"(?:^|\n\n)(Inputs|Shapes|Attributes|Args|Returns|Raises):\n(?= )")
_SAID = re.compile(r"\n +([*\w, ]+):")
_ENTRY = re.compile(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*):", re.MULTILINE)
_CALLED = re.compile(r"(?<!def )\b\w+(?=\()")


def like(other: Callable[..., Any], axes: int = 1, **renamed: str) -> Callable[[T], T]:
    """Fill the docstring of a function or class with what it doesn't say itself, from another's.

    Summary, prose below it and whole sections are taken over where there is none, and from `Args:`
    the entries of parameters that it has. An example names it.

    Args:
        other: the function or class with the full docstring.
        axes: how many axes it is about, where `other` is about one: 2 for `pool2d` like `pool1d`.
        **renamed: what stands for a word of the other's there.

    >>> from lucid.docstrings import like
    >>> def total(input):
    ...     '''Add.
    ...
    ...     Args:
    ...         input: the numbers.
    ...     '''
    >>> @like(total)
    ... def mean(input):
    ...     "Add and divide."
    >>> print(mean.__doc__)
    Add and divide.
    <BLANKLINE>
    Args:
        input: the numbers.
    """

    def fill(value: T) -> T:
        def filled(own: str) -> str:
            theirs = inspect.cleandoc(described(other).__doc__ or "")
            for word, instead in renamed.items():
                theirs = re.sub(rf"\b{word}\b", instead, theirs)
            parts = _sections(over(theirs, axes))
            names = {other.__name__: value.__name__}
            parts[_EXAMPLES] = _CALLED.sub(lambda x: names.get(x[0], x[0]), parts[_EXAMPLES])
            return _filled(inspect.cleandoc(own), _joined(parts), _parameters(value))

        return _say(value, filled)

    return fill


class _Late:
    """The docstring of a class, which is made when somebody first asks for it."""

    def __init__(self, make: Callable[[], str]) -> None:
        self.make = make

    def __get__(self, instance: object, cls: type) -> str:
        cls.__doc__ = text = self.make()
        return text


def _say(value: T, text: Callable[[str], str]) -> T:
    """Give a docstring another text, of a class when somebody asks for it; return what it is of.

    So who imports modules doesn't wait for those of all classes.
    """
    own: Any = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    if isinstance(value, type):
        late: Any = _Late(lambda: text((own.make() if isinstance(own, _Late) else own) or ""))
        value.__doc__ = late
    else:
        value.__doc__ = text(own or "") or own
    return value


def maps(*operands: str) -> Callable[[T], T]:
    """Let a docstring end with an example: the function's operands, and last what it makes of them.

    A text that begins with a bracket is the elements of a tensor, row below row.

    >>> from lucid.docstrings import maps
    >>> @maps("[1.0, 4.0]", "2", "[3.0, 6.0]")
    ... def add(input, other):
    ...     "Add."
    >>> add.__doc__.splitlines()[2:]
    ['>>> lucid.add(lucid.tensor([1.0, 4.0]), 2)', 'tensor([3.0, 6.0])']
    """

    def complete(function: T) -> T:
        *texts, result = operands
        given = ", ".join(f"lucid.tensor({text})" if text[0] == "[" else text for text in texts)
        if result[0] == "[":
            margin = len("tensor") + len(result) - len(result.lstrip("["))
            result = f"tensor({result})".replace("], [", "],\n" + " " * margin + "[")
        name, home = f"{function.__name__}({given})", function.__module__
        home = "F" if home.startswith("lucid.nn.") else home if home == "lucid.linalg" else "lucid"
        return ending(function, f">>> {home}.{name}", *result.splitlines())

    return complete


def ending(value: T, *lines: str) -> T:
    """Let a docstring end with the lines of an example, and return what it describes."""

    def ended(own: str) -> str:
        own = inspect.cleandoc(own)
        gap = [] if own.rpartition("\n\n")[2].startswith(">>>") else [""]
        return "\n".join([own, *gap, *lines])

    return _say(value, ended)


def described(value: T) -> T:
    """Describe the parameters that a docstring leaves out as its module's or package's has them.

    So are errors: those of `Raises:` there that name one of the parameters, and whose class the
    docstring doesn't name. A docstring of one line stays as it is.
    """
    shared, errors = _shared(value.__module__)
    if value in _described or not (shared or errors):
        return value
    _described.add(value)
    _say(value, lambda own: _described_text(value, own) if "\n" in own else own)
    return value


def _described_text(value: Callable[..., Any], own: str) -> str:
    """A docstring with what it leaves out."""
    shared, errors = _shared(value.__module__)
    parameters = dict.fromkeys(_names(value))
    said_of = {word for names in _SAID.findall(own) for word in re.findall(r"\w+", names)}
    raised = [
        f"    {error}: {said}"
        for error, said in errors.items()
        if error not in said_of and not parameters.keys().isdisjoint(re.findall(r"`(\w+)`", said))
    ]
    if not raised and not (shared.keys() & parameters) - said_of:
        return own
    entries = [f"    {name}:{shared[name]}" for name in shared.keys() & parameters]
    parts = _sections(inspect.cleandoc(own))
    parts["Raises"] = "\n".join([parts.get("Raises", "").rstrip(), *raised]).lstrip("\n")
    return _filled(_joined(parts), "Args:\n" + "\n".join(entries), [*parameters])


_described: set[Callable[..., Any]] = set()
_signature = cache(inspect.signature)


def _names(value: Callable[..., Any]) -> list[str]:
    """Names of the parameters, in order.

    Of a function its code has them: to ask for the signatures of all takes a tenth of an import.
    """
    function = inspect.unwrap(value, stop=lambda x: hasattr(x, "__signature__"))
    if type(function) is not FunctionType or hasattr(function, "__signature__"):
        return [*_signature(value).parameters]
    code = function.__code__
    first, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names, flags = code.co_varnames, code.co_flags
    packed = bool(flags & inspect.CO_VARARGS)
    more = names[last + packed :][: bool(flags & inspect.CO_VARKEYWORDS)]
    return [*names[:first], *names[last : last + packed], *names[first:last], *more]


@cache
def _shared(module: str) -> tuple[dict[str, str], dict[str, str]]:
    """What the docstrings of a package and of a module of it say of parameters, and of errors."""
    entries: dict[str, str] = {}
    errors: dict[str, str] = {}
    for name in (module.rpartition(".")[0], module):
        parts = _sections(inspect.cleandoc(getattr(sys.modules.get(name), "__doc__", "") or ""))
        entries |= _entries(parts.get("Args", ""))
        errors |= dict(re.findall(r"^    (\w+): (.*)", parts.get("Raises", ""), re.MULTILINE))
    return entries, errors


def say_as(function: Callable[..., Any], cls: Any) -> None:
    """Fill the docstring of a module that calls a function with its settings, from the function's.

    What the module is called with stands in `Inputs:`, and the examples make the module first.
    """

    def filled(own: str) -> str:
        own, full = (inspect.cleandoc(text) for text in (own, described(function).__doc__ or ""))
        forward: Any = cls.__dict__.get("forward") or inspect.getattr_static(cls, "forward")
        settings, operands, parts = _parameters(cls), _parameters(forward), _sections(full)
        parts["Inputs"] = _chosen(_entries(parts.get("Args", "")), operands)
        absent = {*_parameters(function)} - {*settings, *operands}
        raised = re.split(r"\n(?=    \S)", parts.get("Raises", ""))
        parts["Raises"] = "\n".join(r for r in raised if not absent & {*re.findall(r"`(\w+)`", r)})
        if not _sections(own)[_EXAMPLES]:
            parts[_EXAMPLES] = _of_module(parts[_EXAMPLES], cls, function, operands)
        return _filled(own, _joined(parts), settings)

    _say(cls, filled)


def show(value: Any, shown: Callable[..., Any]) -> None:
    """Let a docstring end with the example of another's: of a result's type, its function's."""
    examples = _sections(inspect.cleandoc(shown.__doc__ or ""))[_EXAMPLES]
    own = _sections(inspect.cleandoc(value.__doc__ or ""))
    value.__doc__ = _joined({**own, _EXAMPLES: examples})


def over(text: str, axes: int) -> str:
    """What is said of one axis, of several; in examples they are as long as the one.

    Args:
        text: a docstring.
        axes: how many, up to 3.

    >>> from lucid.docstrings import over
    >>> over("Pool along the last axis of (n, c, l), as `unpool1d`.", 2)
    'Pool over the last two axes of (n, c, h, w), as `unpool2d`.'
    """
    if axes == 1:
        return text
    count, letters = {2: ("two", "h, w"), 3: ("three", "d, h, w")}[axes]
    text = re.sub(r"(?<=\w)1d(?=_|\b)", f"{axes}d", text)
    text = text.replace("along the last axis", f"over the last {count} axes")
    text = text.replace("the last axis", f"the last {count} axes").replace(", l)", f", {letters})")
    text = text.replace(
        ", k)", ", " + ", ".join(f"k{letter}" for letter in letters.split(", ")) + ")"
    )
    shape = r"((?:lucid\.\w+\(|Size\(\[)(?:\d+, )*)(\d+)(?=[\])])"
    return re.sub(shape, lambda found: found[1] + ", ".join([found[2]] * axes), text)


def _parameters(value: Callable[..., Any]) -> list[str]:
    return [name for name in _names(value) if name != "self"]


def _filled(own: str, other: str, parameters: Collection[str]) -> str:
    mine, theirs = _sections(own), _sections(other)
    entries = {**_entries(theirs.get("Args", "")), **_entries(mine.get("Args", ""))}
    summary, _, prose = theirs[""].partition("\n\n")
    summary, _, own_prose = (mine[""] or summary).partition("\n\n")
    both = {**theirs, **mine, "Args": _chosen(entries, parameters)}
    both[_EXAMPLES] = mine[_EXAMPLES] or theirs[_EXAMPLES]
    both[""] = f"{summary}\n\n{own_prose or prose}".strip()
    return _joined(both)


_EXAMPLES = ">>>"
_ORDER = ("", "Inputs", "Shapes", "Attributes", "Args", "Returns", "Raises", _EXAMPLES)


def _sections(doc: str) -> dict[str, str]:
    """The text below each heading; before the first one it is under "", at the end the examples."""
    said, begins, examples = f"\n\n{doc}".partition("\n\n>>> ")
    parts = _HEADING.split(said[2:])
    found = {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}
    return {**found, _EXAMPLES: begins.lstrip() + examples}


def _joined(parts: dict[str, str]) -> str:
    texts = [
        text if name in ("", _EXAMPLES) else f"{name}:\n{text}"
        for name in _ORDER
        if (text := parts.get(name))
    ]
    return "\n\n".join(text.rstrip() for text in texts)


def _entries(text: str) -> dict[str, str]:
    """The description of each name in `Args:`."""
    parts = _ENTRY.split(text)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return {name.strip(): said.rstrip() for names, said in pairs for name in names.split(",")}


def _chosen(entries: dict[str, str], names: Collection[str]) -> str:
    """The entries of these parameters; neighbours that are said to be the same share one."""
    lines: list[tuple[str, str]] = []
    known = {name.lstrip("*"): (name, said) for name, said in entries.items()}
    for name, said in [known[each] for each in names if each in known]:
        if lines and lines[-1][1] == said:
            name = f"{lines.pop()[0]}, {name}"
        lines.append((name, said))
    return "\n".join(f"    {name}:{said}" for name, said in lines)


def _of_module(text: str, cls: type, function: Callable[..., Any], operands: list[str]) -> str:
    """The examples of a function as those of a module: `F.elu(x, 0.5)` is `nn.ELU(0.5)(x)`."""
    import doctest  # with pdb and unittest: only who asks for help waits for these

    found: list[str] = []
    for example in doctest.DocTestParser().get_examples(text):
        lines = _made_first(example.source.rstrip(), cls, function, operands).splitlines()
        found += [f"{'...' if i else '>>>'} {line}" for i, line in enumerate(lines)]
        found += example.want.splitlines()
    return "\n".join(found)


def _made_first(source: str, cls: type, function: Callable[..., Any], operands: list[str]) -> str:
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    mine = [node for node in calls if _last_name(node.func) == function.__name__]
    for node in mine:
        _make_first(node, cls, function, operands)
    return ast.unparse(tree).replace("'", '"') if mine else source


def _make_first(
    node: ast.Call, cls: type, function: Callable[..., Any], operands: list[str]
) -> None:
    keywords = {str(each.arg): each.value for each in node.keywords}
    bound = _signature(function).bind(*node.args, **keywords)
    bound.apply_defaults()
    given = {*[*bound.arguments][: len(node.args)], *keywords}
    made: ast.expr = ast.Call(ast.parse(f"nn.{cls.__name__}", mode="eval").body, [], [])
    assert isinstance(made, ast.Call)
    in_order = True
    for parameter in _signature(cls).parameters.values():
        name = parameter.name
        in_order &= name in given and parameter.kind is not parameter.KEYWORD_ONLY
        if in_order:
            made.args.append(bound.arguments[name])
        elif name in given:
            made.keywords.append(ast.keyword(name, bound.arguments[name]))
    training = bound.arguments.get("training")
    if training is False or (isinstance(training, ast.Constant) and not training.value):
        made = ast.Call(ast.Attribute(made, "eval", ast.Load()), [], [])
    node.func = made
    node.args = [bound.arguments[name] for name in operands if name in given]
    node.keywords = []


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
