"""Names that programs written for PyTorch use beside the computation: they exist and do no harm."""

from __future__ import annotations

import importlib
from collections import deque
from typing import Any

import pytest

import lucid
from lucid import nn, optim


def test_mixed_precision_that_is_switched_off_changes_nothing() -> None:
    model = nn.Linear(2, 1)
    optimizer, scaler = optim.SGD(model.parameters(), 0.1), lucid.cuda.amp.GradScaler()
    with lucid.autocast("cpu", enabled=False):
        loss = model(lucid.ones(1, 2)).sum()
    before = model.weight.detach().clone()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 1.0
    assert (model.weight.detach() - before + 0.1).abs().max() < 1e-6
    with pytest.raises(ValueError, match="autocast: there are no shorter floats than float32"):
        lucid.amp.autocast("cpu")


def test_a_checkpoint_computes_what_its_function_does() -> None:
    from lucid.utils.checkpoint import checkpoint, checkpoint_sequential

    layers = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    x = lucid.ones(1, 2)
    assert checkpoint(layers, x, use_reentrant=False).tolist() == layers(x).tolist()
    assert checkpoint_sequential(list(layers), 2, x).tolist() == layers(x).tolist()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("lucid.distributions.normal", "Normal"),
        ("lucid.distributions.categorical", "Categorical"),
        ("lucid.distributions.kl", "kl_divergence"),
        ("lucid.optim.lr_scheduler", "_LRScheduler"),
        ("lucid.nn.init", "_calculate_fan_in_and_fan_out"),
        ("lucid.nn.utils", "clip_grad_norm"),
        ("lucid.nn", "DataParallel"),
    ],
)
def test_a_name_is_where_programs_import_it_from(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


def test_defaults_are_set_as_older_programs_do() -> None:
    assert lucid.get_default_device() == lucid.device("cpu")
    lucid.set_default_device("cpu")
    with pytest.raises(ValueError, match="device 'cuda' does not exist"):
        lucid.set_default_device("cuda")
    try:
        lucid.set_default_tensor_type("torch.DoubleTensor")
        assert lucid.zeros(1).dtype is lucid.float64
    finally:
        lucid.set_default_tensor_type(lucid.FloatTensor)
    assert lucid.zeros(1).dtype is lucid.float32


def test_dirac_weights_pass_the_channels_on() -> None:
    layer = nn.Conv2d(2, 2, 3, padding=1, bias=False)
    nn.init.dirac_(layer.weight)
    x = lucid.randn(1, 2, 4, 4)
    assert (layer(x).detach() - x).abs().max() < 1e-6


def test_random_numbers_of_further_families() -> None:
    lucid.manual_seed(0)
    x: Any = lucid.empty(20_000)
    assert abs(x.geometric_(0.25).mean().item() - 4.0) < 0.15
    assert abs(x.log_normal_(0.0, 0.5).log().std().item() - 0.5) < 0.02
    assert abs(x.cauchy_(1.0, 2.0).median().item() - 1.0) < 0.1


def test_a_wrapper_for_devices_that_are_not_there_runs_its_module() -> None:
    model = nn.DataParallel(nn.Linear(2, 1))
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    assert model(lucid.ones(3, 2)).shape == (3, 1)


def test_options_of_pytorchs_compiler_are_taken() -> None:
    @lucid.compile(fullgraph=True, dynamic=False, backend="inductor", mode="max-autotune")
    def double(x: lucid.Tensor) -> lucid.Tensor:
        return 2 * x

    assert double(lucid.ones(2)).tolist() == [2.0, 2.0]
    assert double.stats.traces == 1
    with pytest.raises(TypeError, match=r"compile: unknown option\(s\) fast"):
        lucid.compile(fast=True)


def test_a_tensor_is_made_of_any_sequence() -> None:
    assert lucid.tensor(deque([1.5, 2.0])).tolist() == [1.5, 2.0]
    assert lucid.tensor([range(2), range(2, 4)]).tolist() == [[0, 1], [2, 3]]
    assert lucid.LongTensor(range(3)).tolist() == [0, 1, 2]
    with pytest.raises(lucid.ArgumentError, match="tensors and Python numbers, not str"):
        lucid.tensor("abc")
