"""What a compiled step does inside, and what in the compiler makes it do something else."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lucid.compiler.compiled import Compiled
from lucid.ir.errors import ArgumentError

if TYPE_CHECKING:
    from lucid.compiler.reports.bisecting import Bisection

__all__ = ["bisect"]


def bisect(
    step: Any, *args: Any, path: str | PathLike[str] | None = "reduced.lir", **kwargs: Any
) -> Bisection:
    """Find the first pass or kernel that changes what a compiled step means, in a small graph.

    The step is called twice with the arguments, as by `step.check`: it trains. Where it computes
    something else than its ops mean in NumPy, the stages of the compiler are compared one after the
    other, and nodes are left out of the graph before the wrong one as long as it goes wrong.

    Args:
        step: what `lucid.compile` returned.
        path: the file for the small graph's text; one beside it, `.npz`, gets the inputs. None:
            none are written, and none are where the step is right.

    Raises: what a call raises; `ArgumentError` if `step` isn't compiled; `LucidError` where nothing
    runs natively.

    >>> import lucid
    >>> step = lucid.compile(lambda x: x.tanh().sum())
    >>> print(lucid.debug.bisect(step, lucid.ones(3)))
    the step computes what its ops mean
    """
    from lucid.compiler.reports.bisecting import bisect as find

    if not isinstance(step, Compiled):
        raise ArgumentError(
            f"bisect: {type(step).__name__} is not a compiled function\n"
            "hint: lucid.debug.bisect(lucid.compile(f), *args)"
        )
    step._refuse_eager("bisect")
    found = None if path is None else Path(path)
    return find(lambda: step(*args, **kwargs), step._latest_program, found)
