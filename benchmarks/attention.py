"""Attention and its gradient over the length of a sequence: time and peak memory.

    python benchmarks/attention.py --peers-python PATH [--lengths 128 512 1024 8192] [--causal]

8 heads of width 64, one sequence, on one thread; memory is what comes on top of what was there
before the arrays were made. jax's is written out, and compiled. Then a training step of `--layers`
encoder layers (width 256, 8 sequences, Adam), in lucid and torch. What was aimed at is printed with
what was reached.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from turns import JAX, LUCID, TORCH, compare, judge, judge_parts, measured, pythons

sys.path.insert(0, str(Path(__file__).parent.parent))

HEADS, WIDTH = 8, 64
LONG, MOST_MEMORY = 8192, 400.0  # a length, and the MB that were aimed at for it
OF_TORCH = {"step": 0.6, "memory": 0.7}  # aimed at for the training step
Step = Callable[[], Any]


def arrays_of(length: int) -> list[np.ndarray]:
    """Queries, keys, values and the cotangent."""
    rng, shape = np.random.default_rng(0), (1, HEADS, length, WIDTH)
    return [rng.normal(size=shape).astype(np.float32) for _ in range(4)]


def torch_step(L: Any, compiled: Callable[[Any], Any], length: int, causal: bool) -> Step:
    """The step with PyTorch's API on `L`."""
    attend = L.nn.functional.scaled_dot_product_attention
    *given, cotangent = arrays_of(length)
    q, k, v = (L.tensor(array, requires_grad=True) for array in given)
    w = L.tensor(cotangent)

    def step(q: Any, k: Any, v: Any, w: Any) -> Any:
        return L.autograd.grad((attend(q, k, v, is_causal=causal) * w).sum(), (q, k, v))

    run = compiled(step)
    return lambda: [g.numpy() for g in run(q, k, v, w)]


def jax_step(length: int, causal: bool) -> Step:
    """The same with jax."""
    import jax
    import jax.numpy as jnp

    *given, w = map(jnp.asarray, arrays_of(length))

    def total(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.swapaxes(2, 3) * WIDTH**-0.5
        if causal:
            scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
        return (jax.nn.softmax(scores) @ v * w).sum()

    gradient = jax.jit(jax.grad(total, (0, 1, 2)))
    return lambda: [*map(np.asarray, gradient(*given))]


def training_step(L: Any, compiled: Callable[[Any], Any], length: int, layers: int) -> Step:
    """A step of a stack of layers with PyTorch's API on `L`."""
    nn, rng, width = L.nn, np.random.default_rng(0), 4 * WIDTH
    options = {"dropout": 0.0, "batch_first": True, "norm_first": True}
    model = nn.Sequential(
        *(nn.TransformerEncoderLayer(width, HEADS, 4 * width, **options) for _ in range(layers))
    )
    with L.no_grad():
        for p in model.parameters():
            scale = width**-0.5 if p.ndim > 1 else 0.1
            p.copy_(L.tensor((scale * rng.normal(size=p.shape)).astype(np.float32)))
    x = L.tensor(rng.normal(size=(8, length, width)).astype(np.float32))
    optimizer = L.optim.Adam(model.parameters(), lr=1e-4)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = compiled(step)
    return lambda: [run(x).numpy()]


def step_of(length: int, causal: bool, layers: int, framework: str) -> Step:
    """One step: of a sequence in heads, or of so many layers."""
    if framework == JAX:
        return jax_step(length, causal)
    L = __import__(framework)
    L.set_num_threads(1)
    compiled = L.compile if framework == LUCID else (lambda step: step)
    if layers:
        return training_step(L, compiled, length, layers)
    return torch_step(L, compiled, length, causal)


def main() -> int:
    """Measure each length; 1 if results disagree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers-python", default=sys.executable, help="that has torch and jax")
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512, 1024])
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--layers", type=int, default=8, help="of the training step; 0: none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        length, *given, framework = json.loads(args.worker)
        calls = 3 if length > 2048 or given[1] else 10
        measured(framework, lambda: step_of(length, *given, framework), calls)
        return 0
    frameworks, agree = pythons(args.peers_python), True
    two = {name: frameworks[name] for name in (LUCID, TORCH)}
    for length in args.lengths:
        given = [length, args.causal, 0]
        found = compare(__file__, f"attention {length}", given, frameworks, args.rounds)
        agree = agree and bool(found)
        if length == LONG and LUCID in found:
            judge("MB", found[LUCID]["memory"], MOST_MEMORY)
    for length in args.lengths if args.layers else ():
        given = [length, False, args.layers]
        found = compare(__file__, f"training step {length}", given, two, args.rounds)
        agree = agree and bool(found)
        judge_parts(found, TORCH, OF_TORCH)
    return int(not agree)


if __name__ == "__main__":
    sys.exit(main())
