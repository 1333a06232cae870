"""What the functions compute, against NumPy's arithmetic in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.nn.functional import resizing

X = np.linspace(-4.0, 4.0, 33).reshape(3, 11)

ACTIVATIONS: dict[str, tuple[Any, Any]] = {
    "relu": (F.relu, np.maximum(X, 0)),
    "relu6": (lambda x: F.relu6(x * 3), np.clip(X * 3, 0, 6)),
    "leaky_relu": (F.leaky_relu, np.where(X > 0, X, 0.01 * X)),
    "elu": (lambda x: F.elu(x, 0.7), np.where(X > 0, X, 0.7 * np.expm1(X))),
    "gelu": (F.gelu, X * special.ndtr(X)),
    "silu": (F.silu, X * special.expit(X)),
    "softplus": (F.softplus, np.logaddexp(0, X)),
    "logsigmoid": (F.logsigmoid, special.log_expit(X)),
    "mish": (F.mish, X * np.tanh(np.logaddexp(0, X))),
    "softmax": (lambda x: F.softmax(x, 1), special.softmax(X, 1)),
    "softmin": (lambda x: F.softmin(x, 1), special.softmax(-X, 1)),
    "log_softmax": (lambda x: F.log_softmax(x, 0), special.log_softmax(X, 0)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(lucid.float64, 1e-14), (lucid.float32, 2e-6)], ids=repr
)
def test_activations(name: str, dtype: lucid.dtype, tolerance: float) -> None:
    function, expected = ACTIVATIONS[name]
    y = function(lucid.tensor(X, dtype=dtype))
    assert y.dtype is dtype
    assert_allclose(y.numpy(), expected, rtol=tolerance, atol=tolerance)


INF, NAN = float("inf"), float("nan")
CORNERS = {  # a function, where its derivative jumps, its values there, and PyTorch's derivatives
    "relu6": (F.relu6, [0.0, 3.0, 6.0, NAN], [0.0, 3.0, 6.0, NAN], [0.0, 1.0, 0.0, 1.0]),
    "hardtanh": (F.hardtanh, [-1.0, 0.5, 1.0, INF], [-1.0, 0.5, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0]),
    "hardsigmoid": (F.hardsigmoid, [-3.0, 0.0, 3.0], [0.0, 0.5, 1.0], [0.0, 1 / 6, 0.0]),
    "hardswish": (F.hardswish, [-INF, -3.0, 3.0, INF], [0.0, 0.0, 3.0, INF], [0.0, 0.0, 1.0, 1.0]),
    "threshold": (
        lambda x: F.threshold(x, 1, 7),
        [1.0, 2.0, NAN],
        [7.0, 2.0, NAN],
        [0.0, 1.0, 1.0],
    ),
}


@pytest.mark.parametrize("name", CORNERS)
def test_activations_with_corners_have_pytorchs_derivatives_there(name: str, run: Any) -> None:
    function, places, values, slopes = CORNERS[name]

    def step(x: lucid.Tensor) -> lucid.Tensor:
        y = function(x)
        y.sum().backward()
        return y

    x = lucid.tensor(places, requires_grad=True)
    assert_array_equal(run(step, x).detach().numpy(), np.float32(values))
    assert x.grad is not None
    assert_array_equal(x.grad.numpy(), np.float32(slopes))


def test_the_tanh_form_of_gelu_is_near_the_exact_one() -> None:
    x = lucid.tensor(X)
    near = F.gelu(x, approximate="tanh").numpy()
    assert 0 < np.abs(near - F.gelu(x).numpy()).max() < 1e-3
    with pytest.raises(ValueError, match="approximate must be 'none' or 'tanh', not 'fast'"):
        F.gelu(x, approximate="fast")


def test_softmax_is_stable_and_knows_minus_infinity() -> None:
    x = lucid.tensor([[1e30, 0.0, 1e30], [-math.inf, 0.0, 0.0], [0.0, 1e-3, -1e4]])
    assert_allclose(F.softmax(x, 1).numpy()[:2], [[0.5, 0, 0.5], [0, 0.5, 0.5]])
    log = F.log_softmax(x, 1).numpy()
    assert log[1, 0] == -math.inf
    assert log[2, 2] == pytest.approx(-1e4, abs=2)
    assert np.isnan(F.softmax(lucid.full((1, 2), -math.inf), 1).numpy()).all()


def test_softmax_of_no_elements_and_of_one() -> None:
    assert F.softmax(lucid.zeros(0, 3), 1).shape == (0, 3)
    assert F.log_softmax(lucid.zeros(3, 0), 1).shape == (3, 0)
    assert F.softmax(lucid.tensor(3.0), 0).item() == 1.0


def test_softmax_refuses_integers_and_wrong_axes() -> None:
    with pytest.raises(TypeError, match="floats are needed, not i64"):
        F.softmax(lucid.tensor([1, 2]), 0)
    assert F.softmax(lucid.tensor([1, 2]), 0, dtype=lucid.float64).dtype is lucid.float64
    with pytest.raises(IndexError, match=r"expected to be in range of \[-2, 1\], but got 2"):
        F.softmax(lucid.zeros(2, 2), 2)
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
        assert F.softmax(lucid.zeros(2, 4)).numpy()[0, 0] == 0.25


@pytest.mark.parametrize("shape", [(4,), (0, 4), (5, 4), (2, 3, 4)])
def test_linear(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    x, w, b = rng.normal(size=shape), rng.normal(size=(3, 4)), rng.normal(size=3)
    y = F.linear(*map(lucid.tensor, (x, w, b)))
    assert_allclose(y.numpy(), x @ w.T + b, rtol=1e-13, atol=1e-13)


def test_linear_names_the_axes_that_differ() -> None:
    with pytest.raises(
        ValueError, match=r"input of shape \[2, 3\] and weight of shape \[5, 4\] don't fit"
    ):
        F.linear(lucid.zeros(2, 3), lucid.zeros(5, 4))


def test_layer_norm(rng: np.random.Generator) -> None:
    x, w, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    mean, variance = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
    y = F.layer_norm(lucid.tensor(x), (3, 4), lucid.tensor(w), lucid.tensor(b), 0.1)
    assert_allclose(y.numpy(), (x - mean) / np.sqrt(variance + 0.1) * w + b, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match=r"last axes of input must be normalized_shape=\[5\]"):
        F.layer_norm(lucid.tensor(x), (5,))


def test_batch_norm_moves_the_running_statistics(rng: np.random.Generator) -> None:
    x = rng.normal(size=(4, 3, 5))
    mean, variance = lucid.zeros(3, dtype=lucid.float64), lucid.ones(3, dtype=lucid.float64)
    y = F.batch_norm(lucid.tensor(x), mean, variance, training=True, momentum=0.25)
    centre, spread = x.mean((0, 2)), x.var((0, 2))
    expected = (x - centre[:, None]) / np.sqrt(spread[:, None] + 1e-5)
    assert_allclose(y.numpy(), expected, rtol=1e-12, atol=1e-12)
    assert_allclose(mean.numpy(), 0.25 * centre, rtol=1e-12)
    assert_allclose(variance.numpy(), 0.75 + 0.25 * spread * 20 / 19, rtol=1e-12)
    y = F.batch_norm(lucid.tensor(x), mean, variance)
    expected = (x - 0.25 * centre[:, None]) / np.sqrt(variance.numpy()[:, None] + 1e-5)
    assert_allclose(y.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_batch_norm_needs_two_values_per_channel() -> None:
    with pytest.raises(ValueError, match="Expected more than 1 value per channel when training"):
        F.batch_norm(lucid.zeros(1, 3), None, None, training=True)
    with pytest.raises(ValueError, match="outside of training running statistics are needed"):
        F.batch_norm(lucid.zeros(2, 3), None, None)


def test_embedding_takes_rows_and_leaves_the_padding_row_alone() -> None:
    weight = lucid.tensor(np.arange(12.0).reshape(4, 3), requires_grad=True)
    rows = F.embedding(lucid.tensor([[1, 3], [1, 0]]), weight, padding_idx=-1)
    assert_array_equal(rows.detach().numpy(), weight.detach().numpy()[[[1, 3], [1, 0]]])
    rows.sum().backward()
    assert weight.grad is not None
    assert_array_equal(weight.grad.numpy()[:, 0], [1, 2, 0, 0])


@pytest.mark.parametrize("index", [4, -1])
def test_an_index_without_row_is_an_error(index: int) -> None:
    with pytest.raises(IndexError, match=f"embedding: index {index} is out of range for 4 rows"):
        F.embedding(lucid.tensor([0, index]), lucid.zeros(4, 3))
    with pytest.raises(TypeError, match="embedding: indices must be int64 or int32"):
        F.embedding(lucid.zeros(2), lucid.zeros(4, 3))
    with pytest.raises(IndexError, match="non-negative and smaller than num_classes=4"):
        F.one_hot(lucid.tensor([0, index]), 4)


def test_one_hot() -> None:
    y = F.one_hot(lucid.tensor([[0, 2], [1, 0]]))
    assert y.dtype is lucid.int64
    assert_array_equal(y.numpy(), np.eye(3)[[[0, 2], [1, 0]]])
    assert F.one_hot(lucid.tensor([0]), 5).shape == (1, 5)


def test_normalize_and_cosine_similarity(rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(2, 3, 4))
    norm = np.linalg.norm(a, axis=1, keepdims=True)
    assert_allclose(F.normalize(lucid.tensor(a)).numpy(), a / norm, rtol=1e-13)
    expected = (a * b).sum(1) / (norm[:, 0] * np.linalg.norm(b, axis=1))
    similarity = F.cosine_similarity(lucid.tensor(a), lucid.tensor(b))
    assert_allclose(similarity.numpy(), expected, rtol=1e-12)
    assert_array_equal(F.normalize(lucid.zeros(2, 3)).numpy(), np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("mode", "numpy_mode"), [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")]
)
def test_pad_from_inside(mode: str, numpy_mode: Any, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 4))
    y = F.pad(lucid.tensor(x), (2, 1), mode=mode)
    assert_array_equal(y.numpy(), np.pad(x, ((0, 0), (2, 1)), mode=numpy_mode))


def test_pad_with_a_constant_and_crop(rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 4))
    y = F.pad(lucid.tensor(x), (-1, 2, 1, 0), value=5.0).numpy()
    assert_array_equal(y, np.pad(x[:, 1:], ((1, 0), (0, 2)), constant_values=5.0))
    with pytest.raises(ValueError, match="expected at most"):
        F.pad(lucid.tensor(x), (1,))
    with pytest.raises(ValueError, match="no mode 'mirror'"):
        F.pad(lucid.tensor(x), (1, 1), mode="mirror")


def test_attention(rng: np.random.Generator) -> None:
    q, k, v = rng.normal(size=(3, 2, 5, 4))
    scores = q @ k.transpose(0, 2, 1) / 2.0
    causal = np.where(np.tri(5, dtype=bool), scores, -np.inf)
    tensors = [*map(lucid.tensor, (q, k, v))]
    for is_causal, expected in ((False, scores), (True, causal)):
        y = F.scaled_dot_product_attention(*tensors, is_causal=is_causal)
        assert_allclose(y.numpy(), special.softmax(expected, -1) @ v, rtol=1e-12, atol=1e-12)


def test_a_query_that_may_look_at_nothing_gets_zeros() -> None:
    mask = lucid.tensor([[True, True], [False, False]])
    y = F.scaled_dot_product_attention(*lucid.ones(3, 2, 4), attn_mask=mask)
    assert_array_equal(y.numpy(), [[1.0] * 4, [0.0] * 4])
    with pytest.raises(ValueError, match="should not be set when is_causal=True"):
        F.scaled_dot_product_attention(*lucid.ones(3, 2, 4), attn_mask=mask, is_causal=True)


def test_a_mask_of_integers_would_be_added_and_is_refused() -> None:
    mask, x = lucid.tensor([[0, 1], [0, 0]]), lucid.ones(2, 2, 4)
    attend = lucid.nn.MultiheadAttention(4, 1, batch_first=True)
    for call in (
        lambda: F.scaled_dot_product_attention(x, x, x, attn_mask=mask),
        lambda: attend(x, x, x, attn_mask=mask),
        lambda: attend(x, x, x, key_padding_mask=mask),
    ):
        with pytest.raises(TypeError, match=r"a mask is of bool or of floats, not lucid\.int64"):
            call()


def test_dropout_keeps_the_mean_and_draws_the_same_bits_after_the_same_seed() -> None:
    x = lucid.ones(10_000)
    lucid.manual_seed(3)
    first = F.dropout(x, 0.3)
    lucid.manual_seed(3)
    assert_array_equal(F.dropout(x, 0.3).numpy(), first.numpy())
    assert set(np.unique(first.numpy())) == {np.float32(0), np.float32(1) / np.float32(0.7)}
    assert first.mean().item() == pytest.approx(1.0, abs=0.03)
    assert not np.array_equal(F.dropout(x, 0.3).numpy(), first.numpy())


def test_dropout_of_nothing_and_of_all() -> None:
    x = lucid.ones(3)
    assert F.dropout(x, 0.0) is x
    assert F.dropout(x, 0.5, training=False) is x
    assert F.dropout(x, 1.0).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match=r"has to be between 0 and 1, but got 1\.5"):
        F.dropout(x, 1.5)


def test_dropout2d_takes_fewer_axes_as_examples_and_channels() -> None:
    with pytest.warns(UserWarning, match="takes an input of 3 axes as \\(n, c, l\\)"):
        of_lines = F.dropout2d(lucid.ones(8, 16, 5), 0.5)
    assert_array_equal(of_lines.numpy(), of_lines[:, :, :1].expand(8, 16, 5).numpy())
    assert 0.0 < of_lines[:, :, 0].mean(dim=1).min() < of_lines[:, :, 0].mean(dim=1).max() < 2.0
    with pytest.warns(UserWarning, match="takes an input of 2 axes as \\(n, c\\)"):
        of_numbers = nn.Dropout2d()(lucid.ones(8, 16))
    assert sorted(of_numbers.unique().tolist()) == [0.0, 2.0]
    assert len({*map(tuple, F.dropout1d(lucid.ones(16, 5)).tolist())}) == 2


def test_dropout_passes_the_gradient_through_the_same_mask() -> None:
    x = lucid.ones(100, requires_grad=True)
    y = F.dropout(x, 0.5)
    y.sum().backward()
    assert x.grad is not None
    assert_array_equal(x.grad.numpy(), y.detach().numpy())


def test_what_a_hardtanh_gives_and_takes_in_place_may_be_written(run: Any) -> None:
    def step(x: lucid.Tensor) -> lucid.Tensor:
        y = F.hardtanh_(x * 1.0).mul_(2.0)
        y.sum().backward()
        return y

    x = lucid.tensor([-3.0, 0.5, 1.0], requires_grad=True)
    assert run(step, x).tolist() == [-2.0, 1.0, 2.0]
    assert x.grad is not None and x.grad.tolist() == [0.0, 2.0, 0.0]


def test_in_place_forms_write_into_their_input() -> None:
    x = lucid.tensor([-1.0, 2.0])
    assert F.relu(x, inplace=True) is x
    assert x.tolist() == [0.0, 2.0]


def test_power_means_of_volumes_are_pytorchs(run: Any) -> None:
    x = (lucid.arange(64.0).reshape(1, 1, 4, 4, 4) / 9).sin()
    found = run(lambda x: lucid.nn.LPPool3d(2, 2, ceil_mode=True)(x), x)
    expected = [1.868289, 1.81953, 1.892815, 1.970988, 1.806254, 1.827685, 2.041016, 2.111555]
    np.testing.assert_allclose(found.flatten().numpy(), expected, rtol=1e-5)


def test_the_nearest_of_a_grid_moves_with_nothing(run: Any) -> None:
    def gradients(image: lucid.Tensor, grid: lucid.Tensor) -> tuple[Any, ...]:
        y = F.grid_sample(image, grid, mode="nearest", align_corners=False)
        return y, *lucid.autograd.grad(y.sum(), (image, grid))

    image = lucid.arange(6.0).reshape(1, 1, 2, 3).requires_grad_()
    places = [[[[0.9, 0.6], [math.inf, -3.0], [-0.7, -0.4], [0.0, -0.4]]]]
    y, of_image, of_grid = run(gradients, image, lucid.tensor(places, requires_grad=True))
    assert_array_equal(y.detach().numpy(), [[[[5.0, 0.0, 0.0, 1.0]]]])
    assert_array_equal(of_image.numpy(), [[[[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]])
    assert_array_equal(of_grid.numpy(), np.zeros((1, 1, 4, 2)))


@pytest.mark.parametrize("mode", ["linear", "bicubic"])
@pytest.mark.parametrize("size", [50, 333])
def test_long_axes_are_interpolated_by_looking_neighbours_up(mode: str, size: int) -> None:
    """As by the matrix that short axes are multiplied with."""
    is_cubic = mode == "bicubic"
    x = lucid.randn(2, 3, 150, dtype=lucid.float64)
    long = (x.unsqueeze(-1) if is_cubic else x).requires_grad_()
    options = {"size": (size, 1)} if is_cubic else {"size": size}
    y = F.interpolate(long, mode=mode, **options)
    matrix = resizing._weights(150, size, 150 / size, is_cubic, False)
    np.testing.assert_allclose(
        y.detach().numpy().reshape(2, 3, -1), x.detach().numpy() @ matrix, atol=1e-12
    )
    cotangent = lucid.randn_like(y)
    (gradient,) = lucid.autograd.grad(y, [long], cotangent)
    expected = cotangent.numpy().reshape(2, 3, -1) @ matrix.T
    np.testing.assert_allclose(gradient.numpy().reshape(2, 3, -1), expected, atol=1e-12)


def test_places_of_many_maxima_are_one_program_with_a_gradient() -> None:
    """Its outputs are floats and indices, of which the latter have no gradient."""
    x = lucid.randn(2, 3, 120, 90, requires_grad=True)
    y, places = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    only = F.max_pool2d(x, 3, 2, 1)
    np.testing.assert_array_equal(y.detach().numpy(), only.detach().numpy())
    flat = x.detach().flatten(2).numpy()
    picked = np.take_along_axis(flat, places.flatten(2).numpy(), 2)
    np.testing.assert_array_equal(picked.reshape(y.shape), y.detach().numpy())
    found, expected = (lucid.autograd.grad(t.square().sum(), x)[0] for t in (y, only))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("options", [{"output_size": (4, 2)}, {"output_ratio": (0.6, 0.4)}])
def test_fractional_pools_take_the_windows_that_samples_say(run: Any, options: Any) -> None:
    rng = np.random.default_rng(0)
    x = lucid.tensor(rng.standard_normal((2, 3, 7, 6)), requires_grad=True)
    samples = rng.random((2, 3, 2))
    expected = np.zeros((2, 3, 4, 2))
    for n, c in np.ndindex(2, 3):  # as PyTorch's loop does it
        rows, columns = (
            [int((i + u) * step) - int(u * step) for i in range(count - 1)] + [length - 2]
            for u, step, count, length in (
                (samples[n, c, 1], (7 - 2) / 3, 4, 7),
                (samples[n, c, 0], (6 - 2) / 1, 2, 6),
            )
        )
        for i, j in np.ndindex(4, 2):
            window = x[n, c, rows[i] : rows[i] + 2, columns[j] : columns[j] + 2]
            expected[n, c, i, j] = window.max().item()
    given = {**options, "_random_samples": lucid.tensor(samples)}
    y, places = run(lambda: F.fractional_max_pool2d(x, 2, return_indices=True, **given))
    assert (y.detach().numpy() == expected).all()
    assert (x.detach().flatten(2).gather(2, places.flatten(2)) == y.flatten(2)).all()
    (grad,) = lucid.autograd.grad(y.sum(), x)
    assert grad.sum().item() == y.numel()
    assert lucid.nn.FractionalMaxPool2d(2, **options)(x[0]).shape == (3, 4, 2)
    assert lucid.nn.FractionalMaxPool3d(2, output_size=2)(x).shape == (2, 2, 2, 2)
    with pytest.raises(lucid.OptionError, match="either an output_size or an output_ratio"):
        F.fractional_max_pool2d(x, 2)
    with pytest.raises(lucid.ShapeError, match=r"\[7, 6\] elements are too few"):
        F.fractional_max_pool2d(x, 2, output_size=7)
