"""Custom Functions: a forward and its hand-written backward, as PyTorch's users know them.

A Function is called through `apply`. Its `ctx` is the node of the autograd graph, so it lives as
long as the output does. In a trace the ops of forward and backward are recorded like all others,
tagged with the call that they belong to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Self, TypeVar

from lucid.autograd import outputs as output_rules
from lucid.autograd.ctx_changes import noting_changes
from lucid.autograd.engine import BackwardRun, zeros_of
from lucid.autograd.function_arguments import bind_arguments
from lucid.autograd.node import (
    CustomNode,
    Gradient,
    Gradients,
    Node,
    edge_of,
    origin_line,
)
from lucid.autograd.private import custom_forward, private_edge
from lucid.autograd.returned import checked_gradients, type_name
from lucid.autograd.saved import FREED, SavedTensor
from lucid.docstrings import like
from lucid.ir.errors import ArgumentError, ExampleDataError, LucidError, MissingRuleError
from lucid.ir.frames import edge
from lucid.ir.location import user_spot, warn
from lucid.ir.types import TensorType
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.sparse.saved import SavedSparse
    from lucid.tensor.core import TensorCore
_R = TypeVar("_R")


class FunctionCtx:
    """What a Function's forward leaves for its backward, and for its `jvp`.

    Every method but `forward` of the style with `setup_context` gets one as its first argument; one
    is made for each call.

    Attributes:
        needs_input_grad: one bool per argument of `apply`; while a backward runs, False as well for
            inputs whose gradient nobody asked for.
        to_save: what `save_for_backward` was given, None before.

    >>> from lucid.autograd.function import FunctionCtx
    >>> class Double(lucid.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         print(isinstance(ctx, FunctionCtx), ctx.needs_input_grad)
    ...         return 2 * x
    >>> Double.apply(lucid.ones(2))
    True (False,)
    tensor([2., 2.])
    """

    needs_input_grad: tuple[bool, ...] = ()
    to_save: tuple[Any, ...] | None = None
    saved_for_forward: tuple[Any, ...] | None = None
    materialize_grads: bool = True
    dirty_tensors: tuple[Any, ...] = ()
    non_differentiable: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: TensorCore | None) -> None:
        """Keep tensors for the backward, in this order; each call replaces the one before.

        In the backward they are `ctx.saved_tensors`, which raises where one was written in place
        since.

        Args:
            *tensors: inputs, outputs or intermediates of the forward, and None.

        >>> class Square(lucid.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x * grad
        >>> x = lucid.tensor(3.0, requires_grad=True)
        >>> Square.apply(x).backward()
        >>> x.grad
        tensor(6.)
        """
        self.to_save = tensors

    def save_for_forward(self, *tensors: TensorCore | None) -> None:
        """Keep tensors for `jvp`, in this order; there they are `ctx.saved_tensors`.

        Args:
            *tensors: inputs, outputs or intermediates of the forward, and None.

        Raises:
            ArgumentError: anything else.

        >>> class Square(lucid.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_forward(x)
        ...         return x * x
        ...     @staticmethod
        ...     def jvp(ctx, tangent):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x * tangent
        >>> lucid.func.jvp(Square.apply, (lucid.tensor(3.0),), (lucid.tensor(1.0),))
        (tensor(9.), tensor(6.))
        """
        for position, tensor in enumerate(tensors):
            require_tensor(self, "save_for_forward can only save variables", tensor, position)
        self.saved_for_forward = tensors

    def mark_dirty(self, *tensors: TensorCore) -> None:
        """Say which inputs forward wrote in place; each must be returned.

        Raises: `LucidError` for one whose memory overlaps itself.

        Args:
            *tensors: inputs that were written.

        >>> class Double(lucid.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.mark_dirty(x)
        ...         return x.mul_(2)
        >>> Double.apply(lucid.ones(2))
        tensor([2., 2.])
        """
        from lucid.tensor.core import TensorCore
        from lucid.tensor.writing import refuse_overlaps

        for tensor in tensors:
            if isinstance(tensor, TensorCore):
                refuse_overlaps(tensor)
        self.dirty_tensors = tensors

    def mark_shared_storage(self, *pairs: Any) -> None:
        """Deprecated and without effect, as in PyTorch: sharing of memory is found without it.

        It warns with a `FutureWarning`.

        Args:
            *pairs: ignored: pairs of an input and an output.

        >>> import warnings
        >>> from lucid.autograd.function import FunctionCtx
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     FunctionCtx().mark_shared_storage()
        >>> caught[0].category.__name__
        'FutureWarning'
        """
        warn(
            "`mark_shared_storage` is deprecated. Tensors with shared storages are automatically "
            "tracked.",
            FutureWarning,
        )

    def mark_non_differentiable(self, *tensors: TensorCore) -> None:
        """Say which outputs have no gradient; the last call counts.

        Args:
            *tensors: outputs of the forward.

        >>> class Sign(lucid.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         y = x.sign()
        ...         ctx.mark_non_differentiable(y)
        ...         return y
        >>> Sign.apply(lucid.ones(2, requires_grad=True)).requires_grad
        False
        """
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether gradients that nobody sent arrive as zeros (the default) or as None.

        Args:
            value: False for None.

        >>> class Two(lucid.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.set_materialize_grads(False)
        ...         return x * 1, x * 2
        ...     @staticmethod
        ...     def backward(ctx, first, second):
        ...         return first if second is None else second * 2
        >>> x = lucid.ones(2, requires_grad=True)
        >>> Two.apply(x)[0].sum().backward()
        >>> x.grad
        tensor([1., 1.])
        """
        self.materialize_grads = bool(value)


def require_tensor(ctx: FunctionCtx, what: str, value: Any, position: int) -> None:
    """Let tensors and None pass, and refuse anything else.

    Args:
        ctx: the call's; messages name its Function and line.
        what: how the message begins.
        value: what was given.
        position: which argument it was, from 0.

    Raises:
        ArgumentError: the value is neither a tensor nor None.

    >>> from lucid.autograd.function import FunctionCtx, require_tensor
    >>> require_tensor(FunctionCtx(), "save_for_forward can only save variables", 3.0, 0)
    Traceback (most recent call last):
    lucid.ir.errors.ArgumentError: save_for_forward can only save variables, but argument 0...
    """
    from lucid.tensor.core import TensorCore

    if value is not None and not isinstance(value, TensorCore):
        where = ctx._origin_line() if isinstance(ctx, BackwardCFunction) else ""
        kind = type_name(value)
        raise ArgumentError(f"{what}, but argument {position} is of type {kind}{where}")


class BackwardCFunction(FunctionCtx, CustomNode):
    """The node of a custom Function's call, and the `ctx` that its methods get.

    Each Function has a subclass of its own, made by `FunctionMeta`.

    >>> from lucid.autograd.function import BackwardCFunction
    >>> class Double(lucid.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return 2 * x
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         return 2 * grad
    >>> node = Double.apply(lucid.ones(2, requires_grad=True)).grad_fn
    >>> isinstance(node, BackwardCFunction), node.name()
    (True, 'DoubleBackward')
    """

    _forward_cls: type[Function]
    _own_names: frozenset[str]  # of the attributes that are lucid's
    _host_forward: Any = None  # in a trace, the host call that made the ctx for the other methods
    _number: Any = None  # of a host call in rounds, which of the contexts that it left it is
    _native: Any = None  # what has run the call as a native program, and may run its backward

    def __init__(self) -> None:
        Node.__init__(self, (), ())
        self._saved: list[SavedTensor | SavedSparse | None] | None = None
        self._freed: str | None = None  # why nothing is saved any more
        self._is_running = False
        self._has_read: bool | None = None  # what was saved, in backward; None: it has not run
        self._frees_graph = False  # whether the backward walk that runs it frees what is saved
        self._input_types: tuple[TensorType | None, ...] = ()
        self._is_private = False  # its call was part of another forward
        self._shown_saved: tuple[Any, ...] | None = None  # what saved_tensors shows instead
        self._marked_outputs: tuple[int, ...] = ()  # positions of non-differentiable outputs
        self._scope = ""  # in a trace, the path of the Module that called the Function
        self._asked: set[str] | None = None  # while backward is watched, what it found missing

    def __copy__(self) -> Self:
        made = object.__new__(type(self))
        made.__dict__.update(vars(self))
        for name in Node.__slots__[2:]:  # behind its dict and what refers to it
            setattr(made, name, getattr(self, name))
        return made

    def __getattr__(self, name: str) -> Any:
        asked = vars(self).get("_asked")
        if asked is not None:
            asked.add(name)
        if self._host_forward is not None and context.recorder is not None:
            context.recorder.hosts.refuse_attribute(self, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _origin_line(self) -> str:
        """A line for messages: which Function, and where the user called it."""
        return origin_line(self._short_name(), self._line)

    # ---------------------------------------------------------------- saved tensors

    def _seal(self, output_numbers: dict[int, int]) -> None:
        """Take what forward saved, with its versions, once forward is over.

        A call in another forward runs with gradients off: what can't be saved is no error there,
        but for who asks for derivatives through it.

        Args:
            output_numbers: for the outputs, by id, which they are.
        """
        if self.to_save is None:
            return
        try:
            self._saved = [
                self._kept(tensor, position, output_numbers)
                for position, tensor in enumerate(self.to_save)
            ]
        except ArgumentError as error:
            if not self._is_private:
                raise
            self._freed = str(error).partition("\n")[0]
        self.to_save = None

    def _kept(
        self, tensor: Any, position: int, output_numbers: dict[int, int]
    ) -> SavedTensor | SavedSparse | None:
        if getattr(tensor, "is_sparse", False):
            from lucid.sparse.saved import SavedSparse

            return SavedSparse(tensor, self._is_private)
        require_tensor(self, "save_for_backward can only save variables", tensor, position)
        if tensor is None:
            return None
        return SavedTensor(tensor, output_numbers.get(id(tensor), -1), self._is_private)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The saved tensors. Raises when one was modified in place since, or all were freed."""
        self._has_read = True
        if self._shown_saved is not None:
            return self._shown_saved
        if self._freed is not None:
            raise LucidError(self._freed + self._origin_line())
        found = tuple(
            None if saved is None else saved.unpack(self, self._is_running)
            for saved in self._saved or ()
        )
        is_over = self._is_running or self._saved is not None  # in forward nothing is kept yet
        if is_over and self._forward_cls.clear_saved_tensors_on_access:
            self._saved, self._freed = None, READ_TWICE
        return found

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """Deprecated name of `saved_tensors`."""
        warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning)
        return self.saved_tensors

    def maybe_clear_saved_tensors(self) -> None:
        """Drop the saved tensors now, in a backward that would drop them at its end."""
        if self._frees_graph:
            self._release()

    def _release(self) -> None:
        if self._saved:
            self._saved = None
            self._freed = FREED

    @property
    def requires_grad(self) -> bool:
        return any(edge is not None for edge in self._edges)

    # ---------------------------------------------------------------- backward

    def apply(self, *gradients: Any) -> Any:
        """Call the user's backward on the gradients of the outputs, and return what it returns."""
        backward = backward_of(self._forward_cls)
        if backward is Function.backward:
            raise MissingRuleError(NO_BACKWARD + self._origin_line())
        try:
            if self._forward_cls.boxed_grads_call:
                return backward(self, list(gradients))
            return backward(self, *gradients)
        except ExampleDataError as error:
            raise _unmapped(self._forward_cls, "backward", error) from error

    def apply_jvp(self, *tangents: Any) -> Any:
        """Call the user's jvp on the tangents of the arguments."""
        try:
            return self._forward_cls.jvp(self, *tangents)
        except ExampleDataError as error:
            raise _unmapped(self._forward_cls, "jvp", error) from error

    def __call__(self, *gradients: TensorCore | None) -> Any:
        parts = self._differentiate(gradients)
        return parts[0] if len(parts) == 1 else parts

    def _apply_in_run(self, run: BackwardRun, gradients: Gradients) -> Gradients:
        """Run as part of a backward walk: inputs that nobody asked for don't need a gradient."""
        return self._in_run(run, self._differentiate, gradients)

    def _on_arrays_in_run(
        self, run: BackwardRun, gradients: Sequence[Gradient | None]
    ) -> Sequence[Gradient | None] | None:
        """The same on arrays; None where it isn't native, or not yet."""
        if self._native is None:
            return None
        return self._in_run(run, self._on_arrays, gradients)

    def _in_run(self, run: BackwardRun, function: Callable[[Any], _R], gradients: Any) -> _R:
        before = self.needs_input_grad, self._frees_graph
        edges = iter(self._edges)
        self.needs_input_grad = tuple(
            type is not None and run.matters(next(edges)) for type in self._input_types
        )
        self._frees_graph = not run.retain_graph
        try:
            return function(gradients)
        finally:
            self.needs_input_grad, self._frees_graph = before

    def _on_arrays(self, gradients: Sequence[Gradient | None]) -> Sequence[Gradient | None] | None:
        return None if self._native is None else self._native.on_arrays(self, gradients)

    def _differentiate(self, gradients: Gradients) -> Gradients:
        """Gradients of the outputs to one per tensor argument, checked."""
        name = self._forward_cls.__name__
        given = tuple(self._materialized(i, gradient) for i, gradient in enumerate(gradients))
        if self._native is not None:
            parts = self._native.differentiate(self, given)
            if parts is not NotImplemented:
                return parts  # type: ignore[no-any-return]
        backward, recorder = backward_of(self._forward_cls), context.recorder
        self._has_read = bool(self._has_read)
        if recorder is not None:
            hosts = recorder.hosts
            if self._host_forward is not None or hosts.takes(backward):
                return hosts.backward(self, given)
        with _region(f"{name}.backward", backward, scope=self._scope):
            before = self._is_running
            self._is_running = True
            try:
                with noting_changes(self):
                    returned = self.apply(*given)
            finally:
                self._is_running = before
            return checked_gradients(self, returned, backward)

    def _materialized(self, index: int, gradient: Any) -> Any:
        type = self._output_types[index]
        if gradient is None and self.materialize_grads and type is not None:
            return zeros_of(type)
        return gradient


NO_FORWARD = "You must implement the forward function for custom autograd.Function."
NO_BACKWARD = (
    "You must implement either the backward or vjp method for your custom autograd.Function to use "
    "it with backward mode AD."
)
BackwardCFunction._own_names = frozenset(
    (
        *vars(BackwardCFunction()),
        *BackwardCFunction.__annotations__,
        "needs_input_grad",
        "_metadata",
    )
)

READ_TWICE = (
    "saved_tensors can only be accessed once when clear_saved_tensors_on_access=True is set on the "
    "autograd.Function. Either access saved_tensors only once, or set "
    "clear_saved_tensors_on_access=False."
)


@contextmanager
def _region(name: str, *methods: Callable[..., Any], scope: str | None = None) -> Iterator[None]:
    """Tag what a trace records; the user's `methods`, if they leave it, become a host call.

    scope: the path of the Module that it belongs to; None: of the one that runs.
    """
    recorder = context.recorder
    if recorder is None:
        yield
    else:
        with recorder.region(name, scope=scope), recorder.hosts.attempt(name, *methods):
            yield


def backward_of(function: type[Function]) -> Callable[..., Any]:
    """Return the class's `backward` or `vjp`, whichever it defines.

    Of a class with neither it is `Function.backward`, which raises.

    Args:
        function: a subclass of `Function`.

    Raises:
        LucidError: it has both.

    >>> from lucid.autograd.function import backward_of
    >>> class Double(lucid.autograd.Function):
    ...     @staticmethod
    ...     def vjp(ctx, grad):
    ...         return 2 * grad
    >>> backward_of(Double) is Double.vjp
    True
    """
    has_backward = function.backward is not Function.backward
    has_vjp = function.vjp is not Function.vjp
    if has_backward and has_vjp:
        raise LucidError(
            "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You "
            f"should only implement one of them.\n  in {function.__name__}"
        )
    return function.vjp if has_vjp else function.backward


class FunctionMeta(type):
    """Gives every Function class the class of its nodes, `<Name>Backward`.

    Args:
        name: the class's name.
        bases: the classes that it inherits from.
        namespace: what its body defines.

    >>> class Double(lucid.autograd.Function):
    ...     pass
    >>> type(Double) is lucid.autograd.function.FunctionMeta, Double._backward_cls.__name__
    (True, 'DoubleBackward')
    """

    _backward_cls: type[BackwardCFunction]

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
        super().__init__(name, bases, namespace)
        cls._backward_cls = type(f"{name}Backward", (BackwardCFunction,), {"_forward_cls": cls})


class Function(metaclass=FunctionMeta):
    """Base class of custom Functions: override `forward` and `backward`, call `apply`.

    Either `forward(ctx, *args)`, or `forward(*args)` with `setup_context(ctx, inputs, output)`.

    Args:
        *args, **kwargs: for programs that make an instance, which warns: all methods are static.

    Raises:
        LucidError: an instance is called, as PyTorch's old Functions were.

    >>> class Square(lucid.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...     @staticmethod
    ...     def backward(ctx, grad_output):
    ...         (x,) = ctx.saved_tensors
    ...         return 2 * x * grad_output
    >>> x = lucid.tensor(3.0, requires_grad=True)
    >>> Square.apply(x).backward()
    >>> x.grad
    tensor(6.)
    """

    generate_vmap_rule = False
    surrogate_gradient = False  # backward isn't meant to be the derivative: nobody verifies it
    clear_saved_tensors_on_access = False  # they are read once, and dropped then
    boxed_grads_call = False  # backward gets one list that it may empty
    _call_natively: Any = None  # of the library's: runs calls outside of traces as native programs
    _calls_python = False  # such a program does: it is one for each size

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all "
            "static, so you should invoke them on the class itself.",
            DeprecationWarning,
        )

    @edge
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise LucidError(
            "Legacy autograd function with non-static forward method is not supported. "
            "Please use new-style autograd function with static forward method: "
            f"{type(self).__name__}.apply(...)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The computation; runs with gradients off.

        It returns a tensor, or a tuple of them and of other values. `ctx.save_for_backward` keeps
        what the backward needs.

        Args:
            *args: ctx first, unless there is a `setup_context`; then tensors and whatever else.
            **kwargs: the same, by name.

        Raises:
            MissingRuleError: the class has none.

        >>> class Square(lucid.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x * grad
        >>> x = lucid.tensor(3.0, requires_grad=True)
        >>> Square.apply(x).backward()
        >>> x.grad
        tensor(6.)
        """
        raise MissingRuleError(NO_FORWARD)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Where the two-method style saves for the backward; runs once, after forward.

        Args:
            inputs: the arguments of `forward`.
            output: what it has returned.

        Raises:
            MissingRuleError: the class has none.

        >>> class Square(lucid.autograd.Function):
        ...     @staticmethod
        ...     def forward(x):
        ...         return x * x
        ...     @staticmethod
        ...     def setup_context(ctx, inputs, output):
        ...         ctx.save_for_backward(*inputs)
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x * grad
        >>> x = lucid.tensor(3.0, requires_grad=True)
        >>> Square.apply(x).backward()
        >>> x.grad
        tensor(6.)
        """
        raise MissingRuleError("setup_context is not implemented.")

    @staticmethod
    @like(forward)
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Gradients of the outputs to gradients of the arguments, one for each.

        It returns one for each argument of `forward`, None for what is no tensor.

        Args:
            *grad_outputs: a gradient for each output, of its shape; zeros where nobody sent one.
        """
        raise MissingRuleError(NO_BACKWARD)

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """The other name of `backward`.

        A class defines one of the two, not both.

        Args:
            *grad_outputs: a gradient for each output.

        Raises:
            MissingRuleError: the class has none.

        >>> class Square(lucid.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x
        ...     @staticmethod
        ...     def vjp(ctx, grad):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x * grad
        >>> x = lucid.tensor(3.0, requires_grad=True)
        >>> Square.apply(x).backward()
        >>> x.grad
        tensor(6.)
        """
        raise MissingRuleError(NO_BACKWARD)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Tangents of the arguments to tangents of the outputs, one for each.

        Forward mode needs it: `lucid.func.jvp` and `forward_ad`. In it `ctx.saved_tensors` are what
        `ctx.save_for_forward` was given.

        Args:
            *grad_inputs: a tangent for each argument of `forward`: None for what is no tensor,
                zeros for a tensor that has none.

        Raises:
            MissingRuleError: the class has none.

        >>> class Square(lucid.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_forward(x)
        ...         return x * x
        ...     @staticmethod
        ...     def jvp(ctx, tangent):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x * tangent
        >>> lucid.func.jvp(Square.apply, (lucid.tensor(3.0),), (lucid.tensor(1.0),))
        (tensor(9.), tensor(6.))
        """
        raise MissingRuleError(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """All examples at once: return (output, out_dims).

        Without it, forward and backward run on batched tensors.

        Args:
            info: `batch_size`, how many examples there are, and `randomness`, as of `lucid.vmap`.
            in_dims: for each argument the mapped axis, None for what all examples share.
            *args: the arguments of `forward` with that axis, without ctx.

        Raises:
            MissingRuleError: the class has none.

        >>> class Sum(lucid.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x.sum()
        ...     @staticmethod
        ...     def vmap(info, in_dims, x):
        ...         return x.movedim(in_dims[0], 0).sum(1), 0
        >>> lucid.vmap(Sum.apply)(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([3., 7.])
        """
        raise MissingRuleError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or "
            "set generate_vmap_rule=True."
        )

    @classmethod
    @like(forward)
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call forward and record this Function's backward.

        It is how a Function is used; `forward` and `backward` are never called by hand.

        Args:
            *args: those of `forward`, without ctx.
            **kwargs: those of `forward`, by name.
        """
        if cls._call_natively is not None and not kwargs:
            output = cls._call_natively(args)
            if output is not NotImplemented:
                return output
        two_methods = cls.setup_context is not Function.setup_context
        inputs, keyword_only = bind_arguments(cls, two_methods, args, kwargs)
        if context.levels:
            from lucid.autograd.function_levels import call_in_levels

            return call_in_levels(cls, inputs, keyword_only)[0]
        return call_function(cls, inputs, keyword_only)[0]


def call_function(
    cls: type[Function],
    inputs: tuple[Any, ...],
    keyword_only: dict[str, Any],
    needed: Callable[[Any], bool] | None = None,
) -> tuple[Any, BackwardCFunction]:
    """Call forward and record the backward; return what forward returned, and the ctx.

    Args:
        cls: the Function.
        inputs: the arguments of forward, by position, without ctx.
        keyword_only: those that forward takes by name alone.
        needed: says of an input that a derivative is asked for, though it doesn't require grad.
            Default: None, of none.

    >>> from lucid.autograd.function import call_function
    >>> class Double(lucid.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return 2 * x
    >>> output, ctx = call_function(Double, (lucid.tensor(3.0),), {})
    >>> output, ctx.needs_input_grad
    (tensor(6.), (False,))
    """
    ctx = cls._backward_cls()
    ctx._spot = user_spot()
    recorder = context.recorder
    if recorder is not None:
        ctx._scope = recorder.scope
    is_differentiable = _note_inputs(ctx, inputs)
    if needed is not None:
        flags = zip(inputs, ctx.needs_input_grad, strict=True)
        ctx.needs_input_grad = tuple(flag or needed(x) for x, flag in flags)
    if recorder is not None and is_differentiable:
        recorder.note_function(ctx, inputs, keyword_only)
    if recorder is not None and recorder.hosts.takes(cls.forward):
        region: AbstractContextManager[None] = nullcontext()
        forward: Callable[..., Any] = functools.partial(
            recorder.hosts.forward, is_differentiable=is_differentiable
        )
    else:
        region, forward = _region(cls.__name__, cls.forward, cls.setup_context), run_forward
    with region, custom_forward(is_differentiable) as outer:
        output = forward(ctx, inputs, keyword_only)
        finish = output_rules.Finish(ctx, inputs, is_differentiable, outer)
        return finish.finish(output), ctx


def run_forward(
    ctx: BackwardCFunction, inputs: tuple[Any, ...], keyword_only: dict[str, Any]
) -> Any:
    """Return what forward returns, run with gradients off, and let `setup_context` save.

    Args:
        ctx: the call's, which forward or `setup_context` gets.
        inputs: the arguments of forward, without ctx.
        keyword_only: those that forward takes by name alone.

    Raises:
        MissingRuleError: the Function has no forward.

    >>> from lucid.autograd.function import run_forward
    >>> class Double(lucid.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return 2 * x
    >>> run_forward(Double._backward_cls(), (lucid.tensor(3.0),), {})
    tensor(6.)
    """
    cls = ctx._forward_cls
    if cls.forward is Function.forward:
        raise MissingRuleError(NO_FORWARD + ctx._origin_line())
    before = context.grad_enabled
    context.grad_enabled = False
    try:
        if cls.setup_context is Function.setup_context:
            return cls.forward(ctx, *inputs, **keyword_only)
        output = cls.forward(*inputs, **keyword_only)
        cls.setup_context(ctx, inputs, output)
        return output
    except ExampleDataError as error:
        raise _unmapped(cls, "forward", error) from error
    finally:
        context.grad_enabled = before


def _unmapped(cls: type[Function], method: str, error: ExampleDataError) -> LucidError:
    """What to say where a Function without a rule for vmap can't be run on all examples at once."""
    if cls.vmap is not Function.vmap:
        return LucidError(str(error))
    return LucidError(
        f"You tried to vmap over {cls.__name__}, but it does not have vmap support: it has no vmap "
        f"staticmethod, and its {method} can't run on all examples at once. "
        f"Please override and implement the vmap staticmethod.\n{error}"
    )


def _note_inputs(ctx: BackwardCFunction, inputs: Sequence[Any]) -> bool:
    """Note types and histories of the arguments; return whether the call is differentiable."""
    from lucid.tensor.core import TensorCore

    tensors = [x if isinstance(x, TensorCore) else None for x in inputs]
    ctx._input_types = tuple(None if x is None else x._type for x in tensors)
    ctx._is_private = not context.grad_enabled and context.forward is not None
    find = private_edge if ctx._is_private else edge_of
    edges = [None if x is None else find(x) for x in tensors]
    if context.recorder is not None:
        context.recorder.note_outer(*(x for x in tensors if x is not None))
    ctx._edges = tuple(e for e, x in zip(edges, tensors, strict=True) if x is not None)
    ctx.needs_input_grad = tuple(edge is not None for edge in edges)
    return (context.grad_enabled or ctx._is_private) and any(ctx.needs_input_grad)


class InplaceFunction(Function):
    """A Function that may work in place; kept for programs that name it.

    As a `Function`: what `forward` writes it has to say by `ctx.mark_dirty`.

    Args:
        inplace: what the attribute of the same name is set to.

    >>> class Double(lucid.autograd.function.InplaceFunction):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.mark_dirty(x)
    ...         return x.mul_(2)
    >>> Double.apply(lucid.ones(2))
    tensor([2., 2.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a backward whose result can't be differentiated again.

    Put it under `@staticmethod`. The backward runs with gradients off; differentiating its result
    raises `LucidError`, in `backward()` and in `autograd.grad`.

    Args:
        backward: a Function's `backward`.

    >>> class Square(lucid.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...     @staticmethod
    ...     @lucid.autograd.function.once_differentiable
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return 2 * x * grad
    >>> x = lucid.tensor(3.0, requires_grad=True)
    >>> (slope,) = lucid.autograd.grad(Square.apply(x) ** 2, x, create_graph=True)
    >>> slope.backward()
    Traceback (most recent call last):
    lucid.ir.errors.LucidError: trying to differentiate twice a function that was marked...
    """

    @functools.wraps(backward)
    def once(ctx: Any, *gradients: Any) -> Any:
        from lucid.tensor.core import TensorCore

        before = context.grad_enabled
        context.grad_enabled = False
        try:
            returned = backward(ctx, *gradients)
        finally:
            context.grad_enabled = before
        tensors = [g for g in gradients if isinstance(g, TensorCore)]
        if not before or not any(g.requires_grad for g in tensors):
            return returned
        return output_rules.refuse_second_derivative(ctx, tensors, returned)

    once.is_once_differentiable = True  # type: ignore[attr-defined]
    return edge(once)
