"""Functions whose result is their first operand but for some elements.

Such a function says what the elements become. It returns a tensor of its own, and its variant that
ends with an underscore takes the time of the elements that it writes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import NamedTuple, ParamSpec

from lucid.functions.tensors import Tensor
from lucid.ir.op import Attributes, Op
from lucid.tensor.core import apply_op
from lucid.tensor.writing import overwrite_, write_

P = ParamSpec("P")


def _itself(x: Tensor) -> Tensor:
    return x


class Update(NamedTuple):
    """What a tensor becomes, not computed yet.

    Attributes:
        op: one that replaces elements of an operand, which shows the tensor.
        operands, attributes: the op's.
        seen: gives the tensor's own shape to the op's result.
    """

    op: Op
    operands: Sequence[Tensor]
    attributes: Attributes
    seen: Callable[[Tensor], Tensor] = _itself

    def result(self) -> Tensor:
        """A tensor of its own."""
        return self.seen(apply_op(self.op, self.operands, self.attributes))  # type: ignore[arg-type]

    def write(self, target: Tensor) -> Tensor:
        """Write it into the tensor, and return that."""
        if overwrite_(target, self.op, self.operands, self.attributes):
            return target
        return write_(target, self.result())


def updating(function: Callable[P, Update | Tensor]) -> Callable[P, Tensor]:
    """Return the function that gives a tensor; `in_place` finds the one that says what it becomes.

    That may be a tensor already, where it takes more than an op.
    """

    @wraps(function)
    def updated(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        made = function(*args, **kwargs)
        return made.result() if isinstance(made, Update) else made

    shown: Callable[..., Tensor] = updated
    vars(shown)["update"] = function
    vars(shown)["__signature__"] = inspect.signature(function).replace(return_annotation="Tensor")
    updated.__annotations__["return"] = "Tensor"
    return updated
