"""Calls outside of any step, beside PyTorch's: ops, library Functions, backward, whole steps.

    python benchmarks/eager_calls.py --peers-python …

One thread, matrices of 16 x 16, or of 17 to 1,016 rows where sizes are ever others. Both libraries
are measured in turns, each in a process of its own; the table has the medians of the rounds. `mlp`
is a training step of an MLP 64-256-256-10, batch 128, Adam, and `resnet18` one of a ResNet-18 on 8
images of 32 x 32, all of it eager.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Call = Callable[[], Any]
LUCID, TORCH = "lucid", "torch"
# By name, how many times PyTorch's time was aimed at; of other calls `ORDINARY` times.
TARGETS = {"add": 2.0, "mlp": 1.2, "resnet18": 1.5}
ORDINARY = 4.0
CHAIN = 20
OTHER_SIZES = "other sizes"
MANY_SIZES = 40  # after which library functions share a program


def calls(L: Any, F: Any) -> dict[str, Call]:
    """The calls by name, with gradients recorded; `backward of …` walks what was recorded."""
    rng = np.random.default_rng(0)

    def leaf(*shape: int) -> Any:
        return L.tensor(rng.normal(size=shape).astype(np.float32)).requires_grad_()

    a, b, w, bias = leaf(16, 16), leaf(16, 16), leaf(16), leaf(16)
    plain, other, written = a.detach(), b.detach(), L.zeros(16, 16)
    scalar = leaf()
    target = L.tensor(rng.integers(0, 16, 16))
    table, rows = leaf(64, 16), L.tensor(rng.integers(0, 64, 16))
    columns, places = L.tensor(rng.integers(0, 16, 16)), L.tensor(rng.integers(0, 16, (16, 16)))
    positive, chosen, image = plain.abs() + 0.1, plain > 0, L.zeros(2, 4, 8, 8)
    layer, pool = L.nn.Linear(16, 16), L.nn.MaxPool2d(2)
    normed, lstm = L.nn.BatchNorm1d(16), L.nn.LSTM(16, 16, batch_first=True)
    attending, sequence = L.nn.MultiheadAttention(16, 2, batch_first=True), leaf(4, 16, 16)
    many = [leaf(16, 16) for _ in range(60)]
    for tensor in many:
        tensor.grad = L.ones(16, 16)
    flags = {"fused": True} if L.__name__ == TORCH else {}
    adam = L.optim.Adam(many, lr=1e-3, **flags)
    doubled = a * 2.0
    doubled.register_hook(lambda gradient: None)
    loss, hooked = (a * b).sum(), doubled.sum()

    def assign() -> None:
        written[3] = 1.0

    def assign_chosen() -> None:
        written[chosen] = 0.0

    def without_grad() -> None:
        with L.no_grad():
            pass

    def chain() -> Any:
        x = a
        for _ in range(CHAIN):
            x = x * b
        return x.sum()

    return {
        "add": lambda: a + b,
        "multiply": lambda: a * b,
        "add without grad": lambda: plain + other,
        "times a number": lambda: a * 2.0,
        "exp": lambda: plain.exp(),
        "sigmoid": lambda: plain.sigmoid(),
        "erf": lambda: plain.erf(),
        "remainder": lambda: L.fmod(plain, other),
        "lerp": lambda: plain.lerp(other, 0.3),
        "addcmul": lambda: L.addcmul(plain, other, other, value=0.5),
        "sum": lambda: a.sum(),
        "sum of rows": lambda: a.sum(1),
        "mean": lambda: a.mean(),
        "max": lambda: plain.max(),
        "max of rows": lambda: a.max(1),
        "std": lambda: plain.std(),
        "norm": lambda: plain.norm(),
        "cumsum": lambda: plain.cumsum(0),
        "topk": lambda: plain.topk(3),
        "sort": lambda: plain.sort(1),
        "matmul": lambda: a @ b,
        "tanh": lambda: a.tanh(),
        "clamp": lambda: a.clamp(min=0.0),
        "index": lambda: a[0],
        "slice": lambda: a[2:7, 1:],
        "pick rows": lambda: a[target],
        "pick elements": lambda: plain[target, columns],
        "pick by a mask": lambda: plain[chosen],
        "gather": lambda: plain.gather(1, places),
        "scatter_add": lambda: plain.scatter_add(1, places, other),
        "index_add": lambda: plain.index_add(0, target, other),
        "view": lambda: a.view(4, 64),
        "transpose": lambda: a.transpose(0, 1),
        "expand": lambda: w.expand(16, 16),
        "select": lambda: a.select(0, 2),
        "chunk": lambda: a.chunk(4),
        "roll": lambda: plain.roll(1, 0),
        "flip": lambda: plain.flip(0),
        "tril": lambda: plain.tril(),
        "pad": lambda: F.pad(plain, (1, 1)),
        "compare": lambda: plain > other,
        "cat": lambda: L.cat([a, b]),
        "stack": lambda: L.stack([a, b]),
        "where": lambda: L.where(plain > 0, a, b),
        "item": lambda: scalar.item(),
        "detach": lambda: a.detach(),
        "no_grad": without_grad,
        "add in place": lambda: written.add_(plain),
        "clamp in place": lambda: written.clamp_(-1, 1),
        "zero in place": lambda: written.zero_(),
        "copy in place": lambda: written.copy_(plain),
        "assign to a row": assign,
        "assign by a mask": assign_chosen,
        "zeros": lambda: L.zeros(16, 16),
        "arange": lambda: L.arange(16),
        "one_hot": lambda: F.one_hot(target, 16),
        "randn": lambda: L.randn(16, 16),
        "randint": lambda: L.randint(0, 10, (16, 16)),
        "normal in place": lambda: written.normal_(),
        "bernoulli": lambda: L.bernoulli(positive.clamp(max=1.0)),
        "multinomial": lambda: L.multinomial(positive[0], 4),
        "to another dtype": lambda: plain.double(),
        "dropout": lambda: F.dropout(a, 0.5),
        "embedding": lambda: F.embedding(rows, table),
        "batch_norm": lambda: normed(a),
        "lstm": lambda: lstm(sequence),
        "attention": lambda: attending(sequence, sequence, sequence),
        "linear": lambda: F.linear(a, b, bias),
        "a Linear": lambda: layer(plain),
        "relu": lambda: F.relu(a),
        "silu": lambda: F.silu(a),
        "softmax": lambda: F.softmax(a, -1),
        "gelu": lambda: F.gelu(a),
        "layer_norm": lambda: F.layer_norm(a, (16,), w, bias),
        "cross_entropy": lambda: F.cross_entropy(a, target),
        "mse_loss": lambda: F.mse_loss(a, other),
        "max_pool2d": lambda: F.max_pool2d(image, 2),
        "a MaxPool2d": lambda: pool(image),
        "avg_pool2d": lambda: F.avg_pool2d(image, 2),
        f"{CHAIN} products and their backward": lambda: chain().backward(),
        "accumulate": lambda: loss.backward(retain_graph=True),
        "hook": lambda: hooked.backward(retain_graph=True),
        "clip 60 gradients": lambda: L.nn.utils.clip_grad_norm_(many, 1.0),
        "adam, 60 parameters": lambda: adam.step(),
        **other_sizes(L, F),
        "mlp": mlp(L, F),
        "resnet18": resnet18(L, F),
    }


def other_sizes(L: Any, F: Any) -> dict[str, Call]:
    """Calls with as many rows as no call before had, but for one long ago."""
    rng = np.random.default_rng(2)
    sizes = rng.permutation(np.arange(17, 1017)).tolist()
    rows = itertools.cycle([L.tensor(rng.normal(size=(n, 16)).astype(np.float32)) for n in sizes])
    targets = {n: L.tensor(rng.integers(0, 16, n)) for n in sizes}
    square, query = L.ones(16, 16), L.ones(1, 2, 1, 8)

    def loss_and_backward() -> None:
        x = next(rows).detach().requires_grad_()
        F.cross_entropy(x, targets[x.shape[0]]).backward()

    def ops_and_backward() -> None:
        x = next(rows).detach().requires_grad_()
        (x * x + x).tanh().sum().backward()

    def decode() -> Any:
        x = next(rows).view(1, -1, 2, 8).transpose(1, 2)
        return F.scaled_dot_product_attention(query, x, x)

    return {
        "other sizes: add": lambda: next(rows) + 1.0,
        "other sizes: sum": lambda: next(rows).sum(),
        "other sizes: slice": lambda: next(rows)[1:],
        "other sizes: transpose": lambda: next(rows).t(),
        "other sizes: matmul": lambda: next(rows) @ square,
        "other sizes: cat": lambda: L.cat([next(rows), square]),
        "other sizes: topk": lambda: next(rows).topk(3),
        "other sizes: ops and their backward": ops_and_backward,
        "other sizes: attention of one query": decode,
        "other sizes: softmax": lambda: F.softmax(next(rows), -1),
        "other sizes: dropout": lambda: F.dropout(next(rows), 0.5),
        "other sizes: layer_norm": lambda: F.layer_norm(next(rows), (16,)),
        "other sizes: cross_entropy and its backward": loss_and_backward,
        **{f"other sizes: a step of {name}": step for name, step in other_batches(L, F).items()},
    }


def other_batches(L: Any, F: Any) -> dict[str, Call]:
    """Training steps of small models whose batches have ever other lengths, from 8 to 149."""
    nn, rng = L.nn, np.random.default_rng(3)
    lengths = rng.permutation(np.arange(8, 150)).tolist()
    batches = [L.tensor(rng.normal(size=(16, n, 32)).astype(np.float32)) for n in lengths]
    wanted = L.tensor(rng.integers(0, 10, 16))

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.last = nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            return self.last(self.lstm(x)[0][:, -1])

    class Convolutional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv1d(32, 64, 5, 2, 2), nn.Conv1d(64, 64, 3, 1, 1)
            self.last = nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            return self.last(F.relu(self.second(F.relu(self.first(x.mT)))).mean(2))

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 10))

        def forward(self, x: Any) -> Any:
            return self.layers(x).mean(1)

    models = {"an LSTM": Recurrent(), "convolutions": Convolutional(), "an MLP": Rows()}
    steps: dict[str, Call] = {}
    for name, model in models.items():
        opt, rest = L.optim.SGD(model.parameters(), lr=1e-2), itertools.cycle(batches)

        def step(model: Any = model, opt: Any = opt, rest: Any = rest) -> None:
            training(F, model, opt, next(rest), wanted)()

        steps[name] = step
    return steps


def mlp(L: Any, F: Any) -> Call:
    """A training step of a small MLP."""
    nn, rng = L.nn, np.random.default_rng(1)
    widths = (64, 256, 256, 10)
    layers = [nn.Linear(n, m) for n, m in itertools.pairwise(widths)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    flags = {"fused": True} if L.__name__ == TORCH else {}
    opt = L.optim.Adam(model.parameters(), lr=1e-3, **flags)
    x = L.tensor(rng.normal(size=(128, 64)).astype(np.float32))
    y = L.tensor(rng.integers(0, 10, 128))
    return training(F, model, opt, x, y)


def resnet18(L: Any, F: Any) -> Call:
    """A training step of a ResNet-18 for small images (He et al., 2016)."""
    nn, rng = L.nn, np.random.default_rng(1)

    class Block(nn.Module):
        def __init__(self, channels: int, width: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width)])
            self.skip = nn.Identity()
            if stride > 1 or channels != width:
                projection = nn.Conv2d(channels, width, 1, stride, bias=False)
                self.skip = nn.Sequential(projection, nn.BatchNorm2d(width))

        def forward(self, x: Any) -> Any:
            y = F.relu(self.norms[0](self.first(x)))
            return F.relu(self.norms[1](self.second(y)) + self.skip(x))

    plan = [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]
    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    channels = 64
    for width, stride in plan:
        layers.append(Block(channels, width, stride))
        channels = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    opt = L.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    x = L.tensor(rng.normal(size=(8, 3, 32, 32)).astype(np.float32))
    y = L.tensor(rng.integers(0, 10, 8))
    return training(F, model, opt, x, y)


def training(F: Any, model: Any, opt: Any, x: Any, y: Any) -> Call:
    """Forward, loss, backward and update."""

    def step() -> None:
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def serve(framework: str) -> None:
    """Time the calls whose names come line by line; answer with seconds a call."""
    if framework == LUCID:
        import lucid as L
        import lucid.nn.functional as F

        L.set_num_threads(1)
    else:
        import torch as L  # type: ignore[import-not-found, no-redef]
        import torch.nn.functional as F  # type: ignore[import-not-found, no-redef]

        L.set_num_threads(1)
    known = calls(L, F)
    print(json.dumps(list(known)), flush=True)
    for line in sys.stdin:
        call = known[line.strip()]
        for _ in range(MANY_SIZES if line.startswith(OTHER_SIZES) else 2):
            call()
        begin, count = time.perf_counter(), 0
        while (spent := time.perf_counter() - begin) < 0.2 or count < 3:
            for _ in range(1 if spent > 0.1 and count < 10 else 10):
                call()
                count += 1
        print((time.perf_counter() - begin) / count, flush=True)


class Server:
    """A process that times calls of one library."""

    def __init__(self, framework: str, python: str) -> None:
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [python, __file__, "--serve", framework],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.names: list[str] = json.loads(self._answer() or "[]")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def time(self, name: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def stop(self) -> None:
        self._process.communicate()


def main() -> int:
    """Print the table, line by line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="names of calls")
    parser.add_argument("--peers-python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return 0
    servers = [Server(LUCID, sys.executable), Server(TORCH, args.peers_python)]
    if not servers[1].names:
        print("torch is left out: it isn't installed there")
        servers.pop().stop()
    print(f"| µs | {' | '.join((LUCID, TORCH)[: len(servers)])} | ratio |\n|---|--:|--:|--:|")
    for name in args.only or servers[0].names:
        rounds = [[server.time(name) for server in servers] for _ in range(args.rounds)]
        medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
        ratio = statistics.median([r[0] / r[-1] for r in rounds])
        aim = TARGETS.get(name, ORDINARY)
        said = "" if ratio <= aim else f" (missed: {aim})"
        figures = " | ".join(f"{1e6 * t:,.1f}" for t in medians)
        print(f"| {name} | {figures} | {ratio:.2f}{said} |", flush=True)
    for server in servers:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
