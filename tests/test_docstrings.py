"""Public names have complete docstrings."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import ModuleType
from typing import Any

import docstrings
import pytest

import lucid
from lucid import docstrings as docstrings_of


@pytest.mark.parametrize("place", docstrings.namespaces())
def test_no_docstring_is_incomplete(place: str) -> None:
    assert dict(docstrings.incomplete(place, docstrings.namespaces()[place])) == {}


def test_what_a_docstring_lacks_is_said() -> None:
    def halved(input: Any, times: int = 1, *, strict: bool = False) -> Any:
        """Halve.

        Args:
            times: x

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

        >>> halved(3.0)
        """
        return input / 2

    assert docstrings.lacks("halved", halved) == [
        "no input in Args",
        "no example that uses it and shows a result",
    ]
    text = inspect.cleandoc(halved.__doc__)  # which the compiler does from 3.13 on
    text = text.replace("Args:\n", "Args:\n    input: what to halve.\n")
    halved.__doc__ = text.replace(">>> halved(3.0)", ">>> halved(3.0)\n1.5")
    assert docstrings.lacks("halved", halved) == []


def test_in_place_and_method_forms_show_the_functions_signature_and_text() -> None:
    for name in ("scatter_add", "lerp", "clamp", "squeeze", "floor", "exp"):
        function, method = getattr(lucid, name, None), getattr(lucid.Tensor, name)
        written = getattr(lucid.Tensor, f"{name}_")
        assert inspect.signature(written) == inspect.signature(method)
        assert inspect.getdoc(written).endswith(inspect.getdoc(method))
        assert written.__name__ == f"{name}_" and written.__qualname__ == f"Tensor.{name}_"
        assert function is None or inspect.getdoc(function) == inspect.getdoc(method)


def test_a_docstring_takes_from_anothers_what_it_does_not_say_itself() -> None:
    def pool2d(input: Any, size: int, stride: int = 1) -> None:
        """Pool over two axes.

        See `pool2d`, which rounds down.

        Args:
            input, size: what
                and how much.
            stride: from window to window.

        Raises:
            ShapeError: too small.

        >>> pool2d(1, 2)
        """

    @docstrings_of.like(pool2d, pool2d="pool3d")
    def pool3d(input: Any, stride: int = 2) -> None:
        """Pool over three axes.

        Args:
            stride: always 2.

        >>> pool3d(1)
        """

    assert (pool3d.__doc__ or "").splitlines() == [
        *("Pool over three axes.", "", "See `pool3d`, which rounds down.", ""),
        *("Args:", "    input: what", "        and how much.", "    stride: always 2.", ""),
        *("Raises:", "    ShapeError: too small.", "", ">>> pool3d(1)"),
    ]


def test_a_docstring_of_several_axes_follows_from_that_of_one() -> None:
    def pool1d(input: Any, size: int, ceil: bool = False) -> None:
        """Pool along the last axis, of (n, c, l).

        The opposite of `unpool1d` along the last axis.

        Args:
            input: (n, c, l).
            size: the window's.
            ceil: whether sizes are rounded up.

        >>> pool1d(lucid.ones(2, 1, 6), 2).shape
        lucid.Size([2, 1, 3])
        """

    @docstrings_of.like(pool1d, axes=2)
    def pool2d(input: Any, size: int, ceil: bool = True) -> None:
        raise NotImplementedError

    assert (pool2d.__doc__ or "").splitlines() == [
        *("Pool over the last two axes, of (n, c, h, w).", ""),
        "The opposite of `unpool2d` over the last two axes.",
        *("", "Args:", "    input: (n, c, h, w).", "    size: the window's."),
        "    ceil: whether sizes are rounded up.",
        *("", ">>> pool2d(lucid.ones(2, 1, 6, 6), 2).shape", "lucid.Size([2, 1, 3, 3])"),
    ]


def test_what_a_docstring_leaves_out_the_docstring_of_its_module_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, file = ModuleType("folder"), ModuleType("folder.file")
    folder.__doc__ = "Sums.\n\nArgs:\n    input: a tensor.\n    dim: the axis."
    file.__doc__ = "Sums of floats.\n\nArgs:\n    input: floats.\n    unused: nothing.\n"
    folder.__doc__ += "\n\nRaises:\n    IndexError: there is no `dim`.\n    KeyError: an `other`."
    monkeypatch.setitem(sys.modules, "folder", folder)
    monkeypatch.setitem(sys.modules, "folder.file", file)

    def total(input: Any, dim: int = 0, eps: float = 1e-3, keepdim: bool = False) -> None:
        """Add up.

        Args:
            keepdim: whether it stays.

        >>> total(1)
        """

    total.__module__ = "folder.file"
    assert (docstrings_of.described(total).__doc__ or "").splitlines() == [
        *("Add up.", "", "Args:", "    input: floats.", "    dim: the axis."),
        *("    keepdim: whether it stays.", ""),
        *("Raises:", "    IndexError: there is no `dim`.", "", ">>> total(1)"),
    ]


def test_an_import_waits_for_no_docstring_of_a_class() -> None:
    code = "import sys, lucid.nn; print({'doctest', 'pdb'} & {*sys.modules}, lucid.nn.ELU.__doc__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("set() ")
    assert "nn.ELU()" in found.stdout
