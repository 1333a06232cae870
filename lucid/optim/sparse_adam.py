"""SparseAdam: there for programs that name it."""

from __future__ import annotations

from typing import Any

from lucid.ir.errors import OptionError
from lucid.optim.optimizer import Optimizer


class SparseAdam(Optimizer):
    """Raises `OptionError`: gradients are never sparse here, and this one takes no others.

    Args:
        args, kwargs: not looked at.

    Example:
        >>> lucid.optim.SparseAdam([lucid.ones(1)])
        Traceback (most recent call last):
        lucid.ir.errors.OptionError: SparseAdam does not support dense gradients, and gradients ...
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise OptionError(
            "SparseAdam does not support dense gradients, and gradients are never sparse here\n"
            "hint: lucid.optim.Adam; it also moves the rows of an embedding that got no gradient"
        )
