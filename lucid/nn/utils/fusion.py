"""A batch norm in evaluation as part of the affine layer before it."""

from __future__ import annotations

import copy
from typing import Any

import lucid
from lucid.ir import frames
from lucid.ir.errors import ArgumentError
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter
from lucid.tensor.tensor import Tensor


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """Return a copy of the convolution that computes what both do in evaluation.

    Args:
        conv: the convolution, in evaluation mode.
        bn: what follows it, in evaluation mode.
        transpose: it is a transposed convolution.

    >>> conv, bn = nn.Conv1d(1, 2, 2).eval(), nn.BatchNorm1d(2).eval()
    >>> x = lucid.ones(1, 1, 3)
    >>> lucid.allclose(nn.utils.fuse_conv_bn_eval(conv, bn)(x), bn(conv(x)), atol=1e-5)
    True
    """
    return _fused(conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """Return a copy of the linear layer that computes what both do in evaluation.

    Standardizing by running statistics is linear, so it goes into weight and bias.

    Args:
        linear: the layer, in evaluation mode.
        bn: what follows it, in evaluation mode.

    Raises:
        ArgumentError: a module is in training mode, or the sizes differ.

    >>> linear, bn = nn.Linear(3, 2).eval(), nn.BatchNorm1d(2).eval()
    >>> x = lucid.ones(1, 3)
    >>> lucid.allclose(nn.utils.fuse_linear_bn_eval(linear, bn)(x), bn(linear(x)), atol=1e-5)
    True
    """
    if linear.out_features != bn.num_features:
        raise ArgumentError("To fuse, linear.out_features == bn.num_features or bn.num_features==1")
    return _fused(linear, bn, 0)


def _fused(layer: Module, norm: Any, axis: int) -> Module:
    if layer.training or norm.training:
        raise ArgumentError("Fusion only for eval!")
    fused = copy.deepcopy(layer)
    scale, shift = _affine(norm)
    weight = layer.get_parameter("weight").detach()
    along = [1] * weight.ndim
    along[axis] = -1
    bias = getattr(layer, "bias", None)
    before = lucid.zeros_like(norm.running_mean) if bias is None else bias.detach()
    fused.weight = Parameter(weight * scale.reshape(along), layer.weight.requires_grad)
    fused.bias = Parameter(before * scale + shift, layer.weight.requires_grad)
    return fused


def _affine(norm: Any) -> tuple[Tensor, Tensor]:
    """What the norm multiplies each channel with, and what it adds."""
    if norm.running_mean is None:
        raise ArgumentError(f"{norm} has no running statistics, so it can't be fused")
    scale = lucid.rsqrt(norm.running_var + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight.detach()
    shift = -norm.running_mean * scale
    return scale, shift if norm.bias is None else shift + norm.bias.detach()


frames.edge_of_module(__name__)
