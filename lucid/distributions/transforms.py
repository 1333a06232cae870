"""Invertible functions with the logarithm of their slope."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import lucid
from lucid.choices import check_choice
from lucid.compiler.recording import hooks
from lucid.distributions import constraints
from lucid.distributions.distribution import Distribution, OfFormulas, sum_rightmost
from lucid.docstrings import ending, like
from lucid.ir.errors import ArgumentError, MissingRuleError, OptionError, ShapeError
from lucid.nn import functional as F
from lucid.tensor.tensor import Tensor

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform",
    "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform",
    "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform",
    "StickBreakingTransform", "TanhTransform", "Transform", "identity_transform",
]  # fmt: skip


T = TypeVar("T", bound="type[Transform]")


def _are_equal(a: Any, b: Any) -> bool:
    found = a == b
    return bool(found.all()) if isinstance(found, Tensor) else bool(found)


def _with_axes(constraint: Any, axes: int) -> Any:
    """The set of events of as many axes, or of more, whose values are in a set; None: unsaid."""
    more = 0 if constraint is None else axes - constraint.event_dim
    return constraints.independent(constraint, more) if more > 0 else constraint


def example(arguments: str, x: str, *found: str) -> Callable[[T], T]:
    """Show in a docstring what a transform makes of elements: result, inverse, slope."""

    def complete(cls: T) -> T:
        made = f"lucid.distributions.{cls.__name__}({arguments})"
        lines = (
            f">>> transform, x = {made}, lucid.tensor({x})",
            ">>> y = transform(x)",
            ">>> y, transform.inv(y), transform.log_abs_det_jacobian(x, y)",
            f"({', '.join(f'tensor({elements})' for elements in found)})",
        )
        return like(Transform)(ending(cls, *lines))

    return complete


class Transform(OfFormulas):
    """An invertible function. Subclasses define `_call`, `_inverse` and `log_abs_det_jacobian`.

    Two are equal where they are the same function: of one class, with equal numbers, tensors and
    parts. Those of the user's, and those with sizes or distributions, equal themselves alone.

    With `cache_size=1` the inverse of a result is the very value that it came from, not one that is
    rounded again, or infinite where the result is at the edge: `tanh` of 20 is 1.

    Args:
        cache_size: 1 keeps the last pair of a value and its result.

    Raises:
        OptionError: another `cache_size` than 0 and 1.

    Attributes:
        event_dim: how many axes at the end are transformed together: those of an event of the
            domain, where nothing else is said.
        sign: 1 of a function that rises, -1 of one that falls; elsewhere it raises.
        domain: what the function takes; None if it isn't said.
        codomain: what it gives.

    >>> transform = lucid.distributions.ExpTransform()
    >>> isinstance(transform, lucid.distributions.Transform), transform.codomain
    (True, greater_than(greater than 0))
    """

    _is_changed_by_users = True
    domain: Any = None
    codomain: Any = None
    bijective = True
    _cache_size = 0
    _made_of: ClassVar[Sequence[str] | None] = None  # what equal ones have equal; None: nothing is
    __hash__ = object.__hash__

    def __init__(self, cache_size: int = 0) -> None:
        check_choice(cache_size, "cache_size", type(self).__name__, (0, 1))
        self._cache_size = cache_size
        self._pairs: dict[Any, tuple[Tensor, Tensor]] = {}

    @property
    def event_dim(self) -> int:
        """How many axes at the end are transformed together."""
        own = vars(self).get("_event_dim")
        return getattr(self.domain, "event_dim", 0) if own is None else own

    @event_dim.setter
    def event_dim(self, axes: int) -> None:
        self._event_dim = axes

    @property
    def sign(self) -> Any:
        """1 of a function that rises, -1 of one that falls: an int, or a tensor of them.

        Raises `MissingRuleError` where it is neither.
        """
        raise MissingRuleError(f"{type(self).__name__} has no sign: it neither rises nor falls")

    @property
    def _added_axes(self) -> int:
        """The axes of a result, more than of what is transformed."""
        own = vars(self).get("_more_axes")
        if own is None:
            of_result = getattr(self.codomain, "event_dim", None)
            own = 0 if of_result is None or self.domain is None else of_result - self.event_dim
        return int(own)

    @_added_axes.setter
    def _added_axes(self, axes: int) -> None:
        self._more_axes = axes

    def __call__(self, x: Tensor) -> Tensor:
        self._check(x, self.event_dim)
        if not self._cache_size:
            return self._call(x)
        pairs = self._cache()
        if self in pairs and pairs[self][0] is x:
            return pairs[self][1]
        y = self._call(x)
        pairs[self] = x, y
        return y

    def __eq__(self, other: object) -> bool:
        """Whether both are the same function."""
        if self is other or self._made_of is None or type(self) is not type(other):
            return self is other
        return all(_are_equal(getattr(self, x), getattr(other, x)) for x in self._made_of)

    def _check(self, value: Tensor, axes: int) -> None:
        """Raises `ArgumentError` for what is no tensor, `ShapeError` for one of fewer axes."""
        name = type(self).__name__
        if not isinstance(value, Tensor):
            raise ArgumentError(f"{name}: takes a tensor, not {type(value).__name__}")
        if value.ndim < axes:
            raise ShapeError(f"{name}: takes values with {axes} or more axes, not {value._type}")

    def _cache(self) -> dict[Any, tuple[Tensor, Tensor]]:
        """Where the last pair is: with a running trace, which ends before its values may leave."""
        of_trace = hooks.remembered()
        return self._pairs if of_trace is None else of_trace

    def _inverted(self, y: Tensor) -> Tensor:
        """The inverse, of the last result the value that it came from, with a cache."""
        self._check(y, self.event_dim + self._added_axes)
        if not self._cache_size:
            return self._inverse(y)
        pairs = self._cache()
        if self in pairs and pairs[self][1] is y:
            return pairs[self][0]
        x = self._inverse(y)
        pairs[self] = x, y
        return x

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Return the same function with another `cache_size`; itself if it has that already."""
        if cache_size == self._cache_size:
            return self
        check_choice(cache_size, "cache_size", type(self).__name__, (0, 1))
        other = copy.copy(self)
        other._cache_size, other._pairs = cache_size, {}
        return other

    def __getstate__(self) -> dict[str, Any]:
        """All but the last pair."""
        return {**vars(self), "_pairs": {}}

    @property
    def inv(self) -> Transform:
        """The inverse function."""
        return _Inverse(self)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape that values of this shape are transformed to."""
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of what is transformed to values of this one."""
        return tuple(shape)

    def _call(self, x: Tensor) -> Tensor:
        raise MissingRuleError(f"{type(self).__name__} must define _call()")

    def _inverse(self, y: Tensor) -> Tensor:
        raise MissingRuleError(f"{type(self).__name__} must define _inverse()")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return log |dy/dx| where `self(x)` is `y`."""
        raise MissingRuleError(f"{type(self).__name__} must define log_abs_det_jacobian()")


class _Inverse(Transform):
    _made_of = ("_transform",)
    _formulas: ClassVar = {
        "sign": lambda t: t._transform.sign,
        "inv": lambda t: t._transform,
        "forward_shape": lambda t, shape: t._transform.inverse_shape(shape),
        "inverse_shape": lambda t, shape: t._transform.forward_shape(shape),
        "_call": lambda t, x: t._transform._inverted(x),
        "_inverse": lambda t, y: t._transform(y),
        "log_abs_det_jacobian": lambda t, x, y: -t._transform.log_abs_det_jacobian(y, x),
    }

    def __init__(self, transform: Transform) -> None:
        self._transform = transform
        self.event_dim = transform.event_dim + transform._added_axes
        self._added_axes = -transform._added_axes
        self.domain, self.codomain = transform.codomain, transform.domain
        self.bijective = transform.bijective

    def with_cache(self, cache_size: int = 1) -> Transform:
        return _Inverse(self._transform.with_cache(cache_size))


@like(Transform)
class ComposeTransform(Transform):
    """One transform after the other, the first of the list first.

    Args:
        parts: the transforms.

    >>> from lucid.distributions import AffineTransform, ComposeTransform, ExpTransform
    >>> transform = ComposeTransform([AffineTransform(1.0, 2.0), ExpTransform()])
    >>> x = lucid.tensor([0.5, 1.0])
    >>> y = transform(x)
    >>> y, transform.inv(y), transform.log_abs_det_jacobian(x, y)
    (tensor([ 7.3891, 20.0855]), tensor([0.5000, 1.0000]), tensor([2.6931, 3.6931]))
    """

    _made_of = ("parts",)

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) if cache_size else part for part in parts]
        for part in reversed(self.parts):
            self.event_dim = max(self.event_dim - part._added_axes, part.event_dim)
            self._added_axes += part._added_axes
        self.domain = self.codomain = constraints.real
        if self.parts:
            self.domain = _with_axes(self.parts[0].domain, self.event_dim)
            of_result = self.event_dim + self._added_axes
            self.codomain = _with_axes(self.parts[-1].codomain, of_result)
        self.bijective = all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        return math.prod(part.sign for part in self.parts)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return tuple(shape)

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return lucid.zeros_like(x)
        slopes, axes = [], self.event_dim
        for part in self.parts:
            after = part(x)
            slope = part.log_abs_det_jacobian(x, after)
            slopes.append(sum_rightmost(slope, axes - part.event_dim))
            axes += part._added_axes
            x = after
        return sum(slopes[1:], slopes[0])


@example("1.0, 2.0", "[0.0, 3.0]", "[1., 7.]", "[0., 3.]", "[0.6931, 0.6931]")
class AffineTransform(Transform):
    """The function loc + scale * x.

    The logarithm of its slope is log |scale|, summed over the last `event_dim` axes.

    Args:
        loc: what is added, a number or a tensor.
        scale: the factor, not 0.
        event_dim: how many axes at the end are transformed together.
    """

    _made_of = ("loc", "scale")
    _formulas: ClassVar = {
        "_call": lambda t, x: x * t.scale + t.loc,
        "_inverse": lambda t, y: (y - t.loc) / t.scale,
    }

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc: float | Tensor = loc
        self.scale: float | Tensor = scale
        self.event_dim, self._added_axes = event_dim, 0
        self.domain = self.codomain = _with_axes(constraints.real, event_dim)

    @property
    def sign(self) -> Any:
        scale = self.scale
        return scale.sign() if isinstance(scale, Tensor) else int(scale > 0) - int(scale < 0)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            slope = self.scale.abs().log().expand(*x.shape)
        else:
            slope = lucid.full_like(x, math.log(abs(self.scale)))
        return sum_rightmost(slope, self.event_dim)


class _OfNumbers(Transform):
    """A function without parameters, of numbers."""

    _made_of = ()
    domain = constraints.real
    codomain = constraints.positive


def _inside(share: Tensor) -> Tensor:
    """Numbers that aren't 0 and 1, but as near as their dtype allows."""
    info = lucid.finfo(share.dtype)
    return share.clamp(float(info.tiny), 1.0 - float(info.eps))


@example("", "[0.0, 1.0]", "[1.0000, 2.7183]", "[0.0000, 1.0000]", "[0., 1.]")
class ExpTransform(_OfNumbers):
    """The function exp(x), whose inverse is the logarithm: numbers to positive ones."""

    sign = 1
    _formulas: ClassVar = {
        "_call": lambda t, x: x.exp(),
        "_inverse": lambda t, y: y.log(),
        "log_abs_det_jacobian": lambda t, x, y: x,
    }


@example("", "[0.0, 2.0]", "[0.5000, 0.8808]", "[0.0000, 2.0000]", "[-1.3863, -2.2539]")
class SigmoidTransform(_OfNumbers):
    """The function sigmoid(x): numbers to those between 0 and 1, neither of which it reaches."""

    sign = 1
    codomain = constraints.unit_interval
    _formulas: ClassVar = {
        "_call": lambda t, x: _inside(x.sigmoid()),
        "_inverse": lambda t, y: _inside(y).log() - (-_inside(y)).log1p(),
        "log_abs_det_jacobian": lambda t, x, y: -F.softplus(-x) - F.softplus(x),
    }


@example("", "[0.0, 1.0]", "[0.0000, 0.7616]", "[0., 1.]", "[ 0.0000, -0.8676]")
class TanhTransform(_OfNumbers):
    """The function tanh(x), whose inverse is atanh: numbers to those between -1 and 1."""

    sign = 1
    codomain = constraints.interval(-1, 1)
    _formulas: ClassVar = {
        "_call": lambda t, x: x.tanh(),
        "_inverse": lambda t, y: lucid.atanh(y),
        "log_abs_det_jacobian": lambda t, x, y: 2 * (math.log(2.0) - x - F.softplus(-2.0 * x)),
    }


@example("2.0", "[1.0, 3.0]", "[1., 9.]", "[1., 3.]", "[0.6931, 1.7918]")
class PowerTransform(Transform):
    """The function x ** exponent of positive x, whose inverse is the power 1 / exponent.

    Args:
        exponent: a number or a tensor, not 0.
    """

    _made_of = ("exponent",)
    domain = constraints.positive
    codomain = constraints.positive
    _formulas: ClassVar = {
        "_call": lambda t, x: x**t.exponent,
        "_inverse": lambda t, y: y ** (1 / t.exponent),
        "log_abs_det_jacobian": lambda t, x, y: (t.exponent * y / x).abs().log(),
    }

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent: float | Tensor = exponent

    @property
    def sign(self) -> Any:
        exponent = lucid.as_tensor(self.exponent)
        return exponent.sign()


@example("", "[0.5, 1.0]", "[0.9741, 1.3133]", "[0.5000, 1.0000]", "[-0.4741, -0.3133]")
class SoftplusTransform(_OfNumbers):
    """The function log(1 + exp(x)): numbers to positive ones, large ones nearly to themselves."""

    sign = 1
    _formulas: ClassVar = {
        "_call": lambda t, x: F.softplus(x),
        "_inverse": lambda t, y: (-(-y).expm1()).log() + y,
        "log_abs_det_jacobian": lambda t, x, y: -F.softplus(-x),
    }


@like(Transform)
class AbsTransform(_OfNumbers):
    """The function |x|: two numbers have each value, so it has an inverse but no density.

    The inverse is the positive one of the two; `log_abs_det_jacobian` raises `MissingRuleError`.

    >>> transform, x = lucid.distributions.AbsTransform(), lucid.tensor([-1.0, 2.0])
    >>> y = transform(x)
    >>> y, transform.inv(y)
    (tensor([1., 2.]), tensor([1., 2.]))
    """

    bijective = False
    _formulas: ClassVar = {"_call": lambda t, x: x.abs(), "_inverse": lambda t, y: y}


@like(Transform)
class SoftmaxTransform(_OfNumbers):
    """The softmax over the last axis: it has an inverse, up to a constant, but no density.

    The inverse is the logarithm; `log_abs_det_jacobian` raises `MissingRuleError`.

    >>> transform, x = lucid.distributions.SoftmaxTransform(), lucid.tensor([0.0, 1.0])
    >>> y = transform(x)
    >>> y, transform.inv(y)
    (tensor([0.2689, 0.7311]), tensor([-1.3133, -0.3133]))
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = False
    _formulas: ClassVar = {"_call": lambda t, x: F.softmax(x, -1), "_inverse": lambda t, y: y.log()}


@example("", "[0.5, 1.0]", "[0.4519, 0.4007, 0.1474]", "[0.5000, 1.0000]", "-3.6234")
class StickBreakingTransform(Transform):
    """n numbers to n + 1 parts of a stick: each number breaks a part off the rest.

    Zeros make equal parts. Shapes: (…, n) to (…, n + 1), whose sum is 1.
    """

    _made_of = ()
    domain = constraints.real_vector
    codomain = constraints.simplex
    _formulas: ClassVar = {
        "forward_shape": lambda t, shape: (*shape[:-1], shape[-1] + 1),
        "inverse_shape": lambda t, shape: (*shape[:-1], shape[-1] - 1),
    }

    @staticmethod
    def _moved(x: Tensor) -> Tensor:
        """The numbers in such a way that zero breaks off its share of what is left."""
        return x - lucid.arange(x.shape[-1], 0, -1, dtype=x.dtype).log()

    def _call(self, x: Tensor) -> Tensor:
        part = _inside(self._moved(x).sigmoid())
        rest = (1 - part).cumprod(-1)
        return F.pad(part, (0, 1), value=1.0) * F.pad(rest, (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        broken = y[..., :-1]
        rest = (1 - broken.cumsum(-1)).clamp(min=float(lucid.finfo(y.dtype).tiny))
        left = lucid.arange(broken.shape[-1], 0, -1, dtype=y.dtype)
        return broken.log() - rest.log() + left.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        moved = self._moved(x)
        return (-moved + F.logsigmoid(moved) + y[..., :-1].log()).sum(-1)


@like(Transform)
class IndependentTransform(Transform):
    """A transform whose last `reinterpreted_batch_ndims` axes are transformed together.

    Values are those of the base; the logarithm of the slope is summed over these axes.

    Args:
        base_transform: of the elements.
        reinterpreted_batch_ndims: how many axes.

    >>> from lucid.distributions import ExpTransform, IndependentTransform
    >>> transform, x = IndependentTransform(ExpTransform(), 1), lucid.tensor([0.0, 1.0])
    >>> y = transform(x)
    >>> y, transform.inv(y), transform.log_abs_det_jacobian(x, y)
    (tensor([1.0000, 2.7183]), tensor([0.0000, 1.0000]), tensor(1.))
    """

    _formulas: ClassVar = {
        "sign": lambda t: t.base_transform.sign,
        "forward_shape": lambda t, shape: t.base_transform.forward_shape(shape),
        "inverse_shape": lambda t, shape: t.base_transform.inverse_shape(shape),
        "_call": lambda t, x: t.base_transform(x),
        "_inverse": lambda t, y: t.base_transform.inv(y),
    }

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        if cache_size:
            base_transform = base_transform.with_cache(cache_size)
        self.base_transform = base_transform
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.event_dim = base_transform.event_dim + reinterpreted_batch_ndims
        self._added_axes = base_transform._added_axes
        self.domain = _with_axes(base_transform.domain, self.event_dim)
        self.codomain = _with_axes(base_transform.codomain, self.event_dim + self._added_axes)
        self.bijective = base_transform.bijective

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        slope = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(slope, self.reinterpreted_batch_ndims)


@like(Transform)
class ReshapeTransform(Transform):
    """Values of one shape as values of another, in the order that they have; the slope is 1.

    Shapes: (*, *in_shape) to (*, *out_shape).

    Args:
        in_shape: of what is transformed.
        out_shape: of what it becomes; of as many elements.

    Raises:
        OptionError: the shapes differ in their numbers of elements.

    >>> transform = lucid.distributions.ReshapeTransform((4,), (2, 2))
    >>> y = transform(lucid.tensor([1.0, 2.0, 3.0, 4.0]))
    >>> y, transform.inv(y)
    (tensor([[1., 2.],
            [3., 4.]]), tensor([1., 2., 3., 4.]))
    """

    _formulas: ClassVar = {
        "forward_shape": lambda t, shape: t._batch(shape, t.in_shape) + t.out_shape,
        "inverse_shape": lambda t, shape: t._batch(shape, t.out_shape) + t.in_shape,
        "_call": lambda t, x: x.reshape(t.forward_shape(x.shape)),
        "_inverse": lambda t, y: y.reshape(t.inverse_shape(y.shape)),
    }

    def __init__(
        self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise OptionError(f"ReshapeTransform: {self.in_shape} and {self.out_shape} differ")
        self.event_dim = len(self.in_shape)
        self._added_axes = len(self.out_shape) - len(self.in_shape)
        self.domain = constraints.independent(constraints.real, len(self.in_shape))
        self.codomain = constraints.independent(constraints.real, len(self.out_shape))

    @staticmethod
    def _batch(shape: Sequence[int], event: tuple[int, ...]) -> tuple[int, ...]:
        """The axes before those of the event."""
        cut = len(shape) - len(event)
        if cut < 0 or tuple(shape[cut:]) != event:
            raise ShapeError(f"ReshapeTransform: takes values (*, {event}), not {tuple(shape)}")
        return tuple(shape[:cut])

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return lucid.zeros(self._batch(x.shape, self.in_shape), dtype=x.dtype)


@like(Transform)
class CumulativeDistributionTransform(Transform):
    """The cumulative distribution function of a distribution: its draws to uniform ones.

    Two in turn, the second inverted, give the values of one distribution the ranks that they have
    in another: a copula.

    Args:
        distribution: one with `cdf` and `icdf`.

    >>> from lucid.distributions import CumulativeDistributionTransform, Normal
    >>> transform = CumulativeDistributionTransform(Normal(0.0, 1.0))
    >>> x = lucid.tensor([0.0, 1.0])
    >>> y = transform(x)
    >>> y, transform.inv(y), transform.log_abs_det_jacobian(x, y)
    (tensor([0.5000, 0.8413]), tensor([0.0000, 1.0000]), tensor([-0.9189, -1.4189]))
    """

    sign = 1
    codomain = constraints.unit_interval
    _formulas: ClassVar = {
        "_call": lambda t, x: t.distribution.cdf(x),
        "_inverse": lambda t, y: t.distribution.icdf(y),
        "log_abs_det_jacobian": lambda t, x, y: t.distribution.log_prob(x),
    }

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution: Distribution = distribution
        self.domain = distribution.support


@like(Transform)
class LowerCholeskyTransform(Transform):
    """Square matrices to lower triangular ones with a positive diagonal, its exponential.

    What is above the diagonal is lost, so there is no density.

    >>> transform = lucid.distributions.LowerCholeskyTransform()
    >>> transform(lucid.tensor([[0.0, 5.0], [2.0, 1.0]]))
    tensor([[1.0000, 0.0000],
            [2.0000, 2.7183]])
    """

    _made_of = ()
    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky
    bijective = False
    _formulas: ClassVar = {
        "_call": lambda t, x: x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed(),
        "_inverse": lambda t, y: y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed(),
    }


@like(Transform)
class PositiveDefiniteTransform(Transform):
    """Square matrices to positive definite ones, by `LowerCholeskyTransform`: L @ L.mT.

    >>> lucid.distributions.PositiveDefiniteTransform()(lucid.tensor([[0.0, 5.0], [2.0, 0.0]]))
    tensor([[1., 2.],
            [2., 5.]])
    """

    _made_of = ()
    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite
    bijective = False

    def _call(self, x: Tensor) -> Tensor:
        root = LowerCholeskyTransform()(x)
        return root @ root.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(lucid.linalg.cholesky(y))


@like(Transform)
class CorrCholeskyTransform(Transform):
    """n (n - 1) / 2 numbers to the Cholesky factor of a correlation matrix (n, n).

    `tanh` makes each number a share of what a row has left of its length, 1. Shapes: (*, m) to
    (*, n, n).

    Reference: Stan Development Team, "Cholesky factors of correlation matrices", reference manual.

    Raises:
        ShapeError: m isn't n (n - 1) / 2 for any n.

    >>> transform, x = lucid.distributions.CorrCholeskyTransform(), lucid.tensor([0.5])
    >>> y = transform(x)
    >>> y, transform.inv(y), transform.log_abs_det_jacobian(x, y)
    (tensor([[1.0000, 0.0000],
            [0.4621, 0.8868]]), tensor([0.5000]), tensor(-0.2402))
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky

    @staticmethod
    def _side(count: int) -> int:
        """How many rows there are for so many numbers below the diagonal."""
        side = (1 + math.isqrt(1 + 8 * count)) // 2
        if side * (side - 1) // 2 != count:
            raise ShapeError(f"CorrCholeskyTransform: no n * (n - 1) / 2 is {count}")
        return side

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        side = self._side(shape[-1])
        return (*shape[:-1], side, side)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ShapeError(f"CorrCholeskyTransform: not square: {tuple(shape)}")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)

    def _call(self, x: Tensor) -> Tensor:
        side, eps = self._side(x.shape[-1]), float(lucid.finfo(x.dtype).eps)
        shares = x.tanh().clamp(-1 + eps, 1 - eps)
        rows, columns = lucid.tril_indices(side, side, -1)
        lower = lucid.zeros((*x.shape[:-1], side, side), dtype=x.dtype)
        lower[..., rows, columns] = shares
        left = (1 - lower**2).sqrt().cumprod(-1)
        lower = lower + lucid.eye(side, dtype=x.dtype)
        return lower * F.pad(left[..., :-1], (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        rows, columns = lucid.tril_indices(y.shape[-1], y.shape[-1], -1)
        left = F.pad(1 - (y * y).cumsum(-1)[..., :-1], (1, 0), value=1.0)
        shares: Tensor = y[..., rows, columns] / left[..., rows, columns].sqrt()
        return lucid.atanh(shares)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        rows, columns = lucid.tril_indices(y.shape[-1], y.shape[-1], -2)
        left = 1 - (y * y).cumsum(-1)
        lengths: Tensor = 0.5 * left[..., rows, columns].log().sum(-1)
        slopes: Tensor = -2 * (x + F.softplus(-2 * x) - math.log(2.0)).sum(-1)
        return lengths + slopes


class _Joined(Transform):
    """Parts of an axis, each with a transform of its own."""

    transforms: list[Transform]
    dim: int

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        raise NotImplementedError

    def _join(self, parts: list[Tensor]) -> Tensor:
        raise NotImplementedError

    def _call(self, x: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._parts(x), strict=True)
        return self._join([transform(part) for transform, part in pairs])

    def _inverse(self, y: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._parts(y), strict=True)
        return self._join([transform.inv(part) for transform, part in pairs])

    def _slopes(self, x: Tensor, y: Tensor) -> list[Tensor]:
        parts = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        found = ((t.event_dim, t.log_abs_det_jacobian(a, b)) for t, a, b in parts)
        return [sum_rightmost(slope, self.event_dim - axes) for axes, slope in found]

    def with_cache(self, cache_size: int = 1) -> Transform:
        other = super().with_cache(cache_size)
        if other is not self:
            assert isinstance(other, _Joined)
            other.transforms = [part.with_cache(cache_size) for part in self.transforms]
        return other


@like(Transform)
class CatTransform(_Joined):
    """Transforms beside one another along an axis, each of some elements of it.

    Args:
        tseq: the transforms.
        lengths: how many elements of the axis each takes. Default: None, one each.

    Raises:
        OptionError: as many lengths as transforms are needed.

    >>> from lucid.distributions import CatTransform, ExpTransform, TanhTransform
    >>> transform = CatTransform([ExpTransform(), TanhTransform()], lengths=[1, 2])
    >>> y = transform(lucid.tensor([0.0, 0.0, 1.0]))
    >>> y, transform.inv(y)
    (tensor([1.0000, 0.0000, 0.7616]), tensor([0., 0., 1.]))
    """

    _formulas: ClassVar = {
        "_parts": lambda t, x: x.split(t.lengths, t.dim),
        "_join": lambda t, parts: lucid.cat(parts, t.dim),
    }

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(cache_size)
        self.transforms = [part.with_cache(cache_size) if cache_size else part for part in tseq]
        self.dim = dim
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise OptionError(f"CatTransform: {len(self.transforms)} lengths, not {self.lengths}")
        self.event_dim, self._added_axes = max(part.event_dim for part in self.transforms), 0
        self.bijective = all(part.bijective for part in self.transforms)
        self.domain = constraints.cat([t.domain for t in self.transforms], dim, self.lengths)
        self.codomain = constraints.cat([t.codomain for t in self.transforms], dim, self.lengths)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        slopes = self._slopes(x, y)
        axis = self.dim - x.ndim if self.dim >= 0 else self.dim
        axis += self.event_dim
        if axis < 0:
            return lucid.cat(slopes, axis)
        return sum(slopes[1:], start=slopes[0])


@like(Transform)
class StackTransform(_Joined):
    """Transforms along an axis: the n-th of what is at its n-th place.

    Args:
        tseq: the transforms, as many as the axis has places.

    >>> from lucid.distributions import ExpTransform, StackTransform, identity_transform
    >>> transform = StackTransform([identity_transform, ExpTransform()], dim=1)
    >>> transform(lucid.tensor([[2.0, 0.0], [3.0, 1.0]]))
    tensor([[2.0000, 1.0000],
            [3.0000, 2.7183]])
    """

    _formulas: ClassVar = {
        "_join": lambda t, parts: lucid.stack(parts, t.dim),
        "log_abs_det_jacobian": lambda t, x, y: t._join(t._slopes(x, y)),
    }

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms = [part.with_cache(cache_size) if cache_size else part for part in tseq]
        self.dim = dim
        self.bijective = all(part.bijective for part in self.transforms)
        self.event_dim = self._added_axes = 0  # its slopes stand side by side
        self.domain = constraints.stack([t.domain for t in self.transforms], dim)
        self.codomain = constraints.stack([t.codomain for t in self.transforms], dim)

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        if x.shape[self.dim] != len(self.transforms):
            raise ShapeError(f"StackTransform: axis {self.dim} needs size {len(self.transforms)}")
        return x.unbind(self.dim)


identity_transform = ComposeTransform([])
identity_transform.domain = identity_transform.codomain = constraints.real
