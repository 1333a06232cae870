"""Training steps of networks of convolutions: lucid compiled against PyTorch's eager mode.

    python benchmarks/resnet18.py --peers-python …

ResNet-18 for CIFAR, VGG-16 with batch normalization, and both sides of a DCGAN, each with SGD and
momentum on images of 32 x 32, timed in two processes that take turns; a figure is the median of
the rounds. Both begin with the same parameters, and their first losses agree before a time counts.
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
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

TARGETS = {"resnet18": 0.8, "vgg16": 0.9, "dcgan": 0.8}  # of PyTorch's time
CLASSES, NOISE = 10, 64


def resnet18(nn: Any, F: Any) -> Any:
    """Four stages of two blocks, without the first pooling."""

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, given: int, made: int, step: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(given, made, 3, step, 1, bias=False)
            self.second = nn.Conv2d(made, made, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(made), nn.BatchNorm2d(made)])
            self.around = nn.Sequential()
            if given != made:
                around = nn.Conv2d(given, made, 1, step, bias=False)
                self.around = nn.Sequential(around, nn.BatchNorm2d(made))

        def forward(self, x: Any) -> Any:
            y = F.relu(self.norms[0](self.first(x)))
            return F.relu(self.norms[1](self.second(y)) + self.around(x))

    widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
    blocks = [Block(given, made, 2 if given != made else 1) for given, made in pairwise(widths)]
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES)]
    return nn.Sequential(*stem, *blocks, *head)


def vgg16(nn: Any, F: Any) -> Any:
    """Thirteen convolutions in five stages."""
    layers: list[Any] = []
    given = 3
    for made, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(given, made, 3, 1, 1), nn.BatchNorm2d(made), nn.ReLU()]
            given = made
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, CLASSES))


def dcgan(nn: Any, F: Any) -> Any:
    """A generator of images of noise, and a discriminator that looks at them."""
    layers: list[Any] = [nn.ConvTranspose2d(NOISE, 256, 4, 1, 0, bias=False)]
    for given, made in ((256, 128), (128, 64), (64, 3)):
        layers += [nn.BatchNorm2d(given), nn.ReLU()]
        layers.append(nn.ConvTranspose2d(given, made, 4, 2, 1, bias=False))
    layers.append(nn.Tanh())
    for given, made in ((3, 64), (64, 128), (128, 256)):
        layers += [nn.Conv2d(given, made, 4, 2, 1), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(256, CLASSES, 4), nn.Flatten())


NETWORKS = {"resnet18": resnet18, "vgg16": vgg16, "dcgan": dcgan}


def step_of(kind: str, name: str, batch: int, threads: int, precision: str) -> Callable[[], float]:
    """One training step on one batch; it returns the loss."""
    if kind == "lucid":
        sys.path.insert(0, str(Path(__file__).parent.parent))
    library: Any = __import__(kind)
    library.set_num_threads(threads)
    library.set_float32_matmul_precision(precision)
    nn, F = library.nn, library.nn.functional
    model, rng = NETWORKS[name](nn, F), np.random.default_rng(0)
    with library.no_grad():
        for p in model.parameters():
            if len(p.shape) > 1:
                wide = np.prod(p.shape[1:]) ** -0.5
                p.copy_(library.tensor((rng.normal(size=p.shape) * wide).astype("f4")))
            else:
                p.fill_(1.0 if float(p.sum()) == p.shape[0] else 0.0)
    shape = (batch, NOISE, 1, 1) if name == "dcgan" else (batch, 3, 32, 32)
    x = library.tensor(rng.normal(size=shape).astype("f4"))
    y = library.tensor(rng.integers(0, CLASSES, batch))
    optimizer = library.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = library.compile(step) if kind == "lucid" else step
    return lambda: float(run(x, y).detach())


def work(kind: str, threads: int, precision: str) -> None:
    """Answer each line, a network and a batch, by the first loss and the seconds of a step."""
    steps: dict[str, tuple[Callable[[], float], float]] = {}
    for line in sys.stdin:
        name, batch = line.split()
        if line not in steps:
            steps.clear()
            step = step_of(kind, name, int(batch), threads, precision)
            steps[line] = step, step()
        step, loss = steps[line]
        times = []
        end = time.perf_counter() + 1.0
        while len(times) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        print(json.dumps([loss, statistics.median(times)]), flush=True)


def main() -> None:
    """Print a row for each network and batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers-python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--precision", default="highest", help="high: Winograd's algorithm")
    parser.add_argument("--worker", choices=("lucid", "torch"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.threads, args.precision)
        return
    workers: list[Any] = []
    for kind, python in (("lucid", sys.executable), ("torch", args.peers_python)):
        command = [python, __file__, "--worker", kind, "--threads", str(args.threads)]
        command += ["--precision", args.precision]
        environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started: Any = subprocess.Popen(command, env=environment, **pipes)
        workers.append(started)
    print(f"ms of a step: lucid, PyTorch, ratio; {args.threads} thread(s), {args.precision}")
    for name in args.networks:
        for batch in args.batches:
            rounds = []
            for _ in range(args.rounds):
                found = []
                for worker in workers:
                    print(name, batch, file=worker.stdin, flush=True)
                    found.append(json.loads(worker.stdout.readline()))
                rounds.append(found)
            (mine, _), (other, _) = rounds[0]
            assert abs(mine - other) <= 1e-3 * abs(other), f"{name}: losses {mine} and {other}"
            ours, theirs = (statistics.median(entry[n][1] for entry in rounds) for n in (0, 1))
            met = "met" if ours <= TARGETS[name] * theirs else "missed"
            print(
                f"{name:9} {batch:4} {ours * 1e3:9.2f} {theirs * 1e3:9.2f} {ours / theirs:5.2f} "
                f"(target {TARGETS[name]}: {met})",
                flush=True,
            )


if __name__ == "__main__":
    main()
