"""A program's workloads in several frameworks: each in processes of its own, in turns.

The program is called again as a worker, with `--worker` and what to measure, and prints what
`measured` has found. Results must agree before a time counts.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

LUCID, TORCH, JAX = "lucid", "torch", "jax"
TOLERANCE = 2e-3
"""How far results may be from each other, as a part of the largest: f32, hundreds of rounds."""
_ALONE = {
    "LUCID_CACHE": "0",
    "LUCID_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def peak() -> float:
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(framework: str, make: Callable[[], Callable[[], Any]], calls: int) -> None:
    """Print, as JSON, times of a step, what it took of memory, and the first result.

    Args:
        framework: it is imported before memory is weighed, with its layers, as programs do.
        make: gives the step, whose results are arrays.
        calls: how many there are after the first.
    """
    importlib.import_module(f"{framework}.nn")
    before = peak()
    step = make()
    begin = time.perf_counter()
    result = step()
    seconds = [time.perf_counter() - begin]
    for _ in range(calls):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    numbers = np.concatenate([np.ravel(np.asarray(x, np.float64))[:64] for x in result])
    found = {"first": seconds[0], "least": min(seconds[1:]), "memory": peak() - before}
    print(json.dumps(found | {"result": numbers.tolist()}))


Figures = dict[str, float]
"""Of a framework: "first" and "step" in seconds, "memory" in MB."""


def compare(
    program: str, title: str, given: Sequence[Any], frameworks: dict[str, str], rounds: int
) -> dict[str, Figures]:
    """Measure a workload in each framework, in turns, and print a line for each.

    Args:
        program: the file that is called.
        title: what the lines begin with.
        given: what the worker gets before the framework's name; plain data.
        frameworks: the Python of each; one where it isn't installed is left out, with a note.
        rounds: how often each is measured.

    Returns:
        The figures of each framework; none if the results disagree.
    """
    found: dict[str, list[Any]] = {name: [] for name in frameworks}
    for _ in range(rounds):
        for name in [*found]:
            env = os.environ | _ALONE
            command = [frameworks[name], program, "--worker", json.dumps([*given, name])]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{title}: {name} is left out: {done.stderr.strip().splitlines()[-1]}")
                del found[name]
            else:
                found[name].append(json.loads(done.stdout.splitlines()[-1]))
    wanted = next(iter(found.values()), [{"result": []}])[0]["result"]
    agree = all(np.allclose(x[0]["result"], wanted, 0, _scale(wanted)) for x in found.values())
    if not agree:
        print(f"{title}: the results disagree, so the times mean nothing")
    figures = {}
    for name, turns in found.items():
        first, memory = (min(x[key] for x in turns) for key in ("first", "memory"))
        least = statistics.median(x["least"] for x in turns)
        times = f"first {first:.3f} s, step {1e3 * least:.3f} ms, {memory:.0f} MB"
        print(f"{title:20} {name:6} {times}", flush=True)
        figures[name] = {"first": first, "step": least, "memory": memory}
    return figures if agree else {}


def judge(what: str, found: float, target: float) -> None:
    """Print a figure beside what was aimed at."""
    met = "met" if found <= target else "missed"
    print(f"  {what}: {found:.3g} (target {target:g}: {met})", flush=True)


def judge_parts(figures: dict[str, Figures], peer: str, targets: Mapping[str, float]) -> None:
    """The same of lucid's figures as parts of a peer's; nothing where one of the two is missing."""
    if {LUCID, peer} <= figures.keys():
        for what, target in targets.items():
            judge(f"{what}, of {peer}'s", figures[LUCID][what] / figures[peer][what], target)


def _scale(numbers: Sequence[float]) -> float:
    return TOLERANCE * max(map(abs, numbers), default=1.0)


def pythons(peers: str) -> dict[str, str]:
    """The interpreter of each framework."""
    return {LUCID: sys.executable, TORCH: peers, JAX: peers}
