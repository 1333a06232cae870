"""Activation checkpointing: what a block computes is computed again in the backward, not kept.

A compiled step only notes where its blocks are: a pass of the compiler repeats them
(`lucid/ir/passes/rematerialize.py`). In eager mode the block's function is called again.
"""

from __future__ import annotations

import operator
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.hooks import SavedTensorHooks, saving_with
from lucid.autograd.host_world import eager_thread
from lucid.autograd.node import Edge, Node, sequence_numbers
from lucid.autograd.saved import Place, SavedTensor, copy_of, with_history
from lucid.choices import check_choice, check_flag
from lucid.compiler.recording.hooks import running
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, LucidError, OptionError
from lucid.ir.frames import edge
from lucid.ir.location import user_spot
from lucid.nn.modules.module import Module
from lucid.tensor.context import Lending, context, within
from lucid.tensor.core import TensorCore, of_value
from lucid.tensor.storage import Storage, VersionCounter

if TYPE_CHECKING:
    from lucid.autograd.engine import BackwardRun
    from lucid.ir.graph import Region

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


class CheckpointError(LucidError):
    """A block that did something else when it was computed again."""


def noop_context_fn() -> Contexts:
    """Return two contexts that do nothing, for the call of `checkpoint` and for its repetition.

    >>> from lucid.utils.checkpoint import noop_context_fn
    >>> [type(context).__name__ for context in noop_context_fn()]
    ['nullcontext', 'nullcontext']
    """
    return nullcontext(), nullcontext()


@edge
def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Return `function(*args, **kwargs)`, and compute it again where a backward needs its inside.

    Of a chain of n blocks, each of which saves a for its backward and is entered by x, a backward
    needs n a. Checkpointed it needs n x + a, for one more forward: the blocks' inputs, and the
    inside of the one whose turn it is. With a network of n equal layers in blocks of sqrt(n) that
    is O(sqrt(n)) instead of O(n). Gradients are the same, random numbers too: the block is computed
    again from the state that the call found, of generators and of whatever else it writes, and what
    it writes is written once. Blocks may be nested.

    In a compiled step `step.stages["optimize"]` shows what is repeated. Calls of Python in a block,
    and values of it that something else reads during the backward, are kept instead; a block that
    counts in Python (`self.n += 1`) does so again in its repetition, op by op. In eager mode
    compiled functions that are called in the block run op by op, and inside of `vmap` or of a
    forward-mode derivative the function is only called.

    Reference: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.

    Args:
        function: the block: a function or Module.
        *args, **kwargs: what it is called with; `kwargs` without the names below.
        use_reentrant: True, False or None; all works as with False in PyTorch.
        context_fn: gives two contexts, for the call and for its repetition; a compiled step that
            has one runs op by op. Default: `noop_context_fn`.
        determinism_check: "none" to let the repetition save tensors of other shapes or dtypes.
        preserve_rng_state: True or False; random numbers are always the same.

    Raises:
        ArgumentError: `function` can't be called, or a flag is no bool.
        OptionError: another `determinism_check`.
        CheckpointError: in the backward, when the repetition saves other tensors.

    >>> from lucid.utils.checkpoint import checkpoint
    >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
    >>> checkpoint(lambda x: (x * x).exp(), x).sum().backward()
    >>> x.grad
    tensor([  5.4366, 218.3926])
    """
    if not callable(function):
        raise ArgumentError(f"checkpoint: the first argument is a {function.__class__.__name__}")
    check_choice(determinism_check, "determinism_check", "checkpoint", ("default", "none"))
    check_flag(use_reentrant, "use_reentrant", "checkpoint", or_none=True)
    check_flag(preserve_rng_state, "preserve_rng_state", "checkpoint")
    call = partial(function, *args, **kwargs)
    if not context.grad_enabled or context.levels:
        return call()
    name = getattr(function, "__name__", type(function).__name__)
    if context.recorder is None:
        contexts = context_fn()
        block = _Block(function, args, kwargs, name, contexts[1], determinism_check == "default")
        with contexts[0]:
            return block.call(call)
    if context_fn is not noop_context_fn:
        context.recorder.run_op_by_op("it calls checkpoint() with a context_fn")
    return _recorded(call, name)


@edge
def checkpoint_sequential(
    functions: Module | Sequence[Callable[[Any], Any]],
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """Return what the functions, one after the other, make of the input, in checkpointed segments.

    The last segment, whose backward comes at once, isn't checkpointed.

    Args:
        functions: a list, or a Sequential.
        segments: how many.
        input: of the first function.
        use_reentrant: as of `checkpoint`.
        preserve_rng_state: as of `checkpoint`.

    Raises:
        ArgumentError: neither a list nor a Sequential; a number of segments that is none.
        OptionError: fewer functions than segments.

    >>> from lucid.utils.checkpoint import checkpoint_sequential
    >>> x = lucid.ones(3, requires_grad=True)
    >>> checkpoint_sequential([lucid.exp, lucid.log, lucid.exp], 2, x).sum().backward()
    >>> x.grad
    tensor([2.7183, 2.7183, 2.7183])
    """
    layers: list[Callable[[Any], Any]]
    if not isinstance(functions, (Module, Sequence)):
        raise ArgumentError(
            f"checkpoint_sequential: functions must be a list or a Sequential, not {functions!r}"
        )
    if not isinstance(segments, (int, np.integer)):
        raise ArgumentError(f"checkpoint_sequential: segments must be an int, not {segments!r}")
    layers = [*(functions.children() if isinstance(functions, Module) else functions)]
    if not 1 <= segments <= len(layers):
        raise OptionError(
            f"checkpoint_sequential: {len(layers)} functions can't be cut into {segments} segments"
        )
    size = len(layers) // segments
    last = size * (segments - 1)
    for start in range(0, last, size):
        input = checkpoint(
            partial(_chain, layers[start : start + size]),
            input,
            use_reentrant=use_reentrant,
            preserve_rng_state=preserve_rng_state,
        )
    return _chain(layers[last:], input)


def _chain(functions: Iterable[Callable[[Any], Any]], input: Any) -> Any:
    for function in functions:
        input = function(input)
    return input


def _recorded(call: Callable[[], Any], name: str) -> Any:
    """Record the block, and let backwards read what it saves behind barriers of its region."""
    recorder = running.recorder
    assert recorder is not None
    collector = recorder.collector
    written = collector.written()
    with recorder.region(name, "checkpoint") as block:
        hooks = SavedTensorHooks(None, lambda tensor: _barrier(tensor, block))
        result = within(saving_with(hooks), call)
    advanced = collector.advanced(written)
    if advanced is not None:
        recorder.run_op_by_op(
            f"checkpoint({name}), which a backward repeats, changes {advanced}, which it reads"
        )
    return result


def _barrier(tensor: TensorCore, block: Region) -> TensorCore:
    """What a backward reads of a tensor that a block has saved.

    That is the tensor itself in a host call, in a transformed backward, and where the backward is
    part of what a block does: that is computed again with the block.
    """
    recorder = running.recorder
    is_inside = any(hooks.pack is None for hooks in context.saved_hooks)
    if recorder is None or context.levels or is_inside:
        return tensor
    value = recorder.value_of(tensor)
    with recorder.annotated():
        node = recorder.graph.append(ops.barrier, (value,), {})
    node.region = block
    result = of_value(node.result)
    recorder.made.append(weakref.ref(result))
    return result


class _Stop(BaseException):
    """Ends a repetition that has all that is needed."""


class _Caller(Node):
    """What keeps the block's arguments, for messages."""

    __slots__ = ("_called",)

    def __init__(self, name: str) -> None:
        super().__init__((), ())
        self._called = name
        self._spot = user_spot()

    def _name(self) -> str:
        return f"checkpoint({self._called})"


class _Block:
    """One call of `checkpoint` in eager mode, as its nodes hold it.

    Tensors that are saved leave a place; they are found by their number in the next repetition. A
    repetition serves one walk, and gives each tensor away once, so that it is freed after its use.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str,
        repetition: AbstractContextManager[Any],
        is_checked: bool,
    ) -> None:
        self._function = function
        self._caller = _Caller(name)
        self._args = [_kept(x) for x in args]
        self._kwargs = {key: _kept(x) for key, x in kwargs.items()}
        self._given = [x._storage for x in (*args, *kwargs.values()) if isinstance(x, TensorCore)]
        self._context = repetition
        self._is_checked = is_checked
        self._state = _State()
        self._first = next(sequence_numbers)
        self._places: list[weakref.ref[Place]] = []
        self._again: dict[int, TensorCore] = {}
        self._private: dict[int, Edge] = {}
        self._run: weakref.ref[BackwardRun] | None = None

    def call(self, call: Callable[[], Any]) -> Any:
        """Run the function, keeping of what it saves only how much there is."""
        hooks = SavedTensorHooks(self._leave_place, self._unpack, lambda packed, edge: None)
        result = within(saving_with(hooks), self._state.noting, call)
        for tensor in _tensors_in(result):
            node = tensor.grad_fn
            is_new = node is not None and node._sequence > self._first
            if is_new and tensor._storage not in self._given:
                self._state.forget(tensor._storage)
        for kept in (*self._args, *self._kwargs.values()):
            given = kept.tensor if isinstance(kept, SavedTensor) else None
            if given is not None and self._state.holds(given._storage):
                kept.version = given._counter.value  # it will be what it was
        return result

    def _leave_place(self, tensor: TensorCore) -> Place:
        place = Place(tensor, len(self._places))
        self._places.append(weakref.ref(place))
        return place

    def _unpack(self, place: Place) -> TensorCore:
        """The tensor that was saved, computed again unless this walk has done so."""
        run, number = context.backward_run, place.number
        if run is None or self._run is None or self._run() is not run:
            self._again.clear()
            self._private.clear()
            self._run = None if run is None else weakref.ref(run)
        if number not in self._again:
            self._repeat()
        tensor = self._again.pop(number)
        edge = self._private.pop(number, None)
        return tensor if edge is None else with_history(tensor, edge)

    def _repeat(self) -> None:
        """Call the function again, until all tensors are there for which nodes hold a place."""
        if context.recorder is not None:
            context.recorder.run_op_by_op(
                f"a backward() in it computes {self._caller._name()}{self._caller._place()} again, "
                "which was called outside"
            )
        places = [place for each in self._places if (place := each()) is not None]
        saved = _Repetition(places[-1].number, self._again, self._private, self._state)
        args = [self._argument(x) for x in self._args]
        kwargs = {key: self._argument(x) for key, x in self._kwargs.items()}
        hooks = SavedTensorHooks(saved.keep, _same, saved.keep_private)

        def call() -> None:
            with self._context:
                self._function(*args, **kwargs)

        inside = {"saved_hooks": [hooks], "saving": 1, "repeats": True}
        with suppress(_Stop):
            within(eager_thread(grad_enabled=True) | inside, self._state.as_found, call)
        self._check(places, saved.count)

    def _argument(self, kept: Any) -> Any:
        return kept.unpack(self._caller) if isinstance(kept, SavedTensor) else kept

    def _check(self, places: list[Place], count: int) -> None:
        """Raise where the repetition wasn't one."""
        where = f"\n  in {self._caller._name()}{self._caller._place()}"
        if count <= places[-1].number:
            raise CheckpointError(
                "lucid.utils.checkpoint: A different number of tensors was saved during the "
                "original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self._places)}\n"
                f"Number of tensors saved during recomputation: {count}.{where}"
            )
        for place in places if self._is_checked else ():
            before, now = place._type, self._again[place.number]._type
            if before != now:
                raise CheckpointError(
                    "lucid.utils.checkpoint: Recomputed values for the following tensors have "
                    "different metadata than during the forward pass.\n"
                    f"tensor at position {place.number}:\n"
                    f"saved metadata: {before}\nrecomputed metadata: {now}{where}"
                )


class _Repetition:
    """What a repetition saves, as far as it is wanted.

    Attributes:
        count: of tensors that it has saved.
    """

    def __init__(
        self, last: int, tensors: dict[int, TensorCore], private: dict[int, Edge], state: _State
    ) -> None:
        self.count = 0
        self._last = last
        self._tensors = tensors
        self._private = private
        self._state = state

    def keep(self, tensor: TensorCore) -> TensorCore:
        if self.count > self._last:
            raise _Stop
        is_lent = self._state.holds(tensor._storage)
        self._tensors[self.count] = copy_of(tensor) if is_lent else tensor
        self.count += 1
        if self.count > self._last and context.forward is None:
            raise _Stop  # in a custom forward the tensor's private history is still to come
        return tensor

    def keep_private(self, packed: TensorCore, edge: Edge) -> Edge:
        self._private[self.count - 1] = edge
        return edge


class _State:
    """What a block writes and outlives it, as the call found it: buffers, states of generators.

    It stands where a host call's changes are noted, in the call and in its repetitions.

    Attributes:
        counters: in a repetition, the versions of what it writes of that.
    """

    def __init__(self) -> None:
        self._found: weakref.WeakKeyDictionary[Storage, np.ndarray] = weakref.WeakKeyDictionary()
        self._around: Lending | None = None
        self._counters: dict[VersionCounter, int] | None = None

    def noting(self, call: Callable[[], Any]) -> Any:
        """What a function returns whose writes are noted: what they change is copied before."""
        if context.lent is self:  # the block itself differentiates what it computes
            return call()
        self._around = context.lent
        try:
            return within({"lent": self}, call)
        finally:
            self._around = None

    def before_write(self, storage: Storage, counter: VersionCounter | None = None) -> None:
        if self._counters is None:
            if storage not in self._found:
                self._found[storage] = np.array(storage.array)
        elif counter is not None and storage in self._found:
            self._counters.setdefault(counter, counter.value)
        if self._around is not None:
            self._around.before_write(storage, counter)

    def shown(self, storage: Storage, array: np.ndarray) -> np.ndarray:
        return array if self._around is None else self._around.shown(storage, array)

    def holds(self, storage: Storage) -> bool:
        return storage in self._found

    def forget(self, storage: Storage) -> None:
        """Note that the block has made this memory."""
        self._found.pop(storage, None)

    def as_found(self, call: Callable[[], Any]) -> Any:
        """What a function returns while all of it is what the call found; then it is as before.

        It is put back by one call of C, which no interrupt can end in the middle.
        """
        arrays = [array for storage in self._found if (array := storage.array) is not None]
        counters: dict[VersionCounter, int] = {}
        put: Any = operator.setitem
        put_back = chain(
            map(put, arrays, repeat(...), [array.copy() for array in arrays]),
            # Read when it comes to them.
            map(
                setattr,
                chain.from_iterable([counters]),
                repeat("now"),
                chain.from_iterable(map(dict[VersionCounter, int].values, [counters])),
            ),
        )
        try:
            for storage, content in [*self._found.items()]:
                _overwrite(storage, content)
            self._counters = counters
            return self.noting(call)
        finally:
            self._counters = None
            deque(put_back, maxlen=0)


def _overwrite(storage: Storage, content: np.ndarray) -> None:
    """Write into memory whose versions needn't know, since what is there comes back."""
    assert storage.array is not None
    if context.lent is not None:
        context.lent.before_write(storage)
    np.copyto(storage.array, content)


def _kept(value: Any) -> Any:
    return SavedTensor(value, -1) if isinstance(value, TensorCore) else value


def _tensors_in(result: Any) -> Iterator[TensorCore]:
    if isinstance(result, TensorCore):
        yield result
    elif isinstance(result, (list, tuple)):
        for part in result:
            yield from _tensors_in(part)
    elif isinstance(result, dict):
        yield from _tensors_in([*result.values()])


def _same(tensor: TensorCore) -> TensorCore:
    return tensor
