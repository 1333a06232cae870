"""`opt.step()` called from Python as one native call over all parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from lucid.compiler.recording import hooks
from lucid.compiler.repeated import Repeated
from lucid.tensor.context import epoch
from lucid.tensor.tensor import Tensor

if TYPE_CHECKING:
    from lucid.compiler.compiled import Compiled
    from lucid.optim.groups import ParamGroup


class Updating(Protocol):
    """What is asked of an optimizer."""

    param_groups: list[ParamGroup]

    def trace_name(self) -> str: ...
    def _step_groups(self, gradients: Sequence[Tensor | None]) -> None: ...


class NativeStep:
    """Runs the updates of an optimizer: op by op at first, then as a compiled step of their own.

    The gradients are its arguments. Which parameters have one is what it is specialized on.
    """

    def __init__(self, optimizer: Updating, *, sums: bool) -> None:
        self._optimizer = optimizer
        self._has_gradient: list[bool] = []
        name = f"{type(optimizer).__name__}.step"
        self._repeated = Repeated(self._update, name, sums=sums)

    @property
    def compiled(self) -> Compiled | None:
        """The step; None before, and again where it isn't worth it."""
        return self._repeated.compiled

    def __call__(self) -> None:
        """Update all parameters that have a gradient."""
        groups = self._optimizer.param_groups
        gradients = [p._grad for group in groups for p in group.raw("params")]
        has_gradient = [gradient is not None for gradient in gradients]
        if has_gradient != self._has_gradient:
            self._has_gradient = has_gradient
            epoch.count += 1
        self._repeated(*[gradient for gradient in gradients if gradient is not None])

    def _update(self, *gradients: Tensor) -> None:
        recorder, expected = hooks.running.recorder, self._has_gradient
        if recorder is not None:
            which = f"which parameters of {self._optimizer.trace_name()} have a gradient"
            recorder.guard_value(which, lambda: self._has_gradient, expected, gated=True)
        found = iter(gradients)
        self._optimizer._step_groups([next(found) if has else None for has in expected])
