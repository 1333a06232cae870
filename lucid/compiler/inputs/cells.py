"""What a trace notes down: buffers, gradients and Python values that the step depends on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lucid.compiler.inputs.objects import is_same
from lucid.compiler.inputs.scalars import Formula, Number
from lucid.ir.graph import Value, freeze_attributes
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage, VersionCounter

if TYPE_CHECKING:
    from lucid.compiler.inputs.signature import Call

CellKind = Literal["arg", "state", "grad", "constant", "replaced"]


@dataclass(slots=True, eq=False)
class Cell:
    """A buffer that the step reads, and perhaps writes.

    Attributes:
        kind: "arg", "state" (found while tracing), "grad" (some leaf's `.grad`), "constant" (made
            from data inside the trace) or "replaced" (holds another value from the start on).
        position: of an "arg", its number among the tensor arguments; of a "grad" of an argument,
            that one's.
        leaf: of a "grad", the leaf; None for an argument's.
        counter: of "state", the version counter of the tensor that was met.
    """

    storage: Storage
    value: Value
    kind: CellKind
    position: int = -1
    leaf: TensorCore | None = None
    counter: VersionCounter | None = None

    @property
    def is_inside(self) -> bool:
        """Whether what is written to it stays inside of the step."""
        return self.kind in ("constant", "replaced")

    @property
    def is_written(self) -> bool:
        return not self.is_inside and self.storage.value is not self.value


def base_of(tensor: TensorCore) -> TensorCore:
    """The tensor whose history a write through `tensor` changes."""
    return tensor if tensor._base is None else tensor._base


def look_of(grad: TensorCore | None) -> Any:
    """What a step is specialized on of a gradient that it finds; None: there is no gradient."""
    if grad is None:
        return None
    look = grad._type, grad.requires_grad, grad.element_strides()
    if not grad._chain:
        return look
    whole = grad._storage
    chain = tuple((op.name, freeze_attributes(attributes)) for op, attributes in grad._chain)
    return *look, chain, whole.root_type, whole.strides


@dataclass(slots=True, eq=False)
class GradUse:
    """How the trace used `.grad` of a concrete leaf (or of an argument).

    Attributes:
        leaf: None for an argument, once the trace is over.
        position: an argument's number among the tensor arguments; -1 for other leaves.
        original: what it was before the trace; None once that is over.
        found: what it looked like before the trace.
        now: what it is in the trace by now; None once that is over.
        was_read: whether it was read before it was set: then the step depends on what it finds.
        was_set: whether it was set.
        name: the user's expression for the leaf; empty when unknown.
        storage: the memory of what was there, if it is state of the step as well.
    """

    leaf: TensorCore | None
    position: int
    original: TensorCore | None
    found: Any
    now: TensorCore | None
    was_read: bool = False
    was_set: bool = False
    name: str = ""
    storage: Storage | None = None


@dataclass(frozen=True, slots=True)
class FormulaGuard:
    """The step was specialized on what a formula of live numbers gave.

    Attributes:
        is_entered: the short ways of a call compare the number anyway, and needn't evaluate this.
    """

    text: str
    formula: Formula
    expected: Any
    is_entered: bool = False

    def failure(self, numbers: Sequence[Number]) -> str | None:
        """The old and new value, if the formula gives another one for the numbers of a call."""
        try:
            found = self.formula(numbers)
        except Exception as error:  # the trace to come is to meet it
            found = error
        if is_same(found, self.expected, by_content=True):
            return None
        return f"{self.text} (a branch looked at it): {self.expected!r} -> {found!r}"


@dataclass(frozen=True, slots=True)
class SizesGuard:
    """The assumptions of a program on its open sizes, which a call's numbers and tensors say.

    Attributes:
        sources: give each symbol's size in a call; texts: what messages call these sizes.
        equal: further sizes: text, source, and the number of the symbol that each must be equal to.
        holds: whether the assumptions hold for some sizes of the symbols.
    """

    texts: Sequence[str]
    sources: Sequence[Callable[[Call], int]]
    equal: Sequence[tuple[str, Callable[[Call], int], int]]
    holds: Callable[[Sequence[int]], bool]

    def of(self, call: Call) -> list[int]:
        """The sizes of the symbols in a call."""
        return [source(call) for source in self.sources]

    def failure(self, call: Call) -> str | None:
        """A call's sizes, for a message, if an assumption doesn't hold for them; else None."""
        found = self.of(call)
        others = [(text, source(call), found[number]) for text, source, number in self.equal]
        differing = [(text, size) for text, size, expected in others if size != expected]
        if not differing and self.holds(found):
            return None
        pairs = [*zip(self.texts, found, strict=True), *differing]
        said = ", ".join(f"{text} is {number}" for text, number in pairs)
        return f"sizes are in another relation: {said}"
