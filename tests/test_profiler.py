"""`lucid.profiler`: PyTorch's names for what ran within a block."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

import lucid
from lucid import nn
from lucid.compiler import Compiled
from lucid.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)
from lucid.tensor import core


def test_compiled_steps_are_noted_by_kernel_and_eager_ops_one_by_one() -> None:
    step = lucid.compile(lambda x: (x @ x).exp())
    x = lucid.ones(40, 40)
    step(x)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
        step(x)
        y = x * 2
        step(y)
    step(x)
    events = prof.events()
    kinds = [(event.category, event.name) for event in events]
    assert kinds == [
        ("profiler", "<lambda>: compiled again, with clocks"),
        ("step", "<lambda>"), ("kernel", "k0: matmul, exp"), ("op", "mul"),
        ("step", "<lambda>"), ("kernel", "k0: matmul, exp"),
    ]  # fmt: skip
    whole, kernel, op = events[1:4]
    assert whole.start <= kernel.start
    assert kernel.start + kernel.seconds <= whole.start + whole.seconds + 1e-9
    assert kernel.flops >= 2 * 40**3 and kernel.place.startswith("test_profiler.py:")
    assert op.shapes[0] == (40, 40) and op.place.startswith("test_profiler.py:")
    assert step.stats.traces == 1 and step.stats.calls == 4


def test_results_are_the_same_and_all_is_put_back() -> None:
    before = Compiled.__call__, core._evaluate, core.natively
    layer = nn.Linear(5, 3)
    step = lucid.compile(lambda x: layer(x).tanh().sum())
    x = lucid.randn(4, 5)
    expected = step(x).item()
    native = step._programs.latest.executable._step
    with profile() as prof:
        assert step(x).item() == expected
        with pytest.raises(lucid.ArgumentError, match="another profiler is running"):
            profile().start()
    assert (Compiled.__call__, core._evaluate, core.natively) == before
    assert step._programs.latest.executable._step is native and prof.events()
    with pytest.raises(KeyError), profile():
        raise KeyError
    assert (Compiled.__call__, core._evaluate, core.natively) == before


def test_a_step_that_is_compiled_in_the_block_has_kernels_from_then_on() -> None:
    step = lucid.compile(lambda x: x.sin() * 3)
    with profile() as prof:
        for size in (3, 3, 4, 4):
            step(lucid.ones(size))
    kinds = [event.category for event in prof.events() if event.category != "op"]
    assert kinds == (["step", "profiler", "step", "kernel", "step", "profiler", "step", "kernel"])


def test_averages_tell_own_time_from_total() -> None:
    step = lucid.compile(lambda x: x.exp().sum(0))
    step(lucid.ones(300, 300))
    with profile() as prof:
        for _ in range(3):
            step(lucid.ones(300, 300))
        with record_function("mine"):
            lucid.ones(2) + 1
    averages = {row.key: row for row in prof.key_averages()}
    whole = averages["<lambda>"]
    kernels = [row for name, row in averages.items() if name.startswith("k")]
    inside = sum(row.cpu_time_total for row in kernels)
    assert whole.count == 3 == kernels[0].count
    assert whole.self_cpu_time_total == pytest.approx(whole.cpu_time_total - inside, rel=1e-3)
    assert whole.cpu_time == pytest.approx(whole.cpu_time_total / 3)
    assert averages["mine"].cpu_time_total >= averages["add"].cpu_time_total > 0
    table = prof.key_averages().table(sort_by="cpu_time_total", row_limit=1)
    titles, row = table.splitlines()
    assert titles.split("  ")[0] == "name" and row.startswith("<lambda>")
    assert len(prof.key_averages().table(row_limit=-1).splitlines()) == len(averages) + 1
    with pytest.raises(lucid.OptionError, match="not 'cuda_time'"):
        prof.key_averages().table(sort_by="cuda_time")
    total = prof.key_averages().total_average()
    assert total.self_cpu_time_total == pytest.approx(
        sum(row.self_cpu_time_total for row in averages.values())
    )


def test_shapes_and_lines_tell_ops_apart() -> None:
    with profile(record_shapes=True) as prof:
        for size in (2, 2, 3):
            lucid.ones(size).exp()
    counts = [x.count for x in prof.key_averages(group_by_input_shape=True) if x.key == "exp"]
    assert sorted(counts) == [1, 2]
    (row,) = [x for x in prof.key_averages(group_by_stack_n=1) if x.key.startswith("exp")]
    assert row.count == 3 and "test_profiler.py:" in row.key


def test_a_trace_is_written(tmp_path: Path) -> None:
    with profile(on_trace_ready=tensorboard_trace_handler(str(tmp_path / "log"))) as prof:
        lucid.ones(3).exp()
    prof.export_chrome_trace(tmp_path / "trace.json")
    (written,) = (tmp_path / "log").iterdir()
    for path in (written, tmp_path / "trace.json"):
        events = json.loads(path.read_text())["traceEvents"]
        assert "exp" in [event["name"] for event in events]
        assert min(event["ts"] for event in events) == 0
    with pytest.raises(lucid.OptionError, match="plain JSON"):
        tensorboard_trace_handler(str(tmp_path), use_gzip=True)


def test_a_schedule_chooses_the_steps() -> None:
    choose = schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=1)
    assert [choose(step).value for step in range(7)] == [0, 0, 1, 2, 3, 0, 0]
    assert choose(4) is ProfilerAction.RECORD_AND_SAVE
    with pytest.raises(lucid.ArgumentError, match="active is at least 1"):
        schedule(wait=1, warmup=1, active=0)
    seen: list[list[str]] = []
    with profile(
        schedule=schedule(wait=1, warmup=0, active=2),
        on_trace_ready=lambda prof: seen.append([x.name for x in prof.events()]),
    ) as prof:
        x = lucid.ones(3)
        for op in ("exp", "sin", "cos", "tanh", "sqrt"):
            getattr(x, op)()
            prof.step()
    assert seen == [["sin", "cos"], ["sqrt"]]


def test_names_and_ops_in_a_trace_and_other_threads_disturb_nothing() -> None:
    @lucid.compile
    def step(x):
        with record_function("inside"):
            return x.exp() + 1

    @record_function("named")
    def plain() -> None:
        lucid.ones(2).sin()

    with profile() as prof:
        step(lucid.ones(3))
        other = threading.Thread(target=lambda: step(lucid.ones(3)))
        other.start()
        other.join()
        plain()
    names = [event.name for event in prof.events()]
    assert names.count("step") == 2 and "named" in names and "inside" not in names
    assert step.stats.traces == 1 and not step.stats.eager_reasons


def test_functions_and_rules_are_ops() -> None:
    x = lucid.randn(3, 5, requires_grad=True)
    (lucid.nn.functional.softmax(x, 1) * 2.0).sum().backward()
    x.grad = None
    with profile(record_shapes=True) as prof:
        (lucid.nn.functional.softmax(x, 1) * 2.0).sum().backward()
    names = [event.name for event in prof.events()]
    assert names[:3] == ["Softmax", "mul", "sum"]
    assert names[-2:] == ["MulBackward", "Softmax.backward"]
    (first,) = [event for event in prof.events() if event.name == "Softmax"]
    assert first.shapes == ((3, 5),) and first.place.startswith("test_profiler.py")
