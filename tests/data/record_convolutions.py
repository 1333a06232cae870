"""Record PyTorch's numbers for all of convolution_cases.py into convolutions.npz.

Run it where torch is installed, after a change of the cases:
python tests/data/record_convolutions.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from convolution_cases import CASES
from parity_cases import Arrays
from recording import save


def main() -> None:
    """Run each case in float64, eagerly on one thread, and write one file of float32."""
    torch.set_num_threads(1)
    recorded: Arrays = {}
    for case in CASES:
        found = case.run(torch, torch.nn.functional, lambda step: step, "float64")
        for result, value in found.items():
            key = f"{case.name}/{result}"
            assert key not in recorded, f"two cases are named {case.name}"
            recorded[key] = value.astype("float32")
    path = Path(__file__).with_name("convolutions.npz")
    save(path, recorded)
    size = path.stat().st_size / 1024
    sys.stdout.write(f"torch {torch.__version__}: {len(recorded)} arrays, {size:.0f} KB\n")


if __name__ == "__main__":
    main()
