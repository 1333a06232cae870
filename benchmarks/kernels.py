"""Kernels that are hard to write: long rows beside NumPy, and pairs of bodies beside C and jax.

    python benchmarks/kernels.py --peers-python PATH    # one with jax

`long_rows` is the mean cross entropy of 4096 rows of 8192 scores with its gradient, f32. `pairs`
are the accelerations of 64 and 256 bodies, f64, with the gradient of their product with a
cotangent, in two spellings of r**-3; C is written by hand, for the system's `cc`. One thread; what
was aimed at is printed with what was reached.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from turns import JAX, LUCID, compare, judge, measured

sys.path.insert(0, str(Path(__file__).parent.parent))

ROWS, CLASSES, BODIES, SOFTENING = 4096, 8192, (64, 256), 1e-2
LONG_ROWS, NUMPY, C = "long_rows", "numpy", "C"
SPELLINGS: dict[str, Callable[[Any], Any]] = {
    "power": lambda r2: r2**-1.5,
    "root": lambda r2: 1 / (r2 * r2**0.5),
}
OF_NUMPY, NANOSECONDS = 0.25, 2.5  # aimed at: of NumPy's time; of a pair
CALLS = 500  # of a step of pairs, that are measured as one
SOURCE = """
#include <math.h>
void pairs(long n, const double *x, const double *g, double *a, double *dx) {
  double s[6 * n];
  for (long i = 0; i < n; i++)
    for (long k = 0; k < 3; k++) s[k * n + i] = x[3 * i + k], s[(3 + k) * n + i] = g[3 * i + k];
  double *X = s, *Y = s + n, *Z = s + 2 * n, *U = s + 3 * n, *V = s + 4 * n, *W = s + 5 * n;
  for (long i = 0; i < n; i++) {
    double ax = 0, ay = 0, az = 0, bx = 0, by = 0, bz = 0;
    for (long j = 0; j < n; j++) {
      double p = X[j] - X[i], q = Y[j] - Y[i], r = Z[j] - Z[i];
      double u = U[j] - U[i], v = V[j] - V[i], w = W[j] - W[i];
      double r2 = p * p + q * q + r * r + SOFTENING, c = 1 / (r2 * sqrt(r2));
      double t = 3 * (u * p + v * q + w * r) * c / r2;
      ax += p * c, ay += q * c, az += r * c;
      bx += u * c - t * p, by += v * c - t * q, bz += w * c - t * r;
    }
    a[3 * i] = ax, a[3 * i + 1] = ay, a[3 * i + 2] = az;
    dx[3 * i] = bx, dx[3 * i + 1] = by, dx[3 * i + 2] = bz;
  }
}
"""
Step = Callable[[], Any]


def many(step: Step) -> Step:
    """So many calls; what the last one gives."""

    def run() -> Any:
        for _ in range(CALLS):
            found = step()
        return found

    return run


# ---------------------------------------------------------------------- long rows


def scores() -> tuple[np.ndarray, np.ndarray]:
    """The scores, and a class for each row."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, CLASSES)).astype("f4"), rng.integers(0, CLASSES, ROWS)


def long_rows(framework: str) -> Step:
    """The loss, and a row of its gradient."""
    x, y = scores()
    if framework == NUMPY:

        def step() -> Any:
            e = np.exp(x - x.max(1, keepdims=True))
            e /= e.sum(1, keepdims=True)
            loss = -np.log(e[np.arange(ROWS), y]).mean()
            e[np.arange(ROWS), y] -= 1
            e /= ROWS
            return loss, e[0]

        return step
    import lucid

    lucid.set_num_threads(1)
    leaf, classes = lucid.tensor(x, requires_grad=True), lucid.tensor(y)

    @lucid.compile
    def run(x: Any, y: Any) -> Any:
        loss = lucid.nn.functional.cross_entropy(x, y)
        return loss.detach(), lucid.autograd.grad(loss, x)[0]

    def both() -> Any:
        loss, gradient = run(leaf, classes)
        return loss.numpy(), gradient.numpy()[0]

    return both


# ---------------------------------------------------------------------- pairs


def bodies(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and a cotangent."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, 3)), rng.normal(size=(count, 3))


def accelerations(x: Any, spelling: str) -> Any:
    """The same words for lucid and jax."""
    d = x[None] - x[:, None]
    r2 = (d * d).sum(-1) + SOFTENING
    return (d * SPELLINGS[spelling](r2)[..., None]).sum(1)


def pairs(framework: str, count: int, spelling: str) -> Step:
    """The accelerations, and the gradient."""
    x, g = bodies(count)
    if framework == C:
        return many(in_c(x, g))
    if framework == JAX:
        import jax

        jax.config.update("jax_enable_x64", True)

        @jax.jit
        def step(x: Any, g: Any) -> Any:
            a, back = jax.vjp(lambda x: accelerations(x, spelling), x)
            return a, back(g)[0]

        given = jax.numpy.asarray(x), jax.numpy.asarray(g)
        return many(lambda: jax.block_until_ready(step(*given)))
    import lucid

    lucid.set_num_threads(1)

    @lucid.compile
    def run(x: Any, g: Any) -> Any:
        a = accelerations(x, spelling)
        return a.detach(), lucid.autograd.grad(a, x, g)[0]

    leaf, cotangent = lucid.tensor(x, requires_grad=True), lucid.tensor(g)
    return many(lambda: [part.numpy() for part in run(leaf, cotangent)])


def in_c(x: np.ndarray, g: np.ndarray) -> Step:
    """The same by a function that is compiled now."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "pairs.c"), Path(folder, "pairs.so")
        source.write_text(SOURCE.replace("SOFTENING", str(SOFTENING)), encoding="utf-8")
        options = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", "-lm"]
        subprocess.run(["cc", source, "-o", library, *options], check=True)
        function = ctypes.CDLL(str(library)).pairs
    arrays = [x, g, np.empty_like(x), np.empty_like(x)]
    given = [ctypes.c_void_p(array.ctypes.data) for array in arrays]

    def step() -> Any:
        function(ctypes.c_long(len(x)), *given)
        return arrays[2:]

    return step


# ---------------------------------------------------------------------- all


def main() -> int:
    """Measure, and say which targets are met; 1 if results disagree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers-python", default=sys.executable, help="that has jax")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, *given, framework = json.loads(args.worker)
        make = (lambda: long_rows(framework)) if name == LONG_ROWS else None
        package = NUMPY if framework == C else framework
        measured(package, make or (lambda: pairs(framework, *given)), 3)
        return 0
    own = {LUCID: sys.executable, NUMPY: sys.executable}
    found = compare(__file__, LONG_ROWS, [LONG_ROWS], own, args.rounds)
    agree = bool(found)
    if found:
        judge("step, of NumPy's", found[LUCID]["step"] / found[NUMPY]["step"], OF_NUMPY)
    peers = {LUCID: sys.executable, JAX: args.peers_python}
    if shutil.which("cc"):
        peers[C] = sys.executable
    for count in BODIES:
        for spelling in SPELLINGS:
            title = f"{count} bodies, {spelling}"
            found = compare(__file__, title, ["pairs", count, spelling], peers, args.rounds)
            agree = agree and bool(found)
            each = {
                name: figures["step"] * 1e9 / (CALLS * count**2) for name, figures in found.items()
            }
            print(", ".join(f"  {name} {ns:.2f} ns a pair" for name, ns in each.items()))
            if found:
                judge("lucid's ns a pair", each[LUCID], NANOSECONDS)
    return int(not agree)


if __name__ == "__main__":
    sys.exit(main())
