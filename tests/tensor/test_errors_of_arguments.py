"""Wrong arguments raise lucid's errors, which are also the builtins that PyTorch's users catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid

x = lucid.arange(6.0).reshape(2, 3)
z = lucid.arange(3)

WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: x + "a", TypeError, "add: operands are tensors and Python numbers, not str"),
    (lambda: x * np.ones(3), TypeError, r"hint: lucid.from_numpy\(array\)"),
    (lambda: np.ones(3) * x, TypeError, "mul: operands are tensors and Python numbers"),
    (lambda: lucid.add(1, 2), TypeError, "add: at least one operand must be a Tensor"),
    (lambda: lucid.exp(2.0), TypeError, "exp: input must be a Tensor, not float"),
    (lambda: z.int() + 2**40, ValueError, "without overflow"),
    (lambda: z.add(z, alpha=0.5), TypeError, "alpha must not be a float"),
    (lambda: z.addmv(z.outer(z), z, alpha=0.5), TypeError, "addmv: alpha must not be a float"),
    (lambda: z.addr(z, z, beta=0.5), TypeError, "addr: beta must not be a float for integers"),
    (
        lambda: (x > 0) - (x > 0),
        TypeError,
        r"with a bool tensor is not supported\n.*\n.*\nhint: use",
    ),
    (lambda: z**-1, ValueError, "Integers to negative integer powers are not allowed"),
    (lambda: x & x, TypeError, r"bitwise_and: defined for integers and bools, not lucid.float32"),
    (lambda: x << 1, TypeError, "bitwise_left_shift: defined for integers, not lucid.float32"),
    (lambda: x.clamp(), TypeError, "At least one of 'min' or 'max' must not be None"),
    (lambda: lucid.where(z, x, x), TypeError, "expected condition to be a boolean tensor"),
    (lambda: x.div(2, rounding_mode="up"), ValueError, "rounding_mode must be one of"),
    (lambda: x.sum(2), IndexError, r"in range of \[-2, 1\], but got 2"),
    (lambda: x.sum((0, -2)), ValueError, "dim 0 appears multiple times"),
    (lambda: x.sum(0.5), TypeError, "sum: dim must be an int, not 0.5"),
    (lambda: z.mean(), TypeError, r"mean: needs a floating-point tensor, got lucid.int64"),
    (lambda: x.max(keepdim=True), TypeError, r"hint: use amax\(keepdim=True\)"),
    (lambda: lucid.zeros(0).max(), ValueError, "amax"),
    (lambda: x.norm("p"), ValueError, "norm: p must be a number, 'fro' or 'nuc', not 'p'"),
    (lambda: x.reshape(4, 2), ValueError, r"shape '\[4, 2\]' is invalid for input of size 6"),
    (lambda: x.reshape(-1, -1), ValueError, "only one dimension can be inferred, not 2"),
    (lambda: x.permute(0), ValueError, "does not match the length of the desired ordering"),
    (lambda: x.expand(3, 3), ValueError, r"must match the existing size \(2\) at non-singleton"),
    (lambda: x.narrow(1, 2, 2), IndexError, r"start \(2\) \+ length \(2\) exceeds"),
    (lambda: x.split([1, 1], 1), ValueError, "split_sizes must sum to 3"),
    (lambda: lucid.cat([]), ValueError, "expected a non-empty list of Tensors"),
    (lambda: lucid.cat(x), TypeError, "takes a list or tuple of tensors, not a Tensor"),
    (lambda: lucid.stack([x, z]), ValueError, "stack: expects each tensor to be equal size"),
    (lambda: x @ z, TypeError, "expected both operands to have the same dtype"),
    (lambda: x @ x, ValueError, "matmul: the inner dimensions differ, 3 and 2"),
    (lambda: x @ lucid.ones(2), ValueError, "matmul: the inner dimensions differ, 3 and 2"),
    (lambda: x @ lucid.tensor(2.0), ValueError, r"hint: use \* to multiply by a scalar"),
    (lambda: lucid.einsum("ij->k", x), ValueError, "a subscript twice, or a new one"),
    (lambda: lucid.einsum("i?", x), ValueError, "invalid subscript 'i\\?'"),
    (lambda: lucid.einsum("ijk", x), ValueError, "does not match the number of dimensions"),
    (lambda: lucid.einsum("ij,jk", x, x), ValueError, "subscript 'j' of 'ij,jk' has sizes 3 and 2"),
    (lambda: x.gather(0, x), TypeError, "gather: the index must hold integers"),
    (lambda: x.scatter_add(0, z[None], z[None]), TypeError, "to be equal to src.dtype"),
    (lambda: x.topk(4), ValueError, "selected index k out of range: 4 of 3"),
    (lambda: bool(x), ValueError, "more than one value is ambiguous"),
    (lambda: x.item(), ValueError, "a Tensor with 6 elements cannot be converted to Scalar"),
    (lambda: len(lucid.tensor(1.0)), TypeError, "len\\(\\) of a 0-d tensor"),
    (lambda: list(lucid.tensor(1.0)), TypeError, "iteration over a 0-d tensor"),
    (lambda: [1, 2][lucid.tensor(0.5)], TypeError, "only integer tensors of a single element"),
    (lambda: lucid.zeros(2, dtype="float32"), TypeError, "dtype must be one of lucid.bool"),
    (lambda: lucid.zeros(2, device="cuda"), ValueError, "device 'cuda' does not exist"),
    (
        lambda: lucid.zeros(2, device="meta"),
        ValueError,
        "'cpu'\nhint: leave this out",
    ),
    (lambda: lucid.zeros(-1), ValueError, r"negative dimension: \[-1\]"),
    (lambda: lucid.zeros(), TypeError, "missing the size"),
    (lambda: lucid.tensor([[1], [2, 3]]), ValueError, "the same length on each level"),
    (lambda: lucid.tensor([2**70]), ValueError, "a value doesn't fit lucid.int64"),
    (lambda: lucid.tensor("a"), TypeError, "tensor: data must be numbers, not str"),
    (lambda: lucid.tensor(np.zeros(2, np.float16)), TypeError, "arrays of dtype float16 are not"),
    (lambda: lucid.from_numpy([1]), TypeError, r"expected np.ndarray \(got list\)"),
    (lambda: lucid.arange(0, 5, 0), ValueError, "step must be nonzero"),
    (lambda: lucid.arange(5, 0), ValueError, "inconsistent with step sign"),
    (lambda: lucid.randint(5, 5, (2,)), ValueError, "must be below"),
    (lambda: lucid.randn(2, dtype=lucid.int64), TypeError, "randn: draws floating-point numbers"),
    (lambda: lucid.full((2,), 1.0).bernoulli(1.5), ValueError, r"expects p to be in \[0, 1\]"),
    (lambda: lucid.set_default_dtype(lucid.int64), TypeError, "only floating-point types"),
    (lambda: lucid.finfo(lucid.int64), TypeError, "hint: use iinfo"),
]


@pytest.mark.parametrize(("call", "builtin", "message"), WRONG, ids=[m for _, _, m in WRONG])
def test_the_error_says_what_is_wrong(
    call: Callable[[], Any], builtin: type[Exception], message: str
) -> None:
    with pytest.raises(lucid.LucidError, match=message) as caught:
        call()
    assert isinstance(caught.value, builtin)


def test_operands_are_named_with_the_line_that_made_them() -> None:
    a = lucid.zeros(2, 3)
    b = lucid.zeros(2, dtype=lucid.float64)
    with pytest.raises(lucid.DTypeError) as caught:
        a @ b
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "matmul: expected both operands to have the same dtype, but got lucid.float32 and "
        "lucid.float64"
    )
    assert lines[1].startswith("  input: f32[2,3]  from test_errors_of_arguments.py:")
    assert lines[1].endswith("a = lucid.zeros(2, 3)")
    assert lines[2].startswith("  other: f64[2]  from test_errors_of_arguments.py:")
    assert lines[3] == "hint: convert one with .to(other.dtype)"


def test_python_values_of_traced_tensors_are_refused() -> None:
    from lucid.compiler.recording.recorder import Recorder, recording

    recorder = Recorder("step")
    with recording(recorder):
        y = x.sum()
        for look in (float, np.asarray, np.from_dlpack):
            with pytest.raises(lucid.TraceError, match=r"looks at the data .*\n  at test_errors"):
                look(y)
    recorder.restore(True)
