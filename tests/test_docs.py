"""The site's pages: their code runs, prints what stands below it, and all links lead somewhere.

Blocks of Python of a page run in order, as one module. A block of text right after one is what it
prints, or the error that it raises; `...` stands for anything.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import linecache
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lucid

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
BLOCKS = re.compile(r"^```python\n(.*?)^```\n(?:\n?```text\n(.*?)^```\n)?", re.DOTALL | re.M)
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run(text: str, folder: Path) -> list[str]:
    """Run a page's blocks; return what of them isn't as it says."""
    names: dict[str, Any] = {"__name__": "page"}
    wrong = []
    for number, (source, expected) in enumerate(BLOCKS.findall(text), 1):
        path = folder / f"block{number}.py"
        path.write_text(source, encoding="utf-8")
        linecache.checkcache(str(path))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(source, str(path), "exec"), names)
            except Exception as error:
                if not expected:
                    raise
                printed.write(f"{type(error).__name__}: {error}\n")
        if expected and not doctest.OutputChecker().check_output(
            expected, printed.getvalue(), SAME
        ):
            wrong.append(f"block {number} prints:\n{printed.getvalue()}instead of:\n{expected}")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_runs_and_prints_what_stands_below_it(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lucid.manual_seed(0)
    assert run(page.read_text(encoding="utf-8"), tmp_path) == []


def test_planted_faults_are_found(tmp_path: Path) -> None:
    text = "```python\nprint(1)\n```\n\n```text\n2\n```\n\n```python\nx = 1 / 0\n```\n"
    with pytest.raises(ZeroDivisionError):
        run(text, tmp_path)
    assert run(text.replace(" / 0", ""), tmp_path) == ["block 1 prints:\n1\ninstead of:\n2\n"]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_page_is_made_and_its_links_lead_to_pages(
    generator: ModuleType, tmp_path: Path
) -> None:
    generator.write(tmp_path)
    pages = [*tmp_path.rglob("*.md")]
    assert len(pages) > 50
    for page in pages:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
        assert "<!-- generated" not in text and "<!-- file" not in text
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", re.sub(r"`[^`]*`", "", text)):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_menu_names_each_page(generator: ModuleType) -> None:
    menu = (DOCS / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r": ([\w/-]+\.md)$", menu, re.M))
    assert listed >= {page.name for page in PAGES} | {"reference/index.md"}


def test_the_errors_page_has_each_error_that_users_meet() -> None:
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    kinds = [
        name
        for name in lucid.__all__
        if isinstance(getattr(lucid, name), type) and issubclass(getattr(lucid, name), Exception)
    ]
    assert len(kinds) > 10
    assert [name for name in kinds if f"## {name}\n" not in text] == []
