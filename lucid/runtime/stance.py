"""Run compiled code eagerly, for debugging: by a context manager or by the environment."""

from __future__ import annotations

from typing import Self

from lucid.ir.environment import EAGER
from lucid.ir.errors import OptionError

STANCES = ("default", "force_eager")
_current = STANCES[EAGER.read()]


def eager_is_forced() -> bool:
    """Whether compiled functions run as plain Python now."""
    return _current == "force_eager"


def place() -> tuple[dict[str, object], str, str]:
    """Where the stance stands, and what is there when compiled functions run natively."""
    return globals(), "_current", STANCES[0]


class set_stance:  # noqa: N801 - the name PyTorch gives it
    """Choose how compiled functions run: "default", or "force_eager" (op by op, pdb works).

    Holds from the call on, and until the end of the block when used as a context manager.

    Args:
        stance: "default" or "force_eager".

    Raises:
        OptionError: another one.

    >>> step = lucid.compile(lambda x: 2 * x)
    >>> with lucid.compiler.set_stance("force_eager"):
    ...     _ = step(lucid.ones(2))
    >>> step.stats.traces
    0
    """

    def __init__(self, stance: str = "default") -> None:
        global _current
        if stance not in STANCES:
            raise OptionError(f"unknown stance {stance!r}; there are {', '.join(STANCES)}")
        self._before = _current
        _current = STANCES[STANCES.index(stance)]  # that very object

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        global _current
        _current = self._before
