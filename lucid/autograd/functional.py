"""Jacobians, Hessians and products with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lucid.autograd.entry_points import grad
from lucid.autograd.modes import enable_grad
from lucid.docstrings import like
from lucid.ir.errors import ArgumentError, LucidError, OptionError, ShapeError

if TYPE_CHECKING:
    from lucid.tensor.tensor import Tensor

Tensors = tuple["Tensor", ...]


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of `func`: one row of backward at a time, or one column of forward mode.

    Shapes: output.shape + input.shape; for a tuple of inputs or outputs, nested tuples, outputs
    outside. `strict` raises where an output doesn't depend on an input, instead of giving zeros;
    not with `vectorize`, which has the same results else, nor in forward mode.

    Args:
        func: gives a tensor, or a tuple of them.
        inputs: a tensor, or a tuple of them.
        create_graph: record the computation, to be differentiated again.
        strict: raise where an output doesn't depend on an input; else there are zeros.
        vectorize: compute all rows at once, by `vmap`.
        strategy: "reverse-mode", row by row, or "forward-mode", column by column.

    Raises:
        LucidError: `strict` asks for what forward mode can't say, or an output doesn't depend on an
            input.

    >>> from lucid.autograd import functional
    >>> functional.jacobian(lambda x: x**2, lucid.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    is_forward = _is_forward(strategy, "strategy")
    if strict and (vectorize or is_forward):
        raise LucidError(
            "lucid.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not "
            "supported together. Please either set `strict=False` or `vectorize=False`."
        )
    if is_forward:
        return _jacobian_forward(func, inputs, create_graph)
    with enable_grad():
        xs = _own(_tuple(inputs, "inputs", "jacobian"), create_graph)
        result = func(*xs)
        ys = _tuple(result, "outputs of the user-provided function", "jacobian")
        _require_differentiable(ys, strict)
        rows = tuple(_rows(y, i, xs, create_graph, strict) for i, y in enumerate(ys))
    blocks = tuple(_unwrapped(row, inputs) for row in rows)
    return _unwrapped(blocks, result)


def _is_forward(strategy: str, name: str) -> bool:
    if strategy not in ("reverse-mode", "forward-mode"):
        raise OptionError(
            f'Expected {name} to be either "forward-mode" or "reverse-mode". Hint: If your '
            'function has more outputs than inputs, "forward-mode" tends to be more performant. '
            'Otherwise, prefer to use "reverse-mode".'
        )
    return strategy == "forward-mode"


def _jacobian_forward(func: Callable[..., Any], inputs: Any, create_graph: bool) -> Any:
    from lucid.autograd.transforms.jacobians import jacfwd

    shape: list[Any] = []

    def outputs(*xs: Any) -> Tensors:
        shape[:] = [func(*xs)]
        return _tuple(shape[0], "outputs of the user-provided function", "jacobian")

    with enable_grad():
        xs = _tuple(inputs, "inputs", "jacobian")
        xs = xs if create_graph else tuple(x.detach() for x in xs)
        blocks = jacfwd(outputs, argnums=tuple(range(len(xs))))(*xs)
    rows = tuple(
        _unwrapped(tuple(_kept(part, create_graph) for part in row), inputs) for row in blocks
    )
    return _unwrapped(rows, shape[0])


def _rows(y: Tensor, i: int, xs: Tensors, create_graph: bool, strict: bool) -> Any:
    """The Jacobian of one output, one block per input."""
    from lucid.functions.joining import stack
    from lucid.functions.shape import reshape

    flat: Any = reshape(y, (-1,))
    rows = []
    for k in range(y._type.size):
        found = (
            grad(flat[k], xs, None, True, create_graph, allow_unused=True)
            if y.requires_grad
            else (None,) * len(xs)
        )
        rows.append(_of_inputs(found, xs, i, strict))
    return tuple(
        _kept(reshape(stack([row[j] for row in rows]), (*y.shape, *x.shape)), create_graph)
        if rows
        else _zeros((*y._type.shape, *x._type.shape), x)
        for j, x in enumerate(xs)
    )


@like(jacobian)
def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The Hessian of a `func` with one number as its result: the Jacobian of its gradient.

    Shapes: input.shape + input.shape; nested tuples for a tuple of inputs. The options are those of
    `jacobian`, `outer_jacobian_strategy` its strategy.

    Args:
        func: gives one number.
        outer_jacobian_strategy: how the outer Jacobian is computed.

    >>> from lucid.autograd import functional
    >>> functional.hessian(lambda x: (x**3).sum(), lucid.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    from lucid.autograd.transforms.reverse import grad as gradient_function

    is_tuple = isinstance(inputs, tuple)
    is_forward = _is_forward(outer_jacobian_strategy, "outer_jacobian_strategy")

    def gradient(*xs: Any) -> Any:
        if is_forward:
            number = lambda *own: _scalar(func(*own), "hessian")  # noqa: E731
            parts = gradient_function(number, tuple(range(len(xs))))(*xs)
        else:
            parts = _gradient(func, xs, "hessian", strict)[1]
        return parts if is_tuple else parts[0]

    return jacobian(gradient, _tuple(inputs, "inputs", "hessian") if is_tuple else inputs,
                    create_graph, strict, vectorize, outer_jacobian_strategy)  # fmt: skip


def _gradient(
    func: Callable[..., Any], xs: Tensors, name: str, strict: bool
) -> tuple[Tensor, Tensors]:
    """The one number that `func` returns, and its gradients, to be differentiated again."""
    result = func(*xs)
    y = _scalar(result, name)
    _require_differentiable((y,), strict)
    parts = _of_inputs(_pulled_back((y,), (None,), xs, True), xs, 0, strict)
    for i, part in enumerate(parts):
        if strict and not part.requires_grad:
            raise LucidError(
                "While computing the hessian, found that the jacobian of the user-provided "
                f"function with respect to input {i} is independent of the input. This is not "
                "allowed in strict mode. You should ensure that your function is twice "
                "differentiable and that the jacobian depends on the inputs (this would be "
                "violated by a linear function for example)."
            )
    return y, parts


@like(hessian)
def vjp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The outputs, and the product of `v` with the Jacobian.

    Shapes: `v` as the outputs; it may be left out for a single number.

    Args:
        func: gives a tensor, or a tuple of them.
        v: a tensor, or a tuple of them.

    >>> from lucid.autograd import functional
    >>> functional.vjp(lambda x: x**2, lucid.tensor([1.0, 2.0]), lucid.ones(2))
    (tensor([1., 4.]), tensor([2., 4.]))
    """
    with enable_grad():
        xs = _own(_tuple(inputs, "inputs", "vjp"), create_graph)
        result = func(*xs)
        ys = _tuple(result, "outputs of the user-provided function", "vjp")
        _require_differentiable(ys, strict)
        cotangents = _vector(v, ys, "v", "function returns")
        parts = _of_inputs(_pulled_back(ys, cotangents, xs, create_graph), xs, 0, strict)
    kept = tuple(_kept(part, create_graph) for part in parts)
    outputs = tuple(_kept(y, create_graph) for y in ys)
    return _unwrapped(outputs, result), _unwrapped(kept, inputs)


@like(vjp)
def jvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The outputs, and the product of the Jacobian with `v`: the backward, differentiated.

    Shapes: `v` as the inputs; it may be left out for a single number.
    """
    with enable_grad():
        xs = _own(_tuple(inputs, "inputs", "jvp"), create_graph)
        tangents = _vector(v, xs, "v", "input to the function is")
        result = func(*xs)
        ys = _tuple(result, "outputs of the user-provided function", "jvp")
        _require_differentiable(ys, strict)
        found = _pushed_forward(xs, tangents, ys, create_graph)
        parts = [_present(found[i], y, i, 0, strict) for i, y in enumerate(ys)]
    kept = tuple(_kept(part, create_graph) for part in parts)
    outputs = tuple(_kept(y, create_graph) for y in ys)
    return _unwrapped(outputs, result), _unwrapped(kept, result)


def _pulled_back(ys: Any, cotangents: Any, xs: Any, create_graph: bool) -> Sequence[Any]:
    """The cotangents of `xs` by those of `ys`; None where nothing depends on one."""
    pairs = [
        (y, v) for y, v in zip(ys, cotangents, strict=True) if y is not None and y.requires_grad
    ]
    if not pairs:
        return (None,) * len(xs)
    outputs, vectors = zip(*pairs, strict=True)
    return grad(outputs, xs, vectors, create_graph=create_graph, allow_unused=True)


def _pushed_forward(xs: Tensors, tangents: Any, ys: Tensors, create_graph: bool) -> Sequence[Any]:
    """The backward is linear in its cotangents; its own backward applies the Jacobian."""
    from lucid.functions.creation import zeros_like

    cotangents: Any = [zeros_like(y).requires_grad_() for y in ys]
    gradients = _pulled_back(ys, cotangents, xs, True)
    return _pulled_back(gradients, tangents, cotangents, create_graph)


@like(jvp)
def vhp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The one number that `func` returns, and the product of `v` with its Hessian.

    Args:
        func: gives one number.

    >>> from lucid.autograd import functional
    >>> functional.vhp(lambda x: (x**3).sum(), lucid.tensor([1.0, 2.0]), lucid.ones(2))
    (tensor(9.), tensor([ 6., 12.]))
    """
    with enable_grad():
        xs, vectors = _point_and_vector(inputs, v, "vhp", create_graph)
        y, gradients = _gradient(func, xs, "vhp", strict)
        found = _pulled_back(gradients, vectors, xs, create_graph)
    parts = tuple(
        _of_hessian(part, x, f"jacobian of the user-provided function is independent of input {i}. "
                    "This is not allowed in strict mode.", strict)
        for i, (part, x) in enumerate(zip(found, xs, strict=True))
    )  # fmt: skip
    return _kept(y, create_graph), _unwrapped(_kept_all(parts, create_graph), inputs)


@like(vhp)
def hvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The one number that `func` returns, and the product of its Hessian with `v`.

    As `vhp` where second derivatives commute, which is cheaper.

    Shapes: `v` as the inputs.
    """
    with enable_grad():
        xs, vectors = _point_and_vector(inputs, v, "hvp", create_graph)
        y, gradients = _gradient(func, xs, "hvp", strict)
        found = _pushed_forward(xs, vectors, gradients, create_graph)
    parts = tuple(
        _of_hessian(part, x, f"hessian of the user-provided function is independent of entry {i} "
                    "in the grad_jacobian. This is not allowed in strict mode as it prevents from "
                    "using the double backward trick to replace forward mode AD.", strict)
        for i, (part, x) in enumerate(zip(found, xs, strict=True))
    )  # fmt: skip
    return _kept(y, create_graph), _unwrapped(_kept_all(parts, create_graph), inputs)


def _point_and_vector(
    inputs: Any, v: Any, name: str, create_graph: bool
) -> tuple[Tensors, Tensors]:
    xs = _own(_tuple(inputs, "inputs", name), create_graph)
    return xs, _vector(v, xs, "v", "input to the function is")


def _of_hessian(part: Any, x: Tensor, text: str, strict: bool) -> Any:
    if part is not None:
        return part
    if strict:
        raise LucidError(f"The {text}")
    return _zeros(x._type.shape, x)


def _kept_all(values: Tensors, create_graph: bool) -> Tensors:
    return tuple(_kept(value, create_graph) for value in values)


# ---------------------------------------------------------------------- arguments and results


def _tuple(value: Any, what: str, name: str) -> Tensors:
    from lucid.tensor.tensor import Tensor

    values = value if isinstance(value, tuple) else (value,)
    for i, entry in enumerate(values):
        if isinstance(entry, Tensor):
            continue
        given = f"{what} given to {name}"
        if isinstance(value, tuple):
            raise ArgumentError(
                f"The {given} must be either a Tensor or a tuple of Tensors but the value at index "
                f"{i} has type {type(entry)}."
            )
        raise ArgumentError(
            f"The {given} must be either a Tensor or a tuple of Tensors but the given {what} has "
            f"type {type(value)}."
        )
    return values


def _own(xs: Tensors, create_graph: bool) -> Tensors:
    """Tensors to differentiate with respect to; with `create_graph` they keep their history."""
    if create_graph:
        return tuple(x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in xs)
    return tuple(x.detach().requires_grad_() for x in xs)


def _unwrapped(values: tuple[Any, ...], like: Any) -> Any:
    return values if isinstance(like, tuple) else values[0]


def _kept(value: Any, create_graph: bool) -> Any:
    return value if create_graph else value.detach()


def _zeros(shape: tuple[int, ...], like: Tensor) -> Any:
    from lucid.functions.creation import zeros

    return zeros(shape, dtype=like.dtype)


def _present(gradient: Any, x: Tensor, i: int, j: int, strict: bool) -> Any:
    if gradient is not None:
        return gradient
    if strict:
        raise LucidError(
            f"Output {i} of the user-provided function is independent of input {j}. This is not "
            "allowed in strict mode."
        )
    return _zeros(x._type.shape, x)


def _of_inputs(found: Sequence[Any], xs: Tensors, i: int, strict: bool) -> tuple[Any, ...]:
    """Gradients of output `i`, one per input."""
    return tuple(_present(found[j], x, i, j, strict) for j, x in enumerate(xs))


def _require_differentiable(ys: Tensors, strict: bool) -> None:
    for i, y in enumerate(ys):
        if strict and not y.requires_grad:
            raise LucidError(
                f"Output {i} of the user-provided function does not require gradients. The outputs "
                "must be computed in a differentiable manner from the input when running in strict "
                "mode."
            )


def _scalar(result: Any, name: str) -> Tensor:
    from lucid.tensor.tensor import Tensor

    if not isinstance(result, Tensor):
        raise LucidError(f"The function given to {name} should return a single Tensor")
    if result._type.size != 1:
        raise LucidError(
            f"The Tensor returned by the function given to {name} should contain a single element"
        )
    return result.reshape(()) if result.ndim else result


def _vector(v: Any, like: Tensors, name: str, owner: str) -> Tensors:
    from lucid.functions.creation import ones_like

    if v is None:
        if len(like) != 1 or like[0]._type.size != 1:
            what = (
                "the user-provided function returns a single Tensor"
                if owner == "function returns"
                else "the input to the user-provided function is a single Tensor"
            )
            raise LucidError(f"The vector {name} can only be None if {what} with a single element.")
        return (ones_like(like[0]),)
    values = v if isinstance(v, tuple) else (v,)
    if len(values) != len(like):
        if len(like) == 1:
            raise LucidError("The given v should contain a single Tensor.")
        raise LucidError(
            f"{name} is a tuple of invalid length: should be {len(like)} but got {len(values)}."
        )
    for i, (value, expected) in enumerate(zip(values, like, strict=True)):
        if value.shape != expected.shape:
            prefix = f"Entry {i} in " if len(like) > 1 else ""
            raise ShapeError(
                f"{prefix}{name} has invalid size: should be {expected.shape} but got "
                f"{value.shape}."
            )
    return tuple(value.detach() if not value.requires_grad else value for value in values)
