"""Transformations by reverse mode: `grad`, `value_and_grad`, `vjp`.

The function runs on other handles of its inputs, each with a node of its own that the engine stops
at. Their histories go on into those of the inputs, so that what an outer transformation
differentiates is found, and never mixed up with what this one does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from lucid.autograd.engine import BackwardRun, ones
from lucid.autograd.entry_points import checked_roots
from lucid.autograd.function import BackwardCFunction
from lucid.autograd.node import Edge, Gradients, Node, edge_of, iterate_graph
from lucid.autograd.saved import with_history
from lucid.autograd.transforms.arguments import Argnums, chosen, normalized, replaced
from lucid.autograd.transforms.vmapping import _as
from lucid.docstrings import like
from lucid.ir import ops
from lucid.ir.errors import LucidError, OptionError
from lucid.ir.frames import edge
from lucid.tensor.batched import Batched
from lucid.tensor.context import context, within
from lucid.tensor.core import TensorCore
from lucid.tensor.tree import flatten, structure


class InputNode(Node):
    """The history of an input inside of the function that is differentiated.

    It is an end as long as the function runs.
    """

    def __init__(self, tensor: TensorCore) -> None:
        edge = edge_of(tensor) if context.grad_enabled else None
        super().__init__((edge,), (tensor._type,))

    def apply(self, gradients: Gradients) -> Gradients:
        return gradients


def require_tensors(values: Sequence[Any]) -> None:
    """Raise `OptionError` for an input that is no tensor."""
    for value in values:
        if not isinstance(value, TensorCore):
            raise OptionError(f"Thing passed to transform API must be Tensor, got {type(value)}")


class Inputs:
    """The inputs that one transformation differentiates with respect to.

    Attributes:
        tensors: what the function gets for them.
        edges: where their gradients arrive.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        require_tensors(values)
        for value in values:
            if not value.dtype.is_floating_point:
                raise LucidError(
                    "only Tensors of floating point dtype can require gradients, not "
                    f"{value.dtype!r}"
                )
        self.nodes = [InputNode(value) for value in values]
        self.edges: list[Edge] = [(node, 0) for node in self.nodes]
        self.tensors = [value._alias() for value in values]
        for tensor, node in zip(self.tensors, self.nodes, strict=True):
            tensor._grad_fn, tensor._requires_grad = node, True

    def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """What the function returns, with gradients recorded whatever is set outside."""
        self._set_running(True)
        try:
            return within({"grad_enabled": True}, function, *args, **kwargs)
        finally:
            self._set_running(False)

    def _set_running(self, is_running: bool) -> None:
        for node in self.nodes:
            node._is_end = is_running

    def _is_outside(self, node: Node) -> bool:
        """Whether something outside may be differentiated with respect to what the node is of."""
        return node._is_end and node not in self.nodes

    def gradients(
        self, outputs: Sequence[TensorCore], seeds: Sequence[TensorCore | None], retain: bool
    ) -> list[TensorCore]:
        """The gradients of the outputs, zeros where they don't depend on an input.

        They are differentiable themselves as far as something outside could ask for it.
        """
        kept = [i for i, output in enumerate(outputs) if output.requires_grad]
        given = [seed for seed in seeds if seed is not None]
        create_graph = context.grad_enabled and self._may_be_differentiated([*outputs, *given])
        run = BackwardRun(retain or create_graph, create_graph, self.edges)
        run.run(checked_roots([outputs[i] for i in kept], [seeds[i] for i in kept], ones))
        found = [
            run.captured[edge] if edge in run.captured else ops.zeros_like(tensor)
            for edge, tensor in zip(self.edges, self.tensors, strict=True)
        ]
        return [self.freed(gradient) for gradient in found]

    def _may_be_differentiated(self, tensors: Sequence[TensorCore]) -> bool:
        """Whether the gradients' own history may matter: a custom backward may use anything."""
        return any(
            self._is_outside(node) or _is_users_function(node)
            for node in iterate_graph(_histories(tensors))
        )

    def freed(self, tensor: TensorCore) -> TensorCore:
        """The tensor without a history that ends at these inputs; its tangents are freed as well.

        Behind a handle of a vmap is a tensor with another history, that of what is outside.
        """
        result: TensorCore = tensor
        edge = edge_of(tensor)
        if isinstance(tensor, Batched):
            inner = self.freed(tensor._inner)
            if inner is not tensor._inner:
                result = tensor._level.wrap(inner)
                for level in context.levels:
                    level.alias(tensor, result)
        if edge is not None and not any(map(self._is_outside, iterate_graph([edge[0]]))):
            result = result._alias()
        elif edge is not None and result is not tensor:
            result = with_history(result, edge)
        for level in context.levels:
            level.map_tangent(result, self.freed)
        return result

    def freed_tree(self, tree: Any) -> Any:
        """As `freed`, for each tensor of a tree."""
        leaves, rebuild = flatten(tree)
        return rebuild([self.freed(x) if isinstance(x, TensorCore) else x for x in leaves])


def _histories(tensors: Sequence[TensorCore]) -> list[Node]:
    """The nodes that made the tensors, and what is behind them if they are handles of a vmap."""
    found = []
    for tensor in tensors:
        behind: TensorCore | None = tensor
        while behind is not None:
            if behind.requires_grad:
                edge = edge_of(behind)
                assert edge is not None
                found.append(edge[0])
            behind = behind._inner if isinstance(behind, Batched) else None
    return found


def _is_users_function(node: Node) -> bool:
    return isinstance(node, BackwardCFunction) and not (
        node._forward_cls.__module__.startswith("lucid.")
    )


def split_aux(result: Any, has_aux: bool, api: str) -> tuple[Any, Any]:
    """The function's output and what it returns beside it. Raises `LucidError` for no pair."""
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise LucidError(
            f"{api}: output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    return result


# ---------------------------------------------------------------------- grad


def _evaluated(
    func: Callable[..., Any],
    argnums: Argnums,
    has_aux: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Any, Any, Any]:
    """Gradients, value and aux of a function with a scalar result."""
    api = "grad_and_value(f)(*args)"
    numbers = normalized(argnums, len(args))
    leaves, rebuild = flatten(chosen(args, numbers))
    inputs = Inputs(leaves)
    result = inputs.run(func, *replaced(args, numbers, rebuild(list(inputs.tensors))), **kwargs)
    output, aux = split_aux(result, has_aux, api)
    if not isinstance(output, TensorCore):
        raise LucidError(f"{api}: Expected f(*args) to return a Tensor, got {type(output)}")
    if output.ndim:
        raise LucidError(
            f"{api}: Expected f(*args) to return a scalar Tensor, got tensor with {output.ndim} "
            "dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
        )
    gradients = rebuild(inputs.gradients([output], [None], retain=has_aux))
    return gradients, inputs.freed(output), inputs.freed_tree(aux)


def grad(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the function that computes the gradient of `func`, whose result is a scalar.

    The gradient has the structure of the argument `argnums`, or is a tuple for several; with
    `has_aux`, where `func` returns (output, aux), the result is (gradient, aux).

    Raises:
        LucidError: at the call, where the output is no 0-d tensor, or the arguments are too few.
        ArgumentError: at the call, where `argnums` is no int or tuple of ints.
        OptionError: at the call, where `argnums` is empty or names an argument twice.

    >>> lucid.func.grad(lucid.func.grad(lucid.sin))(lucid.tensor(0.5))
    tensor(-0.4794)
    """

    @_as(func)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        gradients, _, aux = _evaluated(func, argnums, has_aux, args, kwargs)
        return (gradients, aux) if has_aux else gradients

    return gradient


def grad_and_value(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the function that computes the gradient of `func` and, beside it, the value.

    As `grad`; the result is (gradient, value), or (gradient, (value, aux)) with `has_aux`.

    Args:
        func: a function of tensors whose result is a scalar.

    Raises:
        LucidError: at the call, where the output is no 0-d tensor, or the arguments are too few.

    >>> lucid.func.grad_and_value(lambda x: (x * x).sum())(lucid.tensor([1.0, 2.0]))
    (tensor([2., 4.]), tensor(5.))
    """

    @_as(func)
    def both(*args: Any, **kwargs: Any) -> Any:
        gradients, value, aux = _evaluated(func, argnums, has_aux, args, kwargs)
        return gradients, ((value, aux) if has_aux else value)

    return both


@like(grad_and_value)
def value_and_grad(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the function that computes `func` and, beside the value, the gradient.

    As `grad`; the result is (value, gradient), or ((value, aux), gradient) with `has_aux`.

    >>> lucid.func.value_and_grad(lambda x: (x * x).sum())(lucid.tensor([1.0, 2.0]))
    (tensor(5.), tensor([2., 4.]))
    """

    @_as(func)
    def both(*args: Any, **kwargs: Any) -> Any:
        gradients, value, aux = _evaluated(func, argnums, has_aux, args, kwargs)
        return ((value, aux) if has_aux else value), gradients

    return both


# ---------------------------------------------------------------------- vjp


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return `func(*primals)` and the function from its cotangents to those of the primals.

    The latter returns a tuple, one entry per primal; it may be called again, and mapped. With
    `has_aux` the result is (output, function, aux).
    Shapes: cotangents as the outputs, and what the function returns as the primals.

    Args:
        *primals: its arguments.

    Raises:
        LucidError: an output is no tensor, or not of a float dtype; at the function's call, where
            the cotangents' structure isn't the output's.

    >>> y, pull_back = lucid.func.vjp(lucid.sin, lucid.tensor([0.0, 1.0]))
    >>> pull_back(lucid.ones(2))
    (tensor([1.0000, 0.5403]),)
    """
    api = "vjp(f, *primals)"
    leaves, rebuild = flatten(primals)
    inputs = Inputs(leaves)
    result = inputs.run(func, *rebuild(list(inputs.tensors)))
    output, aux = split_aux(result, has_aux, api)
    outputs, rebuild_output = flatten(output)
    for tensor in outputs:
        if not isinstance(tensor, TensorCore):
            raise LucidError(
                f"{api}: expected f(*primals) to return only tensors, got unsupported type "
                f"{type(tensor)}"
            )
        if not tensor.dtype.is_floating_point:
            raise LucidError(
                "vjp(f, ...): All outputs of f must be floating-point Tensors, got Tensor with "
                f"dtype {tensor.dtype!r}"
            )

    @edge
    def pull_back(cotangents: Any) -> Any:
        given = flatten(cotangents)[0]
        if structure(cotangents) != structure(output):
            raise LucidError(
                "Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {structure(cotangents)}, primal output: "
                f"{structure(output)}"
            )
        return rebuild(inputs.gradients(cast(Any, outputs), given, retain=True))

    freed = rebuild_output([inputs.freed(tensor) for tensor in outputs])
    if has_aux:
        return freed, pull_back, inputs.freed_tree(aux)
    return freed, pull_back
