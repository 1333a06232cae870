"""`lucid.Tensor`: the table of contents of what a tensor can do.

Methods are the functions of `lucid.functions`, which take the tensor as their first argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lucid import random
from lucid.dtypes import get_default_dtype
from lucid.functions import (
    arranging,
    bessel,
    comparison,
    conversion,
    creation,
    distances,
    elementwise,
    gamma,
    gathering,
    indexing,
    joining,
    matrices,
    products,
    protocols,
    rectifiers,
    reduction,
    scans,
    shape as shapes,
    sorting,
    special,
    transcendental,
)
from lucid.functions.border import enter_border
from lucid.ir.extents import is_open
from lucid.ir.frames import edge_of_class
from lucid.layouts import strided
from lucid.tensor import formatting
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, attributes_of, register_tensor_class
from lucid.tensor.size import Size, new_size
from lucid.tensor.written import WrittenInPlace

V = TypeVar("V")

if TYPE_CHECKING:

    def attribute(function: Callable[[Any], V]) -> V:
        """A property whose type a checker takes from its function."""

else:
    attribute = property


class Tensor(WrittenInPlace):
    """A dense array with shape, dtype and, if it requires grad, the history of its computation.

    Made by `lucid.tensor`, `lucid.from_numpy`, `lucid.zeros`, … and by operations on tensors.
    Operators and methods are the functions of `lucid`, with the tensor as their first operand;
    names that end with an underscore write into the tensor.

    Args:
        *data: a list, an array or a tensor, copied into the default dtype, or else sizes for zeros.
            `Tensor()` is for the library. Programs better call `lucid.tensor`, which keeps the kind
            of the data.

    >>> x = lucid.Tensor([1, 2])
    >>> x
    tensor([1., 2.])
    >>> (x + 1).sum()
    tensor(5.)
    """

    __slots__ = ()

    def __new__(cls, *data: Any) -> Tensor:
        """`Tensor(data)`: in the default dtype; `Tensor(2, 3)`: zeros; `Tensor()`: no elements."""
        return creation.legacy_tensor(get_default_dtype(), data)

    @property
    def __dict__(self) -> dict[str, Any]:
        """What users have bound to it; a compiled call that looks at all of that runs op by op."""
        recorder = context.recorder
        if recorder is not None and id(self) in recorder.positions:  # what stands for it has none
            recorder.run_op_by_op("it looks at the __dict__ of a tensor that it is given")
        return attributes_of(self)

    @__dict__.setter
    def __dict__(self, attributes: dict[str, Any]) -> None:
        TensorCore.__dict__["__dict__"].__set__(self, attributes)

    # ------------------------------------------------------------------ what it is

    @property
    def shape(self) -> Size:
        """Sizes of the axes."""
        shape = new_size(Size, self._type.shape)
        if context.recorder is not None and any(map(is_open, shape)):
            return cast(Size, context.recorder.shown(shape))
        return shape

    device = attribute(conversion.device_of)
    T = attribute(shapes.reversed_axes)
    mT = attribute(shapes.matrix_transpose)  # noqa: N815 - PyTorch's name
    mH = attribute(shapes.matrix_transpose)  # noqa: N815 - PyTorch's name
    H = attribute(shapes.t)
    is_cpu = True
    is_cuda = False
    is_sparse = False
    is_mps = False
    is_meta = False
    is_quantized = False
    is_nested = False
    layout = strided
    storage_offset = shapes.storage_offset

    itemsize = attribute(shapes.element_size)
    nbytes = attribute(shapes.nbytes)
    size = shapes.size
    numel = nelement = shapes.numel
    dim = ndimension = shapes.dim
    stride = shapes.stride
    element_size = shapes.element_size
    is_contiguous = shapes.is_contiguous
    is_floating_point = conversion.is_floating_point
    is_complex = conversion.is_complex
    is_nonzero = conversion.is_nonzero
    __repr__ = __str__ = formatting.format_tensor

    # ------------------------------------------------------------------ arithmetic

    add = __add__ = __radd__ = elementwise.add
    sub = subtract = __sub__ = elementwise.sub
    rsub = __rsub__ = elementwise.rsub
    mul = multiply = __mul__ = __rmul__ = elementwise.mul
    div = divide = true_divide = __truediv__ = elementwise.div
    floor_divide = __floordiv__ = elementwise.floor_divide
    remainder = __mod__ = elementwise.remainder
    fmod = elementwise.fmod
    pow = __pow__ = elementwise.pow
    neg = negative = __neg__ = elementwise.neg
    positive = __pos__ = elementwise.positive
    conj = conj_physical = resolve_conj = resolve_neg = elementwise.real
    abs = absolute = __abs__ = elementwise.abs
    sign = elementwise.sign
    sgn = elementwise.sgn
    square = elementwise.square
    reciprocal = elementwise.reciprocal
    sqrt = elementwise.sqrt
    rsqrt = elementwise.rsqrt
    addcmul = elementwise.addcmul
    addcdiv = elementwise.addcdiv
    lerp = elementwise.lerp
    __rtruediv__ = elementwise.rdiv
    __rfloordiv__ = elementwise.rfloor_divide
    __rmod__ = elementwise.rremainder
    __rpow__ = elementwise.rpow
    matmul = __matmul__ = products.matmul
    __rmatmul__ = products.rmatmul

    # ------------------------------------------------------------------ functions of one element

    exp = transcendental.exp
    exp2 = transcendental.exp2
    expm1 = transcendental.expm1
    log = transcendental.log
    log2 = transcendental.log2
    log10 = transcendental.log10
    log1p = transcendental.log1p
    sin = transcendental.sin
    cos = transcendental.cos
    tanh = transcendental.tanh
    sigmoid = transcendental.sigmoid
    erf = transcendental.erf
    acos = arccos = transcendental.acos
    acosh = arccosh = transcendental.acosh
    asin = arcsin = transcendental.asin
    asinh = arcsinh = transcendental.asinh
    atan = arctan = transcendental.atan
    atan2 = arctan2 = transcendental.atan2
    atanh = arctanh = transcendental.atanh
    cosh = transcendental.cosh
    deg2rad = transcendental.deg2rad
    hypot = transcendental.hypot
    rad2deg = transcendental.rad2deg
    sinc = transcendental.sinc
    sinh = transcendental.sinh
    tan = transcendental.tan
    copysign = special.copysign
    erfc = bessel.erfc
    float_power = special.float_power
    heaviside = special.heaviside
    i0 = bessel.i0
    igamma = gamma.igamma
    igammac = gamma.igammac
    logaddexp = special.logaddexp
    logaddexp2 = special.logaddexp2
    logit = special.logit
    signbit = special.signbit
    xlogy = special.xlogy
    relu = rectifiers.relu
    softplus = rectifiers.softplus
    floor = elementwise.floor
    ceil = elementwise.ceil
    trunc = fix = elementwise.trunc
    round = elementwise.round
    frac = elementwise.frac
    clamp = clip = elementwise.clamp
    clamp_min = elementwise.clamp_min
    clamp_max = elementwise.clamp_max
    maximum = elementwise.maximum
    minimum = elementwise.minimum
    nan_to_num = elementwise.nan_to_num
    clone = elementwise.clone
    real = attribute(elementwise.real)
    angle = special.angle
    digamma = gamma.digamma
    lgamma = gamma.lgamma
    mvlgamma = gamma.mvlgamma
    erfinv = gamma.erfinv
    polygamma = gamma.polygamma_of
    fmax = special.fmax
    fmin = special.fmin
    gcd = special.gcd
    lcm = special.lcm
    ldexp = special.ldexp
    frexp = special.frexp
    nextafter = special.nextafter

    # ------------------------------------------------------------------ comparison, logic, bits

    eq = comparison.eq
    ne = not_equal = comparison.ne
    lt = less = __lt__ = comparison.lt
    le = less_equal = __le__ = comparison.le
    gt = greater = __gt__ = comparison.gt
    ge = greater_equal = __ge__ = comparison.ge
    equal = comparison.equal
    isclose = comparison.isclose
    allclose = comparison.allclose
    isnan = comparison.isnan
    isinf = comparison.isinf
    isfinite = comparison.isfinite
    isposinf = special.isposinf
    isneginf = special.isneginf
    isreal = special.isreal
    is_same_size = conversion.is_same_size
    is_signed = conversion.is_signed
    is_inference = conversion.is_inference
    logical_and = comparison.logical_and
    logical_or = comparison.logical_or
    logical_xor = comparison.logical_xor
    logical_not = comparison.logical_not
    bitwise_and = __and__ = __rand__ = comparison.bitwise_and
    bitwise_or = __or__ = __ror__ = comparison.bitwise_or
    bitwise_xor = __xor__ = __rxor__ = comparison.bitwise_xor
    bitwise_not = __invert__ = comparison.bitwise_not
    bitwise_left_shift = __lshift__ = comparison.bitwise_left_shift
    bitwise_right_shift = __rshift__ = comparison.bitwise_right_shift
    __eq__ = comparison.operator_eq  # type: ignore[assignment]  # of objects it gives a bool
    __ne__ = comparison.operator_ne  # type: ignore[assignment]
    __hash__ = TensorCore.__hash__
    __rlshift__ = comparison.reflected_left_shift
    __rrshift__ = comparison.reflected_right_shift

    # ------------------------------------------------------------------ reductions

    sum = reduction.sum
    mean = reduction.mean
    prod = reduction.prod
    max = reduction.max
    min = reduction.min
    amax = reduction.amax
    amin = reduction.amin
    argmax = reduction.argmax
    argmin = reduction.argmin
    any = reduction.any
    all = reduction.all
    count_nonzero = reduction.count_nonzero
    aminmax = reduction.aminmax
    nansum = reduction.nansum
    nanmean = reduction.nanmean
    mode = reduction.mode
    cov = reduction.cov
    corrcoef = reduction.corrcoef
    dist = distances.dist
    renorm = arranging.renorm
    sum_to_size = arranging.sum_to_size
    var = reduction.var
    std = reduction.std
    norm = reduction.norm
    logsumexp = reduction.logsumexp
    cumsum = reduction.cumsum
    cummax = scans.cummax
    cummin = scans.cummin
    cumprod = scans.cumprod
    diff = scans.diff
    logcumsumexp = scans.logcumsumexp
    kthvalue = sorting.kthvalue
    median = sorting.median
    nanmedian = sorting.nanmedian
    quantile = sorting.quantile
    nanquantile = sorting.nanquantile
    bincount = gathering.bincount
    histc = gathering.histc
    histogram = sorting.histogram
    softmax = reduction.softmax
    log_softmax = reduction.log_softmax
    sort = sorting.sort
    argsort = sorting.argsort
    msort = sorting.msort
    topk = sorting.topk

    # ------------------------------------------------------------------ shapes

    reshape = shapes.reshape
    reshape_as = shapes.reshape_as
    view = shapes.view
    view_as = shapes.view_as
    flatten = shapes.flatten
    ravel = shapes.ravel
    unflatten = shapes.unflatten
    squeeze = shapes.squeeze
    unsqueeze = shapes.unsqueeze
    permute = shapes.permute
    transpose = swapaxes = swapdims = shapes.transpose
    t = shapes.t
    movedim = moveaxis = shapes.movedim
    expand = shapes.expand
    expand_as = shapes.expand_as
    broadcast_to = shapes.broadcast_to
    repeat = shapes.repeat
    tile = shapes.tile
    repeat_interleave = shapes.repeat_interleave
    narrow = shapes.narrow
    select = shapes.select
    flip = shapes.flip
    fliplr = shapes.fliplr
    flipud = shapes.flipud
    contiguous = shapes.contiguous
    split = unsafe_split = joining.split_method
    chunk = unsafe_chunk = joining.chunk
    unbind = joining.unbind
    roll = joining.roll
    diagonal = joining.diagonal
    diag = joining.diag
    diag_embed = joining.diag_embed
    trace = joining.trace
    tril = joining.tril
    triu = joining.triu
    adjoint = arranging.adjoint
    tensor_split = arranging.tensor_split
    split_with_sizes = arranging.split_with_sizes
    hsplit = arranging.hsplit
    vsplit = arranging.vsplit
    dsplit = arranging.dsplit
    rot90 = arranging.rot90
    unfold = arranging.unfold
    as_strided = arranging.as_strided
    diagflat = arranging.diagflat
    slice_scatter = arranging.slice_scatter
    select_scatter = arranging.select_scatter
    diagonal_scatter = arranging.diagonal_scatter

    # ------------------------------------------------------------------ products

    mm = products.mm
    bmm = products.bmm
    mv = products.mv
    dot = products.dot
    outer = ger = products.outer
    addmm = products.addmm
    addbmm = products.addbmm
    addmv = products.addmv
    baddbmm = products.baddbmm
    addr = products.addr
    cross = products.cross
    inner = products.inner
    kron = products.kron
    matrix_power = products.matrix_power
    vdot = products.vdot
    inverse = matrices.inverse
    pinverse = matrices.pinverse
    det = matrices.det
    slogdet = matrices.slogdet
    logdet = matrices.logdet
    cholesky = matrices.cholesky
    cholesky_solve = matrices.cholesky_solve
    cholesky_inverse = matrices.cholesky_inverse
    triangular_solve = matrices.triangular_solve
    lu = matrices.lu
    lu_solve = matrices.lu_solve
    qr = matrices.qr
    svd = matrices.svd
    matrix_exp = matrices.matrix_exp

    # ------------------------------------------------------------------ indexing

    __getitem__ = indexing.getitem
    __setitem__ = indexing.setitem
    gather = gathering.gather
    take = gathering.take
    take_along_dim = gathering.take_along_dim
    index_select = gathering.index_select
    scatter = gathering.scatter
    scatter_add = gathering.scatter_add
    scatter_reduce = gathering.scatter_reduce
    index_reduce = gathering.index_reduce
    masked_scatter = gathering.masked_scatter
    index_add = gathering.index_add
    index_copy = gathering.index_copy
    index_fill = gathering.index_fill
    index_put = gathering.index_put
    where = gathering.where_method
    masked_fill = elementwise.masked_fill
    masked_select = gathering.masked_select
    nonzero = gathering.nonzero
    argwhere = gathering.argwhere
    unique = gathering.unique
    unique_consecutive = gathering.unique_consecutive
    put = arranging.put

    # ------------------------------------------------------------------ dtype and device

    to = conversion.to
    float = conversion.to_float
    double = conversion.to_double
    int = conversion.to_int
    long = conversion.to_long
    bool = conversion.to_bool
    byte = conversion.to_byte
    char = conversion.to_char
    short = conversion.to_short
    half = conversion.to_half
    bfloat16 = conversion.to_bfloat16
    type = conversion.type_of
    type_as = conversion.type_as
    cpu = conversion.cpu
    cuda = conversion.cuda
    pin_memory = conversion.pin_memory
    share_memory_ = conversion.share_memory_
    is_shared = is_pinned = conversion.is_shared
    get_device = conversion.get_device
    new = creation.new
    new_tensor = creation.new_tensor
    new_zeros = creation.new_zeros
    new_ones = creation.new_ones
    new_empty = creation.new_empty
    new_full = creation.new_full
    bernoulli = random.bernoulli
    multinomial = random.multinomial

    # ------------------------------------------------------------------ Python, NumPy, copies

    item = protocols.item
    tolist = protocols.tolist
    to_sparse = protocols.to_sparse
    to_dense = protocols.to_dense
    __bool__ = protocols.to_bool
    __float__ = protocols.to_float
    __int__ = protocols.to_int
    __index__ = protocols.to_index
    __len__ = protocols.length
    __iter__ = protocols.iterate
    __reversed__ = protocols.backwards
    __contains__ = protocols.contains
    __array__ = protocols.as_array
    __dlpack__ = protocols.dlpack
    __dlpack_device__ = protocols.dlpack_device
    __format__ = protocols.formatted
    __copy__ = protocols.shallow_copy
    __deepcopy__ = protocols.deep_copy
    __reduce_ex__ = protocols.reduced


methods = {**vars(WrittenInPlace), **vars(Tensor)}
enter_border(Tensor, methods, "lucid.tensor.tensor", "Tensor.")
for base in (Tensor, WrittenInPlace, TensorCore):
    edge_of_class(base)
register_tensor_class(Tensor)
