"""The `jvp` and the `vmap` of a custom Function as host calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lucid.autograd.host_calls import HostForward
from lucid.autograd.host_world import NOWHERE
from lucid.autograd.returned import type_name
from lucid.ir.errors import ArgumentError
from lucid.ir.hosts import Frame
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.autograd.function import BackwardCFunction


@dataclass(slots=True, eq=False)
class HostJvp(HostForward):
    """The jvp of one call of a Function: a call of its own, which gets tangents.

    Its inputs are the tangents and, where forward was recorded, first what is on ctx: attributes
    in a dict, and the tensors saved for it.

    Attributes:
        of: the host call whose ctx it gets; None: forward was recorded.
    """

    of: HostForward | None = None

    @property
    def method(self) -> Callable[..., Any]:
        return self.function.jvp

    @property
    def name(self) -> str:
        return f"{self.function.__name__}.jvp"

    def _called(
        self,
        frame: Frame,
        ctx: BackwardCFunction,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> Any:
        attributes, saved, *tangents = inputs
        if self.of is not None:
            given = frame[self.of]
            saved = given.saved_for_forward or ()
        else:
            given = self.function._backward_cls()
            given._line, given._input_types = self.line, self.input_types
            given._edges = tuple((NOWHERE, 0) if edge else None for edge in self.has_edge)
            vars(given).update(attributes)
        given.needs_input_grad = self.needs_input_grad
        before, given._shown_saved = given._shown_saved, saved
        try:
            returned = given.apply_jvp(*tangents)
        finally:
            given._shown_saved = before
        for index, value in enumerate(returned if isinstance(returned, tuple) else (returned,)):
            if value is not None and not isinstance(value, TensorCore):
                raise ArgumentError(
                    f"Function {self.function.__name__}'s jvp: expected Variable or None (got "
                    f"{type_name(value)}) for grad output {index}."
                )
        return returned


@dataclass(slots=True, eq=False)
class HostVmap(HostForward):
    """The `vmap` staticmethod of a Function; what it says of its outputs' axes is a constant.

    Attributes:
        info, in_dims: its first arguments.
    """

    info: Any = None
    in_dims: tuple[Any, ...] = ()

    @property
    def method(self) -> Callable[..., Any]:
        return self.function.vmap

    @property
    def name(self) -> str:
        return f"{self.function.__name__}.vmap"

    def _called(
        self,
        frame: Frame,
        ctx: BackwardCFunction,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> Any:
        from lucid.autograd.function_batching import output_and_dims

        returned = self.function.vmap(self.info, self.in_dims, *inputs, **keywords)
        output, dims = output_and_dims(returned)
        vars(ctx)["out_dims"] = dims
        return output

    def _said(self, ctx: BackwardCFunction) -> Any:
        return vars(ctx)["out_dims"]
