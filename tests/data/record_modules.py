"""Record PyTorch's numbers for module_cases.py into modules.npz.

Run it where torch is installed, after a change of the cases: python tests/data/record_modules.py
"""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from module_cases import CONSTRUCTED, Arrays, run
from recording import save


def main() -> None:
    """Run each case on one thread, and write one file."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    recorded: Arrays = {}
    for i, (expression, inputs) in enumerate(CONSTRUCTED):
        found = run(torch, expression, inputs, lambda step: step)
        recorded |= {f"{i} {expression}/{key}": array for key, array in found.items()}
    path = Path(__file__).with_name("modules.npz")
    save(path, recorded)
    size = path.stat().st_size / 1024
    print(f"torch {torch.__version__}: {len(CONSTRUCTED)} modules, {size:.0f} KB")


if __name__ == "__main__":
    main()
