"""Make the site's pages in `build/docs`: `make docs` runs this, then MkDocs.

Pages stand in `docs/*.md`. A line `<!-- generated: NAME -->` in one is replaced by what the
function `NAME` of this file returns, and `<!-- file: PATH -->` by that file as a block of code. The
reference has a page for each public namespace, made of docstrings.
"""

from __future__ import annotations

import inspect
import json
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lucid.ir.environment import VARIABLES
from lucid.ir.op import OPS, Trait

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "tests"))
from docstrings import namespaces, owner_of  # noqa: E402 - a module of the tests' folder

_INCLUDED = re.compile(r"^<!-- (generated|file): ([\w./]+) -->$", re.MULTILINE)
_HEADING = re.compile(r"^([A-Z][\w ]*):\s*(.*)$")
REPOSITORY = ("CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md")


def variables() -> str:
    """Every environment variable, as `lucid/ir/environment.py` declares it."""
    parts = []
    for each in VARIABLES:
        parts.append(
            f"## `{each.name}`\n\n{each.meaning[0].upper()}{each.meaning[1:]}.\n\n"
            f"- values: {each.values}\n- default: {each.default}\n"
        )
    return "\n".join(parts)


def ops() -> str:
    """The table of ops by kind, as they are declared."""
    lines = ["| op | kind | traits | derivative | vmap |", "|---|---|---|---|---|"]
    for op in sorted(OPS.values(), key=lambda op: (op.kind, op.name)):
        traits = ", ".join(sorted(trait.name.lower() for trait in op.traits))
        has = ["–" if rule is None else "yes" for rule in (op.vjp, op.batch)]
        lines.append(f"| `{op.name}` | {op.kind} | {traits} | {' | '.join(has)} |")
    return "\n".join(lines)


def traits() -> str:
    """What traits promise."""
    return _plain_docstring(inspect.getdoc(Trait) or "")


def grammar() -> str:
    """The grammar that stands before the parser."""
    import lucid.ir.text.parser as parser

    return f"```text\n{inspect.cleandoc(parser.__doc__ or '')}\n```"


def missing() -> str:
    """Of each namespace of PyTorch's how much is there, and the names that are not."""
    recorded = json.loads((DOCS / "torch_names.json").read_text(encoding="utf-8"))
    parts = [f"Compared with PyTorch {recorded['version']}.\n"]
    for place, names in recorded["names"].items():
        owner = owner_of(place.replace("torch", "lucid", 1))
        absent = [name for name in names if not hasattr(owner, name)]
        there = f"{len(names) - len(absent)} of {len(names)} names"
        listed = ", ".join(f"`{name}`" for name in absent) or "none"
        parts.append(f"### `{place}`\n\n{there} are there. Missing: {listed}.\n")
    return "\n".join(parts)


STEP = """\
import lucid
from lucid import nn

lucid.manual_seed(0)
layer = nn.Linear(8, 4)
opt = lucid.optim.SGD(layer.parameters(), lr=0.1)


@lucid.compile
def step(x, y):
    opt.zero_grad()
    loss = (lucid.tanh(layer(x)) - y).square().mean()
    loss.backward()
    opt.step()
    return loss


step(lucid.randn(16, 8), lucid.randn(16, 4))
"""
STAGES = {
    "trace": "What Python has done, node by node, with the line that did it: forward, gradients, "
    "and the optimizer's update.",
    "optimize": "After the passes on the graph: inlined, equal values merged, constants folded.",
    "legalize": "Rewritten into the ops that kernels are good at.",
    "kernels": "Planned: each kernel is a loop nest or a product, with what was fused into it.",
    "buffers": "Where each buffer lies. Temporaries share one arena, by liveness.",
}


def pipeline() -> str:
    """One step at every stage of the compiler, as it is now."""
    path = ROOT / "build" / "docs-step" / "train.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(STEP, encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(STEP, str(path), "exec"), names)
    step = names["step"]
    parts = [f"```python\n{STEP}```\n"]
    for name, meaning in STAGES.items():
        parts.append(
            f"## `step.stages[{name!r}]`\n\n{meaning}\n\n```text\n{step.stages[name]}\n```\n"
        )
    llvm = str(step.stages["llvm"]).splitlines()
    first = next(i for i, line in enumerate(llvm) if line.startswith("define"))
    excerpt = "\n".join(llvm[first : first + 40])
    parts.append(
        "## `step.stages['llvm']`\n\n"
        f"LLVM IR, {len(llvm):,} lines for this processor; the beginning of the first function:\n\n"
        f"```llvm\n{excerpt}\n```\n"
    )
    return "\n".join(parts)


GENERATED: dict[str, Callable[[], str]] = {
    each.__name__: each for each in (variables, ops, traits, grammar, missing, pipeline)
}


# ---------------------------------------------------------------------- the reference


def reference(place: str, names: list[str]) -> str:
    """The page of a namespace: signature and docstring of each name."""
    owner = owner_of(place)
    summary = inspect.getdoc(owner) or ""
    parts = [f"# `{place}`\n\n{_plain_docstring(summary)}\n"]
    get = inspect.getattr_static if isinstance(owner, type) else getattr
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            parts += _entry(place, name, get(owner, name))
    return "\n".join(parts)


def _entry(place: str, name: str, value: Any) -> list[str]:
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    doc = inspect.getdoc(value.fget if isinstance(value, property) else value) or ""
    if not isinstance(value, (type, property)) and not inspect.isroutine(value):
        if inspect.ismodule(value):
            return []
        return [f"### `{name}`\n\n`{value!r}`\n"]
    signature = "" if isinstance(value, property) else _signature(value)
    shown = f"{place}.{name}{signature}"
    return [f"### `{name}`\n\n```text\n{shown}\n```\n\n{_plain_docstring(doc)}\n"]


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    text = str(signature).replace("'", "")
    return re.sub(r"(?<![\w.])(?:typing|collections\.abc)\.", "", text)


def _plain_docstring(doc: str) -> str:
    """A docstring as Markdown: sections in bold, arguments as a list, examples as code."""
    lines: list[str] = []
    in_example = False
    for line in doc.splitlines():
        bare = line.strip()
        if bare.startswith(">>>") and not in_example:
            lines += ["", "```pycon"]
            in_example = True
        elif in_example and not bare:
            lines += ["```", ""]
            in_example = False
            continue
        if in_example:
            lines.append(bare if bare.startswith((">>>", "...")) else line.removeprefix("    "))
            continue
        heading = _HEADING.match(line)
        entry = re.match(r"^    ([*\w][\w*, ]*): (.*)$", line)
        if heading and len(heading[1].split()) == 1:
            lines += ["", f"**{heading[1]}:** {_safe(heading[2])}".rstrip(), ""]
        elif entry:
            lines.append(f"- `{entry[1]}`: {_safe(entry[2])}")
        else:
            lines.append(f"  {_safe(bare)}" if line.startswith("     ") else _safe(bare))
    return "\n".join([*lines, "```"] if in_example else lines)


def _safe(text: str) -> str:
    """Text whose `<`, `*` and brackets outside of code are what they are."""
    parts = text.split("`")
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([<*\[\]_])", r"\\\1", parts[i])
    return "`".join(parts)


# ---------------------------------------------------------------------- all pages


def page(text: str) -> str:
    """The text of a page, with what is generated in it."""

    def included(match: re.Match[str]) -> str:
        kind, name = match.groups()
        if kind == "generated":
            return GENERATED[name]()
        source = (ROOT / name).read_text(encoding="utf-8")
        return f"```python\n{source.rstrip()}\n```"

    return _INCLUDED.sub(included, text)


def write(target: Path) -> None:
    """Write all pages into a folder, which is emptied before."""
    shutil.rmtree(target, ignore_errors=True)
    (target / "reference").mkdir(parents=True)
    for path in sorted(DOCS.glob("*.md")):
        text = page(path.read_text(encoding="utf-8"))
        (target / path.name).write_text(text, encoding="utf-8")
    for name in REPOSITORY:
        text = (ROOT / name).read_text(encoding="utf-8")
        text = re.sub(r"\]\(docs/", "](", text)
        text = re.sub(r"\[([^\]]+)\]\((?:examples|benchmarks|LICENSE)[^)]*\)", r"\1", text)
        (target / name).write_text(text, encoding="utf-8")
    listed = []
    for place, names in namespaces().items():
        (target / "reference" / f"{place}.md").write_text(reference(place, names), encoding="utf-8")
        listed.append(f"- [`{place}`]({place}.md): {len(names)} names")
    head = (
        "# Reference\n\nOne page for each public namespace, made of the docstrings. Before each "
        "example stand, as it were,\n\n```python\nimport lucid\nfrom lucid import nn\n"
        "import lucid.nn.functional as F\n```\n\n"
    )
    (target / "reference" / "index.md").write_text(head + "\n".join(listed), encoding="utf-8")


if __name__ == "__main__":
    write(ROOT / "build" / "docs")
