"""What was measured: as a table, as JSON, as a picture."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import numpy as np
from frameworks import FRAMEWORKS
from turns import judge
from worker import Worker
from workloads import WORKLOADS
from workloads.workload import Workload

# In float32 a maximum of two nearly equal values, or a relu near zero, may fall either way, and one
# such element moves an update by up to a percent.
TOLERANCE = {"losses": 2e-4, "state": 2e-2}
REFERENCE = ("torch eager", "NumPy", "lucid eager")  # the first of these that ran

TARGETS = {"mlp_large": 0.7, "sparse_attention": 0.45, "nbody": 0.22}  # of jax.jit's time

Measured = dict[str, list[Worker]]


def markdown(measured: Measured) -> str:
    """A row per step: µs of each framework, and lucid's part of its peers' times."""
    ran = {w.framework for workers in measured.values() for w in workers}
    names = [name for name in FRAMEWORKS if name in ran]
    rows = [
        f"| µs per step | {' | '.join(names)} | lucid / best peer | lucid / torch, both eager "
        "| first step of lucid, s |",
        f"|---|{'--:|' * (len(names) + 3)}",
    ]
    for step, workers in measured.items():
        us = {w.framework: w.median for w in workers}
        first = {w.framework: w.built["first_step_s"] for w in workers}
        peers = [t for name, t in us.items() if "lucid" not in name]
        ratio = f"{us['lucid'] / min(peers):.2f}" if peers and "lucid" in us else "–"
        pair = [us.get(f"{name} eager") for name in ("lucid", "torch")]
        eager = f"{pair[0] / pair[1]:.2f}" if all(pair) else "–"
        cells = [figure(us[name]) if name in us else "–" for name in names]
        began = f"{first['lucid']:.2f}" if "lucid" in first else "–"
        rows.append(f"| {step} | {' | '.join(cells)} | {ratio} | {eager} | {began} |")
    return "\n".join(rows)


def judge_all(measured: Measured) -> None:
    """Say of the steps for which something was aimed at whether it is met."""
    for step, target in TARGETS.items():
        us = {worker.framework: worker.median for worker in measured.get(step, [])}
        if {"lucid", "jax.jit"} <= us.keys():
            judge(f"{step}, of jax.jit's time", us["lucid"] / us["jax.jit"], target)


def figure(us: float) -> str:
    """Three digits or the whole number."""
    return f"{us:,.0f}" if us >= 100 else f"{us:.1f}"


def write_json(measured: Measured, threads: int, path: Path) -> list[str]:
    """Write all figures; return what disagrees, a line each."""
    steps = {step: figures(WORKLOADS[step](), workers) for step, workers in measured.items()}
    result = {
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "threads": threads,
        "steps": steps,
    }
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return disagreements(steps)


def disagreements(steps: dict[str, dict]) -> list[str]:
    """The results that differ too much from the reference, by the figures of each step."""
    return [
        f"{step}, {framework}: {kind} differ by {value:.1e}"
        for step, figures_of in steps.items()
        for framework, of in figures_of["frameworks"].items()
        for kind, value in of["difference"].items()
        if not value <= TOLERANCE[kind]
    ]


def figures(w: Workload, workers: list[Worker]) -> dict:
    """All that is known of one step."""
    ran = {worker.framework: worker for worker in workers}
    reference = ran[next((name for name in REFERENCE if name in ran), next(iter(ran)))]
    start = w.parameters if w.optimizer else None
    return {
        "title": w.title,
        "reference": reference.framework,
        "frameworks": {
            name: worker.built
            | worker.measured
            | {"difference": difference(worker, reference, start)}
            for name, worker in ran.items()
        },
    }


def difference(
    worker: Worker, reference: Worker, start: dict[str, np.ndarray] | None
) -> dict[str, float]:
    """The largest relative difference of losses, and of updates (or gradients) in norm."""
    losses, expected = np.array(worker.built["losses"]), np.array(reference.built["losses"])
    updates = []
    for name, wanted in reference.state.items():
        base = np.zeros(()) if start is None else start[name].astype(np.float64)
        got = worker.state[name].reshape(wanted.shape) - base
        norm = np.linalg.norm(wanted - base)
        updates.append(float(np.linalg.norm(got - (wanted - base)) / max(norm, 1e-30)))
    return {
        "losses": float(np.max(np.abs(losses - expected) / np.abs(expected))),
        "state": max(updates),
    }


def plot(measured: Measured, path: Path) -> None:
    """Draw each peer's time as a multiple of lucid's, on a logarithmic scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    steps = [s for s, workers in measured.items() if any(w.framework == "lucid" for w in workers)]
    ran = {w.framework for s in steps for w in measured[s]}
    names = [name for name in FRAMEWORKS if name in ran]
    fig, axes = plt.subplots(figsize=(1.5 + 1.1 * len(steps), 4), layout="constrained")
    width = 0.8 / max(len(names), 1)
    for i, name in enumerate(names):
        us = [{w.framework: w.median for w in measured[s]} for s in steps]
        at = [s + (i - (len(names) - 1) / 2) * width for s, t in enumerate(us) if name in t]
        axes.bar(at, [t[name] / t["lucid"] for t in us if name in t], width, label=name)
    axes.set_yscale("log")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(steps)), steps, rotation=20, ha="right")
    axes.set_ylabel("time of a step / lucid's")
    axes.legend(ncols=len(names), loc="upper center", bbox_to_anchor=(0.5, 1.14), frameon=False)
    fig.savefig(path, dpi=150)
    plt.close(fig)
