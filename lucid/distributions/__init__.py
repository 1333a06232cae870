"""Distributions to draw from and to fit: `lucid.distributions`."""

import sys
from types import ModuleType

from lucid.distributions import constraints, transforms
from lucid.distributions.angles import ContinuousBernoulli, VonMises
from lucid.distributions.composed import (
    Independent,
    MixtureSameFamily,
    MultivariateNormal,
    TransformedDistribution,
)
from lucid.distributions.counts import Multinomial
from lucid.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    NegativeBinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Poisson,
)
from lucid.distributions.distribution import Distribution
from lucid.distributions.kl import kl_divergence, register_kl
from lucid.distributions.location import (
    Cauchy,
    Gumbel,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
    Uniform,
)
from lucid.distributions.positive import Beta, Chi2, Dirichlet, Exponential, Gamma, StudentT
from lucid.distributions.relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from lucid.distributions.tails import (
    FisherSnedecor,
    HalfCauchy,
    InverseGamma,
    Kumaraswamy,
    Pareto,
    Weibull,
)
from lucid.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    IndependentTransform,
    PowerTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
)
from lucid.distributions.vectors import LogisticNormal, LowRankMultivariateNormal
from lucid.functions.border import constructors_at_border
from lucid.ir import frames

__all__ = [
    "FisherSnedecor",
    "Kumaraswamy",
    "Multinomial",
    "StickBreakingTransform",
    "SoftplusTransform",
    "SoftmaxTransform",
    "IndependentTransform",
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "InverseGamma",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "MixtureSameFamily",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "SigmoidTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "constraints",
    "kl_divergence",
    "register_kl",
    "transforms",
]

# PyTorch has a module for each of these, from which programs import it.
_MODULES = {
    "normal": Normal,
    "log_normal": LogNormal,
    "categorical": Categorical,
    "bernoulli": Bernoulli,
    "multivariate_normal": MultivariateNormal,
    "uniform": Uniform,
    "beta": Beta,
    "gamma": Gamma,
    "independent": Independent,
    "transformed_distribution": TransformedDistribution,
    "one_hot_categorical": OneHotCategorical,
    "mixture_same_family": MixtureSameFamily,
}


def _make_modules() -> None:
    for name, member in _MODULES.items():
        module = ModuleType(f"{__name__}.{name}", f"`{member.__name__}`, as PyTorch places it.")
        setattr(module, member.__name__, member)
        sys.modules[module.__name__] = module
        globals()[name] = module


_make_modules()

constructors_at_border(dict(vars()), "lucid.distributions.")


frames.edge_of_module(__name__)
