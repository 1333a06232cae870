"""Loops: the first call and the step of an LSTM over its length, and of an integrated ODE.

    python benchmarks/loops.py --peers-python PATH   # a Python that has torch and jax
    python benchmarks/loops.py --workloads ode_loop --steps 200

`lstm_lengths` is a training step (mean square of the outputs, SGD) of nn.LSTM(64, 128) on batches
of 32, for each length; jax's is a `lax.scan` of the same cell. `ode_loop` is the gradient, with
respect to the parameters, of the end of 100 steps of Runge and Kutta's method for 64 Lorenz
systems: a Python loop in lucid and torch, and `lax.scan` in jax; `ode_scan` is `lucid.scan` in
lucid. `checkpoints` is the gradient of a scan of 4,096 rounds of 32 x 256 numbers, in lucid alone:
with all that rounds keep, and with `checkpoint_every=64`. Times are of one thread: the first call,
with no cache on disk, and a later one. What was aimed at is printed with what was reached.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from turns import JAX, LUCID, TORCH, Figures, compare, judge, judge_parts, measured, pythons

sys.path.insert(0, str(Path(__file__).parent.parent))

BATCH, INPUTS, HIDDEN = 32, 64, 128
LSTM, ODE, SCAN, CHECKPOINTS = "lstm_lengths", "ode_loop", "ode_scan", "checkpoints"
STEP_OF_TORCH = {"step": 0.5}  # aimed at, for an LSTM of the least length
LONGEST_FIRST, ODE_FIRST = 1.2, 0.4  # of the quickest first call of all lengths; seconds
Step = Callable[[], Any]


def lstm_arrays(length: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Weights and biases in PyTorch's order, and the batch."""
    rng, bound = np.random.default_rng(0), HIDDEN**-0.5
    shapes = [(4 * HIDDEN, INPUTS), (4 * HIDDEN, HIDDEN), (4 * HIDDEN,), (4 * HIDDEN,)]
    parameters = [rng.uniform(-bound, bound, shape).astype(np.float32) for shape in shapes]
    return parameters, rng.normal(size=(length, BATCH, INPUTS)).astype(np.float32)


def ode_arrays() -> tuple[np.ndarray, np.ndarray]:
    """The systems at the beginning, and their parameters."""
    start = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)
    return start, np.array([10.0, 28.0, 8 / 3], np.float32)


# ---------------------------------------------------------------------- lucid and torch


def torch_lstm(L: Any, length: int, whole: Callable[[Any], Any]) -> Step:
    """A training step with PyTorch's API on `L`."""
    model, (arrays, batch) = L.nn.LSTM(INPUTS, HIDDEN), lstm_arrays(length)
    with L.no_grad():
        for parameter, array in zip(model.parameters(), arrays, strict=True):
            parameter.copy_(L.tensor(array))
    optimizer = L.optim.SGD(model.parameters(), lr=0.01)
    x = L.tensor(batch)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        y, _ = model(x)
        loss = (y * y).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = whole(step)
    return lambda: [run(x).numpy()]


def slope(stack: Callable[[list[Any]], Any], y: Any, p: Any) -> Any:
    """Lorenz's equations."""
    a, b, c = y[0], y[1], y[2]
    return stack([p[0] * (b - a), a * (p[1] - c) - b, a * b - p[2] * c])


def runge_kutta(stack: Callable[[list[Any]], Any], y: Any, p: Any, h: float = 0.005) -> Any:
    """One step of the classical method."""
    k1 = slope(stack, y, p)
    k2 = slope(stack, y + h / 2 * k1, p)
    k3 = slope(stack, y + h / 2 * k2, p)
    k4 = slope(stack, y + h * k3, p)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def torch_ode(L: Any, steps: int, whole: Callable[[Any], Any], *, by_scan: bool) -> Step:
    """The gradient of the end with respect to the parameters."""
    begin, parameters = ode_arrays()
    start, p = L.tensor(begin), L.tensor(parameters, requires_grad=True)

    def run(y: Any) -> Any:
        if by_scan:
            y, _ = L.scan(lambda y, _: (runge_kutta(L.stack, y, p), None), y, length=steps)
        else:
            for _ in range(steps):
                y = runge_kutta(L.stack, y, p)
        return L.autograd.grad((y * y).mean(), p)[0]

    compiled = whole(run)
    return lambda: [compiled(start).numpy()]


def checkpoints(every: int) -> Step:
    """The gradient of a scan that keeps the carry of so many rounds, or, of 0, all of each."""
    import lucid

    lucid.set_num_threads(1)
    w = lucid.full((256,), 0.5, requires_grad=True)
    x = lucid.tensor(np.random.default_rng(0).normal(size=(4096, 1, 1)).astype(np.float32))

    @lucid.compile
    def run(x: Any) -> Any:
        def cell(h: Any, row: Any) -> Any:
            return (h * w + row).tanh() * h.sin() + h.cos(), None

        last, _ = lucid.scan(cell, lucid.zeros(32, 256), x, checkpoint_every=every or None)
        return lucid.autograd.grad(last.sum(), w)[0]

    return lambda: [run(x).numpy()]


# ---------------------------------------------------------------------- jax


def jax_lstm(length: int) -> Step:
    """The same with a scan of the cell."""
    import jax
    import jax.numpy as jnp

    arrays, batch = lstm_arrays(length)
    P, x = [*map(jnp.asarray, arrays)], jnp.asarray(batch)

    def loss(P: Any) -> Any:
        def cell(state: Any, row: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(row + h @ P[1].T + P[3], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((BATCH, HIDDEN))
        return (jax.lax.scan(cell, (zero, zero), x @ P[0].T + P[2])[1] ** 2).mean()

    @jax.jit
    def step(P: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(P)
        return value, [p - 0.01 * g for p, g in zip(P, grads, strict=True)]

    held = [P]

    def run() -> Any:
        value, held[0] = step(held[0])
        return [np.asarray(value)]

    return run


def jax_ode(steps: int) -> Step:
    """The same with jax."""
    import jax
    import jax.numpy as jnp

    start, parameters = map(jnp.asarray, ode_arrays())

    def end(p: Any) -> Any:
        def step(y: Any, _: Any) -> Any:
            return runge_kutta(jnp.stack, y, p), None

        return (jax.lax.scan(step, start, None, length=steps)[0] ** 2).mean()

    gradient = jax.jit(jax.grad(end))
    return lambda: [np.asarray(gradient(parameters))]


# ---------------------------------------------------------------------- all


def step_of(name: str, size: int, framework: str) -> Step:
    """The step of a workload: of a length, so many rounds, or so many between checkpoints."""
    if name == CHECKPOINTS:
        return checkpoints(size)
    if framework == JAX:
        return jax_lstm(size) if name == LSTM else jax_ode(size)
    L = __import__(framework)
    L.set_num_threads(1)
    whole = L.compile if framework == LUCID else (lambda step: step)
    if name == LSTM:
        return torch_lstm(L, size, whole)
    return torch_ode(L, size, whole, by_scan=name == SCAN and framework == LUCID)


def main() -> int:
    """Measure what the arguments ask for; 1 if results disagree."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peers-python", default=sys.executable, help="that has torch and jax")
    parser.add_argument("--workloads", nargs="+", default=[LSTM, ODE, SCAN, CHECKPOINTS])
    parser.add_argument("--lengths", nargs="+", type=int, default=[64, 512, 4096])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, size, framework = json.loads(args.worker)
        measured(framework, lambda: step_of(name, size, framework), 10 if name == LSTM else 100)
        return 0
    frameworks, agree = pythons(args.peers_python), True
    sizes = {LSTM: args.lengths, CHECKPOINTS: [0, 64]}
    for name in args.workloads:
        contestants = {LUCID: frameworks[LUCID]} if name == CHECKPOINTS else frameworks
        found = [
            compare(__file__, f"{name} {size}", [name, size], contestants, args.rounds)
            for size in sizes.get(name, [args.steps])
        ]
        agree = agree and all(found)
        if all(LUCID in figures for figures in found):
            judge_all(name, found)
    return int(not agree)


def judge_all(name: str, found: list[dict[str, Figures]]) -> None:
    """Say which of a workload's targets are met."""
    first = [figures[LUCID]["first"] for figures in found]
    if name == LSTM:
        judge_parts(found[0], TORCH, STEP_OF_TORCH)
        judge("first, the longest of the shortest", max(first) / min(first), LONGEST_FIRST)
    elif name == ODE:
        judge("first, in seconds", first[0], ODE_FIRST)


if __name__ == "__main__":
    sys.exit(main())
