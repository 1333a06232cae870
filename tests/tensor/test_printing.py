"""Tensors print as PyTorch's do."""

from __future__ import annotations

import math

import pytest

import lucid


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (3.0, "tensor(3.)"),
        (2.5, "tensor(2.5000)"),
        (-0.0, "tensor(-0.)"),
        (math.inf, "tensor(inf)"),
        ([1, 2], "tensor([1, 2])"),
        ([True, False], "tensor([ True, False])"),
        ([], "tensor([])"),
        ([[], []], "tensor([], size=(2, 0))"),
        ([1.0, math.nan, math.inf], "tensor([1., nan, inf])"),
        ([1e10, 1.0], "tensor([1.0000e+10, 1.0000e+00])"),
        ([1.5, 2e-8], "tensor([1.5000e+00, 2.0000e-08])"),
        ([0.1, -1000.5], "tensor([ 1.0000e-01, -1.0005e+03])"),
        ([0.5, -100.0], "tensor([   0.5000, -100.0000])"),
        ([[1.5], [-2.25]], "tensor([[ 1.5000],\n        [-2.2500]])"),
        ([[[1], [2]], [[3], [4]]],
         "tensor([[[1],\n         [2]],\n\n        [[3],\n         [4]]])"),
    ],
)  # fmt: skip
def test_data(data: object, text: str) -> None:
    assert repr(lucid.tensor(data)) == str(lucid.tensor(data)) == text


def test_many_elements_are_abbreviated() -> None:
    assert repr(lucid.arange(2000)) == "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"
    lines = repr(lucid.zeros(50, 60)).splitlines()
    assert lines[0] == "tensor([[0., 0., 0.,  ..., 0., 0., 0.],"
    assert lines[3] == "        ...,"
    assert len(lines) == 7
    assert repr(lucid.arange(28)).splitlines() == [
        "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,",
        "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27])",
    ]


def test_what_is_not_default_is_said() -> None:
    x = lucid.tensor([1.0], requires_grad=True)
    assert repr(x) == "tensor([1.], requires_grad=True)"
    assert repr(x * 2) == "tensor([2.], grad_fn=<MulBackward>)"
    assert repr(lucid.tensor([1.0], dtype=lucid.float64)) == "tensor([1.], dtype=lucid.float64)"
    assert repr(lucid.tensor([1], dtype=lucid.int32)) == "tensor([1], dtype=lucid.int32)"
    assert repr(lucid.zeros(0, dtype=lucid.int64)) == "tensor([], dtype=lucid.int64)"
    assert repr(lucid.zeros(2, 3).shape) == "lucid.Size([2, 3])"
    assert str(lucid.zeros(2).device) == "cpu"


def test_options_are_settable_and_resettable() -> None:
    x = lucid.tensor([1.23456789])
    try:
        lucid.set_printoptions(precision=2)
        assert repr(x) == "tensor([1.23])"
        assert lucid.get_printoptions()["precision"] == 2
        lucid.set_printoptions(sci_mode=True)
        assert repr(x) == "tensor([1.23e+00])"
    finally:
        lucid.set_printoptions(profile="default")
    assert repr(x) == "tensor([1.2346])"
    with pytest.raises(lucid.OptionError, match="no profile 'x'"):
        lucid.set_printoptions(profile="x")


@pytest.mark.parametrize(
    "option", [{"precision": -1}, {"precision": 2**31}, {"linewidth": -1}, {"edgeitems": -2}]
)
def test_options_with_which_nothing_can_be_printed_are_refused(option: dict[str, int]) -> None:
    with pytest.raises(lucid.OptionError, match="set_printoptions"):
        lucid.set_printoptions(**option)
    assert repr(lucid.tensor([1.5])) == "tensor([1.5000])"


def test_formatting_of_numbers() -> None:
    assert f"{lucid.tensor(2.5):.2f}" == "2.50"
    assert f"{lucid.tensor([1, 2])}" == "tensor([1, 2])"
    loss = lucid.tensor(0.25, requires_grad=True) * 2
    assert f"{loss} {lucid.tensor(3)} {lucid.tensor(True)}" == "0.5 3 True"
    assert f"{loss!s}" == str(loss) == "tensor(0.5000, grad_fn=<MulBackward>)"


def test_a_parameter_says_that_it_is_one() -> None:
    parameter = lucid.nn.Parameter(lucid.tensor(2.0))
    expected = "Parameter containing:\ntensor(2., requires_grad=True)"
    assert repr(parameter) == str(parameter) == f"{parameter}" == expected


def test_a_compiled_step_writes_the_numbers_of_each_call() -> None:
    @lucid.compile
    def step(x: lucid.Tensor) -> tuple[str, ...]:
        loss = (x * 2).sum()
        texts = "{} {:.2f}".format(loss, loss), "{}".format(loss > 3)  # noqa: UP032
        return f"loss {loss}", *texts, f"{x} {loss > 3}"

    for value in (0.5, 1.5, 2.5):
        number = 4 * value
        shown = f"tensor([{value:.4f}, {value:.4f}])"
        assert step(lucid.full((2,), value)) == (
            f"loss {number}",
            f"{number} {number:.2f}",
            f"{number > 3}",
            f"{shown} {number > 3}",
        )
    assert step.stats.traces == 2  # a bool is a path


def test_only_the_ends_of_a_vast_view_are_looked_at() -> None:
    vast = lucid.tensor([[1.0], [2.0]]).expand(2, 2**40)
    assert (
        repr(vast)
        == "tensor([[1., 1., 1.,  ..., 1., 1., 1.],\n        [2., 2., 2.,  ..., 2., 2., 2.]])"
    )
    assert repr(vast.T).startswith("tensor([[1., 2.],\n        [1., 2.],")
