"""Modules inside of compiled functions: the same results, and every change is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
from lucid.nn import tracing

X = lucid.tensor(np.linspace(-2, 2, 12).reshape(3, 4))


def compiled(model: nn.Module) -> Any:
    return lucid.compile(lambda x: model(x))


LAYERS: list[nn.Module] = [
    nn.ReLU(),
    nn.GELU(),
    nn.GELU("tanh"),
    nn.SiLU(),
    nn.ELU(0.7),
    nn.LeakyReLU(0.2),
    nn.LeakyReLU(nn.Parameter(lucid.tensor([0.1, 0.2, 0.3, 0.4]))),
    nn.Softplus(),
    nn.LogSigmoid(),
    nn.Softmax(1),
    nn.LogSoftmax(0),
    nn.Linear(4, 3),
    nn.LayerNorm(4),
    nn.RMSNorm(4),
    nn.BatchNorm1d(4),
    nn.BatchNorm1d(4, momentum=None).eval(),
    nn.Flatten(0),
]


@pytest.mark.parametrize("layer", LAYERS, ids=repr)
def test_a_layer_gives_the_same_compiled(layer: nn.Module) -> None:
    layer.double()
    expected = layer(X).detach().numpy()
    step = compiled(layer)
    for _ in range(2):
        assert_allclose(step(X).detach().numpy(), expected, rtol=1e-13, atol=1e-14)
    assert step.stats.traces == 1


def test_running_statistics_move_as_in_eager() -> None:
    eager, native = nn.BatchNorm1d(4).double(), nn.BatchNorm1d(4).double()
    step = compiled(native)
    for scale in (1.0, 2.0, 3.0):
        eager(X * scale)
        step(X * scale)
    for name, buffer in eager.named_buffers():
        assert_allclose(native.get_buffer(name).numpy(), buffer.numpy(), rtol=1e-13)


def test_dropout_draws_the_same_bits() -> None:
    layer = nn.Dropout(0.4)
    step, x = compiled(layer), lucid.ones(50)
    for draw in (layer, step):
        lucid.manual_seed(5)
        masks = [draw(x).tolist(), draw(x).tolist()]
        if draw is layer:
            expected = masks
    assert masks == expected
    assert masks[0] != masks[1]
    assert step.stats.traces == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.eval(),
        lambda m: m.append(nn.ReLU()),
        lambda m: setattr(m[0], "bias", nn.Parameter(lucid.ones(4))),
        lambda m: setattr(m[0], "weight", nn.Parameter(lucid.ones(4, 4))),
        lambda m: setattr(m, "1", nn.Tanh()),
        lambda m: m[0].register_forward_hook(lambda module, args, y: y * 2),
        lambda m: m[0].weight.requires_grad_(False),
    ],
    ids=["eval", "append", "bias", "weight", "module", "hook", "requires_grad"],
)
def test_a_change_of_the_module_retraces(change: Callable[[Any], object]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0))
    step, x = compiled(model), X.float()
    step(x)
    step(x)
    assert step.stats.traces == 1
    change(model)
    assert_allclose(step(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-6)
    assert step.stats.traces == 2


def test_its_forward_is_compiled_as_well_and_runs_no_hooks() -> None:
    layer = nn.Linear(3, 2)
    compiled: Any = lucid.compile(layer)
    calls: list[int] = []
    compiled.register_forward_hook(lambda *_: calls.append(1))
    x = lucid.randn(4, 3)
    for _ in range(2):
        result = compiled.forward(x)
    assert compiled.forward.stats.traces == 1
    assert not calls
    assert lucid.allclose(result, layer.forward(x))
    former = compiled.forward
    compiled.forward = lambda x: former(x) + 1
    assert lucid.allclose(compiled.forward(x), result + 1)
    assert lucid.allclose(compiled(x), result + 1)


def test_layers_are_replaced_and_deleted_by_index() -> None:
    layers = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.ReLU())
    compiled, x = lucid.compile(layers), lucid.ones(1, 2)
    compiled(x)
    compiled[0] = nn.Linear(2, 3)  # type: ignore[index]
    del compiled[-1]  # type: ignore[attr-defined]
    assert len(layers) == 2
    assert compiled(x).flatten().tolist() == pytest.approx(layers(x).flatten().tolist())


def test_a_loaded_state_dict_is_seen_without_a_retrace() -> None:
    model = nn.Linear(4, 2)
    step, x = compiled(model), X.float()
    step(x)
    model.load_state_dict({"weight": lucid.ones(2, 4), "bias": lucid.zeros(2)})
    assert_allclose(step(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-6)
    assert step.stats.traces == 1


def test_a_slope_is_read_at_each_call() -> None:
    layer = nn.LeakyReLU(0.5)
    step, x = compiled(layer), lucid.tensor([-2.0])
    assert step(x).item() == -1.0
    layer.negative_slope = 0.25
    assert step(x).item() == -0.5
    assert step.stats.traces == 1


def test_a_target_that_is_no_class_raises_and_writes_nothing() -> None:
    model = nn.Linear(4, 3)
    optimizer = lucid.optim.SGD(model.parameters(), lr=0.1)

    @lucid.compile
    def step(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x = X.float()
    step(x, lucid.tensor([0, 1, 2]))
    before = model.weight.tolist()
    for wrong in (3, -1):
        with pytest.raises(IndexError):
            step(x, lucid.tensor([0, wrong, 2]))
    assert model.weight.tolist() == before
    step(x, lucid.tensor([0, -100, 2]))
    assert model.weight.tolist() != before


def test_nodes_know_their_module() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ModuleDict({"a": nn.ReLU()})["a"])

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        return model(x)

    step(X.float())
    text = step.dump_ir()
    assert '"model.0.weight"' in text
    assert '"model.0"' in text
    assert "Relu" in text


class Small(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Dropout(0.3))
        self.outer = nn.LeakyReLU(0.2)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return self.outer(self.inner(x))


def test_a_step_may_make_its_model_and_train_it() -> None:
    """What a step has made is no input of it, not the numbers of its layers either."""

    def trained(x: lucid.Tensor, lr: float) -> tuple[Any, ...]:
        model = Small(3)
        optimizer = lucid.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        norm = model.inner[1]
        assert isinstance(norm, nn.BatchNorm1d)
        return loss.detach(), norm.running_mean, norm.num_batches_tracked

    step = lucid.compile(trained)
    for lr in (0.1, 0.1, 0.2):
        results = []
        for function in (trained, step):
            lucid.manual_seed(0)
            results.append([x.tolist() for x in function(X.float(), lr)])
        assert_allclose(results[1][0], results[0][0], rtol=1e-5)
        assert_allclose(results[1][1], results[0][1], rtol=1e-5)
        assert results[1][2] == results[0][2] == 2
    assert step.stats.traces == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 1)),
        lambda: nn.RNN(4, 3, 2),
        lambda: nn.LSTM(4, 3),
        lambda: nn.GRUCell(4, 3),
        lambda: nn.TransformerEncoderLayer(4, 2, 4, dropout=0.0),
    ],
    ids=["linear", "rnn", "lstm", "gru cell", "transformer"],
)
def test_hooks_of_parameters_are_called_in_one_order(make: Callable[[], nn.Module]) -> None:
    def order(compile: Callable[..., Any]) -> list[str]:
        lucid.manual_seed(0)
        model, called = make(), list[str]()
        for name, parameter in model.named_parameters():
            parameter.register_hook(lambda g, name=name: called.append(name))

        def step(x: lucid.Tensor) -> None:
            y = model(x)
            (y[0] if isinstance(y, tuple) else y).square().sum().backward()

        compile(step)(X.float())
        return called

    assert order(lucid.compile) == order(lambda f: f)


def test_a_module_that_comes_while_the_one_above_runs_has_its_path() -> None:
    def step(x: lucid.Tensor) -> tuple[lucid.Tensor, list[str]]:
        model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
        with tracing.running(model):
            paths = [*map(tracing.path_of, (model, model[0], model[1][0]))]
            model.append(nn.Tanh())
            other = nn.Tanh()
            return x, [*paths, tracing.path_of(model[2]), tracing.path_of(other)]

    compiled = lucid.compile(step)
    assert compiled(X)[1] == ["", "0", "1.0", "2", "other"]
    assert compiled.stats.traces == 1
