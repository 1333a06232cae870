"""The folder list is the architecture: imports go lucid -> runtime -> codegen -> ir, never back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "lucid").rglob("*.py"))

LAYERS = ("ir", "codegen", "runtime", "lucid")  # each may import itself and those before it
LLVM = ("codegen", "runtime")  # llvmlite has no types: it stays behind these


def layer_of(module: str) -> str:
    """The layer of a dotted module name: lucid.ir.types is of "ir", lucid.nn.init of "lucid"."""
    second = [*module.split("."), ""][1]
    return second if second in LAYERS else "lucid"


def imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Yield line and absolute name of everything that `module` imports, relative ones resolved."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"


def wrong_arrows(source: str, module: str, is_package: bool = False) -> list[str]:
    """Say which imports of a module's source go against the layers, one line each."""
    tree = ast.parse(source)
    mine = layer_of(module)
    found = []
    for line, name in imports(tree, module, is_package):
        top = name.split(".")[0]
        if top == "lucid" and LAYERS.index(layer_of(name)) > LAYERS.index(mine):
            found.append(f"{module}:{line}: {mine} imports {name}, of {layer_of(name)}")
        if top == "llvmlite" and mine not in LLVM:
            found.append(f"{module}:{line}: {mine} imports {name}")
    for node in tree.body:  # networkx takes 0.2 s to import
        if isinstance(node, (ast.Import, ast.ImportFrom)) and "networkx" in ast.unparse(node):
            found.append(f"{module}:{node.lineno}: networkx is to be imported where it is needed")
    return found


def test_there_is_something_to_check() -> None:
    assert {layer_of(".".join(f.relative_to(ROOT).parts)) for f in FILES} == set(LAYERS)


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
        ("lucid.codegen.jit", "import lucid.runtime.arena", "codegen imports lucid.runtime.arena"),
        ("lucid.runtime.call", "from lucid import Tensor", "runtime imports lucid.Tensor"),
        ("lucid.ir.graph", "import llvmlite.binding", "ir imports llvmlite.binding"),
        ("lucid.nn.linear", "from llvmlite import ir", "lucid imports llvmlite.ir"),
        ("lucid.ir.graph", "def f():\n    import lucid.nn", "ir imports lucid.nn"),
        ("lucid.codegen.fuse", "import networkx as nx", "networkx is to be imported where"),
    ],
)
def test_a_planted_arrow_is_found(module: str, line: str, found: str) -> None:
    (message,) = wrong_arrows(line, module)
    assert found in message


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("lucid.tensor", "from lucid.runtime import load"),
        ("lucid.tensor", "from lucid import ir, nn"),
        ("lucid.codegen.jit", "import llvmlite.binding as llvm"),
        ("lucid.codegen.jit", "from ..ir.types import DType"),
        ("lucid.codegen.fuse", "def f():\n    import networkx as nx"),
        ("lucid.ir.graph", "from . import types\nimport numpy as np"),
    ],
)
def test_a_right_arrow_passes(module: str, line: str) -> None:
    assert wrong_arrows(line, module) == []


def test_relative_imports_of_a_package_start_in_the_package() -> None:
    assert wrong_arrows("from .types import DType", "lucid.ir", is_package=True) == []
    (message,) = wrong_arrows("from ..nn import Module", "lucid.ir", is_package=True)
    assert "ir imports lucid.nn.Module" in message


# ---------------------------------------------------------------------- inside of the compiler

COMPILER = ("inputs", "guards", "results", "hosts", "recording", "programs", "reports")


def folder_of(module: str) -> str | None:
    """The folder of a module of the compiler; None for one that is in none of them."""
    parts = [*module.split("."), "", "", ""]
    return parts[2] if parts[:2] == ["lucid", "compiler"] and parts[2] in COMPILER else None


def compiler_imports(source: str) -> Iterator[tuple[int, str]]:
    """Which folders of the compiler a module needs before it can be imported, with the lines."""
    needed = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
    for line, name in imports(ast.Module(needed, []), "", False):
        folder = folder_of(name)
        if folder is not None:
            yield line, folder


def test_every_folder_of_the_compiler_has_its_place_in_the_order() -> None:
    folders = {path.parent.name for path in (ROOT / "lucid" / "compiler").glob("*/__init__.py")}
    assert folders == set(COMPILER)


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path.parent.name in COMPILER],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_imports_inside_of_the_compiler_go_one_way(path: Path) -> None:
    mine = COMPILER.index(path.parent.name)
    found = compiler_imports(path.read_text(encoding="utf-8"))
    assert [line for line, folder in found if COMPILER.index(folder) > mine] == []


def test_a_folder_of_the_compiler_is_found_in_what_is_imported() -> None:
    source = "from lucid.compiler.hosts import state\nfrom lucid.compiler import hooks\n"
    assert [*compiler_imports(source)] == [(1, "hosts")]
