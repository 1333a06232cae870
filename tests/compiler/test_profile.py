"""`step.profile(...)`: which kernels a step has, what they do, and where they come from."""

from __future__ import annotations

import inspect
import itertools
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from custom_functions import numbers

import lucid
from lucid import nn
from lucid.autograd import Function
from lucid.codegen.llvm.target import host_target
from lucid.codegen.program.emit import emit_program
from lucid.compiler.reports import kernels, profiling


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.array = x.numpy().copy()
        return lucid.from_numpy(ctx.array**3)

    @staticmethod
    def backward(ctx, grad):
        return lucid.from_numpy(3 * ctx.array**2 * grad.numpy())


def training(function: Any = lucid.relu) -> tuple[Any, Any]:
    """A model, and a step that trains it."""
    lucid.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
    optimizer = lucid.optim.Adam(model.parameters(), lr=0.1)

    @lucid.compile
    def step(x):
        optimizer.zero_grad()
        loss = model[1](function(model[0](x))).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def line_of(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def test_every_kernel_of_the_step_is_in_it() -> None:
    _, step = training()
    profile = step.profile(lucid.ones(5, 8), calls=3)
    executable = step._programs.latest.executable
    assert len(profile.rows) == executable.kernel_count
    assert len({row.name for row in profile.rows}) == executable.function_count
    assert {"contract", "map", "reduce"} <= {row.kind for row in profile.rows}
    assert {"matmul", "sqrt", "where"} <= {op for row in profile.rows for op in row.ops}
    assert (profile.calls, profile.name) == (3, "step")
    assert all(row.seconds >= 0 for row in profile.rows)
    assert 0 < profile.native_seconds <= profile.seconds
    assert 0 <= profile.python_seconds < profile.seconds
    assert profile.host_seconds == {}


def test_calls_of_python_are_there_by_name() -> None:
    _, step = training(Cube.apply)
    profile = step.profile(lucid.ones(5, 8), calls=2)
    hosts = [row for row in profile.rows if row.kind == "host"]
    assert [row.name for row in hosts] == ["Cube", "Cube.backward"]
    assert [row.bytes for row in hosts] == [2 * 5 * 16 * 4] * 2
    assert list(profile.host_seconds) == ["Cube", "Cube.backward"]
    assert profile.host_seconds["Cube"] == hosts[0].seconds > 0
    assert "\ncalls of Python, µs: Cube " in str(profile)


def test_each_kernel_says_which_lines_it_computes() -> None:
    def body(x, w):
        y = lucid.tanh(x)
        order = (y + 1).argsort()
        return y @ w, order

    step = lucid.compile(body)
    profile = step.profile(lucid.ones(3, 4), lucid.ones(4, 5), calls=1)
    found = {row.kind: row for row in profile.rows}
    for kind, text in (("map", "tanh"), ("contract", "y @ w"), ("sort", "argsort")):
        place = next(p for p in found[kind].lines if p.line == line_of(body, text))
        assert place.file == __file__ and found[kind].gradient_lines == ()
    assert found["contract"].place == f"test_profile.py:{line_of(body, 'y @ w')}"
    assert found["contract"].ops == ("matmul",)


def test_gradients_are_said_to_be_gradients_of_lines() -> None:
    def body(x):
        lucid.sin(x).sum().backward()
        return x.grad

    profile = lucid.compile(body).profile(lucid.ones(3).requires_grad_(), calls=1)
    line = line_of(body, "sin")
    places = [row.place for row in profile.rows if "cos" in row.ops]
    assert places and all(f"grad of test_profile.py:{line}" in place for place in places)


def test_bytes_and_operations_are_those_of_the_kernel() -> None:
    @lucid.compile
    def step(x, w, index):
        return x @ w, x.take_along_dim(index, 1), x.exp().sum(1), x.argsort(1)

    args = lucid.ones(4, 8), lucid.ones(8, 16), lucid.zeros(4, 2, dtype=lucid.int64)
    rows = {row.ops: row for row in step.profile(*args, calls=1).rows}
    contract, reduced = rows["matmul",], rows["exp", "sum"]
    assert (contract.flops, contract.bytes) == (2 * 4 * 8 * 16, 4 * (32 + 128 + 64))
    assert (reduced.flops, reduced.bytes) == (2 * 32, 4 * (32 + 4))
    (sort,) = (row for row in rows.values() if row.kind == "sort")
    assert (sort.flops, sort.bytes) == (0, 32 * 4 + 32 * 8)
    gathers = [row for row in rows.values() if "gather" in row.ops and row.kind == "map"]
    assert [row.bytes for row in gathers] == [8 * 8 + 8 * 4 + 8 * 4]
    for row in rows.values():
        assert row.gigabytes_per_second * row.seconds == pytest.approx(row.bytes * 1e-9)
        assert row.gigaflops_per_second * row.seconds == pytest.approx(row.flops * 1e-9)


def test_the_calls_are_real_ones() -> None:
    x = lucid.ones(5, 8)
    model, step = training()
    step.profile(x, calls=3)
    other, plain = training()
    for _ in range(2 * 3 + 1):
        plain(x)
    assert numbers(list(model.parameters())) == numbers(list(other.parameters()))
    assert step.stats.traces == 1 and step.stats.calls == 7


def test_keyword_arguments_are_passed_on() -> None:
    @lucid.compile
    def step(x, *, scale):
        return x * scale

    assert len(step.profile(lucid.ones(3), scale=2.0, calls=1).rows) == 1


def test_the_table_is_aligned_and_has_the_slowest_kernel_first() -> None:
    _, step = training(Cube.apply)
    profile = step.profile(lucid.ones(5, 8), calls=2)
    head, memory, hosts, empty, titles, *rows = str(profile).split("\n")
    assert head.startswith("step: ") and " µs per call, median of 2: " in head
    assert memory.startswith("memory: arguments 160 B, state ")
    assert hosts.startswith("calls of Python, µs: ") and empty == ""
    assert titles.split() == (
        ["µs", "%", "calls", "kind", "name", "parts", "computes", "of", "kB", "GB/s", "GF/s"]
    )
    times = [float(row.split()[0]) for row in rows]
    assert len(rows) == len({row.name for row in profile.rows})
    assert times == sorted(times, reverse=True)
    column = titles.index("kind")
    assert {row[column - 2 : column] for row in rows} == {"  "}
    assert all(row[column:].split()[0] in ("map", "reduce", "contract", "host") for row in rows)


def test_totals_add_up_to_the_native_time_however_they_are_named() -> None:
    _, step = training()
    profile = step.profile(lucid.ones(5, 8), calls=3)
    native = sum(row.seconds for row in profile.rows)
    for by in kernels.BY:
        totals = profile.totals(by)
        assert sum(total.seconds for total in totals) == pytest.approx(native)
        assert [x.seconds for x in totals] == sorted((x.seconds for x in totals), reverse=True)
        assert totals[0].name in profile.table(by, 1)
        assert f"… and {len(totals) - 1} more: " in profile.table(by, 1)
    assert {x.name for x in profile.totals("kernel")} == {row.name for row in profile.rows}
    assert len(profile.totals("call")) == len(profile.rows)
    assert {"model.0", "model.1", "optimizer.step"} <= {x.name for x in profile.totals("module")}
    assert {"matmul", "sqrt", "where"} <= {x.name for x in profile.totals("op")}
    line = line_of(training, "loss = model")
    names = {x.name for x in profile.totals("line")}
    assert {f"test_profile.py:{line}", f"grad of test_profile.py:{line}"} <= names
    with pytest.raises(lucid.OptionError, match="totals are by kernel, line, module, op, call"):
        profile.totals("file")
    with pytest.raises(lucid.OptionError, match="not 'file'"):
        step.profile(lucid.ones(5, 8), by="file")


def test_a_kernel_of_two_lines_is_shared_out_by_their_work() -> None:
    def body(x, w):
        y = x @ w
        return y + 1

    profile = lucid.compile(body).profile(lucid.ones(64, 64), lucid.ones(64, 64), calls=1)
    (row,) = profile.rows
    product, added = profile.totals("line")
    assert product.name.endswith(str(line_of(body, "x @ w")))
    assert product.seconds + added.seconds == pytest.approx(row.seconds)
    assert product.seconds > 10 * added.seconds > 0


def test_a_call_is_kernels_and_what_is_around_them() -> None:
    _, step = training()
    step(lucid.ones(5, 8))
    profile = step.profile(lucid.ones(5, 8), calls=3)
    assert profile.seconds == pytest.approx(profile.native_seconds + profile.python_seconds)
    assert profile.memory["arguments"] == 160 and profile.memory["state"] > 4 * (8 * 16 + 16)


def test_a_profile_is_written_for_perfetto(tmp_path: Path) -> None:
    _, step = training()
    profile = step.profile(lucid.ones(5, 8), calls=3)
    profile.export_chrome_trace(tmp_path / "step.json")
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    whole, *kernels = events
    assert whole["name"] == "step" and {x["ph"] for x in events} == {"X"}
    assert [x["name"] for x in kernels] == [row.name for row in profile.rows]
    for one, other in itertools.pairwise(kernels):
        assert one["ts"] + one["dur"] == pytest.approx(other["ts"], abs=0.01)
    assert all(x["ts"] + x["dur"] <= whole["dur"] + 0.01 for x in kernels)


def test_work_that_threads_share_is_measured_as_a_whole() -> None:
    @lucid.compile
    def step(x):
        return (x.exp() + x.sin()).tanh()

    profile = step.profile(lucid.ones(1 << 18), calls=2)
    assert [row.parts > 1 for row in profile.rows] == [True]
    assert "  parts  " in str(profile)


def test_other_threads_and_calls_inside_of_calls_are_not_measured() -> None:
    class Again(Function):
        @staticmethod
        def forward(ctx, x, depth):
            if depth.item() > 0:
                seen.append(depth.item())
                other = threading.Thread(target=lambda: step(x.detach() * 1, depth * 0))
                other.start()
                other.join(30)
                step(x.detach() * 1, depth - 1)
            return lucid.from_numpy(x.numpy() + 1)

    seen: list[float] = []
    step = lucid.compile(lambda x, depth: Again.apply(x, depth))
    step(lucid.ones(2), lucid.tensor(0))
    profile = step.profile(lucid.ones(2), lucid.tensor(2), calls=2)
    assert seen == [2, 1] * (2 * 2 + 1) and [row.name for row in profile.rows] == ["Again"]
    assert profile.seconds >= profile.rows[0].seconds
    assert profile.python_seconds >= 0


def test_a_step_that_fails_while_it_is_measured_runs_on_as_before() -> None:
    class Picky(Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(1)
            if len(seen) == 4:
                raise KeyError("enough")
            return lucid.from_numpy(x.numpy() * 2)

    seen: list[int] = []
    step = lucid.compile(lambda x: Picky.apply(x))
    with pytest.raises(KeyError, match="enough"):
        step.profile(lucid.ones(2))
    native = step._programs.latest.executable._step
    assert numbers(step(lucid.ones(2))) == [2.0, 2.0]
    assert type(native).__name__ == "CFunctionType"


def test_an_index_out_of_range_is_the_same_error() -> None:
    step = lucid.compile(lambda x, i: x[i])
    with pytest.raises(lucid.IndexOutOfRangeError, match=r"index 7 is out of bounds"):
        step.profile(lucid.ones(3), lucid.tensor([7]))


def test_what_is_not_native_has_no_profile() -> None:
    body = lambda x: x * 2  # noqa: E731
    with pytest.raises(lucid.LucidError) as caught:
        lucid.compile(body, mode="eager").profile(lucid.ones(2))
    assert str(caught.value) == "profile: <lambda> runs op by op here, so nothing is native"
    step = lucid.compile(body)
    with (
        lucid.compiler.set_stance("force_eager"),
        pytest.raises(lucid.LucidError, match="op by op"),
    ):
        step.profile(lucid.ones(2))
    with pytest.raises(lucid.LucidError) as caught:
        step.profile(lucid.ones(2), calls=0)
    assert str(caught.value) == "profile: at least one call is measured, not calls=0"


def test_a_step_with_another_program_at_each_call_has_no_profile() -> None:
    state = {"name": ""}
    step = lucid.compile(lambda x: x * len(state["name"]))

    def call(x):
        state["name"] += "i"
        return step(x)

    with pytest.raises(lucid.LucidError) as caught:
        profiling.profile("step", lambda: call(lucid.ones(2)), lambda: step._programs.latest, 2)
    assert str(caught.value) == (
        "profile: the calls of step run different programs, or none\n"
        "hint: step.stats.retrace_reasons and step.stats.eager_reasons say why"
    )


def test_only_a_timed_step_reads_the_clock() -> None:
    _, step = training()
    step(lucid.ones(5, 8))
    executable = step._programs.latest.executable
    assert "counter()" not in executable.llvm
    timed = emit_program(executable.lower(), host_target(), timed=True)
    body = timed.module.functions["step"]
    assert body.count("counter()") == executable.kernel_count + 1
    assert len(timed.functions) == executable.function_count


def test_a_compiled_module_has_one_too() -> None:
    model = lucid.compile(nn.Linear(8, 4))
    assert [row.kind for row in model.profile(lucid.ones(2, 8), calls=1).rows] == ["contract"]
    assert np.isfinite(model.profile(lucid.ones(2, 8), calls=1).seconds)
