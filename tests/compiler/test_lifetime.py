"""What a compiled function keeps alive, and for how long: nothing waits for the cycle collector."""

from __future__ import annotations

import functools
import gc
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lucid
from lucid import nn, optim
from lucid.autograd import Function
from lucid.codegen.kernel_ir.instruction import Inst
from lucid.codegen.kernel_ir.kernel import Kernel
from lucid.codegen.program.program import KernelCall
from lucid.compiler import tracing
from lucid.compiler.recording.recorder import Recorder
from lucid.compiler.recording.trace import Trace
from lucid.ir.graph import Graph, Node

References = dict[str, "weakref.ref[Any]"]


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class OnHost(Function):
    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        ctx.save_for_backward(x)
        return lucid.from_numpy(x.numpy() * 2)

    @staticmethod
    def backward(ctx: Any, gradient: lucid.Tensor) -> lucid.Tensor:
        return lucid.from_numpy(gradient.numpy() * 2)


def references(step: Any, **things: Any) -> References:
    program = step._latest_program()
    return {name: weakref.ref(thing) for name, thing in dict(things, s=step, p=program).items()}


def pure() -> References:
    step = lucid.compile(lambda x: x * 2)
    x = lucid.ones(2)
    return references(step, x=x, y=step(x))


def called_natively() -> References:
    kept, weight = [0.0], lucid.ones(2)

    def body(x: Any) -> Any:
        kept[0] = kept[0] + x.sum().item()
        return weight * x

    step = lucid.compile(body)
    x = lucid.ones(2)
    for _ in range(4):
        y = step(x)
    assert step._latest_program().native is not None
    return references(step, x=x, y=y, weight=weight)


def with_backward_inside() -> References:
    weight = lucid.ones(3, requires_grad=True)
    step = lucid.compile(lambda x: (weight * x).sum().backward())
    for _ in range(3):
        step(lucid.ones(3))
    return references(step, weight=weight)


def with_branches() -> References:
    kept: list[float] = []

    def body(x: Any) -> Any:
        if x.sum() > 0:
            kept.append(x.sum().item())
            return x, f"{x.sum().item():.2f}"
        return -x

    step = lucid.compile(body)
    x = lucid.ones(2)
    for sign in (1.0, -1.0, 1.0, -1.0, 1.0):
        step(sign * x)
    programs = step._programs.all()
    assert len(programs) == 2 and any(program.links for program in programs)
    return references(step, x=x, other=programs[0], another=programs[1])


def with_backward_outside() -> References:
    weight = lucid.ones(3, requires_grad=True)
    step = lucid.compile(lambda x: (weight * x, (weight * x).sum()))
    x = lucid.ones(3)
    hidden, loss = step(x)
    hidden.retain_grad()
    loss.backward()
    assert hidden.grad_fn is not None
    return references(step, weight=weight, x=x, hidden=hidden, loss=loss, node=hidden.grad_fn)


def not_differentiated() -> References:
    weight = lucid.ones(3, requires_grad=True)
    step = lucid.compile(lambda x: (weight * x).sum())
    x = lucid.ones(3)
    return references(step, weight=weight, x=x, loss=step(x))


def with_a_hook_that_raises() -> References:
    weight = lucid.ones(3, requires_grad=True)
    step = lucid.compile(lambda x: weight * x)
    y = step(lucid.ones(3))
    y.register_hook(lambda gradient: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        y.sum().backward()
    return references(step, weight=weight, y=y)


def with_a_failed_call() -> References:
    weight = lucid.ones(4, requires_grad=True)
    step = lucid.compile(lambda index: (weight * weight)[index].sum().backward())
    step(lucid.tensor([1]))
    wrong = lucid.tensor([9])
    with pytest.raises(lucid.IndexOutOfRangeError):
        step(wrong)
    return references(step, weight=weight, wrong=wrong)


def with_a_failed_trace() -> References:
    weight, x = lucid.ones(3, requires_grad=True), lucid.ones(3)

    def fail(x: lucid.Tensor, fails: bool) -> None:
        (weight * x).sum().backward()
        if fails:
            raise KeyError("no")

    step = lucid.compile(fail)
    step(lucid.ones(3), False)
    with pytest.raises(KeyError):
        step(x, True)
    return references(step, weight=weight, x=x)


def with_host_calls() -> References:
    weight = lucid.ones(3, requires_grad=True)
    step = lucid.compile(lambda x: OnHost.apply(weight * x).sum().backward())
    for _ in range(2):
        step(lucid.ones(3))
    return references(step, weight=weight)


@pytest.mark.parametrize(
    "case",
    [
        pure,
        called_natively,
        with_backward_inside,
        with_branches,
        with_backward_outside,
        not_differentiated,
        with_a_hook_that_raises,
        with_a_failed_call,
        with_a_failed_trace,
        with_host_calls,
    ],
)
def test_a_dropped_step_dies_at_once_with_all_that_it_held(case: Callable[[], References]) -> None:
    found = case()
    assert [name for name, reference in found.items() if reference() is not None] == []


def test_arguments_die_after_the_backward_although_the_result_lives() -> None:
    weight, x = lucid.ones(3, requires_grad=True), lucid.ones(3)
    step = lucid.compile(lambda x: (weight * x).sum())
    loss = step(x)
    watched = weakref.ref(x)
    del x
    assert watched() is not None
    loss.backward()
    assert watched() is None
    assert weight.grad is not None


def growth(call: Callable[[], object], count: int) -> int:
    """Bytes that `count` calls leave behind; the collector must find no cycle of each."""
    for _ in range(300):  # eager mode has loaded its machine code, and records of its ops, by then
        call()
    gc.collect()
    gc.freeze()  # the next look is at what the calls have made alone
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(count):
            call()
        # It empties the interpreter's free lists as well.
        assert gc.collect() < count
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.unfreeze()


def test_ten_thousand_calls_leave_nothing_behind() -> None:
    weight, x = lucid.ones(3, requires_grad=True), lucid.ones(3)
    step = lucid.compile(lambda x: (weight * x).sum().backward(), audit=False)  # which makes cycles
    assert growth(lambda: step(x), 10_000) < 2000


@pytest.mark.parametrize("kind", ["results", "outside", "fails", "host"])
def test_calls_of_all_kinds_leave_nothing_behind(kind: str) -> None:
    weight, x = lucid.ones(3, requires_grad=True), lucid.ones(3)
    compile = functools.partial(lucid.compile, audit=False)  # audits make cycles
    results = compile(lambda x: {"a": x * 2, "b": [x, weight, x[0]]})
    outside = compile(lambda x: (weight * x, (weight * x).sum()))
    indexed = compile(lambda index: (weight * weight)[index].sum().backward())
    host = compile(lambda x: OnHost.apply(weight * x).sum().backward())

    def differentiate() -> None:
        hidden, loss = outside(x)
        hidden.retain_grad()
        loss.backward()

    def fail() -> None:
        try:  # noqa: SIM105 - which makes a cycle of its own
            indexed(lucid.tensor([9]))
        except lucid.IndexOutOfRangeError:
            pass

    calls = {
        "results": lambda: results(lucid.ones(3)),
        "outside": differentiate,
        "fails": fail,
        "host": lambda: host(x),
    }
    assert growth(calls[kind], 300) < 2000


def perceptron() -> tuple[Any, Callable[[int], Any]]:
    """A compiled training step, and a call of it with a batch of some size."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = optim.Adam(model.parameters())

    def train(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step = lucid.compile(train, audit=False)
    return step, lambda size: step(lucid.ones(size, 8), lucid.zeros(size, dtype=lucid.int64))


def alive() -> tuple[list[Node], list[object]]:
    """The nodes that there are, and the objects that only a trace and a compilation need."""
    while gc.collect():  # what other tests have left may take several rounds
        pass
    found = gc.get_objects()
    of_work = (Kernel, Inst, KernelCall, Trace, Recorder)
    return [x for x in found if type(x) is Node], [x for x in found if isinstance(x, of_work)]


@pytest.mark.usefixtures("known_sizes")
def test_of_a_trace_only_the_recorded_graph_outlives_it() -> None:
    step, call = perceptron()  # whose parameters are drawn by code that eager mode keeps
    before, before_work = alive()  # which are held: caches may drop what others have left
    call(3)
    call(3)

    def recorded() -> int:
        """The nodes of the graphs as they were recorded."""
        programs = step._programs.all()
        graphs = [g for p in programs for g in (p.recorded, *p.recorded.functions.values())]
        return sum(len(graph.nodes) for graph in graphs)

    nodes, work = alive()
    assert len(nodes) == len(before) + recorded() and len(work) == len(before_work)
    call(5)  # one plan with open sizes serves all others
    nodes, work = alive()
    planned = len(nodes) - recorded()
    for size in (7, 6, 3, 9, 5, 6):
        call(size)
    nodes, now = alive()
    assert len(nodes) == planned + recorded() and len(now) == len(work)
    assert "kernel k0" in step.stages["kernels"], "made again for who looks at them"


@pytest.mark.usefixtures("known_sizes")
def test_programs_that_are_dropped_free_their_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid.compiler.cache.LIMIT", 2)
    step, call = perceptron()
    code = []
    for size in (3, 5, 6, 7):
        for _ in range(3):
            call(size)
        code.append(weakref.ref(step._latest_program().executable._library._tracker))
    # The first one's is for its size, and may be used by others; that of all others is one.
    others = {tracker() for tracker in code[1:]}
    assert len(others) == 1
    assert None not in others
    del others
    assert step.stats.dropped == 2
    del step, call
    gc.collect()
    assert [tracker() is None for tracker in code] == [True] * 4


@pytest.mark.usefixtures("known_sizes")
def test_a_program_says_about_how_much_memory_it_keeps() -> None:
    step, call = perceptron()
    for size in (3, 3, 4, 4):
        call(size)  # what is made once, for all of them
    found = []
    for size in (5, 6):
        gc.collect()
        tracemalloc.start()
        for _ in range(6):
            call(size)
        gc.collect()
        found.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    program = step._latest_program()
    said = program.nbytes - program.executable._library.nbytes  # which isn't Python's memory
    assert said / 1.5 < min(found) < said * 1.5


def test_what_traces_leave_behind_is_found_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs refer to themselves, and what was there at a trace is old for Python's collector."""
    monkeypatch.setattr(tracing, "_leftovers", tracing._Leftovers())
    monkeypatch.setattr(tracing._leftovers, "share", 1e6)
    gc.enable()
    gc.set_threshold(100_000)

    def alive() -> int:
        return sum(isinstance(x, Graph) for x in gc.get_objects())

    gc.collect()
    before = alive()
    try:
        for k in range(5):
            lucid.compile(lambda x, k=k: (x * k).sum())(lucid.ones(3))
        assert alive() - before < 5
        gc.disable()
        before = alive()
        for k in range(5):  # who has switched it off does this himself
            lucid.compile(lambda x, k=k: (x * k).sum())(lucid.ones(3))
        assert alive() - before >= 5
    finally:
        gc.set_threshold(700, 10, 10)
