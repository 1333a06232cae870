"""NumPy arrays among a step's arguments: the step gets tensors on their memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lucid.compiler.inputs.objects import visit_leaves
from lucid.compiler.inputs.signature import named_arguments
from lucid.ir.errors import LucidError
from lucid.tensor.core import of_array


def refuse_arrays(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Raise for the first array that no tensor can lie on, by the name of the argument."""

    def look(leaf: Any, path: str) -> None:
        if isinstance(leaf, np.ndarray):
            try:
                of_array(leaf, f"argument {path}")
            except LucidError as error:
                text = str(error).removeprefix(f"argument {path}: ")
                raise type(error)(f"argument {path}: {text}") from None

    for name, value in named_arguments(function, args, kwargs):
        visit_leaves(look, value, name)
