"""Special functions under the names of `torch.special`."""

from lucid.functions.elementwise import erf, exp2, expm1, log1p, round
from lucid.functions.elementwise import sigmoid as expit
from lucid.functions.gamma import digamma, entr, erfinv, log_ndtr, ndtr, ndtri, polygamma
from lucid.functions.gamma import digamma as psi
from lucid.functions.gamma import lgamma as gammaln
from lucid.functions.gamma import mvlgamma as multigammaln
from lucid.functions.reduction import log_softmax, logsumexp, softmax
from lucid.functions.samples import xlog1py
from lucid.functions.special import erfc, logit, xlogy
from lucid.functions.trigonometry import sinc

__all__ = [
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammaln",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "sinc",
    "softmax",
    "xlog1py",
    "xlogy",
]
