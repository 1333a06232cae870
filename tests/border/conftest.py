"""Where installed packages stand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from border.harness import INSTALLED

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def installed_packages(monkeypatch: pytest.MonkeyPatch):
    """`import trainlib`, `import conflike`, …: code that counts as installed."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(INSTALLED))
    yield
    for name in sys.modules.keys() - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if Path(file).is_relative_to(HERE):
            del sys.modules[name]
