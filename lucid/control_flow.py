"""Control flow over tensors: `cond`, `while_loop`, `fori_loop`, `scan` and `map`.

In eager mode they are what their Python says. A compiled step records the functions of a loop once,
as the body of an op that runs it natively, round by round (`compiler/recording/loops/loops.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from lucid.autograd.modes import no_grad
from lucid.autograd.rounds import Recurrence, one_by_one
from lucid.compiler.recording.loops.branches import record_cond
from lucid.compiler.recording.loops.loops import record_scan, record_while
from lucid.docstrings import maps
from lucid.functions.arguments import integer, kind_of, listed
from lucid.functions.border import explain_calls
from lucid.functions.creation import arange, zeros
from lucid.functions.elementwise import choose
from lucid.functions.from_data import as_tensor
from lucid.functions.joining import cat
from lucid.ir.errors import ArgumentError, DTypeError, OptionError, ShapeError
from lucid.ir.types import i64
from lucid.random import get_rng_state, set_rng_state
from lucid.tensor.batched import Batched, innermost
from lucid.tensor.context import context
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import flatten, structure
from lucid.utils.checkpoint import checkpoint

__all__ = ["cond", "fori_loop", "map", "scan", "while_loop"]

_NUMBERS = (bool, int, float)
_PLAIN = (bool, int, float, str, type(None))
Round = Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]
"""One round of a scan on leaves: the carry and a row of each of xs to the carry and a row of ys."""


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Sequence[Any] = (),
) -> Any:
    """Return `true_fn(*operands)` if `pred` holds, else `false_fn(*operands)`.

    Gradients are those of the branch that ran. A compiled step records both branches, as one op of
    which one runs natively; so both are called while it is traced. It has a path for each branch
    that its calls have taken instead where the two give different types, or change something in
    Python (see `scan`). A result of the op requires grad if that of either branch does, in eager
    mode if that of the branch that ran does. In a vmap that gives each example a `pred` of
    its own both branches run, and `where` chooses: they must give the same types. Don't write into
    what a branch passes on: in eager mode it is an operand itself, in a compiled step a copy.

    Args:
        pred: a bool, or a tensor of one element.
        true_fn: the branch for True.
        false_fn: the branch for False; its results may have other shapes.
        operands: a tuple or list; what else a branch needs it may find outside.

    Raises:
        ArgumentError: a `pred` of another kind, a branch that can't be called, or operands in no
            tuple.
        ShapeError: a `pred` of several elements, or of none; in a vmap, branches that give
            different types, for which it may be an `ArgumentError` or a `DTypeError` as well.

    >>> x = lucid.tensor([1.0, -2.0])
    >>> lucid.cond(x.sum() > 0, lambda x: x, lambda x: -x, (x,))
    tensor([-1.,  2.])
    """
    _require_functions("cond", true_fn=true_fn, false_fn=false_fn)
    if not isinstance(operands, (tuple, list)):
        raise ArgumentError(f"cond: operands must be a tuple, not {kind_of(operands)}")
    if isinstance(pred, Tensor):
        if pred._type.size != 1:
            raise ShapeError(f"cond: pred must have one element, not {pred._type}")
        if isinstance(pred, Batched):
            return _chosen(pred, true_fn(*operands), false_fn(*operands))
        if context.recorder is not None:
            sides = _side(true_fn, operands), _side(false_fn, operands)
            recorded = record_cond(pred, sides, _name_of(true_fn, "cond"))
            if recorded is not None:
                tensors, shape = recorded
                return shape.like(tensors)
    elif not isinstance(pred, bool):
        raise ArgumentError(f"cond: pred must be a bool or a Tensor, not {kind_of(pred)}")
    return (true_fn if pred else false_fn)(*operands)


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: Sequence[Any]
) -> tuple[Any, ...]:
    """Replace `carried` by `body_fn(*carried)` as long as `cond_fn(*carried)` holds; return it.

    Gradients of any order go through all rounds that ran, however many these are; where none ran
    they are those of `carried`. A compiled step records both functions once, as a loop that runs
    natively until the condition fails, and its backward as one through the rounds that ran. What
    these keep for it is memory of the step: where a call makes more rounds than fit there (16, 64,
    256 …), it goes on in a program with more, traced once. A step has a path for each number of
    rounds instead where the condition is a Python bool, where a round changes in Python what each
    would change anew (see `scan`), and in a vmap or a forward-mode derivative. In a vmap rounds go
    on as long as the condition holds for some example; the others stay as they are. Don't write
    into what no round has made: in eager mode it is what was carried itself, in a compiled step a
    copy.

    Args:
        cond_fn: gives a bool, or a tensor of one element.
        body_fn: gives a tuple of as many values as it gets; each tensor keeps dtype and shape.
        carried: a tuple or list of tensors, or of trees of them.

    Raises: `ArgumentError` for another structure, `ShapeError` and `DTypeError` for another type
        of a tensor than it had.

    >>> lucid.while_loop(lambda i, x: x < 100, lambda i, x: (i + 1, x * 3), (0, lucid.tensor(2.0)))
    (tensor(4), tensor(162.))
    """
    _require_functions("while_loop", cond_fn=cond_fn, body_fn=body_fn)
    if not isinstance(carried, (tuple, list)):
        raise ArgumentError(f"while_loop: carried must be a tuple, not {kind_of(carried)}")
    first = _Tree("while_loop", "carried", tuple(carried))

    def goes_on(state: list[Tensor]) -> Any:
        answer = cond_fn(*first.like(state))
        if isinstance(answer, Tensor):
            if answer._type.size != 1:
                raise ShapeError(f"while_loop: cond_fn must give one element, not {answer._type}")
        elif not isinstance(answer, bool):
            raise ArgumentError(
                f"while_loop: cond_fn must return a bool or a Tensor, not {kind_of(answer)}"
            )
        return answer

    def step(state: list[Tensor]) -> list[Tensor]:
        found = body_fn(*first.like(state))
        if not isinstance(found, (tuple, list)):
            raise ArgumentError(
                f"while_loop: body_fn must return a tuple of {len(carried)}, not {kind_of(found)}"
            )
        return first.take("what body_fn returns", tuple(found))

    more, name = goes_on(first.tensors), _name_of(body_fn, "while_loop")
    values: tuple[Any, ...] = first.like(_while(step, goes_on, more, first.tensors, name))
    return values


@maps("1", "5", "lambda i, product: product * i", "lucid.tensor(1)", "tensor(24)")
def fori_loop(lower: Any, upper: Any, body: Callable[[Tensor, Any], Any], init: Any) -> Any:
    """Return what is left of `init` after `init = body(i, init)` for i = lower, …, upper - 1.

    Where both bounds are ints it is a `scan` over i, else a `while_loop`.

    Args:
        lower: the first i, an int or a 0-d tensor.
        upper: where i ends, likewise; itself it isn't reached.
        body: gets i as an i64[] tensor, and a tree of tensors, each of which keeps its type.
        init: a tensor, or a tree of them, before the first round.

    Raises:
        ArgumentError: `body` returns another structure, or a leaf is no tensor and no number.
        ShapeError, DTypeError: a tensor changes its type.
    """
    _require_functions("fori_loop", body=body)
    if isinstance(lower, Tensor) or isinstance(upper, Tensor):
        start, stop = (as_tensor(x).to(i64) for x in (lower, upper))

        def more(i: Tensor, value: Any) -> Tensor:
            return i < stop

        return while_loop(more, lambda i, value: (i + 1, body(i, value)), (start, init))[1]
    first, last = integer(lower, "fori_loop", "lower"), integer(upper, "fori_loop", "upper")
    rounds = arange(first, max(first, last), dtype=i64)
    return _scan("fori_loop", lambda value, i: (body(i, value), None), init, rounds)[0]


@maps("lambda x: x.sum()", "[[1.0, 2.0], [3.0, 4.0]]", "[3., 7.]")
def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """Return `f` of each row of `xs`, stacked: a `scan` that carries nothing.

    Unlike `vmap` it takes one row after the other, which needs the memory of one.

    Args:
        f: a function of one row, which gives a tensor or a tree of them.
        xs: a tensor, or a tree of tensors with equally many rows, of which f gets a tree of rows.

    Raises:
        ArgumentError: a leaf that is no tensor and no number.
        ShapeError, DTypeError: xs have no rows or different numbers of them, or what f gives
            changes its type.
    """
    _require_functions("map", f=f)
    return _scan("map", lambda _, x: ((), f(x)), (), xs)[1]


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    checkpoint_every: int | None = None,
) -> tuple[Any, Any]:
    """Return `(carry, ys)`: in each round `carry, y = f(carry, x)`, and ys are the y, stacked.

    It means the loop that it says, with all that Python does in it:

        carry, ys = init, []
        for x in xs:  # or length times, with x = None
            carry, y = f(carry, x)
            ys.append(y)
        return carry, stack(ys)

    A compiled step records f once, so its compile time doesn't depend on the length, and runs the
    rounds natively; its backward is such a loop in the other direction. What f computes by NumPy,
    or in a custom Function that leaves lucid, is a call of Python in each round. Where f does what
    each round would have to do anew – binds what is outside of it, prints, branches on a value – it
    is recorded once for each round, and so it is in a vmap or a forward-mode derivative. With no
    rounds f is called once nevertheless, on zeros, to see what ys are like.

    Args:
        f: gets the carry and a row of each tensor of `xs`, and returns a carry of the same
            structure and types and a y: a tree of tensors, or None.
        init: the carry at the beginning, a tree of tensors.
        xs: a tensor, or a tree of tensors with equally many rows, or None.
        length: the number of rounds; it can be left out if there are `xs`.
        reverse: begin with the last row, which also gives the last row of ys.
        checkpoint_every: keep for the backward only the carry of every k-th round, and compute the
            k rounds after it again when their turn comes: of T rounds that save a each and carry c,
            (T / k) c + k a instead of T a.

    Returns: the last carry, and the tree of ys.

    Raises:
        ArgumentError: f doesn't return a pair, or a carry of another structure; a leaf is no
            tensor and no number.
        ShapeError, DTypeError: a tensor of the carry changes its type; xs have different lengths.

    Reference: Griewank and Walther, "Algorithm 799: revolve", 2000, on checkpoints.

    >>> lucid.scan(lambda total, x: (total + x, total), lucid.tensor(0.0), lucid.ones(4))
    (tensor(4.), tensor([0., 1., 2., 3.]))
    """
    _require_functions("scan", f=f)
    return _scan("scan", f, init, xs, length, reverse, checkpoint_every)


def _while(
    step: Callable[[list[Tensor]], list[Tensor]],
    goes_on: Callable[[list[Tensor]], Any],
    more: Any,
    state: list[Tensor],
    name: str,
) -> list[Tensor]:
    """What is left of the state after all rounds; `more` says whether there is a first one.

    In a vmap, where that is the answer of each example, rounds go on as long as it holds for some;
    the others stay as they are.
    """
    if context.recorder is not None:
        recorded = record_while(step, goes_on, more, state, name)
        if recorded is not None:
            return recorded
    while not isinstance(more, Batched):
        if not more:
            return state
        state = step(state)
        more = goes_on(state)

    def step_of_some(state: list[Tensor]) -> list[Tensor]:
        active, *before = state
        new = [choose(active, x, y) for x, y in zip(step(before), before, strict=True)]
        return [active & _truth(as_tensor(goes_on(new))), *new]

    def some_go_on(state: list[Tensor]) -> Any:
        return cast(Tensor, innermost(state[0])).any()

    state = [_truth(as_tensor(more)), *state]
    while some_go_on(state):
        state = step_of_some(state)
    return state[1:]


def _scan(
    api: str,
    f: Callable[[Any, Any], Any],
    init: Any,
    xs: Any,
    length: int | None = None,
    reverse: bool = False,
    checkpoint_every: int | None = None,
) -> tuple[Any, Any]:
    carry, rows = _Tree(api, "init", init), _Tree(api, "xs", xs)
    count = _count(api, rows, length)
    if checkpoint_every is not None:
        checkpoint_every = integer(checkpoint_every, api, "checkpoint_every")
        if checkpoint_every < 1:
            raise OptionError(f"{api}: checkpoint_every must be at least 1, not {checkpoint_every}")
    kept: list[_Tree] = []

    def step(state: list[Tensor], row: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        found = f(carry.like(state), rows.like(row))
        if not (isinstance(found, tuple) and len(found) == 2):
            raise ArgumentError(f"{api}: f must return (carry, y), not {kind_of(found)}")
        new = carry.take("the carry that f returns", found[0])
        if not kept:
            kept.append(_Tree(api, "what f returns for ys", found[1]))
            return new, kept[0].tensors
        return new, kept[0].take("what f returns for ys", found[1])

    if isinstance(f, Recurrence) and count:
        found = f.run(carry.tensors, rows.tensors, reverse)
        if found is not None:
            return carry.like(found[0]), tuple(found[1])
        if type(count) is int and count == 1:  # a decoder's step, which a Python loop calls
            state, ys = one_by_one(step, carry.tensors, rows.tensors, 1, reverse)
            return carry.like(state), kept[0].like(ys)
    name = _name_of(f, api)
    state, ys = _rounds(step, carry.tensors, rows.tensors, count, reverse, checkpoint_every, name)
    return carry.like(state), kept[0].like(ys)


def _rounds(
    step: Round,
    carry: list[Tensor],
    xs: list[Tensor],
    count: int,
    reverse: bool,
    checkpoint_every: int | None,
    name: str,
) -> tuple[list[Tensor], list[Tensor]]:
    """The carry after all rounds, and ys."""
    if context.recorder is not None and count:
        recorded = record_scan(step, carry, xs, count, reverse, checkpoint_every, name)
        if recorded is not None:
            return recorded
    if not count:
        return _no_rounds(step, carry, xs)
    if checkpoint_every is None or checkpoint_every >= count or not context.grad_enabled:
        return one_by_one(step, carry, xs, count, reverse)
    starts = range(0, count, checkpoint_every)
    parts: list[list[Tensor]] = []
    for start in reversed(starts) if reverse else starts:
        stop = min(start + checkpoint_every, count)
        given = [x[start:stop] for x in xs]

        block = partial(_block, step, len(carry), stop - start, reverse)
        carry, ys = checkpoint(block, *carry, *given)
        parts.append(ys)
    if reverse:
        parts.reverse()
    return carry, [cat(part) for part in zip(*parts, strict=True)]


def _block(
    step: Round, carries: int, count: int, reverse: bool, *tensors: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Some of the rounds, of a carry and rows."""
    return one_by_one(step, [*tensors[:carries]], [*tensors[carries:]], count, reverse)


def _no_rounds(
    step: Round, carry: list[Tensor], xs: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """The carry as it is, and ys without rows; what f draws is put back."""
    state = get_rng_state()
    with no_grad():
        given = [zeros(x._type.shape, dtype=x.dtype) for x in carry]
        _, ys = step(given, [zeros(x._type.shape[1:], dtype=x.dtype) for x in xs])
    set_rng_state(state)
    return carry, [zeros((0, *y._type.shape), dtype=y.dtype) for y in ys]


class _Results:
    """What a side of a cond gives besides tensors: it is equal to such of the other side.

    Numbers, texts and None must be the same on both sides; all else never is.
    """

    def __init__(self, tree: Any) -> None:
        leaves, self._rebuild = flatten(tree)
        self._is_tensor = [isinstance(leaf, Tensor) for leaf in leaves]
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self._others = [leaf for leaf in leaves if not isinstance(leaf, Tensor)]
        self._shape = structure(tree), self._is_tensor

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Results) or self._shape != other._shape:
            return False
        pairs = zip(self._others, other._others, strict=True)
        return all(type(a) is type(b) and type(a) in _PLAIN and a == b for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def like(self, tensors: Sequence[Tensor]) -> Any:
        """Such a tree of other tensors."""
        found, others = iter(tensors), iter(self._others)
        return self._rebuild([next(found if there else others) for there in self._is_tensor])


def _side(function: Callable[..., Any], operands: Sequence[Any]) -> Callable[[], Any]:
    """A side of a cond, which gives its tensors, and what is besides."""

    def run() -> tuple[list[Tensor], _Results]:
        results = _Results(function(*operands))
        return results.tensors, results

    return run


class _Tree:
    """The tensors of a tree, None aside; numbers become tensors."""

    def __init__(self, api: str, what: str, tree: Any) -> None:
        self._api = api
        leaves, self._rebuild = flatten(tree)
        self._shape = structure(tree), [leaf is not None for leaf in leaves]
        for leaf in leaves:
            if not (leaf is None or isinstance(leaf, (Tensor, *_NUMBERS))):
                raise ArgumentError(
                    f"{api}: {what} must hold tensors and numbers, not {kind_of(leaf)}"
                )
        self.tensors = [as_tensor(leaf) for leaf in leaves if leaf is not None]

    def like(self, tensors: Sequence[Tensor]) -> Any:
        """Such a tree of other tensors."""
        remaining = iter(tensors)
        return self._rebuild([next(remaining) if there else None for there in self._shape[1]])

    def take(self, what: str, tree: Any) -> list[Tensor]:
        """The tensors of another tree, of the same structure and types as these."""
        found = _Tree(self._api, what, tree)
        if found._shape != self._shape:
            raise ArgumentError(
                f"{self._api}: {what} must have the structure {self._shape[0]} "
                f"of {sum(self._shape[1])} tensors, not {found._shape[0]} of {len(found.tensors)}"
            )
        for before, now in zip(self.tensors, found.tensors, strict=True):
            if before._type != now._type:
                same_dtype = before.dtype is now.dtype
                remedy = f"hint: convert it with .to({before.dtype!r}), or begin with {now.dtype!r}"
                raise (ShapeError if same_dtype else DTypeError)(
                    f"{self._api}: {what} must keep its types: there is {now._type} where "
                    f"{before._type} was{listed(before=before, now=now)}"
                    + ("" if same_dtype else f"\n{remedy}")
                )
        return found.tensors


def _count(api: str, rows: _Tree, length: int | None) -> int:
    """How many rounds there are."""
    counts: list[int] = []
    for x in rows.tensors:
        if not x.ndim:
            raise ShapeError(f"{api}: xs must have rows, and {x._type} has no axis")
        counts.append(x._type.shape[0])
    if length is not None:
        counts.append(integer(length, api, "length"))
        if counts[-1] < 0:
            raise OptionError(f"{api}: length must not be negative, and is {length}")
    if not counts:
        raise ArgumentError(f"{api}: without xs it needs a length")
    if len(set(counts)) > 1:
        given = ", ".join(str(x._type) for x in rows.tensors)
        wanted = "" if length is None else f", and length is {length}"
        raise ShapeError(f"{api}: xs must have equally many rows: {given}{wanted}")
    return counts[0]


def _chosen(pred: Tensor, first: Any, second: Any) -> Any:
    """What each example of a vmap gets of what both branches give."""
    trees = [_Tree("cond", "what a branch gives in a vmap", tree) for tree in (first, second)]
    others = trees[0].take("what both branches give in a vmap", second)
    pred = _truth(pred)
    pairs = zip(trees[0].tensors, others, strict=True)
    return trees[0].like([choose(pred, x, y) for x, y in pairs])


def _truth(answer: Tensor) -> Tensor:
    return answer.detach().reshape(()).bool()


def _name_of(f: Callable[..., Any], otherwise: str) -> str:
    """What the body of a loop is called."""
    name = getattr(f, "__name__", otherwise)
    return name if name.isidentifier() else otherwise


def _require_functions(api: str, **functions: Any) -> None:
    for name, function in functions.items():
        if not callable(function):
            raise ArgumentError(f"{api}: {name} must be a function, not {kind_of(function)}")


explain_calls(sys.modules[__name__], dict(vars()), __name__)
