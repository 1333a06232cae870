"""Transformations of what ops do: each is a level, and the innermost one acts first.

A level knows its tensors: the handles of one vmap, the tensors with a tangent in one forward-mode
derivative. An op on them is the level's to carry out, with ops on what is outside of it, so that
any nesting works and everything below (autograd, traces) knows nothing of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from lucid.tensor.context import context, within

if TYPE_CHECKING:
    from lucid.autograd.function import BackwardCFunction, Function
    from lucid.ir.op import Attributes, Op
    from lucid.tensor.core import TensorCore

R = TypeVar("R")
Result = tuple[Any, "BackwardCFunction"]


class Level(ABC):
    """A transformation that runs.

    Attributes:
        combines: whether ops may come to it as one, which writes in place.
    """

    combines: ClassVar[bool] = False

    def run(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """What a function returns that has this as its innermost level."""
        state = {"levels": [*context.levels, self], "visible": context.visible}
        return within(state, function, *args, **kwargs)

    @abstractmethod
    def acts_on(self, op: Op | None, tensors: Sequence[Any], position: int) -> bool:
        """Whether some of the tensors are the level's own.

        Args:
            op: what is applied to them; None: a write, or a custom Function.
            position: the level's place in the stack of levels.
        """

    @abstractmethod
    def apply(
        self, op: Op, operands: Sequence[TensorCore], attributes: Attributes, position: int
    ) -> TensorCore:
        """Apply an op to operands that this level acts on."""

    @abstractmethod
    def write(self, target: TensorCore, value: TensorCore, position: int) -> None:
        """Write in place, where this level acts on target or value."""

    def update(
        self, target: TensorCore, op: Op, operands: Sequence[TensorCore], attributes: Attributes
    ) -> bool:
        """Let an op replace elements of its operand that shows the target's memory, in place.

        False: it isn't done; the op's result is to be written.
        """
        return False

    @abstractmethod
    def call(
        self,
        function: type[Function],
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        position: int,
    ) -> Result:
        """Call a custom Function on inputs that this level acts on; return its ctx as well."""

    def keep_private_history(self, tensor: TensorCore) -> None:
        """Keep what the custom forward that runs knows of the tensor's tangent, past its end."""
        return

    def map_tangent(self, tensor: TensorCore, function: Callable[[TensorCore], TensorCore]) -> None:
        """Let the tensor's tangent, if it has one, be what the function returns for it."""
        return

    def alias(self, tensor: TensorCore, alias: TensorCore) -> None:
        """Let another handle of the same memory be to this level what the tensor is."""
        return

    def look(self, tensor: TensorCore) -> None:
        """Note that the call looks at the numbers of a tensor, and may go on by them."""
        return

    def program(self, function: type[Function], inputs: tuple[Any, ...]) -> Any:
        """What a Function of the library's returns that is a program outside of the level.

        `NotImplemented`: inside of it goes op by op.
        """
        return NotImplemented

    def find(
        self, name: str, find: Callable[..., Sequence[np.ndarray]], tensors: Sequence[TensorCore]
    ) -> Sequence[TensorCore] | None:
        """Tensors of what `find(*arrays)` gives, of sizes that follow from those of the arrays.

        None: that it is called with is nothing to the level.
        """
        return None

    def share_history(
        self,
        node: Callable[[TensorCore, Sequence[TensorCore]], object],
        of: TensorCore,
        parts: Sequence[TensorCore],
    ) -> None:
        """Note that outside of the level the parts of a tensor get one node in place of theirs."""
        return

    def turn(self) -> None:
        """Note that the call goes another way than it would outside of the level."""
        return

    def checks(self, tensor: TensorCore, test: Callable[[np.ndarray], bool]) -> bool:
        """Note that the call goes on if a test of a tensor's numbers says so, which it does now."""
        return False


def note_turn() -> None:
    """Tell the levels that a call goes another way because of them, or by settings."""
    for level in context.levels:
        level.turn()


def are_checked(tensor: TensorCore, test: Callable[[np.ndarray], bool]) -> bool:
    """Whether the innermost level has looked whether the numbers of a tensor pass a test."""
    return context.recorder is None and context.levels[-1].checks(tensor, test)


def acting_level(op: Op | None, tensors: Sequence[Any]) -> tuple[Level, int] | None:
    """The innermost level that acts on the tensors, and its position."""
    levels = context.levels
    for position in range(len(levels) - 1, -1, -1):
        level = levels[position]
        if level.acts_on(op, tensors, position):
            return level, position
    return None
