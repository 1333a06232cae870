"""Time the training step of the digits example in lucid and in its peers.

Each framework lives in a process of its own. They are measured in turns, round after round, so
that a drift of the machine hits all of them alike; the table has the median of the rounds. The
first losses must agree before a time counts. A peer that isn't installed is left out, with a note.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from programs import BATCH, PROGRAMS, Batches

FIRST = 5  # losses to compare
TOLERANCE = 1e-4
REFERENCE = ("torch eager", "lucid eager", "lucid")  # the first of these that ran


# ------------------------------------------------------------------- one framework's process --


def load_batches(path: Path) -> Batches:
    """Read the batches that `write_batches` wrote."""
    with np.load(path) as file:
        return list(zip(file["x"], file["y"], strict=True))


def work(name: str, data: Path, seconds: float) -> None:
    """Build one program, then measure it each time a line comes in; answer in JSON lines."""
    start = time.perf_counter()
    try:
        step, value = PROGRAMS[name](load_batches(data))
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "jax"):
            raise
        answer({"missing": f"{error.name} is not installed"})
        return
    built = time.perf_counter()
    losses = [value(step(0))]
    first = time.perf_counter() - built
    losses += [value(step(i)) for i in range(1, FIRST)]
    answer({"losses": losses, "first_step_s": first, "build_s": built - start})
    done = FIRST
    for _ in sys.stdin:
        us, done = measure(step, value, done, seconds)
        answer({"us": us})


def answer(message: dict[str, Any]) -> None:
    """Print one line of JSON, at once."""
    print(json.dumps(message), flush=True)


def measure(step: Any, value: Any, done: int, seconds: float) -> tuple[float, int]:
    """Return the median µs per step of chunks of about 20 ms, each waited for, and steps done."""
    chunk, times = 1, []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end or len(times) < 3:
        for i in range(done, done + chunk):
            loss = step(i)
        value(loss)
        done += chunk
        taken = time.perf_counter() - start
        if taken < 0.01:
            chunk *= 2  # still finding the size: not counted
        else:
            times.append(taken / chunk * 1e6)
    return statistics.median(times), done


# ----------------------------------------------------------------------------- the whole run --


def write_batches(path: Path) -> None:
    """Write the digits as 28 batches of 64: f32[28,64,64] and i64[28,64]."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    order = order[: len(order) // BATCH * BATCH].reshape(-1, BATCH)
    path.parent.mkdir(parents=True, exist_ok=True)
    x = (digits.data / 16).astype(np.float32)[order]
    np.savez(path, x=x, y=digits.target.astype(np.int64)[order])


class Worker:
    """A framework's process, started and built."""

    def __init__(self, name: str, python: str, data: Path, seconds: float, threads: int) -> None:
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        env = os.environ | dict.fromkeys(names, str(threads)) | {"JAX_PLATFORMS": "cpu"}
        if threads == 1:
            env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
        command = [python, __file__, "--worker", name, "--seconds", str(seconds), "--data", data]
        self.name = name
        self.us: list[float] = []
        self.process = subprocess.Popen(
            command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.built = self.read()

    def read(self) -> dict[str, Any]:
        """Wait for the next answer."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"missing": "its process failed, see above"}

    def measure(self) -> None:
        """Measure once more."""
        assert self.process.stdin
        print(file=self.process.stdin, flush=True)
        answer = self.read()
        if "us" not in answer:
            raise SystemExit(f"{self.name}: {answer['missing']}")
        self.us.append(answer["us"])

    def stop(self) -> None:
        """Let the process end."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def disagreement(workers: list[Worker]) -> dict[str, float]:
    """The largest relative difference of the first losses from the reference's, by name."""
    losses = {w.name: np.array(w.built["losses"]) for w in workers}
    reference = losses[next(name for name in REFERENCE if name in losses)]
    return {k: float(np.max(np.abs(v - reference) / np.abs(reference))) for k, v in losses.items()}


def table(workers: list[Worker]) -> str:
    """A Markdown table, fastest first; ratios are to lucid's time."""
    base = statistics.median(next(w for w in workers if w.name == "lucid").us)
    rows = [
        "| framework | µs/step | lowest–highest round | time / lucid's | first step, s |",
        "|---|--:|--:|--:|--:|",
    ]
    for w in sorted(workers, key=lambda w: statistics.median(w.us)):
        us = statistics.median(w.us)
        rows.append(
            f"| {w.name} | {us:.1f} | {min(w.us):.1f}–{max(w.us):.1f} "
            f"| {us / base:.2f} | {w.built['first_step_s']:.2f} |"
        )
    return "\n".join(rows)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each round's measurement")
    parser.add_argument("--threads", type=int, default=2, help="that torch and jax may use")
    parser.add_argument("--torch-compile", action="store_true", help="too; takes a C++ compiler")
    parser.add_argument(
        "--peers-python", default=sys.executable, help="a Python that has torch and jax"
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench/digits.json"))
    parser.add_argument("--data", type=Path, default=Path("build/bench/batches.npz"))
    parser.add_argument("--worker", choices=PROGRAMS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Run, print the table and write the JSON; return 1 if losses disagree."""
    args = parse_arguments()
    if args.worker:
        work(args.worker, args.data, args.seconds)
        return 0
    write_batches(args.data)
    workers = []
    for name in PROGRAMS:
        if name == "torch.compile" and not args.torch_compile:
            continue
        python = sys.executable if name.startswith("lucid") else args.peers_python
        worker = Worker(name, python, args.data, args.seconds, args.threads)
        if "missing" in worker.built:
            worker.stop()
            print(f"{name} is left out: {worker.built['missing']}")
            if name == "lucid":
                return 1
        else:
            workers.append(worker)
    for _ in range(args.rounds):
        for worker in workers:
            worker.measure()
    for worker in workers:
        worker.stop()

    print(f"\n{table(workers)}\n")
    differences = disagreement(workers)
    print(f"first {FIRST} losses differ by {max(differences.values()):.1e} at most, relative")
    result = {
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "threads": args.threads,
        "rounds": {w.name: w.us for w in workers},
        "built": {w.name: w.built for w in workers},
        "loss_difference": differences,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {args.out}")
    wrong = [k for k, v in differences.items() if not v < TOLERANCE or math.isnan(v)]
    if wrong:
        print(f"the losses of these disagree, so their times mean nothing: {', '.join(wrong)}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
