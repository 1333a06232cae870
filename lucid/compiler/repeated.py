"""Functions that a training loop calls from Python, such as `opt.step()`: soon one native call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid.autograd.any_size import makers
from lucid.compiler.compiled import Compiled, watcher
from lucid.compiler.options import Options
from lucid.ir.errors import LucidError
from lucid.ir.types import Shape, TensorType
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.tensor import Tensor

WARM_UP = 2  # calls that run op by op
WORTH = 100  # calls that a program must serve: it costs as much as so many of them
MOST_DOUBLED = 7  # how often the warm-up is, at most
MANY = 4  # traces, after which what differs from call to call isn't followed any more
KEPT = 64  # lists of shapes for which a function keeps programs


class WarmUps:
    """How many calls run op by op at first, by what earlier functions of one name have come to.

    An inner loop of meta-learning makes an optimizer for each task, and takes a few steps with it:
    a program for each would cost more than all its steps. The first `MANY` that don't pay are free;
    each further one doubles the warm-up.

    Attributes:
        made: programs; served: calls that they have.
    """

    def __init__(self) -> None:
        self.made = self.served = 0

    def calls(self) -> int:
        """The warm-up of the next function."""
        in_vain = self.made - self.served // WORTH
        return WARM_UP << min(max(in_vain - MANY, 0), MOST_DOUBLED)


_warm_ups: dict[str, WarmUps] = {}


class Repeated:
    """A function of tensors that runs op by op at first, then as a compiled step of its own.

    The tensors are arguments, so that calls with others of the same types go through one program.
    What only rounds elements gives the same bits in both, and it doesn't matter when they change
    over. What sums is rounded otherwise, and so is native from the first call on: a result mustn't
    depend on how many calls came before.

    Args:
        earlier: the types of a call with other sizes, where one program is to serve all sizes. It
            is the library's user who calls then, with operands that may be wrong.

    Attributes:
        compiled: the step; None before, and again where it isn't worth it: it can't be recorded,
            or calls differ in more than it follows.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        *,
        sums: bool,
        earlier: Sequence[TensorType] = (),
    ) -> None:
        self.compiled: Compiled | None = None
        self._earlier = earlier
        self._failures = 0  # one after the other
        self._function = function
        self._name = name
        self._warm_ups = _warm_ups.setdefault(name, WarmUps())
        self._left = 0 if sums else self._warm_ups.calls()

    def __call__(self, *tensors: TensorCore) -> Any:
        if watcher():
            return self._function(*tensors)
        compiled = self.compiled
        if compiled is None:
            if self._left != 0:
                self._left -= 1
                return self._function(*tensors)
            compiled = self.compiled = self._compiled()
            self._warm_ups.made += 1
        try:
            result = compiled(*tensors)
        except LucidError:  # nothing has changed, and op by op it is raised again if it is real
            self._failures += 1
            if not self._earlier or self._failures > MANY:
                self._give_up()
            return self._function(*tensors)
        self._failures = 0
        self._warm_ups.served += 1
        stats = compiled.stats
        if stats.traces > MANY or stats.eager_reasons:
            self._give_up()
        return result

    def _compiled(self) -> Compiled:
        function = self._function

        def step(*tensors: TensorCore) -> Any:
            return function(*tensors)

        step.__name__ = step.__qualname__ = self._name
        options = Options(fullgraph=bool(self._earlier))  # it raises where it'd run op by op
        return Compiled(step, options, is_paced=False, earlier=self._earlier)

    def _give_up(self) -> None:
        self.compiled, self._left = None, -1


class RepeatedByShape:
    """The same for a function that belongs to nobody: one `Repeated` for each list of shapes.

    It runs with gradients off. Calls that single ops serve as well stay op by op: in a trace, which
    records them, in vmap and custom forwards, and with tensors that are views, require grad or
    share memory.
    """

    def __init__(self, function: Callable[..., Any], name: str, *, sums: bool = False) -> None:
        self._function = function
        self._name = name
        self._sums = sums
        self._known: dict[tuple[Shape, ...], Repeated] = {}

    def __call__(self, *tensors: TensorCore) -> Any:
        before = context.grad_enabled
        context.grad_enabled = False
        try:
            if context.recorder is not None or not _are_plain(tensors):
                return self._function(*tensors)
            return self._of_shapes(tensors)(*tensors)
        finally:
            context.grad_enabled = before

    def _of_shapes(self, tensors: Sequence[TensorCore]) -> Repeated:
        """What calls with tensors of these shapes go through."""
        shapes = tuple([tensor._type.shape for tensor in tensors])
        found = self._known.get(shapes)
        if found is None:
            if len(self._known) >= KEPT:
                self._known.pop(next(iter(self._known)), None)
            found = self._known[shapes] = Repeated(self._function, self._name, sums=self._sums)
        return found


def _of_any_size(
    function: Callable[..., Any], name: str, earlier: Sequence[TensorType]
) -> Repeated:
    return Repeated(function, name, sums=True, earlier=earlier)


makers.append(_of_any_size)


def _are_plain(tensors: Sequence[TensorCore]) -> bool:
    """Whether each of them has memory of its own, and no history."""
    for tensor in tensors:
        if tensor.__class__ is not Tensor or tensor._requires_grad or tensor._base is not None:
            return False
    return len({tensor._storage for tensor in tensors}) == len(tensors)
