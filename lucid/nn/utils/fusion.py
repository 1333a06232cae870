"""A batch norm in evaluation as part of the affine layer before it."""

from __future__ import annotations

import copy
from typing import Any

import lucid
from lucid.docstrings import like
from lucid.functions.border import module_at_border
from lucid.ir.errors import ArgumentError
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
    return _fused(conv, bn, transpose)


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
    return _fused(linear, bn, False)


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Return weight and bias of the convolution that standardizes its outcome too.

    Args:
        conv_w: the convolution's weight.
        conv_b: its bias. None is zeros.
        bn_rm: the norm's running mean.
        bn_rv: its running variance.
        bn_eps: what is added to the variance.
        bn_w: the norm's weight. None is ones.
        bn_b: its bias. None is zeros.
        transpose: it is a transposed convolution.

    >>> one, zero = lucid.ones(1), lucid.zeros(1)
    >>> nn.utils.fuse_conv_bn_weights(lucid.ones(1, 1, 1), None, zero, one, 0.0, 3 * one, one)[0]
    Parameter containing:
    tensor([[[3.]]])
    """
    along = [1] * conv_w.ndim
    along[1 if transpose else 0] = -1
    scale = lucid.rsqrt(bn_rv + bn_eps)
    if bn_w is not None:
        scale = scale * bn_w.detach()
    bias = ((0.0 if conv_b is None else conv_b.detach()) - bn_rm) * scale
    if bn_b is not None:
        bias = bias + bn_b.detach()
    weight = conv_w.detach() * scale.reshape(along)
    return Parameter(weight, conv_w.requires_grad), Parameter(bias, conv_w.requires_grad)


@like(fuse_conv_bn_weights)
def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Return weight and bias of the linear layer that standardizes its outcome too.

    Args:
        linear_w: the layer's weight.
        linear_b: its bias. None is zeros.

    >>> one, zero = lucid.ones(1), lucid.zeros(1)
    >>> nn.utils.fuse_linear_bn_weights(lucid.ones(1, 1), None, one, one, 0.0, 3 * one, one)[1]
    Parameter containing:
    tensor([-2.])
    """
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _fused(layer: Any, norm: Any, transpose: bool) -> Any:
    if layer.training or norm.training:
        raise ArgumentError("Fusion only for eval!")
    if norm.running_mean is None:
        raise ArgumentError(f"{norm} has no running statistics, so it can't be fused")
    fused = copy.deepcopy(layer)
    running = norm.running_mean, norm.running_var, norm.eps
    fused.weight, fused.bias = fuse_conv_bn_weights(
        layer.weight, layer.bias, *running, norm.weight, norm.bias, transpose
    )
    return fused


module_at_border(__name__)
