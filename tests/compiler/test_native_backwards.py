"""A backward outside of a compiled model: one native call, and gradients on leaves."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.autograd.node import accumulator_of, sequence_numbers
from lucid.compiler.programs import native
from lucid.compiler.programs.backward import Differentiable
from lucid.compiler.programs.program import Program
from lucid.compiler.results.output_specs import GraphOutputView
from lucid.ir.errors import LucidError
from lucid.nn import functional as F
from lucid.runtime.entry.words import OTHER, Word

pytestmark = [
    pytest.mark.skipif(native._measured() is None, reason="objects look different here"),
    pytest.mark.usefixtures("unaudited"),
]

Way = Callable[[Any, Any, list[Any]], None]


def network() -> nn.Sequential:
    lucid.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def given() -> tuple[lucid.Tensor, lucid.Tensor]:
    rng = np.random.default_rng(1)
    x, g = rng.normal(size=(4, 3)), rng.normal(size=(4, 2))
    return lucid.tensor(x.astype(np.float32)), lucid.tensor(g.astype(np.float32))


def clear(net: nn.Module) -> list[Any]:
    for p in net.parameters():
        p.grad = None
    return list(net.parameters())


@pytest.fixture
def net() -> nn.Sequential:
    """A network whose compiled form, `net.model`, has gone all ways once."""
    net = network()
    net.__dict__["model"] = model = lucid.compile(net)
    x, g = given()
    for _ in range(4):
        clear(net)
        model(x).backward(g)
    clear(net)
    return net


@pytest.fixture
def by_python(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A note for each backward that is not the native function alone."""
    noted: list[int] = []

    def watched(self: Any, backward: Any, gradients: Any) -> Any:
        found = natively(self, backward, gradients)
        if found is None:
            noted.append(1)
        return found

    def calls(self: Any, node: Any, backward: Any, gradients: Any) -> Any:
        noted.append(2)
        return general(self, node, backward, gradients)

    from lucid.compiler.programs.backward import CallRecord

    general, natively = CallRecord.gradients, CallRecord.on_arrays
    monkeypatch.setattr(CallRecord, "on_arrays", watched)
    monkeypatch.setattr(CallRecord, "gradients", calls)
    return noted


def gradients(leaves: list[Any]) -> list[np.ndarray]:
    return [p.grad.numpy().copy() for p in leaves]


def test_forward_and_backward_are_a_native_call_each(
    net: nn.Sequential, by_python: list[int]
) -> None:
    x, g = given()
    program = net.model._latest_program()
    before = program.counted[0]
    result = program.enter(x)
    assert program.counted[0] == before + 1
    assert result.grad_fn is not None and result.requires_grad
    result.backward(g)
    assert not by_python
    found = gradients(list(net.parameters()))
    leaves = clear(net)
    net(x).backward(g)
    for a, b in zip(found, gradients(leaves), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        lambda y, g: ((y - g) ** 2).mean(),
        lambda y, g: y.sum(),
        lambda y, g: -y.mean(),
        lambda y, g: (y.T.clone() * g.T).sum(),
    ],
    ids=["squares", "sum", "mean", "transposed"],
)
def test_it_is_also_with_a_loss_outside(
    net: nn.Sequential, by_python: list[int], loss: Callable[[Any, Any], Any]
) -> None:
    x, g = given()
    loss(net.model(x), g).backward()
    assert not by_python
    found = gradients(list(net.parameters()))
    leaves = clear(net)
    loss(net(x), g).backward()
    for a, b in zip(found, gradients(leaves), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def with_gradient(model: Any, x: Any, leaves: list[Any]) -> None:
    leaves[0].grad = lucid.ones(*leaves[0].shape)
    model(x).backward(given()[1])


def twice(model: Any, x: Any, leaves: list[Any]) -> None:
    out = model(x)
    out.backward(given()[1], retain_graph=True)
    out.backward(given()[1])


def hooked_leaf(model: Any, x: Any, leaves: list[Any]) -> None:
    handle = leaves[1].register_hook(lambda gradient: 3 * gradient)
    model(x).backward(given()[1])
    handle.remove()


def double(leaf: Any) -> None:
    leaf.grad.mul_(2)


def hooked_after_accumulation(model: Any, x: Any, leaves: list[Any]) -> None:
    handle = leaves[1].register_post_accumulate_grad_hook(double)
    model(x).backward(given()[1])
    handle.remove()


def hooked_node_of_a_leaf(model: Any, x: Any, leaves: list[Any]) -> None:
    out = model(x)
    accumulator = leaves[0].expand_as(leaves[0]).grad_fn.next_functions[0][0]
    handle = accumulator.register_prehook(lambda gradients: (5 * gradients[0],))
    out.backward(given()[1])
    handle.remove()


def hooked_result(model: Any, x: Any, leaves: list[Any]) -> None:
    out = model(x)
    out.register_hook(lambda gradient: 2 * gradient)
    out.backward(given()[1])


def hooked_node(model: Any, x: Any, leaves: list[Any]) -> None:
    out = model(x)
    out.grad_fn.register_hook(lambda sent, got: None)
    out.backward(given()[1])


def strided_gradient(model: Any, x: Any, leaves: list[Any]) -> None:
    model(x).backward(lucid.tensor(np.ascontiguousarray(given()[1].numpy().T)).T)


def broadcast_gradient(model: Any, x: Any, leaves: list[Any]) -> None:
    model(x).sum().backward()


def two_calls_first(model: Any, x: Any, leaves: list[Any]) -> None:
    first, second = model(x), model(2 * x)
    second.backward(given()[1])
    first.backward(given()[1])


def leaf_elsewhere(model: Any, x: Any, leaves: list[Any]) -> None:
    (model(x).sum() + (leaves[0] ** 2).sum()).backward()


def only_some(model: Any, x: Any, leaves: list[Any]) -> None:
    model(x).backward(given()[1], inputs=leaves[:1])
    assert leaves[1].grad is None
    leaves[1].grad = leaves[2].grad = leaves[3].grad = None
    model(x).backward(given()[1])


def watched_for_nan(model: Any, x: Any, leaves: list[Any]) -> None:
    out = model(x)
    with lucid.autograd.detect_anomaly():
        out.backward(given()[1])


def frozen_since(model: Any, x: Any, leaves: list[Any]) -> None:
    out = model(x)
    leaves[3].requires_grad_(False)
    out.backward(given()[1])
    leaves[3].requires_grad_(True)


WAYS: tuple[Way, ...] = (
    with_gradient,
    twice,
    hooked_leaf,
    hooked_after_accumulation,
    hooked_node_of_a_leaf,
    hooked_result,
    hooked_node,
    strided_gradient,
    broadcast_gradient,
    two_calls_first,
    leaf_elsewhere,
    only_some,
    watched_for_nan,
    frozen_since,
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_gradients_are_those_of_eager_mode_whoever_looks_on(net: nn.Sequential, way: Way) -> None:
    x, _ = given()
    for _ in range(2):
        leaves = clear(net)
        way(net.model, x, leaves)
        found = gradients(leaves)
        leaves = clear(net)
        way(net, x, leaves)
        for a, b in zip(found, gradients(leaves), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def added_up(model: Any, x: Any, leaves: list[Any]) -> list[Any]:
    for _ in range(2):
        model(x).backward(given()[1])
    return [p.grad for p in leaves]


def of_an_argument(model: Any, x: Any, leaves: list[Any]) -> list[Any]:
    x = x.detach().requires_grad_()
    model(x).backward(given()[1])
    return [x.grad, *(p.grad for p in leaves)]


def of_what_an_argument_is_computed_from(model: Any, x: Any, leaves: list[Any]) -> list[Any]:
    x = x.detach().requires_grad_()
    model(x.sin()).backward(given()[1])
    return [x.grad, *(p.grad for p in leaves)]


def through_two_calls(model: Any, x: Any, leaves: list[Any]) -> list[Any]:
    y = model(x)
    (y * model(lucid.cat([y, y[:, :1]], 1))).sum().backward()
    return [p.grad for p in leaves]


def asked_for(model: Any, x: Any, leaves: list[Any]) -> list[Any]:
    return [*lucid.autograd.grad(model(x), leaves, given()[1])]


def asked_for_some(model: Any, x: Any, leaves: list[Any]) -> list[Any]:
    return [*lucid.autograd.grad(model(x), [leaves[2], leaves[1]], given()[1])]


@pytest.mark.parametrize(
    "way",
    [
        added_up,
        of_an_argument,
        of_what_an_argument_is_computed_from,
        through_two_calls,
        asked_for,
        asked_for_some,
    ],
    ids=lambda way: way.__name__,
)
def test_backwards_that_leave_other_gradients_are_native_calls_as_well(
    net: nn.Sequential, by_python: list[int], way: Callable[[Any, Any, list[Any]], list[Any]]
) -> None:
    x, _ = given()
    for _ in range(4):
        way(net.model, x, clear(net))
    by_python.clear()
    found = [gradient.numpy().copy() for gradient in way(net.model, x, clear(net))]
    assert not by_python
    for a, b in zip(found, way(net, x, clear(net)), strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-6)


def test_a_freed_graph_and_a_written_parameter_are_errors_as_ever(net: nn.Sequential) -> None:
    x, g = given()
    out = net.model(x)
    out.backward(g)
    with pytest.raises(LucidError, match="second time"):
        out.backward(g)
    out = net.model(x)
    clear(net)
    with lucid.no_grad():
        net[2].weight.mul_(2)
    with pytest.raises(LucidError, match="modified by an inplace operation"):
        out.backward(g)
    assert all(p.grad is None for p in net.parameters())


class Scaled(nn.Module):
    """A layer whose backward is given a number that each call reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.scale = 0.5

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return (self.layer(x) * self.scale).tanh()


class Several(nn.Module):
    """A layer whose results are in a container."""

    def __init__(self, results: Callable[..., Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.last = nn.Linear(2, 2)
        self.results = results

    def forward(self, x: lucid.Tensor) -> Any:
        y = self.layer(x)
        return self.results(y, y.exp(), self.last(y))


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Output:
    loss: Any
    logits: Any


def in_one_list(x: Any, y: Any, z: Any) -> Any:
    inner = [x, y]
    return inner, (inner, z)


CONTAINERS: dict[str, Callable[..., Any]] = {
    "tuple": lambda x, y, z: (x, y),
    "nested": lambda x, y, z: (z, (x, [y]), "text"),
    "dict": lambda x, y, z: {"x": x, "y": y, 3: z},
    "named tuple": lambda x, y, z: Pair(x, z),
    "dataclass": lambda x, y, z: Output(z.mean(), y),
    "the same twice": lambda x, y, z: (y, y, [y]),
    "one list twice": in_one_list,
    "views": lambda x, y, z: (*y.chunk(2, -1), y.T, y[0]),
    "a view alone": lambda x, y, z: z.T,
    "views of views": lambda x, y, z: (z.reshape(2, 4)[1:], z.reshape(8)[2:6].reshape(2, 2)),
    "layers": lambda x, y, z: (z, y, z.sum(), (z * y).mean()),
    "without a history": lambda x, y, z: (x.detach(), y, lucid.zeros(3)),
    "written": lambda x, y, z: (z.mul_(2), y),
}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "a number": Scaled,
    "layers": network,
    "a batch norm": lambda: nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)),
    "a dropout": lambda: nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5), nn.Linear(5, 2)),
    "its result is saved": lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh()),
    **{f"a {name} result": lambda of=of: Several(of) for name, of in CONTAINERS.items()},
}


def tensors_in(value: Any) -> list[Any]:
    if isinstance(value, lucid.Tensor):
        return [value]
    value = vars(value) if isinstance(value, Output) else value
    parts = value.values() if isinstance(value, dict) else value
    return [x for part in parts for x in tensors_in(part)] if type(parts) is not str else []


def backward_of(out: Any, g: lucid.Tensor) -> None:
    """Of one result, or of all."""
    if isinstance(out, lucid.Tensor) and out.shape == g.shape:
        out.backward(g)
    else:
        sum((i + 1) * (x * x).sum() for i, x in enumerate(tensors_in(out))).backward()


def record_of(out: lucid.Tensor) -> tuple[Any, dict[str, Any]]:
    """That of a call, and what is in its slots and in those of its node, as far as calls agree."""
    node: Any = out.grad_fn
    record = node._record
    found: dict[str, Any] = {name: getattr(record, name) for name in type(record).__slots__[1:]}
    found["_kept"] = [x.tolist() for x in found["_kept"]]
    assert found.pop("_versions") == [x.now for x in record._counters]
    found["_counters"] = [found["_counters"].index(x) for x in found["_counters"]]
    found["line"] = node._line
    inner = [edge if edge[0]._edges == () else edge[0]._number for edge in node._edges]
    found |= {"edges": inner, "number": out.output_nr, "chain": out._view_chain}
    found |= {name: getattr(node, name) for name in ("_number", "_output_types", "_walked")}
    del found["rule"], found["spot"]
    return record, found


def is_given_history(program: Any) -> bool:
    return bool(program.native._plan[Word.HISTORY_AT])


@pytest.mark.parametrize("of_argument", [False, True], ids=["", "of an argument"])
@pytest.mark.parametrize("kind", MODELS)
def test_native_code_makes_the_history_that_python_makes(
    kind: str, of_argument: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lucid.manual_seed(0)
    net, (x, g) = MODELS[kind](), given()
    x.requires_grad_(of_argument)
    records = []
    for is_native in True, False:
        if not is_native:
            monkeypatch.setattr(Differentiable, "likeness", lambda self: None)
        model = lucid.compile(net)
        for _ in range(4):
            backward_of(model(x), g)
        assert is_given_history(model._latest_program()) is is_native
        lucid.manual_seed(1)
        result, number = model(x), next(sequence_numbers)
        tensors = tensors_in(result)
        results = [out for out in tensors if out.requires_grad]
        assert number - 1 == max(out.grad_fn._sequence for out in results)
        record = record_of(results[0])[0]
        known = {id(x) for x in [*record.rule.counters, *(x._counter for x in (x, *tensors))]}
        assert {id(x) for x in record._counters} == known
        assert all(record_of(out)[0] is record for out in results)
        assert not record.freed and not record.contexts
        found = [record_of(out)[1] for out in results]
        for out in tensors:
            array: Any = out._array
            base = None if out._base is None else (out._base.tolist(), out._epoch, out._view_chain)
            found.append((out.tolist(), out.stride(), str(array.flags), out.location, base))
        records.append(found)
        of_next = next(out for out in tensors_in(model(x)) if out.requires_grad)
        assert record.freed is not record_of(of_next)[0].freed
    assert records[0] == records[1]


@pytest.mark.parametrize("of_argument", [False, True], ids=["", "of an argument"])
@pytest.mark.parametrize("kind", ["layers", "a number", "a layers result"])
def test_it_makes_that_of_calls_of_any_size(
    kind: str, of_argument: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lucid.manual_seed(0)
    net, records = MODELS[kind](), []
    batches = [lucid.ones(size, 3) for size in (4, 7, 5, 9, 6, 8, 7, 10, 11, 13, 5)]
    for is_native in True, False:
        if not is_native:
            monkeypatch.setattr(Differentiable, "likeness", lambda self: None)
        model, found = lucid.compile(net, audit=False), []
        for x in batches:
            x.requires_grad_(of_argument).grad = None
            results = [out for out in tensors_in(model(x)) if out.requires_grad]
            found += [record_of(out)[1] | {"freed": set()} for out in results]
            found.append([out.tolist() for out in results])
            backward_of(results, results[0])
            found.append(x.grad.tolist() if of_argument else [])
        program = model._latest_program()
        assert is_given_history(program) is is_native
        assert not is_native or program.native._plan[Word.RESULT] != OTHER
        records.append(found)
    assert records[0] == records[1]


@pytest.mark.parametrize("kind", CONTAINERS)
def test_results_in_containers_are_made_without_python(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (x, _) = lucid.compile(Several(CONTAINERS[kind])), given()
    for _ in range(4):
        expected = model(x)
    called: list[Any] = []
    for owner, name in (GraphOutputView, "_view"), (Program, "finish"):
        monkeypatch.setattr(owner, name, lambda *args, **named: called.append(args))
    found = model._latest_program().enter(x)
    assert not called
    assert [y.tolist() for y in tensors_in(found)] == [y.tolist() for y in tensors_in(expected)]


NUMBERS: dict[str, Callable[[Any, float], None]] = {
    "a batch norm": lambda net, number: setattr(net[1], "eps", number),
    "a dropout": lambda net, number: setattr(net[1], "p", number),
    "a number": lambda net, number: setattr(net, "scale", number),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_that_change_between_calls_are_those_of_each_call(
    kind: str, by_python: list[int]
) -> None:
    lucid.manual_seed(0)
    nets = [MODELS[kind]() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    x, g = given()
    model = lucid.compile(nets[1])
    for number in 0.5, 0.4, 0.2, 0.5, 0.4, 0.6:
        for call, net in (nets[0], nets[0]), (model, nets[1]):
            NUMBERS[kind](net, number)
            lucid.manual_seed(1)
            call(x).backward(g)
            clear(net)
    by_python.clear()
    traces = model.stats.traces
    found = []
    for call, net in (nets[0], nets[0]), (model, nets[1]):
        lucid.manual_seed(2)
        outs = []
        for number in 0.3, 0.7:
            NUMBERS[kind](net, number)
            outs.append(call(x))
        NUMBERS[kind](net, 0.1)
        outs[1].backward(g)
        outs[0].backward(2 * g)
        arrays = [out.detach().numpy() for out in outs]
        found.append(arrays + gradients([*net.parameters()]))
    assert not by_python and model.stats.traces == traces <= 2
    assert len(found[0]) == len(found[1]) >= 4
    for wanted, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


class Given(nn.Module):
    """Layers whose backward is given numbers of the call.

    Args:
        is_alone: whether there is one result.
    """

    def __init__(self, is_alone: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.is_alone = is_alone

    def forward(self, x: lucid.Tensor, scale: float, p: float) -> Any:
        h = F.dropout(self.layer(x) * scale, p).tanh()
        return h if self.is_alone else (h, h * scale)


def test_numbers_of_calls_of_other_sizes_are_those_of_each_call() -> None:
    lucid.manual_seed(0)
    net = Scaled()
    model = lucid.compile(net)
    for number, size in enumerate((4, 7, 4, 5, 9, 4, 6, 7, 8, 4)):
        found = []
        for call in net, model:
            net.scale = 0.1 * (1 + number % 4)
            x = lucid.ones(size, 3)
            with lucid.no_grad():
                net.layer.bias.add_(0.0)
            outs = [call(x), call(2 * x)]
            net.scale = 3.0
            for out in outs:
                out.sum().backward()
            found.append(gradients([*net.parameters()]))
            clear(net)
        for wanted, got in zip(*found, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_alone", [True, False])
def test_numbers_that_calls_are_given_are_those_of_each_call(
    is_alone: bool, by_python: list[int]
) -> None:
    lucid.manual_seed(0)
    net, (x, g) = Given(is_alone), given()
    model, found = lucid.compile(net), []

    def run(call: Any, numbers: list[tuple[float, float]]) -> list[np.ndarray]:
        outs = [call(x, *pair) for pair in numbers]
        for out in reversed(outs):
            (out if is_alone else out[0] + out[1]).backward(g)
        arrays = [(out if is_alone else out[1]).detach().numpy() for out in outs]
        return arrays + gradients([*net.parameters()])

    for call in net, model:
        for _ in range(5):
            clear(net)
            run(call, [(0.5, 0.25), (0.75, 0.5)])
        by_python.clear()
        clear(net)
        lucid.manual_seed(1)
        found.append(run(call, [(0.3, 0.1), (0.9, 0.6)]))
    assert not by_python and model.stats.traces <= 2
    for wanted, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_a_parameter_that_gets_a_history_leads_to_what_it_was_made_of() -> None:
    lucid.manual_seed(0)
    nets = [network() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    model, (x, g), found = lucid.compile(nets[1]), given(), []
    for _ in range(4):
        model(x).backward(g)
    for call, net in (nets[0], nets[0]), (model, nets[1]):
        weight: Any = net[2].weight
        source = lucid.ones(2, 5, requires_grad=True)
        weight.requires_grad_(False)
        weight.copy_(source * 2)
        clear(net)
        call(x).backward(g)
        assert source.grad is not None
        found.append(source.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_what_a_call_has_kept_goes_with_the_backward(net: nn.Sequential) -> None:
    x, g = given()
    out = net.model(x)
    kept = [weakref.ref(a) for a in out.grad_fn._record._kept if a is not x._array]
    assert kept and all(ref() is not None for ref in kept)
    out.backward(g)
    assert all(ref() is None for ref in kept)
    other = net.model(x)
    kept = [weakref.ref(a) for a in other.grad_fn._record._kept if a is not x._array]
    del other
    assert all(ref() is None for ref in kept)


def test_gradients_belong_to_the_leaves_alone(net: nn.Sequential, by_python: list[int]) -> None:
    x, g = given()
    seen = []
    for _ in range(3):
        leaves = clear(net)
        net.model(x).backward(g)
        seen.append([p.grad for p in leaves])
    assert not by_python
    assert len({id(t._array) for grads in seen for t in grads}) == 3 * len(seen[0])
    refs = [weakref.ref(t) for t in seen[0]]
    del seen
    gc.collect()
    assert all(ref() is None for ref in refs)


def test_threads_add_up_on_the_same_leaves(net: nn.Sequential) -> None:
    x, g = given()
    net.model(x).backward(g)
    once = gradients(list(net.parameters()))
    clear(net)

    def work() -> None:
        for _ in range(50):
            net.model(x).backward(g)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for a, b in zip(once, gradients(list(net.parameters())), strict=True):
        np.testing.assert_allclose(200 * a, b, rtol=1e-3, atol=1e-4)


class Rows(nn.Module):
    """Rows that a number or a mask says, of a model that is compiled alone."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)
        self.count, self.kind = 2, kind

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        x = x[: self.count] if self.kind == "a number" else x[x[:, 0] > 0]
        result: lucid.Tensor = self.second(self.first(x).tanh())
        return result


@pytest.mark.parametrize("kind", ["a number", "a mask"])
@pytest.mark.parametrize("is_left", [True, False])
def test_backwards_of_open_sizes_are_native(
    kind: str, is_left: bool, by_python: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    long_ways: list[Any] = []
    long_way = lucid.compiler.Compiled._call

    def noted(self: Any, *args: Any) -> Any:
        long_ways.append(args)
        return long_way(self, *args)

    monkeypatch.setattr(lucid.compiler.Compiled, "_call", noted)

    def run(compile: Any) -> tuple[list[Any], list[int]]:
        lucid.manual_seed(0)
        rng, model, found, ways = np.random.default_rng(0), Rows(kind), [], []
        step = compile(model)
        for count in [3, 5, 4, 7, 6, 9, 8, 2, 12, 11] * 4:
            x = rng.standard_normal((14, 4)).astype(np.float32)
            x[:, 0] = np.where(np.arange(14) < count, 1, -1)
            model.count = count
            if is_left:  # else gradients are added to those that there are
                for parameter in model.parameters():
                    parameter.grad = None
            result = step(lucid.tensor(x))
            (result * result.detach().cos()).sum().backward()
            found += [result, *(parameter.grad.numpy().copy() for parameter in model.parameters())]
            ways.append(len(long_ways) + (len(by_python) if is_left else 0))
        return found, ways

    found, ways = run(lambda model: lucid.compile(model, audit=False))
    assert ways[29] == ways[39]
    expected, _ = run(lambda model: lucid.compile(model, mode="eager"))
    for one, other in zip(found, expected, strict=True):
        one, other = (x if isinstance(x, np.ndarray) else x.detach().numpy() for x in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def _walked(model: Any, x: Any) -> Any:
    y = model(x)
    y.sum().backward()
    return y


def _of_result(model: Any, x: Any) -> list[Any]:
    return [_walked(model, x), x.grad]


def _hooked(model: Any, x: Any) -> list[Any]:
    handle = x.register_hook(lambda gradient: 3 * gradient)
    found = _of_result(model, x)
    handle.remove()
    return found


def _hooked_behind(model: Any, x: Any) -> list[Any]:
    handle = x.register_post_accumulate_grad_hook(double)
    found = _of_result(model, x)
    handle.remove()
    return found


def _behind_another_call(model: Any, x: Any) -> list[Any]:
    first = model(x)
    second = model(lucid.cat([first, first[:, :1]], 1))
    second.mean().backward()
    return [second, x.grad]


def _retained(model: Any, x: Any) -> list[Any]:
    z = x * 2
    z.retain_grad()
    return [_walked(model, z), z.grad, x.grad]


def _of_a_view(model: Any, x: Any) -> list[Any]:
    return [_walked(model, x[:, :]), x.grad]


def _penalty(model: Any, x: Any) -> list[Any]:
    (g,) = lucid.autograd.grad((model(x) ** 2).sum(), x, create_graph=True)
    (g**2).sum().backward()
    return [g, x.grad]


def _without_grad(model: Any, x: Any) -> list[Any]:
    with lucid.no_grad():
        y = model(x)
    return [y, lucid.tensor(y.requires_grad)]


def _switched_off(model: Any, x: Any) -> list[Any]:
    x.requires_grad_(False)
    y = model(x)
    x.requires_grad_(True)
    y.sum().backward()
    return [y, x.grad]


def _written_since(model: Any, x: Any) -> list[Any]:
    z = x * 1
    y = model(z)
    z.mul_(2)
    with pytest.raises(LucidError, match="modified by an inplace operation"):
        y.sum().backward()
    return [y]


ON_ARGUMENTS = [
    *(_of_result, _hooked, _hooked_behind, _behind_another_call, _retained, _of_a_view, _penalty),
    *(_without_grad, _switched_off, _written_since),
]


def test_arguments_that_require_grad_have_eagers_gradients() -> None:
    found = []
    for compile in (lambda model: model, lucid.compile):
        net = network()
        model, found_here = compile(net), []
        x = given()[0].clone().requires_grad_(True)
        for way in (*ON_ARGUMENTS, *reversed(ON_ARGUMENTS), *ON_ARGUMENTS):
            clear(net)
            for leaf in (x, given()[0].clone().requires_grad_(True)):
                leaf.grad = None
                found_here += [None if y is None else y.detach().numpy() for y in way(model, leaf)]
        found.append(found_here)
    for a, b in zip(*found, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["new leaf", "leaf", "history"])
def test_calls_with_arguments_that_require_grad_are_native(net: nn.Sequential, kind: str) -> None:
    x = given()[0].clone().requires_grad_(True)

    def argument(x: Any) -> Any:
        new = {"new leaf": x.detach().clone().requires_grad_, "history": lambda: 2 * x}
        return new.get(kind, lambda: x)()

    for _ in range(3):
        net.model(argument(x)).sum().backward()
    program = net.model._latest_program()
    for _ in range(2):
        result = program.enter(argument(x))
        assert result.requires_grad and result.grad_fn is not None
    for number in range(3):
        y = x.detach().clone().requires_grad_(True)
        node = accumulator_of(y)
        registers = y.register_hook, y.register_post_accumulate_grad_hook, node.register_hook
        registers[number](lambda *_: None)
        assert (program.enter(argument(y)) is native.SLOW_PATH) == (kind == "leaf")
    assert program.enter(x if kind == "history" else 2 * x) is native.SLOW_PATH
    assert program.enter(x.detach()) is native.SLOW_PATH


class Layered(nn.Module):
    """Results that are computed from one another, and from the same weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: lucid.Tensor) -> dict[str, lucid.Tensor]:
        first = self.layer(x).tanh()
        second = self.layer(first).exp()
        return {"second": second, "first": first, "loss": (second * first).mean()}


Results = dict[str, Any]


def _all(results: Results) -> list[Any]:
    sum((x * x).sum() for x in results.values()).backward()
    return []


def _one_gradient(results: Results) -> list[Any]:
    (results["first"] + results["second"]).sum().backward()
    return []


def _the_last(results: Results) -> list[Any]:
    results["loss"].backward()
    return []


def _the_middle(results: Results) -> list[Any]:
    results["second"].sum().backward()
    return []


def _one_after_the_other(results: Results) -> list[Any]:
    results["loss"].backward(retain_graph=True)
    results["first"].sum().backward(retain_graph=True)
    (2 * results["loss"] + results["second"].mean()).backward()
    return []


def _hook_on_the_first(results: Results) -> list[Any]:
    seen: list[Any] = []
    results["first"].register_hook(lambda gradient: seen.append(gradient.numpy()) or 3 * gradient)
    results["loss"].backward()
    return seen


def _hook_on_a_node(results: Results) -> list[Any]:
    seen: list[Any] = []
    results["second"].grad_fn.register_prehook(lambda found: seen.append(found[0].numpy()))
    results["loss"].backward()
    return seen


def _kept_of_the_first(results: Results) -> list[Any]:
    results["first"].retain_grad()
    _all(results)
    return [results["first"].grad.numpy()]


def _by_another(results: Results) -> list[Any]:
    found = lucid.autograd.grad(results["loss"], [results["first"], results["second"]])
    return [x.numpy() for x in found]


def _differentiable(results: Results) -> list[Any]:
    (found,) = lucid.autograd.grad(results["loss"], results["second"], create_graph=True)
    (found * found).sum().backward()
    return []


def _freed(results: Results) -> list[Any]:
    results["first"].sum().backward()
    with pytest.raises(LucidError, match="second time"):
        results["loss"].backward()
    return []


def _written(results: Results) -> list[Any]:
    results["first"].add_(1)
    with pytest.raises(LucidError, match="modified by an inplace operation"):
        results["loss"].backward()
    return []


TOGETHER = [_all, _one_gradient, _the_last, _the_middle, _one_after_the_other]
ON_LAYERS = [
    *(*TOGETHER, _hook_on_the_first, _hook_on_a_node, _kept_of_the_first, _by_another),
    *(_differentiable, _freed, _written),
]


def of_layered(calls: list[Callable[[Any], Any]], way: Any, x: Any) -> list[list[Any]]:
    """What a way to differentiate finds, and gradients, of some calls of each of these."""
    found = []
    for call in calls:
        leaves = [x, *call.parameters()]
        found.append([])
        for _ in range(4):
            for leaf in leaves:
                leaf.grad = None
            found[-1] += way(call(x))
            found[-1] += [y.grad.numpy().copy() for y in leaves if y.grad is not None]
    return found


@pytest.mark.parametrize("of_argument", [False, True], ids=["", "of an argument"])
@pytest.mark.parametrize("way", ON_LAYERS)
def test_results_that_depend_on_one_another_have_eagers_gradients(
    way: Callable[[Results], list[Any]], of_argument: bool
) -> None:
    nets = [Layered() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    x = given()[0].requires_grad_(of_argument)
    eager, compiled = of_layered([nets[0], lucid.compile(nets[1])], way, x)
    assert len(eager) == len(compiled)
    for a, b in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("of_argument", [False, True], ids=["", "of an argument"])
@pytest.mark.parametrize("way", TOGETHER)
def test_they_are_differentiated_by_one_native_call_where_nobody_looks_on(
    way: Callable[[Results], list[Any]], of_argument: bool, by_python: list[int]
) -> None:
    model, x = lucid.compile(Layered()), given()[0].requires_grad_(of_argument)
    of_layered([model], way, x)
    by_python.clear()
    programs = model._latest_program().differentiable.programs
    before = sum(program.counted[0] for program in programs)
    way(model(x))
    count = sum(program.counted[0] for program in programs) - before
    assert not by_python and count == (3 if way is _one_after_the_other else 1)
