"""Record anew what PyTorch gives: `python tests/data/record_expressions.py` (needs torch)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from expressions import (
    GRADIENTS,
    PROMOTION,
    RESULTS,
    SMALL_INTEGERS,
    array_of,
    encoded,
    load,
    names,
    of_small,
    promoted,
    small,
    weights,
)


def attempt(function: Callable[[], Any]) -> Any:
    """The result, or "error"; torch raises many types."""
    try:
        return function()
    except Exception:
        return "error"


def gradients(expression: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Gradients of the weighted sum of the result by x and y."""
    leaves = {
        name: torch.tensor(array_of(entry), requires_grad=True) for name, entry in inputs.items()
    }
    result = eval(expression, {"m": torch, **leaves})
    (result * torch.tensor(weights(result.numel())).reshape(result.shape)).sum().backward()
    return {
        name: None if leaf.grad is None else encoded(leaf.grad)["values"]
        for name, leaf in leaves.items()
    }


def table(entries: dict[str, Any]) -> str:
    """A dict with a line per entry."""
    return (
        "{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in entries.items()) + "\n}"
    )


def write(path: Path, parts: dict[str, dict[str, Any]]) -> None:
    body = ",\n".join(f"{json.dumps(name)}: {table(part)}" for name, part in parts.items())
    path.write_text("{\n" + body + "\n}\n", encoding="utf-8")


def main() -> None:
    warnings.simplefilter("ignore")
    results = load(RESULTS)
    results["results"] = {
        text: attempt(lambda text=text: encoded(eval(text, names(torch, results["inputs"]))))
        for text in results["results"]
    }
    write(RESULTS, results)
    derivatives = load(GRADIENTS)
    derivatives["results"] = {
        text: gradients(text, derivatives["inputs"]) for text in derivatives["results"]
    }
    write(GRADIENTS, derivatives)
    write(
        PROMOTION,
        {
            operation: {
                row: attempt(lambda o=operation, r=row: promoted(torch, o, r)) for row in rows
            }
            for operation, rows in load(PROMOTION).items()
        },
    )
    write(
        SMALL_INTEGERS,
        {
            dtype: {
                text: attempt(lambda t=text, d=dtype: encoded(of_small(torch, t, small(torch, d))))
                for text in texts
            }
            for dtype, texts in load(SMALL_INTEGERS).items()
        },
    )


if __name__ == "__main__":
    main()
