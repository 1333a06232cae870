"""Layers and losses give PyTorch's numbers, eager and compiled: see data/module_cases.py."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import module_cases
import numpy as np
import pytest
from module_cases import CONSTRUCTED
from recording import load

import lucid
from lucid import nn
from lucid.nn import functional as F

RECORDED = load(Path(module_cases.__file__).with_name("modules.npz"))


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("number", range(len(CONSTRUCTED)), ids=lambda i: CONSTRUCTED[i][0])
def test_numbers_are_those_of_pytorch(number: int, mode: str) -> None:
    expression, inputs = CONSTRUCTED[number]
    prefix = f"{number} {expression}/"
    expected = {k.removeprefix(prefix): v for k, v in RECORDED.items() if k.startswith(prefix)}
    assert expected, "not recorded: run tests/data/record_modules.py"
    decorator: Any = lucid.compile if mode == "compiled" else lambda step: step
    found = module_cases.run(lucid, expression, inputs, decorator)
    assert found.keys() == expected.keys()
    for key, wanted in expected.items():
        assert found[key].shape == wanted.shape
        scale = max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(found[key], wanted, 1e-5, 2e-6 * scale, err_msg=key)


def test_nothing_recorded_is_left_out() -> None:
    names = {f"{i} {expression}" for i, (expression, _) in enumerate(CONSTRUCTED)}
    assert {key.partition("/")[0] for key in RECORDED} == names


def test_a_recurrent_layer_says_what_it_takes() -> None:
    with pytest.raises(lucid.ShapeError, match=r"LSTM: input must be \(t, n, 3\) or \(t, 3\)"):
        nn.LSTM(3, 4)(lucid.ones(5, 2, 4))
    with pytest.raises(lucid.ShapeError, match=r"GRUCell: input must be \(n, 3\) or \(3,\)"):
        nn.GRUCell(3, 4)(lucid.ones(5, 2, 3))
    with pytest.raises(
        lucid.OptionError, match="nonlinearity must be one of 'tanh', 'relu', not 'sine'"
    ):
        nn.RNN(3, 4, nonlinearity="sine")


def test_masks_of_attention() -> None:
    lucid.manual_seed(0)
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    x = lucid.randn(2, 3, 4)
    causal = nn.Transformer.generate_square_subsequent_mask(3)
    _, weights = attention(x, x, x, attn_mask=causal)
    assert weights.triu(1).abs().sum().item() == 0.0
    same, _ = attention(x, x, x, attn_mask=causal < 0, need_weights=False)
    np.testing.assert_allclose(
        same.detach(), attention(x, x, x, attn_mask=causal)[0].detach(), rtol=1e-6, atol=1e-7
    )
    padding = lucid.tensor([[False, False, True]] * 2)
    _, weights = attention(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    assert weights.shape == (2, 2, 3, 3)
    assert weights[..., 2].abs().sum().item() == 0.0


def test_attention_as_a_function_is_pytorchs(run: Any) -> None:
    """With all that may be added or given; sums of cubes and their gradients recorded of torch."""
    draw = np.random.RandomState(0)

    def tensor(*shape: int) -> lucid.Tensor:
        array = draw.standard_normal(shape).astype(np.float32)
        return lucid.from_numpy(array).requires_grad_()

    q, k, v = tensor(3, 2, 6), tensor(5, 2, 4), tensor(5, 2, 7)
    apart = {
        "use_separate_proj_weight": True,
        "q_proj_weight": tensor(6, 6),
        "k_proj_weight": tensor(6, 4),
        "v_proj_weight": tensor(6, 7),
    }
    bias, behind_k, behind_v = tensor(18), tensor(1, 1, 6), tensor(1, 1, 6)
    out, shift = tensor(6, 6), tensor(6)
    padding = lucid.tensor([[False, False, False, True, False], [False] * 4 + [True]])
    mask = tensor(4, 3, 5).detach()
    static = {"static_k": tensor(4, 5, 3), "static_v": tensor(4, 5, 3)}

    def attend(added: tuple[Any, ...], zeros: bool, **options: Any) -> Any:
        def step(q: lucid.Tensor) -> Any:
            result, _ = F.multi_head_attention_forward(
                q, k, v, 6, 2, None, bias, *added, zeros, 0.0, out, shift, **apart, **options
            )
            total = result.pow(3).sum()
            return total, lucid.autograd.grad(total, [q, bias])

        total, gradients = run(step, q)
        return [total.item(), *(g.abs().sum().item() for g in gradients)]

    none = (None, None)
    masks = {"key_padding_mask": padding, "attn_mask": mask}
    wanted = (
        (attend((behind_k, behind_v), True, **masks), [2390.381, 11418.96, 7484.37]),
        (attend(none, False, need_weights=False), [6856.657, 13325.15, 12155.7]),
        (attend(none, False, **static), [-530.008, 1692.08, 318.26]),
    )
    for found, values in wanted:
        assert found == pytest.approx(values, rel=1e-5, abs=0.01)
    with pytest.raises(lucid.ShapeError, match="query has 6 features, not 8, embed_dim_to_check"):
        F.multi_head_attention_forward(
            q, k, v, 8, 2, None, bias, None, None, False, 0.0, out, shift, **apart
        )
    with pytest.raises(lucid.OptionError, match="in_proj_weight is needed"):
        F.multi_head_attention_forward(
            q, q, q, 6, 2, None, bias, None, None, False, 0.0, out, shift
        )


def test_dropout_between_recurrent_layers_while_training() -> None:
    layer = nn.LSTM(3, 4, num_layers=2, dropout=0.5)
    x = lucid.ones(5, 2, 3)
    assert (layer(x)[0] != layer(x)[0]).any()
    layer.eval()
    assert (layer(x)[0] == layer(x)[0]).all()


def test_buffers_by_assignment() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = nn.Buffer(lucid.ones(2))
            self.transient = nn.Buffer(lucid.zeros(3), persistent=False)

    net = Net()
    assert [name for name, _ in net.named_buffers()] == ["kept", "transient"]
    assert list(net.state_dict()) == ["kept"]
    assert not net.kept.requires_grad
    assert isinstance(net.kept, nn.Buffer)


def test_a_dict_of_parameters() -> None:
    held = nn.ParameterDict({"a": lucid.ones(2), "b": nn.Parameter(lucid.zeros(1))})
    held["c"] = lucid.ones(3)
    del held["a"]
    assert list(held) == ["b", "c"]
    assert "c" in held
    assert all(isinstance(value, nn.Parameter) for value in held.values())
    assert list(held.state_dict()) == ["b", "c"]


def test_the_order_of_a_dict_of_parameters_and_what_a_dict_does() -> None:
    one, two = nn.Parameter(lucid.ones(2)), nn.Parameter(lucid.ones(3))
    assert list(nn.ParameterDict({"b": one, "a": two})) == ["a", "b"]
    held = nn.ParameterDict(OrderedDict(b=one, a=two))
    assert list(held.state_dict()) == list(nn.ParameterDict(held)) == ["b", "a"]
    assert list(nn.ParameterDict([("b", one), ("a", two)])) == ["b", "a"]
    assert list(reversed(held)) == ["a", "b"]
    joined = held | nn.ParameterDict({"c": two})
    joined |= nn.ParameterDict.fromkeys(["d", "e"], one)
    assert list(joined.items()) == [("b", one), ("a", two), ("c", two), ("d", one), ("e", one)]
    assert joined.get("x") is None and joined.get("b") is joined.pop("b") is held["b"] is one
    assert joined.setdefault("a", one) is two and joined.setdefault("f", one) is one
    assert joined.popitem() == ("f", one)
    joined.clear()
    assert len(joined) == 0 and not list(joined.parameters())


def test_gumbel_softmax_draws_one_hot_with_a_soft_gradient() -> None:
    lucid.manual_seed(0)
    logits = lucid.zeros(50, 3, requires_grad=True)
    y = nn.functional.gumbel_softmax(logits, tau=0.5, hard=True)
    assert y.detach().sum(-1).allclose(lucid.ones(50))
    assert ((y.detach() - y.detach().round()).abs() < 1e-6).all()
    (y * lucid.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert logits.grad is not None
    assert logits.grad.abs().sum() > 0
    with pytest.warns(UserWarning, match="`eps` is deprecated"):
        drawn = nn.functional.gumbel_softmax(logits, 1.0, True, 1e-20, -1)
    assert drawn.detach().sum(-1).allclose(lucid.ones(50))
