"""What is wrong, with which operands, made where, and what would work: the same in both modes.

In the expected texts a line of the body is `+n`, counted from its first, and `given` is the line
that made the arguments.
"""

from __future__ import annotations

import re

import pytest

import lucid
from lucid import nn
from lucid.nn import functional as F

CASES = {}


def expect(text):
    """Enter a body with the text of its error."""

    def enter(body):
        CASES[body.__name__] = (body, text)
        return body

    return enter


def message(run, body):
    x, i = lucid.ones(2, 3, requires_grad=True), lucid.tensor([0, 5])  # given
    with pytest.raises(lucid.LucidError) as caught:
        run(body, x, i)

    code = body.__code__
    start = min(line for *_, line in code.co_lines() if line > code.co_firstlineno) - 1

    def shown(place):
        line, source = int(place[1]), place[2]
        return "given" if source.endswith("# given") else f"+{line - start} {source}"

    return re.sub(r"test_messages\.py:(\d+)   (.*)", shown, str(caught.value))


@expect(
    "linear: input of shape [2, 3] and weight of shape [4, 7] don't fit: their last axes "
    "must be equal\n"
    "  input:  f32[2,3]  from given\n"
    "  weight: f32[4,7]  from +1 w = lucid.ones(4, 7)"
)
def linear(x, i):
    w = lucid.ones(4, 7)
    return F.linear(x, w)


@expect(
    "linear: input of shape [2, 3] and weight of shape [2, 7] don't fit: their last axes "
    "must be equal\n"
    "  input:  f32[2,3]  from given\n"
    '  weight: f32[2,7]  "layer.weight"  from +1 layer = nn.Linear(7, 2, bias=False)\n'
    "  in layer (Linear)"
)
def a_linear_module(x, i):
    layer = nn.Linear(7, 2, bias=False)
    return layer(x)


@expect(
    "matmul: the inner dimensions differ, 3 and 4\n"
    "  lhs: f32[2,3]  from given\n"
    "  rhs: f32[4,5]  from +1 y = lucid.ones(4, 5)"
)
def matmul(x, i):
    y = lucid.ones(4, 5)
    return x @ y


@expect(
    "bmm: the batches differ in size\n"
    "  input: f32[2,3,4]  from +1 return lucid.bmm(lucid.ones(2, 3, 4), "
    "lucid.ones(3, 4, 5))\n"
    "  mat2:  f32[3,4,5]  from +1 return lucid.bmm(lucid.ones(2, 3, 4), "
    "lucid.ones(3, 4, 5))"
)
def bmm(x, i):
    return lucid.bmm(lucid.ones(2, 3, 4), lucid.ones(3, 4, 5))


@expect(
    "Trying to backward through the graph a second time (or directly access saved "
    "tensors after they have already been freed). Saved intermediate values of the graph "
    "are freed when you call .backward() or autograd.grad(). Specify retain_graph=True "
    "if you need to backward through the graph a second time or if you need to access "
    "saved tensors after calling backward.\n"
    "  in Mul, recorded at +1 y = (x * x).sum()"
)
def a_second_backward(x, i):
    y = (x * x).sum()
    y.backward()
    return y.backward()


@expect(
    "a leaf Variable that requires grad is being used in an in-place operation. (add_)\n"
    "  target: f32[2,3]  from given\n"
    "hint: write under lucid.no_grad(), or into a clone()"
)
def a_write_into_a_leaf(x, i):
    return x.add_(1)


@expect(
    "a view of a leaf Variable that requires grad is being used in an in-place operation. "
    "(x[index] = value)\n"
    "  target: f32[3]  from +1 x[0] = 1\n"
    "  leaf:   f32[2,3]  from given\n"
    "hint: write under lucid.no_grad(), or into a clone()"
)
def a_write_into_a_part_of_a_leaf(x, i):
    x[0] = 1


@expect(
    "one of the variables needed for gradient computation has been modified by an "
    "inplace operation: [FloatTensor [2, 3]], which is output 0 of Add, is at version 1; "
    "expected version 0 instead.\n"
    "  saved for MulBackward, recorded at +2 z = (y * y).sum()"
)
def a_saved_tensor_that_was_written(x, i):
    y = x * 2
    z = (y * y).sum()
    y.add_(1)
    return z.backward()


@expect("view: shape '[4, 4]' is invalid for input of size 6\n  input: f32[2,3]  from given")
def view(x, i):
    return x.view(4, 4)


@expect("reshape: shape '[-1, 5]' is invalid for input of size 6\n  input: f32[2,3]  from given")
def reshape(x, i):
    return x.reshape(-1, 5)


@expect(
    "view: view size is not compatible with input tensor's size and stride (at least one "
    "dimension spans across two contiguous subspaces)\n"
    "  input: f32[3,2]  from +1 return x.t().view(6)\n"
    "hint: use .reshape(...) instead, which copies"
)
def a_view_that_needs_a_copy(x, i):
    return x.t().view(6)


@expect(
    "conv2d: Given groups=1, weight of size [4, 2, 3, 3], expected input[1, 3, 8, 8] to "
    "have 2 channels, but got 3 channels instead\n"
    "  input:  f32[1,3,8,8]  from +2 return F.conv2d(lucid.ones(1, 3, 8, 8), weight)\n"
    "  weight: f32[4,2,3,3]  from +1 weight = lucid.ones(4, 2, 3, 3)"
)
def channels(x, i):
    weight = lucid.ones(4, 2, 3, 3)
    return F.conv2d(lucid.ones(1, 3, 8, 8), weight)


@expect(
    "cat: the shapes differ on another axis than 0\n"
    "  tensors[0]: f32[2,3]  from given\n"
    "  tensors[1]: f32[2,4]  from +1 y = lucid.ones(2, 4)"
)
def cat(x, i):
    y = lucid.ones(2, 4)
    return lucid.cat([x, y])


@expect(
    "atan2: the shapes don't broadcast: axis -1 has the sizes 3 and 4\n"
    "  input: f32[2,3]  from given\n"
    "  other: f32[2,4]  from +1 y = lucid.ones(2, 4)"
)
def of_several_ops(x, i):
    y = lucid.ones(2, 4)
    return lucid.atan2(x, y)


@expect(
    "mm: the inner dimensions differ, 3 and 2\n"
    "  input: f32[2,3]  from given\n"
    "  mat2:  f32[2,3]  from +1 y = lucid.ones(2, 3)\n"
    "hint: mat2.T has the right shape"
)
def with_a_hint_about_an_operand(x, i):
    y = lucid.ones(2, 3)
    return lucid.mm(x, y)


@expect(
    "addmm: the inner dimensions differ, 3 and 2\n"
    "  input: f32[2,3]  from given\n"
    "  mat1:  f32[2,3]  from given\n"
    "  mat2:  f32[2,3]  from +1 y = lucid.ones(2, 3)"
)
def with_other_operands_than_the_hint_is_about(x, i):
    y = lucid.ones(2, 3)
    return lucid.addmm(x, x, y)


@expect(
    "stack: expects each tensor to be equal size\n"
    "  tensors[0]: f32[2,3]  from given\n"
    "  tensors[1]: f32[2,4]  from +1 y = lucid.ones(2, 4)"
)
def stack(x, i):
    y = lucid.ones(2, 4)
    return lucid.stack([x, y])


@expect(
    "add: the shapes don't broadcast: axis -1 has the sizes 3 and 4\n"
    "  lhs: f32[2,3]  from given\n"
    "  rhs: f32[4]    from +1 y = lucid.ones(4)"
)
def broadcasting(x, i):
    y = lucid.ones(4)
    return x + y


@expect(
    "expand: The expanded size of the tensor (4) must match the existing size (2) at "
    "non-singleton dimension 0\n"
    "  input: f32[2,3]  from given"
)
def expand(x, i):
    return x.expand(4, 3)


@expect("x[i]: index 5 is out of bounds for dimension 0 with size 2\n  input: f32[2,3]  from given")
def an_index(x, i):
    return x[5]


@expect("indexing: too many indices for tensor of dimension 2: 3\n  input: f32[2,3]  from given")
def too_many_indices(x, i):
    return x[0, 0, 0]


@expect(
    "x[i]: index 5 is out of bounds for dimension 0 with size 2\n"
    "  input: f32[2,3]\n"
    "  index: i64[2]\n"
    "  in +1 return x[i]"
)
def index_tensors(x, i):
    return x[i]


@expect(
    "indexing: the shape of the mask [3] at axis 0 does not match the shape of the "
    "indexed tensor [2, 3]\n"
    "  input: f32[2,3]  from given"
)
def mask(x, i):
    return x[lucid.tensor([True, False, True])]


@expect(
    "sum: Dimension out of range (expected to be in range of [-2, 1], but got 3)\n"
    "  input: f32[2,3]  from given"
)
def axis(x, i):
    return x.sum(3)


@expect(
    "matmul: expected both operands to have the same dtype, but got lucid.float32 and "
    "lucid.float64\n"
    "  input: f32[2,3]  from given\n"
    "  other: f64[3,2]  from +1 return x @ lucid.ones(3, 2, dtype=lucid.float64)\n"
    "hint: convert one with .to(other.dtype)"
)
def dtypes(x, i):
    return x @ lucid.ones(3, 2, dtype=lucid.float64)


@expect(
    "mean: needs a floating-point tensor, got lucid.int64\n"
    "  input: i64[2]  from given\n"
    "hint: convert with .float()"
)
def the_mean_of_integers(x, i):
    return i.mean()


@expect(
    "only Tensors of floating point dtype can require gradients, not lucid.int64\n"
    "  tensor: i64[2]  from given\n"
    "hint: convert it first, with .float()"
)
def gradients_of_integers(x, i):
    return i.requires_grad_()


@expect(
    "bitwise_and: defined for integers and bools, not lucid.float32\n"
    "  input: f32[2,3]  from given\n"
    "  other: f32[2,3]  from given"
)
def a_bitwise_operation_on_floats(x, i):
    return x & x


@expect(
    "neg: Negation, the `-` operator, on a bool tensor is not supported\n"
    "  input: bool[2,3]  from +1 return -(x > 0)\n"
    "hint: use the `~` or `logical_not()` operator to invert a mask"
)
def the_negative_of_bools(x, i):
    return -(x > 0)


@expect(
    "grad can be implicitly created only for scalar outputs\n"
    "  output 0: f32[2,3]  from +1 return (x * 2).backward()\n"
    "hint: l.sum().backward() or l.backward(gradient)"
)
def a_backward_without_seed(x, i):
    return (x * 2).backward()


@expect(
    "element 0 of tensors does not require grad and does not have a grad_fn\n"
    "  element 0: f32[]  from +1 return x.detach().sum().backward()\n"
    "hint: it was computed under no_grad, or no leaf has requires_grad=True"
)
def a_backward_of_nothing(x, i):
    return x.detach().sum().backward()


@expect(
    "Mismatch in shape: grad_output[0] has a shape of lucid.Size([4]) and output[0] has "
    "a shape of lucid.Size([2, 3]).\n"
    "  grad_output[0]: f32[4]  from +1 return (x * 2).backward(lucid.ones(4))\n"
    "  output[0]:      f32[2,3]"
)
def a_seed_of_another_shape(x, i):
    return (x * 2).backward(lucid.ones(4))


@expect(
    "The differentiated Tensor at index 0 appears to not have been used in the graph. "
    "Set allow_unused=True if this is the desired behavior.\n"
    "  input 0: f32[2]  from +1 y = lucid.ones(2, requires_grad=True)"
)
def an_input_that_was_not_used(x, i):
    y = lucid.ones(2, requires_grad=True)
    return lucid.autograd.grad(x.sum(), y)


@expect(
    "output with shape [3] doesn't match the broadcast shape of the value, [2, 3]\n"
    "  target: f32[3]  from +1 y = lucid.zeros(3)\n"
    "  value:  f32[2,3]  from given"
)
def a_copy_of_another_shape(x, i):
    y = lucid.zeros(3)
    return y.copy_(x)


@expect(
    "result type lucid.float32 can't be cast to the desired output type lucid.int64\n"
    "  target: i64[2,3]  from +1 y = lucid.zeros(2, 3, dtype=lucid.int64)\n"
    "  value:  f32[2,3]  from +2 y += x"
)
def a_sum_into_integers(x, i):
    y = lucid.zeros(2, 3, dtype=lucid.int64)
    y += x


@expect(
    "binary_cross_entropy: Target size must be the same as input size\n"
    "  input:  f32[2,3]  from +1 return F.binary_cross_entropy(x.sigmoid(), lucid.ones(2, 2))\n"
    "  target: f32[2,2]  from +1 return F.binary_cross_entropy(x.sigmoid(), lucid.ones(2, 2))"
)
def shapes_of_losses(x, i):
    return F.binary_cross_entropy(x.sigmoid(), lucid.ones(2, 2))


@expect(
    "cross_entropy: target must be [2], as axis 1 has the classes\n"
    "  input:  f32[2,3]  from given\n"
    "  target: i64[3]  from +1 return F.cross_entropy(x, lucid.tensor([0, 1, 2]))"
)
def targets(x, i):
    return F.cross_entropy(x, lucid.tensor([0, 1, 2]))


@expect(
    "cross_entropy: expected an int64 target of class indices, but got lucid.float32\n"
    "  input:  f32[2,3]  from given\n"
    "  target: f32[2]  from +1 return F.cross_entropy(x, lucid.ones(2))\n"
    "hint: target.long()"
)
def targets_of_floats(x, i):
    return F.cross_entropy(x, lucid.ones(2))


@expect(
    "layer_norm: the last axes of input must be normalized_shape=[4]\n  input: f32[2,3]  from given"
)
def a_norm(x, i):
    return F.layer_norm(x, (4,))


@expect("split: split_sizes must sum to 2 on axis 0, not [1, 2, 3]\n  input: f32[2,3]  from given")
def splitting(x, i):
    return x.split([1, 2, 3])


@expect("narrow: start (1) + length (4) exceeds the size 2\n  input: f32[2,3]  from given")
def narrowing(x, i):
    return x.narrow(0, 1, 4)


@expect(
    "einsum: subscript 'j' of 'ij,jk->ik' has sizes 3 and 4\n"
    "  operands[0]: f32[2,3]  from given\n"
    "  operands[1]: f32[4,2]  from +1 y = lucid.ones(4, 2)"
)
def einsum(x, i):
    y = lucid.ones(4, 2)
    return lucid.einsum("ij,jk->ik", x, y)


@expect(
    "item: a Tensor with 6 elements cannot be converted to Scalar\n  input: f32[2,3]  from given"
)
def item_of_several(x, i):
    return x.item()


@expect(
    "bool: Boolean value of Tensor with more than one value is ambiguous\n"
    "  input: f32[2,3]  from given\n"
    "hint: use .any() or .all()"
)
def the_truth_of_several(x, i):
    return bool(x)


@expect("topk: selected index k out of range: 9 of 3\n  input: f32[2,3]  from given")
def topk(x, i):
    return x.topk(9)


@pytest.mark.parametrize("name", CASES)
def test_a_message_has_the_op_its_operands_and_their_places(run, name):
    body, text = CASES[name]
    assert message(run, body) == text
