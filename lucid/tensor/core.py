"""The tensor's core: storage, views, history, and the one point where ops are emitted.

A tensor is a handle. Its data is a storage seen through a chain of view ops; its history is an edge
of the autograd graph. Eager mode evaluates an op with NumPy, a trace appends it to the graph being
recorded; the bookkeeping of views, versions and gradients is the same code for both.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lucid.autograd.node import Node, OpNode, end_of
from lucid.autograd.private import PrivateRecord, record_op
from lucid.choices import check_flag
from lucid.ir.errors import ArgumentError, IndexOutOfRangeError, LucidError, TraceError
from lucid.ir.inference import (
    MANY_ELEMENTS,
    MOST_AXES,
    MOST_ELEMENTS,
    Application,
    application,
    no_memory,
    strides_of_view,
)
from lucid.ir.location import (
    LIBRARY,
    Location,
    Placed,
    Spot,
    at_line,
    here,
    line_of,
    user_spot,
    warn,
)
from lucid.ir.memory import copied
from lucid.ir.op import Attributes, Op, Operand
from lucid.ir.ops.rules import with_birthplaces
from lucid.ir.strides import Strides, contiguous_strides
from lucid.ir.types import DType, TensorType, shared_type, type_of_array
from lucid.tensor.arrays import plain_array, shareable
from lucid.tensor.context import context, epoch
from lucid.tensor.lazy_grads import WithGradient
from lucid.tensor.levels import acting_level
from lucid.tensor.size import Size, new_size
from lucid.tensor.storage import Storage, VersionCounter, ViewGuard, element_strides

if TYPE_CHECKING:
    from lucid.tensor.applied import Applied
    from lucid.tensor.tensor import Tensor

ViewChain = tuple[tuple[Op, Attributes], ...]

_tensor_class: type[Tensor]


def register_tensor_class(cls: type[Tensor]) -> None:
    """Name the class of results; called once, by the module that defines it."""
    global _tensor_class
    _tensor_class = cls


def is_of_subclass(tensor: TensorCore) -> bool:
    """Whether it is more than a `Tensor`, as parameters are."""
    return type(tensor) is not _tensor_class


class TensorCore(Placed, WithGradient):
    """Storage, view chain and history of a tensor; `Tensor` adds the methods that users call."""

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_accumulator",
        "_array",
        "_base",
        "_chain",
        "_counter",
        "_epoch",
        "_grad_fn",
        "_guard",
        "_hooks",
        "_output_nr",
        "_private",
        "_requires_grad",
        "_retains_grad",
        "_spot",
        "_storage",
        "_strides",
        "_type",
        "_value",
        "_view_chain",
    )
    __array_priority__ = float("inf")  # whatever its class: `array * tensor` is the tensor's

    _storage: Storage
    _array: np.ndarray | None  # the data seen through the chain; None: it is only in a trace
    _type: TensorType
    _strides: Strides | None  # None: read them from _array
    _chain: ViewChain  # from the whole storage to this tensor
    _value: tuple[int, Any] | None  # (generation, value) of the chain in the running trace
    _counter: VersionCounter
    _base: TensorCore | None  # the tensor that this one is a differentiable view of
    _view_chain: ViewChain  # from _base to this tensor
    _epoch: int  # of a base: times its history was rebased; of a view: the base's when last derived
    _requires_grad: bool
    _grad_fn: Node | None
    _output_nr: int
    _private: PrivateRecord | None  # the history it has for the custom forward that runs
    _hooks: dict[int, Callable[..., Any]] | None
    _retains_grad: bool
    _accumulator: Any
    _guard: ViewGuard | None  # of a view whose history a write would not reach

    # ------------------------------------------------------------------ what it is

    @property
    def shape(self) -> Size:
        """The sizes of the axes, a `lucid.Size`, which is a tuple of ints."""
        return new_size(Size, self._type.shape)

    @property
    def dtype(self) -> DType:
        """The kind of the elements, such as `lucid.float32`; `to` converts it."""
        return self._type.dtype

    @property
    def ndim(self) -> int:
        """The number of axes, the length of the shape; 0 for a scalar."""
        return len(self._type.shape)

    @property
    def is_traced(self) -> bool:
        """Whether the tensor has no data but stands for a value of the running trace."""
        return self._array is None

    @property
    def location(self) -> Location | None:
        """The file and line of the user's code that made it, as errors show it; or None."""
        line = line_of(self._spot)
        return None if line is None else Location(*line)

    def element_strides(self) -> Strides:
        """Return the distances in memory of neighbours along each axis, in elements.

        It is what `stride()` returns, and NumPy's `strides` divided by the bytes of an element.

        >>> lucid.zeros(2, 3).element_strides()
        (3, 1)
        """
        if self._strides is None:
            if self._array is None:
                self._strides = contiguous_strides(self._type.shape)
            else:
                self._strides = element_strides(self._array)
        return self._strides

    # ------------------------------------------------------------------ as an operand

    def emit(self, op: Op, operands: Sequence[Operand], attributes: Attributes) -> Operand:
        """Apply an op to tensors, as operators of `lucid.ir` do.

        So derivatives and rules are written once, for tensors and for values of graphs.

        Args:
            op: the op.
            operands: the tensors, or what stands for them.
            attributes: of the op, by name.

        >>> from lucid.ir import ops
        >>> x = lucid.arange(1.0, 3.0)
        >>> x.emit(ops.neg, (x,), {})
        tensor([-1., -2.])
        """
        return apply_op(op, operands, attributes)

    def constant(self, value: float, dtype: DType) -> Tensor:
        """Return a 0-d tensor of a number in a dtype, for the rules of `lucid.ir`.

        Args:
            value: the number.
            dtype: of the tensor.

        >>> lucid.zeros(2).constant(3, lucid.int32)
        tensor(3, dtype=lucid.int32)
        """
        return constant(value, dtype)

    # ------------------------------------------------------------------ data

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """Return the data as an array that shares the tensor's memory.

        Writes to one show in the other. A view gives a view, with its strides.

        Args:
            force: whether to detach a tensor that requires grad instead of refusing it.

        Raises:
            LucidError: the tensor requires grad while gradients are recorded; detach it first.
            TraceError: the tensor is one of a trace, which has no data yet.

        >>> x = lucid.zeros(3)
        >>> array = x.numpy()
        >>> array[0] = 7
        >>> x
        tensor([7., 0., 0.])
        """
        array = self._array
        if context.grad_enabled and not force and self.requires_grad:
            raise LucidError(
                "Can't call numpy() on Tensor that requires grad. "
                "Use tensor.detach().numpy() instead."
            )
        if context.recorder is not None:
            return context.recorder.array_of(self)
        if array is None or context.levels:
            array = self._concrete("numpy()")
        if context.lent is not None:
            array = context.lent.shown(self._storage, array)
        return array.view()  # the user may set its shape and dtype

    def _concrete(self, what: str) -> np.ndarray:
        """The data, for a use that no trace can record. Raises `TraceError` inside a trace."""
        recorder = context.recorder
        if recorder is None:
            if self._array is None:
                raise TraceError(
                    f"{what}: this tensor belongs to a trace that has ended and holds no data\n"
                    f"  {self._describe()}\n"
                    "hint: return it from the compiled function instead of keeping it elsewhere"
                )
            for level in context.levels:
                level.look(self)
            return self._array
        return recorder.refuse_concrete(self, what)

    def _number(self, what: str) -> Any:
        """The only element, as `bool()`, `int()` or `item()` asks; in a trace by an exit."""
        recorder = context.recorder
        if recorder is None:
            return self._concrete(what).item()
        return recorder.look(self, what)

    def _known(self, what: str) -> np.ndarray | None:
        """The data; None where only the running step has it, and a call of Python can look."""
        recorder = context.recorder
        return self._concrete(what) if recorder is None else recorder.known(self)

    def _describe(self) -> str:
        place = self.location
        origin = "" if place is None else f"  from {place}   {place.text}"
        return f"{self._type}{origin}"

    @property
    def _version(self) -> int:
        if context.recorder is not None:
            context.recorder.run_op_by_op("it asks for the _version of a tensor")
        return self._counter.value

    def data_ptr(self) -> int:
        """Return the address of the first element.

        Tensors that share memory from the same element on have the same one. A compiled call that
        asks for one runs op by op.

        >>> x = lucid.zeros(2, 3)
        >>> x.data_ptr() == x.view(6).data_ptr()
        True
        """
        if context.recorder is not None:
            context.recorder.refuse_address()
        return int(self._concrete("data_ptr()").__array_interface__["data"][0])

    def detach(self) -> Tensor:
        """Return a tensor on the same memory without history, through which no gradient flows.

        Writes to it show in the tensor, and a backward pass that needs what was overwritten raises:
        both have one version counter, unlike `data`.

        >>> x = lucid.ones(2, requires_grad=True)
        >>> x.detach().requires_grad
        False
        >>> x.detach().data_ptr() == x.data_ptr()
        True
        """
        return self._same_memory()

    @property
    def data(self) -> Tensor:
        """A detached tensor on the same memory, with a version counter of its own.

        Writes to it aren't noticed by a backward pass that needs the old values. Assigning gives
        the tensor the memory of another one: its handle and `.grad` stay.
        """
        result = self._same_memory()
        result._counter = VersionCounter()
        if context.recorder is not None:
            context.recorder.own_counters.add(result._counter)
        return result

    @data.setter
    def data(self, value: TensorCore) -> None:
        from lucid.tensor.writing import set_data

        set_data(self, value)

    def _same_memory(self) -> Tensor:
        result = _new(self._storage, self._type, self._array, self._chain)
        result._strides = self._strides
        result._value = self._value
        result._counter = self._counter
        result._spot = self._spot
        if context.recorder is not None:
            context.recorder.aliases.add(id(result))
        return result

    def _alias(self) -> Tensor:
        """A tensor on the same memory and with the same version counter, without history.

        Unlike `detach()` it keeps its tangents, and what is outside of a vmap.
        """
        result = self._same_memory()
        for level in context.levels:
            level.alias(self, result)
        return result

    def _own_copy(self) -> Tensor:
        """The same numbers in memory that nobody else holds, without history."""
        if context.recorder is not None:
            return of_value(context.recorder.value_of(self))
        assert self._array is not None
        return of_array(copied(self._array, self._array.dtype))

    def _followed_by(self, array: np.ndarray, type: TensorType) -> Tensor:
        """A tensor of what was computed from this one, made at the same line of the user's."""
        if not array.flags.c_contiguous:
            array = _row_major(array)
        result = _new(Storage(type, array), type, array, ())
        result._spot = self._spot
        return result

    def _is_recorded(self) -> bool:
        """Whether ops on the tensor are recorded for a gradient, here or outside of a vmap."""
        return self.requires_grad

    def _refuse_outside(self, holder: TensorCore) -> None:
        """Raise where `holder`, which is to keep this tensor, outlives the vmap of the latter."""

    # ------------------------------------------------------------------ history

    def _refresh(self) -> None:
        """Derive a view's history anew when its base was written since."""
        base = self._base
        if base is not None and base._epoch != self._epoch:
            while base._base is not None:  # it became a view itself, by `unsqueeze_` for one
                base = self._base = base._base
            from lucid.tensor.writing import replay_history

            if context.recorder is not None:
                context.recorder.note_history(self)
            derived = replay_history(base, self._view_chain)
            self._grad_fn, self._output_nr = derived._grad_fn, derived._output_nr
            self._requires_grad = derived._requires_grad
            self._epoch = base._epoch

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are recorded for it.

        True for a leaf that asked, and for what is computed from one.

        It can be assigned on leaves of float dtypes; another tensor raises `LucidError`.
        """
        base = self._base
        if base is not None and base._epoch != self._epoch:
            self._refresh()
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._set_requires_grad(value)

    def _set_requires_grad(self, value: bool) -> None:
        check_flag(value, "requires_grad", "requires_grad_")
        if self.grad_fn is not None:
            if value:
                return
            raise LucidError(
                "you can only change requires_grad flags of leaf variables. If you want to use a "
                "computed variable in a subgraph that doesn't require differentiation use "
                f"var_no_grad = var.detach().\n  tensor: {self._describe()}"
            )
        if value and not self.dtype.is_floating_point:
            raise LucidError(
                f"only Tensors of floating point dtype can require gradients, not {self.dtype!r}\n"
                f"  tensor: {self._describe()}\nhint: convert it first, with .float()"
            )
        if self._requires_grad != bool(value):
            if context.recorder is not None:
                context.recorder.note_property(self, "requires_grad")
            self._requires_grad = bool(value)
            if id(self) in epoch.watched:
                epoch.count += 1

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for gradients of this leaf, or no longer; return the tensor.

        Args:
            requires_grad: whether to ask.

        Raises:
            ArgumentError: it is no bool.
            LucidError: the dtype isn't one of floats, or a computed tensor is to stop requiring
                grad; `detach` it.

        >>> x = lucid.arange(1.0, 3.0).requires_grad_()
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([2., 4.])
        """
        self._set_requires_grad(requires_grad)
        return cast("Tensor", self)

    def _lost_history(self) -> str | None:
        """Why the history is no longer that of the data; None while it is."""
        guard = self._guard
        if guard is None or guard.stale is None or guard.version == self._counter.value:
            return None
        return guard.stale

    @property
    def grad_fn(self) -> Node | None:
        """The node of the graph that computed it; None for a leaf.

        Raises `LucidError` for a view made by a custom Function whose memory was written since.
        """
        self._refresh()
        if self._guard is not None and self._requires_grad and (lost := self._lost_history()):
            raise LucidError(lost)
        return self._grad_fn

    @property
    def output_nr(self) -> int:
        """Which of its node's outputs the tensor is, counted from 0; 0 for a leaf."""
        self._refresh()
        return self._output_nr

    @property
    def is_leaf(self) -> bool:
        """Whether it was made, not computed from what requires grad.

        Of leaves that require grad, `backward` accumulates the gradients into `.grad`.
        """
        return self.grad_fn is None

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf, or of a tensor with `retain_grad`, or None.

        It is None before the first `backward`. Assign None, or delete it, to start anew. A gradient
        that is assigned has the tensor's shape and dtype, else it raises `LucidError`, and
        `ArgumentError` if it is no tensor.
        """
        if context.recorder is not None:
            context.recorder.note_grad_read(self)
        found: Any = self._grad
        if found is None and self._grad_fn is not None and not self._retains_grad:
            self._warn_of_no_grad()
        return found  # type: ignore[no-any-return]

    @grad.setter
    def grad(self, value: TensorCore | None) -> None:
        if value is not None:
            if not isinstance(value, TensorCore):
                raise ArgumentError(
                    f"assigned grad expected to be a Tensor or None but got grad of type "
                    f"{type(value).__name__}"
                )
            if value is self:
                raise LucidError("can't assign Variable as its own grad")
            if context.levels:
                value._refuse_outside(self)
            if value._type.shape != self._type.shape:
                raise LucidError(
                    f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of "
                    f"size '{list(self.shape)}'. Please ensure that the gradient and the tensor "
                    "are the same size"
                )
            if value.dtype is not self.dtype:
                raise LucidError(
                    f"attempting to assign a gradient with dtype '{value.dtype!r}' to a tensor "
                    f"with dtype '{self.dtype!r}'. The gradient must match the tensor's dtype."
                )
        if context.recorder is not None:
            context.recorder.note_grad_write(self)
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def _warn_of_no_grad(self) -> None:
        if not sys._getframe(2).f_code.co_filename.startswith(LIBRARY):
            warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
                ".grad attribute won't be populated during backward()\n"
                f"  tensor: {self._describe()}\nhint: call retain_grad() on it before"
            )

    def backward(
        self,
        gradient: TensorCore | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: TensorCore | Sequence[TensorCore] | None = None,
    ) -> None:
        """Accumulate the gradients of the graph's leaves into their `.grad`.

        The gradients are added to what is there. The graph is freed on the way, unless it is
        retained, so a second call raises.

        Shapes: `gradient` as this tensor; it may be left out for a tensor with one element.

        Args:
            gradient: the gradient of the loss by this tensor. Default: None, which is 1.
            retain_graph: whether to keep the graph for another call. Default: None, as
                `create_graph`.
            create_graph: whether to record the backward pass, for gradients of gradients.
            inputs: the only tensors to accumulate into. Default: None, all leaves.

        Raises:
            LucidError: the tensor doesn't require grad, has several elements and no `gradient`, or
                its graph was freed.

        >>> x = lucid.arange(1.0, 3.0, requires_grad=True)
        >>> (x**2).sum().backward()
        >>> x.grad
        tensor([2., 4.])
        """
        from lucid.autograd.entry_points import backward

        backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    def register_hook(self, hook: Callable[..., Any]) -> Any:
        """Call `hook(grad)` once in a backward pass, when this tensor's gradient is complete.

        What it returns replaces the gradient, unless it is None.

        Args:
            hook: takes the gradient, and returns another one or None.

        Returns: A handle, whose `remove()` takes the hook away.

        Raises:
            LucidError: the tensor doesn't require grad.

        >>> x = lucid.arange(1.0, 3.0, requires_grad=True)
        >>> handle = x.register_hook(lambda grad: 10 * grad)
        >>> x.sum().backward()
        >>> x.grad
        tensor([10., 10.])
        """
        from lucid.autograd.hooks import register_tensor_hook

        return register_tensor_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[..., Any]) -> Any:
        """Call `hook(tensor)` after a gradient was accumulated into this leaf's `.grad`.

        There an optimizer can step while the backward pass goes on.

        Args:
            hook: takes the leaf, whose `.grad` is complete; what it returns isn't looked at.

        Returns: A handle, whose `remove()` takes the hook away.

        Raises:
            LucidError: the tensor isn't a leaf that requires grad.

        >>> x = lucid.arange(1.0, 3.0, requires_grad=True)
        >>> handle = x.register_post_accumulate_grad_hook(lambda leaf: print(leaf.grad))
        >>> (3 * x).sum().backward()
        tensor([3., 3.])
        """
        from lucid.autograd.hooks import register_post_accumulate_hook

        return register_post_accumulate_hook(self, hook)

    def retain_grad(self) -> None:
        """Keep the gradient of this computed tensor in `.grad` too, as that of a leaf.

        A leaf has its gradient anyway. A tensor that doesn't require grad raises `LucidError`.

        >>> x = lucid.arange(1.0, 3.0, requires_grad=True)
        >>> y = 2 * x
        >>> y.retain_grad()
        >>> (y * y).sum().backward()
        >>> y.grad
        tensor([4., 8.])
        """
        from lucid.autograd.hooks import retain_grad

        retain_grad(self)

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` has asked to keep the gradient of this computed tensor.

        It is False for leaves, which keep theirs anyway.
        """
        return self._retains_grad and not self.is_leaf


attributes_of: Callable[[TensorCore], dict[str, Any]] = TensorCore.__dict__["__dict__"].__get__

# ---------------------------------------------------------------------- making tensors


def _new(
    storage: Storage,
    type: TensorType,
    array: np.ndarray | None,
    chain: ViewChain,
    kind: type[Tensor] | None = None,
) -> Tensor:
    tensor: Tensor = object.__new__(kind or _tensor_class)
    tensor._storage = storage
    tensor._type = type
    tensor._array = array
    tensor._strides = None
    tensor._chain = chain
    tensor._value = None
    tensor._counter = VersionCounter()
    tensor._base = None
    tensor._view_chain = ()
    tensor._epoch = 0
    tensor._requires_grad = False
    tensor._gradient = None
    tensor._grad_fn = None
    tensor._output_nr = 0
    tensor._private = None
    tensor._hooks = None
    tensor._retains_grad = False
    tensor._accumulator = None
    tensor._spot = None
    tensor._guard = None
    return tensor


def of_array(array: np.ndarray, what: str = "tensor") -> Tensor:
    """A tensor on the array's memory, whether or not a trace runs. Raises `DTypeError`."""
    array = shareable(array, what)
    storage = Storage.of_array(array)
    return _new(storage, storage.root_type, array, ())


def of_own_array(array: np.ndarray, spot: Spot) -> Tensor:
    """A tensor on the memory of an array that the library has made for a line of the user's."""
    type = type_of_array(array)
    tensor = _new(Storage(type, array), type, array, ())
    tensor._spot = spot
    return tensor


def of_value(value: Any) -> Tensor:
    """A tensor that stands for a value of the running trace."""
    assert context.recorder is not None
    storage = Storage.of_value(value, context.recorder)
    return _new(storage, value.type, None, ())


def from_array(array: np.ndarray, requires_grad: bool = False) -> Tensor:
    """A tensor on the array's memory; data made inside a trace is a constant of the program."""
    tensor = of_array(array)
    if context.recorder is not None:
        context.recorder.adopt_constant(tensor)
    tensor._spot = user_spot()
    if requires_grad:
        tensor._set_requires_grad(True)
    return tensor


def of_users_array(
    array: np.ndarray, what: str = "from_numpy", *, is_copied: bool = False
) -> Tensor:
    """A tensor on the memory of the user's array, of which eager mode may compute with a copy.

    The array is the user's, who may set its shape and dtype: a tensor has one of its own, and a
    trace compares the layout at each call.
    """
    if context.recorder is None:
        tensor = of_array(plain_array(array, what).view(), what)
    else:
        tensor = of_array(array, what)
        context.recorder.adopt_array(tensor, is_copied)
    tensor._spot = user_spot()
    return tensor


def constant(value: Any, dtype: DType) -> Tensor:
    """A 0-d constant; a live scalar gives its recorded value, cast."""
    if context.recorder is not None:
        return context.recorder.constant(value, dtype)
    return of_array(np.array(value, dtype.numpy))


# ---------------------------------------------------------------------- emission


def emit(op: Op, operands: Sequence[Operand], **attributes: Any) -> Tensor:
    """Apply an op: evaluate it, or record it in the running trace; and keep its history."""
    return apply_op(op, operands, attributes)  # type: ignore[return-value]


def apply_op(op: Op, operands: Sequence[Operand], attributes: Attributes) -> Operand:
    """The one emission point of eager and traced tensors. Raises the op's errors."""
    made = natively(op, operands, attributes)
    if made is not None and made is not MISSED:
        return cast(Operand, made)
    return apply_in_python(op, operands, attributes, made)


def apply_in_python(
    op: Op, operands: Sequence[Operand], attributes: Attributes, made: object
) -> Operand:
    """The same where machine code doesn't do it; `MISSED`: for lack of a record."""
    for operand in operands:
        if operand.is_stand_in:
            return operand.emit(op, operands, attributes)
    tensors: Sequence[TensorCore] = operands  # type: ignore[assignment]
    state: dict[str, Any] = context.__dict__  # one look-up of what belongs to the thread
    if state["levels"]:
        acting = acting_level(op, tensors)
        if acting is not None:
            level, position = acting
            return level.apply(op, tensors, attributes, position)
    if state["recorder"] is not None:
        recorded: Operand = state["recorder"].apply(op, tensors, attributes)
        return recorded
    try:
        known = application(op, tensors, attributes)
        result = _evaluate(op, tensors, attributes, known)
    except LucidError as error:
        if op.kind == "check" or isinstance(error, IndexOutOfRangeError):
            raise at_line(error, here()) from None  # as a compiled step says it
        raise with_origins(error, tensors) from None
    except MemoryError as error:
        raise with_origins(no_memory(op, tensors, error), tensors) from error
    if op.vjp is not None:
        if state["grad_enabled"]:
            _record_history(op, tensors, attributes, result, known)
        elif state["forward"] is not None:
            record_op(op, tensors, attributes, result, known)
    if made is MISSED:
        _enter(known, tensors)
    return result


MISSED = object()  # the answer of machine code that lacks a record
# Ops that a program has applied in eager mode before it loads machine code: this takes a few
# milliseconds, but 0.15 s where LLVM isn't there yet.
_FEW, _MANY = 64, 1 << 14


def not_yet(op: Op, operands: Sequence[Operand], attributes: Attributes) -> None:
    """Stands for machine code, which is loaded when a program has applied some ops.

    It is not where somebody is told of tensors that are saved: its templates save some.
    """
    global natively, call
    state = context.__dict__
    is_told = state["saved_hooks"] or state["forward"] is not None
    if is_told or state["recorder"] is not None or state["mutation_guard"] is not None:
        return
    count = next(_applied)
    if count >= _MANY or (count >= _FEW and "llvmlite" in sys.modules):
        from lucid.tensor.applied import applied

        found = applied()
        natively = leave_to_python if found is None else found.function
        call = leave_call if found is None else found.call


def _is_native(known: Application) -> bool:
    """Whether native code evaluates an op; of random numbers all count that there were."""
    global _drawn
    if known.op.kind != "random":
        return known.is_slow
    _drawn = min(_drawn + known.result_type.size, MANY_ELEMENTS)
    return _drawn == MANY_ELEMENTS


def _natively(op: Op, operands: Sequence[TensorCore], attributes: Attributes) -> np.ndarray:
    from lucid.tensor import slow_ops

    arrays = [cast(np.ndarray, operand._array) for operand in operands]
    return slow_ops.evaluate(op, *arrays, **attributes)


def _row_major(array: np.ndarray) -> np.ndarray:
    from lucid.autograd.native import row_major

    return row_major(array)


def leave_to_python(op: Op, operands: Sequence[Operand], attributes: Attributes) -> None:
    """Stands for machine code where there is none, or where ops are to be seen."""


_applied = itertools.count()
_drawn = 0
natively: Callable[..., Any] = not_yet  # applies an op; None: Python is to do it


LEFT = object()  # the answer of machine code to a call of a public function that is Python's


def leave_call(
    function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]
) -> object:
    """Stands for machine code where there is none, or where ops are to be seen."""
    return LEFT


call: Callable[..., Any] = leave_call  # calls a public function that has done the same before


def record_call(
    function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]
) -> Any:
    """What a function returns, of which machine code lacks a record."""
    found = machine_code()
    if found is None:
        return function(*args, **keywords)
    return found.calls.record(found.call, function, args, keywords)


_machine_code: Applied | None = None


def machine_code() -> Applied | None:
    """What else does the work of Python, where machine code applies ops already."""
    global _machine_code
    if natively is not_yet or natively is leave_to_python:
        return None
    if _machine_code is None:
        from lucid.tensor.applied import applied

        _machine_code = applied()
    return _machine_code


def _enter(known: Application, operands: Sequence[TensorCore]) -> None:
    found = machine_code()
    if found is not None:
        found.enter(known, operands)


def _evaluate(
    op: Op, operands: Sequence[TensorCore], attributes: Attributes, known: Application
) -> Tensor:
    """Evaluate with NumPy, or with native code where NumPy is slow.

    Results that are no views are row-major, so that views of them agree with those of a trace.
    """
    for operand in operands:
        if operand._array is None:
            operand._concrete(op.name)
    type = known.result_type
    if op.is_view:
        return _evaluate_view(op, operands[0], attributes, type)
    if _is_native(known):
        array = _natively(op, operands, attributes)
    elif len(operands) == 2 and not attributes:
        array = op.evaluate(operands[0]._array, operands[1]._array)
    else:
        array = op.evaluate(*[operand._array for operand in operands], **attributes)
    if not array.flags.c_contiguous:
        array = _row_major(array)
    result = _new(Storage(type, array), type, array, ())
    result._spot = user_spot()
    return result


def _evaluate_view(op: Op, operand: TensorCore, attributes: Attributes, type: TensorType) -> Tensor:
    assert operand._array is not None
    if type.size > MOST_ELEMENTS:
        strides_of_view(application(op, (operand,), attributes), operand)
    array = op.evaluate(operand._array, **attributes)
    shares = array.base is operand._array or np.may_share_memory(array, operand._array)
    if op.name == "reshape" and not shares and type.size:  # of no elements all are views
        result = _new(Storage.of_array(array), type, array, ())
    else:
        result = _new(operand._storage, type, array, (*operand._chain, (op, attributes)))
        result._counter = operand._counter
        link_view(result, operand, op, attributes)
    result._spot = user_spot()
    return result


def traced_view(
    known: Application, operand: TensorCore, attributes: Attributes, value: Any
) -> Tensor:
    """The result of a view op in a trace: a view of the same storage, or a tensor of its own."""
    strides = strides_of_view(known, operand)
    if strides is None:
        return of_value(value)
    op, storage = known.op, operand._storage
    result = _new(storage, value.type, None, (*operand._chain, (op, attributes)))
    result._strides = strides
    result._counter = operand._counter
    result._value = (storage.generation, value)
    link_view(result, operand, op, attributes)
    return result


def is_unrecorded(tensor: TensorCore) -> bool:
    """Whether nobody keeps what ops on the tensor do: no trace, no history, no transformation."""
    state: dict[str, Any] = context.__dict__
    if state["recorder"] is not None or state["forward"] is not None or state["levels"]:
        return False
    return not (state["grad_enabled"] and tensor.requires_grad)


def is_recorded_alone(tensor: TensorCore) -> bool:
    """Whether gradients are all that ops on the tensor are kept for, levels aside."""
    state: dict[str, Any] = context.__dict__
    if state["recorder"] is not None or state["forward"] is not None or not state["grad_enabled"]:
        return False
    return tensor._array is not None and tensor._guard is None and tensor.requires_grad


def view_of_memory(
    operand: TensorCore, array: np.ndarray, *steps: tuple[Op, Attributes], spot: Spot = None
) -> Tensor:
    """The tensor that view ops make of an operand one after another, where that is unrecorded.

    Args:
        array: what they show of its memory.
        spot: where the user's code stands, if that is known.
    """
    type = shared_type(operand._type.dtype, array.shape)
    result = _new(operand._storage, type, array, (*operand._chain, *steps))
    result._counter = operand._counter
    base = operand._base
    result._base = operand if base is None else base
    result._view_chain = (*operand._view_chain, *steps)
    result._epoch = result._base._epoch
    result._guard = operand._guard
    result._spot = spot or user_spot()
    return result


def view_by(op: Op, operand: TensorCore, attributes: Attributes) -> Tensor:
    """What a view op gives whose attributes are known to fit: where unrecorded, by NumPy alone.

    Of ever other sizes much is looked up else, for one look at memory.
    """
    array = operand._array
    are_many = len(attributes.get("shape", ())) > MOST_AXES
    if array is None or are_many or not is_unrecorded(operand):
        return apply_op(op, (operand,), attributes)  # type: ignore[return-value]
    return view_of_memory(operand, op.evaluate(array, **attributes), (op, attributes))


def link_view(result: TensorCore, operand: TensorCore, op: Op, attributes: Attributes) -> None:
    """Note whose differentiable view `result` is: a write to one shows in the other's history."""
    base = operand._base
    if base is None:
        result._base, result._view_chain = operand, ((op, attributes),)
    else:
        result._base, result._view_chain = base, (*operand._view_chain, (op, attributes))
    result._epoch = result._base._epoch
    result._guard = operand._guard


def keep_history(
    op: Op,
    operands: Sequence[TensorCore],
    attributes: Attributes,
    result: TensorCore,
    known: Application | None = None,
) -> None:
    """Record what the gradient of `result` needs, if somebody may ask for it."""
    if op.vjp is not None:
        if context.grad_enabled:
            _record_history(op, operands, attributes, result, known)
        elif context.forward is not None:
            record_op(op, operands, attributes, result, known)


def _record_history(
    op: Op,
    operands: Sequence[TensorCore],
    attributes: Attributes,
    result: TensorCore,
    known: Application | None,
) -> None:
    for operand in operands:
        if operand._requires_grad or (operand._base is not None and operand.requires_grad):
            break
    else:
        return
    if result._type.dtype.kind == "float":
        result._requires_grad = True  # before the node saves it
        ends = tuple(map(end_of, operands))
        result._grad_fn = OpNode(op, operands, attributes, result, ends, known)


def with_origins(error: LucidError, operands: Sequence[TensorCore]) -> LucidError:
    """Add to an op's error where each operand was made."""
    places = [tensor.location for tensor in operands]
    texts = ["" if place is None else f"{place}   {place.text}" for place in places]
    return type(error)(with_birthplaces(str(error), texts))
