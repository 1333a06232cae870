"""What PyTorch gave for some hundred expressions, and how to evaluate them with another library.

`python tests/data/record_expressions.py` records anew.
To add an expression, add a line with any result first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "expression_results.json"
GRADIENTS = HERE / "expression_gradients.json"
PROMOTION = HERE / "promotion.json"
SMALL_INTEGERS = HERE / "small_integers.json"


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def array_of(entry: dict[str, Any]) -> np.ndarray:
    return np.array(entry["values"], entry["dtype"]).reshape(entry["shape"])


def names(library: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """What an expression may refer to: the library as m, T to make tensors, the inputs."""

    def make(data: Any, **options: Any) -> Any:
        named = {k: getattr(library, v) if k == "dtype" else v for k, v in options.items()}
        return library.tensor(data, **named)

    tensors = {name: library.tensor(array_of(entry)) for name, entry in inputs.items()}
    constants = {"np": np, "inf": float("inf"), "nan": float("nan")}
    return {"m": library, "T": make, **constants, **tensors}


def encoded(value: Any) -> Any:
    """A result as it is recorded."""
    if isinstance(value, (tuple, list)):
        return [encoded(item) for item in value]
    if not hasattr(value, "detach"):
        return {"python": value}
    array = value.detach().numpy()
    numbers = [float(f"{n:.9g}") if isinstance(n, float) else n for n in array.ravel().tolist()]
    return {"dtype": str(array.dtype), "shape": list(array.shape), "values": numbers}


def weights(size: int) -> np.ndarray:
    """What results are multiplied with before they are summed up and differentiated."""
    return np.cos(np.arange(size, dtype=np.float64))


def operand(library: Any, kind: str, dtype: str) -> Any:
    """An operand of the promotion table: `1-d`, `0-d` or `number`."""
    if kind == "number":
        return {"bool": True, "int64": 2, "float32": 2.5}[dtype]
    data = [True, True] if dtype == "bool" else [1, 2]
    vector = library.tensor(data, dtype=getattr(library, dtype))
    return vector if kind == "1-d" else vector[1]


def promoted(library: Any, operation: str, operands: str) -> str:
    """The dtype's name that the operation gives for operands such as `1-d int64, number bool`."""
    x, y = (operand(library, *part.split()) for part in operands.split(", "))
    if operation == "result_type":
        dtype = library.result_type(x, y)
    elif operation == "where":
        dtype = library.where(library.tensor([True, False]), x, y).dtype
    else:
        dtype = getattr(library, operation)(x, y).dtype
    return str(dtype).rpartition(".")[2]


def small(library: Any, dtype: str) -> Any:
    """The operand of the expressions about integers of 8 and 16 bits."""
    return library.tensor([1, 100, 127], dtype=getattr(library, dtype))


def of_small(library: Any, expression: str, x: Any) -> Any:
    """The first result of an expression about `x` and its dtype `u`."""
    result = eval(expression, {"T": library, "x": x, "u": x.dtype})
    return result[0] if isinstance(result, tuple) else result
