"""The border of a module: Functions that show its hooks the gradients that cross it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lucid.autograd.engine import zeros_of
from lucid.autograd.function import Function
from lucid.autograd.hooks import check_replacement, name_of
from lucid.ir.errors import ArgumentError, LucidError
from lucid.ir.location import warn
from lucid.tensor.context import context
from lucid.tensor.tensor import Tensor

if TYPE_CHECKING:
    from lucid.ir.types import TensorType
    from lucid.nn.modules.module import Module

Gradients = tuple[Any, ...]
Hook = Callable[..., Any]
_BEFORE = "Backward pre hook", "grad_output"
_AFTER = "Backward hook", "grad_input"


class BackwardHookFunction(Function):
    """The identity on several tensors, whose node has the hooks."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.mark_non_differentiable(*[x for x in tensors if not x.requires_grad])
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Gradients:
        return gradients


class GradientBorder:
    """Calls a module's backward hooks when the gradients have come in, and when they go out.

    Attributes:
        grad_outputs: of the outputs, while the module's backward runs.
        inputs: which positional arguments are tensors; None when none of them requires grad.
    """

    def __init__(self, module: Module, hooks: Sequence[Hook], pre_hooks: Sequence[Hook]) -> None:
        self.module, self.hooks, self.pre_hooks = module, hooks, pre_hooks
        self.grad_outputs: Gradients | None = None
        self.inputs: list[int] | None = None
        self.input_types: list[TensorType] = []
        self.input_count = 0
        self.outputs: list[int] = []
        self.output_count = 0

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The module's arguments, with the inner side of the border as their history."""
        self.input_count = len(args)
        args, self.inputs = _tracked(args, self._leave_backward)
        self.input_types = [args[i]._type for i in self.inputs or ()]
        return args

    def leave(self, result: Any) -> Any:
        """The module's result, with the outer side of the border as its history."""
        values = result if isinstance(result, tuple) else (result,)
        self.output_count = len(values)
        values, outputs = _tracked(values, self._enter_backward)
        self.outputs = outputs or []
        return values if isinstance(result, tuple) else values[0]

    def _enter_backward(self, _: Gradients, grad_outputs: Gradients) -> Gradients:
        """The gradients of the outputs are known: run the pre-hooks, keep what they make of it."""
        known = _spread(grad_outputs, self.outputs, self.output_count)
        for hook in self.pre_hooks:
            known = self._replaced(hook(self.module, known), known, hook, _BEFORE)
        if self.inputs is None:
            self._call_without_inputs(known)
        else:
            self.grad_outputs = known
        return tuple(known[i] for i in self.outputs)

    def _call_without_inputs(self, grad_outputs: Gradients) -> None:
        warn(
            "Full backward hook is firing when gradients are computed with respect to module "
            "outputs since no inputs require gradients."
        )
        for hook in self.hooks:
            returned = hook(self.module, (None,) * self.input_count, grad_outputs)
            is_empty = isinstance(returned, tuple) and all(g is None for g in returned)
            if returned is not None and not is_empty:
                raise LucidError(
                    "Backward hook for Modules where no input requires gradient should always "
                    "return None or None for all gradients."
                )

    def _leave_backward(self, grad_inputs: Gradients, _: Gradients) -> Gradients | None:
        """The gradients of the inputs are known: run the hooks."""
        if self.grad_outputs is None:  # they didn't come through the outputs
            return None
        assert self.inputs is not None
        filled = [
            zeros_of(type) if gradient is None else gradient
            for type, gradient in zip(self.input_types, grad_inputs, strict=True)
        ]
        known = _spread(filled, self.inputs, self.input_count)
        for hook in self.hooks:
            returned = hook(self.module, known, self.grad_outputs)
            known = self._replaced(returned, known, hook, _AFTER)
        self.grad_outputs = None
        chosen = zip(self.inputs, grad_inputs, strict=True)
        return tuple(None if gradient is None else known[i] for i, gradient in chosen)

    def _replaced(
        self, returned: Any, known: Gradients, hook: Hook, kind: tuple[str, str]
    ) -> Gradients:
        """What a hook makes of the gradients that it saw. Raises for what can't replace them."""
        if returned is None:
            return known
        of = type(self.module).__name__
        if isinstance(returned, Tensor):
            returned = (returned,)
        if not isinstance(returned, (tuple, list)):
            raise ArgumentError(
                f"{kind[0]} must return None, a tensor or a tuple, not "
                f"'{type(returned).__name__}'\n  hook '{name_of(hook)}' of {of}"
            )
        if len(returned) != len(known):
            raise LucidError(
                f"{kind[0]} returned an invalid number of {kind[1]}, got {len(returned)}, but "
                f"expected {len(known)}\n  hook '{name_of(hook)}' of {of}"
            )
        for new, gradient in zip(returned, known, strict=True):
            if new is not None:
                check_replacement(hook, of, new, gradient)
        return tuple(returned)


def _tracked(
    values: tuple[Any, ...], hook: Callable[[Gradients, Gradients], Gradients | None]
) -> tuple[tuple[Any, ...], list[int] | None]:
    """The values, their tensors with a node that has the hook, and the places of these.

    No node and no places when no tensor requires grad.
    """
    places = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
    if not (context.grad_enabled and any(values[i].requires_grad for i in places)):
        return values, None
    tensors = BackwardHookFunction.apply(*[values[i] for i in places])
    node = next(t.grad_fn for t in tensors if t.grad_fn is not None)
    node.register_hook(hook)
    found = list(values)
    for place, tensor in zip(places, tensors, strict=True):
        found[place] = tensor
    is_plain = type(values) is tuple
    return tuple(found) if is_plain else type(values)(*found), places  # a named tuple


def _spread(gradients: Sequence[Any], places: Sequence[int], count: int) -> Gradients:
    """The gradients at their places among `count` values, None elsewhere."""
    found: list[Any] = [None] * count
    for place, gradient in zip(places, gradients, strict=True):
        found[place] = gradient
    return tuple(found)
