"""Sequential, ModuleList, ModuleDict, ParameterList."""

from __future__ import annotations

from collections import OrderedDict

import pytest

import lucid
import lucid.nn as nn


def _names(module: nn.Module) -> list[str]:
    return [name for name, _ in module.named_children()]


def test_sequential_calls_one_after_the_other() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    x = lucid.ones(4, 2)
    assert model(x).tolist() == model[2](model[1](model[0](x))).tolist()
    assert len(model) == 3
    assert [type(layer).__name__ for layer in model] == ["Linear", "ReLU", "Linear"]


def test_sequential_by_name_and_by_slice() -> None:
    model = nn.Sequential(OrderedDict(inner=nn.Linear(2, 3), act=nn.ReLU()))
    assert _names(model) == ["inner", "act"]
    assert model.inner is model[0]
    head = model[:1]
    assert isinstance(head, nn.Sequential)
    assert head.inner is model.inner
    assert model[-1] is model.act
    with pytest.raises(IndexError, match="index 2 is out of range"):
        model[2]
    with pytest.raises(TypeError, match="function is not a Module subclass"):
        nn.Sequential(lambda x: x)  # type: ignore[arg-type]


def test_sequential_is_edited_like_a_list() -> None:
    first, second, third = nn.ReLU(), nn.Tanh(), nn.Sigmoid()
    model = nn.Sequential(first)
    model.append(third).insert(1, second)
    assert list(model) == [first, second, third]
    assert _names(model) == ["0", "1", "2"]
    del model[0]
    assert _names(model) == ["0", "1"]
    model[0] = first
    assert list(model) == [first, third]
    assert model.pop(1) is third
    assert list(model + nn.Sequential(second)) == [first, second]


def test_module_list() -> None:
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    assert len(list(layers.parameters())) == 6
    assert [name for name, _ in layers.named_parameters()][:2] == ["0.weight", "0.bias"]
    assert len(layers[1:]) == 2
    layers += [nn.ReLU()]
    layers.insert(0, nn.Tanh())
    assert [type(layer).__name__ for layer in layers] == ["Tanh", *["Linear"] * 3, "ReLU"]
    del layers[1:3]
    assert _names(layers) == ["0", "1", "2"]
    with pytest.raises(NotImplementedError, match="missing the required"):
        layers(1)


def test_module_dict() -> None:
    parts = nn.ModuleDict({"a": nn.Linear(1, 1)})
    parts["b"] = nn.ReLU()
    assert list(parts) == list(parts.keys()) == ["a", "b"]
    assert "a" in parts
    assert len(parts) == 2
    assert dict(parts.items())["b"] is parts["b"]
    assert isinstance(parts.pop("b"), nn.ReLU)
    parts.clear()
    assert list(parts.values()) == []


def test_parameter_list() -> None:
    weights = nn.ParameterList([lucid.zeros(2), nn.Parameter(lucid.ones(1))])
    assert [name for name, _ in weights.named_parameters()] == ["0", "1"]
    weights.append(lucid.ones(3))
    assert all(isinstance(weight, nn.Parameter) for weight in weights)
    weights[0] = lucid.ones(2)
    assert weights[0].tolist() == [1.0, 1.0]
    assert len(weights[1:]) == 2
