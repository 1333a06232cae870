"""How near single parts come to what the machine can do: products, calls, compilation.

Prints the rate of fused multiply-adds that one core reaches, products as a part of it, the time of
a call that does nothing, and of first calls with an empty cache and with a full one.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import lucid
from lucid.codegen.llvm.builder import FunctionBuilder, Module, const, vector
from lucid.codegen.llvm.jit import load
from lucid.codegen.llvm.target import host_target
from lucid.ir import ops
from lucid.ir.graph import Graph
from lucid.ir.types import TensorType, f32
from lucid.runtime import compile_graph

CHAINS = 12  # sums in flight: enough to hide a latency, few enough for 16 registers
PRODUCTS = ((32, 64, 64), (64, 128, 128), (256, 1024, 784), (2048, 2048, 2048))
FIRST_CALL = """
import sys, time
sys.path.insert(0, {here!r})
import frameworks, workloads
program = frameworks.lucid(workloads.WORKLOADS[{name!r}]())
start = time.perf_counter()
program.value(program.step(0))
print(time.perf_counter() - start)
"""


def best_seconds(run: Callable[[], object], calls: int, rounds: int = 20) -> float:
    """The shortest time of a call, each round being the mean of `calls`."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        times.append((time.perf_counter() - start) / calls)
    return min(times)


def peak_gflops() -> float:
    """Float32 multiply-adds of one core, on registers."""
    target = host_target()
    module, lanes, rounds = Module(target), target.lanes("float"), 1_000_000
    with FunctionBuilder(module, "peak", [("ptr", "place")]) as b:
        one = const(vector("float", lanes), 1.0)
        half = const(vector("float", lanes), 0.5)
        with b.loop(0, rounds, carried=[one] * CHAINS) as loop:
            loop.carry(*(b.fma(value, half, one) for value in loop.carried))
        for number, value in enumerate(loop.results):
            b.store(value, b.at("float", b.args[0], number * lanes))
        b.ret()
    library = load(module.text(), target, ["peak"])
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.addresses["peak"])
    memory = np.empty(CHAINS * lanes, np.float32)
    seconds = best_seconds(lambda: run(memory.ctypes.data), 1)
    return 2 * rounds * CHAINS * lanes / seconds * 1e-9


def product_seconds(m: int, n: int, k: int) -> float:
    """A product of float32 matrices, its call and its new result included."""
    graph = Graph("product")
    a, b = (graph.add_input(TensorType(f32, shape)) for shape in ((m, k), (k, n)))
    graph.outputs = [ops.matmul(a, b)]
    executable, rng = compile_graph(graph), np.random.default_rng(0)
    arrays = [rng.random(shape, np.float32) for shape in ((m, k), (k, n))]
    executable(arrays)
    calls = max(1, int(1e8 / (m * n * k)))
    return best_seconds(lambda: executable(arrays), min(calls, 10_000))


def product_gflops(m: int, n: int, k: int) -> float:
    """The rate of a product, without the call, which a product of single elements shows."""
    seconds = product_seconds(m, n, k) - product_seconds(1, 1, 1)
    return 2 * m * n * k / seconds * 1e-9


def call_microseconds() -> float:
    """A step of ten tensors that does nothing."""

    @lucid.compile
    def step(*tensors: lucid.Tensor) -> None:
        return None

    tensors = [lucid.zeros(3) for _ in range(10)]
    for _ in range(3):
        step(*tensors)
    return best_seconds(lambda: step(*tensors), 2000) * 1e6


def first_call_seconds(name: str) -> tuple[float, float]:
    """In new processes: with an empty cache, and with the code in it."""
    script = FIRST_CALL.format(here=str(Path(__file__).parent), name=name)
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"LUCID_CACHE_DIR": folder, "OMP_NUM_THREADS": "2"}
        command = [sys.executable, "-c", script]
        cold, warm = (float(subprocess.check_output(command, env=env)) for _ in range(2))
    return cold, warm


def main() -> None:
    """Measure and print."""
    peak = peak_gflops()
    print(f"multiply-adds of one core: {peak:.0f} GF/s")
    for threads in (1, 2):
        lucid.set_num_threads(threads)
        for m, n, k in PRODUCTS:
            rate = product_gflops(m, n, k)
            print(f"{m} x {n} x {k}, {threads} threads: {rate:.0f} GF/s, {rate / peak:.0%} of it")
    print(f"empty step of ten tensors: {call_microseconds():.2f} µs")
    for name in ("mlp_tiny", "mlp_small", "mlp_large", "transformer"):
        cold, warm = first_call_seconds(name)
        print(f"first call of {name}: {cold:.2f} s, {warm:.2f} s with the code in the cache")


if __name__ == "__main__":
    main()
