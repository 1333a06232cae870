"""Loops: the first call and the step of an LSTM over its length, and of an integrated ODE.

    python benchmarks/loops.py                     # lstm_lengths and ode_loop with lucid
    python benchmarks/loops.py --framework torch   # or jax, in an interpreter that has it
    python benchmarks/loops.py --lengths 64,256 --steps 200

`lstm_lengths` is a training step (mean square of the outputs, SGD) of nn.LSTM(64, 128) on batches
of 32, for each length; jax's is a `lax.scan` of the same cell. `ode_loop` is the gradient, with
respect to the parameters, of the end of 100 steps of Runge and Kutta's method for 64 Lorenz
systems: a `scan`, and with torch a Python loop. Times are of one thread: the first call, what of
it is compilation (lucid alone says), and the least and the median time of a later one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

BATCH, INPUTS, HIDDEN = 32, 64, 128
Step = Callable[[], Any]


def report(name: str, step: Step, wait: Callable[[Any], Any], rounds: int, compiled: Any) -> None:
    """Time a step and print a line."""
    begin = time.perf_counter()
    wait(step())
    first = time.perf_counter() - begin
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        wait(step())
        times.append(time.perf_counter() - begin)
    seconds = "" if compiled is None else f", {compiled.stats.compile_seconds:.3f} s of it compiled"
    least, median = 1e3 * min(times), 1e3 * statistics.median(times)
    print(f"{name:24} first {first:.3f} s{seconds}; step {least:.2f} ms, median {median:.2f}")


# ---------------------------------------------------------------------- lucid and torch


def torch_lstm(L: Any, length: int, whole: Callable[[Any], Any]) -> Step:
    """A training step with PyTorch's API on `L`."""
    L.manual_seed(0)
    model = L.nn.LSTM(INPUTS, HIDDEN)
    optimizer = L.optim.SGD(model.parameters(), lr=0.01)
    x = L.randn(length, BATCH, INPUTS)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        y, _ = model(x)
        loss = (y * y).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = whole(step)
    return lambda: run(x)


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


def torch_ode(L: Any, steps: int, whole: Callable[[Any], Any]) -> Step:
    """The gradient of the end with respect to the parameters."""
    start = L.tensor(np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32))
    p = L.tensor(np.array([10.0, 28.0, 8 / 3], np.float32), requires_grad=True)

    def run(y: Any) -> Any:
        if hasattr(L, "scan"):
            y, _ = L.scan(lambda y, _: (runge_kutta(L.stack, y, p), None), y, length=steps)
        else:
            for _ in range(steps):
                y = runge_kutta(L.stack, y, p)
        return L.autograd.grad((y * y).mean(), p)[0]

    compiled = whole(run)
    return lambda: compiled(start)


# ---------------------------------------------------------------------- jax


def jax_lstm(length: int) -> Step:
    """The same with a scan of the cell."""
    import jax
    import jax.numpy as jnp

    rng, bound = np.random.default_rng(0), HIDDEN**-0.5
    shapes = [(4 * HIDDEN, INPUTS), (4 * HIDDEN, HIDDEN), (4 * HIDDEN,), (4 * HIDDEN,)]
    P = [jnp.asarray(rng.uniform(-bound, bound, s).astype(np.float32)) for s in shapes]
    x = jnp.asarray(rng.normal(size=(length, BATCH, INPUTS)).astype(np.float32))

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
        return value

    return run


def jax_ode(steps: int) -> Step:
    """The same with jax."""
    import jax
    import jax.numpy as jnp

    start = jnp.asarray(np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32))

    def end(p: Any) -> Any:
        def step(y: Any, _: Any) -> Any:
            return runge_kutta(jnp.stack, y, p), None

        return (jax.lax.scan(step, start, None, length=steps)[0] ** 2).mean()

    gradient = jax.jit(jax.grad(end))
    p = jnp.asarray(np.array([10.0, 28.0, 8 / 3], np.float32))
    return lambda: gradient(p)


# ---------------------------------------------------------------------- all


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--framework", default="lucid", choices=("lucid", "torch", "jax"))
    parser.add_argument("--lengths", default="64,256,1024,4096")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    lengths = [int(length) for length in arguments.lengths.split(",")]
    found: list[Any] = [None]

    def kept(step: Any) -> Any:
        import lucid

        found[0] = lucid.compile(step)
        return found[0]

    def wait(value: Any) -> None:
        if arguments.framework == "jax":
            value.block_until_ready()

    if arguments.framework == "jax":
        lstm, ode = jax_lstm, jax_ode
    else:
        L = __import__(arguments.framework)
        L.set_num_threads(1)
        whole = kept if arguments.framework == "lucid" else (lambda step: step)

        def lstm(length: int) -> Step:
            return torch_lstm(L, length, whole)

        def ode(steps: int) -> Step:
            return torch_ode(L, steps, whole)

    for length in lengths:
        step = lstm(length)
        report(f"lstm_lengths {length}", step, wait, arguments.rounds, found[0])
    report(f"ode_loop {arguments.steps}", ode(arguments.steps), wait, arguments.rounds, found[0])


if __name__ == "__main__":
    main()
