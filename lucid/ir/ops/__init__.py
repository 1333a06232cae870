"""Every op by name, and small compositions of them: `from lucid.ir import ops; ops.add(a, b)`.

An op is callable on operands of any one class, IR values or tensors. Some names are those of
builtins (`ops.sum`, `ops.abs`, `ops.slice`), so import the module rather than its names.
"""

from lucid.ir.ops.arithmetic import (
    add,
    clamp,
    div,
    floor_div,
    maximum,
    minimum,
    mul,
    pow,
    remainder,
    sub,
)
from lucid.ir.ops.attention import attention, attention_grad
from lucid.ir.ops.calls import call, cond, host, scan, while_loop
from lucid.ir.ops.checks import check
from lucid.ir.ops.composites import (
    broadcast_to,
    expand_reduced,
    flip,
    full,
    indices,
    keep_axes,
    kept_axes,
    one,
    ones_like,
    reshape_to,
    slice_axis,
    sum_to_shape,
    swap_axes,
    with_diagonal,
    zero,
    zeros_like,
)
from lucid.ir.ops.contraction import contract, matmul
from lucid.ir.ops.creation import constant, iota, parameter
from lucid.ir.ops.functions import (
    abs,
    cast,
    ceil,
    cos,
    erf,
    exp,
    expm1,
    floor,
    log,
    log1p,
    neg,
    reciprocal,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sqrt,
    tanh,
    trunc,
)
from lucid.ir.ops.indexing import gather, index_add, index_set, scatter, scatter_add, take
from lucid.ir.ops.logic import (
    bit_and,
    bit_not,
    bit_or,
    bit_xor,
    eq,
    gcd,
    ge,
    gt,
    le,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    lt,
    ne,
    shift_left,
    shift_right,
    where,
)
from lucid.ir.ops.moves import concat, pad, update_slice
from lucid.ir.ops.ordering import argsort, sort
from lucid.ir.ops.random import random_normal, random_uniform
from lucid.ir.ops.reductions import all, amax, amin, any, argmax, argmin, prod, sum
from lucid.ir.ops.scans import (
    cumlogsumexp,
    cummax,
    cummin,
    cumprod,
    cumsum,
    moved_on,
    reached,
    recurrence,
)
from lucid.ir.ops.views import (
    barrier,
    broadcast,
    diagonal,
    inverse_permutation,
    reshape,
    slice,
    transpose,
)
from lucid.ir.ops.windows import overlap_add, windows

__all__ = [
    "abs", "add", "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "attention",
    "attention_grad", "barrier", "bit_and", "bit_not", "bit_or", "bit_xor", "broadcast",
    "broadcast_to", "call", "cast", "ceil", "check", "clamp", "concat", "cond", "constant",
    "contract", "cos", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "diagonal", "div",
    "eq", "erf", "exp", "expand_reduced", "expm1", "flip", "floor", "floor_div", "full", "gather",
    "gcd", "ge", "gt", "host", "index_add", "index_set", "indices", "inverse_permutation", "iota",
    "keep_axes", "kept_axes", "le", "log", "log1p", "logical_and", "logical_not", "logical_or",
    "logical_xor", "lt", "matmul", "maximum", "minimum", "moved_on", "mul", "ne", "neg", "one",
    "ones_like", "overlap_add", "pad", "parameter", "pow", "prod", "random_normal",
    "random_uniform", "reached", "reciprocal", "recurrence", "remainder", "reshape", "reshape_to",
    "round", "rsqrt", "scan", "scatter", "scatter_add", "shift_left", "shift_right", "sigmoid",
    "sign", "sin", "slice", "slice_axis", "sort", "sqrt", "sub", "sum", "sum_to_shape", "swap_axes",
    "take", "tanh", "transpose", "trunc", "update_slice", "where", "while_loop", "windows",
    "with_diagonal", "zero", "zeros_like",
]  # fmt: skip
