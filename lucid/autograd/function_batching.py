"""Custom Functions under vmap: by `vmap`, or by running forward and backward on handles.

Inside of the mapped function a call has a history on its handles. What is behind them needs one as
well, if a derivative is taken outside: then the call is one of a Function on the tensors with all
examples, whose forward and backward run the user's on handles of a vmap of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lucid.autograd import outputs as output_rules
from lucid.autograd.function import (
    BackwardCFunction,
    Function,
    FunctionMeta,
    _note_inputs,
    run_forward,
)
from lucid.autograd.function_levels import call_below, call_in_levels, is_differentiated, is_needed
from lucid.autograd.node import Edge
from lucid.autograd.private import custom_forward, recorded_edge
from lucid.autograd.returned import checked_gradients
from lucid.autograd.saved import SavedTensor
from lucid.ir import ops
from lucid.ir.errors import LucidError, OptionError
from lucid.ir.location import user_spot
from lucid.tensor.batched import BatchLevel, moved, outside
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.tree import broadcast_prefix, flatten, structure

if TYPE_CHECKING:
    from lucid.tensor.levels import Result


class VmapInfo(NamedTuple):
    """What a `vmap` staticmethod is told of the vmap."""

    batch_size: int
    randomness: str


def call_batched(
    level: BatchLevel,
    function: type[Function],
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
    position: int,
) -> Result:
    """Call a Function on inputs that are handles of a vmap."""
    has_rule = function.vmap is not Function.vmap
    if has_rule and function.generate_vmap_rule:
        raise LucidError(
            f"You tried to vmap over {function.__name__}, but it has both generate_vmap_rule=True "
            "and an overridden vmap staticmethod. Please set generate_vmap_rule=False or delete "
            "the overridden vmap staticmethod to avoid ambiguity."
        )
    if has_rule:
        return _by_rule(level, function, inputs, keywords, position)
    if not any(is_differentiated(level.inner(x)) for x in inputs):
        return call_below(function, inputs, keywords)
    return _by_handles(level, function, inputs, keywords)


# ---------------------------------------------------------------------- the user's rule


def _by_rule(
    level: BatchLevel,
    function: type[Function],
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
    position: int,
) -> Result:
    info, name = VmapInfo(level.size, level.randomness), function.__name__
    in_dims = tuple(x._given_axis if level.owns(x) else None for x in inputs)
    with outside(position):
        whole = [
            x if axis is None else moved(x._inner, 0, axis)
            for x, axis in zip(inputs, in_dims, strict=True)
        ]
        hosts = None if context.recorder is None else context.recorder.hosts
        with nullcontext() if hosts is None else hosts.attempt(f"{name}.vmap"):
            returned = function.vmap(info, in_dims, *whole, **keywords)
        output, out_dims = _output_and_dims(returned)
        front = _batch_first(output, out_dims)
    wrapped = [level.wrap(x) if is_batched else x for x, is_batched in front]
    result = tuple(wrapped) if isinstance(output, tuple) else wrapped[0]
    ctx = function._backward_cls()
    if not any(map(is_needed, inputs)):
        return result, ctx
    return _with_history(ctx, inputs, keywords, result)


def _output_and_dims(returned: Any) -> tuple[Any, Any]:
    """Take apart what a `vmap` staticmethod returned. Raises `LucidError`."""
    message = (
        "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree "
        "structure compatible with the output. "
    )
    if not isinstance(returned, tuple):
        raise LucidError(f"{message}Got a {type(returned)} instead")
    if len(returned) != 2:
        raise LucidError(f"{message}Got {len(returned)} returns instead")
    return returned


def _batch_first(output: Any, out_dims: Any) -> list[tuple[Any, bool]]:
    """The outputs, each with its batch axis in front, and whether it has one."""
    values = flatten(output)[0]
    dims = broadcast_prefix(out_dims, output)
    if dims is None:
        raise LucidError(
            "The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) "
            f"tuple. Expected out_dims={out_dims} to be compatible with the structure of `output`. "
            f"out_dims has structure {structure(out_dims)} but output has structure "
            f"{structure(output)}."
        )
    found = []
    for value, dim in zip(values, dims, strict=True):
        is_batched = dim is not None and isinstance(value, TensorCore)
        if is_batched and not -value.ndim <= dim < value.ndim:
            raise OptionError(f"vmap staticmethod: out_dim {dim} for an output of {value._type}")
        found.append((moved(value, dim, 0), True) if is_batched else (value, False))
    return found


def _with_history(
    ctx: BackwardCFunction, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any
) -> Result:
    """Give handles that a rule made the history that forward and setup_context describe."""
    is_differentiable = _note_inputs(ctx, inputs)
    ctx.needs_input_grad = tuple(map(is_needed, inputs))
    ctx._spot = user_spot()
    with custom_forward(is_differentiable) as outer:
        if ctx._forward_cls.setup_context is Function.setup_context:
            _replace_outputs(ctx, run_forward(ctx, inputs, keywords), output)
        else:
            set_up(ctx, inputs, output)
        finish = output_rules.Finish(ctx, inputs, is_differentiable, outer)
        return finish.finish(output), ctx


def set_up(ctx: BackwardCFunction, inputs: tuple[Any, ...], output: Any) -> None:
    """Run setup_context with gradients off."""
    from lucid.autograd.modes import no_grad

    with no_grad():
        ctx._forward_cls.setup_context(ctx, inputs, output)


def _replace_outputs(ctx: BackwardCFunction, raw: Any, final: Any) -> None:
    """Let ctx refer to the outputs that the caller gets, instead of those that forward made."""
    before = raw if isinstance(raw, tuple) else (raw,)
    after = final if isinstance(final, tuple) else (final,)
    new = {id(x): y for x, y in zip(before, after, strict=True)}

    def replaced(tensors: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        return None if tensors is None else tuple(new.get(id(x), x) for x in tensors)

    ctx.to_save = replaced(ctx.to_save)
    ctx.saved_for_forward = replaced(ctx.saved_for_forward)
    ctx.non_differentiable = replaced(ctx.non_differentiable) or ()
    ctx.dirty_tensors = replaced(ctx.dirty_tensors) or ()


# ---------------------------------------------------------------------- derived


class _Call:
    """One call of a Function on handles, seen from outside of the vmap.

    Attributes:
        handles: the inputs of the call.
        user: the ctx that the user's methods get.
        raw: what the user's forward returned, on handles.
        saved, forward_saved: whether what the user saved is batched.
        private_edges: the history on handles that forward gave to what it saved.
    """

    def __init__(
        self,
        level: BatchLevel,
        function: type[Function],
        handles: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> None:
        self.level = level
        self.function = function
        self.handles = handles
        self.keywords = keywords
        self.are_batched = tuple(map(level.owns, handles))
        self.user = function._backward_cls()
        self.raw: Any = None
        self.outputs: tuple[bool, ...] = ()
        self.saved: tuple[bool, ...] = ()
        self.forward_saved: tuple[bool, ...] = ()
        self.private_edges: tuple[Edge | None, ...] = ()

    def wrapped(self, values: Sequence[Any], are_batched: Sequence[bool]) -> tuple[Any, ...]:
        """Handles for what is batched."""
        return tuple(
            self.level.wrap(value) if is_batched and value is not None else value
            for value, is_batched in zip(values, are_batched, strict=True)
        )

    # The methods of the Function on tensors with all examples.

    def forward(self, ctx: BackwardCFunction, inners: tuple[Any, ...]) -> Any:
        level, user = self.level, self.user
        handles = tuple(
            own if level.inner(own) is inner else (level.wrap(inner) if is_batched else inner)
            for own, inner, is_batched in zip(self.handles, inners, self.are_batched, strict=True)
        )
        user._input_types = tuple(x._type if isinstance(x, TensorCore) else None for x in handles)
        user.needs_input_grad = ctx.needs_input_grad[1:]
        is_running = any(other is level for other in context.levels)
        forward = partial(run_forward, user, handles, self.keywords)
        raw = forward() if is_running else level.run(forward)
        self.raw = raw
        values = raw if isinstance(raw, tuple) else (raw,)
        self.outputs = tuple(map(level.owns, values))
        ctx.materialize_grads = user.materialize_grads
        if user.to_save is not None:
            self.saved = tuple(map(level.owns, user.to_save))
            tensors = [x for x in user.to_save if isinstance(x, TensorCore)]
            for outer in context.levels:
                for tensor in tensors:
                    outer.keep_private_history(tensor)
            self.private_edges = tuple(
                recorded_edge(x) if isinstance(x, TensorCore) else None for x in user.to_save
            )
            ctx.to_save = tuple(map(level.inner, user.to_save))
        if user.saved_for_forward is not None:
            self.forward_saved = tuple(map(level.owns, user.saved_for_forward))
            ctx.saved_for_forward = tuple(map(level.inner, user.saved_for_forward))
        ctx.dirty_tensors = tuple(map(level.inner, user.dirty_tensors))
        ctx.non_differentiable = tuple(map(level.inner, user.non_differentiable))
        inner = tuple(map(level.inner, values))
        return inner if isinstance(raw, tuple) else inner[0]

    def backward(self, ctx: BackwardCFunction, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        user, level = self.user, self.level
        user._shown_saved = self.wrapped(ctx.saved_tensors, self.saved)
        user.needs_input_grad = ctx.needs_input_grad[1:]
        tensors = [
            flag for flag, type in zip(ctx.needs_input_grad, ctx._input_types, strict=True) if type
        ]
        user._edges = tuple((user, 0) if flag else None for flag in tensors)

        def run() -> tuple[Any, ...]:
            returned = user.apply(*self.wrapped(gradients, self.outputs))
            parts = iter(checked_gradients(user, returned, self.function.backward))
            found = [None if type is None else next(parts) for type in user._input_types]
            pairs = zip(found, self.are_batched, strict=True)
            return (None, *(self._collected(part, flag) for part, flag in pairs))

        try:
            return level.run(run)
        finally:
            user._shown_saved = None

    def _collected(self, gradient: Any, is_batched: bool) -> Any:
        """The gradient of an input for all examples; of one that they share, the sum."""
        if gradient is None:
            return None
        whole = self.level.unwrap(gradient)
        return whole if is_batched else ops.sum(whole, axes=(0,))

    def jvp(self, ctx: BackwardCFunction, tangents: tuple[Any, ...]) -> Any:
        user, level = self.user, self.level
        user._shown_saved = self.wrapped(ctx.saved_tensors, self.forward_saved)

        def run() -> Any:
            returned = user.apply_jvp(*self.wrapped(tangents, self.are_batched))
            values = returned if isinstance(returned, tuple) else (returned,)
            pairs = zip(values, self.outputs, strict=False)
            found = tuple(self._tangent(value, flag) for value, flag in pairs)
            return found if isinstance(returned, tuple) else found[0]

        try:
            return level.run(run)
        finally:
            user._shown_saved = None

    def _tangent(self, value: Any, is_batched: bool) -> Any:
        if not isinstance(value, TensorCore):
            return value
        return self.level.unwrap(value) if is_batched else value


def _all_examples(function: type[Function]) -> type[Function]:
    """The Function on tensors with all examples, under the name of the one that it stands for."""

    def forward(ctx: BackwardCFunction, call: _Call, *inners: Any) -> Any:
        ctx.__dict__["_call"] = call
        return call.forward(ctx, inners)

    def backward(ctx: BackwardCFunction, *gradients: Any) -> Any:
        return ctx.__dict__["_call"].backward(ctx, gradients)

    def jvp(ctx: BackwardCFunction, _: Any, *tangents: Any) -> Any:
        return ctx.__dict__["_call"].jvp(ctx, tangents)

    methods: dict[str, Any] = {"forward": staticmethod(forward)}
    if function.backward is not Function.backward or function.vjp is not Function.vjp:
        methods["backward"] = staticmethod(backward)
    if function.jvp is not Function.jvp:
        methods["jvp"] = staticmethod(jvp)
    return cast("type[Function]", FunctionMeta(function.__name__, (Function,), methods))


def _by_handles(
    level: BatchLevel, function: type[Function], inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> Result:
    call = _Call(level, function, inputs, keywords)
    derived = function.__dict__.get("_all_examples")
    if derived is None:
        derived = _all_examples(function)
        type.__setattr__(function, "_all_examples", derived)
    result, outer = call_in_levels(derived, (call, *map(level.inner, inputs)), {})
    values = result if isinstance(result, tuple) else (result,)
    raw = call.raw if isinstance(call.raw, tuple) else (call.raw,)
    final = tuple(
        own if any(own is x for x in call.user.dirty_tensors) else wrapped
        for own, wrapped in zip(raw, call.wrapped(values, call.outputs), strict=True)
    )
    output = final if isinstance(result, tuple) else final[0]
    ctx = _inside(call, outer, inputs, output)
    is_differentiable = _note_inputs(ctx, inputs)
    ctx.needs_input_grad = tuple(map(is_needed, inputs))
    with custom_forward(is_differentiable) as enclosing:
        finish = output_rules.Finish(ctx, inputs, is_differentiable, enclosing)
        finished = finish.finish(output)
    for saved, edge in zip(ctx._saved or (), call.private_edges, strict=False):
        if isinstance(saved, SavedTensor) and saved.output_nr < 0:
            saved.private_edge = edge
    return finished, ctx


def _from_outside(level: BatchLevel, handle: TensorCore, inner: TensorCore) -> TensorCore:
    """A handle like another one, of a tensor that has a history outside of the vmap."""
    result = level.wrap(inner)
    for other in context.levels:
        other.alias(handle, result)
    return result


def _inside(
    call: _Call, outer: BackwardCFunction, inputs: tuple[Any, ...], output: Any
) -> BackwardCFunction:
    """The ctx for the history on handles; what is kept for outside then holds no outputs.

    What forward computed and saved has a history outside of the vmap, which `outer` kept.
    """
    user, ctx = call.user, call.function._backward_cls()
    skipped = ("_shown_saved", "_saved", "_freed")
    ctx.__dict__.update({k: v for k, v in user.__dict__.items() if k not in skipped})
    ctx._spot = user_spot()
    if outer._saved is not None and ctx.to_save is not None:
        triples = zip(ctx.to_save, outer._saved, call.saved, strict=True)
        ctx.to_save = tuple(
            _from_outside(call.level, own, saved.unpack(outer))
            if is_batched and isinstance(saved, SavedTensor) and saved.private_edge is not None
            else own
            for own, saved, is_batched in triples
        )
    _replace_outputs(ctx, call.raw, output)
    user.to_save = user.saved_for_forward = None
    user.dirty_tensors = user.non_differentiable = ()
    call.raw = None
    call.handles = (None,) * len(inputs)
    return ctx
