"""Gradient clipping, and parameters as one vector."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import lucid
from lucid import nn
from lucid.nn import utils
from lucid.nn.utils import rnn

GRADIENTS = (np.array([3.0, -4.0]), np.array([[12.0]]))


def parameters() -> list[lucid.Tensor]:
    tensors = [lucid.zeros(g.shape, dtype=lucid.float64, requires_grad=True) for g in GRADIENTS]
    for tensor, gradient in zip(tensors, GRADIENTS, strict=True):
        tensor.grad = lucid.tensor(gradient)
    return [*tensors, lucid.zeros(2, requires_grad=True)]


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, math.inf])
def test_clip_grad_norm(norm_type: float) -> None:
    tensors = parameters()
    total = np.linalg.norm(np.concatenate([g.ravel() for g in GRADIENTS]), norm_type)
    assert utils.clip_grad_norm_(tensors, 1.0, norm_type).item() == pytest.approx(total)
    for tensor, gradient in zip(tensors, GRADIENTS, strict=False):
        assert tensor.grad is not None
        assert_allclose(tensor.grad.numpy(), gradient / (total + 1e-6), rtol=1e-12)
    assert tensors[2].grad is None


def test_a_norm_below_the_limit_changes_nothing() -> None:
    tensors = parameters()
    gradient = tensors[0].grad
    utils.clip_grad_norm_(tensors, 13.5)
    assert tensors[0].grad is gradient
    assert gradient is not None
    assert gradient.tolist() == [3.0, -4.0]


def test_one_tensor_a_generator_and_nothing() -> None:
    assert utils.clip_grad_norm_(parameters()[0], 1.0).item() == 5.0
    assert utils.clip_grad_norm_((p for p in parameters()), 1.0).item() == 13.0
    assert utils.clip_grad_norm_([], 1.0).item() == 0.0


def test_a_norm_that_is_not_finite() -> None:
    tensors = parameters()
    tensors[0].grad = lucid.tensor([math.inf, 1.0], dtype=lucid.float64)
    with pytest.raises(RuntimeError, match=r"The total norm of order 2\.0 for gradients"):
        utils.clip_grad_norm_(tensors, 1.0, error_if_nonfinite=True)
    assert tensors[1].grad is not None
    assert tensors[1].grad.tolist() == [[12.0]]
    assert math.isinf(utils.clip_grad_norm_(tensors, 1.0).item())


def test_clip_grad_value() -> None:
    tensors = parameters()
    utils.clip_grad_value_(tensors, 3.5)
    assert [t.grad.tolist() for t in tensors if t.grad is not None] == [[3.0, -3.5], [[3.5]]]


def test_parameters_as_a_vector_and_back() -> None:
    tensors = parameters()
    utils.vector_to_parameters(lucid.arange(5.0), tensors)
    assert [t.tolist() for t in tensors] == [[0.0, 1.0], [[2.0]], [3.0, 4.0]]
    assert utils.parameters_to_vector(tensors).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    with pytest.raises(ValueError, match=r"5 elements are needed, not f32\[4\]"):
        utils.vector_to_parameters(lucid.zeros(4), tensors)


@pytest.mark.parametrize("affine", [True, False])
def test_a_fused_batch_norm_is_part_of_the_layer_before(affine: bool) -> None:
    lucid.manual_seed(0)
    conv, norm = nn.Conv2d(2, 3, 2, bias=not affine), nn.BatchNorm2d(3, affine=affine)
    transposed, linear = nn.ConvTranspose2d(2, 3, 2), nn.Linear(4, 3)
    flat, x = nn.BatchNorm1d(3, affine=affine), lucid.randn(5, 2, 4, 4)
    for _ in range(3):
        norm(conv(x))
        flat(linear(x[:, 0, 0]))
    for layer in (conv, norm, transposed, linear, flat):
        layer.eval()
    fused = nn.utils.fuse_conv_bn_eval(conv, norm)
    assert (fused(x) - norm(conv(x))).abs().max() < 1e-5
    fused = nn.utils.fuse_conv_bn_eval(transposed, norm, transpose=True)
    assert (fused(x) - norm(transposed(x))).abs().max() < 1e-5
    fused = nn.utils.fuse_linear_bn_eval(linear, flat)
    assert (fused(x[:, 0, 0]) - flat(linear(x[:, 0, 0]))).abs().max() < 1e-5
    made = nn.utils.fuse_linear_bn_weights(
        linear.weight, linear.bias, flat.running_mean, flat.running_var, flat.eps, flat.weight,
        flat.bias,
    )  # fmt: skip
    assert (made[0] == fused.weight).all()
    assert (made[1] == fused.bias).all()
    with pytest.raises(lucid.ArgumentError, match="Fusion only for eval!"):
        nn.utils.fuse_conv_bn_eval(conv.train(), norm)


def test_gradients_are_clipped_with_a_norm_that_is_known(run: Any) -> None:
    w = lucid.ones(4, requires_grad=True)

    def body() -> None:
        w.grad = None
        (w * 3).sum().backward()
        nn.utils.clip_grads_with_norm_([w], 2.0, nn.utils.get_total_norm([w.grad]))

    run(body)
    assert w.grad is not None
    assert w.grad.norm().item() == pytest.approx(2.0, abs=1e-5)


def test_what_is_packed_is_unpacked_with_its_dtype() -> None:
    parts = [lucid.tensor([4, 5]), lucid.tensor([1, 2, 3]), lucid.tensor([6])]
    packed = rnn.pack_sequence(parts, enforce_sorted=False)
    found = rnn.unpack_sequence(packed)
    assert [part.tolist() for part in found] == [[4, 5], [1, 2, 3], [6]]
    assert {part.dtype for part in found} == {lucid.int64}
    padded, _ = rnn.pad_packed_sequence(packed, padding_value=-1)
    assert padded[2].tolist() == [-1, 3, -1]


def test_packed_sequences_are_made_of_their_parts(run: Any) -> None:
    parts = [lucid.randn(n, 2) for n in (2, 4, 1)]
    layer = nn.GRU(2, 3)

    def step(first: lucid.Tensor, second: lucid.Tensor, third: lucid.Tensor) -> Any:
        packed = rnn.pack_sequence([first, second, third], enforce_sorted=False)
        data, sizes, places, back = packed
        doubled = rnn.PackedSequence(data * 2, sizes, places, back)
        again = packed._replace(data=packed[0] + packed.data)
        as_sorted = rnn.PackedSequence(data * 2, sizes)
        return [
            rnn.pad_packed_sequence(layer(each.to(lucid.float32))[0])[0]
            for each in (doubled, again, as_sorted)
        ]

    doubled, again, as_sorted = run(step, *parts)
    for i, part in enumerate(parts):
        alone = layer((part * 2).unsqueeze(1))[0][:, 0]
        rank = (1, 0, 2)[i]
        for found in (doubled[:, i], again[:, i], as_sorted[:, rank]):
            assert (found[: len(part)] - alone).abs().max().item() < 1e-5
            assert not found[len(part) :].any()
    with pytest.raises(ValueError, match=r"batch_sizes \[1, 2\] must fall, with a sum of 3"):
        rnn.PackedSequence(lucid.ones(3, 1), lucid.tensor([1, 2]))
