"""Train a small network on real handwritten digits, the whole training step in one native call.

The activation is a custom `autograd.Function` with its own `backward`. `--eager` runs the very
same code op by op.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import lucid
import lucid.nn.functional as F
from lucid import nn

BATCH = 64
GOAL = 0.97


class Swish(lucid.autograd.Function):
    """x · sigmoid(x), with its derivative written by hand."""

    @staticmethod
    def forward(ctx, x):
        s = lucid.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, grad):
        x, s = ctx.saved_tensors
        return grad * s * (1 + x * (1 - s))


class Activation(nn.Module):
    """`Swish` as a layer."""

    def forward(self, x):
        return Swish.apply(x)


@dataclass
class Trainer:
    """A freshly initialised network and the functions that train and use it."""

    train_step: Any
    predict: Any
    scheduler: Any


def make_trainer(seed: int, steps: int) -> Trainer:
    """Build network, optimizer and schedule; equal seeds give equal weights."""
    lucid.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(64, 128), Activation(), nn.Linear(128, 128), Activation(), nn.Linear(128, 10)
    )
    opt = lucid.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1e-2)
    scheduler = lucid.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=steps)

    @lucid.compile
    def train_step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        lucid.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        return loss

    @lucid.compile
    def predict(x):
        with lucid.no_grad():
            return model(x).argmax(1)

    return Trainer(train_step, predict, scheduler)


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return 1,437 images to train on and 360 to test on: f32[n,64] in [0, 1], labels i64[n]."""
    digits = load_digits()
    x = (digits.data / 16).astype(np.float32)
    y = digits.target.astype(np.int64)
    x_train, x_test, y_train, y_test = train_test_split(
        x, y, test_size=360, stratify=y, random_state=0
    )
    return x_train, y_train, x_test, y_test


def batches(x: np.ndarray, y: np.ndarray, epochs: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Shuffle anew each epoch, and add noise: so few images are soon learnt by heart without.

    The incomplete last batch is dropped, so that shapes never change.
    """
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(x) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            noisy = x[rows] + 0.3 * rng.standard_normal((BATCH, x.shape[1]), dtype=np.float32)
            yield lucid.from_numpy(noisy), lucid.from_numpy(y[rows])


def train(trainer: Trainer, x: np.ndarray, y: np.ndarray, epochs: int, seed: int) -> list[float]:
    """Train for `epochs`, with a progress bar, and return the loss of each step."""
    losses: list[float] = []
    bar = tqdm(batches(x, y, epochs, seed), total=epochs * (len(x) // BATCH), unit="step")
    for xb, yb in bar:
        losses.append(trainer.train_step(xb, yb).item())
        trainer.scheduler.step()
        if len(losses) % 20 == 0:
            bar.set_postfix(loss=f"{statistics.mean(losses[-20:]):.4f}")
    return losses


def eager() -> AbstractContextManager[Any]:
    """Run compiled functions op by op inside this context."""
    return lucid.compiler.set_stance("force_eager")


def compiled() -> AbstractContextManager[Any]:
    """Run compiled functions as they are."""
    return nullcontext()


def compare(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, float, float]:
    """Time the same steps eager and compiled, in turns, from equal weights.

    Returns µs per step of either (the median of the rounds) and their largest relative
    difference in loss over the steps.
    """
    modes: tuple[Callable[[], AbstractContextManager[Any]], ...] = (eager, compiled)
    steps = list(batches(x, y, epochs=2, seed=seed))
    trainers = [make_trainer(seed, len(steps)) for _ in modes]
    times: list[list[float]] = [[] for _ in modes]
    losses: list[list[float]] = [[] for _ in modes]
    for mode, trainer in zip(modes, trainers, strict=True):
        with mode():
            trainer.train_step(*steps[0])  # compiles, where there is something to compile
    for _ in range(7):
        for m, (mode, trainer) in enumerate(zip(modes, trainers, strict=True)):
            with mode():
                start = time.perf_counter()
                results = [trainer.train_step(xb, yb) for xb, yb in steps]
                times[m].append((time.perf_counter() - start) / len(steps) * 1e6)
            losses[m] += [loss.item() for loss in results]
    a, b = np.array(losses[0][: len(steps)]), np.array(losses[1][: len(steps)])
    return (
        statistics.median(times[0]),
        statistics.median(times[1]),
        float(np.max(np.abs(a - b) / np.abs(a))),
    )


def plot(losses: list[float], path: Path) -> None:
    """Write the loss curve as PNG, with its mean over 20 steps."""
    fig = Figure(figsize=(7, 4), layout="tight")
    ax = fig.subplots()
    ax.semilogy(losses, linewidth=0.6, alpha=0.5)
    ax.semilogy(np.arange(19, len(losses)), np.convolve(losses, np.ones(20) / 20, "valid"))
    ax.set(xlabel="step", ylabel="cross-entropy", title="Training on handwritten digits")
    ax.grid(alpha=0.3)
    fig.savefig(path, dpi=120)


def main() -> int:
    """Train, report, and return 1 if the network has not learned enough."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--eager", action="store_true", help="run op by op, compile nothing")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/digits"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    x_train, y_train, x_test, y_test = load_data()
    trainer = make_trainer(args.seed, args.epochs * (len(x_train) // BATCH))
    with eager() if args.eager else compiled():
        start = time.perf_counter()
        losses = train(trainer, x_train, y_train, args.epochs, args.seed)
        seconds = time.perf_counter() - start
        accuracy = float((trainer.predict(lucid.from_numpy(x_test)).numpy() == y_test).mean())

    print(f"held-out accuracy   {accuracy:.4f}   (goal {GOAL})")
    last = statistics.mean(losses[-20:])
    print(f"loss                {last:.4f}   (last 20 of {len(losses)} steps, in {seconds:.2f} s)")
    plot(losses, args.out / "loss.png")
    print(f"loss curve          {args.out / 'loss.png'}")
    if not args.eager:
        stats = trainer.train_step.stats
        (args.out / "train_step.lir").write_text(trainer.train_step.dump_ir(), encoding="utf-8")
        print(f"IR of the step      {args.out / 'train_step.lir'}")
        print(f"traces              {stats.traces}   (the learning rate changed at every step)")
        print(f"compiling took      {stats.compile_seconds:.3f} s")
        profile = trainer.train_step.profile(*next(batches(x_train, y_train, 1, args.seed)))
        (args.out / "profile.txt").write_text(f"{profile}\n", encoding="utf-8")
        print(f"profile             {args.out / 'profile.txt'}")
        eager_us, compiled_us, difference = compare(x_train, y_train, args.seed)
        print(f"eager               {eager_us:8.1f} µs/step")
        print(f"compiled            {compiled_us:8.1f} µs/step")
        print(f"ratio               {eager_us / compiled_us:8.1f}")
        print(f"losses differ by    {difference:.1e} at most, relative, eager and compiled")
    return int(accuracy < GOAL)


if __name__ == "__main__":
    sys.exit(main())
