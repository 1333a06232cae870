"""What ops refuse, word for word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lucid.ir import ops
from lucid.ir.errors import (
    ArgumentError,
    DTypeError,
    IndexOutOfRangeError,
    LucidError,
    MissingRuleError,
    ShapeError,
)
from lucid.ir.ops.rules import with_birthplaces
from lucid.ir.types import TensorType, dtype_named, f32, f64, i64


def typed(text: str) -> TensorType:
    """`f32[2,3]` as a type."""
    name, _, sizes = text.rstrip("]").partition("[")
    return TensorType(dtype_named(name), tuple(int(n) for n in sizes.split(",") if n))


REFUSALS: list[tuple[type[LucidError], str, str, dict[str, Any], str]] = [
    (
        ShapeError, "add", "f32[4,8] f32[3,4]", {},
        """add: the shapes don't broadcast: axis -1 has the sizes 8 and 4
  lhs: f32[4,8]
  rhs: f32[3,4]""",
    ),
    (
        ShapeError, "clamp", "f32[4] f32[] f32[3]", {},
        """clamp: the shapes don't broadcast: axis -1 has the sizes 4 and 3
  x:    f32[4]
  low:  f32[]
  high: f32[3]""",
    ),
    (
        DTypeError, "add", "f32[4] i64[]", {},
        """add: the dtypes differ, f32 and i64
  lhs: f32[4]
  rhs: i64[]
hint: cast one of them""",
    ),
    (
        DTypeError, "exp", "i64[4]", {},
        """exp: takes f32, f64, not i64
  x: i64[4]
hint: convert with .float()""",
    ),
    (
        DTypeError, "bit_and", "f32[4] f32[4]", {},
        """bit_and: takes u8, i8, i16, i32, i64, u32, not f32
  lhs: f32[4]
  rhs: f32[4]
hint: convert with .long()""",
    ),
    (
        DTypeError, "logical_not", "f32[4]", {},
        """logical_not: takes bool, not f32
  x: f32[4]
hint: convert with .bool(), or compare with 0""",
    ),
    (
        DTypeError, "sum", "bool[4]", {"axes": (0,)},
        """sum: takes u8, i8, i16, i32, i64, u32, f32, f64, not bool
  x: bool[4]
hint: convert with .float() or .long()""",
    ),
    (
        ArgumentError, "add", "f32[4]", {},
        "add: takes 2 operands, not 1",
    ),
    (
        DTypeError, "where", "f32[4] f32[4] f32[4]", {},
        """where: the condition is bool, not f32
  condition: f32[4]
  x:         f32[4]
  other:     f32[4]
hint: compare with 0""",
    ),
    (
        DTypeError, "where", "bool[4] f32[4] f64[4]", {},
        """where: the dtypes differ, f32 and f64
  condition: bool[4]
  x:         f32[4]
  other:     f64[4]
hint: cast one of them""",
    ),
    (
        ShapeError, "broadcast", "f32[4]", {"shape": (4, 3)},
        """broadcast: the shape [4] doesn't broadcast to [4, 3]
  x: f32[4]""",
    ),
    (
        ShapeError, "reshape", "f32[4,2]", {"shape": (3, 3)},
        """reshape: 8 elements don't fill the shape [3, 3]
  x: f32[4,2]""",
    ),
    (
        ShapeError, "transpose", "f32[4,2]", {"perm": (0, 2)},
        """transpose: [0, 2] is no order of 2 axes
  x: f32[4,2]""",
    ),
    (
        ShapeError, "slice", "f32[4]", {"starts": (0,), "stops": (6,), "steps": (1,)},
        """slice: 0:6:1 doesn't slice axis 0 with size 4
  x: f32[4]""",
    ),
    (
        ShapeError, "slice", "f32[4]", {"starts": (0,), "stops": (2,), "steps": (0,)},
        """slice: 0:2:0 doesn't slice axis 0 with size 4
  x: f32[4]""",
    ),
    (
        ShapeError, "slice", "f32[4]", {"starts": (), "stops": (), "steps": ()},
        """slice: starts, stops and steps must have one entry for each of 1 axes
  x: f32[4]""",
    ),
    (
        ShapeError, "update_slice", "f32[4] f32[3]",
        {"starts": (0,), "stops": (2,), "steps": (1,)},
        """update_slice: the slice has the shape [2], the update [3]
  base:   f32[4]
  update: f32[3]""",
    ),
    (
        ShapeError, "pad", "f32[4] f32[1]", {"low": (0,), "high": (2,)},
        """pad: the value has no axes
  x:     f32[4]
  value: f32[1]""",
    ),
    (
        ShapeError, "pad", "f32[4] f32[]", {"low": (0,), "high": (-2,)},
        """pad: low [0] and high [-2] are not counts for 1 axes
  x:     f32[4]
  value: f32[]""",
    ),
    (
        ShapeError, "concat", "f32[4,2] f32[4,3]", {"axis": 0},
        """concat: the shapes differ on another axis than 0
  x0: f32[4,2]
  x1: f32[4,3]""",
    ),
    (
        ArgumentError, "concat", "", {"axis": 0},
        "concat: needs at least one operand",
    ),
    (
        ShapeError, "sum", "f32[4,2]", {"axes": (2,)},
        """sum: axis 2 is out of range for 2 axes
  x: f32[4,2]""",
    ),
    (
        ShapeError, "sum", "f32[4,2]", {"axes": (1, 1)},
        """sum: an axis is twice in [1, 1]
  x: f32[4,2]""",
    ),
    (
        ShapeError, "amax", "f32[4,0]", {"axes": (1,)},
        """amax: axis 1 has no elements
  x: f32[4,0]""",
    ),
    (
        ShapeError, "argmin", "f32[0]", {"axis": 0},
        """argmin: axis 0 has no elements
  x: f32[0]""",
    ),
    (
        DTypeError, "take", "f32[4] f32[2]", {"axis": 0},
        """take: an index is i64 or i32, not f32
  x:     f32[4]
  index: f32[2]
hint: convert with .long()""",
    ),
    (
        ShapeError, "gather", "f32[4,2] i64[3]", {"axis": 0},
        """gather: the index needs 2 axes, not 1
  x:     f32[4,2]
  index: i64[3]""",
    ),
    (
        ShapeError, "gather", "f32[4,2] i64[9,3]", {"axis": 0},
        """gather: the index is longer on axis 1, 3 for 2
  x:     f32[4,2]
  index: i64[9,3]""",
    ),
    (
        ShapeError, "index_add", "f32[4,2] i64[3] f32[3]", {"axis": 0},
        """index_add: the source needs the shape [3, 2], not [3]
  base:   f32[4,2]
  index:  i64[3]
  source: f32[3]""",
    ),
    (
        ShapeError, "scatter", "f32[4] i64[3] f32[4]", {"axis": 0},
        """scatter: the source needs the index's shape, not [4]
  base:   f32[4]
  index:  i64[3]
  source: f32[4]""",
    ),
    (
        ShapeError, "matmul", "f32[128,64] f32[10,64]", {},
        """matmul: the inner dimensions differ, 64 and 10
  lhs: f32[128,64]
  rhs: f32[10,64]
hint: rhs.T has the right shape""",
    ),
    (
        ShapeError, "matmul", "f32[8,4] f32[3,5]", {},
        """matmul: the inner dimensions differ, 4 and 3
  lhs: f32[8,4]
  rhs: f32[3,5]""",
    ),
    (
        ShapeError, "matmul", "f32[4] f32[4,5]", {},
        """matmul: both operands need two axes
  lhs: f32[4]
  rhs: f32[4,5]""",
    ),
    (
        ShapeError, "matmul", "f32[2,8,4] f32[3,4,5]", {},
        """matmul: the batches don't broadcast, [2] and [3]
  lhs: f32[2,8,4]
  rhs: f32[3,4,5]""",
    ),
    (
        ShapeError, "contract", "f32[2,3] f32[4,5]", {"indices": "ik,jk->ij"},
        """contract: the axes named k differ, 3 and 5
  lhs: f32[2,3]
  rhs: f32[4,5]""",
    ),
    (
        ShapeError, "contract", "f32[2,3] f32[4,3]", {"indices": "ik,jk->i"},
        """contract: "ik,jk->i" must name each axis once, and each name in two or three places
  lhs: f32[2,3]
  rhs: f32[4,3]""",
    ),
    (
        ShapeError, "windows", "f32[2,6]",
        {"axes": (1,), "sizes": (3,), "steps": (1,), "dilations": (3,)},
        """windows: a window spans 7 elements of axis 1, which has 6
  x: f32[2,6]""",
    ),
    (
        ShapeError, "windows", "f32[2,6]",
        {"axes": (2,), "sizes": (3,), "steps": (1,), "dilations": (1,)},
        """windows: [2] are not different axes of 2
  x: f32[2,6]""",
    ),
    (
        ArgumentError, "windows", "f32[2,6]",
        {"axes": (1,), "sizes": (3,), "steps": (0,), "dilations": (1,)},
        """windows: sizes, steps and dilations must be positive, one for each of axes [1]
  x: f32[2,6]""",
    ),
    (
        ShapeError, "overlap_add", "f32[2,4,3]",
        {"axes": (1,), "lengths": (7,), "steps": (1,), "dilations": (1,)},
        """overlap_add: 7 elements on axis 1 haven't 4 windows of 3 with step 1 and dilation 1
  x: f32[2,4,3]""",
    ),
    (
        DTypeError, "random_normal", "i64[2]", {"shape": (3,), "dtype": i64},
        """random_normal: draws f32 and f64, not i64
  state: i64[2]""",
    ),
    (
        ShapeError, "random_uniform", "i64[3]", {"shape": (3,), "dtype": f32},
        """random_uniform: the state is i64[2]
  state: i64[3]""",
    ),
    (
        DTypeError, "random_uniform", "i32[2]", {"shape": (3,), "dtype": f32},
        """random_uniform: the state is i64[2]
  state: i32[2]""",
    ),
    (
        ShapeError, "iota", "", {"shape": (3,), "axis": 1, "dtype": f64},
        "iota: axis 1 is out of range for 1 axes",
    ),
    (
        DTypeError, "iota", "", {"shape": (3,), "axis": 0, "dtype": dtype_named("bool")},
        "iota: counts in u8, i8, i16, i32, i64, u32, f32, f64, not bool",
    ),
    (
        MissingRuleError, "call", "f32[3]", {"function": "Swish"},
        "call: 'Swish' has no meaning outside of its graph; inline it first",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "name", "operands", "attributes", "message"),
    REFUSALS,
    ids=[message.splitlines()[0] for *_, message in REFUSALS],
)
def test_a_refusal_says_what_is_wrong(
    error: type[LucidError], name: str, operands: str, attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(error) as caught:
        getattr(ops, name).infer(*map(typed, operands.split()), **attributes)
    assert type(caught.value) is error
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["take", "gather"])
@pytest.mark.parametrize("wrong", [5, -6])
def test_an_index_out_of_range_is_named(name: str, wrong: int) -> None:
    x, index = np.zeros((2, 5)), np.array([[0, 4, wrong, 99]])
    with pytest.raises(IndexOutOfRangeError) as caught:
        getattr(ops, name).evaluate(x, index, axis=1)
    message = f"{name}: index {wrong} is out of range for axis 1 with size 5"
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["index_add", "index_set", "scatter_add", "scatter"])
def test_a_written_index_out_of_range_is_named(name: str) -> None:
    base, index, source = np.zeros(3), np.array([0, 3], np.int32), np.ones(2)
    with pytest.raises(IndexOutOfRangeError) as caught:
        getattr(ops, name).evaluate(base, index, source, axis=0)
    assert str(caught.value) == f"{name}: index 3 is out of range for axis 0 with size 3"
    assert not base.any()


def test_birthplaces_are_added_to_the_operands() -> None:
    with pytest.raises(ShapeError) as caught:
        ops.matmul.infer(typed("f32[128,64]"), typed("f32[10,64]"))
    places = ["train.py:41   x = batch.reshape(128, 64)", "train.py:12   self.w = randn(10, 64)"]
    assert with_birthplaces(str(caught.value), places) == (
        "matmul: the inner dimensions differ, 64 and 10\n"
        "  lhs: f32[128,64]  from train.py:41   x = batch.reshape(128, 64)\n"
        "  rhs: f32[10,64]   from train.py:12   self.w = randn(10, 64)\n"
        "hint: rhs.T has the right shape"
    )
    assert with_birthplaces("add: no operands listed", places) == "add: no operands listed"
    assert with_birthplaces("neg: no\n  x: f32[]", [""]) == "neg: no\n  x: f32[]"


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize("count", [5, 200])
def test_indices_are_within_their_bounds_however_many_there_are(count: int, dtype: Any) -> None:
    most = np.iinfo(dtype)
    for low, high in (0, 7), (-7, 7), (-7, -2):
        right = np.resize(np.arange(low, high, dtype=dtype), (2, count))
        for x in right, right.T, right[:, ::-1]:
            ops.check.evaluate(x, low=low, high=high, message="{}", error="index")
            for wrong in low - 1, high, most.min, most.max:
                x[1, 1] = wrong
                with pytest.raises(IndexOutOfRangeError, match=f"^{wrong}$"):
                    ops.check.evaluate(x, low=low, high=high, message="{}", error="index")
            x[1, 1] = low
    table = np.arange(7.0)
    picked = ops.gather.evaluate(table, np.resize(np.arange(-7, 7), count), axis=0)
    np.testing.assert_array_equal(picked, np.resize(np.tile(table, 2), count))
