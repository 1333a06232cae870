"""Forward-mode derivatives by dual numbers: `dual_level`, `make_dual`, `unpack_dual`.

>>> import lucid
>>> from lucid.autograd import forward_ad
>>> x, v = lucid.tensor([1.0, 2.0]), lucid.tensor([1.0, 0.0])
>>> with forward_ad.dual_level():
...     y = forward_ad.make_dual(x, v) ** 2
...     print(forward_ad.unpack_dual(y).tangent)
tensor([2., 0.])
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Self, TypeVar

from lucid.ir.errors import ArgumentError, LucidError, OptionError
from lucid.ir.frames import edge
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.autograd.dual import DualLevel
    from lucid.tensor.core import TensorCore

__all__ = [
    "UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual",
    "unpack_dual",
]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")


class UnpackedDualTensor(NamedTuple):
    """A dual tensor's parts; the tangent is None for a tensor that has none.

    Args:
        primal: the tensor's value, another handle of it without a tangent.
        tangent: its derivative, of the same shape, or None.

    >>> from lucid.autograd import forward_ad
    >>> forward_ad.UnpackedDualTensor(lucid.tensor(1.0), None)
    UnpackedDualTensor(primal=tensor(1.), tangent=None)
    """

    primal: TensorCore
    tangent: TensorCore | None


def _current() -> DualLevel | None:
    from lucid.autograd.dual import DualLevel

    for level in reversed(context.levels):
        if isinstance(level, DualLevel) and level.is_users:
            return level
    return None


def enter_dual_level() -> int:
    """Begin a level, which dual tensors need; `dual_level` does it for a block. Returns 0.

    Raises:
        LucidError: inside of another level.

    >>> from lucid.autograd import forward_ad
    >>> level = forward_ad.enter_dual_level()
    >>> level
    0
    >>> forward_ad.exit_dual_level(level=level)
    """
    from lucid.autograd.dual import DualLevel

    if _current() is not None:
        raise LucidError("Nested forward mode AD is not supported at the moment")
    level = DualLevel(is_users=True)
    context.levels = [*context.levels, level]
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level that `enter_dual_level` has begun: its tangents vanish.

    Args:
        level: the one that is ended, 0. Default: None, the last one begun.

    Raises:
        LucidError: there is none, or it isn't the last one begun.

    >>> from lucid.autograd import forward_ad
    >>> level = forward_ad.enter_dual_level()
    >>> x = forward_ad.make_dual(lucid.tensor(3.0), lucid.tensor(1.0))
    >>> forward_ad.exit_dual_level(level=level)
    >>> print(forward_ad.unpack_dual(x).tangent)
    None
    """
    current = _current()
    if current is None:
        raise LucidError("Dual level must be a positive number.")
    if level not in (None, 0) or context.levels[-1] is not current:
        raise LucidError(
            "Trying to exit a forward AD level that was not the last one that was created. This "
            "is not supported."
        )
    context.levels = context.levels[:-1]
    current.end()


class dual_level:  # noqa: N801 - the name PyTorch gives it
    """Where dual tensors live: a context manager, also a decorator. Tangents end with the block.

    >>> from lucid.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     x = forward_ad.make_dual(lucid.tensor(3.0), lucid.tensor(1.0))
    ...     print(forward_ad.unpack_dual(x * x).tangent)
    tensor(6.)
    """

    def __enter__(self) -> Self:
        self._level = enter_dual_level()
        return self

    def __exit__(self, *_: object) -> None:
        exit_dual_level(level=self._level)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def in_level(*args: P.args, **kwargs: P.kwargs) -> R:
            with dual_level():
                return function(*args, **kwargs)

        return edge(in_level)


def _check_level(level: Any, op: str) -> None:
    if level is not None and (type(level) is not int or level != 0):
        raise OptionError(f"{op}: there is no level {level!r}; dual levels aren't nested: 0")


def make_dual(tensor: TensorCore, tangent: TensorCore, *, level: int | None = None) -> Any:
    """Return another handle of `tensor` that has a tangent; gradients flow through it.

    Shapes: the tangent as the tensor.
    dtype: the tangent is cast to the tensor's.

    Args:
        tensor: the primal, of a float dtype.
        tangent: the direction of the derivative, of a float dtype.
        level: 0, the only one, or None.

    Raises:
        LucidError: outside of a level, or for a tensor that has a tangent.
        ArgumentError: one of them is no tensor.
        OptionError: one of them isn't floating point, or there is no such level.
        ShapeError: their shapes differ.

    >>> from lucid.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     x = forward_ad.make_dual(lucid.tensor(3.0), lucid.tensor(1.0))
    ...     print(forward_ad.unpack_dual(x * x).tangent)
    tensor(6.)
    """
    from lucid.autograd.dual import linked_alias
    from lucid.tensor.core import TensorCore as Tensor

    _check_level(level, "make_dual")
    current = _current()
    if current is None:
        raise LucidError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    for name, value in (("primal", tensor), ("tangent", tangent)):
        if not isinstance(value, Tensor):
            raise ArgumentError(f"make_dual: {name} must be a Tensor, not {type(value).__name__}")
        if not value.dtype.is_floating_point:
            raise OptionError(f"Expected {name} to be floating point, but got: {value.dtype!r}")
    if current.has_tangent(tensor):
        raise LucidError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the "
            "same level 0 is not supported."
        )
    result = linked_alias(tensor)
    current.set_tangent(result, tangent)
    return result


def unpack_dual(tensor: TensorCore, *, level: int | None = None) -> UnpackedDualTensor:
    """Return the primal, as another handle without tangent, and the tangent.

    Outside of a level, and for a tensor that depends on no dual tensor, the tangent is None.

    Args:
        tensor: a tensor, dual or not.
        level: 0, the only one, or None.

    Raises:
        ArgumentError: it is no tensor.
        OptionError: there is no such level.

    >>> from lucid.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     x = forward_ad.make_dual(lucid.tensor(3.0), lucid.tensor(1.0))
    ...     print(forward_ad.unpack_dual(x.exp()))
    UnpackedDualTensor(primal=tensor(20.0855), tangent=tensor(20.0855))
    """
    from lucid.autograd.dual import linked_alias
    from lucid.tensor.core import TensorCore as Tensor

    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"unpack_dual: tensor must be a Tensor, not {type(tensor).__name__}")
    _check_level(level, "unpack_dual")
    current = _current()
    if current is None:
        return UnpackedDualTensor(tensor, None)
    tangent = current.tangent_of(tensor)
    primal = linked_alias(tensor)
    current.note(primal, None)
    return UnpackedDualTensor(primal, tangent)
