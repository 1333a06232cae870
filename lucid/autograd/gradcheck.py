"""Gradients against central differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.engine import grad
from lucid.ir.errors import LucidError
from lucid.ir.types import f64

if TYPE_CHECKING:
    from lucid.tensor.core import TensorCore


class GradcheckError(LucidError):
    """The gradient of a function disagrees with its central difference."""


def gradcheck(
    function: Callable[..., Any],
    inputs: TensorCore | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Compare the Jacobian by backward with the one by central differences of step `eps`.

    Inputs that require grad should be float64; others warn, for rounding hides the derivative.
    Raises: `GradcheckError` with both Jacobians when they differ (or returns False without
    `raise_exception`); `ValueError` when no input requires grad.

    >>> import lucid
    >>> x = lucid.tensor([0.3, -1.2], dtype=lucid.float64, requires_grad=True)
    >>> lucid.autograd.gradcheck(lucid.sin, (x,))
    True
    """
    from lucid.tensor.core import TensorCore

    arguments: list[Any] = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    checked = [i for i, x in enumerate(arguments) if isinstance(x, TensorCore) and x.requires_grad]
    if not checked:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them "
            "have requires_grad=True."
        )
    for i in checked:
        if arguments[i].dtype is not f64:
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point. "
                "This check will likely fail if all the inputs are not of double precision.",
                stacklevel=2,
            )
    try:
        _check(function, arguments, checked, eps, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _outputs(function: Callable[..., Any], arguments: Sequence[Any]) -> list[TensorCore]:
    from lucid.tensor.core import TensorCore

    result = function(*arguments)
    values = result if isinstance(result, (tuple, list)) else (result,)
    return [v for v in values if isinstance(v, TensorCore) and v.dtype.is_floating_point]


def _check(
    function: Callable[..., Any],
    arguments: list[Any],
    checked: list[int],
    eps: float,
    atol: float,
    rtol: float,
) -> None:
    outputs = _outputs(function, arguments)
    for j, output in enumerate(outputs):
        analytical = _by_backward(output, [arguments[i] for i in checked])
        for i, jacobian in zip(checked, analytical, strict=True):
            numerical = _by_differences(function, arguments, i, j, eps)
            if not np.allclose(jacobian, numerical, rtol=rtol, atol=atol, equal_nan=True):
                raise GradcheckError(
                    f"Jacobian mismatch for output {j} with respect to input {i},\n"
                    f"numerical:{numerical}\nanalytical:{jacobian}\n"
                )


def _by_backward(output: TensorCore, inputs: Sequence[TensorCore]) -> list[np.ndarray]:
    """d output / d input, of shape (input size, output size), one row of ones at a time."""
    from lucid.tensor.core import of_array

    jacobians = [np.zeros((x.type.size, output.type.size)) for x in inputs]
    if not output.requires_grad:
        return jacobians
    for column in range(output.type.size):
        seed = np.zeros(output.type.size, output.dtype.numpy)
        seed[column] = 1
        gradients = grad(
            output,
            inputs,
            of_array(seed.reshape(output.type.shape)),
            retain_graph=True,
            allow_unused=True,
        )
        for jacobian, gradient in zip(jacobians, gradients, strict=True):
            if gradient is not None:
                jacobian[:, column] = gradient.detach().numpy().reshape(-1)
    return jacobians


def _by_differences(
    function: Callable[..., Any], arguments: Sequence[Any], i: int, j: int, eps: float
) -> np.ndarray:
    from lucid.tensor.core import of_array

    base = np.array(arguments[i].detach().numpy(), order="C")
    rows = []
    for k in range(base.size):
        shifted = []
        for step in (eps, -eps):
            array = base.copy()
            array.reshape(-1)[k] += step
            changed = [a.detach() if hasattr(a, "detach") else a for a in arguments]
            changed[i] = of_array(array)
            changed[i].requires_grad_()
            shifted.append(np.array(_outputs(function, changed)[j].detach().numpy()).reshape(-1))
        rows.append((shifted[0] - shifted[1]) / (2 * eps))
    return np.array(rows).reshape(base.size, -1)


def gradgradcheck(
    function: Callable[..., Any],
    inputs: TensorCore | Sequence[Any],
    grad_outputs: TensorCore | Sequence[TensorCore] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """`gradcheck` of the gradients of `function`, with respect to inputs and cotangents."""
    from lucid.tensor.core import TensorCore, of_array

    arguments: list[Any] = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    wanted = [i for i, x in enumerate(arguments) if isinstance(x, TensorCore) and x.requires_grad]
    outputs = _outputs(function, arguments)
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        seeds = [
            of_array(rng.standard_normal(y.type.shape).astype(y.dtype.numpy)).requires_grad_()
            for y in outputs
        ]
    else:
        given: Any = grad_outputs if isinstance(grad_outputs, (tuple, list)) else [grad_outputs]
        seeds = [seed.detach().requires_grad_() for seed in given]

    def gradients(*all_arguments: Any) -> tuple[Any, ...]:
        own, cotangents = list(all_arguments[: len(arguments)]), all_arguments[len(arguments) :]
        for i in wanted:  # a difference shifts one argument and leaves the others detached
            if not own[i].requires_grad:
                own[i] = own[i].detach().requires_grad_()
        found = grad(
            [y for y in _outputs(function, own) if y.requires_grad],
            [own[i] for i in wanted],
            [c for y, c in zip(outputs, cotangents, strict=True) if y.requires_grad],
            create_graph=True,
            allow_unused=True,
        )
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradients,
        (*arguments, *seeds),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
    )
