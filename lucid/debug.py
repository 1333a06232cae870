"""What a compiled step does inside, and what in the compiler makes it do something else."""

from __future__ import annotations

import os
import pdb
import sys
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.compiler.compiled import Compiled
from lucid.functions import checks
from lucid.functions.arguments import kind_of
from lucid.functions.border import module_at_border
from lucid.functions.finding import computed
from lucid.ir.errors import ArgumentError, OptionError
from lucid.ir.location import user_frame
from lucid.ir.stepping import STEPPING
from lucid.tensor.batched import Batched
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, from_array

if TYPE_CHECKING:
    from lucid.compiler.reports.bisecting import Bisection

__all__ = ["assert_", "bisect", "breakpoint", "callback", "print"]


def callback(function: Callable[..., Any], *tensors: Any) -> None:
    """Call a function with the values of tensors, where this stands, at each call of the step.

    In a compiled step it is a call of Python, which no pass drops or moves past another: not what
    is printed at the end of a call, as by `print`. The function gets copies without history, and
    what it returns is nothing to the step; so it has no part in gradients. In a vmap it is called
    for one example after the other, in a loop for one round after the other; not again where a
    checkpointed block is computed again, or a step to be compared, as by `step.check`. What it
    raises ends the call of the step, which leaves all as it was; `functools.partial` binds what is
    no tensor.

    Args:
        function: gets the tensors, of a compiled step as well as in eager mode.
        *tensors: whose values it gets.

    Raises:
        ArgumentError: one of them isn't a tensor. What the function raises is raised as well.

    >>> seen = []
    >>> @lucid.compile
    ... def step(x):
    ...     lucid.debug.callback(lambda h: seen.append(h.tolist()), x * 2)
    ...     return x + 1
    >>> step(lucid.ones(2)), step(lucid.zeros(2))
    (tensor([2., 2.]), tensor([1., 1.]))
    >>> seen
    [[2.0, 2.0], [0.0, 0.0]]
    """
    for tensor in tensors:
        if not isinstance(tensor, TensorCore):
            raise ArgumentError(
                f"callback: the function gets tensors, not {type(tensor).__name__}\n"
                "hint: functools.partial(function, value) binds what is known while tracing"
            )
    recorder = context.recorder
    if context.repeats:
        return
    for example in _examples(tensors):
        detached = [tensor.detach() for tensor in example]
        if recorder is None:
            computed("debug.callback", _Call(function), detached)
            continue
        call = _Call(function, is_traced=True)
        recorder.hosts.find("debug.callback", call, detached, ())
        call.is_traced = False


def _examples(tensors: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The tensors of each example of the vmaps around, those of an outer one first."""
    levels = [t._level for t in tensors if isinstance(t, Batched)]
    if not levels:
        yield tensors
        return
    last = max(levels, key=context.levels.index)
    mapped = [isinstance(t, Batched) and t._level is last for t in tensors]
    for given in _examples(
        [t._inner if own else t for t, own in zip(tensors, mapped, strict=True)]
    ):
        count = given[mapped.index(True)].shape[0]
        for i in range(count):
            yield [t[i] if own else t for t, own in zip(given, mapped, strict=True)]


class _Call:
    """What a step calls: not while it is traced, as each call of it will."""

    def __init__(self, function: Callable[..., Any], *, is_traced: bool = False) -> None:
        self._function = function
        self.is_traced = is_traced

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        if not (self.is_traced or context.repeats):
            self._function(*(from_array(array.copy()) for array in arrays))
        return []


def print(format: str, *tensors: Any) -> None:
    """Print `format.format(*tensors)` where this stands, at each call, as `callback` would.

    Args:
        format: the text, with a `{}` for each tensor.
        *tensors: what is printed.

    Raises:
        ArgumentError: the text is none, or something else than tensors is to be printed.
        OptionError: where it is printed, the text doesn't go with the tensors.

    >>> step = lucid.compile(lambda x: lucid.debug.print("x = {}", x))
    >>> step(lucid.ones(2))
    x = tensor([1., 1.])
    """
    if not isinstance(format, str):
        raise ArgumentError(
            f"print: the text must be a str, not {kind_of(format)}\n"
            'hint: lucid.debug.print("{}", tensor)'
        )

    def write(*found: TensorCore) -> None:
        try:
            text = format.format(*found)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            many = f"{len(found)} tensor" + "s" * (len(found) != 1)
            raise OptionError(f"print: {format!r} doesn't go with {many}: {error}") from None
        sys.stdout.write(f"{text}\n")

    callback(write, *tensors)


def breakpoint() -> None:
    """Stop here in a debugger: in the eager call, or in the optimized graph of a compiled one.

    A step that is compiled with `mode="interpret"` runs the graph that the compiler has made, op by
    op, each one as a statement at its line in your file. The debugger stops behind this line; `n`
    goes on to the next op's, `p h` prints a value by its name in `step.dump_ir()`, which is your
    variable's if there is one, as an array of NumPy. A step that is compiled otherwise runs op by
    op where it stops: the debugger shows your own function and variables then. `PYTHONBREAKPOINT`
    and `sys.breakpointhook` are as for Python's `breakpoint`.

    >>> import lucid, sys
    >>> sys.breakpointhook = lambda: sys.stdout.write("stopped\\n")
    >>> step = lucid.compile(lambda x: lucid.debug.breakpoint() or x + 1, mode="interpret")
    >>> step(lucid.ones(2))
    stopped
    tensor([2., 2.])
    >>> sys.breakpointhook = sys.__breakpointhook__
    """
    recorder = context.recorder
    if recorder is None:
        _stop(user_frame())
    elif not context.interprets:
        recorder.run_op_by_op(
            "it stops at lucid.debug.breakpoint()\n"
            'hint: lucid.compile(mode="interpret") stops in the optimized graph'
        )
    else:
        call = _Call(_stop_in_graph, is_traced=True)
        recorder.hosts.find("debug.breakpoint", call, [], ())
        call.is_traced = False


def _stop_in_graph() -> None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and STEPPING not in frame.f_globals:
        frame = frame.f_back
    _stop(frame)


def _stop(frame: FrameType | None) -> None:
    """Enter the debugger in a frame, or do what the user has set in its place."""
    if sys.breakpointhook is not sys.__breakpointhook__ or "PYTHONBREAKPOINT" in os.environ:
        sys.breakpointhook()
    else:
        _Debugger(frame).set_trace(frame)


class _Debugger(pdb.Pdb):
    """Stops first at the next line of a frame, not in what runs before it goes on."""

    def __init__(self, frame: FrameType | None) -> None:
        super().__init__()
        self._first = frame

    def set_step(self) -> None:
        if self._first is None:
            super().set_step()
        else:
            frame, self._first = self._first, None
            self.set_next(frame)

    set_stepinstr = set_step  # as Python 3.13 begins


def assert_(condition: Any, message: str = "an assertion has failed") -> None:
    """Raise `AssertionFailedError` unless all elements of a tensor are true, at each call.

    In a compiled step it is a check, as that of an index: a call that fails leaves all as it was.
    It is never removed. The error is a `LucidError` and an `AssertionError`.

    Args:
        condition: a tensor, all of whose elements are to be true, or what Python takes for a truth.
        message: what the error says.

    >>> step = lucid.compile(lambda x: lucid.debug.assert_(x > 0, "x must be positive"))
    >>> step(lucid.zeros(2))
    Traceback (most recent call last):
    lucid.ir.errors.AssertionFailedError: x must be positive...
    """
    if not isinstance(condition, TensorCore):
        condition = from_array(np.asarray(bool(condition)))
    checks.require(condition != 0, message.replace("{}", "{{}}"), "assert")


def bisect(
    step: Any, *args: Any, path: str | PathLike[str] | None = "reduced.lir", **kwargs: Any
) -> Bisection:
    """Find the first pass or kernel that changes what a compiled step means, in a small graph.

    The step is called twice with the arguments, as by `step.check`: it trains. Where it computes
    something else than its ops mean in NumPy, the stages of the compiler are compared one after the
    other, and nodes are left out of the graph before the wrong one as long as it goes wrong.

    Args:
        step: what `lucid.compile` returned.
        args, kwargs: as of a call.
        path: the file for the small graph's text; one beside it, `.npz`, gets the inputs. None:
            none are written, and none are where the step is right.

    Raises: what a call raises; `ArgumentError` if `step` isn't compiled; `LucidError` where nothing
    runs natively.

    >>> step = lucid.compile(lambda x: x.tanh().sum())
    >>> str(lucid.debug.bisect(step, lucid.ones(3)))
    'the step computes what its ops mean'
    """
    from lucid.compiler.reports.bisecting import bisect as find

    if not isinstance(step, Compiled):
        raise ArgumentError(
            f"bisect: {type(step).__name__} is not a compiled function\n"
            "hint: lucid.debug.bisect(lucid.compile(f), *args)"
        )
    step._refuse_eager("bisect")
    found = None if path is None else Path(path)
    with step._programs.of_known_sizes():
        return find(lambda: step(*args, **kwargs), step._latest_program, found)


module_at_border(__name__)
