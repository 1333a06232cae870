"""Distributions of vectors made of normal ones: of low rank, and on the simplex."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import lucid
from lucid import linalg
from lucid.distributions import constraints
from lucid.distributions.composed import TransformedDistribution
from lucid.distributions.distribution import Distribution, Shape
from lucid.distributions.location import Normal
from lucid.distributions.transforms import StickBreakingTransform
from lucid.docstrings import like
from lucid.functions.arguments import typed
from lucid.ir.errors import ShapeError
from lucid.tensor.tensor import Tensor

__all__ = ["LogisticNormal", "LowRankMultivariateNormal"]


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

    Example:
        >>> from lucid.distributions import LowRankMultivariateNormal
        >>> found = LowRankMultivariateNormal(lucid.zeros(3), lucid.ones(3, 1), lucid.ones(3))
        >>> found.variance, found.log_prob(lucid.ones(3))
        (tensor([2., 2., 2.]), tensor(-3.8250))
    """

    arg_constraints: ClassVar = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
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

    Example:
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
