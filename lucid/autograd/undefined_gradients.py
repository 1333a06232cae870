"""How the backwards of custom Functions take outputs whose gradient nobody sent, for gradcheck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.engine import zeros_of
from lucid.autograd.function import BackwardCFunction
from lucid.autograd.modes import no_grad
from lucid.ir.errors import GradcheckError

if TYPE_CHECKING:
    from lucid.tensor.core import TensorCore


def check_undefined_gradients(outputs: Sequence[TensorCore]) -> None:
    """Raise `GradcheckError` unless backward then gives None or zeros."""
    differentiable = [y for y in outputs if y.requires_grad]
    for missing in (range(len(differentiable)), *([k] for k in range(len(differentiable)))):
        _check_missing(differentiable, set(missing))


def _check_missing(outputs: Sequence[TensorCore], missing: set[int]) -> None:
    nodes = {id(y.grad_fn): y.grad_fn for y in outputs}
    for node in nodes.values():
        if not isinstance(node, BackwardCFunction):
            continue
        own = {y.output_nr for k, y in enumerate(outputs) if y.grad_fn is node and k in missing}
        if own != {y.output_nr for y in outputs if y.grad_fn is node}:
            gradients = _with_some(node, own)
        else:
            gradients = _with_some(node, set(range(len(node._output_types))))
        _require_zeros(gradients)


def _with_some(node: BackwardCFunction, missing: set[int]) -> Any:
    """What backward gives when the gradients of some outputs are missing."""
    cotangents = [
        None if n in missing or type is None else zeros_of(type)
        for n, type in enumerate(node._output_types)
    ]
    try:
        with no_grad():  # as in a walk of which nobody wants the history
            return node._differentiate(tuple(cotangents))
    except (TypeError, AttributeError) as error:
        raise GradcheckError(
            "Expected backward function to handle undefined output grads: gradients that nobody "
            f"sent arrive as None. It raised {type(error).__name__}: {error}"
        ) from error


def _require_zeros(gradients: Any) -> None:
    for gradient in gradients:
        if gradient is not None and np.any(gradient.detach().numpy() != 0):
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are "
                "undefined or zero."
            )
