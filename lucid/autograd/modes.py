"""Whether ops record what their gradients need, per thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from inspect import isgeneratorfunction
from typing import Any, ParamSpec, Self, TypeVar, cast

from lucid.ir.errors import ArgumentError
from lucid.ir.frames import edge
from lucid.tensor.context import context, within

__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled"]

P = ParamSpec("P")
R = TypeVar("R")


def is_grad_enabled() -> bool:
    """Whether this thread records gradients, as it does outside of `no_grad`.

    >>> lucid.is_grad_enabled()
    True
    >>> with lucid.no_grad():
    ...     lucid.is_grad_enabled()
    False
    """
    return context.grad_enabled


class _GradMode:
    """A grad mode as a context manager and as a decorator."""

    mode: bool

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> Self:
        self._before.append(context.grad_enabled)
        context.grad_enabled = self.mode
        return self

    def __exit__(self, *_: object) -> None:
        context.grad_enabled = self._before[-1]  # without a call, behind which interrupts come
        del self._before[-1]

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if isgeneratorfunction(function):
            resumed: Any = _resumed_in(self.mode, function)
            return cast(Callable[P, R], edge(resumed))

        @wraps(function)
        def in_mode(*args: P.args, **kwargs: P.kwargs) -> R:
            return within({"grad_enabled": self.mode}, function, *args, **kwargs)

        return edge(in_mode)


def _resumed_in(mode: bool, function: Callable[..., Any]) -> Callable[..., Any]:
    """A generator function whose code runs in the mode, and whose callers don't meanwhile."""

    @wraps(function)
    def generated(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        resume: Callable[[], Any] = generator.__next__
        try:
            while True:
                given = within({"grad_enabled": mode}, resume)
                try:
                    sent = yield given
                    resume = partial(generator.send, sent)
                except GeneratorExit:
                    within({"grad_enabled": mode}, generator.close)
                    raise
                except BaseException as error:
                    resume = partial(generator.throw, error)
        except StopIteration as last:
            return last.value

    return generated


class no_grad(_GradMode):  # noqa: N801 - the name PyTorch gives it
    """Record no gradients: `with lucid.no_grad():`, or `@lucid.no_grad()`.

    What is computed in the block has no history, and nothing is saved for a backward.

    Args:
        function: what to decorate, where it is used as `@lucid.no_grad`.

    >>> x = lucid.ones(2, requires_grad=True)
    >>> with lucid.no_grad():
    ...     print((x * 2).requires_grad)
    False
    """

    mode = False

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        mode = super().__new__(cls)
        if function is None:
            return mode
        if not callable(function):
            raise ArgumentError(f"{cls.__name__}: a function is needed, not {function!r}")
        mode.__init__()  # type: ignore[misc]
        return mode(function)

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        super().__init__()


class enable_grad(no_grad):  # noqa: N801 - the name PyTorch gives it
    """Record gradients again, inside of `no_grad`: a context manager, also a decorator.

    Args:
        function: what to decorate, where it is used as `@lucid.enable_grad`.

    >>> x = lucid.ones(2, requires_grad=True)
    >>> with lucid.no_grad(), lucid.enable_grad():
    ...     print((x * 2).requires_grad)
    True
    """

    mode = True


class inference_mode(no_grad):  # noqa: N801 - the name PyTorch gives it
    """Record no gradients; the same as `no_grad`, under the name of PyTorch's stricter mode.

    Args:
        mode: False records gradients again, as `enable_grad` does; or what to decorate, where it is
            used as `@lucid.inference_mode`.

    Raises:
        ArgumentError: it is neither a bool nor a function.

    >>> x = lucid.ones(2, requires_grad=True)
    >>> with lucid.inference_mode():
    ...     print((x * 2).requires_grad)
    False
    """

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        if isinstance(mode, bool):
            return _GradMode.__new__(cls)
        return super().__new__(cls, mode)

    def __init__(self, mode: bool | Callable[..., Any] = True) -> None:
        super().__init__()
        self.mode = mode is False


class set_grad_enabled(_GradMode):  # noqa: N801 - the name PyTorch gives it
    """Set the grad mode, at once and until the end of the block if it is used as one.

    As a decorator it sets the mode for the calls of the function alone.

    Args:
        mode: whether gradients are recorded.

    >>> x = lucid.ones(2, requires_grad=True)
    >>> with lucid.set_grad_enabled(False):
    ...     print((x * 2).requires_grad)
    False
    """

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.mode = bool(mode)
        self._initial = context.grad_enabled
        context.grad_enabled = self.mode

    def __enter__(self) -> Self:
        self._before.append(self._initial)
        context.grad_enabled = self.mode
        return self

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        context.grad_enabled = self._initial
        return super().__call__(function)
