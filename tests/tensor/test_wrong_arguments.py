"""Wrong arguments raise the library's own errors, in eager mode and compiled, and name the call."""

from __future__ import annotations

import pytest

import lucid
from lucid import distributions as D
from lucid import nn, optim


def weights():
    return [lucid.ones(2, requires_grad=True)]


WRONG = {
    "fill_": (
        lambda: lucid.ones(2).fill_("a"),
        ValueError,
        "fill_: can't be called with (lucid.Tensor, str): could not convert string to float: 'a'",
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
    "a learning rate": (
        lambda: optim.SGD(weights(), lr="fast"),
        TypeError,
        "learning rate must be a number, not str",
    ),
    "betas": (
        lambda: optim.Adam(weights(), betas=3),
        TypeError,
        "Adam: can't be made of (list, betas=int): 'int' object is not iterable",
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
        ValueError,
        "Conv2d: can't be made of (int, int, str): invalid literal for int() with base 10: 'a'",
    ),
    "a missing size": (
        lambda: nn.Linear(2),
        TypeError,
        "Linear: can't be made of (int): Linear.__init__() missing 1 required positional argument: "
        "'out_features'",
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
    "Geometric probs between 0 and 1": lambda wrong: D.Geometric(probs=wrong),
}


@pytest.mark.parametrize("wrong", [-1.0, float("nan")])
@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_distribution_refuses_parameters_that_it_cannot_have(name, mode, wrong):
    make = PARAMETERS[name]
    step = lucid.compile(lambda x: (make(x), x * 2)[1]) if mode == "compiled" else make
    step(lucid.tensor(0.5))
    with pytest.raises(lucid.OptionError) as caught:
        step(lucid.tensor(wrong))
    kind, parameter, said = name.split(" ", 2)
    first, operand, line = str(caught.value).split("\n")
    assert first == f"{kind}: {parameter} must be {said}"
    assert operand.startswith(f"  {parameter}: f32[]")
    assert line.startswith("  in test_wrong_arguments.py:")


def test_nothing_is_checked_where_that_is_asked_for():
    assert D.Normal(0.0, -1.0, validate_args=False).scale.item() == -1.0


def test_an_error_of_the_users_own_code_in_a_constructor_stays_what_it_is():
    class Broken(nn.Linear):
        def reset_parameters(self):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Broken(2, 2)
