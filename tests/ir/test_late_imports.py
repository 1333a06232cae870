"""What was interrupted while it was imported can be imported again."""

from __future__ import annotations

import subprocess
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

import pytest

from lucid.ir.late_imports import wholly


class Interrupting(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname == "networkx.utils.decorators":
            raise KeyboardInterrupt
        return None


def test_a_package_whose_import_was_interrupted_is_imported_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without `wholly` networkx has no `utils.configs` from then on, for which it asks itself."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "networkx"]:
        monkeypatch.delitem(sys.modules, name)
    with monkeypatch.context() as interrupted:
        interrupted.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
        with pytest.raises(KeyboardInterrupt), wholly("networkx"):
            import networkx
    try:
        import networkx

        assert networkx.utils.configs is not None
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "networkx"]:
            del sys.modules[name]


INTERRUPTED = """
import sys
left = iter(range(20))

def interrupt(frame, event, value):
    if frame.f_code.co_name == "declare" and event == "call" and next(left, None) is None:
        sys.setprofile(None)
        raise KeyboardInterrupt

sys.setprofile(interrupt)
try:
    import lucid
except KeyboardInterrupt:
    import lucid

    print(lucid.tensor([1.0]).neg().tolist())
"""


def test_an_import_of_lucid_that_was_interrupted_can_be_repeated() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout == "[-1.0]\n"
