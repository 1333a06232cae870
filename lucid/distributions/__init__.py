"""Distributions to draw from and to fit: `lucid.distributions`.

Args:
    dim: the axis.
"""

import sys
import types

from lucid.distributions import constraints as constraints, transforms as transforms
from lucid.distributions.angles import *
from lucid.distributions.composed import *
from lucid.distributions.constraint_registry import *
from lucid.distributions.discrete import *
from lucid.distributions.distribution import *
from lucid.distributions.kl import *
from lucid.distributions.location import *
from lucid.distributions.positive import *
from lucid.distributions.transforms import *
from lucid.functions import border
from lucid.ir import frames

vars()["__all__"] = border.public_names(vars(), "constraints", "transforms")

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
        module = types.ModuleType(
            f"{__name__}.{name}", f"`{member.__name__}`, as PyTorch places it."
        )
        setattr(module, member.__name__, member)
        sys.modules[module.__name__] = module
        globals()[name] = module


_make_modules()

border.constructors_at_border(dict(vars()), "lucid.distributions.")


frames.edge_of_module(__name__)
