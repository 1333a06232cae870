"""state_dict and load_state_dict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn as nn


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=False))


def test_keys_and_sharing() -> None:
    net = model()
    state = net.state_dict()
    assert list(state) == [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
        "2.weight",
    ]
    assert not state["0.weight"].requires_grad
    with lucid.no_grad():
        net[0].weight.zero_()
    assert not state["0.weight"].numpy().any()
    assert net.state_dict(keep_vars=True)["0.weight"] is net[0].weight
    assert list(net[2].state_dict(prefix="x.")) == ["x.weight"]


def test_loading_copies_in_place() -> None:
    net, other = model(), model()
    weight = net[0].weight
    result = net.load_state_dict(other.state_dict())
    assert repr(result) == "<All keys matched successfully>"
    assert net[0].weight is weight
    assert weight.requires_grad
    np.testing.assert_array_equal(weight.detach().numpy(), other[0].weight.detach().numpy())
    with lucid.no_grad():
        other[0].weight.zero_()
    assert weight.detach().numpy().any()


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.InstanceNorm1d])
def test_weights_without_a_count_of_batches_load(kind: Any) -> None:
    norm = kind(2, affine=True, track_running_stats=True)
    norm.num_batches_tracked += 5
    state = {f"0.{name}": x for name, x in norm.state_dict().items()}
    del state["0.num_batches_tracked"]
    net = nn.Sequential(norm)
    assert repr(net.load_state_dict(state)) == "<All keys matched successfully>"
    assert norm.num_batches_tracked.item() == 5 and "0.num_batches_tracked" not in state
    del state["0.running_mean"]
    assert net.load_state_dict(state, strict=False).missing_keys == ["0.running_mean"]


def test_arrays_and_other_dtypes_load() -> None:
    net = nn.Linear(2, 1)
    net.load_state_dict({"weight": np.ones((1, 2)), "bias": lucid.tensor([2.0])})
    assert net(lucid.ones(2)).item() == 4.0
    with pytest.raises(TypeError, match='parameter named "bias", expected'):
        net.load_state_dict({"weight": np.ones((1, 2)), "bias": [2.0]})
    with pytest.raises(TypeError, match="Expected state_dict to be dict-like, got list"):
        net.load_state_dict([])  # type: ignore[arg-type]


def test_all_that_does_not_fit_is_listed_and_nothing_is_loaded() -> None:
    net = nn.Linear(2, 1)
    before = net.weight.detach().clone()
    with pytest.raises(RuntimeError) as caught:
        net.load_state_dict({"weight": lucid.zeros(1, 3), "extra": lucid.zeros(1)})
    assert isinstance(caught.value, lucid.LucidError)
    assert str(caught.value) == (
        "Error(s) in loading state_dict for Linear:\n"
        '\tUnexpected key(s) in state_dict: "extra".\n'
        '\tMissing key(s) in state_dict: "bias".\n'
        "\tsize mismatch for weight: copying a param with shape [1, 3] from checkpoint, "
        "the shape in current model is [1, 2]."
    )
    assert net.weight.tolist() == before.tolist()


def test_not_strict_returns_what_does_not_match() -> None:
    net = nn.Linear(2, 1)
    result = net.load_state_dict(
        {"weight": lucid.ones(1, 2), "extra": lucid.zeros(1)}, strict=False
    )
    assert result.missing_keys == ["bias"]
    assert result.unexpected_keys == ["extra"]
    assert net.weight.tolist() == [[1.0, 1.0]]
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        net.load_state_dict({"weight": lucid.ones(2, 2)}, strict=False)


def test_assigning_holds_the_given_tensors() -> None:
    net, weight = nn.Linear(2, 1, bias=False), lucid.ones(1, 2)
    net.load_state_dict({"weight": weight}, assign=True)
    assert isinstance(net.weight, nn.Parameter)
    assert net.weight.data_ptr() == weight.data_ptr()


def test_what_no_parameter_can_be_is_assigned_to_none() -> None:
    net = nn.Linear(2, 2)
    weight, bias = net.weight, net.bias
    with pytest.raises(lucid.LucidError, match="only Tensors of floating point dtype"):
        net.load_state_dict({"weight": lucid.ones(2, 2), "bias": lucid.tensor([1, 2])}, assign=True)
    assert net.weight is weight
    assert net.bias is bias


def test_a_buffer_that_is_not_persistent_is_left_out() -> None:
    module = nn.Module()
    module.register_buffer("kept", lucid.zeros(1))
    module.register_buffer("scratch", lucid.zeros(1), persistent=False)
    assert list(module.state_dict()) == ["kept"]
    module.register_buffer("kept", None)
    assert module.state_dict() == {}


class Counting(nn.Module):
    """Keeps a number besides tensors."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def get_extra_state(self) -> int:
        return self.count

    def set_extra_state(self, state: int) -> None:
        self.count = state


def test_state_besides_tensors_is_saved_and_loaded() -> None:
    saved = nn.Sequential(nn.Linear(1, 1), Counting(3)).state_dict()
    assert saved["1._extra_state"] == 3
    model = nn.Sequential(nn.Linear(1, 1), Counting(0))
    model.load_state_dict(saved)
    assert model[1].count == 3
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "_extra_state"'):
        Counting(1).load_state_dict({})


def test_a_submodule_is_put_at_a_path() -> None:
    model = nn.Sequential(nn.Sequential(nn.ReLU()))
    model.set_submodule("0.0", nn.Tanh())
    assert isinstance(model[0][0], nn.Tanh)
    model.set_submodule("0.more", nn.ReLU())
    assert isinstance(model[0].more, nn.ReLU)
    with pytest.raises(AttributeError, match="Sequential has no attribute `none`"):
        model.set_submodule("0.none", nn.ReLU(), strict=True)
    with pytest.raises(ValueError, match="without a target name"):
        model.set_submodule("", nn.ReLU())


class Renamed(nn.Linear):
    """One that knows its weight under an older name, and writes its bias as a row."""

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        if prefix + "kernel" in state_dict:
            state_dict[prefix + "weight"] = state_dict.pop(prefix + "kernel").T
        if prefix + "bias" in state_dict:
            state_dict[prefix + "bias"] = state_dict[prefix + "bias"].reshape(-1)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "bias"] = destination[prefix + "bias"].reshape(1, -1)


def test_modules_of_users_save_and_load_their_own_state() -> None:
    net = nn.Sequential(Renamed(3, 2), nn.ReLU(), nn.Linear(2, 1))
    state = net.state_dict()
    assert state["0.bias"].shape == (1, 2)
    state["0.kernel"] = lucid.ones(3, 2)
    del state["0.weight"]
    assert str(net.load_state_dict(state)) == "<All keys matched successfully>"
    assert net[0].weight.tolist() == [[1.0] * 3] * 2
    before = net[0].weight.clone()
    state["0.kernel"], state["2.weight"] = lucid.zeros(3, 2), lucid.ones(7)
    with pytest.raises(RuntimeError, match=r"size mismatch for 2\.weight"):
        net.load_state_dict(state)
    assert net[0].weight.tolist() == before.tolist()  # nothing was changed


def test_a_modules_own_part_is_loaded_by_itself() -> None:
    layer, missing, unexpected, errors = nn.Linear(3, 2), [], [], []  # type: ignore[var-annotated]
    given = {"a.weight": lucid.ones(2, 3), "a.other": lucid.ones(1), "b.bias": lucid.ones(2)}
    layer._load_from_state_dict(given, "a.", {}, True, missing, unexpected, errors)
    assert (missing, unexpected, errors) == (["a.bias"], ["a.other"], [])
    assert layer.weight.tolist() == [[1.0] * 3] * 2


def test_a_submodule_that_makes_its_state_dict_otherwise_is_asked() -> None:
    class Frozen(nn.Linear):
        def state_dict(self, *args: Any, destination: Any = None, **kwargs: Any) -> Any:
            return {} if destination is None else destination

    assert [*nn.Sequential(Frozen(3, 2), nn.Linear(2, 1)).state_dict()] == ["1.weight", "1.bias"]
