"""Distributions made of others: of vectors, of mixtures, of transformed draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import lucid
from lucid import linalg
from lucid.distributions import constraints
from lucid.distributions.constraints import positive, real_vector
from lucid.distributions.discrete import Categorical
from lucid.distributions.distribution import Distribution, Shape, filled, sum_rightmost
from lucid.distributions.location import Normal
from lucid.distributions.transforms import ComposeTransform, StickBreakingTransform, Transform
from lucid.docstrings import like
from lucid.functions.arguments import typed
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, OptionError, ShapeError
from lucid.tensor.tensor import Tensor

__all__ = [
    "Independent", "LogisticNormal", "LowRankMultivariateNormal", "MixtureSameFamily",
    "MultivariateNormal", "TransformedDistribution",
]  # fmt: skip


@like(Distribution)
class Independent(Distribution):
    """A distribution whose last `reinterpreted_batch_ndims` batch axes are parts of one draw.

    `log_prob` and `entropy` are the sums over these axes.

    Args:
        base_distribution: of the parts.
        reinterpreted_batch_ndims: how many of its batch axes, counted from the last.

    Raises:
        OptionError: the base hasn't so many batch axes.

    >>> base = lucid.distributions.Normal(lucid.zeros(3, 2), 1.0)
    >>> found = lucid.distributions.Independent(base, 1)
    >>> found.batch_shape, found.event_shape, found.log_prob(lucid.zeros(3, 2))
    (lucid.Size([3]), lucid.Size([2]), tensor([-1.8379, -1.8379, -1.8379]))
    """

    _formulas: ClassVar = {
        "mode": lambda d: d.base_dist.mode,
        "mean": lambda d: d.base_dist.mean,
        "variance": lambda d: d.base_dist.variance,
        "entropy": lambda d: sum_rightmost(d.base_dist.entropy(), d.reinterpreted_batch_ndims),
    }

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: Any = None,
    ) -> None:
        batch = base_distribution.batch_shape
        if reinterpreted_batch_ndims > len(batch):
            count = reinterpreted_batch_ndims
            raise OptionError(f"reinterpreted_batch_ndims={count} of a batch of {len(batch)} axes")
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        kept = len(batch) - reinterpreted_batch_ndims
        super().__init__(
            batch[:kept], (*batch[kept:], *base_distribution.event_shape), validate_args
        )

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def support(self) -> Any:
        found, count = self.base_dist.support, self.reinterpreted_batch_ndims
        return constraints.independent(found, count) if found and count else found

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        """Return the distribution with its parameters expanded to `batch_shape`."""
        parts = self._event_shape[: self.reinterpreted_batch_ndims]
        base = self.base_dist.expand((*batch_shape, *parts))
        return filled(
            _instance, Independent(base, self.reinterpreted_batch_ndims, self._validate_args)
        )

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_enumerate_support and not self.reinterpreted_batch_ndims

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims:
            return super().enumerate_support(expand)
        return self.base_dist.enumerate_support(expand)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class OfCovariance(Distribution):
    """A distribution about normal vectors, by the Cholesky factor of their covariance."""

    scale_tril: Tensor

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariances of the normal vectors."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariances."""
        return lucid.cholesky_inverse(self.scale_tril)


@like(Distribution)
class MultivariateNormal(OfCovariance):
    """Normal vectors with mean `loc`, by a covariance, its inverse, or its Cholesky factor.

    Shapes: `loc` of (…, n) and a matrix of (…, n, n), which broadcast, give draws of (n,).

    Args:
        loc: the mean.
        covariance_matrix: symmetric and positive definite.
        precision_matrix: the inverse of the covariance.
        scale_tril: the covariance's Cholesky factor, lower triangular with a positive diagonal.

    Raises:
        OptionError: not exactly one of the three is given, or, where that is checked, the factor
            isn't one.
        LinAlgError: a covariance or precision that isn't positive definite.

    >>> from lucid.distributions import MultivariateNormal
    >>> found = MultivariateNormal(lucid.zeros(2), lucid.tensor([[2.0, 1.0], [1.0, 2.0]]))
    >>> found.variance, found.log_prob(lucid.zeros(2))
    (tensor([2.0000, 2.0000]), tensor(-2.3872))
    """

    arg_constraints: ClassVar = {"loc": real_vector, "scale_tril": constraints.lower_cholesky}
    support = real_vector
    _formulas: ClassVar = {
        "mode": lambda d: d.loc,
        "mean": lambda d: d.loc,
        "variance": lambda d: (d.scale_tril**2).sum(-1),
    }

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: Any = None,
    ) -> None:
        factor = factor_of(covariance_matrix, precision_matrix, scale_tril)
        size = loc.shape[-1]
        batch = tuple(lucid.broadcast_shapes(tuple(loc.shape[:-1]), tuple(factor.shape[:-2])))
        self.loc = loc.expand(*batch, size)
        self.scale_tril = factor.expand(*batch, size, size)
        super().__init__(batch, (size,), validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        eps = lucid.randn(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + (self.scale_tril @ eps.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self) -> Tensor:
        return self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def _log_prob(self, value: Tensor) -> Tensor:
        size = self._event_shape[0]
        distance = (value - self.loc).unsqueeze(-1)
        white = linalg.solve_triangular(self.scale_tril, distance, upper=False).squeeze(-1)
        square = (white**2).sum(-1)
        return -0.5 * (size * math.log(2 * math.pi) + square) - self._half_log_det()

    def entropy(self) -> Tensor:
        size = self._event_shape[0]
        return 0.5 * size * (1 + math.log(2 * math.pi)) + self._half_log_det()


def factor_of(
    covariance_matrix: Tensor | None, precision_matrix: Tensor | None, scale_tril: Tensor | None
) -> Tensor:
    """The Cholesky factor of a covariance that one of three says."""
    given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
    if len(given) != 1:
        raise OptionError("give one of covariance_matrix, precision_matrix and scale_tril")
    if scale_tril is not None:
        return scale_tril
    if covariance_matrix is not None:
        return linalg.cholesky(covariance_matrix)
    return linalg.cholesky(linalg.inv(given[0]))


@like(Distribution)
class MixtureSameFamily(Distribution):
    """One of the components along the last batch axis, chosen by a `Categorical`.

    Shapes: components with a batch of (…, k) and weights of k categories with a batch of (…) give a
    batch of (…). Draws have no gradient.

    Args:
        mixture_distribution: which component is chosen how often.
        component_distribution: the components, all in one.

    Raises:
        ArgumentError: `mixture_distribution` is no `Categorical`.
        ShapeError: it has more or fewer categories than there are components.

    >>> from lucid.distributions import Categorical, MixtureSameFamily, Normal
    >>> weights = Categorical(probs=lucid.tensor([1.0, 3.0]))
    >>> found = MixtureSameFamily(weights, Normal(lucid.tensor([0.0, 4.0]), 1.0))
    >>> found.mean, found.log_prob(lucid.tensor(4.0))
    (tensor(3.), tensor(-1.2065))
    """

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: Any = None,
    ) -> None:
        chooser: Any = mixture_distribution
        if not isinstance(chooser, Categorical):
            given = type(chooser).__name__
            raise ArgumentError(f"MixtureSameFamily: a Categorical must choose, not {given}")
        count = mixture_distribution.param_shape[-1]
        if component_distribution.batch_shape[-1:] != (count,):
            shape = list(component_distribution.batch_shape)
            raise ShapeError(f"MixtureSameFamily: {count} components, but batch_shape {shape}")
        self.mixture_distribution = mixture_distribution
        self.component_distribution = component_distribution
        batch = component_distribution.batch_shape[:-1]
        super().__init__(batch, component_distribution.event_shape, validate_args)

    @property
    def support(self) -> Any:
        return self.component_distribution.support

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        """Return the distribution with its parameters expanded to `batch_shape`."""
        count = self.component_distribution.batch_shape[-1]
        components = self.component_distribution.expand((*batch_shape, count))
        weights = self.mixture_distribution.expand(batch_shape)
        return filled(_instance, MixtureSameFamily(weights, components, self._validate_args))

    def _weights(self) -> Tensor:
        probs = self.mixture_distribution.probs
        return probs.reshape(*probs.shape, *(1,) * len(self._event_shape))

    @property
    def mean(self) -> Tensor:
        return (self._weights() * self.component_distribution.mean).sum(-1 - len(self._event_shape))

    @property
    def variance(self) -> Tensor:
        axis, weights = -1 - len(self._event_shape), self._weights()
        inner = (weights * self.component_distribution.variance).sum(axis)
        distance = self.component_distribution.mean - self.mean.unsqueeze(axis)
        return inner + (weights * distance**2).sum(axis)

    def log_prob(self, value: Tensor) -> Tensor:
        axis = -1 - len(self._event_shape)
        each = self.component_distribution.log_prob(value.unsqueeze(axis))
        return (each + self.mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def _cdf(self, value: Tensor) -> Tensor:
        each = self.component_distribution.cdf(value.unsqueeze(-1))
        return (each * self.mixture_distribution.probs).sum(-1)

    def _sampled(self, sample_shape: Shape) -> Tensor:
        axis = len(sample_shape) + len(self._batch_shape)
        chosen = self.mixture_distribution.sample(sample_shape)
        every = self.component_distribution.sample(sample_shape)
        index = chosen.reshape(*chosen.shape, *(1,) * (1 + len(self._event_shape)))
        shape = list(every.shape)
        shape[axis] = 1
        picked: Tensor = ops.gather(every, index.expand(*shape), axis=axis)
        return picked.squeeze(axis)


@like(Distribution)
class TransformedDistribution(Distribution):
    """The distribution of a transformed draw; the density follows by the change of variables.

    Args:
        base_distribution: of what is transformed.
        transforms: one `Transform`, or several that are applied in turn.

    Raises:
        MissingRuleError: in `log_prob`, of a transform without density; in `cdf` and `icdf`, of one
            that doesn't keep or turn around the order of numbers.
        ShapeError: values have fewer axes than are transformed together.

    >>> from lucid.distributions import ExpTransform, Normal, TransformedDistribution
    >>> found = TransformedDistribution(Normal(0.0, 1.0), ExpTransform())
    >>> found.support, found.log_prob(lucid.tensor(2.0))
    (greater_than(greater than 0), tensor(-1.8523))
    """

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: Any = None,
    ) -> None:
        self.base_dist = base_distribution
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        whole = ComposeTransform(self.transforms)
        batch, event = base_distribution.batch_shape, base_distribution.event_shape
        if len(batch) + len(event) < whole.event_dim:
            raise ShapeError(
                f"TransformedDistribution: values of shape {[*batch, *event]} have fewer axes than "
                f"the {whole.event_dim} that are transformed together\n"
                "hint: base_distribution.expand([n]) draws n at a time"
            )
        more = max(whole.event_dim - len(event), 0)
        kept = len(batch) - more
        self._base_event = len(event)
        self._moved = tuple(batch[kept:])
        shape = whole.forward_shape((*batch, *event))
        super().__init__(batch[:kept], shape[kept:], validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        found, more = self.transforms[-1].codomain, len(self._event_shape)
        more -= 0 if found is None else found.event_dim
        return constraints.independent(found, more) if found and more > 0 else found

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        """Return the distribution with its parameters expanded to `batch_shape`."""
        base = self.base_dist.expand((*batch_shape, *self._moved))
        return filled(
            _instance, TransformedDistribution(base, self.transforms, self._validate_args)
        )

    def _sampled(self, sample_shape: Shape) -> Tensor:
        x = self.base_dist.sample(sample_shape)
        for transform in self.transforms:
            x = transform(x)
        return x

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        x = self.base_dist.rsample(sample_shape)
        for transform in self.transforms:
            x = transform(x)
        return x

    def _log_prob(self, value: Tensor) -> Tensor:
        axes, y = len(self._event_shape), value
        total: float | Tensor = 0.0
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            slope = transform.log_abs_det_jacobian(x, y)
            axes -= transform._added_axes
            total = total - sum_rightmost(slope, axes - transform.event_dim)
            y = x
        density = sum_rightmost(self.base_dist.log_prob(y), axes - self._base_event)
        return total + density

    def _cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._rising(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        value = self.base_dist.icdf(self._rising(value))
        for transform in self.transforms:
            value = transform(value)
        return value

    def _rising(self, probability: Tensor) -> Tensor:
        """A probability, or what is left of 1 where the transforms turn the order around."""
        sign = ComposeTransform(self.transforms).sign
        return (
            probability if isinstance(sign, int) and sign == 1 else sign * (probability - 0.5) + 0.5
        )


@like(Distribution)
class LowRankMultivariateNormal(Distribution):
    """Normal vectors whose covariance is `cov_factor @ cov_factor.mT + diag(cov_diag)`.

    Determinant and inverse cost what the rank says, not the size of the vectors.

    Shapes: `loc` and `cov_diag` of (…, n) and `cov_factor` of (…, n, rank), which broadcast, give
    draws of (n,).

    Args:
        loc: the mean.
        cov_factor: the factor of low rank.
        cov_diag: the variances that are added, above 0.

    Raises:
        ShapeError: the shapes don't fit.
        OptionError: a parameter is out of range, where that is checked.

    >>> from lucid.distributions import LowRankMultivariateNormal
    >>> found = LowRankMultivariateNormal(lucid.zeros(3), lucid.ones(3, 1), lucid.ones(3))
    >>> found.variance, found.log_prob(lucid.ones(3))
    (tensor([2., 2., 2.]), tensor(-3.8250))
    """

    arg_constraints: ClassVar = {
        "loc": real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(positive, 1),
    }
    support = real_vector
    _formulas: ClassVar = {
        "mean": lambda d: d.loc,
        "mode": lambda d: d.loc,
        "variance": lambda d: (d.cov_factor**2).sum(-1) + d.cov_diag,
    }

    def __init__(
        self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: Any = None
    ) -> None:
        size = loc.shape[-1] if loc.ndim else 0
        fit = cov_factor.ndim > 1 and cov_factor.shape[-2] == size and cov_diag.ndim > 0
        if not (fit and loc.ndim and cov_diag.shape[-1] == size):
            raise ShapeError(
                "LowRankMultivariateNormal: loc, cov_factor and cov_diag must be (…, n), "
                f"(…, n, rank) and (…, n)"
                f"{typed(loc=loc, cov_factor=cov_factor, cov_diag=cov_diag)}"
            )
        shapes = loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1]
        batch = tuple(lucid.broadcast_shapes(*map(tuple, shapes)))
        self.loc = loc.expand(*batch, size)
        self.cov_factor = cov_factor.expand(*batch, *cov_factor.shape[-2:])
        self.cov_diag = cov_diag.expand(*batch, size)
        super().__init__(batch, (size,), validate_args)

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariances."""
        return self.cov_factor @ self.cov_factor.mT + lucid.diag_embed(self.cov_diag)

    @property
    def scale_tril(self) -> Tensor:
        """The covariance's Cholesky factor."""
        return linalg.cholesky(self.covariance_matrix)

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariances."""
        white = linalg.solve_triangular(self._capacitance(), self._scaled().mT, upper=False)
        return lucid.diag_embed(1 / self.cov_diag) - white.mT @ white

    def _scaled(self) -> Tensor:
        return self.cov_factor / self.cov_diag.unsqueeze(-1)

    def _capacitance(self) -> Tensor:
        """The Cholesky factor of I + W' D^-1 W, by whose lemma (Woodbury) all is computed."""
        rank = self.cov_factor.shape[-1]
        inner = self.cov_factor.mT @ self._scaled()
        return linalg.cholesky(inner + lucid.eye(rank, dtype=inner.dtype))

    def _log_det(self, factor: Tensor) -> Tensor:
        diagonal = factor.diagonal(dim1=-2, dim2=-1)
        return 2 * diagonal.log().sum(-1) + self.cov_diag.log().sum(-1)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape, dtype = self._extended_shape(sample_shape), self.loc.dtype
        inner = lucid.randn((*shape[:-1], self.cov_factor.shape[-1]), dtype=dtype)
        low = (self.cov_factor @ inner.unsqueeze(-1)).squeeze(-1)
        return self.loc + low + self.cov_diag.sqrt() * lucid.randn(shape, dtype=dtype)

    def _log_prob(self, value: Tensor) -> Tensor:
        factor, distance = self._capacitance(), value - self.loc
        inner = self._scaled().mT @ distance.unsqueeze(-1)
        white = linalg.solve_triangular(factor, inner, upper=False).squeeze(-1)
        square = (distance**2 / self.cov_diag).sum(-1) - (white**2).sum(-1)
        size = self._event_shape[0]
        return -0.5 * (size * math.log(2 * math.pi) + self._log_det(factor) + square)

    def entropy(self) -> Tensor:
        size = self._event_shape[0] * (1 + math.log(2 * math.pi))
        return 0.5 * (size + self._log_det(self._capacitance()))


@like(Normal)
class LogisticNormal(TransformedDistribution):
    """Points of the simplex: normal vectors through `StickBreakingTransform`.

    Shapes: parameters of (…, n) give draws of (n + 1,), with a sum of 1.

    Args:
        loc: the mean of the normal vectors.
        scale: their standard deviation, above 0; it broadcasts with `loc`.

    >>> found = lucid.distributions.LogisticNormal(lucid.zeros(2), lucid.ones(2))
    >>> found.event_shape, found.log_prob(lucid.tensor([0.2, 0.3, 0.5]))
    (lucid.Size([3]), tensor(1.2980))
    """

    base_dist: Normal

    def __init__(self, loc: Any, scale: Any, validate_args: Any = None) -> None:
        base = Normal(loc, scale, validate_args)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the normal vectors."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """Their standard deviation."""
        return self.base_dist.scale
