"""Distributions of matrices: of covariances, and of the factors of correlations."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import lucid
from lucid import linalg
from lucid.distributions import constraints
from lucid.distributions.composed import MultivariateNormal, OfCovariance, factor_of
from lucid.distributions.distribution import Distribution, Shape, parameters_of
from lucid.distributions.positive import Beta, Chi2
from lucid.docstrings import like
from lucid.functions.arguments import integer, typed
from lucid.ir.errors import OptionError, ShapeError
from lucid.tensor.tensor import Tensor

__all__ = ["LKJCholesky", "Wishart"]


@like(MultivariateNormal)
class Wishart(OfCovariance):
    """Sums of x x' over `df` normal vectors x of mean 0: what a covariance is estimated from.

    Density: in proportion to det(X)^((df - n - 1) / 2) exp(-tr(V^-1 X) / 2), with the covariance V
    of the vectors; `df` needn't be whole. Draws are made by Bartlett's decomposition.

    Reference: Bartlett, "On the theory of statistical regression", 1933.

    Shapes: `df` of (…) and a matrix of (…, n, n), which broadcast, give draws of (n, n).

    Args:
        df: the degrees of freedom, above n - 1.

    Raises:
        ShapeError: the matrices aren't square.

    >>> found = lucid.distributions.Wishart(4.0, scale_tril=lucid.eye(2))
    >>> found.mean.diagonal(), found.log_prob(lucid.eye(2))
    (tensor([4., 4.]), tensor(-4.2242))
    """

    support = constraints.positive_definite
    _formulas: ClassVar = {
        "mean": lambda d: _over_matrices(d.df) * d.covariance_matrix,
        "mode": lambda d: _over_matrices(_above_zero(d._surplus())) * d.covariance_matrix,
    }

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: Any = None,
    ) -> None:
        factor = factor_of(covariance_matrix, precision_matrix, scale_tril)
        if factor.ndim < 2 or factor.shape[-1] != factor.shape[-2]:
            raise ShapeError(f"Wishart: matrices must be (…, n, n){typed(scale_tril=factor)}")
        found = df if isinstance(df, Tensor) else lucid.tensor(df, dtype=factor.dtype)
        batch = tuple(lucid.broadcast_shapes(tuple(found.shape), tuple(factor.shape[:-2])))
        size = factor.shape[-1]
        self.df = found.expand(*batch)
        self.scale_tril = factor.expand(*batch, size, size)
        super().__init__(batch, (size, size), validate_args)

    @property
    def arg_constraints(self) -> Any:  # type: ignore[override]
        """What the parameters must be, by their names."""
        freedom = constraints.greater_than(self._event_shape[0] - 1)
        return {"df": freedom, "scale_tril": constraints.lower_cholesky}

    @property
    def variance(self) -> Tensor:
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        products = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return _over_matrices(self.df) * (covariance**2 + products)

    def _surplus(self) -> Tensor:
        """How far `df` is above n + 1, from where on there is a mode."""
        return self.df - self._event_shape[0] - 1

    def _log_scale(self) -> Tensor:
        """Half the logarithm of det(2 V)."""
        logs = self.scale_tril.diagonal(dim1=-2, dim2=-1).log()
        return logs.sum(-1) + self._event_shape[0] / 2 * math.log(2)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape, dtype = self._extended_shape(sample_shape), self.df.dtype
        freedom = self.df.unsqueeze(-1) - lucid.arange(shape[-1], dtype=dtype)
        lengths = Chi2(freedom, validate_args=False).rsample(sample_shape).sqrt()
        below = lucid.randn(shape, dtype=dtype).tril(-1)
        root = self.scale_tril @ (below + lucid.diag_embed(lengths))
        return root @ root.mT

    def _log_prob(self, value: Tensor) -> Tensor:
        size = self._event_shape[0]
        trace = lucid.cholesky_solve(value, self.scale_tril).diagonal(dim1=-2, dim2=-1).sum(-1)
        norm = self.df * self._log_scale() + lucid.mvlgamma(self.df / 2, size)
        return self._surplus() / 2 * linalg.slogdet(value).logabsdet - trace / 2 - norm

    def entropy(self) -> Tensor:
        size, half = self._event_shape[0], self.df / 2
        return (
            (size + 1) * self._log_scale()
            + lucid.mvlgamma(half, size)
            - self._surplus() / 2 * mvdigamma(half, size)
            + size * half
        )


@like(Distribution)
class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices, whose determinant to a power is their density.

    The density of the correlations is in proportion to det^(concentration - 1): all alike at 1,
    nearer to the identity above. Draws are made by the onion method, without gradients.

    Reference: Lewandowski, Kurowicka and Joe, "Generating random correlation matrices based on
    vines and extended onion method", 2009.

    Shapes: a concentration of (…) gives draws of (dim, dim), lower triangular with rows of length
    1.

    Args:
        dim: the size of the matrices, at least 2.
        concentration: above 0.

    Raises:
        OptionError: a smaller `dim`, or a concentration out of range, where that is checked.

    >>> found = lucid.distributions.LKJCholesky(3, 0.5)
    >>> found.event_shape, found.log_prob(lucid.eye(3))
    (lucid.Size([3, 3]), tensor(-2.5310))
    """

    arg_constraints: ClassVar = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: Any = None) -> None:
        self.dim = integer(dim, "LKJCholesky", "dim")
        if self.dim < 2:
            raise OptionError(f"LKJCholesky: dim must be at least 2, not {self.dim}")
        (self.concentration,) = parameters_of(concentration)
        super().__init__(self.concentration.shape, (self.dim, self.dim), validate_args)

    def _sampled(self, sample_shape: Shape) -> Tensor:
        shape, dtype = self._extended_shape(sample_shape), self.concentration.dtype
        # Halves of a row's elements before the diagonal. (PyTorch takes 1/2, 3/2, 5/2 …, whose
        # draws have not the density that both say.) The first row has none.
        halves = 0.5 * lucid.arange(self.dim, dtype=dtype).clamp(min=1)
        rest = self.concentration.unsqueeze(-1) + 0.5 * (self.dim - 1) - halves
        squares = Beta(halves, rest, validate_args=False).sample(sample_shape)
        directions = lucid.randn(shape, dtype=dtype).tril(-1)
        tiny = float(lucid.finfo(dtype).tiny)
        lengths = directions.norm(dim=-1, keepdim=True).clamp(min=tiny)
        below = squares.sqrt().unsqueeze(-1) * directions / lengths
        diagonal = (1 - (below**2).sum(-1)).clamp(min=tiny).sqrt()
        return below + lucid.diag_embed(diagonal)

    def _log_prob(self, value: Tensor) -> Tensor:
        diagonal = value.diagonal(dim1=-2, dim2=-1)[..., 1:]
        powers = lucid.arange(self.dim - 2, -1, -1, dtype=self.concentration.dtype)
        powers = powers + 2 * (self.concentration - 1).unsqueeze(-1)
        below = self.dim - 1
        top = self.concentration + 0.5 * below
        norm = (
            0.5 * below * math.log(math.pi)
            + lucid.mvlgamma(top - 0.5, below)
            - below * lucid.lgamma(top)
        )
        found: Tensor = (powers * diagonal.log()).sum(-1) - norm
        return found


def mvdigamma(x: Tensor, size: int) -> Tensor:
    """The derivative of `mvlgamma`."""
    halves = lucid.arange(size, dtype=x.dtype) / 2
    return lucid.digamma(x.unsqueeze(-1) - halves).sum(-1)


def _over_matrices(x: Tensor) -> Tensor:
    return x.unsqueeze(-1).unsqueeze(-1)


def _above_zero(x: Tensor) -> Tensor:
    """The numbers above 0, and NaN elsewhere."""
    return lucid.where(x > 0, x, math.nan)
