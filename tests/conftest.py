"""Options, profiles and fixtures that all tests share."""

from __future__ import annotations

import gc
import os
import zlib
from collections.abc import Callable, Generator
from typing import Any

import hypothesis
import numpy as np
import pytest

import lucid
from lucid.compiler import pacing
from lucid.compiler.programs import audits

os.environ.setdefault("LUCID_VERIFY", "1")  # each pass of each step leaves a graph that is one

# A slow machine is no failure; in CI the same examples every time.
pacing.FREE_SECONDS = 600.0
hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what the code prints into the golden files; then read the diff",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """No cycles are looked for meanwhile: the tests are half a million objects, which all stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture
def few_objects() -> Generator[None, None, None]:
    """The collector sees what the test makes, without what was there; all of it after a trace."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written instead of compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator of the test's own: equal in each run, different between tests."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def unaudited(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call is audited: whether one is native doesn't depend on how fast the machine is."""
    monkeypatch.setattr(audits, "FIRST", audits.NEVER)


@pytest.fixture(params=["eager", "compiled"])
def prepared(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """The body as it is, or compiled: to be called several times."""
    return lucid.compile if request.param == "compiled" else lambda body: body


@pytest.fixture(params=["eager", "compiled"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Call `body(*args)`, in eager mode or compiled: the same source, the same outcome."""

    def call(body: Callable[..., Any], *args: Any) -> Any:
        return (lucid.compile(body) if request.param == "compiled" else body)(*args)

    return call
