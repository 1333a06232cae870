"""The environment variables: one convention, and a warning for what makes no sense."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from lucid.ir import environment
from lucid.ir.environment import VARIABLES, Variable, check

ROOT = Path(__file__).resolve().parent.parent.parent
SWITCHES = [variable for variable in VARIABLES if isinstance(variable.unset, bool)]


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has just begun."""
    monkeypatch.setattr(environment, "_warned", set())


@pytest.mark.parametrize("variable", SWITCHES, ids=lambda v: v.name)
def test_all_switches_know_the_same_words(
    variable: Variable[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    meanings = {"1": True, "on": True, "True": True, "YES": True, " 1 ": True}
    meanings |= {"0": False, "off": False, "FALSE": False, "No": False}
    meanings |= {"": variable.unset, "  ": variable.unset}
    for text, meaning in meanings.items():
        monkeypatch.setenv(variable.name, text)
        assert variable.read() is meaning
    monkeypatch.delenv(variable.name)
    assert variable.read() is variable.unset


@pytest.mark.parametrize("variable", SWITCHES, ids=lambda v: v.name)
@pytest.mark.parametrize("given", ["2", "maybe", "0,1"])
def test_a_switch_that_is_neither_on_nor_off_is_a_warning(
    variable: Variable[bool], given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable.name, given)
    with pytest.warns(UserWarning) as warned:
        assert variable.read() is variable.unset
    assert str(warned[0].message) == (
        f"{variable.name}={given!r}: expected on/off, 1/0, true/false or yes/no; "
        f"using the default, {variable.default}"
    )
    assert warned[0].filename == __file__


@pytest.mark.parametrize(
    ("given", "names"), [("retrace", ("retrace",)), (" Retrace, ", ("retrace",)), (",", ())]
)
def test_what_is_logged_is_a_list_of_names(
    given: str, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUCID_LOG", given)
    assert environment.LOG.read() == names


def test_of_a_list_the_known_names_hold_and_the_others_are_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LUCID_LOG", "retrace,nonsense,nan,more")
    with pytest.warns(UserWarning) as warned:
        assert environment.LOG.read() == ("retrace", "nan")
    assert str(warned[0].message) == (
        "LUCID_LOG='retrace,nonsense,nan,more': there is no nonsense, more; expected retrace, "
        "compile, cache, eager, exits, nan; using retrace, nan"
    )


@pytest.mark.parametrize("given", ["foo", "foo,bar", "1"])
def test_a_log_that_there_isn_t_is_a_warning(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCID_LOG", given)
    with pytest.warns(UserWarning) as warned:
        assert environment.LOG.read() == ()
    assert str(warned[0].message) == (
        f"LUCID_LOG={given!r}: expected retrace, compile, cache, eager, exits, nan; "
        "using the default, nothing"
    )


def test_each_value_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for given in ("perhaps", "perhaps", "never", "perhaps"):
            monkeypatch.setenv("LUCID_CACHE", given)
            assert environment.CACHE.read() is True
    assert [str(warning.message).split(":")[0] for warning in warned] == [
        "LUCID_CACHE='perhaps'",
        "LUCID_CACHE='never'",
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("LUCID_NUM_THREAD", "LUCID_NUM_THREADS"),
        ("LUCID_THREADS", "LUCID_NUM_THREADS"),
        ("LUCID_CACHEDIR", "LUCID_CACHE_DIR"),
        ("LUCID_LOGS", "LUCID_LOG"),
        ("LUCID_NATIVE_CALL", "LUCID_NATIVE_CALLS"),
    ],
)
def test_a_misspelt_name_is_a_warning(
    name: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.warns(UserWarning) as warned:
        check()
    check()
    (warning,) = warned
    assert str(warning.message) == f"lucid reads no variable {name}; did you mean {meant}?"


def test_other_programs_have_variables_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LUCID_SERVICE_HOST", "LUCID_PORT", "LUCID_PORT_80_TCP", "LUCID_API_KEY"):
        monkeypatch.setenv(name, "1")
    for name in ("NUM_THREADS", "CACHE_DIRS", "lucid_caches"):
        monkeypatch.setenv(name, "1")
    check()


SCRIPT = """
import os
import lucid  # here
lucid.compile(lambda x: x + 1)(lucid.ones(1))
import lucid.nn
assert lucid.get_num_threads() >= 1
"""


def stderr_of(script: str, **given: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT), **given},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_an_import_tells_of_all_nonsense_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    others = ("LUCID_CACHE_DIR", "LUCID_PRINT_AFTER")  # what makes no sense there is known later
    names = [variable.name for variable in VARIABLES if variable.name not in others]
    nonsense = {**dict.fromkeys(names, "foo"), "LUCID_CACHE_DIR": str(tmp_path / "file")}
    printed = stderr_of(SCRIPT, LUCID_EAGERLY="1", **nonsense)
    found = re.findall(
        r"^<string>:(\d): UserWarning: (?:lucid reads no variable )?(\w+)", printed, re.M
    )
    assert sorted(found) == sorted(
        [("3", name) for name in (*names, "LUCID_EAGERLY")] + [("4", "LUCID_CACHE_DIR")]
    )


def test_sense_is_silent(tmp_path: Path) -> None:
    sense: dict[str, Any] = {variable.name: "1" for variable in SWITCHES}
    sense |= {"LUCID_NUM_THREADS": "2", "LUCID_LOG": "retrace", "LUCID_CACHE_DIR": str(tmp_path)}
    assert not stderr_of(SCRIPT, **sense)


def test_no_other_module_reads_a_variable_of_lucid_s() -> None:
    for path in (ROOT / "lucid").rglob("*.py"):
        if path.name != "environment.py":
            assert not re.search(r"(environ|getenv).*LUCID_", path.read_text(encoding="utf-8")), (
                path
            )
