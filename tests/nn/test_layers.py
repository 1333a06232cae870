"""Layers: how they start, what they hold, what they compute in each mode."""

from __future__ import annotations

import copy
import inspect
import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import lucid
import lucid.nn as nn
import lucid.nn.functional as F


def test_linear_starts_uniform_within_the_inverse_root_of_its_inputs() -> None:
    lucid.manual_seed(0)
    layer = nn.Linear(100, 200)
    assert layer.bias is not None
    for tensor in (layer.weight, layer.bias):
        values = tensor.detach().numpy()
        assert np.abs(values).max() <= 0.1
        assert np.abs(values).max() > 0.09
        assert values.std() == pytest.approx(0.1 / math.sqrt(3), rel=0.1)
    assert nn.Linear(3, 2, bias=False).bias is None
    assert nn.Linear(3, 2, dtype=lucid.float64).weight.dtype is lucid.float64


@pytest.mark.parametrize(
    ("module", "function"),
    [
        (nn.ReLU(), F.relu),
        (nn.ReLU6(), F.relu6),
        (nn.Tanh(), F.tanh),
        (nn.Sigmoid(), F.sigmoid),
        (nn.LogSigmoid(), F.logsigmoid),
        (nn.GELU(), F.gelu),
        (nn.GELU("tanh"), lambda x: F.gelu(x, approximate="tanh")),
        (nn.SiLU(), F.silu),
        (nn.Mish(), F.mish),
        (nn.LeakyReLU(0.3), lambda x: F.leaky_relu(x, 0.3)),
        (nn.ELU(0.3), lambda x: F.elu(x, 0.3)),
        (nn.Softplus(2.0, 5.0), lambda x: F.softplus(x, 2.0, 5.0)),
        (nn.Softmax(0), lambda x: F.softmax(x, 0)),
        (nn.LogSoftmax(1), lambda x: F.log_softmax(x, 1)),
        (nn.RMSNorm(4, eps=0.1), lambda x: F.rms_norm(x, (4,), eps=0.1)),
        (nn.Identity(3, any=1), lambda x: x),
    ],
    ids=lambda value: repr(value) if isinstance(value, nn.Module) else "",
)
def test_modules_call_the_functions(module: nn.Module, function: Any) -> None:
    x = lucid.tensor(np.linspace(-3, 3, 12).reshape(3, 4))
    assert_array_equal(module.double()(x).detach().numpy(), function(x).numpy())


def test_layer_norm_has_weight_and_bias() -> None:
    layer = nn.LayerNorm((2, 3))
    assert [(n, tuple(p.shape)) for n, p in layer.named_parameters()] == [
        ("weight", (2, 3)),
        ("bias", (2, 3)),
    ]
    y = layer(lucid.arange(6.0).reshape(1, 2, 3)).detach().numpy()
    assert_allclose([y.mean(), y.std()], [0, 1], atol=1e-5)
    assert list(nn.LayerNorm(3, bias=False).state_dict()) == ["weight"]
    assert list(nn.LayerNorm(3, elementwise_affine=False).parameters()) == []


def test_dropout_works_in_training_only() -> None:
    layer, x = nn.Dropout(0.5), lucid.ones(1000)
    assert 0 < (layer(x) == 0).sum().item() < 1000
    assert layer.eval()(x) is x
    with pytest.raises(ValueError, match="p must be from 0 to 1"):
        nn.Dropout(-0.1)


def test_embedding_has_a_padding_row() -> None:
    layer = nn.Embedding(5, 3, padding_idx=-2)
    assert layer.padding_idx == 3
    assert layer.weight[3].tolist() == [0.0, 0.0, 0.0]
    assert layer(lucid.tensor([[1, 3]])).shape == (1, 2, 3)
    layer(lucid.tensor([1, 3])).sum().backward()
    assert layer.weight.grad is not None
    assert_array_equal(layer.weight.grad.numpy()[:, 0], [0, 1, 0, 0, 0])
    assert repr(layer) == "Embedding(5, 3, padding_idx=3)"
    with pytest.raises(ValueError, match="Padding_idx must be within num_embeddings"):
        nn.Embedding(5, 3, padding_idx=5)
    frozen = nn.Embedding.from_pretrained(lucid.eye(2))
    assert frozen(lucid.tensor(1)).tolist() == [0.0, 1.0]
    assert not frozen.weight.requires_grad


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_tracks_the_statistics(momentum: float | None, rng: np.random.Generator) -> None:
    layer = nn.BatchNorm1d(3, momentum=momentum).double()
    mean, variance = np.zeros(3), np.ones(3)
    for step in range(1, 4):
        x = rng.normal(size=(5, 3)) * 2 + 1
        layer(lucid.tensor(x))
        part = 1 / step if momentum is None else momentum
        mean = (1 - part) * mean + part * x.mean(0)
        variance = (1 - part) * variance + part * x.var(0, ddof=1)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    assert layer.num_batches_tracked is not None
    assert_allclose(layer.running_mean.numpy(), mean, rtol=1e-12)
    assert_allclose(layer.running_var.numpy(), variance, rtol=1e-12)
    assert layer.num_batches_tracked.item() == 3
    assert layer.num_batches_tracked.dtype is lucid.int64
    x = rng.normal(size=(1, 3))
    y = layer.eval()(lucid.tensor(x)).detach().numpy()
    assert_allclose(y, (x - mean) / np.sqrt(variance + 1e-5), rtol=1e-12)
    layer.reset_running_stats()
    assert layer.running_mean.tolist() == [0.0, 0.0, 0.0]


def test_batch_norm_without_statistics_always_uses_the_batch() -> None:
    layer = nn.BatchNorm1d(2, affine=False, track_running_stats=False).eval()
    assert layer.state_dict() == {}
    y = layer(lucid.tensor([[0.0, 0.0], [2.0, 4.0]])).numpy()
    assert_allclose(y, [[-1, -1], [1, 1]], atol=1e-4)


@pytest.mark.parametrize("compile", [lucid.compile, lambda function: function])
def test_batch_norm_leaves_its_statistics_while_it_is_not_to_track_them(compile: Any) -> None:
    """As virtual adversarial training and test-time methods have it."""
    layer = nn.BatchNorm1d(2)
    step = compile(lambda x: layer(x))
    x = lucid.tensor([[0.0, 1.0], [2.0, 5.0]])
    found = []
    for tracks in (True, False, True):
        layer.track_running_stats = tracks
        assert_allclose(step(x).detach().numpy(), [[-1, -1], [1, 1]], atol=1e-4)
        assert layer.running_mean is not None and layer.num_batches_tracked is not None
        found.append((layer.num_batches_tracked.item(), layer.running_mean.tolist()))
    assert found[0] == found[1] and [count for count, _ in found] == [1, 1, 2]
    before = layer.eval()(x).tolist()
    layer.track_running_stats = False
    assert layer(x).tolist() == before, "they are used, though"


def test_batch_norm_without_a_count_tracks_all_the_same() -> None:
    layer = nn.BatchNorm1d(2)
    layer.num_batches_tracked = None
    layer(lucid.tensor([[0.0, 1.0], [2.0, 5.0]]))
    assert layer.running_mean is not None
    assert_allclose(layer.running_mean.numpy(), [0.1, 0.3], rtol=1e-6)


def test_batch_norm_names_the_shape_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"expected 2D or 3D input, not 4D"):
        nn.BatchNorm1d(3)(lucid.zeros(2, 3, 1, 1))
    with pytest.raises(ValueError, match=r"axis 1 must be 3 channels\n  input: *f32\[2,4\]"):
        nn.BatchNorm1d(3)(lucid.zeros(2, 4))


def test_norms_of_users_say_how_many_axes_they_take() -> None:
    class Rows(nn.modules.batchnorm._BatchNorm):
        def _check_input_dim(self, input: lucid.Tensor) -> None:
            if input.dim() != 3:
                raise ValueError(f"rows have 3 axes, not {input.dim()}")

    class Any(nn.BatchNorm1d):
        def _check_input_dim(self, input: lucid.Tensor) -> None:
            pass

    assert Rows(3)(lucid.randn(2, 3, 4)).shape == (2, 3, 4)
    assert Any(3)(lucid.randn(2, 3, 4, 5)).shape == (2, 3, 4, 5)
    with pytest.raises(ValueError, match="rows have 3 axes, not 2"):
        Rows(3)(lucid.randn(2, 3))


def test_users_replace_single_blocks_of_a_transformers_layer(run: Any) -> None:
    class Encoder(nn.TransformerEncoderLayer):
        def _sa_block(self, x: Any, attn_mask: Any, key_padding_mask: Any, is_causal: Any) -> Any:
            return super()._sa_block(x, attn_mask, key_padding_mask, is_causal) * 0

        def _ff_block(self, x: lucid.Tensor) -> lucid.Tensor:
            return x + 1

    class Decoder(nn.TransformerDecoderLayer):
        def _mha_block(self, x: Any, mem: Any, *args: Any, **kwargs: Any) -> Any:
            return mem.mean() + 0 * x

        def _ff_block(self, x: lucid.Tensor) -> lucid.Tensor:
            return 0 * x

    encoder = Encoder(4, 2, 8, norm_first=True)
    decoder = Decoder(4, 2, 8, 0.0, norm_first=True)
    with lucid.no_grad():
        decoder.self_attn.out_proj.weight.zero_()
    x, memory = lucid.randn(5, 3, 4), lucid.ones(2, 3, 4)

    def step(x: lucid.Tensor, memory: lucid.Tensor) -> Any:
        return encoder(x), decoder(x, memory)

    encoded, decoded = run(step, x, memory)
    wanted = x + F.layer_norm(x, (4,)) + 1
    assert (encoded - wanted).abs().max().item() < 1e-5
    assert (decoded - x - 1).abs().max().item() < 1e-6


def test_weights_of_a_recurrent_layer_by_layer_and_direction() -> None:
    layer = nn.LSTM(2, 3, 2, bidirectional=True, proj_size=1, bias=False)
    suffixes = ("l0", "l0_reverse", "l1", "l1_reverse")
    names = [[f"weight_{kind}_{end}" for kind in ("ih", "hh", "hr")] for end in suffixes]
    assert layer._all_weights == names
    assert layer.all_weights[3][2] is layer.weight_hr_l1_reverse
    assert [id(w) for w in layer._flat_weights] == [id(w) for w in layer.parameters()]
    assert nn.GRU(2, 3)._flat_weights_names == [
        "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"
    ]  # fmt: skip


def test_recurrent_layers_and_tables_say_of_what_kind_they_are() -> None:
    layers = nn.LSTM(2, 3), nn.GRU(2, 3), nn.RNN(2, 3), nn.RNN(2, 3, nonlinearity="relu")
    assert [layer.mode for layer in layers] == ["LSTM", "GRU", "RNN_TANH", "RNN_RELU"]
    tables: list[nn.Embedding | nn.EmbeddingBag] = [nn.Embedding(4, 2), nn.EmbeddingBag(4, 2)]
    for table in tables:
        assert table.sparse is False
        table.sparse = True
        with pytest.raises(ValueError, match="sparse"):
            table(lucid.tensor([[1, 2]]))


def test_bags_of_pretrained_rows_share_their_memory() -> None:
    rows = lucid.tensor([[1.0, 2.0], [3.0, 5.0], [9.0, 9.0]])
    bag = nn.EmbeddingBag.from_pretrained(rows, mode="sum", padding_idx=2)
    assert bag(lucid.tensor([[0, 1, 2]])).tolist() == [[4.0, 7.0]]
    assert not bag.weight.requires_grad
    rows[0] = 0.0
    assert bag(lucid.tensor([[0, 1, 2]])).tolist() == [[3.0, 5.0]]
    with pytest.raises(ValueError, match="from_pretrained: takes a matrix"):
        nn.EmbeddingBag.from_pretrained(lucid.ones(2))


def test_flatten() -> None:
    assert nn.Flatten()(lucid.zeros(2, 3, 4)).shape == (2, 12)
    assert nn.Flatten(0, 1)(lucid.zeros(2, 3, 4)).shape == (6, 4)


def test_there_is_no_other_device() -> None:
    assert nn.Linear(1, 1, device="cpu").weight.shape == (1, 1)
    with pytest.raises(ValueError, match="Linear: device 'cuda' does not exist"):
        nn.Linear(1, 1, device="cuda")


def test_a_layer_is_of_those_classes_that_it_is_of_in_pytorch() -> None:
    """Programs choose by `isinstance` what to freeze, to decay and to initialize."""
    layers = {
        name: kind
        for name, kind in vars(nn).items()
        if isinstance(kind, type) and issubclass(kind, nn.Module) and not name.startswith("Lazy")
    }
    found = {
        (name, other)
        for name, kind in layers.items()
        for other, base in layers.items()
        if kind is not base and base is not nn.Module and issubclass(kind, base)
    }
    assert found == {
        *((name, "RNNBase") for name in ("RNN", "LSTM", "GRU")),
        *((name, "RNNCellBase") for name in ("RNNCell", "LSTMCell", "GRUCell")),
        ("ReLU6", "Hardtanh"),
        ("UpsamplingBilinear2d", "Upsample"),
        ("UpsamplingNearest2d", "Upsample"),
        ("ZeroPad1d", "ConstantPad1d"),
        ("ZeroPad2d", "ConstantPad2d"),
        ("ZeroPad3d", "ConstantPad3d"),
    }


def test_batch_norms_become_synchronized_ones_of_one_process() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.Sequential(nn.BatchNorm2d(3)), nn.BatchNorm2d(3))
    model[2].eval()
    plain = copy.deepcopy(model)
    weight, mean = model[1][0].weight, model[1][0].running_mean
    assert nn.SyncBatchNorm.convert_sync_batchnorm(model) is model
    assert [type(layer) for layer in (model[1][0], model[2])] == [nn.SyncBatchNorm] * 2
    assert model[1][0].weight is weight and model[1][0].running_mean is mean
    assert not model[2].training and model[1][0].training
    x = lucid.randn(4, 2, 5, 6)
    step = lucid.compile(lambda: model(x))
    for run in (model, lambda _: step()):
        assert_allclose(run(x).detach().numpy(), plain(x).detach().numpy(), rtol=1e-6, atol=1e-6)
    for name, value in plain.state_dict().items():
        assert_allclose(model.state_dict()[name].numpy(), value.numpy(), rtol=1e-6)
    with pytest.raises(
        lucid.ShapeError, match=r"^SyncBatchNorm: expected at least 2D input, not 1"
    ):
        nn.SyncBatchNorm(3)(lucid.ones(3))
    with pytest.raises(lucid.ArgumentError, match=r"^SyncBatchNorm: process_group must be"):
        nn.SyncBatchNorm(3, process_group=1)


def test_the_bases_of_layers_are_where_programs_import_them_from() -> None:
    from lucid.nn.modules.batchnorm import _BatchNorm
    from lucid.nn.modules.conv import _ConvNd, _ConvTransposeNd
    from lucid.nn.modules.dropout import _DropoutNd
    from lucid.nn.modules.instancenorm import _InstanceNorm
    from lucid.nn.modules.loss import _Loss, _WeightedLoss
    from lucid.nn.modules.utils import _pair, _triple

    assert isinstance(nn.BatchNorm2d(3), _BatchNorm)
    assert isinstance(nn.InstanceNorm1d(3), _InstanceNorm)
    assert not isinstance(nn.InstanceNorm2d(3), _BatchNorm)
    assert isinstance(nn.ConvTranspose2d(1, 2, 3), _ConvTransposeNd)
    assert issubclass(_ConvTransposeNd, _ConvNd)
    assert isinstance(nn.Dropout2d(), _DropoutNd)
    assert isinstance(nn.CrossEntropyLoss(), _WeightedLoss) and issubclass(_WeightedLoss, _Loss)
    assert (_pair(3), _triple((1, 2, 3))) == ((3, 3), (1, 2, 3))


def test_a_module_of_a_function_has_its_signature_text_and_examples() -> None:
    assert str(inspect.signature(nn.Threshold)).count("=") == 1
    assert list(inspect.signature(nn.GaussianNLLLoss).parameters) == ["full", "eps", "reduction"]
    text = inspect.getdoc(nn.Threshold) or ""
    assert ">>> nn.Threshold(1.0, 0.0)(lucid.tensor([-2.0, 0.5, 3.0]))" in text
    assert "Inputs:\n    input: the tensor" in text and "Args:\n    threshold: what" in text
    assert "nn.RReLU(0.2, 0.4).eval()(" in (nn.RReLU.__doc__ or "")  # the function's default
    assert "weight" not in (nn.MSELoss.__doc__ or "")  # the function has one
    assert repr(nn.CELU(2.0, inplace=True)) == "CELU(alpha=2.0, inplace=True)"
    assert hash(nn.ELU()) != hash(nn.ELU())
    with pytest.raises(lucid.ArgumentError, match="did you mean negative_slope"):
        nn.LeakyReLU(negative_slop=0.1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (nn.Linear, (2, 3)), (nn.Conv2d, (2, 3, 2)), (nn.ConvTranspose1d, (2, 3, 2)),
        (nn.Embedding, (4, 3)), (nn.BatchNorm2d, (3,)), (nn.InstanceNorm1d, (3, 1e-5, 0.1, True)),
        (nn.LayerNorm, (3,)), (nn.GroupNorm, (1, 3)), (nn.RMSNorm, (3,)), (nn.LSTM, (2, 3)),
        (nn.GRUCell, (2, 3)), (nn.Bilinear, (2, 3, 4)), (nn.PReLU, ()),
    ],
)  # fmt: skip
def test_a_layer_of_the_users_starts_as_its_reset_says(kind: Any, arguments: Any) -> None:
    named = "weight_ih_l0" if kind is nn.LSTM else "weight_ih" if kind is nn.GRUCell else "weight"

    def reset(self: Any) -> None:
        kind.reset_parameters(self)
        nn.init.constant_(getattr(self, named), 0.25)

    own = type("Own", (kind,), {"reset_parameters": reset})
    assert (getattr(own(*arguments), named) == 0.25).all()


def test_attention_and_norms_of_the_users_start_as_they_say() -> None:
    class Attention(nn.MultiheadAttention):
        def _reset_parameters(self) -> None:
            super()._reset_parameters()
            nn.init.constant_(self.in_proj_weight, 0.25)

    class Norm(nn.BatchNorm1d):
        def reset_running_stats(self) -> None:
            super().reset_running_stats()
            self.running_var.fill_(2.0)

    assert (Attention(4, 2).in_proj_weight == 0.25).all()
    assert Norm(2).running_var.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (
            lambda: nn.LSTM(3, 2)(lucid.ones(2, 1, 3), (lucid.ones(1, 2, 2),) * 2),
            lucid.ShapeError,
            r"LSTM: h of hx must be of shape \[1, 1, 2\], not \[1, 2, 2\]",
        ),
        (
            lambda: nn.LSTM(3, 4, proj_size=2)(
                lucid.ones(2, 3), (lucid.ones(1, 2), lucid.ones(1, 2))
            ),
            lucid.ShapeError,
            r"LSTM: c of hx must be of shape \[1, 4\], not \[1, 2\]",
        ),
        (
            lambda: nn.GRU(3, 2)(
                nn.utils.rnn.pack_sequence([lucid.ones(2, 3), lucid.ones(1, 3)]),
                lucid.ones(1, 1, 2),
            ),
            lucid.ShapeError,
            r"GRU: h of hx must be of shape \[1, 2, 2\], not \[1, 1, 2\]",
        ),
        (lambda: nn.RNN(3, 0), lucid.OptionError, "RNN: hidden_size must be positive, not 0"),
        (lambda: nn.RNN(3, 2, 0), lucid.OptionError, "RNN: num_layers must be positive, not 0"),
        (
            lambda: nn.utils.rnn.pad_packed_sequence(
                nn.utils.rnn.pack_sequence([lucid.ones(3), lucid.ones(2)]), total_length=2
            ),
            IndexError,
            "total_length is 2, but a sequence has the length 3",
        ),
        (
            lambda: F.ctc_loss(lucid.zeros(4, 1, 3), lucid.tensor([[1, 2]]), (5,), (2,)),
            IndexError,
            "ctc_loss: input length 5 is out of range for 4 rounds",
        ),
        (
            lambda: F.ctc_loss(lucid.zeros(4, 1, 3), lucid.tensor([[1, 2]]), (4,), (3,)),
            IndexError,
            "ctc_loss: target length 3 is out of range for 2 labels",
        ),
    ],
)
def test_states_and_lengths_that_do_not_fit(wrong: Any, error: Any, message: str) -> None:
    """Without a check they were broadcast, or taken for others."""
    with pytest.raises(error, match=message):
        wrong()
    with pytest.raises(error, match=message):
        lucid.compile(wrong)()


@pytest.mark.parametrize(
    "made",
    ["BatchNorm2d(4, {})", "GroupNorm(2, 4, {})", "InstanceNorm2d(4, affine=True, {})",
     "SyncBatchNorm(4, {})", "LazyBatchNorm2d({})", "LazyInstanceNorm2d({})"],
)  # fmt: skip
def test_a_norm_without_bias_is_one_whose_bias_is_zero(made: str) -> None:
    without, beside = (eval(f"nn.{made.format(f'bias={bias}')}") for bias in (False, True))
    x = lucid.randn(3, 4, 2, 5)
    assert_array_equal(without(x).detach(), beside(x).detach())
    assert [*without.state_dict()] == [name for name in beside.state_dict() if name != "bias"]
    assert "bias=False" in repr(without)
    assert "bias=True" in repr(beside)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(2), nn.BatchNorm1d(2, momentum=None)])
def test_a_batch_without_elements_leaves_the_running_statistics(layer: nn.BatchNorm1d) -> None:
    assert layer(lucid.zeros(0, 2)).shape == (0, 2)
    assert_array_equal(layer.running_mean, [0, 0])
    assert_array_equal(layer.running_var, [1, 1])
