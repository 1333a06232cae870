"""Layers and losses with inputs: what they give and the gradients are compared with PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from inputs import fill, integers, numbers, uniform

Arrays = dict[str, np.ndarray]


def signs(name: str, *shape: int) -> np.ndarray:
    """-1 or 1, f32."""
    return (2 * integers(name, 2, *shape) - 1).astype(np.float32)


SEQUENCE, BATCH_FIRST, ONE = numbers("l", 6, 2, 3), numbers("b", 2, 6, 3), numbers("o", 6, 3)
STATE, STATES = numbers("h", 5, 4), (numbers("h0", 1, 2, 4), numbers("c0", 1, 2, 4))
Q, K, WIDE = numbers("q", 5, 3, 8), numbers("k", 6, 3, 8), numbers("w", 5, 6) * 3
A, P, N = numbers("a", 5, 3), numbers("p", 5, 3), numbers("n", 5, 3)
IMAGE, LINE, VOLUME = numbers("i", 2, 4, 4, 5), numbers("e", 2, 3, 7), numbers("v", 2, 2, 4, 3, 4)
BAGS, TEXT, STARTS = integers("bags", 9, 5, 3), integers("text", 9, 7), np.array([0, 2, 2, 5])
LAYER = "nn.TransformerEncoderLayer(8, 2, 16, 0.0"
CONSTRUCTED: list[tuple[str, tuple[Any, ...]]] = [
    ("nn.RNNCell(3, 4)", (A, STATE)),
    ("nn.RNNCell(3, 4, nonlinearity='relu')", (A,)),
    ("nn.LSTMCell(3, 4)", (A, (STATE, numbers("c", 5, 4)))),
    ("nn.LSTMCell(3, 4, bias=False)", (A[0],)),
    ("nn.GRUCell(3, 4)", (A, STATE)),
    ("nn.RNN(3, 4)", (SEQUENCE,)),
    ("nn.RNN(3, 4, 2, 'relu')", (SEQUENCE,)),
    ("nn.LSTM(3, 4, 2, bidirectional=True)", (SEQUENCE,)),
    ("nn.LSTM(3, 4, batch_first=True)", (BATCH_FIRST, STATES)),
    ("nn.GRU(3, 4, num_layers=2, bidirectional=True, batch_first=True)", (BATCH_FIRST,)),
    ("nn.GRU(3, 4, bias=False)", (ONE,)),
    ("nn.MultiheadAttention(8, 2)", (Q, K, K)),
    ("nn.MultiheadAttention(8, 2, batch_first=True, bias=False)", (Q, Q, Q)),
    ("nn.MultiheadAttention(8, 4, kdim=5, vdim=6)", (Q, K[..., :5], K[..., :6])),
    ("nn.MultiheadAttention(8, 2)", (Q[:, 0], K[:, 0], K[:, 0])),
    (f"{LAYER})", (Q,)),
    (f"{LAYER}, 'gelu', batch_first=True, norm_first=True)", (Q,)),
    (f"nn.TransformerEncoder({LAYER}, batch_first=True), 2, nn.LayerNorm(8))", (Q,)),
    ("nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0)", (Q, K)),
    ("nn.Transformer(8, 2, 1, 1, 16, 0.0)", (Q, K)),
    *((f"nn.{name}", (IMAGE,)) for name in (
        "GroupNorm(2, 4)", "GroupNorm(4, 4, affine=False)", "InstanceNorm2d(4)",
        "InstanceNorm2d(4, affine=True, track_running_stats=True)", "LocalResponseNorm(3, 0.1)",
        "Upsample(scale_factor=2)", "Upsample((7, 3))", "Upsample(scale_factor=1.5)",
        "Upsample(size=(7, 9), mode='bilinear')", "Upsample((3, 8), mode='bicubic')",
        "Upsample(scale_factor=(2, 1.5), mode='bilinear', align_corners=True)",
        "Upsample(scale_factor=0.7, mode='bicubic', align_corners=True)",
        "Upsample(size=(3, 4), mode='area')", "Upsample(size=3, mode='nearest-exact')",
        "UpsamplingBilinear2d(scale_factor=2)", "PixelShuffle(2)", "ChannelShuffle(2)",
        "Unfold((2, 3), 1, 1, 2)", "AdaptiveMaxPool2d((2, 3))", "AdaptiveMaxPool2d(3)",
        "LPPool2d(2, 2)", "ZeroPad2d(1)", "ConstantPad2d((1, 2, 0, 1), 0.5)", "CircularPad2d(1)",
        "ReflectionPad2d((1, 2, 2, 1))", "ReplicationPad2d(2)", "Softmax2d()", "RReLU().eval()",
    )),
    ("nn.PixelUnshuffle(2)", (IMAGE[:, :, :4, :4],)),
    ("nn.Fold((4, 5), (2, 2))", (numbers("columns", 2, 8, 12),)),
    ("nn.Upsample(scale_factor=2, mode='linear')", (LINE,)),
    ("nn.InstanceNorm1d(3, affine=True)", (LINE,)),
    ("nn.AdaptiveMaxPool1d(4)", (LINE,)),
    ("nn.LPPool1d(3, 2)", (LINE**2,)),
    ("nn.ReflectionPad1d(2)", (LINE,)),
    ("nn.MaxPool3d(2)", (VOLUME,)),
    ("nn.AvgPool3d((2, 2, 1), padding=(1, 0, 0))", (VOLUME,)),
    ("nn.AdaptiveAvgPool3d((2, 1, 3))", (VOLUME,)),
    ("nn.BatchNorm3d(2)", (VOLUME,)),
    ("nn.ConvTranspose3d(2, 3, (2, 3, 2), 2, 1, 1, dilation=2)", (VOLUME,)),
    ("nn.MaxPool1d(3, 2, 1, return_indices=True)", (LINE,)),
    ("nn.MaxPool3d((2, 1, 2), return_indices=True)", (VOLUME,)),
    ("Unpooled(nn.MaxPool1d(2, return_indices=True), nn.MaxUnpool1d(2), None)", (LINE,)),
    (
        "Unpooled(nn.MaxPool2d((2, 3), (2, 2), (1, 1), 1, True), "
        "nn.MaxUnpool2d((2, 3), (2, 2), (1, 1)), (5, 5))",
        (IMAGE,),
    ),
    ("Unpooled(nn.MaxPool3d(2, return_indices=True), nn.MaxUnpool3d(2), (4, 3, 4))", (VOLUME,)),
    ("nn.Upsample(scale_factor=2, mode='trilinear')", (VOLUME,)),
    ("nn.MultiLabelMarginLoss()", (WIDE[:2], np.array([[3, 0, -1, 1, 1, 1], [5, 4, 3, 2, 1, 0]]))),
    ("nn.Sequential(nn.LogSoftmax(-1), Labelled(nn.CTCLoss()))", (numbers("ctc", 9, 3, 5),)),
    ("nn.Sequential(nn.LogSoftmax(-1), Labelled(nn.CTCLoss(2, 'sum')))", (numbers("ct", 9, 3, 5),)),
    ("nn.Bilinear(3, 3, 5)", (A, P)),
    ("nn.EmbeddingBag(9, 4)", (BAGS,)),
    ("nn.EmbeddingBag(9, 4, mode='sum')", (TEXT, STARTS)),
    ("nn.EmbeddingBag(9, 4, mode='max')", (TEXT, STARTS)),
    ("nn.EmbeddingBag(9, 4, mode='mean', padding_idx=2)", (TEXT, STARTS)),
    ("nn.EmbeddingBag(9, 4, mode='max', padding_idx=2)", (BAGS,)),
    ("nn.PReLU(6)", (WIDE,)),
    ("nn.GLU()", (WIDE,)),
    *((f"nn.{name}", (WIDE,)) for name in (
        "Hardsigmoid()", "Hardswish()", "SELU()", "Hardtanh(-0.5, 0.2)", "Threshold(0.1, 20.0)",
        "CELU(0.5)", "Softsign()", "Tanhshrink()", "Softshrink()", "Hardshrink(0.3)", "Softmin(1)",
        "Unflatten(1, (2, 3))",
    )),
    *((f"nn.Sequential(nn.Linear(6, 6), nn.{name})", (WIDE,)) for name in (
        "Hardswish(True)", "LeakyReLU(0.2, True)", "ELU(inplace=True)", "ReLU(True)", "SiLU(True)",
        "Mish(True)", "ReLU6(True)", "SELU(True)", "CELU(inplace=True)", "Hardtanh(inplace=True)",
    )),
    ("nn.CosineSimilarity()", (A, P)),
    ("nn.PairwiseDistance(1, keepdim=True)", (A, P)),
    ("nn.TripletMarginLoss(0.3, p=1, swap=True)", (A, P, N)),
    ("nn.TripletMarginWithDistanceLoss(margin=2.0)", (A, P, N)),
    ("nn.CosineEmbeddingLoss(0.2)", (A, P, signs("y", 5))),
    ("nn.MarginRankingLoss(0.1)", (A[:, 0], P[:, 0], signs("y", 5))),
    ("nn.HingeEmbeddingLoss(0.4)", (A, signs("y", 5, 3))),
    ("nn.MultiLabelSoftMarginLoss()", (A, integers("y", 2, 5, 3).astype(np.float32))),
    ("nn.MultiMarginLoss()", (A, integers("y", 3, 5))),
    ("nn.MultiMarginLoss(2, 0.5)", (A, integers("y", 3, 5))),
    ("nn.GaussianNLLLoss(full=True)", (A, P, uniform("v", 5, 3) + 0.1)),
    ("nn.PoissonNLLLoss()", (A, uniform("v", 5, 3) * 4)),
    ("nn.PoissonNLLLoss(False, True)", (uniform("r", 5, 3) + 0.1, uniform("v", 5, 3) * 4)),
]  # fmt: skip


def run(L: Any, expression: str, inputs: tuple[Any, ...], decorator: Callable[..., Any]) -> Arrays:
    """Outputs, and gradients of inputs and parameters for a fixed cotangent."""
    module = fill(eval(expression, {"nn": L.nn, "Labelled": labelled(L), "Unpooled": unpooled(L)}))
    given = _map(lambda a: L.tensor(a, requires_grad=a.dtype.kind == "f"), inputs)

    @decorator
    def step() -> list[Any]:
        outputs = [y for y in _flat(module(*given)) if y is not None]
        wanted = [L.arange(1.0, y.numel() + 1).reshape(y.shape).cos() for y in outputs]
        sum((y * w).sum() for y, w in zip(outputs, wanted, strict=True)).backward()
        return [y.detach() for y in outputs]

    found = {f"output {i}": np.array(y.numpy()) for i, y in enumerate(step())}
    leaves = [*_flat(given), *module.parameters()]
    for i, leaf in enumerate(leaves):
        if leaf.grad is not None and np.any(leaf.grad.numpy()):
            found[f"gradient {i}"] = np.array(leaf.grad.numpy())
    return found


def labelled(L: Any) -> Any:
    """A module that gives a CTC loss its labels and lengths."""

    class Labelled(L.nn.Module):  # type: ignore[misc]
        def __init__(self, loss: Any) -> None:
            super().__init__()
            self.loss = loss

        def forward(self, x: Any) -> Any:
            targets = L.tensor([[1, 1, 3, 4], [3, 4, 0, 0], [4, 3, 4, 1]])
            return self.loss(x, targets, L.tensor([9, 7, 8]), L.tensor([4, 2, 3]))

    return Labelled


def unpooled(L: Any) -> Any:
    """A module that gives an unpooling layer what a pool gave."""

    class Unpooled(L.nn.Module):  # type: ignore[misc]
        def __init__(self, pool: Any, unpool: Any, size: Any) -> None:
            super().__init__()
            self.pool, self.unpool, self.size = pool, unpool, size

        def forward(self, x: Any) -> Any:
            return self.unpool(*self.pool(x), output_size=self.size)

    return Unpooled


def _map(function: Callable[[Any], Any], values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_map(function, v) if isinstance(v, tuple) else function(v) for v in values)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _flat(item)]
    return [value]
