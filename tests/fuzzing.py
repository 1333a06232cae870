"""How many random programs tests try: a few in the suite, always the same; many by `make fuzz`."""

from __future__ import annotations

import os

FUZZED = int(os.environ.get("FUZZED", "0"))
"""Random graphs that `make fuzz` asks for; the suite has 500 of them."""


def many(count: int) -> int:
    """So many in the suite; ten times as many beside 20,000 random graphs."""
    return count * max(FUZZED // 2000, 1)
