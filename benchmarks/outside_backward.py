"""What it costs to compile the model alone, with loss, backward and optimizer outside of it.

The parts of a training step are timed each by itself: the model's forward and backward with one
and the same cotangent, the loss, the optimizer, and all of it. Each contestant has one thread, and
all of them the same processor. What was aimed at is printed with what was reached.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from frameworks import Part, Program, as_is, threads, torch_compiler, torch_optimizer
from report import disagreements, figure, figures
from worker import Worker
from workloads import perceptron, transformer
from workloads.workload import Workload, cross_entropy, normal

NAME = "outside_backward"
MODELS: dict[str, Callable[[], Workload]] = {
    "mlp": perceptron.medium,
    "transformer": transformer.characters,
}
MODEL, LOSS, OPTIMIZER = "model, forward and backward", "loss, forward and backward", "opt.step()"
ITERATION = "whole iteration"
PARTS = (MODEL, LOSS, OPTIMIZER, ITERATION)
ALONE, WHOLE, EAGER, COMPILE = (
    "lucid model alone",
    "lucid whole step",
    "torch eager",
    "torch.compile",
)


def in_parts(
    L: Any,
    w: Workload,
    *,
    alone: Callable[[Any], Any] = as_is,
    whole: Callable[[Any], Any] | None = None,
    **flags: Any,
) -> Program:
    """The step with PyTorch's API on `L`, as a Module, a loss and an optimizer.

    Args:
        alone: compiles the Module.
        whole: compiles what calls it: the step, and the model's forward and backward.
        flags: of the optimizer.
    """
    assert w.torch_model and w.optimizer
    criterion = cross_entropy(L)
    module = module_of(L, w.torch_model(L), w.parameters)
    model, leaves = alone(module), list(module.parameters())
    opt = torch_optimizer(L, w.optimizer, leaves, flags)
    batches = [tuple(L.tensor(a) for a in batch) for batch in w.batches]
    x, y = batches[0]
    rng = np.random.default_rng(2)
    shape = w.batches[0][1].size, w.classes
    scores = L.tensor(normal(rng, *shape), requires_grad=True)
    cotangent = L.tensor(normal(rng, *shape, scale=1 / shape[0]))

    def clear() -> None:
        for p in leaves:
            p.grad = None

    def differentiate_model() -> None:
        out = model(x)
        out.backward(cotangent)

    def differentiate_loss() -> None:
        scores.grad = None
        criterion(scores, y).backward()

    def differentiate_all() -> None:
        clear()
        criterion(model(x), y).backward()

    def step(x: Any, y: Any) -> Any:
        clear()
        loss = criterion(model(x), y)
        loss.backward()
        opt.step()
        return loss

    if whole:
        step = whole(step)
        parts = {MODEL: Part(clear, whole(differentiate_model))}
    else:
        parts = {
            MODEL: Part(clear, differentiate_model),
            LOSS: Part(lambda: None, differentiate_loss),
            OPTIMIZER: Part(differentiate_all, opt.step),
        }
    turns = cycle(batches)
    parts[ITERATION] = Part(lambda: None, lambda: step(*next(turns)))
    return Program(
        lambda i: step(*batches[i % len(batches)]),
        lambda loss: loss.item(),
        lambda: {k: p.detach().numpy() for k, p in module.P.items()},
        parts,
        lambda: residual_bytes(getattr(model, "stages", {})),
    )


def module_of(L: Any, function: Callable[..., Any], arrays: Mapping[str, np.ndarray]) -> Any:
    """A Module that calls a function of parameters and inputs."""

    class Model(L.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            parameters = {k: L.nn.Parameter(L.tensor(v.copy())) for k, v in arrays.items()}
            self.P = L.nn.ParameterDict(parameters)

        def forward(self, x: Any) -> Any:
            return function(self.P, x)

    return Model()


def residual_bytes(stages: Mapping[str, str]) -> int:
    """What a call of a compiled function keeps for its backward, as its program says it.

    Its lines are "kept … 1,024 bytes", or "repeated …" for what is computed again.
    """
    lines = stages.get("residuals", "").splitlines()
    return sum(int(x.split()[-2].replace(",", "")) for x in lines if x.startswith("kept"))


def lucid_alone(w: Workload) -> Program:
    """`model = lucid.compile(model)`, and nothing else."""
    import lucid as L

    L.set_num_threads(threads())
    return in_parts(L, w, alone=L.compile)


def lucid_whole(w: Workload) -> Program:
    """The whole step in `lucid.compile`."""
    import lucid as L

    L.set_num_threads(threads())
    return in_parts(L, w, whole=L.compile)


def torch_eager(w: Workload, compiler: Any = as_is) -> Program:
    """PyTorch op by op, with its fused optimizer."""
    import torch

    torch.set_num_threads(threads())
    return in_parts(torch, w, alone=compiler, fused=True)


def torch_compile(w: Workload) -> Program:
    """`model = torch.compile(model)`, and nothing else; so loss and optimizer are torch eager's."""
    program = torch_eager(w, torch_compiler())
    program.parts = {name: program.parts[name] for name in (MODEL, ITERATION)}
    return program


CONTESTANTS: dict[str, Callable[[Workload], Program]] = {
    ALONE: lucid_alone,
    WHOLE: lucid_whole,
    EAGER: torch_eager,
    COMPILE: torch_compile,
}


@dataclass(frozen=True)
class Target:
    """What the model compiled alone may take of another contestant's time, by model."""

    part: str
    against: str
    at_most: Mapping[str, float]


TARGETS = (
    Target(MODEL, EAGER, {"mlp": 0.55, "transformer": 0.55}),
    Target(MODEL, WHOLE, {"mlp": 1.2, "transformer": 1.15}),
    Target(OPTIMIZER, EAGER, {"mlp": 0.5, "transformer": 0.5}),
)
MEMORY_AT_MOST = 1.05  # of what the whole step needs, and the residuals
COLD, WARM = "peak memory, MiB", "peak memory with the code in the cache, MiB"
RESIDUALS = "residuals of a call, MiB"

Memory = dict[str, dict[str, float]]  # MiB by row of the table and contestant


def compare(args: Namespace) -> list[str]:
    """Measure, print and write what was found; return the results that disagree, a line each."""
    ran = {name: measure(name, args) for name in args.models}
    measured = {name: workers for name, workers in ran.items() if workers}
    if not measured:
        print(f"{NAME}: none of its contestants is there")
        return []
    used = memory(args)
    judged = [line for name, workers in measured.items() for line in judge_times(name, workers)]
    judged += judge_memory(args.models[-1], used)
    print(f"\n{markdown(measured, args.models[-1], used)}\n")
    print("\n".join(judged))
    models = {name: figures(MODELS[name](), workers) for name, workers in measured.items()}
    path = args.out / f"{NAME}.json"
    result = {"models": models, "memory": used, "targets": judged}
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path}")
    return disagreements({f"{NAME}, {name}": of for name, of in models.items()})


def start(model: str, contestant: str, args: Namespace, **env: str) -> Worker:
    """Start a contestant's process, with one thread."""
    python = sys.executable if "lucid" in contestant else args.peers_python
    return Worker((NAME, model, contestant), python, 1, args.seconds / 2, env)


def contestants(args: Namespace) -> list[str]:
    """Those of the frameworks that were asked for; without a wish all."""
    wanted = tuple(args.frameworks or CONTESTANTS)
    return [name for name in CONTESTANTS if name.startswith(wanted)]


def measure(model: str, args: Namespace) -> list[Worker]:
    """Measure all parts, each of them in all contestants in turns."""
    workers = []
    for worker in [start(model, contestant, args) for contestant in contestants(args)]:
        if "missing" in worker.built:
            worker.stop()
            print(f"{NAME}, {model}: {worker.framework} is left out, {worker.built['missing']}")
        else:
            workers.append(worker)
    for _ in range(args.rounds):
        for part in PARTS:
            for worker in workers:
                if part in worker.built["parts"]:
                    worker.measure(part)
    for worker in workers:
        worker.stop()
    return workers


def memory(args: Namespace) -> Memory:
    """What training adds to the memory of a new process: its peak, less that before it.

    Tracing and compiling are part of it, so the cache of object code counts: at first it is empty.
    """
    used: Memory = {COLD: {}, WARM: {}, RESIDUALS: {}}
    names = [name for name in contestants(args) if "lucid" in name]
    with tempfile.TemporaryDirectory() as folder:
        for row in (COLD, WARM):
            for worker in [
                start(args.models[-1], name, args, LUCID_CACHE_DIR=str(Path(folder, name)))
                for name in names
            ]:
                worker.measure()
                worker.stop()
                used[row][worker.framework] = worker.peak_mb - worker.built["built_mb"]
                used[RESIDUALS][worker.framework] = worker.residual_bytes / 2**20
    return used


def markdown(measured: Mapping[str, list[Worker]], memory_of: str, used: Memory) -> str:
    """A row for each part of each model, in µs, and for memory; a column for each contestant."""
    ran = {worker.framework for workers in measured.values() for worker in workers}
    names = [name for name in CONTESTANTS if name in ran]
    rows = [f"| µs | {' | '.join(names)} |", f"|---|{'--:|' * len(names)}"]
    for model, workers in measured.items():
        for part in PARTS:
            us = {
                worker.framework: statistics.median(worker.part_us[part])
                for worker in workers
                if part in worker.part_us
            }
            rows.append(row(f"{model}: {part}", names, us))
    rows += [row(f"{memory_of}: {title}", names, of) for title, of in used.items() if of]
    return "\n".join(rows)


def row(title: str, names: list[str], values: Mapping[str, float]) -> str:
    """A row of the table; what nobody measured is a dash."""
    cells = [figure(values[name]) if name in values else "–" for name in names]
    return f"| {title} | {' | '.join(cells)} |"


def judge_times(model: str, workers: list[Worker]) -> list[str]:
    """Say of each target whether it is met: by the median ratio within a round."""
    ran = {worker.framework: worker for worker in workers}
    return [
        verdict(
            f"{model}: {target.part}, {ALONE} / {target.against}",
            ratios(ran[ALONE].part_us[target.part], ran[target.against].part_us[target.part]),
            target.at_most[model],
        )
        for target in TARGETS
        if {ALONE, target.against} <= ran.keys()
    ]


def ratios(times: list[float], others: list[float]) -> list[float]:
    """Round by round, where a slow moment of the machine hits both."""
    return [time / other for time, other in zip(times, others, strict=True)]


def judge_memory(model: str, used: Memory) -> list[str]:
    """Say whether the model alone needs but the residuals more than the whole step."""
    of = used[WARM]
    if not {ALONE, WHOLE} <= of.keys():
        return []
    ratio = [of[ALONE] / (of[WHOLE] + used[RESIDUALS][ALONE])]
    what = f"{model}: {WARM.removesuffix(', MiB')}, {ALONE} / ({WHOLE} + residuals)"
    return [verdict(what, ratio, MEMORY_AT_MOST)]


def verdict(what: str, ratios: list[float], at_most: float) -> str:
    """Say whether the median of some ratios meets a target, and how far they lie apart."""
    ratio = statistics.median(ratios)
    span = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
    met = "met   " if ratio <= at_most else "missed"
    return f"{met}  {what}: {ratio:.2f}{span}, target {at_most}"
