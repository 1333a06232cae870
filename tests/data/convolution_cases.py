"""Convolutions and pools with PyTorch's API, written once and run on two modules.

`F` is `torch.nn.functional` when record_convolutions.py records the numbers, and lucid's when
nn/test_convolution.py compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from parity_cases import Arrays, Decorator, Module, Tensor, array, numbers, tensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class SlidingCase:
    """`apply(F, *tensors)` on tensors of these shapes."""

    name: str
    apply: Callable[..., Tensor]
    shapes: tuple[Shape, ...]

    def run(self, L: Module, F: Module, compiled: Decorator, dtype: str) -> Arrays:
        """The value, the gradients of its cubes' sum, and those of the gradients' squares' sum."""

        @compiled
        def derivatives(*xs: Tensor) -> Any:
            y = self.apply(F, *xs)
            first = L.autograd.grad((y * y * y).sum(), xs, create_graph=True)
            squares = [(g * g).sum() for g in first]
            return y, first, L.autograd.grad(sum(squares[1:], squares[0]), xs)

        drawn = (numbers(f"{self.name} {i}", *shape) for i, shape in enumerate(self.shapes))
        y, first, second = derivatives(*(tensor(L, a, dtype, requires_grad=True) for a in drawn))
        found = {"value": array(y)}
        found |= {f"gradient{i}": array(g) for i, g in enumerate(first)}
        return found | {f"second{i}": array(g) for i, g in enumerate(second)}


def _convolution(name: str, image: Shape, weight: Shape, **options: Any) -> SlidingCase:
    def apply(F: Any, x: Any, w: Any, b: Any) -> Any:
        return getattr(F, name)(x, w, b, **options)

    channels = weight[0]
    if "transpose" in name:
        channels = weight[1] * options.get("groups", 1)
    text = " ".join(f"{key}={value}" for key, value in options.items())
    shown = "x".join(map(str, image)) + " " + "x".join(map(str, weight))
    return SlidingCase(f"{name} {shown} {text}".strip(), apply, (image, weight, (channels,)))


def _pool(name: str, image: Shape, *arguments: Any, **options: Any) -> SlidingCase:
    text = " ".join([*map(str, arguments), *(f"{k}={v}" for k, v in options.items())])
    shown = f"{name} {'x'.join(map(str, image))} {text}"
    return SlidingCase(shown, lambda F, x: getattr(F, name)(x, *arguments, **options), (image,))


def _cases() -> Iterable[SlidingCase]:
    image, weight = (2, 3, 9, 7), (4, 3, 3, 2)
    for options in (
        {},
        {"padding": 1},
        {"padding": (2, 1), "stride": (1, 2)},
        {"stride": 2, "padding": 1},
        {"stride": 3},
        {"dilation": 2, "padding": 2},
        {"dilation": (1, 3), "stride": (2, 1), "padding": (0, 2)},
        {"padding": "same"},
        {"padding": "same", "dilation": 3},
        {"padding": "valid"},
    ):
        yield _convolution("conv2d", image, weight, **options)
    yield _convolution("conv2d", (2, 4, 5, 18), (6, 2, 3, 3), groups=2, padding=1)
    yield _convolution("conv2d", (2, 4, 6, 5), (8, 1, 3, 3), groups=4, padding=1, stride=2)
    yield _convolution("conv2d", (2, 4, 6, 5), (4, 1, 3, 3), groups=4, padding=1)
    yield _convolution("conv2d", (2, 5, 6, 4), (3, 5, 1, 1))
    yield _convolution("conv2d", (2, 5, 6, 5), (3, 5, 1, 1), stride=2)
    yield _convolution("conv2d", (2, 3, 8, 12), (5, 3, 4, 4), stride=4)
    yield _convolution("conv2d", (1, 2, 4, 21), (19, 2, 3, 3), padding=1)
    yield _convolution("conv2d", (3, 9, 7), (4, 3, 3, 3), padding=1)
    yield _convolution("conv1d", (2, 3, 23), (4, 3, 4), padding=2)
    yield _convolution("conv1d", (2, 3, 23), (4, 3, 4), stride=3, dilation=2)
    yield _convolution("conv3d", (2, 2, 4, 5, 3), (3, 2, 3, 2, 3), padding=1)
    image, weight = (2, 4, 5, 3), (4, 3, 3, 2)
    for options in (
        {},
        {"padding": 1},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"stride": (3, 2), "output_padding": (2, 0), "groups": 2},
        {"dilation": 2, "padding": (1, 0)},
    ):
        yield _convolution("conv_transpose2d", image, weight, **options)
    yield _convolution("conv_transpose1d", (2, 4, 5), (4, 3, 3), stride=2, padding=1)
    yield _convolution(
        "conv_transpose3d", (2, 4, 2, 3, 2), (4, 1, 2, 3, 2), stride=(1, 2, 2), groups=2
    )
    yield _convolution("conv_transpose3d", (2, 2, 3, 2), (2, 3, 3, 2, 2), padding=1, dilation=2)
    image = (2, 3, 9, 7)
    for size, options in (
        (2, {}),
        (3, {"stride": 2, "padding": 1}),
        ((3, 2), {"stride": 1}),
        (3, {"stride": 2, "ceil_mode": True}),
        (2, {"ceil_mode": True}),
    ):
        yield _pool("max_pool2d", image, size, **options)
        yield _pool("avg_pool2d", image, size, **options)
    yield _pool("max_pool2d", image, 2, dilation=3, stride=1)
    yield _pool("max_pool2d", (3, 6, 40), 2)
    yield _pool("max_pool1d", (2, 3, 11), 3, 2, 1)
    yield _pool("avg_pool1d", (2, 3, 11), 3, 2, 1)
    yield _pool("avg_pool2d", image, 3, 2, 1, count_include_pad=False)
    yield _pool("avg_pool2d", image, 3, 2, 1, ceil_mode=True, count_include_pad=False)
    yield _pool("avg_pool2d", image, 2, divisor_override=3)
    for size in (1, 3, (4, 5), (None, 2)):
        yield _pool("adaptive_avg_pool2d", image, size)
    yield _pool("adaptive_avg_pool1d", (2, 3, 11), 4)


CASES = tuple(_cases())
