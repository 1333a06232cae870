"""The library's exceptions: each is a `LucidError` and the builtin that a reader expects.

`LucidError` is a `RuntimeError`, as PyTorch's own errors are, so `except RuntimeError` in a program
written for PyTorch goes on working; the other builtin comes by second inheritance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

# What `lucid` has too: the classes that programs catch.
__all__ = [
    "ArgumentError", "DTypeError", "FileFormatError", "IndexOutOfRangeError", "LucidError",
    "MissingRuleError", "NonFiniteError", "NotDifferentiableError", "OptionError", "ParseError",
    "ShapeError", "TooLargeError", "TraceError", "VerifyError",
]  # fmt: skip

ErrorType = TypeVar("ErrorType", bound=Exception)


class LucidError(RuntimeError):
    """Base of every error that lucid raises on purpose."""


def completed(error: ErrorType) -> ErrorType:
    """The error, to which nothing is to be added: its text is that of each call of a step."""
    error.__dict__["_is_complete"] = True
    return error


class ShapeError(LucidError, ValueError):
    """Shapes that don't fit the operation, or each other; a `ValueError` as well."""


class SizeError(ShapeError):
    """Sizes that no tensor can have."""


class TooLargeError(SizeError, MemoryError):
    """A value with more elements or bytes than can be counted, computed or held."""


class OutOfMemoryError(LucidError, MemoryError):
    """Too little memory to compile."""


class UnsupportedPythonError(LucidError, ImportError):
    """An interpreter whose objects native code can't work with."""


class DTypeError(LucidError, TypeError):
    """A dtype that the operation doesn't take, or dtypes that differ; a `TypeError` as well."""


class ArgumentError(LucidError, TypeError):
    """An argument of the wrong Python type, or a wrong number of them."""


class NotAnIndexError(ArgumentError, IndexError):
    """Something between `[` and `]` that no axis can be indexed with."""


class IndexShapeError(ShapeError, IndexError):
    """Index tensors whose shapes don't go together, or that aren't vectors where these are due."""


class DivisionByZeroError(LucidError, ZeroDivisionError):
    """An integer divided by 0, which is no integer."""


class LinAlgError(LucidError):
    """A matrix for which the result doesn't exist: singular, or not positive definite."""


class OptionError(LucidError, ValueError):
    """An argument of the right type with a value that makes no sense."""


class FileFormatError(OptionError):
    """A file that isn't what was saved: the message holds its path, the offset, what is wrong."""


class UnknownStageError(LucidError, KeyError):
    """A stage that this program hasn't, such as of a pass that changed nothing; a `KeyError`."""

    __str__ = RuntimeError.__str__  # KeyError would show the text's repr


class IndexOutOfRangeError(LucidError, IndexError):
    """An index outside of its axis, found while tracing, in eager mode, or by a compiled step."""


class TraceError(LucidError):
    """Something that can't be recorded: the message names the line and what would work."""


class EagerOnlyError(TraceError):
    """Something that only makes sense op by op: a compiled function that meets it runs eagerly.

    Attributes:
        kind: what reasons have in common of which one is enough to be said.
    """

    kind = ""

    def __init__(self, reason: str, kind: str = "") -> None:
        super().__init__(reason)
        self.kind = kind or self.kind or reason


class LeavesPath(LucidError):  # noqa: N818 - a finding, not an error
    """A condition that Python has looked at comes out otherwise than in the trace.

    Attributes:
        number: of the exit, among those of the step; found: the outcome.
        frame: what the host calls of the run have left.
    """

    number: int
    found: int
    frame: dict[Any, Any]


class NotFinite(LucidError):  # noqa: N818 - a finding: what it is about is looked for then
    """What a step would leave isn't all finite.

    Attributes:
        frame: what the host calls of the run have left.
    """

    frame: dict[Any, Any]


class NonFiniteError(LucidError, FloatingPointError):
    """An op has made a NaN or an infinity out of finite numbers; nothing was changed.

    Attributes:
        result: makes what the call returns all the same.
    """

    result: Callable[[], Any]


class AssertionFailedError(LucidError, AssertionError):
    """What `lucid.debug.assert_` says of a tensor that isn't all true."""


class NotDifferentiableError(LucidError):
    """A gradient was asked for where there is none."""


class ExampleDataError(LucidError):
    """The data of one example is asked for inside of a vmap, where all are computed at once."""


class MissingRuleError(LucidError, NotImplementedError):
    """A method that the user's class must provide, or an op without the rule that is asked for."""


class GradcheckError(LucidError):
    """The gradient of a function disagrees with its central difference."""


class ParseError(LucidError, ValueError):
    """IR text that isn't lucid IR: the message holds the line and a caret."""


class PassError(LucidError):
    """A pass of the user's that has raised an error, or doesn't say whether it changed anything."""


class VerifyError(LucidError):
    """A graph that breaks an invariant of the IR; made by a pass, the message names it."""
