"""Hooks around a module's state dicts."""

from __future__ import annotations

from typing import Any

import pytest

import lucid
from lucid import nn


def net() -> Any:
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 1, bias=False)))


def test_hooks_see_each_module_with_its_prefix() -> None:
    model, seen = net(), []
    model[1].register_state_dict_pre_hook(lambda m, prefix, keep: seen.append((prefix, keep)))
    handle = model[1][0].register_state_dict_post_hook(
        lambda m, state, prefix, metadata: state.update({prefix + "note": lucid.ones(1)})
    )
    state = model.state_dict(prefix="net.")
    assert seen == [("net.1.", False)]
    assert list(state) == ["net.0.weight", "net.0.bias", "net.1.0.weight", "net.1.0.note"]
    handle.remove()
    assert "1.0.note" not in model.state_dict()


def test_a_hook_renames_what_an_older_checkpoint_holds() -> None:
    model, source = net(), net()

    def rename(state: Any, prefix: str, *_: Any) -> None:
        if prefix + "kernel" in state:
            state[prefix + "weight"] = state.pop(prefix + "kernel")

    model[1][0]._register_load_state_dict_pre_hook(rename)
    older = source.state_dict()
    older["1.0.kernel"] = older.pop("1.0.weight")
    model.load_state_dict(older)
    assert lucid.equal(model[1][0].weight, source[1][0].weight)
    assert "1.0.kernel" in older and "1.0.weight" not in older


def test_what_a_hook_before_complains_of_is_reported() -> None:
    model = net()

    def complain(module: Any, state: Any, prefix: str, *lists: Any) -> None:
        lists[-1].append(f"{prefix}: too old")

    model[0].register_load_state_dict_pre_hook(complain)
    with pytest.raises(RuntimeError, match=r"loading state_dict for Sequential:\n\t0\.: too old"):
        model.load_state_dict(net().state_dict())


def test_a_hook_after_may_forgive_what_is_missing() -> None:
    model = net()
    seen = []

    def forgive(module: Any, keys: Any) -> None:
        seen.append(module)
        keys.missing_keys.clear()

    model.register_load_state_dict_post_hook(forgive)
    found = model.load_state_dict({"0.bias": lucid.ones(2)})
    assert model[0].bias.tolist() == [1.0, 1.0]
    assert seen == [model] and found.missing_keys == []
    model[0].register_load_state_dict_post_hook(lambda module, keys: keys)
    with pytest.raises(RuntimeError, match="are not expected to return new values"):
        model.load_state_dict(model.state_dict())


def test_modules_cast_by_name_and_share_their_memory() -> None:
    model = net().type(lucid.float64).share_memory()
    assert model[0].weight.dtype is lucid.float64
