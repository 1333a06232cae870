"""Record PyTorch's numbers for the programs of tests/programs into programs.npz.

Run it where torch is installed, after a change of a program: python tests/data/record_programs.py
"""

from __future__ import annotations

from pathlib import Path

import program_runs
import torch
from recording import save


def main() -> None:
    """Run each program eagerly on one thread, and write one file."""
    torch.set_num_threads(1)
    recorded: program_runs.Arrays = {}
    for name in program_runs.NAMES:
        found, _ = program_runs.run(program_runs.load(name, "torch"), lambda step: step)
        recorded |= {f"{name}/{key}": array for key, array in found.items()}
    path = Path(__file__).with_name("programs.npz")
    save(path, recorded)
    size = path.stat().st_size / 1024
    print(f"torch {torch.__version__}: {len(program_runs.NAMES)} programs, {size:.0f} KB")


if __name__ == "__main__":
    main()
