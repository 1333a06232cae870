"""Attention and its gradient over the length of a sequence: time and peak memory of one framework.

python benchmarks/attention.py [--framework lucid|torch] [--lengths 128 512 1024 8192] [--causal]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

HEADS, WIDTH = 8, 64


def peak() -> float:
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def step_of(framework: str, length: int, causal: bool) -> tuple[Callable[[], Any], float]:
    """One step, of a sequence in heads, and the memory before its arrays were made."""
    rng = np.random.default_rng(0)
    shape = 1, HEADS, length, WIDTH
    if framework == "lucid":
        import lucid as library

        attend: Any = library.nn.functional.scaled_dot_product_attention
    else:
        import torch as library  # type: ignore[import-not-found, no-redef]

        library.set_num_threads(1)
        attend = library.nn.functional.scaled_dot_product_attention
    before = peak()
    arrays = [rng.normal(size=shape).astype(np.float32) for _ in range(4)]
    q, k, v = (library.tensor(array, requires_grad=True) for array in arrays[:3])
    w = library.tensor(arrays[3])

    def step(q: Any, k: Any, v: Any, w: Any) -> Any:
        return library.autograd.grad((attend(q, k, v, is_causal=causal) * w).sum(), (q, k, v))

    run: Any = library.compile(step) if framework == "lucid" else step
    return lambda: run(q, k, v, w), before


def measure(framework: str, length: int, causal: bool) -> None:
    """Print the best time of some steps, and what they have taken of memory."""
    run, before = step_of(framework, length, causal)
    times = []
    for _ in range(3 if length > 2048 else 10):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    print(f"{framework} {length}: {min(times) * 1e3:.2f} ms, {peak() - before:.0f} MB", flush=True)


def main() -> None:
    """Measure each length in a process of its own: a peak never falls."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", default="lucid", choices=("lucid", "torch"))
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512, 1024, 8192])
    parser.add_argument("--causal", action="store_true")
    given = parser.parse_args()
    if len(given.lengths) == 1:
        measure(given.framework, given.lengths[0], given.causal)
        return
    for length in given.lengths:
        more = ["--causal"] if given.causal else []
        words = ["--framework", given.framework, "--lengths", str(length), *more]
        subprocess.run([sys.executable, __file__, *words], check=True)


if __name__ == "__main__":
    main()
