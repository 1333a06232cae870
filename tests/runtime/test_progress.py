"""A compilation that takes long says so on a terminal, once, with its stage."""

from __future__ import annotations

import io
import logging
import re
import sys
import threading
import time

import pytest

import lucid
from lucid.ir import Graph
from lucid.runtime import progress


def slow(graph: Graph) -> bool:
    time.sleep(0.3)
    return False


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [x.getMessage() for x in caplog.records if x.name == "lucid.compile"]


@pytest.mark.usefixtures("terminal")
def test_it_is_one_line_with_the_stage(caplog: pytest.LogCaptureFixture) -> None:
    step = lucid.compile(lambda x: x + 1, passes=[slow])
    step(lucid.ones(3))
    step(lucid.ones(3))
    (line,) = lines(caplog)
    assert re.fullmatch(r"compiling <lambda> has taken 0.1 s so far, and is at the \w+", line)


@pytest.mark.usefixtures("terminal")
def test_what_is_fast_says_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "AFTER_SECONDS", 60)
    lucid.compile(lambda x: x + 1)(lucid.ones(3))
    for timer in [thread for thread in threading.enumerate() if type(thread) is threading.Timer]:
        timer.join(10)
        assert not timer.is_alive()  # it was told to end
    assert lines(caplog) == []


@pytest.mark.usefixtures("terminal")
def test_logging_switches_it_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "lucid.compile")
    lucid.compile(lambda x: x + 1, passes=[slow])(lucid.ones(3))
    assert lines(caplog) == []


def test_nothing_is_said_where_nobody_looks(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.1)
    lucid.compile(lambda x: x + 1, passes=[slow])(lucid.ones(3))
    assert lines(caplog) == []


@pytest.mark.parametrize("what", ["None", "closed", "not a file"])
def test_standard_error_may_be_anything(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Services have none, and programs put objects of their own in its place."""
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", {"None": None, "closed": closed}.get(what, object()))
    for name in ("LUCID_LOG", "LUCID_PRINT_AFTER"):  # which write there
        monkeypatch.setenv(name, {"LUCID_LOG": "compile,cache"}.get(name, "all"))
    assert lucid.compile(lambda x: x + 1, passes=[slow])(lucid.ones(3)).tolist() == [2.0] * 3


@pytest.mark.usefixtures("terminal")
def test_where_no_thread_can_be_started_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(timer: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", refuse)
    assert lucid.compile(lambda x: x + 1, passes=[slow])(lucid.ones(3)).tolist() == [2.0] * 3
    assert lines(caplog) == []
