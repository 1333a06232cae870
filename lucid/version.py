"""What this build is: PyTorch's programs print it."""

from __future__ import annotations

import lucid
from lucid.ir import frames

__all__ = ["cuda", "debug", "hip"]

__version__ = lucid.__version__
cuda: str | None = None
hip: str | None = None
debug = False

frames.edge_of_module(__name__)
