"""Layers that take the number of their inputs from the first one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import lucid
from lucid import nn


def same_draws(lazy: Any, make: Any, x: lucid.Tensor) -> tuple[lucid.Tensor, lucid.Tensor]:
    """What a lazy layer and a usual one give that draw their parameters from one seed."""
    lucid.manual_seed(0)
    found = lazy(x)
    lucid.manual_seed(0)
    return found, make()(x)


@pytest.mark.parametrize(
    ("lazy", "usual", "shape"),
    [
        ("LazyLinear(3)", "Linear(4, 3)", (2, 4)),
        ("LazyLinear(3, bias=False)", "Linear(4, 3, bias=False)", (2, 4)),
        ("LazyConv1d(4, 3, 2, 1)", "Conv1d(2, 4, 3, 2, 1)", (2, 2, 7)),
        ("LazyConv2d(4, 3, 1, 1, 1, 2)", "Conv2d(2, 4, 3, 1, 1, 1, 2)", (2, 5, 5)),
        ("LazyConv3d(2, 2, bias=False)", "Conv3d(3, 2, 2, bias=False)", (1, 3, 3, 3, 3)),
        ("LazyConvTranspose1d(4, 3, 2)", "ConvTranspose1d(2, 4, 3, 2)", (2, 2, 5)),
        ("LazyConvTranspose2d(4, 2, 2, 0, 1)", "ConvTranspose2d(2, 4, 2, 2, 0, 1)", (1, 2, 3, 3)),
        ("LazyConvTranspose3d(4, 2)", "ConvTranspose3d(2, 4, 2)", (1, 2, 3, 3, 3)),
        ("LazyBatchNorm1d()", "BatchNorm1d(4)", (5, 4)),
        ("LazyBatchNorm2d(affine=False)", "BatchNorm2d(2, affine=False)", (5, 2, 3, 3)),
        ("LazyBatchNorm3d(1e-3)", "BatchNorm3d(2, 1e-3)", (5, 2, 3, 3, 2)),
        (
            "LazyInstanceNorm1d(affine=False)",
            "InstanceNorm1d(4, 1e-5, 0.1, False, True)",
            (5, 4, 3),
        ),
        ("LazyInstanceNorm2d()", "InstanceNorm2d(4, 1e-5, 0.1, True, True)", (5, 4, 3, 3)),
        ("LazyInstanceNorm3d(1e-3)", "InstanceNorm3d(4, 1e-3, 0.1, True, True)", (5, 4, 3, 3, 2)),
    ],
)
def test_after_the_first_call_it_is_the_usual_layer(lazy: str, usual: str, shape: Any) -> None:
    layer, x = eval(f"nn.{lazy}", {"nn": nn}), lucid.randn(*shape)
    found, expected = same_draws(layer, lambda: eval(f"nn.{usual}", {"nn": nn}), x)
    assert found.tolist() == expected.tolist()
    assert type(layer).__name__ == usual.partition("(")[0]
    assert repr(layer) == repr(eval(f"nn.{usual}", {"nn": nn}))
    assert layer.state_dict().keys() == eval(f"nn.{usual}", {"nn": nn}).state_dict().keys()
    assert not layer._forward_pre_hooks


def test_an_optimizer_made_before_trains_what_the_first_call_made(prepared: Any) -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.LazyLinear(1))
    optimizer = lucid.optim.SGD(model.parameters(), 0.1)
    assert isinstance(model[0].weight, nn.UninitializedParameter)
    x = lucid.randn(8, 3)
    model(x)
    before = model[0].weight.detach().clone()

    @prepared
    def step(x: lucid.Tensor) -> lucid.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(x).item() for _ in range(5)]
    assert losses[-1] < losses[0]
    assert not lucid.equal(model[0].weight.detach(), before)
    assert type(model[0].weight) is nn.Parameter


def test_a_compiled_step_asks_for_a_call_before() -> None:
    model = nn.LazyLinear(2)
    with pytest.raises(lucid.TraceError, match="LazyLinear: the first call makes the parameters"):
        lucid.compile(lambda x: model(x))(lucid.ones(1, 3))
    model(lucid.ones(1, 3))
    assert lucid.compile(lambda x: model(x))(lucid.ones(1, 3)).shape == (1, 2)


def test_channels_that_groups_do_not_divide_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"LazyConv2d: out_channels=\d must be divisible by groups"
    ):
        nn.LazyConv2d(3, 1, groups=2)
    with pytest.raises(ValueError, match=r"LazyConv2d: in_channels=\d must be divisible by groups"):
        nn.LazyConv2d(4, 1, groups=2)(lucid.ones(1, 3, 2, 2))


LAZY_AND_USUAL = pytest.mark.parametrize(
    ("lazy", "usual", "shape"),
    [
        (lambda: nn.LazyLinear(2), lambda: nn.Linear(3, 2), (4, 3)),
        (lambda: nn.LazyConv2d(4, 3), lambda: nn.Conv2d(2, 4, 3), (1, 2, 5, 5)),
        (lambda: nn.LazyConvTranspose1d(4, 3), lambda: nn.ConvTranspose1d(2, 4, 3), (1, 2, 5)),
        (nn.LazyBatchNorm1d, lambda: nn.BatchNorm1d(3), (4, 3)),
        (lambda: nn.LazyInstanceNorm1d(),
         lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (4, 3, 5)),
    ],
    ids=["linear", "convolution", "transposed convolution", "batch norm", "instance norm"],
)  # fmt: skip


@LAZY_AND_USUAL
@pytest.mark.parametrize("assign", [False, True])
def test_it_loads_the_state_of_the_usual_layer(
    lazy: Any, usual: Any, shape: Any, assign: bool
) -> None:
    layer, source = nn.Sequential(lazy()), nn.Sequential(usual())
    x = lucid.randn(*shape)
    source(x)  # so that running statistics have moved
    layer.load_state_dict(source.state_dict(), assign=assign)
    assert not layer[0].has_uninitialized_params()
    assert lucid.equal(layer.eval()(x), source.eval()(x))
    assert repr(layer) == repr(source)
    assert layer.state_dict().keys() == source.state_dict().keys()


@LAZY_AND_USUAL
def test_the_usual_layer_cannot_load_what_is_not_there_yet(
    lazy: Any, usual: Any, shape: Any
) -> None:
    layer = usual()
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    if list(layer.parameters()):
        with pytest.raises(RuntimeError, match="weight: copying an uninitialized parameter"):
            layer.load_state_dict(lazy().state_dict())
    assert all(lucid.equal(before[k], v) for k, v in layer.state_dict().items())


@LAZY_AND_USUAL
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"]
)
def test_copies_of_a_waiting_layer_wait_on_their_own(
    lazy: Any, usual: Any, shape: Any, copied: Callable[[Any], Any]
) -> None:
    layer = lazy()
    other = copied(layer)
    other(lucid.randn(*shape))
    assert type(other) is type(usual()) and not other._forward_pre_hooks
    assert layer.has_uninitialized_params() and layer._forward_pre_hooks
    assert layer(lucid.randn(*shape)) is not None


def test_one_waiting_layer_loads_the_state_of_another() -> None:
    layer = nn.LazyLinear(2)
    layer.load_state_dict(nn.LazyLinear(2).state_dict())
    assert str(layer.weight) == repr(layer.weight) == "<UninitializedParameter>"
    assert str(nn.LazyBatchNorm1d().running_mean) == "<UninitializedBuffer>"


@pytest.mark.parametrize(
    "use",
    [
        lambda p: p.shape,
        lambda p: p.numel(),
        lambda p: p + 1,
        lambda p: nn.init.zeros_(p),
        lambda p: nn.functional.linear(lucid.ones(1, 3), p),
        lambda p: p.data.normal_(),
        lambda p: p.sum().backward(),
        lambda p: lucid.optim.Adagrad([p]),
        lambda p: lucid.compile(lambda: p * 2)(),
        lambda p: lucid.compile(lambda p: p * 2)(p),
    ],
)
def test_what_has_no_shape_yet_cannot_be_used(use: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match="Can't access the shape or the values of an uninit"):
        use(nn.LazyLinear(2).weight)


def test_optimizers_pass_over_parameters_that_wait() -> None:
    model = nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d())
    for kind in (lucid.optim.SGD, lucid.optim.Adam, lucid.optim.Adadelta):
        optimizer: Any = kind(model.parameters(), lr=0.1)
        optimizer.zero_grad()
        optimizer.step()
    assert nn.utils.clip_grad_norm_(model.parameters(), 1.0) == 0
    assert all(isinstance(p, nn.UninitializedParameter) for p in model.parameters())


def test_a_dtype_is_given_before_the_shape() -> None:
    layer = nn.LazyLinear(2).double()
    assert layer.weight.dtype is lucid.float64
    layer(lucid.ones(1, 3, dtype=lucid.float64))
    assert layer.weight.shape == (2, 3) and layer.weight.dtype is lucid.float64


def test_a_lazy_module_of_the_users_waits_for_its_first_call() -> None:
    class Scale(nn.modules.lazy.LazyModuleMixin, nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.UninitializedParameter()

        def initialize_parameters(self, x: lucid.Tensor) -> None:
            with lucid.no_grad():
                self.weight.materialize((x.shape[-1],))
                self.weight.fill_(2.0)

        def forward(self, x: lucid.Tensor) -> lucid.Tensor:
            return x * self.weight

    scale = Scale()
    assert scale.has_uninitialized_params()
    assert scale(lucid.ones(2, 3)).tolist() == [[2.0] * 3] * 2
    assert scale(lucid.ones(1, 3)).tolist() == [[2.0] * 3]


@pytest.mark.parametrize(
    ("make", "wrong", "right"),
    [
        (lambda: nn.LazyLinear(2), (), (5, 3)),
        (lambda: nn.LazyConv2d(2, 1), (3, 4), (1, 3, 4, 4)),
        (lambda: nn.LazyConvTranspose1d(2, 1), (3,), (1, 3, 4)),
        (nn.LazyBatchNorm1d, (3,), (2, 3)),
        (nn.LazyBatchNorm2d, (2, 3, 4), (2, 3, 4, 4)),
        (lambda: nn.LazyInstanceNorm1d(affine=True), (4,), (3, 4)),
    ],
)
def test_an_input_that_does_not_fit_says_nothing_of_the_shapes(
    make: Callable[[], nn.Module], wrong: tuple[int, ...], right: tuple[int, ...]
) -> None:
    layer: Any = make()
    name = type(layer).__name__
    with pytest.raises(lucid.ArgumentError, match=f"{name}: argument 'input' must be Tensor, not"):
        layer(3)
    with pytest.raises(lucid.ShapeError, match=f"{name}: expected .* input, not {len(wrong)}D"):
        layer(lucid.ones(wrong))
    assert layer.has_uninitialized_params() and type(layer).__name__ == name
    assert layer(lucid.ones(right)).ndim == len(right)
    assert 3 in layer.weight.shape
