"""Write `torch_names.json`, the public names of PyTorch; run it where torch is installed."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path

LEAST_TEXT = 60  # characters of a docstring; internals have none
PLACES = [
    "torch",
    "torch.Tensor",
    "torch.nn",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.nn.utils",
    "torch.optim",
    "torch.optim.lr_scheduler",
    "torch.linalg",
    "torch.special",
    "torch.func",
    "torch.distributions",
    "torch.autograd",
]


def names_of(place: str) -> list[str]:
    """What is documented there: functions and classes of PyTorch's own."""
    module, _, last = place.rpartition(".")
    try:
        owner = importlib.import_module(place)
    except ModuleNotFoundError:  # a class
        owner = getattr(importlib.import_module(module), last)
    return sorted(name for name in dir(owner) if _is_documented(getattr(owner, name), name))


def _is_documented(value: object, name: str) -> bool:
    is_called = inspect.isroutine(value) or inspect.isclass(value)
    home = getattr(value, "__module__", None) or "torch"
    return (
        is_called
        and not name.startswith("_")
        and home.startswith("torch")
        and len(inspect.getdoc(value) or "") >= LEAST_TEXT
        and not name.endswith(("Error", "Storage"))
        and not re.match(r"(cudnn|miopen|mkldnn|fbgemm|quantized)_", name)
    )


if __name__ == "__main__":
    import torch

    found = {"version": torch.__version__, "names": {place: names_of(place) for place in PLACES}}
    path = Path(__file__).with_name("torch_names.json")
    path.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
