"""Convolutions of known networks, layer by layer: lucid compiled against PyTorch's eager mode.

    python benchmarks/conv_layers.py --peers-python …

For each layer the forward, the gradient of the input and that of the weights are timed by
themselves, in two processes that take turns; a figure is the median of the rounds. What is aimed at
is a median ratio of 1.0 over all, and 1.5 for the worst. Results agree before a time counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PASSES = ("forward", "input", "weights")
MEDIAN, WORST = 1.0, 1.5  # what is aimed at
FIRST = 20  # calls with several threads in which lucid finds out whether they help


@dataclass(frozen=True)
class Layer:
    """A convolution: channels, kernel, stride, padding, side of the images, groups."""

    name: str
    channels: tuple[int, int]
    kernel: int
    stride: int
    padding: int
    side: int
    groups: int = 1
    is_transposed: bool = False


def _stages(name: str, rows: list[tuple[int, ...]]) -> list[Layer]:
    """Layers of one network, numbered: channels in and out, kernel, stride, side, groups."""
    found = []
    for number, (given, made, kernel, stride, side, *groups) in enumerate(rows, 1):
        padding = (kernel - 1) // 2
        layer = Layer(f"{name}.{number}", (given, made), kernel, stride, padding, side, *groups)
        found.append(layer)
    return found


LAYERS = [
    *_stages(
        "resnet18",
        [
            *((3, 64, 3, 1, 32), (64, 64, 3, 1, 32), (64, 128, 3, 2, 32), (64, 128, 1, 2, 32)),
            *((128, 128, 3, 1, 16), (128, 256, 3, 2, 16), (256, 256, 3, 1, 8)),
            *((256, 512, 3, 2, 8), (256, 512, 1, 2, 8), (512, 512, 3, 1, 4)),
        ],
    ),
    *_stages(
        "resnet50",
        [
            *((3, 64, 7, 2, 112), (64, 64, 1, 1, 28), (64, 64, 3, 1, 28), (64, 256, 1, 1, 28)),
            *((256, 128, 1, 1, 28), (128, 128, 3, 2, 28), (128, 512, 1, 1, 14)),
            *((256, 256, 3, 2, 14), (1024, 256, 1, 1, 7), (256, 1024, 1, 1, 7)),
            *((512, 512, 3, 1, 4), (2048, 512, 1, 1, 4)),
        ],
    ),
    *_stages(
        "vgg16",
        [
            *((3, 64, 3, 1, 32), (64, 64, 3, 1, 32), (128, 128, 3, 1, 16), (256, 256, 3, 1, 8)),
            *((512, 512, 3, 1, 4), (512, 512, 3, 1, 2)),
        ],
    ),
    *_stages(
        "mobilenet2",
        [
            *((3, 32, 3, 2, 64), (32, 32, 3, 1, 32, 32), (96, 96, 3, 2, 32, 96)),
            *((16, 96, 1, 1, 32), (96, 24, 1, 1, 16), (384, 384, 3, 1, 4, 384)),
            *((384, 64, 1, 1, 4), (320, 1280, 1, 1, 2)),
        ],
    ),
    *_stages(
        "unet",
        [
            *((3, 32, 3, 1, 64), (32, 32, 3, 1, 64), (64, 64, 3, 1, 32), (128, 128, 3, 1, 16)),
            *((256, 256, 3, 1, 8), (384, 128, 3, 1, 16), (96, 32, 3, 1, 64)),
        ],
    ),
    *(
        Layer(f"dcgan.d{number}", channels, 4, 2, 1, side)
        for number, (channels, side) in enumerate(
            [((3, 64), 32), ((64, 128), 16), ((128, 256), 8), ((256, 512), 4)], 1
        )
    ),
    *(
        Layer(f"dcgan.g{number}", channels, 4, 2, 1, side, is_transposed=True)
        for number, (channels, side) in enumerate(
            [((512, 256), 2), ((256, 128), 4), ((128, 64), 8), ((64, 3), 16)], 1
        )
    ),
]


def arrays(layer: Layer, batch: int) -> list[np.ndarray]:
    """Input, weights and a cotangent."""
    rng = np.random.default_rng(0)
    given, made = layer.channels
    pair = (given, made) if layer.is_transposed else (made, given)
    weights = (pair[0], pair[1] // layer.groups, layer.kernel, layer.kernel)
    if layer.is_transposed:
        side = (layer.side - 1) * layer.stride - 2 * layer.padding + layer.kernel
    else:
        side = (layer.side + 2 * layer.padding - layer.kernel) // layer.stride + 1
    shapes = [(batch, given, layer.side, layer.side), weights, (batch, made, side, side)]
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def of_lucid(layer: Layer, batch: int, threads: int) -> list[Callable[[], Any]]:
    """The three passes, each a compiled function."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    import lucid

    lucid.set_num_threads(threads)
    x, weights, g = map(lucid.tensor, arrays(layer, batch))
    functional: Any = lucid.nn.functional
    run = functional.conv_transpose2d if layer.is_transposed else functional.conv2d
    options = {"stride": layer.stride, "padding": layer.padding, "groups": layer.groups}

    def differentiate(number: int) -> Callable[..., Any]:
        def gradient(x: Any, weights: Any, g: Any) -> Any:
            leaves = [x.detach(), weights.detach()]
            leaves[number].requires_grad_()
            return lucid.autograd.grad(run(*leaves, **options), leaves[number], g)[0]

        return lucid.compile(gradient)

    forward = lucid.compile(lambda x, weights: run(x, weights, **options))
    of_input, of_weights = differentiate(0), differentiate(1)
    return [
        lambda: forward(x, weights),
        lambda: of_input(x, weights, g),
        lambda: of_weights(x, weights, g),
    ]


def of_torch(layer: Layer, batch: int, threads: int) -> list[Callable[[], Any]]:
    """The three passes, each one call of PyTorch's."""
    import torch

    torch.set_num_threads(threads)
    x, weights, g = map(torch.tensor, arrays(layer, batch))
    run = torch.nn.functional.conv_transpose2d if layer.is_transposed else torch.conv2d
    options = {"stride": layer.stride, "padding": layer.padding, "groups": layer.groups}
    steps, ends = [layer.stride] * 2, [layer.padding] * 2
    rest = (None, steps, ends, [1, 1], layer.is_transposed, [0, 0], layer.groups)

    def backward(number: int) -> Any:
        wanted = [number == 0, number == 1, False]
        return torch.ops.aten.convolution_backward(g, x, weights, *rest, wanted)[number]

    return [lambda: run(x, weights, **options), lambda: backward(0), lambda: backward(1)]


def work(kind: str, threads: int) -> None:
    """Answer each line, a layer's number and a batch, by seconds and a sum of each pass."""
    build = {"lucid": of_lucid, "torch": of_torch}[kind]
    functions: dict[tuple[int, int], list[Callable[[], Any]]] = {}
    for line in sys.stdin:
        number, batch = key = tuple(map(int, line.split()))
        if key not in functions:
            functions.clear()
            functions[key] = build(LAYERS[number], batch, threads)
            for function in functions[key] * (FIRST if threads > 1 else 0):
                function()
        found = []
        for function in functions[key]:
            result = function()
            total = float(np.abs(np.asarray(result.detach())).sum(dtype=np.float64))
            found.append((timed(function), total))
        print(json.dumps(found), flush=True)


def timed(function: Callable[[], Any], seconds: float = 0.1) -> float:
    """Seconds of a call: the least of a few repeated ones."""
    times = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


class Worker:
    """A process with one of the two."""

    def __init__(self, kind: str, python: str, threads: int) -> None:
        command = [python, __file__, "--worker", kind, "--threads", str(threads)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process: Any = subprocess.Popen(command, env=environment, **pipes)

    def measure(self, number: int, batch: int) -> list[tuple[float, float]]:
        print(number, batch, file=self._process.stdin, flush=True)
        found: list[tuple[float, float]] = json.loads(self._process.stdout.readline())
        return found


def main() -> None:
    """Print a row for each layer and batch, and how far all of them are from the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers-python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", nargs="+", default=[""], help="beginnings of their names")
    parser.add_argument("--worker", choices=("lucid", "torch"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.threads)
        return
    workers = [
        Worker("lucid", sys.executable, args.threads),
        Worker("torch", args.peers_python, args.threads),
    ]
    ratios: list[float] = []
    print("layer            batch   " + "   ".join(f"{name:>22}" for name in PASSES))
    for number, layer in enumerate(LAYERS):
        if not layer.name.startswith(tuple(args.layers)):
            continue
        for batch in args.batches:
            rounds = [[w.measure(number, batch) for w in workers] for _ in range(args.rounds)]
            cells = []
            for place in range(len(PASSES)):
                ours, theirs = (
                    statistics.median(entry[side][place][0] for entry in rounds) for side in (0, 1)
                )
                sums = [rounds[0][side][place][1] for side in (0, 1)]
                assert abs(sums[0] - sums[1]) <= 1e-3 * abs(sums[1]), f"{layer} differs: {sums}"
                ratios.append(ours / theirs)
                cells.append(f"{ours * 1e3:8.3f}/{theirs * 1e3:8.3f} {ours / theirs:4.2f}")
            print(f"{layer.name:16} {batch:5}   " + "   ".join(cells), flush=True)
    median, worst = statistics.median(ratios), max(ratios)
    met = ["met" if met else "missed" for met in (median <= MEDIAN, worst <= WORST)]
    print(f"\nms of lucid / of PyTorch, ratio; {args.threads} thread(s)")
    print(f"median {median:.2f} (target {MEDIAN}: {met[0]}), worst {worst:.2f} ({WORST}: {met[1]})")


if __name__ == "__main__":
    main()
