"""One framework's process: built once, measured whenever it is asked."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from frameworks import FRAMEWORKS, Program, UnavailableError
from workloads import WORKLOADS

FIRST = 4  # losses to compare, and the steps after which states are


def work(name: str, framework: str, seconds: float) -> None:
    """Build one program, then measure it each time a line comes in; answer in JSON lines."""
    w = WORKLOADS[name]()
    start = time.perf_counter()
    try:
        program = FRAMEWORKS[framework](w)
    except UnavailableError as error:
        answer({"missing": str(error)})
        return
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "jax"):
            raise
        answer({"missing": f"{error.name} is not installed"})
        return
    built = time.perf_counter()
    losses = [program.value(program.step(0))]
    first = time.perf_counter() - built
    losses += [program.value(program.step(i)) for i in range(1, FIRST)]
    with tempfile.NamedTemporaryFile(suffix=".npz", delete=False) as file:
        np.savez(file, **program.state())
    answer({"losses": losses, "state": file.name, "first_step_s": first, "build_s": built - start})
    done = FIRST
    for _ in sys.stdin:
        us, done = measure(program, done, seconds)
        answer({"us": us, "peak_mb": peak_mb()})


def peak_mb() -> float:
    """The most memory that this process had, in MiB.

    Linux: `getrusage` would count what the starting process had before `exec`.
    """
    status = Path("/proc/self/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def answer(message: dict[str, Any]) -> None:
    """Print one line of JSON, at once."""
    print(json.dumps(message), flush=True)


def measure(program: Program, done: int, seconds: float) -> tuple[float, int]:
    """Return the median µs per step of chunks of about 20 ms, each waited for, and steps done."""
    chunk, times = 1, []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end or len(times) < 3:
        for i in range(done, done + chunk):
            loss = program.step(i)
        program.value(loss)
        done += chunk
        taken = time.perf_counter() - start
        if taken < 0.01:
            chunk *= 2  # still finding the size: not counted
        else:
            times.append(taken / chunk * 1e6)
    return statistics.median(times), done


class Worker:
    """A framework's process as its starter sees it."""

    def __init__(
        self, name: str, framework: str, python: str, threads: int, seconds: float
    ) -> None:
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        env = os.environ | dict.fromkeys(names, str(threads)) | {"JAX_PLATFORMS": "cpu"}
        if threads == 1:
            env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
        script = Path(__file__).with_name("run.py")
        command = [python, script, "--worker", name, framework, "--seconds", str(seconds)]
        self.framework = framework
        self.us: list[float] = []
        self.peak_mb = 0.0
        self.state: dict[str, np.ndarray] = {}
        self.process = subprocess.Popen(
            command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.built = self.read()
        if "state" in self.built:
            path = Path(self.built.pop("state"))
            with np.load(path) as arrays:
                self.state = dict(arrays)
            path.unlink()

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
            raise SystemExit(f"{self.framework}: {answer['missing']}")
        self.us.append(answer["us"])
        self.peak_mb = answer["peak_mb"]

    def stop(self) -> None:
        """Let the process end."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()

    @property
    def median(self) -> float:
        """µs per step, over the rounds."""
        return statistics.median(self.us)
