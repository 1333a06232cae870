"""`opt.step()` called from Python as one native call over all parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lucid.ir.errors import LucidError

if TYPE_CHECKING:
    from lucid.compiler.compiled import Compiled

WARM_UP = 2  # calls that run op by op: a program costs as much as some hundred of them
MANY = 4  # traces, after which what differs from call to call isn't followed any more


class Updating(Protocol):
    """What is asked of an optimizer."""

    def _step_groups(self) -> None: ...


class NativeStep:
    """Runs the updates of an optimizer: op by op at first, then as a compiled step of their own.

    An update of elements gives the same bits in both, so that it doesn't matter when they change
    over. One that sums, and so is rounded otherwise, is native from the first call on.

    Attributes:
        compiled: the step; None before, and again where it isn't worth it: the gradients that there
            are differ from call to call, or it can't be recorded.
    """

    def __init__(self, *, sums: bool) -> None:
        self.compiled: Compiled | None = None
        self._left = 0 if sums else WARM_UP

    def __call__(self, optimizer: Updating) -> None:
        """Update all parameters that have a gradient."""
        if self._left != 0:
            self._left -= 1
        elif self.compiled is None:
            self.compiled = _compiled(optimizer)
        compiled = self.compiled
        if compiled is None:
            optimizer._step_groups()
            return
        try:
            compiled()
        except LucidError:  # nothing has changed, and op by op it is raised again if it is real
            self._give_up()
            optimizer._step_groups()
        if compiled.stats.traces > MANY or compiled.stats.eager_reasons:
            self._give_up()

    def _give_up(self) -> None:
        self.compiled, self._left = None, -1


def _compiled(optimizer: Updating) -> Compiled:
    from lucid.compiler.compiled import Compiled

    def step() -> None:
        optimizer._step_groups()

    step.__name__ = step.__qualname__ = f"{type(optimizer).__name__}.step"
    return Compiled(step, "native")
