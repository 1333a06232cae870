"""Calls of a graph's functions: `call`, between outlining and inlining, and region ops.

And of Python on the host. A region op runs functions of the graph, its *bodies*, as often as it
says; what they read of the graph are operands. It stays one node: passes go into the bodies. One
whose bodies call Python says so, by `python`, and has an effect.
"""

from __future__ import annotations

from typing import NoReturn

from lucid.ir.errors import MissingRuleError
from lucid.ir.op import Op, declare
from lucid.ir.types import TensorType

__all__ = ["call", "cond", "host", "scan", "while_loop"]


def _not_here(*operands: object, function: str) -> NoReturn:
    """Neither the types nor the meaning are the op's own: they are those of the function."""
    raise MissingRuleError(
        f"call: {function!r} has no meaning outside of its graph; inline it first"
    )


def _not_a_formula(*operands: object, function: str) -> NoReturn:
    """The types are those of the node, the meaning is Python's."""
    raise MissingRuleError(f"host: only a graph that holds {function!r} can call it")


def _of_its_bodies(*operands: TensorType, **attributes: object) -> NoReturn:
    """The types and the meaning follow from those of the functions: `lucid/ir/region_ops.py`."""
    raise MissingRuleError("a region op has no meaning outside of the graph that has its bodies")


def _of_its_body(
    *operands: TensorType,
    function: str,
    carries: int,
    rows: int,
    length: int,
    reverse: bool,
    python: bool = False,
) -> NoReturn:
    _of_its_bodies()


def _of_its_branches(
    *operands: TensorType, function: str, otherwise: str, python: bool = False
) -> NoReturn:
    _of_its_bodies()


def _of_its_round(
    *operands: TensorType,
    function: str,
    carries: int,
    rows: int,
    length: int,
    python: bool = False,
) -> NoReturn:
    _of_its_bodies()


cond = declare(Op("cond", _of_its_branches, _of_its_bodies, kind="region"))
"""Operands: a bool[], and what the bodies read. The results are those of `function`, or where it is
false those of `otherwise`: both take the same, and give the same types."""
call = declare(Op("call", _not_here, _not_here, kind="call"))
host = declare(Op("host", _not_a_formula, _not_a_formula, kind="host"))
scan = declare(Op("scan", _of_its_body, _of_its_bodies, kind="region"))
"""Operands: `carries` values to begin with, `rows` tensors of `length` rows, and what the body
reads besides. In each round the body gets the carry, a row of each and the rest; it gives the carry
of the next round, and a row of each of the further results. The last carry, then these, are the
results. With `reverse` the rounds go from the last row to the first. A `check` in a body says what
the graph around has checked of all rounds."""
while_loop = declare(Op("while_loop", _of_its_round, _of_its_bodies, kind="region"))
"""A `scan` whose number of rounds its first two carries decide: a bool, as long as which there is
another round, and an i64, the row that this round reads and fills; below 0 it is the first one,
behind `length` the last one. Rows that no round has filled are zero. The condition is computed by
the body, of the carry that it gives, and once by the graph around, of the first carry (loop
inversion): so it shares values and kernels with the body."""
