"""Module: registering by assignment, walking the tree, modes, hooks, dtypes, printing, copies."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

import lucid
import lucid.nn as nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(4, 2, bias=False))
        self.scale = nn.Parameter(lucid.ones(2))
        self.register_buffer("count", lucid.tensor(0))
        self.register_buffer("scratch", lucid.zeros(2), persistent=False)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return self.rest(self.first(x)) * self.scale


def test_assigned_parameters_and_modules_are_registered_in_order() -> None:
    names = [name for name, _ in Net().named_parameters()]
    assert names == ["scale", "first.weight", "first.bias", "rest.1.weight"]
    assert [name for name, _ in Net().named_buffers()] == ["count", "scratch"]
    assert [name for name, _ in Net().named_children()] == ["first", "rest"]
    assert [name for name, _ in Net().named_modules()] == ["", "first", "rest", "rest.0", "rest.1"]


def test_a_shared_parameter_is_yielded_once() -> None:
    net = Net()
    net.alias = net.first
    net.tied = net.scale
    assert len(list(net.parameters())) == 4
    names = [name for name, _ in net.named_parameters(remove_duplicate=False)]
    assert {"tied", "scale", "alias.weight", "first.weight"} <= set(names)


def test_attributes_can_be_replaced_and_deleted() -> None:
    net = Net()
    net.scale = None
    assert "scale" not in dict(net.named_parameters())
    net.scale = nn.Parameter(lucid.zeros(2))
    assert net.get_parameter("scale").tolist() == [0.0, 0.0]
    del net.first
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'first'"):
        _ = net.first
    net.count = lucid.tensor(5)
    assert dict(net.named_buffers())["count"].item() == 5
    assert "scale" in dir(net)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("half", "models are of float32 or float64: float(), double()"),
        ("bfloat16", "models are of float32 or float64: float(), double()"),
        ("cuda", "lucid runs on the CPU, to(device) takes 'cpu'"),
    ],
)
def test_what_ported_programs_call_and_modules_lack_has_a_hint(name: str, hint: str) -> None:
    for model in (Net(), lucid.compile(Net())):
        with pytest.raises(AttributeError) as caught:
            getattr(model, name)()
        assert str(caught.value) == f"'Net' object has no attribute '{name}'\nhint: {hint}"


def test_wrong_assignments_are_refused() -> None:
    net = Net()
    with pytest.raises(
        TypeError, match=r"cannot assign 'Tensor' as parameter 'scale' \(lucid.nn.Parameter or None"
    ):
        net.scale = lucid.zeros(2)
    with pytest.raises(TypeError, match="cannot assign 'int' as module 'first'"):
        net.first = 3
    with pytest.raises(KeyError, match="attribute 'forward' already exists"):
        net.register_buffer("forward", lucid.zeros(1))
    with pytest.raises(KeyError, match=r'parameter name can\'t contain "\."'):
        net.register_parameter("a.b", None)
    with pytest.raises(TypeError, match="int is not a Module subclass"):
        net.add_module("x", 3)  # type: ignore[arg-type]


def test_super_init_must_come_first() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(lucid.zeros(1))

    with pytest.raises(AttributeError, match=r"assign parameters before Module.__init__\(\)"):
        Early()


def test_a_module_without_forward_says_so() -> None:
    with pytest.raises(NotImplementedError, match=r"Module \[Module\] is missing the required"):
        nn.Module()(1)


def test_train_and_eval_reach_all_modules() -> None:
    net = Net()
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    assert all(module.training for module in net.train().modules())
    with pytest.raises(ValueError, match="training mode is expected to be boolean"):
        net.train(1)  # type: ignore[arg-type]


def test_apply_goes_from_the_leaves_to_the_root() -> None:
    seen: list[str] = []
    Net().apply(lambda module: seen.append(type(module).__name__))
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Net"]


def test_dtype_changes_in_place() -> None:
    net = Net()
    scale = net.scale
    net(lucid.ones(1, 3)).sum().backward()
    net.double()
    assert net.scale is scale
    assert scale.dtype is lucid.float64
    assert scale.grad is not None
    assert scale.grad.dtype is lucid.float64
    assert net.count.dtype is lucid.int64
    assert net.to("cpu", lucid.float32).first.weight.dtype is lucid.float32
    with pytest.raises(TypeError, match=r"only accepts floating point dtypes, but got lucid.int64"):
        net.to(lucid.int64)
    with pytest.raises(ValueError, match="lucid runs on the CPU"):
        net.to("cuda")


def test_zero_grad_forgets_or_fills() -> None:
    net = Net()
    net(lucid.ones(1, 3)).sum().backward()
    net.zero_grad(set_to_none=False)
    gradient = net.scale.grad
    assert gradient is not None
    assert gradient.tolist() == [0.0, 0.0]
    for _ in range(4):
        net(lucid.ones(1, 3)).square().sum().backward(create_graph=True)
        assert net.scale.grad is not None and net.scale.grad.requires_grad
        net.zero_grad(set_to_none=False)
        assert net.scale.grad.tolist() == [0.0, 0.0] and not net.scale.grad.requires_grad
    net.zero_grad()
    assert net.scale.grad is None


def test_requires_grad_of_all() -> None:
    net = Net().requires_grad_(False)
    assert not any(parameter.requires_grad for parameter in net.parameters())


def test_hooks_see_and_replace() -> None:
    layer, seen = nn.Linear(2, 2), []
    before = layer.register_forward_pre_hook(lambda module, args: (args[0] * 0,))
    after = layer.register_forward_hook(lambda module, args, y: seen.append(args[0].sum().item()))
    bias = layer.bias
    assert bias is not None
    assert layer(lucid.ones(1, 2)).tolist() == [bias.tolist()]
    assert seen == [0.0]
    before.remove()
    after.remove()
    layer(lucid.ones(1, 2))
    assert len(seen) == 1
    layer.register_forward_hook(lambda module, args, y: y + 100)
    assert (layer(lucid.ones(1, 2)) > 50).all()


def test_get_by_path() -> None:
    net = Net()
    assert net.get_submodule("rest.1") is net.rest[1]
    assert net.get_submodule("") is net
    assert net.get_parameter("first.bias") is net.first.bias
    assert net.get_buffer("count") is net.count
    with pytest.raises(AttributeError, match="Sequential has no attribute `9`"):
        net.get_submodule("rest.9")
    with pytest.raises(AttributeError, match="`first` is not a Parameter"):
        net.get_parameter("first")
    with pytest.raises(AttributeError, match="`scale` is not a buffer"):
        net.get_buffer("scale")


def test_repr_is_a_tree() -> None:
    assert repr(Net()) == (
        "Net(\n"
        "  (first): Linear(in_features=3, out_features=4, bias=True)\n"
        "  (rest): Sequential(\n"
        "    (0): ReLU()\n"
        "    (1): Linear(in_features=4, out_features=2, bias=False)\n"
        "  )\n"
        ")"
    )


def test_repr_says_equal_neighbours_in_a_list_once() -> None:
    layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)])
    linear = "Linear(in_features=2, out_features=2, bias=True)"
    assert repr(layers) == f"ModuleList(\n  (0-1): 2 x {linear}\n  (2): ReLU()\n  (3): {linear}\n)"
    nested = repr(nn.ModuleList([nn.Sequential(nn.ReLU()) for _ in range(2)]))
    assert nested == "ModuleList(\n  (0-1): 2 x Sequential(\n    (0): ReLU()\n  )\n)"
    assert repr(nn.ModuleList()) == "ModuleList()"


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_are_independent(duplicate: Any) -> None:
    net = Net()
    net.tied = net.scale
    other = duplicate(net)
    assert other.tied is other.scale
    assert isinstance(other.scale, nn.Parameter)
    with lucid.no_grad():
        other.scale.zero_()
    assert net.scale.tolist() == [1.0, 1.0]
    assert len(list(other.parameters())) == len(list(net.parameters()))


def test_a_parameter_shares_the_memory_of_its_data_and_is_a_leaf() -> None:
    data = lucid.zeros(2)
    parameter = nn.Parameter(data)
    with lucid.no_grad():
        parameter.add_(1.0)
    assert data.tolist() == [1.0, 1.0]
    assert parameter.is_leaf
    assert parameter.requires_grad
    assert repr(parameter).startswith("Parameter containing:\ntensor([1., 1.]")
    assert not isinstance(parameter * 2, nn.Parameter)
    with pytest.raises(TypeError, match="Parameter: a Tensor is needed, not list"):
        nn.Parameter([1.0])  # type: ignore[arg-type]


def test_a_pickle_names_a_class_where_earlier_versions_had_it() -> None:
    assert pickle.loads(b"clucid.nn.modules.threshold\nSoftsign\n.") is nn.Softsign
    assert pickle.loads(b"clucid.nn.modules.margin\nCTCLoss\n.") is nn.CTCLoss


def test_classes_of_modules_have_no_members() -> None:
    assert not hasattr(nn.Module, "_modules") and "forward" in dict(inspect.getmembers(nn.Linear))
    unmade = nn.Linear.__new__(nn.Linear)
    assert not hasattr(unmade, "_modules") and not hasattr(unmade, "weight")


def test_a_part_that_stays_in_evaluation_does_so_in_a_compiled_step(run: Any) -> None:
    """Backbones keep their batch norms as they are: `train` of each module is asked."""

    class Backbone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.drop = nn.BatchNorm1d(3), nn.Dropout(0.5)
            self.calls: list[bool] = []

        def train(self, mode: bool = True) -> Any:
            super().train(mode)
            self.norm.eval()
            self.calls.append(mode)
            return self

        def forward(self, x: lucid.Tensor) -> lucid.Tensor:
            return self.norm(x)

    net = nn.Sequential(Backbone(), nn.Linear(3, 2))
    net.eval()
    x = lucid.tensor([[1.0, 2.0, 4.0], [0.0, 1.0, 3.0]])

    def step(x: lucid.Tensor) -> lucid.Tensor:
        return net.train()[0](x)

    found = run(step, x)
    assert (found - x).abs().max().item() < 1e-4
    assert [module.training for module in net.modules()] == [True, True, False, True, True]
    assert net[0].calls == [False, True]
    assert not net[0].norm.running_mean.any()


def test_conversions_ask_each_module() -> None:
    class Counted(nn.Linear):
        calls = 0

        def _apply(self, fn: Any, recurse: bool = True) -> Any:
            self.calls += 1
            return super()._apply(fn, recurse)

    net = nn.Sequential(Counted(3, 2), nn.BatchNorm1d(2))
    net[0].bias = net[1].bias
    weight = net[0].weight
    net.double().to_empty(device="cpu")
    assert net[0].calls == 2
    assert net[0].weight is weight
    assert {p.dtype for p in net.parameters()} == {lucid.float64}
    assert net[0].bias is net[1].bias
    assert nn.Sequential(nn.Linear(3, 2)).to_empty(recurse=False)[0].weight.shape == (2, 3)
    with pytest.raises(ValueError, match="'cuda'"):
        net.to_empty(device="cuda")
