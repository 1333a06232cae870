"""The folder list is the architecture: a folder imports only what stands before it in `ORDER`.

Every import counts, those inside of functions and those for types alone as well.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "lucid").rglob("*.py"))

# Lower ones first; those in one line import each other, too.
ORDER = (
    "docstrings",
    "ir",
    "codegen",  # what its choices weigh
    "codegen.llvm",
    "codegen.vmath",
    "codegen.kernel_ir",
    "codegen.emit",
    "codegen.contraction",
    "codegen.threads",
    "codegen.kernels",
    "codegen.program",
    "codegen.lower",
    "runtime",
    "dtypes",
    "choices",
    "device",
    "layouts",
    "tensor autograd functions linalg random return_types sparse",
    "compiler.inputs",
    "compiler.guards",
    "compiler.results",
    "compiler.hosts",
    "compiler.recording",
    "compiler.programs",
    "compiler.reports",
    "compiler",
    "debug",
    "settings",
    "later ported",  # find everything below by its name, when it is used
    "lucid",  # what `import lucid` runs
    "version",
    "special",
    "testing",
    "nn",
    "optim",
    "func",
    "utils",
    "control_flow",
    "distributions",
    "serialization",
    "amp",
    "cuda",
    "accelerator distributed",
    "backends",
    "jit",
    "profiler",
    "cli",
    "__main__",
)
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names.split()}
LLVM = "codegen.llvm"  # llvmlite has no types: it stays behind this


def folder_of(module: str) -> str:
    """The name in `ORDER` of a dotted module: lucid.ir.types is of "ir", lucid.Tensor of "lucid".

    >>> folder_of("lucid.compiler.inputs.cells"), folder_of("lucid.compiler.compiled")
    ('compiler.inputs', 'compiler')
    """
    parts = module.split(".")[1:3]
    names = (".".join(parts[:length]) for length in (2, 1))
    return next((name for name in names if name in RANK), "lucid")


def imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Yield line and absolute name of everything that `module` imports, relative ones resolved.

    The types that `lucid` itself names are what `later` finds, so they don't count.
    """
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"
        elif module != "lucid" or "TYPE_CHECKING" not in ast.unparse(node):
            yield from imports(node, module, is_package)


def wrong_arrows(source: str, module: str, is_package: bool = False) -> list[str]:
    """Say which imports of a module's source go against the order, one line each."""
    tree = ast.parse(source)
    mine = folder_of(module)
    found = []
    for line, name in imports(tree, module, is_package):
        top = name.split(".")[0]
        if top == "lucid" and RANK[folder_of(name)] > RANK[mine]:
            found.append(f"{module}:{line}: {mine} imports {name}, of {folder_of(name)}")
        if top == "llvmlite" and mine != LLVM:
            found.append(f"{module}:{line}: {mine} imports {name}")
    for node in tree.body:  # networkx takes 0.2 s to import
        if isinstance(node, (ast.Import, ast.ImportFrom)) and "networkx" in ast.unparse(node):
            found.append(f"{module}:{node.lineno}: networkx is to be imported where it is needed")
    return found


def test_every_folder_has_its_place_in_the_order() -> None:
    folders = {".".join(path.relative_to(ROOT).parent.parts[1:3]) for path in FILES}
    inner = {name for name in folders if name.startswith(("codegen", "compiler"))}
    outer = {path.relative_to(ROOT).with_suffix("").parts[1] for path in FILES} - {"__init__"}
    assert inner | outer | {"lucid"} == set(RANK)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    parts = path.relative_to(ROOT).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    module = ".".join(parts[:-1] if is_package else parts)
    assert wrong_arrows(path.read_text(encoding="utf-8"), module, is_package) == []


@pytest.mark.parametrize(
    ("module", "line", "found"),
    [
        ("lucid.ir.graph", "from lucid.codegen import llvm", "ir imports lucid.codegen.llvm"),
        ("lucid.ir.graph", "from lucid import codegen", "ir imports lucid.codegen"),
        ("lucid.ir.graph", "import lucid", "ir imports lucid, of lucid"),
        ("lucid.ir.graph", "from lucid.tensor import Tensor", "ir imports lucid.tensor.Tensor"),
        ("lucid.ir.graph", "from ..runtime import load", "ir imports lucid.runtime.load"),
        ("lucid.ir.ops.maps", "from ... import nn", "ir imports lucid.nn"),
        (
            "lucid.codegen.llvm.jit",
            "import lucid.runtime.arena",
            "codegen.llvm imports lucid.runtime.arena",
        ),
        ("lucid.runtime.call", "from lucid import Tensor", "runtime imports lucid.Tensor"),
        ("lucid.ir.graph", "import llvmlite.binding", "ir imports llvmlite.binding"),
        ("lucid.runtime.cache", "import llvmlite", "runtime imports llvmlite"),
        (
            "lucid.codegen.kernel_ir.nest",
            "from lucid.codegen.lower import item",
            "codegen.kernel_ir imports lucid.codegen.lower.item, of codegen.lower",
        ),
        ("lucid.nn.linear", "from llvmlite import ir", "nn imports llvmlite.ir"),
        ("lucid.ir.graph", "def f():\n    import lucid.nn", "ir imports lucid.nn"),
        ("lucid.codegen.lower.fuse", "import networkx as nx", "networkx is to be imported where"),
        (
            "lucid.autograd.functional",
            "def f():\n    from lucid.func import jacfwd",
            "autograd imports lucid.func.jacfwd, of func",
        ),
        (
            "lucid.tensor.storage",
            "if TYPE_CHECKING:\n    from lucid.compiler.recording.recorder import Recorder",
            "tensor imports lucid.compiler.recording.recorder.Recorder, of compiler.recording",
        ),
        (
            "lucid.compiler.guards.reads",
            "from lucid.compiler.results import tape",
            "compiler.guards imports lucid.compiler.results.tape, of compiler.results",
        ),
        (
            "lucid.compiler.programs.program",
            "def f():\n    from lucid.compiler.compiled import Compiled",
            "compiler.programs imports lucid.compiler.compiled.Compiled, of compiler",
        ),
        ("lucid.compiler.compiled", "from lucid import nn", "compiler imports lucid.nn, of nn"),
    ],
)
def test_a_planted_arrow_is_found(module: str, line: str, found: str) -> None:
    (message,) = wrong_arrows(line, module)
    assert found in message


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("lucid.tensor.core", "from lucid.runtime import load"),
        ("lucid.tensor.core", "def f():\n    from lucid.functions import reshape"),
        ("lucid.nn.linear", "from lucid import ir, Tensor"),
        ("lucid.compiler.compiled", "from lucid.compiler.reports import profiling"),
        ("lucid.compiler.results.tape", "from lucid.compiler.guards.guard import Guard"),
        ("lucid.codegen.llvm.jit", "import llvmlite.binding as llvm"),
        ("lucid.codegen.llvm.jit", "from ..ir.types import DType"),
        ("lucid.codegen.lower.fuse", "def f():\n    import networkx as nx"),
        ("lucid.ir.graph", "from . import types\nimport numpy as np"),
        ("lucid", "if TYPE_CHECKING:\n    from lucid import nn"),
    ],
)
def test_a_right_arrow_passes(module: str, line: str) -> None:
    assert wrong_arrows(line, module, is_package=module == "lucid") == []


def test_relative_imports_of_a_package_start_in_the_package() -> None:
    assert wrong_arrows("from .types import DType", "lucid.ir", is_package=True) == []
    (message,) = wrong_arrows("from ..nn import Module", "lucid.ir", is_package=True)
    assert "ir imports lucid.nn.Module" in message


def test_the_package_is_there_before_the_compiler_and_its_libraries() -> None:
    """They come with `lucid.nn`: an import of tensors alone takes a fraction of their time."""
    script = "import lucid, sys; print(*{*sys.modules})"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {*run.stdout.split()}
    assert "lucid.tensor.core" in loaded
    assert loaded.isdisjoint({"llvmlite", "networkx", "lucid.codegen.llvm.library"})


def test_a_model_whose_backward_stands_outside_is_compiled_without_networkx() -> None:
    """Its import takes as long as a tenth of a large step's first call."""
    script = """
import sys, lucid
model = lucid.compile(lambda x: x.exp().sin().sum())
model(lucid.ones(3, requires_grad=True)).backward()
print(*sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "networkx" not in run.stdout.split()
