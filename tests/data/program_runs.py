"""The programs of tests/programs: how they are loaded, run, and what of a run is compared.

Each is a PyTorch program as people write it. For lucid, nothing but its imports is changed. Its
`build()` returns a step, what happens (a tuple is a call of the step with these arguments, a
function is called between two steps), and the state to compare: modules, tensors, lists of them.
`TRACES` says how often the step is traced, once if it isn't there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

PROGRAMS = Path(__file__).parent.parent / "programs"
NAMES = sorted(p.stem for p in PROGRAMS.glob("*.py") if not p.stem.startswith("test_"))
Arrays = dict[str, np.ndarray]


def load(name: str, library: str) -> ModuleType:
    """Run a program's file with "torch" or "lucid" in its import statements."""
    path = PROGRAMS / f"{name}.py"
    source = path.read_text(encoding="utf-8")
    if library != "torch":
        source = re.sub(r"^import torch$", f"import {library} as torch", source, flags=re.M)
        source = re.sub(r"^(import|from) torch\b", rf"\1 {library}", source, flags=re.M)
    module = sys.modules[f"{library}_program_{name}"] = ModuleType(f"{library}_program_{name}")
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def run(module: ModuleType, decorator: Callable[[Any], Any]) -> tuple[Arrays, Any]:
    """Run a program to its end; return what its steps gave and its last state, and the step."""
    step, events, state = module.build()
    step = decorator(step)
    found: Arrays = {}
    calls = 0
    for event in events:
        if callable(event):
            event()
        else:
            result = step(*event)
            _collect(f"call{calls}", result, found)
            found[f"call{calls} has history"] = np.array(_histories(result))
            calls += 1
    _collect("state", state, found)
    return found, step


def _collect(prefix: str, value: Any, found: Arrays) -> None:
    """Name the arrays in a result, and the gradients of leaves."""
    if hasattr(value, "state_dict"):
        for name, tensor in value.state_dict().items():
            _collect(f"{prefix}.{name}", tensor, found)
        for name, parameter in value.named_parameters():
            _collect_grad(f"{prefix}.{name}", parameter, found)
    elif hasattr(value, "detach"):
        found[prefix] = np.array(value.detach().numpy())
        if value.is_leaf and value.requires_grad:
            _collect_grad(prefix, value, found)
    elif isinstance(value, dict):
        for key, item in value.items():
            _collect(f"{prefix}.{key}", item, found)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _collect(f"{prefix}.{i}", item, found)


def _histories(result: Any) -> list[bool]:
    """Whether each tensor of a result requires grad and has a graph behind it."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [has for item in result for has in _histories(item)]
    return [result.requires_grad, result.grad_fn is not None]


def _collect_grad(prefix: str, leaf: Any, found: Arrays) -> None:
    if leaf.grad is not None:
        found[f"{prefix}.grad"] = np.array(leaf.grad.detach().numpy())
