"""Invertible functions with the logarithm of their slope."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import lucid
from lucid.choices import check_choice
from lucid.compiler.recording import hooks
from lucid.distributions import constraints
from lucid.ir import frames
from lucid.ir.errors import MissingRuleError
from lucid.nn import functional as F
from lucid.tensor.tensor import Tensor

__all__ = [
    "AbsTransform", "AffineTransform", "ComposeTransform", "ExpTransform", "IndependentTransform",
    "PowerTransform", "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform",
    "StickBreakingTransform", "TanhTransform", "Transform",
]  # fmt: skip


class Transform:
    """An invertible function. Subclasses define `_call`, `_inverse` and `log_abs_det_jacobian`.

    With `cache_size=1` the inverse of a result is the very value that it came from, not one that is
    rounded again, or infinite where the result is at the edge: `tanh` of 20 is 1.

    Args:
        cache_size: 1 keeps the last pair of a value and its result. Default: 0.

    Raises:
        OptionError: another `cache_size` than 0 and 1.

    Attributes:
        event_dim: how many axes at the end are transformed together.
        domain: what the function takes; None if it isn't said.
        codomain: what it gives.

    Example:
        >>> import lucid
        >>> from lucid.distributions import ExpTransform, Transform
        >>> transform = ExpTransform()
        >>> isinstance(transform, Transform), transform.codomain
        (True, _Stated(greater than 0))
    """

    event_dim = 0
    _is_changed_by_users = True
    domain: Any = None
    codomain: Any = None
    bijective = True
    _cache_size = 0

    def __init__(self, cache_size: int = 0) -> None:
        check_choice(cache_size, "cache_size", type(self).__name__, (0, 1))
        self._cache_size = cache_size
        self._pairs: dict[Any, tuple[Tensor, Tensor]] = {}

    def __call__(self, x: Tensor) -> Tensor:
        if not self._cache_size:
            return self._call(x)
        pairs = self._cache()
        if self in pairs and pairs[self][0] is x:
            return pairs[self][1]
        y = self._call(x)
        pairs[self] = x, y
        return y

    def _cache(self) -> dict[Any, tuple[Tensor, Tensor]]:
        """Where the last pair is: with a running trace, which ends before its values may leave."""
        of_trace = hooks.remembered()
        return self._pairs if of_trace is None else of_trace

    def _inverted(self, y: Tensor) -> Tensor:
        """The inverse, of the last result the value that it came from, with a cache."""
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
    def __init__(self, transform: Transform) -> None:
        self._transform = transform
        self.event_dim = transform.event_dim
        self.domain, self.codomain = transform.codomain, transform.domain
        self.bijective = transform.bijective

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._transform.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._transform.forward_shape(shape)

    @property
    def inv(self) -> Transform:
        return self._transform

    def with_cache(self, cache_size: int = 1) -> Transform:
        return _Inverse(self._transform.with_cache(cache_size))

    def _call(self, x: Tensor) -> Tensor:
        return self._transform._inverted(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._transform(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._transform.log_abs_det_jacobian(y, x)


class ComposeTransform(Transform):
    """One transform after the other, the first of the list first.

    Args:
        parts: the transforms.
        cache_size: 1 keeps the last pair of a value and its result. Default: 0.

    Example:
        >>> import lucid
        >>> from lucid.distributions import AffineTransform, ComposeTransform, ExpTransform
        >>> transform = ComposeTransform([AffineTransform(1.0, 2.0), ExpTransform()])
        >>> x = lucid.tensor([0.5, 1.0])
        >>> y = transform(x)
        >>> y, transform.inv(y), transform.log_abs_det_jacobian(x, y)
        (tensor([ 7.3891, 20.0855]), tensor([0.5000, 1.0000]), tensor([2.6931, 3.6931]))
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) if cache_size else part for part in parts]
        self.event_dim = max((part.event_dim for part in self.parts), default=0)
        if self.parts:
            self.domain, self.codomain = self.parts[0].domain, self.parts[-1].codomain
        self.bijective = all(part.bijective for part in self.parts)

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
        total: Any = 0.0
        for part in self.parts:
            after = part(x)
            slope = part.log_abs_det_jacobian(x, after)
            more = self.event_dim - part.event_dim
            total = total + (slope.sum(tuple(range(-more, 0))) if more else slope)
            x = after
        result: Tensor = total
        return result


class AffineTransform(Transform):
    """The function loc + scale * x.

    The logarithm of its slope is log |scale|, summed over the last `event_dim` axes.

    Args:
        loc: what is added, a number or a tensor.
        scale: the factor, not 0.
        event_dim: how many axes at the end are transformed together. Default: 0.
        cache_size: 1 keeps the last pair of a value and its result. Default: 0.

    Example:
        >>> import lucid
        >>> from lucid.distributions import AffineTransform
        >>> transform, x = AffineTransform(1.0, 2.0), lucid.tensor([0.0, 3.0])
        >>> y = transform(x)
        >>> y, transform.inv(y), transform.log_abs_det_jacobian(x, y)
        (tensor([1., 7.]), tensor([0., 3.]), tensor([0.6931, 0.6931]))
    """

    domain = constraints.real
    codomain = constraints.real

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc = loc
        self.scale = scale
        self.event_dim = event_dim

    def _call(self, x: Tensor) -> Tensor:
        found: Tensor = x * self.scale + self.loc
        return found

    def _inverse(self, y: Tensor) -> Tensor:
        found: Tensor = (y - self.loc) / self.scale
        return found

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            slope = self.scale.abs().log().expand(*x.shape)
        else:
            slope = lucid.full_like(x, math.log(abs(self.scale)))
        return slope.sum(tuple(range(-self.event_dim, 0))) if self.event_dim else slope


class ExpTransform(Transform):
    """The function exp(x), whose inverse is the logarithm: numbers to positive ones.

    Args:
        cache_size: 1 keeps the last pair of a value and its result. Default: 0.

    Example:
        >>> import lucid
        >>> from lucid.distributions import ExpTransform
        >>> transform, x = ExpTransform(), lucid.tensor([0.0, 1.0])
        >>> y = transform(x)
        >>> y, transform.inv(y), transform.log_abs_det_jacobian(x, y)
        (tensor([1.0000, 2.7183]), tensor([0.0000, 1.0000]), tensor([0., 1.]))
    """

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class SigmoidTransform(Transform):
    """The function sigmoid(x): numbers to those between 0 and 1, neither of which it reaches.

    Args:
        cache_size: 1 keeps the last pair of a value and its result. Default: 0.

    Example:
        >>> import lucid
        >>> from lucid.distributions import SigmoidTransform
        >>> transform, x = SigmoidTransform(), lucid.tensor([0.0, 2.0])
        >>> y = transform(x)
        >>> y, transform.inv(y), transform.log_abs_det_jacobian(x, y)
        (tensor([0.5000, 0.8808]), tensor([0.0000, 2.0000]), tensor([-1.3863, -2.2539]))
    """

    domain = constraints.real
    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        eps = float(lucid.finfo(x.dtype).eps)
        return x.sigmoid().clamp(float(lucid.finfo(x.dtype).tiny), 1.0 - eps)

    def _inverse(self, y: Tensor) -> Tensor:
        eps = float(lucid.finfo(y.dtype).eps)
        y = y.clamp(float(lucid.finfo(y.dtype).tiny), 1.0 - eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x) - F.softplus(x)


class TanhTransform(Transform):
    """The function tanh(x), whose inverse is atanh: numbers to those between -1 and 1.

    Args:
        cache_size: 1 keeps the last pair of a value and its result. Default: 0.

    Example:
        >>> import lucid
        >>> from lucid.distributions import TanhTransform
        >>> transform, x = TanhTransform(), lucid.tensor([0.0, 1.0])
        >>> y = transform(x)
        >>> y, transform.inv(y), transform.log_abs_det_jacobian(x, y)
        (tensor([0.0000, 0.7616]), tensor([0., 1.]), tensor([ 0.0000, -0.8676]))
    """

    domain = constraints.real
    codomain = constraints.interval(-1, 1)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return lucid.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


class PowerTransform(Transform):
    """The function x ** exponent of positive x, whose inverse is the power 1 / exponent.

    Args:
        exponent: a number or a tensor, not 0.
        cache_size: 1 keeps the last pair of a value and its result. Default: 0.

    Example:
        >>> import lucid
        >>> from lucid.distributions import PowerTransform
        >>> transform, x = PowerTransform(2.0), lucid.tensor([1.0, 3.0])
        >>> y = transform(x)
        >>> y, transform.inv(y), transform.log_abs_det_jacobian(x, y)
        (tensor([1., 9.]), tensor([1., 3.]), tensor([0.6931, 1.7918]))
    """

    domain = constraints.positive
    codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    def _call(self, x: Tensor) -> Tensor:
        result: Tensor = x**self.exponent
        return result

    def _inverse(self, y: Tensor) -> Tensor:
        result: Tensor = y ** (1 / self.exponent)
        return result

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = (self.exponent * y / x).abs().log()
        return found


class SoftplusTransform(Transform):
    """The function log(1 + exp(x)): numbers to positive ones, large ones nearly to themselves.

    Args:
        cache_size: 1 keeps the last pair of a value and its result. Default: 0.

    Example:
        >>> import lucid
        >>> from lucid.distributions import SoftplusTransform
        >>> transform, x = SoftplusTransform(), lucid.tensor([0.5, 1.0])
        >>> y = transform(x)
        >>> y, transform.inv(y), transform.log_abs_det_jacobian(x, y)
        (tensor([0.9741, 1.3133]), tensor([0.5000, 1.0000]), tensor([-0.4741, -0.3133]))
    """

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x)


class AbsTransform(Transform):
    """The function |x|: two numbers have each value, so it has an inverse but no density.

    The inverse is the positive one of the two; `log_abs_det_jacobian` raises `MissingRuleError`.

    Args:
        cache_size: 1 keeps the last pair of a value and its result. Default: 0.

    Example:
        >>> import lucid
        >>> from lucid.distributions import AbsTransform
        >>> transform, x = AbsTransform(), lucid.tensor([-1.0, 2.0])
        >>> y = transform(x)
        >>> y, transform.inv(y)
        (tensor([1., 2.]), tensor([1., 2.]))
    """

    domain = constraints.real
    codomain = constraints.positive
    bijective = False

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class SoftmaxTransform(Transform):
    """The softmax over the last axis: it has an inverse, up to a constant, but no density.

    The inverse is the logarithm; `log_abs_det_jacobian` raises `MissingRuleError`.

    Args:
        cache_size: 1 keeps the last pair of a value and its result. Default: 0.

    Example:
        >>> import lucid
        >>> from lucid.distributions import SoftmaxTransform
        >>> transform, x = SoftmaxTransform(), lucid.tensor([0.0, 1.0])
        >>> y = transform(x)
        >>> y, transform.inv(y)
        (tensor([0.2689, 0.7311]), tensor([-1.3133, -0.3133]))
    """

    event_dim = 1
    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = False

    def _call(self, x: Tensor) -> Tensor:
        return F.softmax(x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class StickBreakingTransform(Transform):
    """n numbers to n + 1 parts of a stick: each number breaks a part off the rest.

    Zeros make equal parts. Shapes: (…, n) to (…, n + 1), whose sum is 1.

    Args:
        cache_size: 1 keeps the last pair of a value and its result. Default: 0.

    Example:
        >>> import lucid
        >>> from lucid.distributions import StickBreakingTransform
        >>> transform, x = StickBreakingTransform(), lucid.tensor([0.5, 1.0])
        >>> y = transform(x)
        >>> y, transform.inv(y), transform.log_abs_det_jacobian(x, y)
        (tensor([0.4519, 0.4007, 0.1474]), tensor([0.5000, 1.0000]), tensor(-3.6234))
    """

    event_dim = 1
    domain = constraints.real_vector
    codomain = constraints.simplex

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] - 1)

    @staticmethod
    def _moved(x: Tensor) -> Tensor:
        """The numbers in such a way that zero breaks off its share of what is left."""
        return x - lucid.arange(x.shape[-1], 0, -1, dtype=x.dtype).log()

    def _call(self, x: Tensor) -> Tensor:
        info = lucid.finfo(x.dtype)
        part = self._moved(x).sigmoid().clamp(float(info.tiny), 1 - float(info.eps))
        rest = (1 - part).cumprod(-1)
        found: Tensor = F.pad(part, (0, 1), value=1.0) * F.pad(rest, (1, 0), value=1.0)
        return found

    def _inverse(self, y: Tensor) -> Tensor:
        broken = y[..., :-1]
        rest = (1 - broken.cumsum(-1)).clamp(min=float(lucid.finfo(y.dtype).tiny))
        left = lucid.arange(broken.shape[-1], 0, -1, dtype=y.dtype)
        found: Tensor = broken.log() - rest.log() + left.log()
        return found

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        moved = self._moved(x)
        return (-moved + F.logsigmoid(moved) + y[..., :-1].log()).sum(-1)


class IndependentTransform(Transform):
    """A transform whose last `reinterpreted_batch_ndims` axes are transformed together.

    Values are those of the base; the logarithm of the slope is summed over these axes.

    Args:
        base_transform: of the elements.
        reinterpreted_batch_ndims: how many axes.
        cache_size: 1 keeps the last pair of a value and its result. Default: 0.

    Example:
        >>> import lucid
        >>> from lucid.distributions import ExpTransform, IndependentTransform
        >>> transform, x = IndependentTransform(ExpTransform(), 1), lucid.tensor([0.0, 1.0])
        >>> y = transform(x)
        >>> y, transform.inv(y), transform.log_abs_det_jacobian(x, y)
        (tensor([1.0000, 2.7183]), tensor([0.0000, 1.0000]), tensor(1.))
    """

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        if cache_size:
            base_transform = base_transform.with_cache(cache_size)
        self.base_transform = base_transform
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.event_dim = base_transform.event_dim + reinterpreted_batch_ndims
        self.bijective = base_transform.bijective
        if base_transform.codomain is not None:
            self.codomain = constraints.independent(
                base_transform.codomain, reinterpreted_batch_ndims
            )

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self.base_transform.inverse_shape(shape)

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        slope = self.base_transform.log_abs_det_jacobian(x, y)
        axes = tuple(range(-self.reinterpreted_batch_ndims, 0))
        return slope.sum(axes) if axes else slope


frames.edge_of_module(__name__)
