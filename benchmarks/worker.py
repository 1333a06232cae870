"""One framework's process: built once, measured whenever it is asked.

One thread means one processor, for whatever a framework starts: XLA runs a step on all processors
that it sees, whatever it is told. So compiling and building have one, too.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from frameworks import Part, Program, UnavailableError
from workloads.workload import Workload

FIRST = 4  # losses to compare, and the steps after which states are
WARM_UP = 3  # calls of a part, which may compile


def work(w: Workload, build: Callable[[Workload], Program], seconds: float) -> None:
    """Build one program, then measure it each time a line comes in; answer in JSON lines.

    A line names a part of the step, or is empty and means all of it.
    """
    start = time.perf_counter()
    try:
        program = build(w)
    except UnavailableError as error:
        answer({"missing": str(error)})
        return
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "jax"):
            raise
        answer({"missing": f"{error.name} is not installed"})
        return
    built, built_mb = time.perf_counter(), peak_mb()
    losses = [program.value(program.step(0))]
    first = time.perf_counter() - built
    losses += [program.value(program.step(i)) for i in range(1, FIRST)]
    with tempfile.NamedTemporaryFile(suffix=".npz", delete=False) as file:
        np.savez(file, **program.state())
    answer(
        {"losses": losses, "state": file.name, "first_step_s": first, "build_s": built - start}
        | {"built_mb": built_mb, "parts": list(program.parts)}
    )
    done = FIRST
    warm: set[str] = set()
    for line in sys.stdin:
        name = line.strip()
        if not name:
            us, done = measure(program, done, seconds)
        else:
            us = measure_part(program.parts[name], seconds, 0 if name in warm else WARM_UP)
            warm.add(name)
        answer({"us": us, "peak_mb": peak_mb(), "residual_bytes": program.residual_bytes()})


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


def measure_part(part: Part, seconds: float, warm_up: int) -> float:
    """Return the median µs of calls of `run`; what `before` takes is not counted.

    Processor time: who else the processor serves meanwhile is left out. So is waiting, so this is
    for programs of one thread.
    """
    times: list[float] = []
    for _ in range(warm_up):
        part.before()
        part.run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        part.before()
        start = time.process_time()
        part.run()
        times.append((time.process_time() - start) * 1e6)
    return statistics.median(times)


class Worker:
    """A framework's process as its starter sees it.

    Attributes:
        us: of a step in each round.
        part_us: the same of each part that was measured.
        residual_bytes: what a call of the model kept for its backward, at last.
    """

    def __init__(
        self,
        program: tuple[str, str, str],
        python: str,
        threads: int,
        seconds: float,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start it; several may build at the same time.

        Args:
            program: the benchmark, the workload and the framework, as `run.py --worker` takes them.
            threads: of the framework; with one it has one processor.
            variables: more of its environment.
        """
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        env = os.environ | dict.fromkeys(names, str(threads)) | {"JAX_PLATFORMS": "cpu"}
        env |= variables or {}
        script = Path(__file__).with_name("run.py")
        command = [python, script, "--worker", *program, "--seconds", str(seconds)]
        self.framework = program[-1]
        self.us: list[float] = []
        self.part_us: dict[str, list[float]] = {}
        self.peak_mb = 0.0
        self.residual_bytes = 0
        self.state: dict[str, np.ndarray] = {}
        self.process = subprocess.Popen(
            command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        if threads == 1:  # before it has more of them, which inherit it
            os.sched_setaffinity(self.process.pid, {max(os.sched_getaffinity(0))})

    @cached_property
    def built(self) -> dict[str, Any]:
        """What it said when it had done the first steps; "missing" says why it can't."""
        built = self.read()
        if "state" in built:
            path = Path(built.pop("state"))
            with np.load(path) as arrays:
                self.state = dict(arrays)
            path.unlink()
        return built

    def read(self) -> dict[str, Any]:
        """Wait for the next answer."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"missing": "its process failed, see above"}

    def measure(self, part: str = "") -> None:
        """Measure the step once more, or a part of it."""
        assert self.process.stdin
        answer = self.built
        if "missing" not in answer:
            print(part, file=self.process.stdin, flush=True)
            answer = self.read()
        if "missing" in answer:
            raise SystemExit(f"{self.framework}: {answer['missing']}")
        (self.part_us.setdefault(part, []) if part else self.us).append(answer["us"])
        self.peak_mb = answer["peak_mb"]
        self.residual_bytes = answer["residual_bytes"]

    def stop(self) -> None:
        """Let the process end."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()

    @property
    def measured(self) -> dict[str, Any]:
        """All of its figures: of the whole step, or of its parts."""
        times: dict[str, Any] = {"parts_us": self.part_us} if self.part_us else {}
        if self.us:
            times |= {"us": self.us, "median_us": self.median}
        return times | {"peak_mb": self.peak_mb}

    @property
    def median(self) -> float:
        """µs per step, over the rounds."""
        return statistics.median(self.us)
