"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

import lucid
from lucid.autograd.modes import no_grad
from lucid.ir.errors import ShapeError
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters, one after the other; differentiable.

    Args:
        parameters: tensors of any shape.

    >>> nn.utils.parameters_to_vector([lucid.ones(2), lucid.zeros(1, 2)])
    tensor([1., 1., 0., 0.])
    """
    return lucid.cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy consecutive pieces of a vector into the parameters, in place.

    Raises `ShapeError`, before anything is written, for a vector of another length.

    Args:
        vec: as many elements as all together.
        parameters: what is written.

    >>> w = lucid.zeros(2, 2)
    >>> nn.utils.vector_to_parameters(lucid.arange(4.0), [w])
    >>> w
    tensor([[0., 1.],
            [2., 3.]])
    """
    targets = list(parameters)
    needed = sum(target.numel() for target in targets)
    if tuple(vec.shape) != (needed,):
        raise ShapeError(f"vector_to_parameters: {needed} elements are needed, not {vec._type}")
    start = 0
    with no_grad():
        for target in targets:
            stop = start + target.numel()
            write_(target, vec[start:stop].reshape(target.shape))
            start = stop
