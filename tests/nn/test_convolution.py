"""Convolutions and pools: PyTorch's numbers up to the second derivative, messages, modules."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convolution_cases import CASES, SlidingCase
from numpy.testing import assert_allclose, assert_array_equal
from recording import load

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
from lucid.autograd import gradcheck, gradgradcheck
from lucid.nn.functional import winograd

RECORDED = load(Path(__file__).parent.parent / "data" / "convolutions.npz")
# Relative to the largest entry of an array; the numbers are recorded as float32.
TOLERANCE = {"float32": 2e-5, "float64": 2e-7}


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_numbers_are_those_of_torch(case: SlidingCase, mode: str) -> None:
    decorator = lucid.compile if mode == "compiled" else lambda step: step
    prefix = f"{case.name}/"
    expected = {k.removeprefix(prefix): v for k, v in RECORDED.items() if k.startswith(prefix)}
    assert expected, "not recorded: run tests/data/record_convolutions.py"
    for dtype, tolerance in TOLERANCE.items():
        found = case.run(lucid, F, decorator, dtype)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            scale = max(np.abs(value).max(), 1e-3)
            assert found[name].shape == value.shape
            assert_allclose(
                found[name], value, rtol=0, atol=tolerance * scale, err_msg=f"{name} {dtype}"
            )


def test_nothing_recorded_is_left_out() -> None:
    assert {key.split("/")[0] for key in RECORDED} == {case.name for case in CASES}


def test_derivatives_agree_with_differences() -> None:
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> lucid.Tensor:
        return lucid.tensor(rng.normal(size=shape), requires_grad=True)

    def convolve(x: lucid.Tensor, w: lucid.Tensor, b: lucid.Tensor) -> lucid.Tensor:
        return F.conv2d(x, w, b, stride=(2, 1), padding=1, groups=2)

    inputs = drawn(1, 2, 4, 3), drawn(4, 1, 3, 2), drawn(4)
    assert gradcheck(convolve, inputs)
    assert gradgradcheck(convolve, inputs)
    for pool in (F.max_pool2d, F.avg_pool2d):
        image = drawn(1, 2, 5, 4)
        assert gradcheck(lambda x, pool=pool: pool(x, 3, 2, 1), (image,))


# Edges ----------------------------------------------------------------------------------------


def both(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The results, eager and compiled."""
    return [function(*arguments), lucid.compile(function)(*arguments)]


def test_an_empty_batch_has_an_empty_result_and_zero_gradients() -> None:
    weight = lucid.ones(4, 3, 3, 3, requires_grad=True)

    def step(x: lucid.Tensor) -> Any:
        y = F.max_pool2d(F.conv2d(x, weight, padding=1), 2)
        return y, lucid.autograd.grad(y.sum(), weight)[0]

    for y, g in both(step, lucid.zeros(0, 3, 8, 6)):
        assert tuple(y.shape) == (0, 4, 4, 3)
        assert_array_equal(g.numpy(), np.zeros((4, 3, 3, 3)))


def test_the_gradient_of_a_maximum_goes_to_its_first_place() -> None:
    x = lucid.tensor([[[1.0, 3, 3, 3, 0, 0, 2, 2]]], requires_grad=True)

    def step(x: lucid.Tensor) -> Any:
        return lucid.autograd.grad(F.max_pool1d(x, 2).sum(), x)[0]

    for g in both(step, x):
        assert_array_equal(g.numpy(), [[[0, 1, 1, 0, 1, 0, 1, 0]]])


def test_a_nan_wins_a_maximum() -> None:
    x = lucid.tensor([[[1.0, float("nan"), 3, -float("inf")]]])
    for y in both(lambda x: F.max_pool1d(x, 2), x):
        assert_array_equal(y.numpy(), [[[np.nan, 3.0]]])


def test_padding_never_wins_a_maximum() -> None:
    for dtype in (lucid.float32, lucid.int64):
        x = lucid.full((1, 1, 3), -5, dtype=dtype)
        for y in both(lambda x: F.max_pool1d(x, 2, 2, 1), x):
            assert_array_equal(y.numpy(), [[[-5, -5]]])


def test_functions_can_be_mapped() -> None:
    rng = np.random.default_rng(0)
    x, w = (
        lucid.tensor(rng.normal(size=(3, 2, 2, 5, 6))),
        lucid.tensor(rng.normal(size=(4, 2, 3, 3))),
    )
    y = lucid.vmap(lambda x: F.max_pool2d(F.conv2d(x, w, padding=1), 2))(x)
    for row, expected in zip(x, y, strict=True):
        found = F.max_pool2d(F.conv2d(row, w, padding=1), 2)
        assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)


# Messages -------------------------------------------------------------------------------------

IMAGE, KERNEL = (1, 3, 8, 8), (6, 3, 3, 3)
WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    (
        "conv2d", ((1, 4, 8, 8), KERNEL), {},
        "conv2d: Given groups=1, weight of size [6, 3, 3, 3], expected input[1, 4, 8, 8] to have 3 "
        "channels, but got 4 channels instead",
    ),
    (
        "conv2d", ((2, 2), KERNEL), {},
        "conv2d: Expected 3D (unbatched) or 4D (batched) input",
    ),
    (
        "conv2d", (IMAGE, (6, 3, 3)), {},
        "conv2d: Given groups=1, weight of size [6, 3, 3]: expected a weight of 4 axes",
    ),
    (
        "conv2d", ((1, 3, 1, 2), KERNEL), {"padding": (0, 1)},
        "conv2d: kernel (3 x 3) is greater than the padded input (1 x 4)",
    ),
    (
        "conv2d", (IMAGE, KERNEL, (5,)), {},
        "conv2d: expected a bias of 6 elements, got [5]",
    ),
    (
        "conv2d", (IMAGE, KERNEL), {"stride": 0},
        "conv2d: non-positive stride is not supported, got [0, 0]",
    ),
    (
        "conv2d", (IMAGE, KERNEL), {"stride": (1, 1, 1)},
        "conv2d: stride must be an int or 2 of them, not [1, 1, 1]",
    ),
    (
        "conv2d", (IMAGE, KERNEL), {"padding": -1},
        "conv2d: negative padding is not supported, got [-1, -1]",
    ),
    (
        "conv2d", (IMAGE, KERNEL), {"padding": "same", "stride": 2},
        "conv2d: padding='same' is not supported for strided convolutions",
    ),
    (
        "conv2d", (IMAGE, KERNEL), {"padding": "sam"},
        "conv2d: padding must be one of 'valid', 'same', not 'sam'",
    ),
    (
        "conv2d", ((1, 4, 8, 8), (5, 2, 3, 3)), {"groups": 2},
        "conv2d: axis 0 of the weight must be divisible by groups=2",
    ),
    (
        "conv2d", (IMAGE, KERNEL), {"groups": 0},
        "conv2d: non-positive groups is not supported, got 0",
    ),
    (
        "conv_transpose2d", (IMAGE, (4, 3, 3, 3)), {},
        "conv_transpose2d: Given transposed=1, groups=1, weight of size [4, 3, 3, 3], expected "
        "input[1, 3, 8, 8] to have 4 channels, but got 3 channels instead",
    ),
    (
        "conv_transpose2d", (IMAGE, (3, 4, 3, 3)), {"output_padding": 1},
        "conv_transpose2d: output_padding [1, 1] must be smaller than stride [1, 1] or dilation "
        "[1, 1]",
    ),
    (
        "conv_transpose2d", ((1, 3, 1, 2), (3, 4, 1, 1)), {"padding": 1},
        "conv_transpose2d: the output size (-1 x 0) is too small",
    ),
    (
        "max_pool2d", (IMAGE,), {"kernel_size": 3, "padding": 2},
        "max_pool2d: padding [2, 2] must be at most half of the kernel's span",
    ),
    (
        "max_pool2d", ((1, 3, 2, 2),), {"kernel_size": 3},
        "max_pool2d: the output size (0 x 0) is too small",
    ),
    (
        "avg_pool2d", (IMAGE,), {"kernel_size": 2, "divisor_override": 0},
        "avg_pool2d: divisor must be not zero",
    ),
    (
        "adaptive_avg_pool2d", (IMAGE,), {"output_size": (1, 2, 3)},
        "adaptive_avg_pool2d: output_size must have 2 entries, got [1, 2, 3]",
    ),
    (
        "adaptive_avg_pool2d", (IMAGE,), {"output_size": -1},
        "adaptive_avg_pool2d: can't pool [8, 8] elements to [-1, -1]",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shapes", "options", "message"), WRONG)
def test_messages(name: str, shapes: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(lucid.LucidError) as caught:
        getattr(F, name)(*(lucid.zeros(shape) for shape in shapes), **options)
    first, *operands = str(caught.value).split("\n")
    assert first + (f"\n{operands.pop()}" if "hint: " in operands[-1] else "") == message
    names = ["input", "weight", "bias"][: len(shapes)]
    for line, operand, shape in zip(operands, names, shapes, strict=True):
        assert re.match(rf"  {operand}: +f32\[{','.join(map(str, shape))}\]  from test_conv", line)


def test_input_and_weight_have_one_dtype() -> None:
    with pytest.raises(lucid.DTypeError) as caught:
        F.conv2d(lucid.zeros(IMAGE), lucid.zeros(KERNEL, dtype=lucid.float64))
    place = caught.traceback[0]
    line = f"test_convolution.py:{place.lineno + 1}   {str(place.statement).strip()}"
    assert str(caught.value) == (
        "conv2d: expected input and weight of one dtype\n"
        f"  input:  f32[1,3,8,8]  from {line}\n  weight: f64[6,3,3,3]  from {line}"
    )


# Modules --------------------------------------------------------------------------------------


def test_modules_print_as_in_torch() -> None:
    assert [repr(module) for module in (
        nn.Conv2d(3, 6, 3, padding="same", bias=False, groups=3),
        nn.Conv1d(3, 6, 3, 2, 1, 2),
        nn.Conv2d(3, 6, 3, padding_mode="circular"),
        nn.ConvTranspose2d(3, 4, 2, 2, output_padding=1),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.AvgPool2d((2, 3), 1),
        nn.AdaptiveAvgPool2d(1),
    )] == [
        "Conv2d(3, 6, kernel_size=(3, 3), stride=(1, 1), padding=same, groups=3, bias=False)",
        "Conv1d(3, 6, kernel_size=(3,), stride=(2,), padding=(1,), dilation=(2,))",
        "Conv2d(3, 6, kernel_size=(3, 3), stride=(1, 1), padding_mode=circular)",
        "ConvTranspose2d(3, 4, kernel_size=(2, 2), stride=(2, 2), output_padding=(1, 1))",
        "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=True)",
        "AvgPool2d(kernel_size=(2, 3), stride=1, padding=0)",
        "AdaptiveAvgPool2d(output_size=1)",
    ]  # fmt: skip


def test_a_convolution_starts_uniform_within_the_inverse_root_of_its_fan_in() -> None:
    lucid.manual_seed(0)
    layer = nn.Conv2d(10, 64, (2, 5), groups=2)
    assert layer.bias is not None
    assert tuple(layer.weight.shape) == (64, 5, 2, 5)
    bound = 50**-0.5
    for tensor in (layer.weight, layer.bias):
        assert 0.85 * bound < np.abs(tensor.detach().numpy()).max() <= bound


MODULES: list[tuple[nn.Module, Callable[[Any, Any], Any]]] = [
    (nn.Conv1d(4, 6, 3, 2, 1), lambda m, x: F.conv1d(x, m.weight, m.bias, 2, 1)),
    (nn.ConvTranspose1d(4, 6, 3, 2, 1), lambda m, x: F.conv_transpose1d(x, m.weight, m.bias, 2, 1)),
    (nn.MaxPool1d(3, 2), lambda m, x: F.max_pool1d(x, 3, 2)),
    (nn.AvgPool1d(3, 2), lambda m, x: F.avg_pool1d(x, 3, 2)),
    (nn.AdaptiveAvgPool1d(2), lambda m, x: F.adaptive_avg_pool1d(x, 2)),
    (
        nn.Conv2d(4, 6, 3, padding="same", dilation=2, groups=2),
        lambda m, x: F.conv2d(x, m.weight, m.bias, 1, 2, 2, 2),
    ),
    (
        nn.Conv2d(4, 6, 3, padding=(2, 1), padding_mode="reflect"),
        lambda m, x: F.conv2d(F.pad(x, (1, 1, 2, 2), "reflect"), m.weight, m.bias),
    ),
    (
        nn.Conv2d(4, 6, 2, padding="same", padding_mode="replicate"),
        lambda m, x: F.conv2d(F.pad(x, (0, 1, 0, 1), "replicate"), m.weight, m.bias),
    ),
    (nn.ConvTranspose2d(4, 6, 3, 2), lambda m, x: F.conv_transpose2d(x, m.weight, m.bias, 2)),
    (nn.MaxPool2d(3, 2, 1), lambda m, x: F.max_pool2d(x, 3, 2, 1)),
    (nn.AvgPool2d(3, 2, 1), lambda m, x: F.avg_pool2d(x, 3, 2, 1)),
    (nn.AdaptiveAvgPool2d((2, None)), lambda m, x: F.adaptive_avg_pool2d(x, (2, None))),
    (nn.Conv3d(4, 6, 2, bias=False), lambda m, x: F.conv3d(x, m.weight)),
]


@pytest.mark.parametrize(("module", "function"), MODULES, ids=lambda value: "")
def test_modules_call_the_functions(module: nn.Module, function: Any) -> None:
    rank = int(type(module).__name__[-2])
    x = lucid.tensor(np.random.default_rng(0).normal(size=(2, 4, 7, 6, 5)[: rank + 2]))
    module.double()
    for found in both(module, x):
        assert_allclose(found.detach().numpy(), function(module, x).detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: nn.Conv2d(3, 5, 3, groups=2),
            "Conv2d: in_channels=3 must be divisible by groups=2",
        ),
        (
            lambda: nn.Conv2d(4, 5, 3, groups=2),
            "Conv2d: out_channels=5 must be divisible by groups=2",
        ),
        (
            lambda: nn.Conv1d(4, 4, 3, groups=0),
            "Conv1d: groups must be a positive integer, got 0",
        ),
        (
            lambda: nn.Conv2d(4, 4, 3, padding="sam"),
            "Conv2d: padding must be one of 'same', 'valid', not 'sam'",
        ),
        (
            lambda: nn.Conv2d(4, 4, 3, padding="same", stride=2),
            "Conv2d: padding='same' is not supported for strided convolutions",
        ),
        (
            lambda: nn.Conv2d(4, 4, 3, padding_mode="x"),
            "Conv2d: padding_mode must be one of 'circular', 'reflect', 'replicate', 'zeros', not "
            "'x'",
        ),
        (
            lambda: nn.ConvTranspose2d(4, 4, 3, padding_mode="reflect"),
            'ConvTranspose2d: Only "zeros" padding mode is supported',
        ),
    ],
)
def test_messages_of_modules(make: Callable[[], object], message: str) -> None:
    with pytest.raises(lucid.LucidError) as caught:
        make()
    assert str(caught.value) == message


def test_batch_norm_2d_standardizes_channels_of_images_only() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 3, 5, 2))
    layer = nn.BatchNorm2d(3).double()
    mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    assert_allclose(
        layer(lucid.tensor(x)).detach().numpy(), (x - mean) / np.sqrt(variance + 1e-5), rtol=1e-10
    )
    with pytest.raises(
        lucid.ShapeError, match=r"^BatchNorm2d: expected 4D input, not 2D\n  input: +f32"
    ):
        layer(lucid.zeros(4, 3))


def test_a_network_learns_the_same_compiled() -> None:
    def train(decorator: Any) -> list[float]:
        lucid.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 6, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(6, 3),
        ).double()  # fmt: skip
        optimizer = lucid.optim.SGD(model.parameters(), lr=0.1)
        x = lucid.tensor(np.random.default_rng(0).normal(size=(8, 1, 10, 9)))
        labels = lucid.tensor([0, 1, 2, 0, 1, 2, 0, 1])

        @decorator
        def step() -> lucid.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return [step().item() for _ in range(4)]

    eager = train(lambda step: step)
    assert_allclose(train(lucid.compile), eager, rtol=1e-9)
    assert eager[-1] < eager[0]


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_strides_and_dilations_that_are_never_taken_may_be_of_any_size(mode: str) -> None:
    def call(x: lucid.Tensor, w: lucid.Tensor) -> list[lucid.Tensor]:
        far = 2**62
        strided, dilated = F.conv2d(x, w, stride=far), F.conv2d(x, w[..., :1, :1], dilation=far)
        return [strided, dilated, F.max_pool2d(x, 2, stride=far), F.unfold(x, 2, stride=far)]

    x = lucid.arange(16.0).reshape(1, 1, 4, 4)
    w = lucid.ones(1, 1, 2, 2)
    found = (lucid.compile(call) if mode == "compiled" else call)(x, w)
    assert found[0].tolist() == [[[[10.0]]]] and found[1].tolist() == x.tolist()
    assert found[2].tolist() == [[[[5.0]]]] and found[3].flatten().tolist() == [0.0, 1.0, 4.0, 5.0]


@pytest.mark.parametrize("seed", range(12))
def test_the_gradient_of_the_input_is_the_transpose(seed: int) -> None:
    """Over steps, dilations, padding and groups at random, few and many positions."""
    rng = np.random.default_rng(seed)
    rank, groups = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 3]))
    sizes, steps, dilations = ([int(n) for n in rng.integers(1, 5, rank)] for _ in range(3))
    padding = [int(n) for n in rng.integers(0, 5, rank)]
    spans = [(size - 1) * far + 1 for size, far in zip(sizes, dilations, strict=True)]
    least = [max(1, n - 2 * p) for n, p in zip(spans, padding, strict=True)]
    lengths = [n + int(rng.integers(0, 7)) for n in least]
    channels = groups * int(rng.integers(1, 4)), groups * int(rng.integers(1, 20))
    x = lucid.tensor(rng.normal(size=(3, channels[0], *lengths)), requires_grad=True)
    weight = lucid.tensor(rng.normal(size=(channels[1], channels[0] // groups, *sizes)))
    options = {"stride": steps, "padding": padding, "dilation": dilations, "groups": groups}
    convolve = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]

    def differentiate(x: lucid.Tensor, u: lucid.Tensor | None = None) -> Any:
        y = convolve(x, weight, **options)
        u = lucid.ones_like(y) if u is None else u
        return y, lucid.autograd.grad(y, x, u)[0]

    y, _ = differentiate(x)
    u = lucid.tensor(rng.normal(size=y.shape))
    for run in (differentiate, lucid.compile(differentiate)):
        y, gradient = run(x, u)
        expected, found = (y * u).sum().item(), (x * gradient).sum().item()
        assert_allclose(found, expected, rtol=1e-10, atol=1e-9)


def test_layers_of_the_users_take_pytorchs_arguments_and_their_own_weights(run: Any) -> None:
    class Scaled(nn.Conv2d):
        def forward(self, input: lucid.Tensor) -> lucid.Tensor:
            return self._conv_forward(input, self.weight * 2, None)

    class Plain(nn.modules.conv._ConvNd):  # with the positional arguments of PyTorch's
        def __init__(self, transposed: bool) -> None:
            sliding = (3, 2), (2, 1), (1, 0), (1, 1), transposed, (0, 0)
            super().__init__(4, 6, *sliding, 2, True, "zeros")

        def forward(self, input: lucid.Tensor) -> lucid.Tensor:
            function = F.conv_transpose2d if self.transposed else F.conv2d
            options = {"stride": self.stride, "padding": self.padding, "groups": self.groups}
            return function(input, self.weight, self.bias, **options)

    scaled = Scaled(4, 6, (3, 2), padding=1, padding_mode="reflect", bias=False)
    direct, transposed = Plain(False), Plain(True)
    assert direct.weight.shape == (6, 2, 3, 2) and transposed.weight.shape == (4, 3, 3, 2)
    assert repr(direct).startswith("Plain(4, 6, kernel_size=(3, 2), stride=(2, 1), padding=(1, 0)")
    x = lucid.rand(2, 4, 5, 7)
    found = run(lambda x: (scaled(x), direct(x), transposed(x)), x)
    padded = F.pad(x, (1, 1, 1, 1), mode="reflect")
    own = nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0), groups=2)
    own.load_state_dict(direct.state_dict())
    assert_allclose(found[0].detach(), 2 * F.conv2d(padded, scaled.weight).detach(), atol=1e-5)
    assert_allclose(found[1].detach(), own(x).detach(), atol=1e-6)
    assert found[2].shape == (2, 6, 9, 8)


@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 2, 2)])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_custom_convolution_has_the_gradients_of_the_librarys(
    rank: int, stride: int, padding: int, dilation: int, groups: int, prepared: Callable[..., Any]
) -> None:
    function: Any = getattr(F, f"conv{rank}d")
    options = stride, padding, dilation, groups

    class Convolution(lucid.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: lucid.Tensor, weight: lucid.Tensor) -> lucid.Tensor:
            ctx.save_for_backward(x, weight)
            return function(x, weight, None, *options)

        @staticmethod
        def backward(ctx: Any, g: lucid.Tensor) -> tuple[lucid.Tensor, lucid.Tensor]:
            x, weight = ctx.saved_tensors
            by_input: Any = getattr(nn.grad, f"conv{rank}d_input")
            by_weight: Any = getattr(nn.grad, f"conv{rank}d_weight")
            return (
                by_input(x.shape, weight, g, *options),
                by_weight(x, weight.shape, g, *options),
            )

    def gradients(convolution: Any) -> Any:
        x = lucid.randn(3, 4, *range(7, 7 + rank), generator=lucid.Generator().manual_seed(1))
        weight = lucid.randn(6, 4 // groups, *[2] * rank, generator=lucid.Generator())
        x.requires_grad_()
        weight.requires_grad_()
        return lucid.autograd.grad((convolution(x, weight) ** 2).sum(), [x, weight])

    expected = gradients(lambda x, weight: function(x, weight, None, *options))
    for found, wanted in zip(prepared(gradients)(Convolution.apply), expected, strict=True):
        assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-4)


def test_gradients_of_convolutions_refuse_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"conv1d_input: grad_output must be \[1, 4, 6\], not"):
        nn.grad.conv1d_input((1, 2, 8), lucid.ones(4, 2, 3), lucid.ones(1, 4, 5))
    with pytest.raises(ValueError, match=r"conv2d_weight: an input of size \[1, 2, 8, 8\] and a"):
        nn.grad.conv2d_weight(lucid.ones(1, 2, 8, 8), (4, 3, 2, 2), lucid.ones(1, 4, 7, 7))


# Winograd's algorithm -------------------------------------------------------------------------


@pytest.fixture
def high_precision_will_do():
    """Less than the highest precision, until the end of the test."""
    lucid.set_float32_matmul_precision("high")
    yield
    lucid.set_float32_matmul_precision("highest")


def derivatives(compile, x, w, u, **options):
    """A convolution, its gradients by both operands, and those of a function of these."""

    def step(x, w, u):
        y = F.conv2d(x, w, **options)
        first = lucid.autograd.grad(
            y, (x, w), u[: y.shape[0], :, : y.shape[2], : y.shape[3]], create_graph=True
        )
        second = lucid.autograd.grad(sum((g * g).sum() for g in first), (x, w))
        return [y, *first, *second]

    return [value.detach().numpy() for value in compile(step)(x, w, u)]


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((2, 3, 8, 8), {"padding": 1}),
        ((1, 2, 5, 7), {"padding": 0}),
        ((3, 1, 3, 3), {"padding": 0}),
        ((2, 2, 4, 9), {"padding": (2, 1)}),
        ((1, 2, 6, 5), {"padding": 4}),
        ((2, 2, 1, 10), {"padding": "same"}),
    ],
)
def test_transformed_tiles_give_what_windows_give(
    shape, options, prepared, high_precision_will_do, monkeypatch
):
    asked = []
    monkeypatch.setattr(winograd, "pays", lambda *shapes: asked.append(shapes) or True)
    rng = np.random.default_rng(0)
    drawn = (
        rng.normal(size=shape),
        rng.normal(size=(4, shape[1], 3, 3)),
        rng.normal(size=(3, 4, 14, 14)),
    )
    exact = derivatives(
        lambda f: f, *(lucid.tensor(a, requires_grad=True) for a in drawn), **options
    )
    inputs = [lucid.tensor(a.astype("f"), requires_grad=True) for a in drawn]
    for found, expected in zip(derivatives(prepared, *inputs, **options), exact, strict=True):
        assert found.shape == expected.shape
        assert_allclose(found, expected, rtol=0, atol=3e-5 * np.abs(expected).max())
    assert asked


@pytest.mark.parametrize(
    ("input", "weight", "expected"),
    [
        ((32, 64, 32, 32), (64, 64, 3, 3), True),
        ((32, 128, 16, 16), (128, 128, 3, 3), True),
        ((32, 32, 32, 32), (32, 32, 3, 3), False),  # tiles take longer than products
        ((32, 512, 4, 4), (512, 512, 3, 3), False),  # and so do weights
        ((1, 512, 14, 14), (512, 512, 3, 3), False),
    ],
)
def test_tiles_are_transformed_where_channels_are_many(input, weight, expected):
    assert winograd.pays(input, weight, input[2:]) is expected


def test_the_precision_is_looked_at_by_each_call(prepared):
    rng = np.random.default_rng(1)
    x = lucid.tensor(rng.normal(size=(8, 128, 16, 16)).astype("f"))
    w = lucid.tensor(rng.normal(size=(128, 128, 3, 3)).astype("f"))
    step = prepared(lambda x: F.conv2d(x, w, padding=1))
    try:
        exact = step(x).numpy()
        lucid.set_float32_matmul_precision("high")
        quick = step(x).numpy()
    finally:
        lucid.set_float32_matmul_precision("highest")
    assert_array_equal(step(x).numpy(), exact)
    difference = np.abs(quick - exact).max() / np.abs(exact).max()
    assert 0 < difference < 3e-5


@pytest.mark.parametrize(
    ("rank", "options", "dtype"),
    [
        (2, {"stride": 2}, "f4"),
        (2, {"dilation": 2}, "f4"),
        (2, {"groups": 2}, "f4"),
        (2, {}, "f8"),
        (1, {}, "f4"),
        (3, {}, "f4"),
    ],
)
def test_other_convolutions_stay_as_they_are(
    rank, options, dtype, high_precision_will_do, monkeypatch
):
    monkeypatch.setattr(winograd, "pays", lambda *shapes: True)
    rng = np.random.default_rng(2)
    x = lucid.tensor(rng.normal(size=(2, 4, *[7] * rank)).astype(dtype))
    w = lucid.tensor(rng.normal(size=(4, 4 // options.get("groups", 1), *[3] * rank)).astype(dtype))
    convolve = getattr(F, f"conv{rank}d")
    quick = convolve(x, w, **options).numpy()
    lucid.set_float32_matmul_precision("highest")
    assert_array_equal(quick, convolve(x, w, **options).numpy())
