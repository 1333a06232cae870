"""Packages that are imported late, since that takes long, perhaps while somebody waits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def wholly(package: str) -> Iterator[None]:
    """Import a package in the block with all of its modules, or with none.

    Python drops the modules that an interrupt finds unfinished, and keeps those below them. These
    are no attributes of their packages when somebody imports them again, which would fail for good.
    """
    try:
        yield
    except BaseException:
        if package not in sys.modules:
            for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
                del sys.modules[name]
        raise
