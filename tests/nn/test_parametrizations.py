"""Weights computed from others, and recurrent layers over sequences of different lengths."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.nn.utils import parametrize, rnn
from lucid.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

MODES = pytest.mark.parametrize(
    "run", [lambda step: step, lucid.compile], ids=["eager", "compiled"]
)


def test_weight_norm_keeps_the_value_and_optimizes_length_and_direction() -> None:
    layer = nn.Linear(3, 2)
    before = layer.weight.detach().clone()
    assert weight_norm(layer) is layer
    names = [name for name, _ in layer.named_parameters()]
    assert names == [
        "bias",
        "parametrizations.weight.original0",
        "parametrizations.weight.original1",
    ]
    np.testing.assert_allclose(layer.weight.detach().numpy(), before.numpy(), rtol=1e-6)
    assert layer.parametrizations.weight.original0.shape == (2, 1)
    assert isinstance(layer, nn.Linear)


@MODES
def test_a_normalized_layer_is_trained(run: Callable[[Any], Any]) -> None:
    lucid.manual_seed(0)
    model = nn.Sequential(
        weight_norm(nn.Linear(3, 4)), nn.Tanh(), spectral_norm(nn.Linear(4, 1)), nn.Flatten(0)
    )
    optimizer = lucid.optim.Adam(model.parameters(), 0.05)
    x = lucid.randn(16, 3)
    y = x[:, 0]

    @run
    def step() -> lucid.Tensor:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step().item() for _ in range(40)]
    assert losses[-1] < 0.5 * losses[0]
    largest = lucid.linalg.svdvals(model[2].weight.detach())[0].item()
    assert abs(largest - 1) < 0.05


def test_orthogonal_weights_stay_orthonormal_after_a_step() -> None:
    for shape in ((4, 3), (3, 4), (3, 3)):
        layer = orthogonal(nn.Linear(shape[1], shape[0], bias=False))
        optimizer = lucid.optim.SGD(layer.parameters(), 0.1)
        layer(lucid.randn(5, shape[1])).pow(3).sum().backward()
        optimizer.step()
        w = layer.weight.detach()
        product = w @ w.mT if shape[0] <= shape[1] else w.mT @ w
        np.testing.assert_allclose(product.numpy(), np.eye(min(shape)), atol=1e-5)


ORTHOGONAL = {
    ("householder", True): [
        [-0.3138783574104309, 0.369218111038208, 0.8747334480285645],
        [0.0, 0.0, 0.0],
    ],
    ("cayley", True): [
        [0.5284726619720459, 0.4030658006668091, 0.747164249420166],
        [0.4044645130634308, -0.8933389782905579, 0.1958417296409607],
    ],
    ("matrix_exp", True): [
        [-0.04171904921531677, 0.5664440393447876, 0.8230434656143188],
        [-0.7637315988540649, -0.5491957068443298, 0.3392610251903534],
    ],
    ("householder", False): [
        [-0.07505768537521362, 0.5222692489624023, 0.8494711518287659],
        [0.9230368733406067, -0.2859486937522888, 0.2573639154434204],
    ],
}


@MODES
@pytest.mark.parametrize(("orthogonal_map", "use_trivialization"), list(ORTHOGONAL))
def test_orthogonal_maps_give_what_pytorch_gives(
    orthogonal_map: str, use_trivialization: bool, run: Callable[[Any], Any]
) -> None:
    """The third column of the base is drawn, but the first row doesn't depend on its sign."""
    layer = nn.Linear(3, 2, bias=False)
    layer.weight.data = lucid.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 2.0]])
    orthogonal(layer, "weight", orthogonal_map, use_trivialization=use_trivialization)
    x = layer.parametrizations.weight.original
    x.data += lucid.arange(6).reshape(2, 3) / 7
    found = run(lambda: layer.weight)().detach()
    expected = lucid.tensor(ORTHOGONAL[orthogonal_map, use_trivialization])
    if use_trivialization:  # compared without what was drawn: how the rows lie to the weight
        assert lucid.allclose(found.norm(dim=1), expected.norm(dim=1), atol=1e-5)
    else:
        assert lucid.allclose(found, expected, atol=1e-5)


class Symmetric(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.triu() + x.triu(1).mT


def test_own_parametrizations_are_applied_in_order_and_removed() -> None:
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    parametrize.register_parametrization(layer, "weight", nn.Softplus())
    assert parametrize.is_parametrized(layer, "weight")
    weight = layer.weight.detach()
    np.testing.assert_array_equal(weight.numpy(), weight.mT.numpy())
    assert (weight > 0).all()
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert layer.weight.tolist() == weight.tolist()
    assert [name for name, _ in layer.named_parameters()] == ["bias", "weight"]
    with pytest.raises(ValueError, match="has no parameter or buffer"):
        parametrize.register_parametrization(layer, "scale", Symmetric())


def test_an_optimizer_goes_on_with_the_single_original() -> None:
    layer = nn.Linear(3, 3)
    before = layer.weight
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert layer.parametrizations.weight.original is before
    parametrize.remove_parametrizations(layer, "weight")
    assert layer.weight is before


def test_an_assigned_value_becomes_that_of_the_originals() -> None:
    layer = weight_norm(nn.Linear(3, 2))
    lengths = layer.parametrizations.weight.original0
    layer.weight = lucid.full((2, 3), 2.0)
    assert lucid.allclose(layer.weight, lucid.full((2, 3), 2.0))
    assert lengths is layer.parametrizations.weight.original0
    assert lucid.allclose(lengths, lucid.full((2, 1), 12.0**0.5))
    turned = orthogonal(nn.Linear(3, 3))
    turned.weight = lucid.eye(3)
    assert lucid.allclose(turned.weight, lucid.eye(3))
    other = nn.Linear(3, 3)
    parametrize.register_parametrization(other, "weight", Symmetric())
    with pytest.raises(RuntimeError, match="Symmetric does not implement right_inverse"):
        other.weight = lucid.eye(3)


@pytest.mark.parametrize("norm", [weight_norm, spectral_norm, orthogonal])
def test_copies_have_classes_of_their_own(norm: Callable[..., Any]) -> None:
    layer = norm(nn.Linear(3, 2))
    layer(lucid.ones(1, 3))
    layer.eval()
    copied = copy.deepcopy(layer)
    assert lucid.equal(copied(lucid.ones(1, 3)), layer(lucid.ones(1, 3)))
    assert type(copied).__name__ == "ParametrizedLinear" and isinstance(copied, nn.Linear)
    parametrize.remove_parametrizations(layer, "weight")
    assert parametrize.is_parametrized(copied, "weight")
    assert copied(lucid.ones(1, 3)).shape == (1, 2)
    assert parametrize.type_before_parametrizations(copied) is nn.Linear
    with pytest.raises(RuntimeError, match=r"saved by state_dict\(\) only"):
        pickle.dumps(copied)


class Larger(nn.Module):
    def forward(self, x: Any) -> Any:
        return lucid.cat([x, x])


def test_a_value_of_another_shape_must_be_wanted() -> None:
    layer = nn.Linear(3, 2)
    with pytest.raises(ValueError, match="may not change the shape of the tensor, unless"):
        parametrize.register_parametrization(layer, "weight", Larger())
    assert type(layer) is nn.Linear and layer.weight.shape == (2, 3)
    parametrize.register_parametrization(layer, "weight", Larger(), unsafe=True)
    assert layer.weight.shape == (4, 3)


@MODES
def test_in_a_block_of_cached_a_tensor_is_computed_once(run: Callable[[Any], Any]) -> None:
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())

    @run
    def step() -> Any:
        with parametrize.cached(), parametrize.cached():
            first = layer.weight
            assert layer.weight is first
        assert layer.weight is not first
        return first.sum()

    assert step().item() == pytest.approx(layer.weight.sum().item())
    layer.weight.sum().backward()
    with pytest.raises(ZeroDivisionError), parametrize.cached():
        kept = layer.weight
        _ = 1 / 0
    assert layer.weight is not kept


def test_parametrizations_are_carried_over_with_their_originals() -> None:
    source, target = weight_norm(nn.Linear(3, 2)), nn.Linear(3, 2)
    parametrize.transfer_parametrizations_and_params(source, target)
    assert lucid.equal(target.weight, source.weight)
    first = target.parametrizations.weight.original0
    assert first is source.parametrizations.weight.original0


def test_a_parametrized_module_is_saved_and_loaded() -> None:
    one, other = (weight_norm(nn.Linear(2, 2)) for _ in range(2))
    other.load_state_dict(one.state_dict())
    assert other.weight.tolist() == one.weight.tolist()


LENGTHS = (2, 4, 3)


@MODES
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_packed_sequences_give_what_each_gives_alone(kind: Any, run: Callable[[Any], Any]) -> None:
    lucid.manual_seed(0)
    layer = kind(3, 5, 2, batch_first=True, bidirectional=True)
    sequences = [lucid.randn(length, 3) for length in LENGTHS]

    @run
    def step(*parts: lucid.Tensor) -> Any:
        padded = rnn.pad_sequence(parts, batch_first=True)
        packed = rnn.pack_padded_sequence(padded, LENGTHS, batch_first=True, enforce_sorted=False)
        packed, state = layer(packed)
        output, _ = rnn.pad_packed_sequence(packed, batch_first=True, total_length=4)
        return output, state[0] if isinstance(state, tuple) else state

    output, state = step(*sequences)
    for i, sequence in enumerate(sequences):
        alone, end = layer(sequence.unsqueeze(0))
        end = end[0] if isinstance(end, tuple) else end
        found, final = output[i].detach(), state[:, i].detach()
        expected = alone[0].detach().numpy()
        np.testing.assert_allclose(found[: LENGTHS[i]].numpy(), expected, rtol=1e-5, atol=1e-6)
        assert not found[LENGTHS[i] :].any()
        np.testing.assert_allclose(final.numpy(), end[:, 0].detach().numpy(), atol=1e-6)


def test_what_a_packed_sequence_holds() -> None:
    parts = [lucid.tensor([1.0, 2.0]), lucid.tensor([3.0, 4.0, 5.0])]
    packed = rnn.pack_sequence(parts, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [2, 2, 1]
    assert packed.data.tolist() == [3.0, 1.0, 4.0, 2.0, 5.0]
    padded, lengths = rnn.pad_packed_sequence(packed, padding_value=-1.0)
    assert padded.tolist() == [[1.0, 3.0], [2.0, 4.0], [-1.0, 5.0]]
    assert lengths.tolist() == [2, 3]
    assert [p.tolist() for p in rnn.unpad_sequence(padded, lengths)] == [p.tolist() for p in parts]
    assert rnn.pad_sequence(parts, True, padding_side="left").tolist()[0] == [0.0, 1.0, 2.0]


def test_older_names_of_normalized_weights_are_on_the_module() -> None:
    layer = nn.utils.weight_norm(nn.Linear(3, 2))
    assert list(layer.state_dict()) == ["bias", "weight_g", "weight_v"]
    assert layer.weight_g.shape == (2, 1)
    whole = nn.utils.weight_norm(nn.Linear(3, 2), dim=None)
    assert whole.weight_g.shape == ()
    conv = nn.utils.spectral_norm(nn.ConvTranspose2d(3, 2, 4))
    assert list(conv.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"]
    assert conv.weight_u.shape == (2,) and conv.weight_v.shape == (48,)
    assert type(conv).__name__ == "ConvTranspose2d" and isinstance(conv, nn.ConvTranspose2d)
    with pytest.raises(RuntimeError, match="spectral_norm: there is one on the parameter"):
        nn.utils.spectral_norm(conv)
    with pytest.raises(ValueError, match="'Linear' has no parameter with name 'kernel'"):
        nn.utils.weight_norm(nn.Linear(1, 1), "kernel")


@MODES
def test_layers_with_older_norms_are_trained_and_freed_of_them(run: Callable[[Any], Any]) -> None:
    lucid.manual_seed(0)
    net = nn.Sequential(
        nn.utils.spectral_norm(nn.Linear(3, 4)), nn.Tanh(), nn.utils.weight_norm(nn.Linear(4, 1))
    )
    opt = lucid.optim.SGD(net.parameters(), 0.1)
    x = lucid.randn(5, 3)

    @run
    def step() -> lucid.Tensor:
        opt.zero_grad()
        loss = (net(x) - 1).square().mean()
        loss.backward()
        opt.step()
        return loss.detach()

    losses = [step().item() for _ in range(20)]
    assert losses[-1] < losses[0] / 4
    net.eval()
    before = net(x)
    largest = lucid.linalg.matrix_norm(net[0].weight, 2).item()
    assert largest == pytest.approx(1.0, abs=0.05)
    nn.utils.remove_spectral_norm(net[0])
    nn.utils.remove_weight_norm(net[2])
    assert sorted(net.state_dict()) == ["0.bias", "0.weight", "2.bias", "2.weight"]
    assert lucid.allclose(net(x), before)
    assert type(net[0]) is nn.Linear


@pytest.mark.parametrize("first", [0, 1])
def test_a_layer_is_parametrized_and_freed_of_it_in_a_step(first: int) -> None:
    """The call runs op by op; calls before and after it are native."""

    def run(mode: str) -> tuple[list[float], Any]:
        layer, calls = nn.Linear(3, 2, bias=False), range(6)
        with lucid.no_grad():
            layer.weight.copy_(lucid.arange(6.0).reshape(2, 3))

        @lucid.compile(mode=mode)
        def step(x: lucid.Tensor, call: str) -> lucid.Tensor:
            if call == "normalize":
                nn.utils.parametrizations.weight_norm(layer)
            if call == "free":
                nn.utils.parametrize.remove_parametrizations(layer, "weight")
            return layer(x).sum()

        said = {first: "normalize", 4: "free"}
        return [step(lucid.ones(2, 3), said.get(i, "")).item() for i in calls], step

    found, step = run("default")
    assert found == pytest.approx(run("eager")[0])
    assert len(step.stats.eager_reasons) == 2
    assert "which class a Linear has" in step.stats.eager_reasons[0]
