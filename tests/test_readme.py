"""The README's example runs, and prints what the README says.

`pytest tests/test_readme.py --update-golden` writes what it prints into the README.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lucid
from lucid.ir.environment import VARIABLES
from lucid.runtime import cache

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
VARIABLES_TABLE = re.compile(
    r"(?<=<!-- variables -->\n).*?(?=<!-- end of variables -->)", re.DOTALL
)
PRINTED = re.compile(r"(?<=<!-- ir dump -->\n).*?(?=<!-- end of ir dump -->)", re.DOTALL)


def test_the_example_prints_what_stands_there(tmp_path: Path, update_golden: bool) -> None:
    text = README.read_text(encoding="utf-8")
    source = EXAMPLE.findall(text)[0]
    (tmp_path / "train.py").write_text(source, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-W", "error", "train.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    printed = f"```text\n{run.stdout.rstrip()}\n```\n"
    if update_golden:
        README.write_text(PRINTED.sub(lambda _: printed, text), encoding="utf-8")
        return
    assert PRINTED.findall(text) == [printed]


def test_the_step_that_looks_at_values_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    model = lucid.nn.Linear(3, 1)
    names: dict[str, Any] = {"lucid": lucid, "model": model, "history": {"loss": []}}
    names["opt"] = lucid.optim.Adam(model.parameters())
    exec(EXAMPLE.findall(README.read_text(encoding="utf-8"))[1], names)
    step, x = names["step"], lucid.randn(5, 3)
    for _ in range(3):
        step(x, lucid.zeros(5, 1))
    assert step(x * float("nan"), lucid.zeros(5, 1)) is None
    lines = [f"loss {loss:.4f}" for loss in names["history"]["loss"]]
    assert capsys.readouterr().out.splitlines() == lines and len(lines) == 3
    assert step.stats.traces == 2 and not step.stats.eager_reasons


def test_the_loop_is_recorded_once() -> None:
    w = lucid.nn.Parameter(lucid.randn(128, 128) * 0.1)
    before = w.tolist()
    names: dict[str, Any] = {"lucid": lucid, "w": w, "opt": lucid.optim.SGD([w], lr=0.1)}
    (source,) = EXAMPLE.findall(README.read_text(encoding="utf-8"))[2:]
    exec(source, names)
    names["step"](lucid.randn(5, 32, 128))
    assert names["step"].dump_ir().count(" = scan ") == 2
    assert w.tolist() != before


def test_the_table_of_variables_is_what_is_read(update_golden: bool) -> None:
    rows = ["| variable | | values | default |", "|---|---|---|---|"]
    rows += [f"| `{v.name}` | {v.meaning} | {v.values} | {v.default} |" for v in VARIABLES]
    table = "\n".join(rows) + "\n"
    text = README.read_text(encoding="utf-8")
    if update_golden:
        README.write_text(VARIABLES_TABLE.sub(lambda _: table, text), encoding="utf-8")
        return
    assert VARIABLES_TABLE.findall(text) == [table]


def test_the_cache_is_where_and_as_large_as_it_says() -> None:
    text = README.read_text(encoding="utf-8")
    assert f"`{cache.FOLDER}`" in text
    assert f"at most {cache.SIZE_LIMIT >> 20} MiB" in text


def test_links_lead_somewhere() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), f"{name} links to {target}"


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SOURCES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "lucid").rglob("*.py")}


def test_the_recipes_code_stands_in_the_files_that_they_name() -> None:
    blocks = re.findall(r"```python\n *# (\S+)\n(.*?)```", CONTRIBUTING, re.DOTALL)
    assert len(blocks) == CONTRIBUTING.count("```python") > 4
    for path, code in blocks:
        lines = [line.strip() for line in (ROOT / path).read_text(encoding="utf-8").splitlines()]
        at = 0
        for line in filter(None, map(str.strip, code.splitlines())):
            assert line in lines[at:], f"{path} has no {line!r} there"
            at = lines.index(line, at)


def test_the_recipes_files_and_functions_are_there() -> None:
    text = re.sub(r"```.*?```", "", CONTRIBUTING, flags=re.DOTALL)
    for path in re.findall(r"`((?:lucid|tests)/[\w/.]*)`", text):
        assert "NAME" in path or (ROOT / path).exists(), path
    for name in re.findall(r"`(\w+\.py)`", text):
        assert any(path.name == name for path in SOURCES), name
    for kind, method in re.findall(r"`([A-Z]\w+)\.(\w+)`", text):
        defined = rf"^class {kind}\b.*?\n    def {method}\("
        assert any(re.search(defined, source, re.DOTALL | re.M) for source in SOURCES.values()), (
            f"{kind}.{method}"
        )


def test_the_compilers_concepts_stand_where_the_table_says() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"### Its concepts.*?(?=\n### )", text, re.DOTALL)
    homes = re.findall(r"`(\w+)` in `([\w/]+\.py)`", table)
    assert len(homes) > 20
    for kind, path in homes:
        assert re.search(rf"^class {kind}\b", SOURCES[ROOT / "lucid/compiler" / path], re.M), kind
    (lines,) = re.findall(r"Lines, to a hundred: (.*)\.", table)
    said = {name: int(count) for name, count in re.findall(r"(\w+) (\d+)", lines)}
    counted = dict.fromkeys(said, 0)
    for path, source in SOURCES.items():
        parts = path.relative_to(ROOT / "lucid").parts
        if parts[0] == "compiler":
            counted[parts[1] if len(parts) > 2 else "rest"] += source.count("\n")
    assert all(abs(counted[name] - said[name]) <= 100 for name in said), counted


def test_the_profile_has_the_columns_that_are_printed() -> None:
    text = README.read_text(encoding="utf-8")
    (shown,) = re.findall(r"<!-- profile -->\n```text\n(.*?)```", text, re.DOTALL)
    head, _, _, titles, *rows = shown.splitlines()
    profile = lucid.compile(lucid.exp).profile(lucid.ones(3), calls=1)
    printed_head, _, _, printed_titles, _ = str(profile).splitlines()
    numbers = re.compile(r"[\d.]+")
    assert numbers.sub("#", head) == numbers.sub("#", printed_head).replace("exp", "train_step")
    assert titles.split() == printed_titles.split() and len(rows) > 3
