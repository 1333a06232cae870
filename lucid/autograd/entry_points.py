"""Where a backward walk is asked for: `backward`, `grad`, and the checks on what they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from lucid.autograd.engine import BackwardRun, accumulate
from lucid.autograd.node import AccumulateGrad, Edge, Gradient, GradientEdge, edge_of
from lucid.choices import check_flag
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, LucidError, OptionError, ShapeError
from lucid.ir.types import TensorType
from lucid.tensor.context import context
from lucid.tensor.lazy_grads import WithGradient
from lucid.tensor.size import Size

if TYPE_CHECKING:
    from lucid.tensor.core import TensorCore
    from lucid.tensor.tensor import Tensor


def backward(
    tensors: TensorCore | GradientEdge | Sequence[TensorCore | GradientEdge],
    grad_tensors: TensorCore | Sequence[TensorCore | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    *,
    inputs: TensorCore | Sequence[TensorCore] | None = None,
) -> None:
    """Accumulate the gradients of `tensors` into the `.grad` of leaves (only `inputs`, if given).

    Args:
        tensors: one tensor or several, each of which may be given as its `GradientEdge`; their sum,
            weighted by `grad_tensors`, is differentiated.
        grad_tensors: weights of the shapes of `tensors`; None, as a whole or for one of them, is 1
            and only for tensors with one element.
        retain_graph: keep what was saved, for another backward. Default: None, as `create_graph`.
        create_graph: record the backward itself, so that gradients can be differentiated again.
        inputs: the only tensors whose `.grad` changes, leaves or not. Default: None, all leaves.

    Raises:
        LucidError: a tensor without history, one of several elements without weights, no `inputs`
            in the list, or a graph that was freed by an earlier backward.
        OptionError: one of `inputs` is the `GradientEdge` of an intermediate, which has no tensor
            for a `.grad`.
        ShapeError: weights of another shape than their tensor's.

    >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
    >>> lucid.autograd.backward(x * x, lucid.tensor([1.0, 10.0]))
    >>> x.grad
    tensor([ 2., 40.])
    """
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        run = BackwardRun(retain, create_graph, None)
        run.run(checked_roots(_listed(tensors), _listed(grad_tensors), run.one))
        return
    targets = _listed(inputs)
    if not targets:
        raise LucidError("`inputs` argument to `backward()` cannot be empty.")
    edges = [_input_edge(tensor) for tensor in targets]
    for i, (tensor, edge) in enumerate(zip(targets, edges, strict=True)):
        if isinstance(tensor, GradientEdge) and not isinstance(edge[0], AccumulateGrad):
            raise OptionError(
                f"backward: input {i} is the GradientEdge of an intermediate, of "
                f"{edge[0]._name()}, so there is no tensor for its .grad\n"
                "hint: autograd.grad returns its gradient"
            )
    run = BackwardRun(retain, create_graph, edges)
    run.run(checked_roots(_listed(tensors), _listed(grad_tensors), run.one))
    before = context.grad_enabled
    context.grad_enabled = create_graph
    try:
        for edge, tensor in dict(zip(edges, targets, strict=True)).items():
            if edge in run.captured:
                _accumulate_at(tensor, edge, run.captured[edge])
    finally:
        context.grad_enabled = before


def _accumulate_at(tensor: TensorCore, edge: Edge, gradient: TensorCore) -> None:
    node, index = edge
    if isinstance(node, AccumulateGrad):
        node.apply((gradient,))  # with its hooks
    elif node._retained is None or index not in node._retained:  # else the walk has kept it
        accumulate(tensor, gradient)


def grad(
    outputs: TensorCore | Sequence[TensorCore],
    inputs: TensorCore | Sequence[TensorCore],
    grad_outputs: TensorCore | Sequence[TensorCore | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of the sum of `outputs` with respect to `inputs`, always as a tuple.

    No `.grad` is touched. Each tensor may be given as its `GradientEdge`.

    Args:
        outputs: one tensor or several; their sum, weighted by `grad_outputs`, is differentiated.
        inputs: what to differentiate by, leaves or not.
        grad_outputs: weights of the shapes of `outputs`; None, as a whole or for one of them, is 1
            and only for outputs with one element.
        retain_graph: keep what was saved, for another backward. Default: None, as `create_graph`.
        create_graph: record the backward itself, so that gradients can be differentiated again.
        only_inputs: True: no other leaf's `.grad` is ever touched.
        allow_unused: None instead of an error for an input that the outputs don't depend on.
            Default: None, an error unless zeros are asked for.
        is_grads_batched: `grad_outputs` have another axis in front, and so have the results: one
            gradient for each of its entries.
        materialize_grads: zeros instead of an error for an input that the outputs don't depend on;
            with `create_graph` they require grad, so that they can be differentiated in turn.

    Raises:
        LucidError: there are no inputs, an input or output has no history, an input isn't used, or
            a graph was freed by an earlier backward.
        OptionError: `materialize_grads` with `allow_unused=False`; `only_inputs=False`.
        ShapeError: weights of another shape than their output's.

    >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
    >>> lucid.autograd.grad((x * x).sum(), x)
    (tensor([2., 4.]),)
    """
    if materialize_grads and allow_unused is False:
        raise OptionError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    if only_inputs is not True:
        check_flag(only_inputs, "only_inputs", "grad")
        raise OptionError("grad: only_inputs=False is not supported\nhint: call backward()")
    if is_grads_batched:
        return _batched(
            outputs,
            inputs,
            grad_outputs,
            create_graph or bool(retain_graph),
            create_graph,
            allow_unused,
            materialize_grads,
        )
    targets = _listed(inputs)
    if not targets:
        raise LucidError("`inputs` argument to `grad()` cannot be empty.")
    retain = create_graph if retain_graph is None else retain_graph
    found = find_gradients(outputs, targets, grad_outputs, retain, create_graph)
    return tuple(
        _result(gradient, tensor, i, bool(allow_unused), materialize_grads, create_graph)
        for i, (tensor, gradient) in enumerate(zip(targets, found, strict=True))
    )


def find_gradients(
    outputs: Any,
    inputs: Sequence[TensorCore | GradientEdge],
    grad_outputs: Any,
    retain_graph: bool,
    create_graph: bool,
    *,
    is_part: bool = False,
) -> list[TensorCore | None]:
    """`grad`, with None for each input that the outputs don't depend on."""
    edges = [_input_edge(tensor) for tensor in inputs]
    run = BackwardRun(retain_graph, create_graph, edges, is_part)
    run.run(checked_roots(_listed(outputs), _listed(grad_outputs), run.one))
    return [run.captured.get(edge) for edge in edges]


def _batched(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any,
    retain_graph: bool,
    create_graph: bool,
    allow_unused: bool | None,
    materialize_grads: bool,
) -> tuple[Tensor | None, ...]:
    """`grad` for each entry of the cotangents' first axis, stacked."""
    from lucid.functions.joining import stack

    ys, batches = _listed(outputs), _listed(grad_outputs)
    for i, (y, batch) in enumerate(zip(ys, batches, strict=False)):
        if batch is None or batch.ndim == 0 or batch.shape[1:] != y.shape:
            shape = None if batch is None else batch.shape[1:]
            raise ShapeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output "
                "as the batch dimension. The sizes of the remaining dimensions are expected to "
                "match the shape of corresponding output, but a mismatch was detected: "
                f"grad_output[{i}] has a shape of {shape} and output[{i}] has a shape of {y.shape}."
                " If you only want some tensors in `grad_output` to be considered batched, "
                "consider using vmap."
            )
    if not batches or any(len(batch) != len(batches[0]) for batch in batches):
        raise ShapeError(
            "is_grads_batched=True takes grad_outputs with one and the same first axis"
        )
    size = len(batches[0])
    rows = [
        grad(ys, inputs, [batch[k] for batch in batches], retain_graph or k + 1 < size,
             create_graph, True, allow_unused, False, materialize_grads)
        for k in range(size)
    ]  # fmt: skip
    return tuple(
        None if column[0] is None else stack(list(column)) for column in zip(*rows, strict=True)
    )


def _result(
    found: TensorCore | None,
    tensor: Any,
    i: int,
    allow_unused: bool,
    materialize: bool,
    create_graph: bool,
) -> Any:
    if found is not None:
        return found
    if materialize:
        if isinstance(tensor, GradientEdge):
            raise LucidError(
                "materialize_grads cannot be used when the given input is a GradientEdge"
            )
        zeros: Any = ops.zeros_like(tensor)
        return zeros.requires_grad_(create_graph)
    if allow_unused:
        return None
    raise LucidError(
        f"The differentiated Tensor at index {i} appears to not have been used in the graph. "
        f"Set allow_unused=True if this is the desired behavior.{_described(tensor, i)}"
    )


def _is_tensor(value: Any) -> TypeGuard[TensorCore]:
    return isinstance(value, WithGradient)  # its only subclass has what this module can't import


def _listed(tensors: Any) -> list[Any]:
    if tensors is None:
        return []
    if isinstance(tensors, WithGradient):
        return [tensors]
    is_single = isinstance(tensors, GradientEdge) or hasattr(tensors, "requires_grad")
    if isinstance(tensors, Iterable) and not is_single:
        return list(tensors)  # a list, a tuple, a generator, the values of a dict
    return [tensors]


def _input_edge(tensor: Any) -> Edge:
    from lucid.tensor.core import TensorCore

    if isinstance(tensor, GradientEdge):
        return tensor.node, tensor.output_nr
    if not isinstance(tensor, TensorCore):
        raise ArgumentError(
            f"all inputs have to be Tensors or GradientEdges, but got {type(tensor).__name__}"
        )
    if context.recorder is not None:
        context.recorder.meet(tensor)
    edge = edge_of(tensor)
    if edge is None:
        raise LucidError(
            f"One of the differentiated Tensors does not require grad\n"
            f"  input: {tensor._describe()}"
        )
    return edge


def _described(tensor: Any, i: int) -> str:
    """A line about an input, for a message."""
    return "" if isinstance(tensor, GradientEdge) else f"\n  input {i}: {tensor._describe()}"


def checked_roots(
    tensors: Sequence[Any], gradients: Sequence[Any], one: Callable[[TensorType], Gradient]
) -> list[tuple[Edge, Gradient]]:
    """The edges that the walk starts from, each with its gradient; `one` makes one of ones."""
    if gradients and len(gradients) != len(tensors):
        raise LucidError(f"got {len(tensors)} tensors and {len(gradients)} gradients")
    roots: list[tuple[Edge, Gradient]] = []
    for i, tensor in enumerate(tensors):
        gradient = gradients[i] if gradients else None
        if isinstance(tensor, GradientEdge):
            node, number = tensor
            type_, name = node._output_types[number], f"output {number} of {node._name()}"
            roots.append(((node, number), _root_gradient(type_, name.__str__, gradient, i, one)))
            continue
        if not _is_tensor(tensor):
            raise ArgumentError(f"element {i} of tensors is a {type(tensor).__name__}, no Tensor")
        if context.recorder is not None:
            context.recorder.note_outer(tensor)
        edge = edge_of(tensor)
        if edge is None:
            raise LucidError(
                f"element {i} of tensors does not require grad and does not have a grad_fn\n"
                f"  element {i}: {tensor._describe()}\n"
                "hint: it was computed under no_grad, or no leaf has requires_grad=True"
            )
        roots.append((edge, _root_gradient(tensor._type, tensor._describe, gradient, i, one)))
    return roots


def _root_gradient(
    output: TensorType,
    describe: Callable[[], str],
    gradient: Any,
    i: int,
    one: Callable[[TensorType], Gradient],
) -> Gradient:
    if gradient is None:
        if output.size != 1:
            raise LucidError(
                "grad can be implicitly created only for scalar outputs\n"
                f"  output {i}: {describe()}\n"
                "hint: l.sum().backward() or l.backward(gradient)"
            )
        return one(output)
    if not _is_tensor(gradient):
        raise ArgumentError(
            f"gradients can be either Tensors or None, but got {type(gradient).__name__}"
        )
    if gradient._type.shape != output.shape:
        raise ShapeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {gradient.shape} and output[{i}] "
            f"has a shape of {Size(output.shape)}.\n"
            f"  grad_output[{i}]: {gradient._describe()}\n"
            f"  output[{i}]:      {describe().partition('  from ')[0]}"
        )
    cast: TensorCore = gradient
    if gradient._type.dtype is not output.dtype:
        cast = ops.cast(gradient, dtype=output.dtype)
    return cast
