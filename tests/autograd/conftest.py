"""`run(body, *args)` runs a body in both modes: as it is, and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucid

Run = Callable[..., Any]


@pytest.fixture(params=["eager", "compiled"])
def run(request: pytest.FixtureRequest) -> Run:
    """Call `body(*args)`, in eager mode or compiled: the same source, the same outcome."""

    def call(body: Callable[..., Any], *args: Any) -> Any:
        step = lucid.compile(body) if request.param == "compiled" else body
        return step(*args)

    return call


@pytest.fixture(params=["eager", "compiled"])
def prepared(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """The body as it is, or compiled: to be called several times."""
    return lucid.compile if request.param == "compiled" else lambda body: body
