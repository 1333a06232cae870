"""Record PyTorch's numbers for the nets of custom_nets_*.py into custom_nets.npz.

Run it where torch is installed, after a change of the nets: python tests/data/record_custom_nets.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from all_custom_nets import CASES
from parity_cases import Arrays
from recording import save


def main() -> None:
    """Train each net eagerly on one thread, and write one file."""
    torch.set_num_threads(1)
    recorded: Arrays = {}
    for case in CASES:
        results = case.net.run(torch, lambda step: step, case.dtype, case.optimizer)
        recorded |= {f"{case}/{result}": value for result, value in results.items()}
    assert all(np.isfinite(value).all() for value in recorded.values())
    path = Path(__file__).with_name("custom_nets.npz")
    save(path, recorded)
    size = path.stat().st_size / 1024
    print(f"torch {torch.__version__}: {len(CASES)} cases, {len(recorded)} arrays, {size:.0f} KB")


if __name__ == "__main__":
    main()
