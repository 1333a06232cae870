"""The call of a graph's function: only between the outlining of regions and their inlining."""

from __future__ import annotations

from typing import NoReturn

from lucid.ir.errors import MissingRuleError
from lucid.ir.op import Op, declare


def _not_here(*operands: object, function: str) -> NoReturn:
    """Neither the types nor the meaning are the op's own: they are those of the function."""
    raise MissingRuleError(
        f"call: {function!r} has no meaning outside of its graph; inline it first"
    )


call = declare(Op("call", _not_here, _not_here, kind="call"))
