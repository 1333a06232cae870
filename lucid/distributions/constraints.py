"""What parameters and values of distributions must be: `lucid.distributions.constraints`.

Args:
    lower_bound: a number or a tensor.
    upper_bound: a number or a tensor.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import lucid
from lucid.docstrings import like
from lucid.ir.errors import MissingRuleError
from lucid.tensor.context import context
from lucid.tensor.tensor import Tensor


class Constraint:
    """A set of values, each of `event_dim` axes; `check` says which values are in it.

    Attributes:
        said: the set in words, as in "scale must be greater than 0".
        is_discrete: it is countable.

    >>> from lucid.distributions import constraints
    >>> isinstance(constraints.positive, constraints.Constraint)
    True
    >>> constraints.positive.check(lucid.tensor([-1.0, 2.0]))
    tensor([False,  True])
    """

    said = "of the support"
    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """Whether each value is in the set: a bool tensor without the last `event_dim` axes."""
        raise MissingRuleError(f"{type(self).__name__} must define check()")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.said})"


class _Dependent(Constraint):
    """What depends on other parameters: the distribution checks it itself."""

    said = "what the other parameters allow"


dependent = _Dependent()


class dependent_property(property, _Dependent):  # noqa: N801 -- PyTorch's name
    """Decorate a method of a distribution of the user's that says what its values must be.

    Of an object it is a property; of the class, where no parameters are known, it is `dependent`.

    Args:
        fn: the method. Default: None, of the function that it then decorates.
        is_discrete: whether the values are whole numbers.
        event_dim: how many axes an event has.

    >>> from lucid.distributions import Distribution, constraints
    >>> class Unit(Distribution):
    ...     @constraints.dependent_property(event_dim=0)
    ...     def support(self):
    ...         return constraints.unit_interval
    >>> Unit().support, constraints.is_dependent(Unit.support)
    (interval(between 0 and 1), True)
    """

    def __init__(
        self,
        fn: Callable[[Any], Constraint] | None = None,
        *,
        is_discrete: bool = False,
        event_dim: int = 0,
    ) -> None:
        super().__init__(fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[[Any], Constraint]) -> dependent_property:
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


class _Stated(Constraint):
    """A set that a condition describes."""

    def __init__(
        self,
        said: str,
        holds: Callable[[Tensor], Tensor],
        is_discrete: bool = False,
        event_dim: int = 0,
    ) -> None:
        self.said, self.is_discrete, self.event_dim = said, is_discrete, event_dim
        self._holds = holds

    def check(self, value: Tensor) -> Tensor:
        return self._holds(value)


class independent(Constraint):  # noqa: N801 -- PyTorch's name
    """Values of which the last axes are parts, each in `base_constraint`.

    Args:
        base_constraint: the set of the parts.
        reinterpreted_batch_ndims: how many axes.

    >>> from lucid.distributions import constraints
    >>> found = constraints.independent(constraints.positive, 1)
    >>> found, found.check(lucid.tensor([[1.0, 2.0], [1.0, -2.0]]))
    (independent(greater than 0), tensor([ True, False]))
    """

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.said = base_constraint.said
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        result = self.base_constraint.check(value)
        axes = tuple(range(-self.reinterpreted_batch_ndims, 0))
        return lucid.all(result, axes) if axes else result


class cat(Constraint):  # noqa: N801 -- PyTorch's name
    """Values of several sets beside one another along an axis.

    Args:
        cseq: the sets.
        lengths: how many elements of the axis are of each set. Default: None, one each.

    >>> from lucid.distributions import constraints
    >>> found = constraints.cat([constraints.positive, constraints.boolean], lengths=[1, 2])
    >>> found, found.check(lucid.tensor([0.5, 1.0, 2.0]))
    (cat(greater than 0 and 0 or 1), tensor([ True,  True, False]))
    """

    def __init__(
        self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
    ) -> None:
        self.cseq = list(cseq)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        self.dim = dim
        self.said = " and ".join(part.said for part in self.cseq)
        self.event_dim = max(part.event_dim for part in self.cseq)
        self.is_discrete = any(part.is_discrete for part in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        parts = value.split(self.lengths, self.dim)
        return lucid.cat(
            [c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim
        )


@like(cat)
class stack(Constraint):  # noqa: N801 -- PyTorch's name
    """Values along an axis, the n-th of which is in the n-th set.

    >>> from lucid.distributions import constraints
    >>> found = constraints.stack([constraints.positive, constraints.boolean])
    >>> found, found.check(lucid.tensor([[0.5, 2.0], [1.0, 2.0]]))
    (stack(greater than 0 and 0 or 1), tensor([[ True,  True],
            [ True, False]]))
    """

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq = list(cseq)
        self.dim = dim
        self.said = " and ".join(part.said for part in self.cseq)
        self.event_dim = max(part.event_dim for part in self.cseq)
        if self.event_dim + dim < 0:
            self.event_dim += 1
        self.is_discrete = any(part.is_discrete for part in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        parts = zip(self.cseq, value.unbind(self.dim), strict=True)
        return lucid.stack([part.check(item) for part, item in parts], self.dim)


def _text(bound: Any) -> str:
    if isinstance(bound, Tensor) and bound.numel() != 1:
        return f"a bound of shape {tuple(bound.shape)}"
    if isinstance(bound, Tensor):
        is_unknown = bound.is_traced and context.recorder is None
        known = None if is_unknown else bound._known("a bound")
        return "a bound" if known is None else f"{known.item():g}"
    return f"{bound:g}"


class greater_than(_Stated):  # noqa: N801 -- PyTorch's name
    """Numbers above a bound; the bound itself isn't among them.

    >>> found = lucid.distributions.constraints.greater_than(1)
    >>> found, found.check(lucid.tensor([1.0, 2.0]))
    (greater_than(greater than 1), tensor([False,  True]))
    """

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound
        super().__init__(f"greater than {_text(lower_bound)}", lambda x: x > lower_bound)


class greater_than_eq(_Stated):  # noqa: N801 -- PyTorch's name
    """Numbers from a bound on, which is among them.

    >>> found = lucid.distributions.constraints.greater_than_eq(1)
    >>> found, found.check(lucid.tensor([0.5, 1.0]))
    (greater_than_eq(at least 1), tensor([False,  True]))
    """

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound
        super().__init__(f"at least {_text(lower_bound)}", lambda x: x >= lower_bound)


class less_than(_Stated):  # noqa: N801 -- PyTorch's name
    """Numbers below a bound; the bound itself isn't among them.

    >>> found = lucid.distributions.constraints.less_than(1)
    >>> found, found.check(lucid.tensor([0.5, 1.0]))
    (less_than(less than 1), tensor([ True, False]))
    """

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound
        super().__init__(f"less than {_text(upper_bound)}", lambda x: x < upper_bound)


class _Between(Constraint):
    """Numbers between two bounds."""

    _says: ClassVar[str]
    _signs: ClassVar[tuple[Callable[..., Tensor], Callable[..., Tensor]]]  # of the two bounds

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound: float | Tensor = lower_bound
        self.upper_bound: float | Tensor = upper_bound
        self.said = self._says.format(_text(lower_bound), _text(upper_bound))

    def check(self, value: Tensor) -> Tensor:
        above, below = self._signs
        return above(value, self.lower_bound) & below(value, self.upper_bound)


class interval(_Between):  # noqa: N801 -- PyTorch's name
    """Numbers between two bounds, which are among them.

    >>> found = lucid.distributions.constraints.interval(0, 1)
    >>> found, found.check(lucid.tensor([0.0, 1.0, 2.0]))
    (interval(between 0 and 1), tensor([ True,  True, False]))
    """

    _says = "between {} and {}"
    _signs = operator.ge, operator.le


class half_open_interval(_Between):  # noqa: N801 -- PyTorch's name
    """Numbers from one bound on, below the other.

    Args:
        lower_bound: a number or a tensor, which is among them.
        upper_bound: a number or a tensor, which isn't.

    >>> found = lucid.distributions.constraints.half_open_interval(0, 1)
    >>> found, found.check(lucid.tensor([0.0, 0.5, 1.0]))
    (half_open_interval(at least 0 and less than 1), tensor([ True,  True, False]))
    """

    _says = "at least {} and less than {}"
    _signs = operator.ge, operator.lt


class open_below(_Between):  # noqa: N801 -- PyTorch's name
    """Numbers above one bound, up to the other.

    Args:
        lower_bound: a number or a tensor, which isn't among them.
        upper_bound: a number or a tensor, which is.

    >>> found = lucid.distributions.constraints.open_below(0, 1)
    >>> found, found.check(lucid.tensor([0.0, 0.5, 1.0]))
    (open_below(greater than 0 and at most 1), tensor([False,  True,  True]))
    """

    _says = "greater than {} and at most {}"
    _signs = operator.gt, operator.le


def _is_whole(x: Tensor) -> Tensor:
    return x % 1 == 0


class integer_interval(interval):  # noqa: N801 -- PyTorch's name
    """Whole numbers between two bounds, which are among them, in any dtype.

    >>> found = lucid.distributions.constraints.integer_interval(0, 3)
    >>> found, found.check(lucid.tensor([0.0, 1.5, 3.0]))
    (integer_interval(whole numbers from 0 to 3), tensor([ True, False,  True]))
    """

    _says = "whole numbers from {} to {}"
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return _is_whole(value) & super().check(value)


class multinomial(_Stated):  # noqa: N801 -- PyTorch's name
    """Counts, along the last axis, that sum up to a number at most.

    Args:
        upper_bound: the greatest sum.

    >>> found = lucid.distributions.constraints.multinomial(3)
    >>> found, found.check(lucid.tensor([[1.0, 2.0], [2.0, 2.0]]))
    (multinomial(at least 0, with a sum of at most 3), tensor([ True, False]))
    """

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound
        super().__init__(
            f"at least 0, with a sum of at most {_text(upper_bound)}",
            lambda x: (x >= 0).all(-1) & (x.sum(-1) <= upper_bound),
            is_discrete=True,
            event_dim=1,
        )


def _is_lower(x: Tensor) -> Tensor:
    return lucid.all(x.tril() == x, (-2, -1))


def _is_symmetric(x: Tensor) -> Tensor:
    return lucid.all(lucid.isclose(x, x.mT, atol=1e-6), (-2, -1))


def _has_positive_diagonal(x: Tensor) -> Tensor:
    return (x.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


def is_dependent(constraint: Any) -> bool:
    """Whether a set depends on other parameters, as `constraints.dependent` does.

    Args:
        constraint: a `Constraint`.

    >>> lucid.distributions.constraints.is_dependent(lucid.distributions.constraints.dependent)
    True
    >>> lucid.distributions.constraints.is_dependent(lucid.distributions.constraints.positive)
    False
    """
    return isinstance(constraint, _Dependent)


def _has_unit_rows(x: Tensor) -> Tensor:
    limit = 10 * x.shape[-1] * float(lucid.finfo(x.dtype).eps)
    return ((x.norm(dim=-1) - 1).abs() < limit).all(-1)


boolean: Constraint = _Stated("0 or 1", lambda x: (x == 0) | (x == 1), is_discrete=True)
real: Constraint = _Stated("numbers, not NaN", lambda x: x == x)
positive: Constraint = greater_than(0)
nonnegative: Constraint = greater_than_eq(0)
unit_interval: Constraint = interval(0, 1)
nonnegative_integer = _Stated("whole numbers from 0 on", lambda x: _is_whole(x) & (x >= 0), True)
positive_integer = _Stated("whole numbers from 1 on", lambda x: _is_whole(x) & (x >= 1), True)
real_vector = independent(real, 1)
simplex = _Stated(
    "at least 0, with a sum of 1",
    lambda x: (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6),
    event_dim=1,
)
one_hot = _Stated(
    "a single 1 among zeros", lambda x: boolean.check(x).all(-1) & (x.sum(-1) == 1), True, 1
)
lower_triangular = _Stated("lower triangular", _is_lower, event_dim=2)
lower_cholesky = _Stated(
    "lower triangular with a positive diagonal",
    lambda x: _is_lower(x) & _has_positive_diagonal(x),
    event_dim=2,
)
corr_cholesky = _Stated(
    "lower triangular with a positive diagonal and rows of length 1",
    lambda x: lower_cholesky.check(x) & _has_unit_rows(x),
    event_dim=2,
)
square = _Stated(
    "square matrices",
    lambda x: lucid.full(x.shape[:-2], x.shape[-1] == x.shape[-2], dtype=lucid.bool),
    event_dim=2,
)
symmetric = _Stated("symmetric", _is_symmetric, event_dim=2)
positive_semidefinite = _Stated(
    "symmetric, with no negative eigenvalue",
    lambda x: _is_symmetric(x) & (lucid.linalg.eigvalsh(x) >= 0).all(-1),
    event_dim=2,
)
positive_definite = _Stated(
    "symmetric and positive definite",
    lambda x: _is_symmetric(x) & (lucid.linalg.cholesky_ex(x).info == 0),
    event_dim=2,
)
