"""What a thread was doing before it began something, to be put back where that was interrupted.

Python looks for signals between any two calls, also in a `finally` or before the first line of an
`__exit__`: no way to leave a block is sure to be taken. So whoever begins something that has many
blocks inside puts all of it back, whatever they have done.
"""

from __future__ import annotations

from threading import get_ident

from lucid.tensor.context import context
from lucid.tensor.write_locks import end_claim, held, lock


class ThreadSnapshot:
    """The modes of the running thread, its claims, and whether it has the lock."""

    def __init__(self) -> None:
        self._modes = dict(vars(context))
        self._lists = [(x, [*x]) for x in self._modes.values() if isinstance(x, list)]
        self._has_lock = lock._is_owned()  # type: ignore[attr-defined]
        self._claims = [*held]

    def put_back(self) -> None:
        """Let it be so again; not for the first time is fine."""
        for entries, before in self._lists:
            entries[:] = before
        vars(context).update(self._modes)
        with lock:
            for claim in [*held]:
                if claim.thread == get_ident() and claim not in self._claims:
                    end_claim(claim)
        while not self._has_lock and lock._is_owned():  # type: ignore[attr-defined]
            lock.release()
