"""Bessel functions of order 0 and 1 and what the error function leaves to 1, by Chebyshev series.

Those of Bessel functions were computed in 60 digits and cut off where a term is below 2e-17 of the
first. Reference: Clenshaw, "Chebyshev Series for Mathematical Functions", 1962.

Args:
    input: a tensor; integers and bools give the default float dtype.
"""

from __future__ import annotations

import math
from typing import Any

from lucid.docstrings import maps
from lucid.functions.elementwise import abs as absolute, choose, sign, sqrt
from lucid.functions.gradients import curve
from lucid.functions.tensors import Tensor
from lucid.functions.transcendental import cos, erf, exp, sin

__all__ = ["erfc", "i0"]


def series(t: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """The sum of c_k T_k(t) for -1 <= t <= 1.

    Reference: Clenshaw, "A note on the summation of Chebyshev series", 1955.
    """
    last: Any = 0.0
    total: Any = 0.0
    for coefficient in reversed(coefficients[1:]):
        last, total = total, coefficient + 2 * t * total - last
    found: Tensor = coefficients[0] + t * total - last
    return found


# (1 + 2 x) exp(x^2) erfc(x) by (x - 15/4) / (x + 15/4), for x >= 0.
# Reference: Shepherd and Laframboise, "Chebyshev Approximation of (1 + 2x)exp(x^2)erfc x", 1981.
_ERFCX = (
    1.1775789345674017, -0.004590054580646478, -0.08424913336651792, 0.05920993999819189,
    -0.026658668435305753, 0.009074997670705265, -0.002413163540417608, 0.0004907758365258086,
    -6.916973302501207e-05, 4.13902798607301e-06, 7.74038306619849e-07, -2.1886401049234397e-07,
    1.076499946567091e-08, 4.521959811218287e-09, -7.754400208831351e-10,
    -6.318088340886684e-11, 2.86879501093067e-11, 1.9455868545777347e-13, -9.65469674843344e-13,
    3.25254814814874e-14, 3.3478119482868056e-14, -1.864562880419313e-15,
    -1.2507950530688648e-15, 7.418235256624044e-17, 5.068148904796111e-17,
)  # fmt: skip


def _right(x: Tensor) -> Tensor:
    """exp(x^2) erfc(x) for x >= 0."""
    return series(1 - 7.5 / (x + 3.75), _ERFCX) / (1 + 2 * x)


@curve(lambda g, x, y: g * (2 * x * y - 2 / math.sqrt(math.pi)))
def erfcx(input: Tensor) -> Tensor:
    """Return `exp(input**2) erfc(input)`, which doesn't vanish on the right.

    It falls as 1 / (sqrt(pi) input) there, and overflows to inf far on the left.
    Reference: Shepherd and Laframboise, "Chebyshev Approximation of (1 + 2x)exp(x^2)erfc x", 1981.

    >>> lucid.special.erfcx(lucid.tensor([0.0, 1.0, 100.0]))
    tensor([1.0000, 0.4276, 0.0056])
    """
    is_right = input >= 0
    left = choose(is_right, 0.0, input)
    mirrored = 2 * exp(left * left) - _right(-left)
    return choose(is_right, _right(choose(is_right, input, 0.0)), mirrored)


@curve(lambda g, x: g * (-2 / math.sqrt(math.pi)) * exp(-x * x))
@maps("[0.0, 0.5, 5.0]", "[1.0000e+00, 4.7950e-01, 1.5375e-12]")
def erfc(input: Tensor) -> Tensor:
    """Return `1 - erf(input)`, a float in [0, 2], without loss where it is small."""
    is_right = input > 0.5
    right = choose(is_right, input, 0.5)
    return choose(is_right, exp(-right * right) * _right(right), 1 - erf(input))


_REACH = 8.0  # up to which the series near 0 holds

# exp(-x) I_n(x) / x^n for 0 <= x <= 8; sqrt(x) exp(-x) I_n(x) by 8 / x beyond.
_I0_NEAR = (
    0.33839763720473803, -0.3046826723431984, 0.17162090152220877, -0.09490109704804764,
    0.04930528423967071, -0.02373741480589947, 0.010546460394594998, -0.004324309995050576,
    0.0016394756169413357, -0.0005763755745385824, 0.00018850288509584165,
    -5.754195010082104e-05, 1.6448448070728896e-05, -4.4167383584587505e-06,
    1.1173875391201037e-06, -2.670793853940612e-07, 6.046995022541919e-08,
    -1.300025009986248e-08, 2.6598237246823866e-09, -5.189795601635263e-10,
    9.675809035373237e-11, -1.726826291441556e-11, 2.95505266312964e-12, -4.856446783111929e-13,
    7.676185498604936e-14, -1.1685332877993451e-14, 1.715391285555133e-15,
    -2.431279846547955e-16, 3.3307945188222384e-17,
)  # fmt: skip
_I0_FAR = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06,
    2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10,
    1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11,
    -1.7941785315068062e-12, 7.180124451383666e-13, 3.8527783827421426e-13,
    1.54008621752141e-14, -4.150569347287222e-14, -9.554846698828307e-15,
    3.8116806693526224e-15, 1.7725601330565263e-15, -3.425485619677219e-16,
    -2.8276239805165836e-16, 3.461222867697461e-17, 4.46562142029676e-17,
)  # fmt: skip
_I1_NEAR = (
    0.12629359322181682, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499,
    0.024726449030626516, -0.010564084894626197, 0.004156422944312888, -0.0015135724506312532,
    0.0005122859561685758, -0.00016176081582589674, 4.781565107550054e-05,
    -1.3273163656039436e-05, 3.4702513081376785e-06, -8.568720264695455e-07,
    2.0032947535521353e-07, -4.445059128796328e-08, 9.381537386495773e-09,
    -1.8872497517228294e-09, 3.625590281552117e-10, -6.663489723502027e-11,
    1.1736186298890901e-11, -1.9839743977649436e-12, 3.223793365945575e-13,
    -5.042185504727912e-14, 7.600684294735408e-15, -1.1055969477353862e-15,
    1.5536319577362005e-16, -2.111421214358166e-17,
)  # fmt: skip
_I1_FAR = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
    -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09,
    -5.589743462196584e-10, -1.8974958123505413e-11, 3.2526035830154884e-11,
    1.4125807436613782e-11, 2.0356285441470896e-12, -7.198551776245908e-13,
    -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15,
    3.3082023109209285e-16, 2.96262899764595e-16, -3.209525921993424e-17,
    -4.6503053684893586e-17,
)  # fmt: skip

# J_n(x) / x^n by (x / 8)^2; beyond, with z = (8 / x)^2 and an angle t = x - (2 n + 1) pi / 4,
# J_n = (P_n(z) cos t - sqrt(z) Q_n(z) sin t) sqrt(2 / (pi x)).
_J0_NEAR = (
    0.15772797147489012, -0.008723442352852221, 0.2651786132033368, -0.37009499387264977,
    0.15806710233209725, -0.034893769411408884, 0.004819180069467605, -0.00046062616620627504,
    3.246032882100508e-05, -1.7619469077621507e-06, 7.608163592418782e-08,
    -2.679253530557673e-09, 7.848696314479465e-11, -1.9438346867370164e-12,
    4.125320595634374e-14, -7.588508125447546e-16, 1.2218515873961411e-17,
)  # fmt: skip
_J1_NEAR = (
    0.08104484632565812, -0.1489751450676521, 0.1609992623572097, -0.08268049176681791,
    0.022213639654966037, -0.003646940600769276, 0.0004050337728354822, -3.255554866857259e-05,
    1.9858774049915165e-06, -9.521984756750436e-08, 3.687133759097148e-09,
    -1.178026622695885e-10, 3.160154580348003e-12, -7.221755239651773e-14,
    1.4232144003513942e-15, -2.4441972916190464e-17,
)  # fmt: skip
_P0 = (
    0.9994603493475187, -0.0005365220468132117, 3.0751847875194745e-06, -5.1705945376060975e-08,
    1.6306464635151382e-09, -7.86409137723707e-11, 5.168262387349193e-12,
    -4.3045788699253914e-13, 4.3265957431549404e-14, -5.069034095935236e-15,
    6.748072215733873e-16, -1.0011513723467786e-16,
)  # fmt: skip
_Q0 = (
    -0.015555854605337009, 6.838519942611649e-05, -7.414498411060647e-07,
    1.7972457247968992e-08, -7.27191593686632e-10, 4.2201219046687385e-11,
    -3.206747420996635e-12, 3.006145125351706e-13, -3.336328185322427e-14,
    4.255225040245461e-15, -6.09993013164005e-16, 9.662128970303257e-17,
    -1.6686065214378146e-17, 3.1082440486738143e-18, -6.191115787358145e-19,
)  # fmt: skip
_P1 = (
    1.0009030408600137, 0.0008989898330859408, -3.987284300488908e-06, 6.177633960644299e-08,
    -1.8718907491063067e-09, 8.816898659582339e-11, -5.704863640395645e-12,
    4.699195515230542e-13, -4.6842237839904895e-14, 5.452674896044717e-15,
    -7.221180842274018e-16, 1.0667689114335412e-16,
)  # fmt: skip
_Q1 = (
    0.04677778706953532, -9.62772354915708e-05, 9.138615257955454e-07, -2.0959781384083424e-08,
    8.229193327650554e-10, -4.686363688176945e-11, 3.5152187949686082e-12, -3.2643156743279e-13,
    3.5967765829165294e-14, -4.5612523950772974e-15, 6.508282957783384e-16,
    -1.0269147531823243e-16, 1.767635548776479e-17, -3.2834519872981614e-18,
)  # fmt: skip


def _scaled(x: Tensor, near: tuple[float, ...], far: tuple[float, ...]) -> Tensor:
    """exp(-|x|) I_n(|x|), of order 1 over |x| where that is small."""
    size = absolute(x)
    is_near = size <= _REACH
    inner = series(choose(is_near, size, 0.0) * (2 / _REACH) - 1, near)
    outer = choose(is_near, _REACH, size)
    return choose(is_near, inner, series((2 * _REACH) / outer - 1, far) / sqrt(outer))


def _odd(x: Tensor, even: Tensor) -> Tensor:
    """I_1 and J_1 of what the series give: near 0 they give it over |x|."""
    size = absolute(x)
    return sign(x) * choose(size <= _REACH, size, 1.0) * even


def _over(y: Tensor, x: Tensor) -> Tensor:
    """The function of order 1 over its argument; a half at 0."""
    return choose(x == 0, 0.5, y / choose(x == 0, 1.0, x))


def _wave(x: Tensor, order: int) -> Tensor:
    """J_n(|x|), of order 1 over |x| up to 8."""
    near, p, q = (_J0_NEAR, _P0, _Q0) if order == 0 else (_J1_NEAR, _P1, _Q1)
    size = absolute(x)
    is_near = size <= _REACH
    part = choose(is_near, size, 0.0) / _REACH
    inner = series(2 * part * part - 1, near)
    outer = choose(is_near, _REACH, size)
    root = _REACH / outer
    place = 2 * root * root - 1
    cosine, sine = cos(outer), sin(outer)  # of the angle, by the theorem of addition, times sqrt 2
    along, across = (
        (cosine + sine, sine - cosine) if order == 0 else (sine - cosine, -cosine - sine)
    )
    found = series(place, p) * along - root * series(place, q) * across
    return choose(is_near, inner, found * sqrt((1 / math.pi) / outer))


@curve(lambda g, x: g * i1(x))
@maps("[0.0, 1.0, -2.0]", "[1.0000, 1.2661, 2.2796]")
def i0(input: Tensor) -> Tensor:
    """Return the modified Bessel function of the first kind of order 0.

    It is even and at least 1, and overflows to inf for large elements of either sign.
    """
    return exp(absolute(input)) * _scaled(input, _I0_NEAR, _I0_FAR)


@curve(lambda g, x, y: g * (i1e(x) - sign(x) * y))
def i0e(input: Tensor) -> Tensor:
    """Return `exp(-|input|) i0(input)`, which doesn't overflow where `i0` does.

    >>> lucid.special.i0e(lucid.tensor([0.0, 1.0, 1000.0]))
    tensor([1.0000, 0.4658, 0.0126])
    """
    return _scaled(input, _I0_NEAR, _I0_FAR)


@curve(lambda g, x, y: g * i0(x) - g * _over(y, x))
def i1(input: Tensor) -> Tensor:
    """Return the modified Bessel function of the first kind of order 1.

    It is odd, the derivative of `i0`, and overflows to infinities.

    >>> lucid.special.i1(lucid.tensor([0.0, 1.0, -2.0]))
    tensor([ 0.0000,  0.5652, -1.5906])
    """
    return exp(absolute(input)) * _odd(input, _scaled(input, _I1_NEAR, _I1_FAR))


@curve(lambda g, x, y: g * (i0e(x) - sign(x) * y - _over(y, x)))
def i1e(input: Tensor) -> Tensor:
    """Return `exp(-|input|) i1(input)`, which doesn't overflow where `i1` does.

    >>> lucid.special.i1e(lucid.tensor([0.0, 1.0, 1000.0]))
    tensor([0.0000, 0.2079, 0.0126])
    """
    return _odd(input, _scaled(input, _I1_NEAR, _I1_FAR))


@curve(lambda g, x: -g * bessel_j1(x))
def bessel_j0(input: Tensor) -> Tensor:
    """Return the Bessel function of the first kind of order 0.

    It is even, 1 at 0, and a fading wave beyond.

    >>> lucid.special.bessel_j0(lucid.tensor([0.0, 1.0, 10.0]))
    tensor([ 1.0000,  0.7652, -0.2459])
    """
    return _wave(input, 0)


@curve(lambda g, x, y: g * bessel_j0(x) - g * _over(y, x))
def bessel_j1(input: Tensor) -> Tensor:
    """Return the Bessel function of the first kind of order 1.

    It is odd, 0 at 0, and minus the derivative of `bessel_j0`.

    >>> lucid.special.bessel_j1(lucid.tensor([0.0, 1.0, 10.0]))
    tensor([0.0000, 0.4401, 0.0435])
    """
    return _odd(input, _wave(input, 1))
