"""The methods that write into the tensor itself: a part of the table of `Tensor`."""

from __future__ import annotations

from lucid import random
from lucid.functions import (
    arranging,
    bessel,
    comparison,
    elementwise,
    gamma,
    gathering,
    inplace,
    joining,
    products,
    rectifiers,
    reduction,
    scans,
    shape as shapes,
    special,
    transcendental,
)
from lucid.functions.inplace import in_place
from lucid.tensor.core import TensorCore


class WrittenInPlace(TensorCore):
    """What a tensor can do to itself; their names end with an underscore."""

    __slots__ = ()

    copy_ = inplace.copy_
    fill_ = inplace.fill_
    zero_ = inplace.zero_
    masked_fill_ = in_place(elementwise.masked_fill)
    fill_diagonal_ = inplace.fill_diagonal_
    detach_ = inplace.detach_
    uniform_ = random.uniform_
    normal_ = random.normal_
    bernoulli_ = random.bernoulli_
    random_ = random.random_
    exponential_ = random.exponential_
    log_normal_ = random.log_normal_
    cauchy_ = random.cauchy_
    geometric_ = random.geometric_
    add_ = __iadd__ = in_place(elementwise.add)
    sub_ = subtract_ = __isub__ = in_place(elementwise.sub)
    mul_ = multiply_ = __imul__ = in_place(elementwise.mul)
    div_ = divide_ = true_divide_ = __itruediv__ = in_place(elementwise.div)
    pow_ = __ipow__ = in_place(elementwise.pow)
    floor_divide_ = __ifloordiv__ = in_place(elementwise.floor_divide)
    remainder_ = __imod__ = in_place(elementwise.remainder)
    fmod_ = in_place(elementwise.fmod)
    neg_ = negative_ = in_place(elementwise.neg)
    abs_ = absolute_ = in_place(elementwise.abs)
    sign_ = in_place(elementwise.sign)
    square_ = in_place(elementwise.square)
    reciprocal_ = in_place(elementwise.reciprocal)
    sqrt_ = in_place(elementwise.sqrt)
    rsqrt_ = in_place(elementwise.rsqrt)
    addcmul_ = in_place(elementwise.addcmul)
    addcdiv_ = in_place(elementwise.addcdiv)
    lerp_ = in_place(elementwise.lerp)
    exp_ = in_place(transcendental.exp)
    exp2_ = in_place(transcendental.exp2)
    expm1_ = in_place(transcendental.expm1)
    log_ = in_place(transcendental.log)
    log2_ = in_place(transcendental.log2)
    log10_ = in_place(transcendental.log10)
    log1p_ = in_place(transcendental.log1p)
    sin_ = in_place(transcendental.sin)
    cos_ = in_place(transcendental.cos)
    tanh_ = in_place(transcendental.tanh)
    sigmoid_ = in_place(transcendental.sigmoid)
    erf_ = in_place(transcendental.erf)
    acos_ = arccos_ = in_place(transcendental.acos)
    acosh_ = arccosh_ = in_place(transcendental.acosh)
    asin_ = arcsin_ = in_place(transcendental.asin)
    asinh_ = arcsinh_ = in_place(transcendental.asinh)
    atan_ = arctan_ = in_place(transcendental.atan)
    atan2_ = arctan2_ = in_place(transcendental.atan2)
    atanh_ = arctanh_ = in_place(transcendental.atanh)
    cosh_ = in_place(transcendental.cosh)
    sinh_ = in_place(transcendental.sinh)
    tan_ = in_place(transcendental.tan)
    logit_ = in_place(special.logit)
    copysign_ = in_place(special.copysign)
    relu_ = in_place(rectifiers.relu)
    floor_ = in_place(elementwise.floor)
    ceil_ = in_place(elementwise.ceil)
    trunc_ = fix_ = in_place(elementwise.trunc)
    round_ = in_place(elementwise.round)
    frac_ = in_place(elementwise.frac)
    clamp_ = clip_ = in_place(elementwise.clamp)
    sgn_ = in_place(elementwise.sgn)
    deg2rad_ = in_place(transcendental.deg2rad)
    rad2deg_ = in_place(transcendental.rad2deg)
    hypot_ = in_place(transcendental.hypot)
    sinc_ = in_place(transcendental.sinc)
    erfc_ = in_place(bessel.erfc)
    i0_ = in_place(bessel.i0)
    igamma_ = in_place(gamma.igamma)
    igammac_ = in_place(gamma.igammac)
    erfinv_ = in_place(gamma.erfinv)
    lgamma_ = in_place(gamma.lgamma)
    digamma_ = in_place(gamma.digamma)
    mvlgamma_ = in_place(gamma.mvlgamma)
    xlogy_ = in_place(special.xlogy)
    heaviside_ = in_place(special.heaviside)
    float_power_ = in_place(special.float_power)
    gcd_ = in_place(special.gcd)
    lcm_ = in_place(special.lcm)
    ldexp_ = in_place(special.ldexp)
    nextafter_ = in_place(special.nextafter)
    gt_ = greater_ = in_place(comparison.gt)
    ge_ = greater_equal_ = in_place(comparison.ge)
    lt_ = less_ = in_place(comparison.lt)
    le_ = less_equal_ = in_place(comparison.le)
    ne_ = not_equal_ = in_place(comparison.ne)
    addmm_ = in_place(products.addmm)
    addmv_ = in_place(products.addmv)
    addbmm_ = in_place(products.addbmm)
    baddbmm_ = in_place(products.baddbmm)
    addr_ = in_place(products.addr)
    renorm_ = in_place(arranging.renorm)
    put_ = in_place(arranging.put)
    squeeze_ = inplace.reshaping(shapes.squeeze)
    unsqueeze_ = inplace.reshaping(shapes.unsqueeze)
    transpose_ = swapaxes_ = swapdims_ = inplace.reshaping(shapes.transpose)
    t_ = inplace.reshaping(shapes.t)
    resize_ = inplace.resize_
    resize_as_ = inplace.resize_as_
    set_ = inplace.set_
    apply_ = inplace.apply_
    map_ = inplace.map_
    clamp_min_ = in_place(elementwise.clamp_min)
    clamp_max_ = in_place(elementwise.clamp_max)
    nan_to_num_ = in_place(elementwise.nan_to_num)
    logical_and_ = in_place(comparison.logical_and)
    logical_or_ = in_place(comparison.logical_or)
    logical_xor_ = in_place(comparison.logical_xor)
    logical_not_ = in_place(comparison.logical_not)
    bitwise_and_ = __iand__ = in_place(comparison.bitwise_and)
    bitwise_or_ = __ior__ = in_place(comparison.bitwise_or)
    bitwise_xor_ = __ixor__ = in_place(comparison.bitwise_xor)
    bitwise_not_ = in_place(comparison.bitwise_not)
    eq_ = in_place(comparison.eq)
    cumsum_ = in_place(reduction.cumsum)
    cumprod_ = in_place(scans.cumprod)
    tril_ = in_place(joining.tril)
    triu_ = in_place(joining.triu)
    scatter_ = in_place(gathering.scatter)
    scatter_add_ = in_place(gathering.scatter_add)
    scatter_reduce_ = in_place(gathering.scatter_reduce)
    index_reduce_ = in_place(gathering.index_reduce)
    masked_scatter_ = in_place(gathering.masked_scatter)
    index_add_ = in_place(gathering.index_add)
    index_copy_ = in_place(gathering.index_copy)
    index_fill_ = in_place(gathering.index_fill)
    index_put_ = in_place(gathering.index_put)
    bitwise_left_shift_ = __ilshift__ = in_place(comparison.bitwise_left_shift)
    bitwise_right_shift_ = __irshift__ = in_place(comparison.bitwise_right_shift)
