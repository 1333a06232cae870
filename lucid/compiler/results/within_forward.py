"""Calls of compiled functions in a custom forward, whose backward may be differentiated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lucid.autograd.node import edge_of
from lucid.autograd.private import note, private_edge
from lucid.autograd.saved import with_history
from lucid.compiler.inputs.signature import Call
from lucid.compiler.inputs.tree import map_tree
from lucid.ir.errors import LucidError
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, alias

if TYPE_CHECKING:
    from lucid.compiler.compiled import Compiled


def call_in_forward(
    compiled: Compiled,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call `compiled`, and note the histories of its results for the forward that runs.

    It is called in grad mode, since only then results have histories. `function`, which it was
    compiled from, runs op by op where that raises: what writes in place need not allow it. The
    reason is noted, and calls of the same signature are not tried again.
    """
    originals: dict[int, tuple[TensorCore, TensorCore]] = {}

    def given(leaf: Any, _: str) -> Any:
        edge = private_edge(leaf) if isinstance(leaf, TensorCore) else None
        if edge is None or edge == edge_of(leaf):
            return leaf
        stand_in = with_history(leaf, edge)
        stand_in.__dict__ = vars(leaf)  # what users bind to one is bound to the other
        originals[id(stand_in)] = stand_in, leaf
        return stand_in

    def given_for(argument: Any) -> Any:
        count = len(originals)
        mapped = map_tree(given, argument)
        return mapped if len(originals) > count else argument  # which the step may change

    stand_ins = tuple(map(given_for, args))
    keywords = {name: given_for(value) for name, value in kwargs.items()}
    pairs = zip((*args, *kwargs.values()), (*stand_ins, *keywords.values()), strict=True)
    has_copies = any(x is not y and not isinstance(x, TensorCore) for x, y in pairs)
    key = Call(stand_ins, keywords).key
    refusal = compiled.refusals.get(key)
    if refusal is not None:
        compiled.note_eager(refusal)
        return function(*args, **kwargs)
    forward = context.forward
    context.grad_enabled, context.forward = True, None
    try:
        if compiled.leaves_histories(stand_ins, keywords):
            raise LucidError(
                "tensors from outside get a history in it, where the forward gives them none"
            )
        if has_copies and compiled.changes_arguments(stand_ins, keywords):
            raise LucidError("it changes an argument whose tensors have a history in the forward")
        result = compiled(*stand_ins, **keywords)
    except LucidError as error:
        context.grad_enabled, context.forward = False, forward
        result = function(*args, **kwargs)  # raises again what is wrong with the call itself
        compiled.refuse(key, str(error))
        return result
    finally:
        context.grad_enabled, context.forward = False, forward
    noted: dict[int, Any] = {}

    def returned(leaf: Any, _: str) -> Any:
        if not isinstance(leaf, TensorCore) or leaf.grad_fn is None:
            return leaf
        if id(leaf) in originals:
            return originals[id(leaf)][1]
        if id(leaf) not in noted:
            noted[id(leaf)] = result = alias(leaf)
            note(result, edge_of(leaf))
        return noted[id(leaf)]

    arguments = {id(leaf) for leaf in _tensors((args, kwargs))}
    return map_tree(lambda x, _: x if id(x) in arguments else returned(x, _), result)


def _tensors(tree: Any) -> list[TensorCore]:
    found: list[TensorCore] = []
    map_tree(lambda leaf, _: found.append(leaf) if isinstance(leaf, TensorCore) else None, tree)
    return found
