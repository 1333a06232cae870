"""Distributions to draw from and to fit: `lucid.distributions`.

Args:
    dim: the axis.
"""

import re
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
from lucid.distributions.matrices import *
from lucid.distributions.positive import *
from lucid.distributions.transforms import *
from lucid.functions import border
from lucid.ir import frames

vars()["__all__"] = border.public_names(vars(), "constraints", "transforms")

# PyTorch has a module for each distribution, from which programs import it.
_MODULES = {
    "fishersnedecor": FisherSnedecor, "lkj_cholesky": LKJCholesky,
    "lowrank_multivariate_normal": LowRankMultivariateNormal,
    "relaxed_categorical": RelaxedOneHotCategorical, "studentT": StudentT,
}  # fmt: skip


def _make_modules() -> None:
    named = {each: name for name, each in _MODULES.items()}
    for member in [globals()[name] for name in globals()["__all__"]]:
        if isinstance(member, type) and issubclass(member, Distribution):
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", member.__name__).lower()
            name = named.get(member, words)
            if f"{__name__}.{name}" in sys.modules:  # a file of this folder
                continue
            doc = f"`{member.__name__}`, as PyTorch places it."
            module = types.ModuleType(f"{__name__}.{name}", doc)
            setattr(module, member.__name__, member)
            sys.modules[module.__name__] = module
            globals()[name] = module


_make_modules()

border.constructors_at_border(dict(vars()), "lucid.distributions.")


frames.edge_of_module(__name__)
