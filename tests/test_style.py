"""Rules of the codebase that no linter has: small pieces, and nothing unfinished."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "lucid").rglob("*.py"))

FUNCTION_LINES = 70  # more than a screen
FILE_LINES = 600
UNFINISHED = re.compile("|".join(rf"\b{a}{b}\b" for a, b in (("TO", "DO"), ("FIX", "ME"))))


def complaints(source: str) -> list[str]:
    """Say what in a file is too long or unfinished, one line each."""
    lines = source.splitlines()
    found = [f"{n}: unfinished" for n, line in enumerate(lines, 1) if UNFINISHED.search(line)]
    if len(lines) > FILE_LINES:
        found.append(f"{len(lines)} lines: a file that needs a map is two files")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES:
                found.append(f"{node.lineno}: {node.name} has {size} lines")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_pieces_are_small_and_finished(path: Path) -> None:
    assert complaints(path.read_text(encoding="utf-8")) == []


def test_planted_faults_are_found() -> None:
    assert complaints("x = 1  # TO" + "DO: two") == ["1: unfinished"]
    assert complaints("def f():\n" + "    x = 1\n" * 80) == ["1: f has 81 lines"]
    assert complaints("\n" * 601) == ["601 lines: a file that needs a map is two files"]
