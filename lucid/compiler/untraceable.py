"""Calls that were found to make sense op by op only."""

from __future__ import annotations

from typing import Any

from lucid.ir.errors import EagerOnlyError

_MOST = 128


class Untraceable:
    """Signatures whose traces have met what only makes sense op by op.

    A trace is tried again at the second, fourth, eighth such call and so on: what a call meets may
    depend on more than its signature.
    """

    def __init__(self) -> None:
        self._calls: dict[Any, int] = {}
        self._reasons: dict[Any, str] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def note(self, key: Any, reason: str) -> None:
        """Note that a trace had to be given up."""
        if key not in self._calls and len(self._calls) >= _MOST:
            self._calls.clear()
            self._reasons.clear()
        self._calls.setdefault(key, 1)
        self._reasons[key] = reason

    def forget(self, key: Any) -> None:
        """Note that there is a program now."""
        self._calls.pop(key, None)
        self._reasons.pop(key, None)

    def refuse(self, key: Any) -> None:
        """Raise `EagerOnlyError` for a call that is not to be traced this time."""
        count = self._calls.get(key)
        if count is None:
            return
        self._calls[key] = count + 1
        if count & (count - 1):
            raise EagerOnlyError(self._reasons[key])
