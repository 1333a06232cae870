"""Record PyTorch's numbers for all of parity_cases.py into torch.npz.

Run it where torch is installed, after a change of the cases: python tests/data/record_torch.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from parity_cases import CASES, DTYPES, Arrays
from recording import load, save


def main() -> None:
    """Run each case in each dtype, eagerly on one thread, and write one file."""
    torch.set_num_threads(1)
    recorded: Arrays = {}
    for case in CASES:
        for dtype in DTYPES:
            for result, value in case.run(torch, lambda step: step, dtype).items():
                key = f"{case.name}/{dtype}/{result}"
                assert key not in recorded, f"two cases are named {case.name}"
                recorded[key] = value
    path = Path(__file__).with_name("torch.npz")
    save(path, recorded)
    assert all((load(path)[k] == v).all() for k, v in list(recorded.items())[::50])
    size = path.stat().st_size / 1024
    print(f"torch {torch.__version__}: {len(CASES)} cases, {len(recorded)} arrays, {size:.0f} KB")


if __name__ == "__main__":
    main()
