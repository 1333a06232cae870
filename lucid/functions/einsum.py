"""Einstein summation, as matrix products of two operands at a time."""

from __future__ import annotations

import string
from math import prod
from typing import Any

from lucid.functions.arguments import tensor_of
from lucid.functions.conversion import cast
from lucid.functions.joining import diagonal
from lucid.functions.promotion import result_type
from lucid.functions.shape import broadcast, permuted, reshaped
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, DTypeError, OptionError, ShapeError
from lucid.tensor.core import emit

__all__ = ["einsum"]

Labels = tuple[str, ...]


_LETTERS = string.ascii_uppercase + string.ascii_lowercase  # in the order of the alphabet


def einsum(equation: Any, *operands: Any) -> Tensor:
    """Multiply and sum by named axes, such as "bij,bjk->bik"; `...` stands for broadcast axes.

    Without "->" the result has the names that occur once, in alphabetic order; a name twice in one
    operand is its diagonal. Operands are contracted from left to right, by matrix products.

    Args:
        equation: the names of each operand's axes, letters, and after "->" those of the result.
            Or the first operand, each followed by a list of numbers from 0 to 51 that name its
            axes, `...` among them, and perhaps one more list for the result.
        *operands: tensors, or one list of them, of one dtype; where nothing is summed they promote.

    Raises:
        OptionError: a malformed equation, or one of another number of operands.
        ArgumentError: no operand, or one that is no tensor.
        DTypeError: the dtypes differ where something is summed.
        ShapeError: names that don't fit an operand's axes, or one name with two sizes.

    >>> lucid.einsum("i,i->", lucid.tensor([1.0, 2.0]), lucid.tensor([3.0, 4.0]))
    tensor(11.)
    >>> lucid.einsum(lucid.tensor([1.0, 2.0]), [0], lucid.tensor([3.0, 4.0]), [0], [])
    tensor(11.)
    """
    if isinstance(equation, Tensor):
        equation, operands = _of_lists(equation, *operands)
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    tensors = [tensor_of(x, "einsum", f"operand {i}") for i, x in enumerate(operands)]
    if not tensors:
        raise ArgumentError("einsum: at least one operand")
    inputs, output = _parse(equation, tensors)
    if any(x.dtype is not tensors[0].dtype for x in tensors):
        if any(set(labels) - set(output) for labels in inputs):
            raise DTypeError("einsum: the operands have different dtypes")
        wanted = result_type(*tensors)  # a product that nothing is summed of, as `mul` does
        tensors = [cast(x, wanted) for x in tensors]
    _check_sizes(equation, inputs, tensors)
    terms = [_without_repeats(x, labels) for x, labels in zip(tensors, inputs, strict=True)]
    result, labels = terms[0]
    for i, (other, other_labels) in enumerate(terms[1:], 1):
        later = {label for _, term in terms[i + 1 :] for label in term} | set(output)
        result, labels = _contract(result, labels, other, other_labels, later)
    result, labels = _summed(result, labels, set(output))
    return permuted(result, tuple(labels.index(label) for label in output))


def _of_lists(*given: Any) -> tuple[str, tuple[Any, ...]]:
    """The equation and the operands of tensors and lists of numbers in turn."""
    lists = [*given[1::2], *given[-1:]] if len(given) % 2 else given[1::2]
    terms = [_letters(numbers) for numbers in lists]
    if len(given) % 2:
        return f"{','.join(terms[:-1])}->{terms[-1]}", given[:-1:2]
    return ",".join(terms), given[::2]


def _letters(numbers: Any) -> str:
    if not isinstance(numbers, (list, tuple)):
        raise ArgumentError(f"einsum: a list of axes must follow each operand, not {numbers!r}")
    for number in numbers:
        if number is not ... and not (isinstance(number, int) and 0 <= number < len(_LETTERS)):
            raise OptionError(f"einsum: subscripts are from 0 to 51, not {number!r}")
    return "".join("..." if number is ... else _LETTERS[number] for number in numbers)


def _parse(equation: str, tensors: list[Tensor]) -> tuple[list[Labels], Labels]:
    """Labels of each operand and of the result; an ellipsis becomes labels of its own."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise OptionError(f"einsum: {equation!r} names {len(terms)} operands, not {len(tensors)}")
    for term in [*terms, right]:
        letters = term.replace("...", "", 1)
        if not all(letter.isalpha() for letter in letters):
            raise OptionError(f"einsum: invalid subscript {term!r} in {equation!r}")
    widths = [_ellipsis_width(term, x, equation) for term, x in zip(terms, tensors, strict=True)]
    widest = max(widths)
    inputs = [_labels(term, width, widest) for term, width in zip(terms, widths, strict=True)]
    if arrow:
        output = _labels(right, widest, widest)
    else:
        every = [label for labels in inputs for label in labels]
        named = sorted(x for x in set(every) if every.count(x) == 1 and x.isalpha())
        output = (*(f".{i}" for i in range(widest)), *named)
    known = {label for labels in inputs for label in labels}
    if len(set(output)) != len(output) or not known.issuperset(output):
        raise OptionError(f"einsum: the result of {equation!r} has a subscript twice, or a new one")
    return inputs, output


def _ellipsis_width(term: str, x: Tensor, equation: str) -> int:
    named = len(term.replace("...", "", 1))
    if x.ndim < named or ("..." not in term and x.ndim != named):
        raise ShapeError(
            f"einsum: the number of subscripts {term!r} in {equation!r} does not match the number "
            f"of dimensions"
        )
    return x.ndim - named


def _labels(term: str, width: int, widest: int) -> Labels:
    before, dots, after = term.partition("...")
    middle = tuple(f".{i}" for i in range(widest - width, widest)) if dots else ()
    return (*before, *middle, *after)


def _check_sizes(equation: str, inputs: list[Labels], tensors: list[Tensor]) -> None:
    sizes: dict[str, int] = {}
    for labels, x in zip(inputs, tensors, strict=True):
        for label, size in zip(labels, x._type.shape, strict=True):
            known = sizes.setdefault(label, size)
            if known == 1:
                sizes[label] = size
            elif size not in (1, known):
                raise ShapeError(
                    f"einsum: subscript {label!r} of {equation!r} has sizes {known} and {size}"
                )


def _without_repeats(x: Tensor, labels: Labels) -> tuple[Tensor, Labels]:
    """Take the diagonal of axes with one name."""
    for label in labels:
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if x._type.shape[first] != x._type.shape[second]:
                raise ShapeError(
                    f"einsum: subscript {label!r} is repeated for axes of different sizes"
                )
            x = diagonal(x, 0, first, second)
            rest = tuple(name for i, name in enumerate(labels) if i not in (first, second))
            labels = (*rest, label)
    return x, labels


def _summed(x: Tensor, labels: Labels, keep: set[str]) -> tuple[Tensor, Labels]:
    axes = tuple(i for i, label in enumerate(labels) if label not in keep)
    if not axes:
        return x, labels
    kept = tuple(label for label in labels if label in keep)
    return emit(ops.sum, (x,), axes=axes), kept


def _contract(
    a: Tensor, left: Labels, b: Tensor, right: Labels, keep: set[str]
) -> tuple[Tensor, Labels]:
    """One matrix product: sum over the shared names that nobody needs any more."""
    a, left = _summed(a, left, keep | set(right))
    b, right = _summed(b, right, keep | set(left))
    a, b = _spread(a, left, b, right)
    shared = [label for label in left if label in right]
    batch = [label for label in shared if label in keep]
    inner = [label for label in shared if label not in keep]
    rows = [label for label in left if label not in shared]
    columns = [label for label in right if label not in shared]
    size = dict(zip((*left, *right), (*a._type.shape, *b._type.shape), strict=True))
    volumes = [prod(size[label] for label in group) for group in (batch, rows, inner, columns)]
    a = permuted(a, tuple(left.index(label) for label in (*batch, *rows, *inner)))
    b = permuted(b, tuple(right.index(label) for label in (*batch, *inner, *columns)))
    product = emit(
        ops.matmul,
        (
            reshaped(a, (volumes[0], volumes[1], volumes[2])),
            reshaped(b, (volumes[0], volumes[2], volumes[3])),
        ),
    )
    labels = (*batch, *rows, *columns)
    return reshaped(product, tuple(size[label] for label in labels)), labels


def _spread(a: Tensor, left: Labels, b: Tensor, right: Labels) -> tuple[Tensor, Tensor]:
    """Broadcast shared axes of size 1 to the other's size."""
    size_a = dict(zip(left, a._type.shape, strict=True))
    size_b = dict(zip(right, b._type.shape, strict=True))
    to_a = (size_b[x] if size_a[x] == 1 and x in size_b else size_a[x] for x in left)
    to_b = (size_a[x] if size_b[x] == 1 and x in size_a else size_b[x] for x in right)
    return broadcast(a, tuple(to_a)), broadcast(b, tuple(to_b))
