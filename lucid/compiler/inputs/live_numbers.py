"""What a trace knows of Python numbers that its step reads at each call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from lucid.compiler.inputs.cells import FormulaGuard
from lucid.compiler.inputs.scalars import Formula, Number, SymScalar, SymSource
from lucid.ir.classes import isinstance
from lucid.ir.extents import Sizes
from lucid.ir.graph import Graph, Value
from lucid.ir.types import DType, TensorType

_MOST_SIZES = 256


class SymNumbers:
    """Live scalars of a trace, the inputs of the graph that they are, and what was asked of them.

    Attributes:
        graph: of the trace.
        live: the live scalars of sources, by source text.
        live_inputs: the inputs of the graph for them and for formulas of them, by text and dtype.
        formulas: guards on what the trace asked live scalars, by the question's text.
        has_numbers: whether there are any live scalars.
        aside: the places where live scalars stand while tracing: (place, live scalar, number).
        sizes: those of tensors that values decide, where they are open; sized: of the symbols that
            live scalars are, the inputs of the graph.

    What it is told and asked besides, the trace has:
        annotated: gives nodes that are appended to the graph directly their location and scope.
        guard_value: specializes the step on a Python value that it looked at.
        written: the text of a number; repeated: a text or a list, as often as a number says.
        with_arrays: what a function of NumPy's gives of arrays and live numbers, at each call.
        note_size: the library needs an int, which may be a size.
    """

    annotated: Callable[..., AbstractContextManager[None]]
    guard_value: Callable[..., None]
    written: Callable[..., str]
    repeated: Callable[..., Any]
    with_arrays: Callable[..., Any]
    note_size: Callable[..., None]

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.live: dict[str, SymScalar] = {}
        self.live_inputs: dict[tuple[str, DType], tuple[Value, SymSource]] = {}
        self.formulas: dict[str, FormulaGuard] = {}
        self.has_numbers = False
        self.aside: list[tuple[Any, Any, Any]] = []
        self.sizes = Sizes((), is_strict=False, room=_MOST_SIZES)
        self.sized: dict[int, Value] = {}

    def said(self, message: Callable[[], str]) -> str:
        """The text of a check, which may show open sizes: an error's own text is eager mode's."""
        self.sizes.has_text = True
        try:
            return message()
        finally:
            self.sizes.has_text = False

    def live_scalar(
        self, text: str, now: Number, formula: Formula, read: Callable[[], Any] | None = None
    ) -> SymScalar:
        """The live scalar of a source; the same one for the same text."""
        found = self.live.get(text)
        if found is None:
            found = self.live[text] = SymScalar(now, formula, text, self, read)
            if type(now) is float:
                _ = found.value  # inputs are in the order of the arguments
        return found

    def live_input(self, source: SymSource, dtype: DType) -> Value:
        """The input of the graph for a source; the same one for the same text."""
        found = self.live_inputs.get((source.text, dtype))
        if found is None:
            value = self.graph.add_input(TensorType(dtype, ()), "live", "", source.text)
            found = self.live_inputs[source.text, dtype] = (value, source)
        return found[0]

    def unused_text(self, path: str) -> str:
        """A text for another live scalar: several variables may have one name."""
        text, count = path, 1
        while text in self.live:
            count += 1
            text = f"{path}#{count}"
        return text

    def live_value(self, number: SymScalar, dtype: DType) -> Value:
        """An f64; for integers an i64, since Python's ints are exact. Raises what NumPy raises."""
        if dtype.kind != "int":
            return number.value
        whole = number.truncated()
        if not whole.fits(dtype):
            raise OverflowError(f"Python integer {whole} out of bounds for {dtype!r}")
        return whole.whole

    def size_of_number(self, whole: Value, now: int, origin: Any) -> Any:
        """An open size that an input of the graph says."""
        size = self.sizes.add(now)
        number = len(self.sizes.symbols) - 1
        self.sizes.origins[number].add(origin)
        self.sized[number] = whole
        return size

    def guard_formula(
        self, text: str, formula: Formula, expected: Any, is_entered: bool = False
    ) -> None:
        """Guard the value of a formula of live scalars, on which the trace has branched."""
        expected = expected.copy() if isinstance(expected, np.ndarray) else expected
        self.formulas.setdefault(text, FormulaGuard(text, formula, expected, is_entered))

    def end_numbers(self) -> None:
        """Let go of live scalars, which refer to the trace."""
        self.live.clear()
        self.live_inputs.clear()
