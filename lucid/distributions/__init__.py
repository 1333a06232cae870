"""Distributions to draw from and to fit: `lucid.distributions`.

Args:
    dim: the axis.
"""

import re
import sys
import types
import typing

from lucid import ported
from lucid.distributions import constraints as constraints, transforms as transforms
from lucid.distributions.angles import *
from lucid.distributions.composed import *
from lucid.distributions.constraint_registry import *
from lucid.distributions.discrete import *
from lucid.distributions.distribution import *
from lucid.distributions.kl import *
from lucid.distributions.location import *
from lucid.distributions.matrices import *
from lucid.distributions.positive import *
from lucid.distributions.transforms import *
from lucid.functions import border
from lucid.ir import frames

vars()["__all__"] = border.public_names(vars(), "constraints", "transforms")

# PyTorch has a module for each distribution, from which programs import it.
_MODULES = {
    FisherSnedecor: "fishersnedecor",
    LKJCholesky: "lkj_cholesky",
    LogitRelaxedBernoulli: "relaxed_bernoulli",
    LowRankMultivariateNormal: "lowrank_multivariate_normal",
    OneHotCategoricalStraightThrough: "one_hot_categorical",
    RelaxedOneHotCategorical: "relaxed_categorical",
    StudentT: "studentT",
}


def _make_modules() -> None:
    made: dict[str, types.ModuleType] = {}
    for member in [globals()[name] for name in globals()["__all__"]]:
        if isinstance(member, type) and issubclass(member, Distribution):
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", member.__name__).lower()
            name = _MODULES.get(member, words)
            if name not in made:
                if f"{__name__}.{name}" in sys.modules:  # a file of this folder
                    continue
                doc = f"`{member.__name__}`, as PyTorch places it."
                made[name] = types.ModuleType(f"{__name__}.{name}", doc)
            setattr(made[name], member.__name__, member)
    sys.modules.update({module.__name__: module for module in made.values()})
    globals().update(made)


_make_modules()

border.constructors_at_border(dict(vars()), "lucid.distributions.")


frames.edge_of_module(__name__, "constraints", "transforms", "constraint_registry")


def __getattr__(name: str) -> typing.Any:
    return ported.submodule(__name__, name)
