"""Time training steps in lucid and in its peers.

Each framework lives in a process of its own. They are measured in turns, round after round, so
that a drift of the machine hits all of them alike; the table has the median of the rounds. The
first losses and what the steps did to the parameters must agree before a time counts. A peer
that isn't installed is left out, with a note. `outside_backward` times the parts of steps whose
model alone is compiled, `looking` what it costs that a step looks at values, `conv_layers` the
convolutions of known networks layer by layer, `eager_calls` calls outside of any step,
`varying_batch` the first calls with new sizes, `lstm_lengths` and `ode_loop` the first call and the
step of loops, `attention` its memory too, and `kernels` long rows and pairs of bodies beside C.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import outside_backward
from frameworks import FRAMEWORKS
from report import judge_all, markdown, plot, write_json
from worker import Worker, work
from workloads import WORKLOADS

LOOKING, VARYING_BATCH = "looking", "varying_batch"
CONV_LAYERS, RESNET, EAGER_CALLS = "conv_layers", "resnet18", "eager_calls"
LSTM, ODE, ATTENTION, KERNELS = "lstm_lengths", "ode_loop", "attention", "kernels"
APART = {  # programs of their own, and what they are told
    LOOKING: ("looking", []),
    CONV_LAYERS: ("conv_layers", []),
    RESNET: ("resnet18", []),
    EAGER_CALLS: ("eager_calls", []),
    VARYING_BATCH: ("varying_batch", []),
    LSTM: ("loops", ["--workloads", "lstm_lengths"]),
    ODE: ("loops", ["--workloads", "ode_loop", "ode_scan", "checkpoints"]),
    ATTENTION: ("attention", []),
    KERNELS: ("kernels", []),
}
SLOW = ("torch.compile",)  # measured when asked for
PROGRAMS = {
    "steps": (WORKLOADS, FRAMEWORKS),
    outside_backward.NAME: (outside_backward.MODELS, outside_backward.CONTESTANTS),
}


def measure(name: str, args: argparse.Namespace) -> list[Worker]:
    """Measure one step in all frameworks that have it."""
    workers = []
    for framework in args.frameworks or [f for f in FRAMEWORKS if f not in SLOW]:
        python = sys.executable if "lucid" in framework else args.peers_python
        worker = Worker(("steps", name, framework), python, args.threads, args.seconds)
        if "missing" in worker.built:
            worker.stop()
            print(f"{name}: {framework} is left out, {worker.built['missing']}")
        else:
            workers.append(worker)
    for _ in range(args.rounds):
        for worker in workers:
            worker.measure()
    for worker in workers:
        worker.stop()
    return workers


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    steps = [*WORKLOADS, outside_backward.NAME, *APART]
    parser.add_argument("--steps", nargs="+", choices=steps, default=steps)
    parser.add_argument(
        "--frameworks",
        nargs="+",
        choices=FRAMEWORKS,
        help=f"without it {', '.join(SLOW)} are left out, but not of {outside_backward.NAME}",
    )
    models = list(outside_backward.MODELS)
    parser.add_argument(
        "--models",
        nargs="+",
        choices=models,
        default=models,
        help=f"of {outside_backward.NAME}, memory of the last one",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4, help="of each measurement")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--peers-python", default=sys.executable, help="a Python that has torch and jax"
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="a folder")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Run, print the table, write JSON and plot; return 1 if results disagree."""
    args = parse_arguments()
    if args.worker:
        kind, name, framework = args.worker
        workloads, frameworks = PROGRAMS[kind]
        work(workloads[name](), frameworks[framework], args.seconds)
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    wrong = []
    steps = [name for name in args.steps if name in WORKLOADS]
    if steps:
        measured = {name: measure(name, args) for name in steps}
        print(f"\n{markdown(measured)}\n")
        judge_all(measured)
        wrong += write_json(measured, args.threads, args.out / "steps.json")
        plot(measured, args.out / "steps.png")
        print(f"written to {args.out / 'steps.json'} and {args.out / 'steps.png'}")
    if outside_backward.NAME in args.steps:
        wrong += outside_backward.compare(args)
    for name, (program, told) in APART.items():
        if name in args.steps:
            options = [] if name == LOOKING else ["--peers-python", args.peers_python]
            print(flush=True)
            path = Path(__file__).with_name(f"{program}.py")
            done = subprocess.run([sys.executable, path, *told, *options], check=False)
            if name in (LSTM, ODE, ATTENTION, KERNELS) and done.returncode:
                wrong.append(name)
    for line in wrong:
        print(f"these results disagree, so the times mean nothing: {line}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
