"""Special functions under the names of `torch.special`."""

import sys

from lucid.functions import border
from lucid.functions.bessel import (
    bessel_j0,
    bessel_j1,
    erfc,
    erfcx,
    i0,
    i0 as modified_bessel_i0,
    i0e,
    i1,
    i1 as modified_bessel_i1,
    i1e,
)
from lucid.functions.elementwise import round
from lucid.functions.gamma import (
    digamma,
    digamma as psi,
    entr,
    erfinv,
    igamma as gammainc,
    igammac as gammaincc,
    lgamma as gammaln,
    log_ndtr,
    mvlgamma as multigammaln,
    ndtr,
    ndtri,
    polygamma,
    zeta,
)
from lucid.functions.reduction import log_softmax, logsumexp, softmax
from lucid.functions.special import logit, xlog1py, xlogy
from lucid.functions.transcendental import erf, exp2, expm1, log1p, sigmoid as expit, sinc
from lucid.ir import frames

__all__ = [
    "bessel_j0", "bessel_j1", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit",
    "expm1", "gammainc", "gammaincc", "gammaln", "i0", "i0e", "i1", "i1e", "log1p", "log_ndtr",
    "log_softmax", "logit", "logsumexp", "modified_bessel_i0", "modified_bessel_i1", "multigammaln",
    "ndtr", "ndtri", "polygamma", "psi", "round", "sinc", "softmax", "xlog1py", "xlogy", "zeta",
]  # fmt: skip

border.enter_border(sys.modules[__name__], dict(vars()), __name__)
frames.edge_of_module(__name__)
