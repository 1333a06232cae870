"""Trace events, as Perfetto and chrome://tracing read them.

Reference: "Trace Event Format", the Chromium project, 2016.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any


def event(
    name: str, category: str, start: float, seconds: float, details: Mapping[str, Any]
) -> dict[str, Any]:
    """Something that lasts: a complete event. Times are in seconds, and microseconds in it."""
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": round(start * 1e6, 3),
        "dur": round(seconds * 1e6, 3),
        "pid": os.getpid(),
        "tid": 0,
        "args": dict(details),
    }


def write_events(path: str | os.PathLike[str], events: Sequence[Mapping[str, Any]]) -> None:
    """Write them as JSON."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": list(events), "displayTimeUnit": "ns"}, file)
