"""The short way through a call that writes its arguments, and depends on nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lucid.compiler.inputs.signature import Call
from lucid.compiler.programs.plain import LONG_WAY
from lucid.compiler.results.outcomes import FromProgram, Same
from lucid.compiler.surroundings.reach import owner_of
from lucid.ir.types import Shape, TensorType
from lucid.tensor.claims import Keys, Unlocked, held, lock, wait_for
from lucid.tensor.tensor import Tensor

if TYPE_CHECKING:
    from lucid.compiler.programs.plain import PlainCalls
    from lucid.compiler.programs.program import Program


class PlainWrites:
    """Runs a program whose inputs are all arguments, plain tensors that are no views.

    Clipping of gradients, say: it has no state, and what it returns is nothing or one tensor. It
    takes the place of `PlainCalls`, without native code.
    """

    enter = None  # the native form

    def __init__(self, program: Program, types: list[tuple[TensorType, Shape]]) -> None:
        self._executable = program.executable
        self._sharing = program._sharing
        self._guard = program.guards.watched
        self._values = program.guards.values
        self._arguments = types
        self._inputs = sorted(program._arguments)
        self._claimed = program._claimed_memory
        self._counters = [(n, delta) for n, delta in program._counters if isinstance(n, int)]
        self._result = program._result

    def call(self, args: Sequence[Any]) -> Any:
        """The result, or `LONG_WAY`: then nothing has happened yet."""
        arrays = self._arrays(args)
        if arrays is None:
            return LONG_WAY
        with lock:
            claims: Keys = frozenset()
            if held or not self._executable.is_short:
                claims = frozenset(id(owner_of(arrays[position])) for position in self._claimed)
                wait_for(claims)
            if self._guard.failure() is not None:
                return LONG_WAY
            for guard in self._values:
                if guard.failure() is not None:
                    return LONG_WAY
            outputs = self._run(arrays, claims)
            for position, delta in self._counters:
                args[position]._counter.now += delta
        result = self._result
        if type(result) is FromProgram:
            return result.with_history(result.on(outputs[result.slot]))
        return result.value if type(result) is Same else None

    def _arrays(self, args: Sequence[Any]) -> list[np.ndarray] | None:
        """The arrays of the arguments; None if one is not what was traced."""
        if len(args) != len(self._arguments):
            return None
        arrays = []
        for tensor, (expected, strides) in zip(args, self._arguments, strict=True):
            if tensor.__class__ is not Tensor or tensor._requires_grad or tensor._base is not None:
                return None
            found, array = tensor._type, tensor._array
            if array is None or array.strides != strides:
                return None
            if found is not expected and found != expected:
                return None
            arrays.append(array)
        return arrays if len({tensor._storage for tensor in args}) == len(args) else None

    def _run(self, arrays: Sequence[np.ndarray], claims: Keys) -> list[np.ndarray]:
        given = [(number, arrays[position]) for number, position in self._inputs]
        self._sharing.check(given)
        executable = self._executable
        buffers = executable.ready()
        if buffers is None:
            return self._unlocked(claims, lambda: executable.call([array for _, array in given]))
        bound = buffers.bound
        for number, array in given:
            if array is not bound[number]:
                buffers.replace(number, array)
        return self._unlocked(claims, lambda: executable.run(buffers, None))

    def _unlocked(self, claims: Keys, run: Callable[[], list[np.ndarray]]) -> list[np.ndarray]:
        """Run the step; one that takes long exchanges the lock for a claim meanwhile."""
        if self._executable.is_short:
            return run()
        with Unlocked(claims):
            return run()


def take_short_way(
    program: Program, call: Call, args: tuple[Any, ...], counted: np.ndarray
) -> None:
    """Let calls like the one that a program was traced for go the short way, if there is one.

    Native code counts those that it runs in `counted`.
    """
    program.take_plain(call, args, counted)
    guards = program.guards
    rare = (
        *(guards.pinned, guards.grads_read),
        *(program._rebinding, program.differentiable, program._rewritten, program._early),
        *(program._outer_grads, program._gradients.others, program._gradients.are_promised),
        *(program._ended, program._has_given, program._left_hooks, program._has_effects),
        *(program.hosts, len(program._arguments) != len(program.inputs)),
    )
    types = call.plain_types(args)
    if program.calls is not None or any(rare) or types is None:
        return
    is_simple = type(program._result) in (Same, FromProgram)
    if is_simple and all(isinstance(target, int) for target, _ in program._counters):
        program.calls = cast("PlainCalls", PlainWrites(program, types))
