"""Wrong arguments raise the library's own errors, in eager mode and compiled, and name the call."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

import lucid
from lucid import distributions as D, nn, optim
from lucid.utils import data


def weights():
    return [lucid.ones(2, requires_grad=True)]


WRONG = {
    "fill_": (
        lambda: lucid.ones(2).fill_("a"),
        TypeError,
        "fill_: operands are tensors and Python numbers, not str",
    ),
    "a module for parameters": (
        lambda: optim.SGD(nn.Linear(2, 2)),
        TypeError,
        "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
        "Linear\nhint: pass .parameters()",
    ),
    "a tensor for parameters": (
        lambda: optim.SGD(lucid.ones(2)),
        TypeError,
        "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
        "Tensor",
    ),
    "a flag of gradients": (
        lambda: lucid.ones(2).requires_grad_("a"),
        TypeError,
        "requires_grad_: requires_grad must be True or False, not 'a'",
    ),
    "a number for a dataset's tensor": (
        lambda: data.TensorDataset(5),
        TypeError,
        "TensorDataset: argument 'tensors' (position 1) must be Tensor, not int",
    ),
    "a number for the lengths of parts": (
        lambda: data.random_split([1, 2], 5),
        TypeError,
        "random_split: can't be called with (list, int): 'int' object is not iterable",
    ),
    "a name for a place in a list": (
        lambda: nn.Sequential(nn.ReLU())["a"],
        TypeError,
        "modules[index]: index must be an int, not 'a'",
    ),
    "a number that no float is": (
        lambda: lucid.ones(2) - 10**400,
        ValueError,
        "sub: value of 1329 bits cannot be converted to lucid.float32 without overflow",
    ),
    "an exponent that no float is": (
        lambda: lucid.ones(2) ** 10**400,
        ValueError,
        "pow: value of 1329 bits cannot be converted to lucid.float32 without overflow",
    ),
    "a base that no float is": (
        lambda: (10**400) ** lucid.ones(2),
        ValueError,
        "pow: value of 1329 bits cannot be converted to lucid.float32 without overflow",
    ),
    "a tensor to be printed as its own text": (
        lambda: lucid.debug.print(lucid.ones(2)),
        TypeError,
        "print: the text must be a str, not lucid.Tensor",
    ),
    "a number of more digits than Python writes": (
        lambda: lucid.tensor([1]) * 10**5000,
        ValueError,
        "mul: value of 16610 bits cannot be converted to lucid.int64 without overflow",
    ),
    "an index of more digits than Python writes": (
        lambda: lucid.ones(2)[10**5000],
        IndexError,
        "x[i]: index of 16610 bits is out of bounds for dimension 0 with size 2",
    ),
    "a dense matrix for a sparse one": (
        lambda: lucid.sparse.sum(lucid.ones(2)),
        TypeError,
        "sum: argument 'input' (position 1) must be SparseTensor, not Tensor",
    ),
    "no function to be called back": (
        lambda: lucid.debug.callback([3], lucid.ones(2)),
        TypeError,
        "callback: argument 'function' (position 1) must be a function, not list",
    ),
    "a truth of several elements": (
        lambda: lucid.debug.assert_(np.ones(2) == [1, 2]),
        ValueError,
        "assert_: can't be called with (ndarray): The truth value of an array with more than one "
        "element is ambiguous. Use a.any() or a.all()",
    ),
    "no epochs of a wave": (
        lambda: optim.lr_scheduler.CosineAnnealingLR(optim.SGD(weights()), 0),
        ValueError,
        "CosineAnnealingLR: T_max must not be 0",
    ),
    "a margin below 0": (
        lambda: nn.TripletMarginLoss(margin=-1),
        ValueError,
        "TripletMarginLoss: margin must be above 0, not -1",
    ),
    "no features of attention": (
        lambda: nn.MultiheadAttention(0, 1),
        ValueError,
        "embed_dim must be divisible by num_heads, and both above 0",
    ),
    "a Hessian at a number": (
        lambda: lucid.func.hessian(lambda x: x)(5),
        ValueError,
        "Thing passed to transform API must be Tensor, got <class 'int'>",
    ),
    "a number for weights of categories": (
        lambda: D.Categorical(probs=5),
        TypeError,
        "Categorical: probs or logits must be a Tensor, not int",
    ),
    "a learning rate": (
        lambda: optim.SGD(weights(), lr="fast"),
        TypeError,
        "learning rate must be a number, not str",
    ),
    "betas": (
        lambda: optim.Adam(weights(), betas=3),
        TypeError,
        "Adam: betas can't be 3: 'int' object is not iterable",
    ),
    "a state dict": (
        lambda: optim.SGD(weights(), lr=0.1).load_state_dict(3),
        TypeError,
        "load_state_dict: a dict with 'param_groups' and 'state' is needed, not int\n"
        "hint: state_dict() of an optimizer makes one",
    ),
    "dropout": (
        lambda: nn.Dropout("half"),
        TypeError,
        "Dropout: can't be made of (str): '<=' not supported between instances of 'float' and "
        "'str'",
    ),
    "padding": (
        lambda: nn.ZeroPad2d(None),
        TypeError,
        "ZeroPad2d: can't be made of (NoneType): 'NoneType' object is not iterable",
    ),
    "a kernel": (
        lambda: nn.Conv2d(1, 2, "a"),
        TypeError,
        "Conv2d: kernel_size must be an int, not 'a'",
    ),
    "a missing size": (
        lambda: nn.Linear(2),
        TypeError,
        "Linear: missing a required argument: 'out_features'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_wrong_argument_is_named_with_the_call(name, mode):
    make, kind, message = WRONG[name]
    call = lucid.compile(make) if mode == "compiled" else make
    with pytest.raises(lucid.LucidError) as caught:
        call()
    assert isinstance(caught.value, kind)
    text = str(caught.value).replace("lucid.Tensor", "Tensor")
    first, *rest = message.replace("lucid.Tensor", "Tensor").split("\n")
    assert text.split("\n")[0] == first
    assert all(line in text for line in rest)


PARAMETERS = {
    "Normal scale greater than 0": lambda wrong: D.Normal(0.0, wrong),
    "Laplace scale greater than 0": lambda wrong: D.Laplace(0.0, wrong),
    "HalfNormal scale greater than 0": lambda wrong: D.HalfNormal(wrong),
    "Exponential rate greater than 0": lambda wrong: D.Exponential(wrong),
    "Gamma concentration greater than 0": lambda wrong: D.Gamma(wrong, 1.0),
    "Beta concentration0 greater than 0": lambda wrong: D.Beta(1.0, wrong),
    "StudentT df greater than 0": lambda wrong: D.StudentT(wrong),
    "Poisson rate at least 0": lambda wrong: D.Poisson(wrong),
    "Bernoulli probs between 0 and 1": lambda wrong: D.Bernoulli(probs=wrong),
    "Geometric probs greater than 0 and at most 1": lambda wrong: D.Geometric(probs=wrong),
    "Binomial probs between 0 and 1": lambda wrong: D.Binomial(3, wrong),
    "Binomial total_count whole numbers from 0 on": lambda wrong: D.Binomial(
        wrong * 2, lucid.tensor(0.5)
    ),
    "NegativeBinomial probs at least 0 and less than 1": lambda wrong: D.NegativeBinomial(3, wrong),
    "RelaxedBernoulli probs between 0 and 1": lambda wrong: D.RelaxedBernoulli(1.0, wrong),
    "Chi2 df greater than 0": lambda wrong: D.Chi2(wrong),
    "Pareto alpha greater than 0": lambda wrong: D.Pareto(1.0, wrong),
}
VECTORS = {
    "Categorical probs at least 0, with a sum of 1": lambda wrong: D.Categorical(wrong),
    "OneHotCategorical probs at least 0, with a sum of 1": lambda wrong: D.OneHotCategorical(wrong),
    "Dirichlet concentration greater than 0": lambda wrong: D.Dirichlet(wrong),
    "RelaxedOneHotCategorical probs at least 0, with a sum of 1": (
        lambda wrong: D.RelaxedOneHotCategorical(1.0, wrong)
    ),
}
NAN_ONLY = {
    "Normal loc numbers, not NaN": lambda wrong: D.Normal(wrong, 1.0),
    "Bernoulli logits numbers, not NaN": lambda wrong: D.Bernoulli(logits=wrong),
    "Categorical logits numbers, not NaN": lambda wrong: D.Categorical(logits=lucid.stack([wrong])),
}
VALUES: dict[str, tuple[Callable[..., Any], list[float]]] = {
    "Normal numbers, not NaN": (lambda: D.Normal(0.0, 1.0), [math.nan]),
    "LogNormal greater than 0": (lambda: D.LogNormal(0.0, 1.0), [0.0, -1.0, math.nan]),
    "HalfNormal at least 0": (lambda: D.HalfNormal(1.0), [-1.0]),
    "Uniform between 0 and 2": (lambda: D.Uniform(0.0, 2.0), [-0.1, 2.1, math.nan]),
    "Exponential at least 0": (lambda: D.Exponential(1.0), [-1.0]),
    "Gamma at least 0": (lambda: D.Gamma(1.0, 1.0), [-1.0]),
    "Beta between 0 and 1": (lambda: D.Beta(1.0, 1.0), [1.5]),
    "Weibull greater than 0": (lambda: D.Weibull(1.0, 1.0), [0.0]),
    "Pareto at least 3": (lambda: D.Pareto(3.0, 1.0), [2.0]),
    "HalfCauchy at least 0": (lambda: D.HalfCauchy(1.0), [-1.0]),
    "InverseGamma greater than 0": (lambda: D.InverseGamma(1.0, 1.0), [0.0]),
    "StudentT numbers, not NaN": (lambda: D.StudentT(3.0), [math.nan]),
    "Bernoulli 0 or 1": (lambda: D.Bernoulli(0.5), [0.5, 2.0]),
    "Geometric whole numbers from 0 on": (lambda: D.Geometric(0.5), [-1.0, 0.5]),
    "Poisson whole numbers from 0 on": (lambda: D.Poisson(0.5), [-1.0, 0.5]),
    "NegativeBinomial whole numbers from 0 on": (lambda: D.NegativeBinomial(3, 0.5), [0.5]),
    "Binomial whole numbers from 0 to 3": (lambda: D.Binomial(3, 0.5), [-1.0, 4.0]),
    "Categorical whole numbers from 0 to 1": (lambda: D.Categorical(lucid.ones(2)), [2.0, -1.0]),
    "RelaxedBernoulli between 0 and 1": (lambda: D.RelaxedBernoulli(1.0, 0.5), [2.0]),
    "TransformedDistribution between -1 and 1": (
        lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), D.TanhTransform()), [1.5],
    ),
}  # fmt: skip
SINGLES = [(name, wrong) for name in PARAMETERS for wrong in (-1.0, float("nan"))] + [
    (name, float("nan")) for name in NAN_ONLY
]


@pytest.mark.parametrize(("name", "wrong"), SINGLES)
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_distribution_refuses_parameters_that_it_cannot_have(name, mode, wrong):
    make = (PARAMETERS | NAN_ONLY)[name]
    step = lucid.compile(lambda x: (make(x), x * 2)[1]) if mode == "compiled" else make
    step(lucid.tensor(1.0 if "total_count" in name else 0.5))
    with pytest.raises(lucid.OptionError) as caught:
        step(lucid.tensor(wrong))
    kind, parameter, said = name.split(" ", 2)
    first, operand, line = str(caught.value).split("\n")
    assert first == f"{kind}: {parameter} must be {said}"
    assert operand.startswith(f"  {parameter}: f32[")
    assert line.startswith("  in test_wrong_arguments.py:")


@pytest.mark.parametrize("wrong", [[0.5, -1.0], [math.nan, 0.5]])
@pytest.mark.parametrize("name", VECTORS)
def test_so_does_one_over_several_categories(name, prepared, wrong):
    make = VECTORS[name]
    step = prepared(lambda x: (make(x), x * 2)[1])
    step(lucid.tensor([0.5, 1.0]))
    kind, parameter, said = name.split(" ", 2)
    kind = "Categorical" if kind.endswith("Categorical") else kind  # it holds the categories
    with pytest.raises(ValueError, match=f"{kind}: {parameter} must be {said}"):
        step(lucid.tensor(wrong))


@pytest.mark.parametrize(("name", "wrong"), [(n, w) for n, (_, ws) in VALUES.items() for w in ws])
@pytest.mark.parametrize("method", ["log_prob", "cdf"])
def test_a_density_is_of_values_that_there_are(name, method, prepared, wrong):
    make, _ = VALUES[name]
    kind, said = name.split(" ", 1)
    if method == "cdf" and "cdf" not in vars(getattr(D, kind)):
        return
    step = prepared(lambda x: getattr(make(), method)(x))
    with pytest.raises(ValueError, match=f"{kind}: value must be {said}"):
        step(lucid.tensor(wrong))
    if kind != "Categorical":  # whose value is an index
        D.Distribution.set_default_validate_args(False)
        try:
            prepared(lambda x: getattr(make(), method)(x))(lucid.tensor(wrong))
        finally:
            D.Distribution.set_default_validate_args(True)


def test_values_of_several_parts_are_checked_as_a_whole(prepared):
    simplex = D.Dirichlet(lucid.ones(3))
    density = prepared(lambda x: simplex.log_prob(x))
    assert density(lucid.tensor([0.2, 0.3, 0.5])).shape == ()
    with pytest.raises(ValueError, match="Dirichlet: value must be at least 0, with a sum of 1"):
        density(lucid.tensor([0.2, 0.3, 0.6]))
    with pytest.raises(ValueError, match="OneHotCategorical: value must be a single 1 among zeros"):
        D.OneHotCategorical(lucid.ones(2)).log_prob(lucid.ones(2))
    normal = D.MultivariateNormal(lucid.zeros(2), scale_tril=lucid.eye(2))
    with pytest.raises(ValueError, match=r"the last axes of value must be the event's, \(2,\)"):
        normal.log_prob(lucid.zeros(3))
    with pytest.raises(ValueError, match=r"doesn't broadcast with the batch shape \(2,\)"):
        D.Normal(lucid.zeros(2), 1.0).log_prob(lucid.zeros(3))
    with pytest.raises(ValueError, match="scale_tril must be lower triangular with a positive"):
        D.MultivariateNormal(lucid.zeros(2), scale_tril=lucid.ones(2, 2))
    with pytest.raises(ValueError, match="Uniform: low must be less than high"):
        D.Uniform(2.0, 1.0)


def test_a_distribution_of_ones_own_is_checked_by_its_constraints():
    class Triangular(D.Distribution):
        arg_constraints: ClassVar = {"width": D.constraints.positive}
        support = D.constraints.unit_interval

        def __init__(self, width: Any, validate_args: Any = None) -> None:
            self.width = width
            super().__init__(width.shape, (), validate_args)

        def log_prob(self, value: Any) -> Any:
            if self._validate_args:
                self._validate_sample(value)
            return value

    with pytest.raises(ValueError, match="Triangular: width must be greater than 0"):
        Triangular(lucid.tensor(-1.0))
    with pytest.raises(ValueError, match="Triangular: value must be between 0 and 1"):
        Triangular(lucid.tensor(1.0)).log_prob(lucid.tensor(2.0))
    assert Triangular(lucid.tensor(-1.0), False).log_prob(lucid.tensor(2.0)) == 2


@pytest.mark.parametrize(
    ("constraint", "inside", "outside"),
    [
        ("positive_integer", [1.0, 2.0], [0.0, 1.5]),
        ("multinomial(3)", [[1.0, 2.0], [1.0, 1.0]], [[2.0, 2.0], [-1.0, 1.0]]),
        ("less_than(2.0)", [1.0], [2.0]),
        ("lower_triangular", [[[1.0, 0.0], [2.0, 3.0]]], [[[1.0, 1.0], [2.0, 3.0]]]),
        ("corr_cholesky", [[[1.0, 0.0], [0.6, 0.8]]], [[[1.0, 0.0], [0.6, 0.9]]]),
        ("symmetric", [[[1.0, 2.0], [2.0, 1.0]]], [[[1.0, 2.0], [3.0, 1.0]]]),
        ("positive_definite", [[[2.0, 1.0], [1.0, 2.0]]], [[[1.0, 2.0], [2.0, 1.0]]]),
        ("cat([c.positive, c.real], -1, [1, 1])", [[1.0, -1.0]], []),
    ],
)
def test_constraints_know_what_is_in_them(constraint, inside, outside):
    checked: Any = eval(f"c.{constraint}", {"c": D.constraints})
    assert checked.check(lucid.tensor(inside)).all()
    assert not outside or not checked.check(lucid.tensor(outside)).any()


EXPANDED = [
    lambda: D.Normal(0.0, 1.0),
    lambda: D.Categorical(lucid.ones(3)),
    lambda: D.Bernoulli(lucid.tensor(0.5)),
    lambda: D.Dirichlet(lucid.ones(3)),
    lambda: D.MultivariateNormal(lucid.zeros(2), lucid.eye(2)),
    lambda: D.Independent(D.Normal(lucid.zeros(2), 1.0), 1),
    lambda: D.OneHotCategorical(lucid.ones(3)),
    lambda: D.Binomial(3, 0.5),
    lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), D.ExpTransform()),
    lambda: D.MixtureSameFamily(D.Categorical(lucid.ones(2)), D.Normal(lucid.zeros(2), 1.0)),
]


@pytest.mark.parametrize("make", EXPANDED)
def test_every_distribution_is_expanded(make):
    one = make()
    several = one.expand((4, 2))
    assert several.batch_shape == (4, 2) and several.event_shape == one.event_shape
    draw = one.sample()
    density = several.log_prob(draw)
    assert density.shape == (4, 2)
    assert lucid.allclose(density, one.log_prob(draw))
    assert several.sample((3,)).shape == (3, 4, 2, *one.event_shape)


def test_nothing_is_checked_where_that_is_asked_for():
    assert D.Normal(0.0, -1.0, validate_args=False).scale.item() == -1.0


def test_an_error_of_the_users_own_code_in_a_constructor_stays_what_it_is():
    class Broken(nn.Linear):
        def reset_parameters(self):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Broken(2, 2)


SMALL_MACHINE = """
import resource
import lucid

resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
x = lucid.ones(1)
calls = lambda x: lucid.zeros(2**31), lambda x: x.expand(2**31) * 2, lambda x: lucid.randn(2**31)
for call in (*calls, *map(lucid.compile, calls)):
    try:
        call(x)
    except lucid.TooLargeError as error:
        assert isinstance(error, MemoryError)
        print(str(error).splitlines()[0])
"""


def test_memory_that_the_machine_lacks_is_an_error_of_the_librarys():
    run = subprocess.run([sys.executable, "-c", SMALL_MACHINE], capture_output=True, text=True)
    zeros, product, drawn, *compiled = run.stdout.splitlines()
    assert zeros.startswith("zeros: Unable to allocate 8.00 GiB"), run.stderr
    assert product.startswith("mul: Unable to allocate 8.00 GiB")
    assert "nable to allocate" in drawn
    assert len(compiled) == 3 and all("unable to allocate" in text for text in compiled)


def test_vast_views_of_little_memory_are_views_in_both_modes():
    def ends(x):
        return x.expand(2**45)[-2:] + 1

    for x in (lucid.ones(1), lucid.ones(1, requires_grad=True)):
        assert ends(x).tolist() == lucid.compile(ends)(x).tolist() == [2.0, 2.0]


class Endless(Sequence):
    """Says how long it is, and goes on."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return 1.5


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (range(2**62), "tensor: range(0, 4611686018427387904) has 4,611,686,018,427,387,904 "),
        (range(0, -(2**70), -2), f"tensor: range(0, {-(2**70)}, -2) has {2**69:,} elements; an op"),
        ([range(2**40)], "tensor: range(0, 1099511627776) has 1,099,511,627,776 elements; an op"),
        (
            Endless(2**55),
            "tensor: Unable to allocate 256. PiB for an array with shape (36028797018",
        ),
    ],
)
def test_sequences_that_no_memory_holds_are_not_gone_through(data, message):
    with pytest.raises(lucid.TooLargeError) as caught:
        lucid.tensor(data)
    assert str(caught.value).startswith(message)


def test_an_index_that_no_memory_holds_is_not_gone_through():
    with pytest.raises(lucid.TooLargeError, match=r"^indexing: range\(0, 1099511627776\) has"):
        lucid.ones(3)[range(2**40)]


@pytest.mark.parametrize(
    "data",
    [range(5), range(10, -7, -3), [range(3), range(2, 5)], range(0), range(2**63 - 2, 2**63)],
)
def test_ranges_are_their_numbers(data):
    expected = lucid.tensor([[*x] for x in data] if isinstance(data, list) else [*data])
    found = lucid.tensor(data)
    assert found.dtype == expected.dtype and found.tolist() == expected.tolist()


def test_a_range_of_numbers_that_do_not_fit_is_refused():
    for numbers, dtype in ((range(300), lucid.uint8), (range(2**63, 2**63 + 2), None)):
        with pytest.raises(lucid.OptionError, match=r"^tensor: a value doesn't fit"):
            lucid.tensor(numbers, dtype=dtype)
    assert lucid.tensor(range(3), dtype=lucid.uint8).tolist() == [0, 1, 2]


def test_a_sequence_has_as_many_items_as_it_says():
    assert lucid.tensor(Endless(3)).tolist() == [1.5] * 3


@pytest.mark.parametrize("mode", [lambda f: f, lucid.compile], ids=["eager", "compiled"])
def test_more_axes_than_an_array_can_have_are_refused(mode):
    x = lucid.zeros((1,) * 64)
    for call in (lambda x: x.unsqueeze(0) + 1, lambda x: x[None].sum(), lambda x: lucid.stack([x])):
        with pytest.raises(lucid.ShapeError, match=r"^reshape: 65 axes; a tensor has at most 64\n"):
            mode(call)(x)
    with pytest.raises(lucid.ShapeError, match=r"^zeros: 70 axes; a tensor has at most 64$"):
        mode(lambda x: lucid.zeros((1,) * 70) + x)(x)
