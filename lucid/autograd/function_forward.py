"""Forward-mode derivatives of custom Functions: by `jvp`, or derived from `backward`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lucid.autograd.engine import zeros_of
from lucid.autograd.entry_points import grad
from lucid.autograd.function import Function, _region
from lucid.autograd.function_levels import call_in_levels
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, EagerOnlyError, LucidError, MissingRuleError
from lucid.tensor.batched import innermost
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.autograd.dual import DualLevel
    from lucid.autograd.function import BackwardCFunction
    from lucid.tensor.levels import Result

Tangents = list[TensorCore | None]

NO_RULE = (
    "You must implement the jvp function for custom autograd.Function to use it with forward mode "
    "AD."
)


def call_dual(
    level: DualLevel, function: type[Function], inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> Result:
    """Call a Function on inputs with tangents, and give its outputs theirs."""
    tangents = [level.tangent_of(value) for value in inputs]
    with level.below():
        output, ctx = call_in_levels(function, inputs, keywords)
        outputs = output if isinstance(output, tuple) else (output,)
        has_rule = function.jvp is not Function.jvp
        rule = _by_jvp if has_rule else _by_backward
        with _region(f"{function.__name__}.jvp"):
            found = rule(ctx, inputs, outputs, tangents)
    for value, tangent in zip(outputs, found, strict=True):
        if isinstance(value, TensorCore):
            if any(value is x for x in inputs):
                level.overwrite(value, tangent)
            else:
                level.note_result(value, tangent)
    return output, ctx


# ---------------------------------------------------------------------- the user's rule


def _by_jvp(
    ctx: BackwardCFunction, inputs: Sequence[Any], outputs: Sequence[Any], tangents: Tangents
) -> Tangents:
    given = [
        ops.zeros_like(x) if tangent is None and ctx.materialize_grads and _is_real(x) else tangent
        for x, tangent in zip(inputs, tangents, strict=True)
    ]
    ctx._shown_saved = ctx.saved_for_forward or ()
    try:
        returned = ctx.apply_jvp(*given)
    finally:
        ctx._shown_saved = None
    return _Check(ctx, inputs, given).checked(returned, outputs)


def _is_real(value: Any) -> bool:
    return isinstance(value, TensorCore) and value.dtype.is_floating_point


class _Check:
    """The checks on what `jvp` returns. Raises `LucidError` that names Function and position."""

    def __init__(self, ctx: BackwardCFunction, inputs: Sequence[Any], given: Sequence[Any]) -> None:
        self.ctx = ctx
        self.inputs = inputs
        self.given = given
        self.name = f"Function {ctx._forward_cls.__name__}"

    def checked(self, returned: Any, outputs: Sequence[Any]) -> Tangents:
        """One tangent per output; None is a zero tangent."""
        values = returned if isinstance(returned, tuple) else (returned,)
        if returned is None:
            values = (None,) * len(outputs)
        if len(values) != len(outputs):
            raise LucidError(
                f"{self.name}'s jvp returned an invalid number of forward gradients (expected "
                f"{len(outputs)} but got {len(values)})"
            )
        pairs = zip(values, outputs, strict=True)
        return [self._checked(i, value, output) for i, (value, output) in enumerate(pairs)]

    def _checked(self, index: int, value: Any, output: Any) -> TensorCore | None:
        from lucid.autograd.dual import require_size

        is_differentiable = _is_real(output) and index not in self.ctx._marked_outputs
        if value is None:
            return ops.zeros_like(output) if is_differentiable else None
        if not isinstance(value, TensorCore):
            raise ArgumentError(
                f"{self.name}'s jvp: expected Variable or None (got {type(value).__name__}) for "
                f"grad output {index}."
            )
        if not is_differentiable:
            raise LucidError(
                f"{self.name}'s jvp returned a gradient at position {index}, but the corresponding "
                "forward output is not a differentiable Tensor. You should return None at that "
                "position instead."
            )
        require_size(output, value)
        self._require_same_aliasing(output, value)
        return value if value.dtype is output.dtype else ops.cast(value, dtype=output.dtype)

    def _require_same_aliasing(self, output: TensorCore, value: TensorCore) -> None:
        """Where forward wrote an input, or returns a view of one, jvp must do so with tangents."""
        for x, tangent in zip(self.inputs, self.given, strict=True):
            if not isinstance(x, TensorCore) or not _shares_memory(x, output):
                continue
            if output is x:
                if tangent is not None and value is not tangent:
                    raise LucidError(
                        f"{self.name}: An inplace custom Function is not modifying the forward "
                        "mode gradients inplace. If the forward is modifying an input inplace, "
                        "then the jvp function must modify the corresponding gradient inplace."
                    )
            elif value._base is None:
                raise LucidError(
                    f"{self.name}: A custom Function's forward is returning a view (or an input "
                    "as-is) but the jvp is not returning a view."
                )
            elif tangent is None or not _shares_memory(tangent, value):
                raise LucidError(
                    f"{self.name}: A custom Function is returning a view but the jvp is not "
                    "returning a view of the given grad input."
                )
            return


def _shares_memory(a: TensorCore, b: TensorCore) -> bool:
    return innermost(a)._storage is innermost(b)._storage


# ---------------------------------------------------------------------- derived


def _by_backward(
    ctx: BackwardCFunction, inputs: Sequence[Any], outputs: Sequence[Any], tangents: Tangents
) -> Tangents:
    """The transpose of what backward does to its gradients: d/du of (backward(u), tangents)."""
    function = ctx._forward_cls
    if function.backward is Function.backward and function.vjp is Function.vjp:
        raise MissingRuleError(f"{NO_RULE} ({function.__name__})")
    seeds = [_seed(y) if _is_real(y) else None for y in outputs]
    with _explained(function):
        parts = _backward_of_seeds(ctx, inputs, seeds, tangents)
    given = [t for x, t in zip(inputs, tangents, strict=True) if isinstance(x, TensorCore)]
    pairs = [
        (part, tangent)
        for part, tangent in zip(parts, given, strict=True)
        if part is not None and tangent is not None and part.requires_grad
    ]
    wanted = [seed for seed in seeds if seed is not None]
    if not pairs or not wanted:
        return [None] * len(outputs)
    with _explained(function):
        found = iter(
            grad(
                [part for part, _ in pairs],
                wanted,
                [tangent for _, tangent in pairs],
                create_graph=context.grad_enabled,
                allow_unused=True,
            )
        )
    return [None if seed is None else next(found) for seed in seeds]


@contextmanager
def _explained(function: type[Function]) -> Iterator[None]:
    """Say of an error of lucid's what it means here."""
    try:
        yield
    except EagerOnlyError:
        raise
    except LucidError as error:
        raise MissingRuleError(
            f"{NO_RULE}\n  {function.__name__}: no jvp could be derived from its backward, which "
            f"must be made of differentiable operations\nhint: define jvp\n{error}"
        ) from error


def _seed(output: TensorCore) -> TensorCore:
    seed = zeros_of(output._type)._same_memory()
    seed._requires_grad = True
    return seed


def _backward_of_seeds(
    ctx: BackwardCFunction, inputs: Sequence[Any], seeds: Sequence[Any], tangents: Tangents
) -> tuple[Any, ...]:
    """Run backward for the inputs that have a tangent, whether or not they require grad."""
    wanted = [tangent is not None for tangent in tangents]
    tensors = [flag for flag, x in zip(wanted, inputs, strict=True) if isinstance(x, TensorCore)]
    before = ctx._edges, ctx.needs_input_grad, context.grad_enabled
    if ctx._saved is None and ctx.to_save is not None:
        ctx._seal({})
    saved, freed = ctx._saved, ctx._freed
    ctx._edges = tuple((ctx, 0) if flag else None for flag in tensors)
    ctx.needs_input_grad = tuple(wanted)
    context.grad_enabled = True
    try:
        return ctx._differentiate(tuple(seeds))
    finally:
        ctx._edges, ctx.needs_input_grad, context.grad_enabled = before
        ctx._saved, ctx._freed = saved, freed
