"""The error function in NumPy, within 1 ulp in float64.

Reference: s_erf.c of fdlibm (Sun Microsystems, 1993), whose rational approximations these are.
"""

from __future__ import annotations

import numpy as np

_NEAR_ZERO = (
    (1.28379167095512558561e-01, -3.25042107247001499370e-01, -2.84817495755985104766e-02,
     -5.77027029648944159157e-03, -2.37630166566501626084e-05),
    (1.0, 3.97917223959155352819e-01, 6.50222499887672944485e-02, 5.08130628187576562776e-03,
     1.32494738004321644526e-04, -3.96022827877536812320e-06),
)  # fmt: skip
_NEAR_ONE = (
    (-2.36211856075265944077e-03, 4.14856118683748331666e-01, -3.72207876035701323847e-01,
     3.18346619901161753674e-01, -1.10894694282396677476e-01, 3.54783043256182359371e-02,
     -2.16637559486879084300e-03),
    (1.0, 1.06420880400844228286e-01, 5.40397917702171048937e-01, 7.18286544141962662868e-02,
     1.26171219808761642112e-01, 1.36370839120290507362e-02, 1.19844998467991074170e-02),
)  # fmt: skip
_MIDDLE = (
    (-9.86494403484714822705e-03, -6.93858572707181764372e-01, -1.05586262253232909814e+01,
     -6.23753324503260060396e+01, -1.62396669462573470355e+02, -1.84605092906711035994e+02,
     -8.12874355063065934246e+01, -9.81432934416914548592e+00),
    (1.0, 1.96512716674392571292e+01, 1.37657754143519042600e+02, 4.34565877475229228821e+02,
     6.45387271733267880336e+02, 4.29008140027567833386e+02, 1.08635005541779435134e+02,
     6.57024977031928170135e+00, -6.04244152148580987438e-02),
)  # fmt: skip
_FAR = (
    (-9.86494292470009928597e-03, -7.99283237680523006574e-01, -1.77579549177547519889e+01,
     -1.60636384855821916062e+02, -6.37566443368389627722e+02, -1.02509513161107724954e+03,
     -4.83519191608651397019e+02),
    (1.0, 3.03380607434824582924e+01, 3.25792512996573918826e+02, 1.53672958608443695994e+03,
     3.19985821950859553908e+03, 2.55305040643316442583e+03, 4.74528541206955367215e+02,
     -2.24409524465858183362e+01),
)  # fmt: skip
_AT_ONE = 8.45062911510467529297e-01  # erf(1), rounded to a float32


def erf(x: np.ndarray) -> np.ndarray:
    """Return erf(x), in the dtype of `x`; it is computed in float64, and a NaN stays a NaN."""
    exact = x.astype(np.float64).ravel()
    size = np.abs(exact)
    result = np.copysign(1.0, exact)  # what it rounds to beyond 6
    result[np.isnan(exact)] = np.nan
    for low, high, approximation in _PIECES:
        inside = (size >= low) & (size < high)
        if inside.any():
            result[inside] = np.copysign(approximation(size[inside]), exact[inside])
    return result.reshape(x.shape).astype(x.dtype)


def _ratio(x: np.ndarray, terms: tuple[tuple[float, ...], tuple[float, ...]]) -> np.ndarray:
    """Evaluate two polynomials, given from the constant term up, and divide them."""
    above, below = (np.zeros_like(x) for _ in terms)
    for total, coefficients in zip((above, below), terms, strict=True):
        for coefficient in reversed(coefficients):
            total *= x
            total += coefficient
    quotient: np.ndarray = above / below
    return quotient


def _near_zero(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = x + x * _ratio(x * x, _NEAR_ZERO)
    return result


def _near_one(x: np.ndarray) -> np.ndarray:
    return _AT_ONE + _ratio(x - 1, _NEAR_ONE)


def _tail(x: np.ndarray, terms: tuple[tuple[float, ...], tuple[float, ...]]) -> np.ndarray:
    """1 - e^(-x² - 0.5625 + R/S)/x, with x² taken apart so that its rounding doesn't show."""
    head = x.astype(np.float32).astype(np.float64)
    rest = (head - x) * (head + x) + _ratio(1 / (x * x), terms)
    result: np.ndarray = 1 - np.exp(-head * head - 0.5625) * np.exp(rest) / x
    return result


_PIECES = (
    (0.0, 0.84375, _near_zero),
    (0.84375, 1.25, _near_one),
    (1.25, 1 / 0.35, lambda x: _tail(x, _MIDDLE)),
    (1 / 0.35, 6.0, lambda x: _tail(x, _FAR)),
)
