"""Wrong calls of functions, modules and optimizers: one error in both modes, and nothing changed.

`data/wrong_calls.json` has the calls, as source, with the class and the text of their errors. A new
one is entered with null; `--update-golden` writes what eager mode says: then read the diff.
"""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn, optim
from lucid.nn import functional as F

FILE = Path(__file__).parent / "data" / "wrong_calls.json"
CALLS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
GROUPS = {
    "functional": "F.",
    "modules": "nn.",
    "optimizers": "optim.",
    "linalg": "lucid.linalg.",
    "functions": "lucid.",
    "methods": "",
}
SPACE = {"F": F, "nn": nn, "optim": optim, "lucid": lucid, "np": np}
ACCUMULATES = "z.backward(), z.backward()"


def group_of(call: str) -> str:
    return next(group for group, start in GROUPS.items() if call.startswith(start))


def arguments() -> dict[str, lucid.Tensor]:
    x = lucid.arange(6.0).reshape(2, 3)  # given
    return {
        "x": x,
        "y": lucid.ones(4, 5),  # given
        "v": lucid.ones(3),  # given
        "i": lucid.tensor([0, 1]),  # given
        "b": x > 2,  # given
        "s": lucid.tensor(2.0),  # given
        "w": lucid.ones(2, 3, requires_grad=True),  # given
        "u": lucid.ones(3, requires_grad=True),  # given
        "c": lucid.ones(1, 3, 4, 4),  # given
    }


def state_of(tensors: dict[str, lucid.Tensor]) -> list[Any]:
    return [
        (x.tolist(), x._version, x.requires_grad, None if x.grad is None else x.grad.tolist())
        for x in tensors.values()
    ]


def outcome(call: str, is_compiled: bool) -> tuple[type[Exception], str, bool]:
    """The error's class and text, and whether it left the arguments as they were."""
    code = compile(call, "<call>", "eval")
    tensors = arguments()
    before = state_of(tensors)

    def body(given: dict[str, Any]) -> Any:
        return eval(code, {**SPACE, **given})

    try:
        step = lucid.compile(body) if is_compiled else body
        step({**tensors, "f": 1.5})  # a float that each call reads
    except Exception as error:
        text = re.sub(r"test_wrong_calls\.py:\d+   .*# given", "given", str(error))
        text = re.sub(r"0x[0-9a-f]+", "0x", text)
        return type(error), text, state_of(tensors) == before
    return Warning, "nothing was raised", True


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("group", GROUPS)
def test_a_wrong_call_raises_the_same_error_in_both_modes(group, mode, update_golden):
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, expected in CALLS.items():
            if group_of(call) != group:
                continue
            kind, text, is_unchanged = outcome(call, mode == "compiled")
            found = [kind.__name__, text]
            if update_golden and mode == "eager":
                CALLS[call] = expected = found
            known = issubclass(kind, lucid.LucidError)
            if found != expected or not known or not (is_unchanged or ACCUMULATES in call):
                wrong.append((call, expected, found, known, is_unchanged))
    if update_golden and mode == "eager":
        FILE.write_text(json.dumps(CALLS, indent=1) + "\n", encoding="utf-8")
    assert not wrong
