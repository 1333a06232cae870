"""What a new batch size costs, and a new depth: seconds of the first call with it.

    python benchmarks/varying_batch.py --peers-python PATH

A training step with Adam is called with 30 batch sizes, one after the other, of an MLP
64-256-256-10 and of a transformer of 4 layers (width 64, 64 characters), in lucid, jax.jit and,
where it is asked for, torch.compile with dynamic=True; then, in processes of their own, for the
first time with transformers of 2 to 48 layers, and what of that is tracing, passes, planning and
LLVM: the least of several rounds. Nothing comes from a cache on disk. What was aimed at is printed
with what was reached.
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
from pathlib import Path
from typing import Any

import numpy as np
from turns import judge

sys.path.insert(0, str(Path(__file__).parent.parent))

WIDTH, HEADS, LENGTH, CHARACTERS, CLASSES = 64, 4, 64, 100, 10
SIZES = [*range(8, 38)]
LAYERS = [2, 4, 8, 16, 32, 48]
PARTS = "parts of lucid's first call"
LAST = {"mlp": 0.03, "transformer": 0.25}  # seconds that were aimed at for the last batch size
FIRST = {4: 0.8, 32: 3.0}  # and for the first call with so many layers
LUCID, JAX, TORCH = "lucid", "jax.jit", "torch.compile"
Step = Callable[[int], None]
"""Takes a batch size, and returns when the step is over."""


def batches(model: str, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and classes."""
    rng = np.random.default_rng(size)
    if model == "mlp":
        return rng.normal(size=(size, 64)).astype("f4"), rng.integers(0, CLASSES, size)
    first, second = rng.integers(0, CHARACTERS, (2, size, LENGTH))
    return first, second


def in_torch(torch: Any, compiled: Callable[[Any], Any], model: str, layers: int) -> Step:
    """The step with PyTorch's names: in PyTorch, and in lucid."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            size = x.shape[0]
            q, k, v = (
                part.reshape(size, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2)
                for part in self.qkv(self.norms[0](x)).split(WIDTH, dim=2)
            )
            h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(h.transpose(1, 2).reshape(size, LENGTH, WIDTH))
            return x + self.down(F.gelu(self.up(self.norms[1](x))))

    if model == "mlp":
        widths = [nn.Linear(64, 256), nn.Linear(256, 256), nn.Linear(256, CLASSES)]
        net = nn.Sequential(widths[0], nn.ReLU(), widths[1], nn.ReLU(), widths[2])
    else:
        blocks = [Block() for _ in range(layers)]
        head = nn.Linear(WIDTH, CHARACTERS)
        net = nn.Sequential(nn.Embedding(CHARACTERS, WIDTH), *blocks, nn.LayerNorm(WIDTH), head)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        scores = net(x)
        loss = F.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    step = compiled(step)
    return lambda size: step(*map(torch.tensor, batches(model, size))).item()


def in_jax(model: str, layers: int) -> Step:
    """The step with jax."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)

    def linear(rows: int, columns: int) -> Any:
        return jnp.asarray(rng.normal(size=(rows, columns)).astype("f4") * rows**-0.5)

    def norm(x: Any) -> Any:
        d = x - x.mean(-1, keepdims=True)
        return d * jax.lax.rsqrt((d**2).mean(-1, keepdims=True) + 1e-5)

    def block(P: Any, x: Any) -> Any:
        size = x.shape[0]
        q, k, v = (
            part.reshape(size, LENGTH, HEADS, -1).transpose(0, 2, 1, 3)
            for part in jnp.split(norm(x) @ P[0], 3, axis=2)
        )
        scores = q @ k.swapaxes(2, 3) * (WIDTH // HEADS) ** -0.5
        scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -jnp.inf)
        h = jax.nn.softmax(scores) @ v
        x = x + h.transpose(0, 2, 1, 3).reshape(size, LENGTH, WIDTH) @ P[1]
        return x + jax.nn.gelu(norm(x) @ P[2]) @ P[3]

    if model == "mlp":
        P: Any = [linear(64, 256), linear(256, 256), linear(256, CLASSES)]
    else:
        shapes = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
        blocks = [[linear(*shape) for shape in shapes] for _ in range(layers)]
        P = [linear(CHARACTERS, WIDTH), blocks, linear(WIDTH, CHARACTERS)]

    def loss_of(P: Any, x: Any, y: Any) -> Any:
        if model == "mlp":
            scores = jax.nn.relu(jax.nn.relu(x @ P[0]) @ P[1]) @ P[2]
        else:
            h = P[0][x]
            for each in P[1]:
                h = block(each, h)
            scores = norm(h) @ P[2]
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[..., None], -1).mean()

    @jax.jit
    def step(P: Any, m: Any, v: Any, t: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(P, x, y)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)

        def updated(p: Any, m: Any, v: Any) -> Any:
            return p - 1e-3 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)

        return loss, jax.tree.map(updated, P, m, v), m, v

    state = [P, jax.tree.map(jnp.zeros_like, P), jax.tree.map(jnp.zeros_like, P)]

    def call(size: int) -> None:
        x, y = batches(model, size)
        loss, *state[:] = step(*state, 1.0, x, y)
        loss.block_until_ready()

    return call


def seconds_of(framework: str, model: str, layers: int, sizes: list[int]) -> list[float]:
    """Of the first call with each size."""
    if framework == JAX:
        step = in_jax(model, layers)
    elif framework == LUCID:
        import lucid

        step = in_torch(lucid, lucid.compile, model, layers)
    else:
        import torch

        step = in_torch(torch, lambda f: torch.compile(f, dynamic=True), model, layers)
    found = []
    for size in sizes:
        begin = time.perf_counter()
        step(size)
        found.append(time.perf_counter() - begin)
    return found


def parts_of_first_call(layers: int) -> dict[str, float]:
    """Seconds of a first call with lucid: all of it, and its parts."""
    import lucid
    from lucid.compiler.compiled import Compiled
    from lucid.compiler.tracing import Tracer
    from lucid.runtime import executable

    begin: dict[str, float] = {}
    found: dict[str, float] = {}

    def time_calls(owner: Any, name: str, part: str) -> None:
        timed = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            begin[part] = time.perf_counter()
            try:
                return timed(*args, **kwargs)
            finally:
                found[part] = time.perf_counter() - begin[part]

        setattr(owner, name, call)

    steps: list[Compiled] = []

    def compiled(step: Any) -> Any:
        steps.append(lucid.compile(step))
        return steps[0]

    warm = lucid.compile(lambda x: x * 2)  # modules are imported, and LLVM has begun
    warm(lucid.ones(3))
    time_calls(Tracer, "_record", "trace")
    time_calls(executable, "make_program", "planning")
    time_calls(executable, "compiled", "LLVM")
    step = in_torch(lucid, compiled, "transformer", layers)
    begin["all"] = time.perf_counter()
    step(SIZES[0])
    found["all"] = time.perf_counter() - begin["all"]
    passes = steps[0].stats.pass_seconds
    found["planning"] -= passes["legalize"]
    found["passes"] = passes["optimize"] + passes["legalize"]
    return found


def print_depths(depths: list[int], rounds: int) -> None:
    """The curve of first calls over the number of layers."""
    print("transformer: seconds of the first call: all, for each layer, and of which")
    for layers in depths:
        tries = [run_worker(sys.executable, PARTS, layers) for _ in range(rounds)]
        least = min((json.loads(done.stdout.splitlines()[-1]) for done in tries), key=total)
        parts = ", ".join(f"{p} {least[p]:.2f}" for p in ("trace", "passes", "planning", "LLVM"))
        print(f"  {layers:2} layers: {least['all']:.2f}, {least['all'] / layers:.3f}; {parts}")
        if layers in FIRST:
            judge("all", least["all"], FIRST[layers])


def total(parts: dict[str, float]) -> float:
    """Of a first call."""
    return parts["all"]


def run_worker(python: str, *given: Any) -> subprocess.CompletedProcess[str]:
    """Measure in a process of its own, without a cache on disk."""
    env = os.environ | {"LUCID_CACHE": "0"}
    command = [python, __file__, "--worker", json.dumps(given)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def measure(framework: str, python: str, model: str, layers: int, sizes: list[int]) -> list[float]:
    """The same in a process of its own; nothing where the framework isn't installed."""
    own = sys.executable if framework == LUCID else python
    done = run_worker(own, framework, model, layers, sizes)
    if done.returncode:
        print(f"{framework} is left out: {done.stderr.strip().splitlines()[-1]}")
        return []
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers-python", default=sys.executable)
    parser.add_argument("--torch-compile", action="store_true", help="it takes minutes")
    parser.add_argument("--layers", type=int, nargs="*", default=LAYERS)
    parser.add_argument("--rounds", type=int, default=3, help="of the first calls over the depth")
    parser.add_argument("--depths-only", action="store_true", help="no batch sizes")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        kind, *given = json.loads(args.worker)
        found: Any = parts_of_first_call(*given) if kind == PARTS else seconds_of(kind, *given)
        print(json.dumps(found))
        return
    if args.depths_only:
        print_depths(args.layers, args.rounds)
        return
    frameworks = [LUCID, JAX, *([TORCH] if args.torch_compile else [])]
    for model, layers in (("mlp", 0), ("transformer", 4)):
        print(f"{model}: seconds of the first call with a batch size")
        for framework in frameworks:
            found = measure(framework, args.peers_python, model, layers, SIZES)
            if found:
                rest = f"median of the others {statistics.median(found[2:]):.3f}"
                times = f"first {found[0]:.2f}, second {found[1]:.2f}, {rest}"
                print(f"  {framework:14} {times}, last {found[-1]:.3f}")
            if found and framework == LUCID:
                judge("last", found[-1], LAST[model])
    print_depths(args.layers, args.rounds)


if __name__ == "__main__":
    main()
