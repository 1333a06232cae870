"""Public names have complete docstrings: how many haven't may only fall.

`pytest tests/test_docstrings.py --update-golden` lowers the counts.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import docstrings
import pytest

import lucid

TABLE = Path(__file__).parent / "data" / "docstrings.txt"


def allowed() -> dict[str, int]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return {place: int(count) for count, place in map(str.split, lines)}


def test_the_table_names_each_public_namespace(update_golden: bool) -> None:
    counts = docstrings.counts()
    if update_golden:
        before = allowed()
        lower = {place: min(count, before.get(place, 0)) for place, count in counts.items()}
        lines = [f"{count:5} {place}\n" for place, count in lower.items()]
        TABLE.write_text("".join(lines), encoding="utf-8")
    assert list(allowed()) == list(counts)


@pytest.mark.parametrize("place", docstrings.namespaces())
def test_no_more_docstrings_are_incomplete_than_were(place: str) -> None:
    found = dict(docstrings.incomplete(place, docstrings.namespaces()[place]))
    assert len(found) <= allowed()[place], found


def test_what_a_docstring_lacks_is_said() -> None:
    def halved(input: Any, times: int = 1, *, strict: bool = False) -> Any:
        """Halve.

        Args:
            times: x

        Example:
            >>> lucid.other(3)
            3
        """
        if strict:
            raise lucid.ShapeError("halved: no")
        return input / 2**times

    assert docstrings.lacks("halved", halved) == [
        "too little said",
        "no input in Args",
        "no times in Args",
        "no strict in Args",
        "no Raises of ShapeError",
        "no example that uses it and shows a result",
    ]


def test_empty_headings_and_shown_nothing_are_not_enough() -> None:
    def halved(input: Any) -> Any:
        """Halve each of the elements of a tensor of floats, one after the other.

        Args:

        Raises:

        Example:
            >>> halved(3.0)
        """
        return input / 2

    assert docstrings.lacks("halved", halved) == [
        "no input in Args",
        "no example that uses it and shows a result",
    ]
    halved.__doc__ = halved.__doc__.replace("Args:\n", "Args:\n            input: what to halve.\n")
    halved.__doc__ = halved.__doc__.replace(">>> halved(3.0)", ">>> halved(3.0)\n            1.5")
    assert docstrings.lacks("halved", halved) == []


def test_in_place_and_method_forms_show_the_functions_signature_and_text() -> None:
    for name in ("scatter_add", "lerp", "clamp", "squeeze"):
        function, method = getattr(lucid, name, None), getattr(lucid.Tensor, name)
        written = getattr(lucid.Tensor, f"{name}_")
        assert inspect.signature(written) == inspect.signature(method)
        assert inspect.getdoc(written).endswith(inspect.getdoc(method))
        assert written.__name__ == f"{name}_" and written.__qualname__ == f"Tensor.{name}_"
        assert function is None or inspect.getdoc(function) == inspect.getdoc(method)
