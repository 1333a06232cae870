"""Calls: of a graph's function (between outlining and inlining), and of Python on the host."""

from __future__ import annotations

from typing import NoReturn

from lucid.ir.errors import MissingRuleError
from lucid.ir.op import Op, declare


def _not_here(*operands: object, function: str) -> NoReturn:
    """Neither the types nor the meaning are the op's own: they are those of the function."""
    raise MissingRuleError(
        f"call: {function!r} has no meaning outside of its graph; inline it first"
    )


def _not_a_formula(*operands: object, function: str) -> NoReturn:
    """The types are those of the node, the meaning is Python's."""
    raise MissingRuleError(f"host: only a graph that holds {function!r} can call it")


call = declare(Op("call", _not_here, _not_here, kind="call"))
host = declare(Op("host", _not_a_formula, _not_a_formula, kind="host"))
