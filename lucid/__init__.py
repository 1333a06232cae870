"""lucid: training steps as people write them, compiled into one native call.

PyTorch's names and meanings on NumPy's memory; `lucid.compile` makes a step fast.
"""

import sys
from math import e, inf, nan, pi
from typing import TYPE_CHECKING, Any

from lucid import autograd, linalg, return_types
from lucid.autograd import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from lucid.device import device
from lucid.dtypes import (
    can_cast,
    finfo,
    get_default_dtype,
    iinfo,
    promote_types,
    set_default_dtype,
)
from lucid.functions.arranging import (
    adjoint,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block_diag,
    cartesian_prod,
    column_stack,
    combinations,
    constant_pad_nd,
    diagflat,
    diagonal_scatter,
    dsplit,
    dstack,
    hsplit,
    put,
    renorm,
    rot90,
    select_scatter,
    slice_scatter,
    split_with_sizes,
    tensor_split,
    tril_indices,
    triu_indices,
    unravel_index,
    vsplit,
)
from lucid.functions.bessel import i0
from lucid.functions.border import enter_border, explain_calls
from lucid.functions.comparison import (
    allclose,
    bitwise_and,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    eq,
    equal,
    ge,
    gt,
    isclose,
    isfinite,
    isinf,
    isnan,
    le,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    lt,
    ne,
)
from lucid.functions.comparison import ge as greater_equal
from lucid.functions.comparison import gt as greater
from lucid.functions.comparison import le as less_equal
from lucid.functions.comparison import lt as less
from lucid.functions.comparison import ne as not_equal
from lucid.functions.conversion import (
    is_complex,
    is_floating_point,
    is_inference,
    is_nonzero,
    is_same_size,
    is_signed,
    is_tensor,
)
from lucid.functions.creation import (
    arange,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    linspace,
    logspace,
    ones,
    ones_like,
    scalar_tensor,
    zeros,
    zeros_like,
)
from lucid.functions.einsum import einsum
from lucid.functions.elementwise import (
    abs,
    add,
    addcdiv,
    addcmul,
    ceil,
    clamp,
    clamp_max,
    clamp_min,
    clone,
    cos,
    div,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    floor_divide,
    fmod,
    frac,
    lerp,
    log,
    log1p,
    log2,
    log10,
    masked_fill,
    maximum,
    minimum,
    mul,
    nan_to_num,
    neg,
    positive,
    pow,
    reciprocal,
    relu,
    remainder,
    round,
    rsqrt,
    rsub,
    sgn,
    sigmoid,
    sign,
    sin,
    softplus,
    sqrt,
    square,
    sub,
    tanh,
    trunc,
    where,
)
from lucid.functions.elementwise import abs as absolute
from lucid.functions.elementwise import clamp as clip
from lucid.functions.elementwise import div as divide
from lucid.functions.elementwise import div as true_divide
from lucid.functions.elementwise import mul as multiply
from lucid.functions.elementwise import neg as negative
from lucid.functions.elementwise import positive as conj
from lucid.functions.elementwise import positive as real
from lucid.functions.elementwise import sub as subtract
from lucid.functions.elementwise import trunc as fix
from lucid.functions.error import erfc
from lucid.functions.from_data import as_tensor, asarray, from_dlpack, from_numpy, tensor
from lucid.functions.gamma import digamma, erfinv, lgamma, mvlgamma, polygamma
from lucid.functions.gathering import (
    argwhere,
    gather,
    index_add,
    index_copy,
    index_fill,
    index_put,
    index_select,
    masked_select,
    nonzero,
    scatter,
    scatter_add,
    take,
    take_along_dim,
    unique,
)
from lucid.functions.incomplete import igamma, igammac
from lucid.functions.joining import (
    broadcast_shapes,
    broadcast_tensors,
    cat,
    chunk,
    diag,
    diag_embed,
    diagonal,
    hstack,
    meshgrid,
    roll,
    split,
    stack,
    trace,
    tril,
    triu,
    unbind,
    vstack,
)
from lucid.functions.joining import cat as concat
from lucid.functions.joining import cat as concatenate
from lucid.functions.joining import vstack as row_stack
from lucid.functions.legacy import (
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)
from lucid.functions.linalg import (
    addbmm,
    addmm,
    addmv,
    baddbmm,
    bmm,
    dot,
    matmul,
    mm,
    mv,
    outer,
    spmm,
    tensordot,
)
from lucid.functions.linalg import outer as ger
from lucid.functions.matrices import (
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    det,
    inverse,
    logdet,
    lu,
    lu_solve,
    lu_unpack,
    matrix_exp,
    pca_lowrank,
    pinverse,
    qr,
    slogdet,
    svd,
    svd_lowrank,
    triangular_solve,
    vander,
)
from lucid.functions.products import (
    addr,
    cdist,
    chain_matmul,
    cross,
    inner,
    kron,
    matrix_power,
    vdot,
)
from lucid.functions.promotion import result_type
from lucid.functions.quantiles import (
    bucketize,
    isin,
    kthvalue,
    median,
    nanmedian,
    nanquantile,
    quantile,
    searchsorted,
)
from lucid.functions.reduction import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    count_nonzero,
    cumsum,
    log_softmax,
    logsumexp,
    max,
    mean,
    min,
    norm,
    prod,
    softmax,
    std,
    std_mean,
    sum,
    var,
    var_mean,
)
from lucid.functions.samples import (
    aminmax,
    angle,
    corrcoef,
    cov,
    cumulative_trapezoid,
    dist,
    fmax,
    fmin,
    gcd,
    gradient,
    isneginf,
    isposinf,
    isreal,
    lcm,
    ldexp,
    mode,
    nanmean,
    nansum,
    pdist,
    unique_consecutive,
)
from lucid.functions.scans import cummax, cummin, cumprod, diff, logcumsumexp, trapezoid
from lucid.functions.scans import trapezoid as trapz
from lucid.functions.scattering import (
    bincount,
    histc,
    index_reduce,
    masked_scatter,
    scatter_reduce,
)
from lucid.functions.shape import (
    broadcast_to,
    flatten,
    flip,
    fliplr,
    flipud,
    movedim,
    narrow,
    numel,
    permute,
    ravel,
    repeat_interleave,
    reshape,
    select,
    squeeze,
    t,
    tile,
    transpose,
    unflatten,
    unsqueeze,
)
from lucid.functions.shape import movedim as moveaxis
from lucid.functions.shape import transpose as swapaxes
from lucid.functions.shape import transpose as swapdims
from lucid.functions.sorting import argsort, msort, sort, topk
from lucid.functions.special import (
    copysign,
    float_power,
    heaviside,
    logaddexp,
    logaddexp2,
    logit,
    signbit,
    xlogy,
)
from lucid.functions.trigonometry import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cosh,
    deg2rad,
    hypot,
    rad2deg,
    sinc,
    sinh,
    tan,
)
from lucid.functions.trigonometry import acos as arccos
from lucid.functions.trigonometry import acosh as arccosh
from lucid.functions.trigonometry import asin as arcsin
from lucid.functions.trigonometry import asinh as arcsinh
from lucid.functions.trigonometry import atan as arctan
from lucid.functions.trigonometry import atan2 as arctan2
from lucid.functions.trigonometry import atanh as arctanh
from lucid.functions.windows import (
    bartlett_window,
    blackman_window,
    hamming_window,
    hann_window,
    kaiser_window,
)
from lucid.ir import frames
from lucid.ir.environment import check as _check_environment
from lucid.ir.errors import (
    ArgumentError,
    DTypeError,
    FileFormatError,
    IndexOutOfRangeError,
    LucidError,
    MissingRuleError,
    NonFiniteError,
    NotDifferentiableError,
    OptionError,
    ParseError,
    ShapeError,
    TooLargeError,
    TraceError,
    VerifyError,
)
from lucid.ir.types import DType as dtype  # noqa: N813 - PyTorch's name
from lucid.ir.types import bool_ as bool
from lucid.ir.types import f32 as float
from lucid.ir.types import f32 as float32
from lucid.ir.types import f64 as double
from lucid.ir.types import f64 as float64
from lucid.ir.types import i8 as int8
from lucid.ir.types import i16 as int16
from lucid.ir.types import i16 as short
from lucid.ir.types import i32 as int
from lucid.ir.types import i32 as int32
from lucid.ir.types import i64 as int64
from lucid.ir.types import i64 as long
from lucid.ir.types import u8 as uint8
from lucid.ir.types import u32 as uint32
from lucid.later import find as _find
from lucid.layouts import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    layout,
    memory_format,
    preserve_format,
    sparse_coo,
    strided,
)
from lucid.random import (
    Generator,
    bernoulli,
    binomial,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    multinomial,
    normal,
    poisson,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
    seed,
    set_rng_state,
)
from lucid.settings import (
    are_deterministic_algorithms_enabled,
    get_default_device,
    get_float32_matmul_precision,
    get_num_interop_threads,
    get_num_threads,
    is_deterministic_algorithms_warn_only_enabled,
    set_default_device,
    set_default_tensor_type,
    set_float32_matmul_precision,
    set_flush_denormal,
    set_num_interop_threads,
    set_num_threads,
    use_deterministic_algorithms,
)
from lucid.tensor.formatting import get_printoptions, set_printoptions
from lucid.tensor.size import Size
from lucid.tensor.tensor import Tensor

if TYPE_CHECKING:
    from lucid import (
        amp,
        backends,
        compiler,
        cuda,
        debug,
        distributions,
        func,
        jit,
        nn,
        optim,
        profiler,
        sparse,
        special,
        testing,
        utils,
    )
    from lucid.amp import autocast, is_autocast_enabled
    from lucid.compiler import compile
    from lucid.control_flow import cond, fori_loop, map, scan, while_loop
    from lucid.func import vmap
    from lucid.serialization import load, save
    from lucid.sparse import sparse_coo_tensor

__version__ = "0.1.0"
newaxis = None

# The in-place methods that PyTorch has as functions too.
_IN_PLACE = (
    "abs_", "acos_", "acosh_", "asin_", "asinh_", "atan_", "atanh_", "ceil_", "clamp_",
    "clamp_max_", "clamp_min_", "clip_", "cos_", "cosh_", "deg2rad_", "erf_", "erfc_", "exp2_",
    "exp_", "expm1_", "fill_", "fix_", "floor_", "frac_", "index_put_", "log10_", "log1p_",
    "log2_", "log_", "logit_", "nan_to_num_", "neg_", "negative_", "rad2deg_", "reciprocal_",
    "relu_", "round_", "rsqrt_", "sigmoid_", "sin_", "sinc_", "sinh_", "sqrt_", "square_", "tan_",
    "tanh_", "trunc_", "xlogy_", "zero_", "detach", "detach_",
)  # fmt: skip
vars().update({name: getattr(Tensor, name) for name in _IN_PLACE})
enter_border(sys.modules[__name__], dict(vars()), __name__)
explain_calls(autograd, vars(autograd), "lucid.autograd.")
explain_calls(autograd.functional, vars(autograd.functional), "lucid.autograd.")
frames.edge_of_module(autograd.__name__)
for _module in (autograd.forward_ad, autograd.function, autograd.functional, autograd.graph):
    frames.edge_of_module(_module.__name__)
_check_environment()  # now: what is misspelt is never read, and some is read late


def __getattr__(name: str) -> Any:
    return _find(name)


def __dir__() -> list[str]:
    return sorted(__all__)


# fmt: off
__all__ = [
    "ArgumentError", "BoolTensor", "ByteTensor", "CharTensor", "DTypeError", "DoubleTensor",
    "FileFormatError", "FloatTensor", "Generator", "IndexOutOfRangeError", "IntTensor",
    "LongTensor", "LucidError", "MissingRuleError", "NonFiniteError",
    "NotDifferentiableError", "OptionError",
    "ParseError", "ShapeError", "ShortTensor", "Size", "Tensor", "TooLargeError", "TraceError",
    "VerifyError",
    "__version__",
    "abs", "absolute", "acos", "acosh", "add", "addbmm", "addcdiv", "addcmul", "addmm",
    "addmv", "addr", "adjoint", "all", "allclose", "amax", "amin", "aminmax", "amp", "angle",
    "any", "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh",
    "are_deterministic_algorithms_enabled", "argmax", "argmin", "argsort", "argwhere",
    "as_tensor", "asarray", "asin", "asinh", "atan", "atan2", "atanh", "atleast_1d",
    "atleast_2d", "atleast_3d", "autocast", "autograd", "backends", "baddbmm",
    "bartlett_window", "bernoulli", "bincount", "binomial", "bitwise_and", "bitwise_left_shift",
    "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "blackman_window",
    "block_diag", "bmm", "bool", "broadcast_shapes", "broadcast_tensors", "broadcast_to",
    "bucketize", "can_cast", "cartesian_prod", "cat", "cdist", "ceil", "chain_matmul",
    "channels_last", "channels_last_3d", "cholesky", "cholesky_inverse", "cholesky_solve",
    "chunk", "clamp", "clamp_max", "clamp_min", "clip", "clone", "column_stack",
    "combinations", "compile", "compiler", "concat", "concatenate", "cond", "conj",
    "constant_pad_nd", "contiguous_format", "copysign", "corrcoef", "cos", "cosh",
    "count_nonzero", "cov", "cross", "cuda", "cummax", "cummin", "cumprod", "cumsum",
    "cumulative_trapezoid", "debug", "default_generator", "deg2rad", "det", "device", "diag",
    "diag_embed", "diagflat", "diagonal", "diagonal_scatter", "diff", "digamma", "dist",
    "distributions", "div", "divide", "dot", "double", "dsplit", "dstack", "dtype", "e",
    "einsum", "empty", "empty_like", "enable_grad", "eq", "equal", "erf",
    "erfc", "erfinv", "exp", "exp2", "expm1", "eye", "finfo", "fix", "flatten", "flip",
    "fliplr", "flipud", "float", "float32", "float64", "float_power", "floor", "floor_divide",
    "fmax", "fmin", "fmod", "fori_loop", "frac", "from_dlpack", "from_numpy", "full",
    "full_like", "func", "gather", "gcd", "ge", "ger", "get_default_device",
    "get_default_dtype", "get_float32_matmul_precision", "get_num_interop_threads",
    "get_num_threads", "get_printoptions", "get_rng_state", "gradient", "greater",
    "greater_equal", "gt", "hamming_window", "hann_window", "heaviside", "histc", "hsplit",
    "hstack", "hypot", "i0", "igamma", "igammac", "iinfo", "index_add", "index_copy",
    "index_fill", "index_put", "index_reduce", "index_select", "inf", "inference_mode",
    "initial_seed",
    "inner", "int", "int16", "int32", "int64", "int8", "inverse", "is_autocast_enabled",
    "is_complex", "is_deterministic_algorithms_warn_only_enabled", "is_floating_point",
    "is_grad_enabled", "is_inference", "is_nonzero", "is_same_size", "is_signed", "is_tensor",
    "isclose", "isfinite", "isin", "isinf", "isnan", "isneginf", "isposinf", "isreal", "jit",
    "kaiser_window", "kron", "kthvalue", "layout", "lcm", "ldexp", "le", "lerp", "less",
    "less_equal", "lgamma", "linalg", "linspace", "load", "log", "log10", "log1p", "log2",
    "log_softmax", "logaddexp", "logaddexp2", "logcumsumexp", "logdet", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logit", "logspace", "logsumexp", "long", "lt",
    "lu", "lu_solve", "lu_unpack", "manual_seed", "map", "masked_fill", "masked_scatter",
    "masked_select", "matmul", "matrix_exp", "matrix_power", "max", "maximum", "mean",
    "median", "memory_format", "meshgrid", "min", "minimum", "mm", "mode", "moveaxis",
    "movedim", "msort", "mul", "multinomial", "multiply", "mv", "mvlgamma", "nan",
    "nan_to_num", "nanmean", "nanmedian", "nanquantile", "nansum", "narrow", "ne", "neg",
    "negative", "newaxis", "nn", "no_grad", "nonzero", "norm", "normal", "not_equal", "numel",
    "ones", "ones_like", "optim", "outer", "pca_lowrank", "pdist", "permute", "pi", "pinverse",
    "poisson", "polygamma", "positive", "pow", "preserve_format", "prod", "profiler",
    "promote_types", "put", "qr", "quantile", "rad2deg", "rand", "rand_like", "randint",
    "randint_like", "randn",
    "randn_like", "randperm", "ravel", "real", "reciprocal", "relu", "remainder", "renorm",
    "repeat_interleave", "reshape", "result_type", "return_types", "roll", "rot90", "round",
    "row_stack", "rsqrt", "rsub", "save", "scalar_tensor", "scan", "scatter", "scatter_add",
    "scatter_reduce", "searchsorted", "seed", "select", "select_scatter", "set_default_device",
    "set_default_dtype", "set_default_tensor_type", "set_float32_matmul_precision",
    "set_flush_denormal", "set_grad_enabled", "set_num_interop_threads", "set_num_threads",
    "set_printoptions", "set_rng_state", "sgn", "short", "sigmoid", "sign", "signbit", "sin",
    "sinc", "sinh", "slice_scatter", "slogdet", "softmax", "softplus", "sort", "sparse",
    "sparse_coo", "sparse_coo_tensor", "special", "split", "split_with_sizes", "spmm", "sqrt",
    "square", "squeeze", "stack", "std", "std_mean", "strided", "sub", "subtract", "sum",
    "svd", "svd_lowrank", "swapaxes", "swapdims", "t", "take", "take_along_dim", "tan", "tanh",
    "tensor", "tensor_split", "tensordot", "testing", "tile", "topk", "trace", "transpose",
    "trapezoid", "trapz", "triangular_solve", "tril", "tril_indices", "triu", "triu_indices",
    "true_divide", "trunc", "uint32", "uint8", "unbind", "unflatten", "unique",
    "unique_consecutive", "unravel_index", "unsqueeze", "use_deterministic_algorithms",
    "utils", "vander", "var", "var_mean", "vdot", "vmap", "vsplit", "vstack", "where",
    "while_loop", "xlogy", "zeros", "zeros_like",
]
# fmt: on

frames.edge_of_module(__name__)
