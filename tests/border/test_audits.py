"""A net below all guards: now and then a call is traced again, and what differs is reported.

The values of these programs are where no guard looks: in C's memory, in objects without a Python
state. Each is seen, refused, run op by op with a reason, or reported; none stays silent.
"""

from __future__ import annotations

import csv
import ctypes
import decimal
import gc
import logging
import sqlite3
import time
import types
import warnings
import weakref
import xml.etree.ElementTree as ElementTree
import zlib

import numpy as np
import pytest
from border.harness import (
    NotAsEagerError,
    X,
    is_honest,
    is_same,
    names_users_line,
    observed,
    same_as_eager,
)

import lucid
from lucid import nn
from lucid.compiler.programs.audits import difference
from lucid.ir import parse
from lucid.ir.errors import LucidError
from lucid.ir.types import TensorType, f64

CALLS = 30  # of which an early one is audited


def a_ctypes_array():
    data = (ctypes.c_double * 1)(0.0)
    return lambda: data[0], lambda i: data.__setitem__(0, float(i))


def a_ctypes_pointer():
    value = ctypes.c_double(0.0)
    address = ctypes.addressof(value)
    return (
        lambda: ctypes.c_double.from_address(address).value,
        lambda i: setattr(value, "value", float(i)),
    )


def a_field_of_a_struct():
    class Options(ctypes.Structure):
        _fields_ = (("lr", ctypes.c_double),)

    options = Options(0.0)
    return lambda: options.lr, lambda i: setattr(options, "lr", float(i))


def memory_by_its_address():
    data = np.zeros(1)
    address = data.ctypes.data
    return (
        lambda: float(np.frombuffer(ctypes.string_at(address, 8))[0]),
        lambda i: data.__setitem__(0, float(i)),
    )


def a_database():
    base = sqlite3.connect(":memory:")
    base.execute("create table options (lr real)")
    base.execute("insert into options values (0.0)")

    def read():
        return base.execute("select lr from options").fetchone()[0]

    weakref.finalize(read, base.close)  # one that dies open is a warning
    return read, lambda i: base.execute("update options set lr = ?", (float(i),))


def an_xml_element():
    root = ElementTree.fromstring("<options lr='0'/>")
    return lambda: float(root.get("lr")), lambda i: root.set("lr", str(i))


def a_decimal_context():
    return (
        lambda: float(decimal.Decimal(1) / decimal.Decimal(7)) * decimal.getcontext().prec,
        lambda i: setattr(decimal.getcontext(), "prec", 5 + i),
    )


def a_compressor():
    packer = zlib.compressobj()
    return (
        lambda: float(len(packer.copy().flush())),
        lambda i: packer.compress(bytes(range(i, i + 7)) * i),
    )


def the_collector():
    return lambda: float(gc.get_threshold()[0]), lambda i: gc.set_threshold(700 + i)


def the_closure_of_a_c_callback():
    cell = types.SimpleNamespace(v=0.0)
    kind = ctypes.CFUNCTYPE(ctypes.c_double)
    read = kind(lambda: cell.v)
    return lambda: read(), lambda i: setattr(cell, "v", float(i))


def the_frame_of_a_generator():
    def values():
        scale = 0.0
        while True:
            scale = (yield scale) or scale

    running = values()
    next(running)
    return (
        lambda: running.gi_frame.f_locals["scale"],
        lambda i: running.send(float(i)),
    )


PLANTED = [
    a_ctypes_array,
    a_ctypes_pointer,
    a_field_of_a_struct,
    memory_by_its_address,
    a_database,
    an_xml_element,
    a_decimal_context,
    a_compressor,
    the_collector,
    the_closure_of_a_c_callback,
    the_frame_of_a_generator,
]


@pytest.fixture(autouse=True)
def settings_as_they_were():
    threshold, context = gc.get_threshold(), decimal.getcontext().copy()
    yield
    gc.set_threshold(*threshold)
    decimal.setcontext(context)


def reports(caught, caplog, program):
    """The warnings and log lines that name a line of the program."""
    texts = [str(w.message) for w in caught] + [r.getMessage() for r in caplog.records]
    return [text for text in texts if names_users_line(text, program)]


def never_silent(plant, caplog, calls, **options):
    """Move a planted value before each call; the index of the first call that was not silent.

    None when all calls were as in eager mode. Raises `NotAsEagerError` when none was reported.
    """
    read, change = plant()

    def step(x):
        return x * read()

    compiled = lucid.compile(step, **options)
    differs = said = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(calls):
            change(i + 1)
            try:
                found = observed(compiled(X))
            except LucidError as error:
                if not is_honest(error, never_silent):
                    raise NotAsEagerError(f"{error}") from error
                return i
            is_right = is_same(found, observed(step(X)))
            if said is not None and not is_right:
                raise NotAsEagerError(
                    f"call {i} is wrong again, after what was said at call {said}"
                )
            if not is_right:
                differs = i
            if reports(caught, caplog, never_silent) or any(compiled.stats.eager_reasons):
                said = i if said is None else said
    if differs is not None and said is None:
        raise NotAsEagerError(f"call {differs} had an old value, and nothing was said")
    return said


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_value_that_guards_cannot_know_is_never_silent(plant, caplog):
    never_silent(plant, caplog, CALLS)


def test_audits_can_be_asked_for(caplog):
    try:
        never_silent(a_ctypes_pointer, caplog, CALLS, audit=True)
    except LucidError as error:
        raise NotAsEagerError(str(error)) from error


def test_audits_can_be_switched_off():
    """Then a healthy step is traced once, and nothing is said."""
    try:
        step = lucid.compile(lambda x: x * 2, audit=False)
    except LucidError as error:
        raise NotAsEagerError(str(error)) from error
    results = [observed(step(X)) for _ in range(100)]
    assert is_same(results[-1], observed(X * 2))
    assert step.stats.traces == 1
    assert step.stats.audits == 0


def test_a_late_change_is_found_too(caplog):
    """Audits go on: a value that moves after many calls is reported some time later."""
    read, change = a_ctypes_pointer()
    change(1)

    def step(x):
        return x * read()

    compiled = lucid.compile(step)
    until = time.monotonic() + 30.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for _ in range(200):
                compiled(X)
            change(2)
            while time.monotonic() < until:
                if is_same(observed(compiled(X)), observed(step(X))):
                    return
                if reports(caught, caplog, test_a_late_change_is_found_too):
                    return
        except LucidError as error:
            if is_honest(error, test_a_late_change_is_found_too):
                return
            raise NotAsEagerError(str(error)) from error
    raise NotAsEagerError("the old value for half a minute, and nothing was said")


def test_audits_are_counted():
    step = lucid.compile(lambda x: x * 2)
    for _ in range(200):
        step(X)
    counts = [getattr(step.stats, name) for name in dir(step.stats) if "audit" in name]
    if not any(isinstance(count, int) and count > 0 for count in counts):
        raise NotAsEagerError(f"no counter of audits in {step.stats}")


def test_where_a_module_is_called_is_no_difference():
    net = lucid.compile(nn.Sequential(nn.Linear(3, 4), nn.Tanh()))
    for _ in range(5):
        net(lucid.ones(2, 3))
    for _ in range(CALLS):
        net(lucid.ones(2, 3))
    assert net.stats.audits == 1 and not net.stats.eager_reasons


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_a_step_says_is_no_difference(capsys, tmp_path):
    """Each trace makes functions of its own that log, warn and write."""
    log = logging.getLogger("a trainer")
    log.setLevel(logging.INFO)
    with open(tmp_path / "losses.csv", "w") as file:
        writer = csv.writer(file)

        @lucid.compile
        def step(x):
            loss = x.sum()
            log.info("loss %.3f", loss.item())
            logging.info("loss %.3f", loss.item())
            warnings.warn(f"loss {loss.item():.3f}", stacklevel=1)
            print(f"loss {loss.item():.3f}")
            writer.writerow([loss.item()])
            return loss

        for i in range(CALLS):
            step(X * i)
    assert step.stats.audits >= 1 and not step.stats.eager_reasons


def test_what_callers_call_a_module_and_its_result_is_no_difference():
    net = lucid.compile(nn.Sequential(nn.Linear(3, 4), nn.Tanh()))

    def validate(model):
        predicted = model(lucid.ones(2, 3))
        return predicted

    for _ in range(5):
        hidden = net(lucid.ones(2, 3))
    for _ in range(CALLS):
        validate(net)
    assert net.stats.audits == 1 and not net.stats.eager_reasons, hidden.shape


def test_a_level_that_is_set_later_is_no_difference(caplog, monkeypatch):
    monkeypatch.setattr("lucid.compiler.programs.audits.SHARE", 1e9)
    monkeypatch.setattr("lucid.compiler.programs.audits.LOOK", 0.0)
    log = logging.getLogger("another trainer")
    step = lucid.compile(lambda x: log.info("sum %s", x.sum()) or x * 2)
    for level in (logging.INFO, logging.WARNING):
        log.setLevel(level)
        for _ in range(CALLS):
            step(X)
    said = [r.name for r in caplog.records if r.name == log.name]
    assert len(said) == CALLS and step.stats.audits >= 1 and not step.stats.eager_reasons


def test_lists_that_come_back_after_something_else_are_no_difference():
    """What a list's numbers were when they were first seen to move is another list by then."""
    settings = types.SimpleNamespace(values=None)

    @lucid.compile
    def step(x):
        try:
            return x * lucid.tensor(settings.values).sum()
        except (TypeError, ValueError):
            return x

    no_tensor = [[1.0], [1.0, 2.0]]
    for values in ([1.0, 2.0], [3.0, 4.0], "a", [], no_tensor, [1.0, 2.0], [5.0, 6.0]):
        for _ in range(2):
            settings.values = values if values == "a" else values[:]
            is_bad = values == "a" or values == no_tensor
            assert step(X).tolist() == (X * (1.0 if is_bad else float(np.sum(values)))).tolist()
    assert step.stats.audits and not step.stats.eager_reasons


def test_a_list_that_is_empty_by_then_is_no_difference():
    found = [1.0, 2.0]

    @lucid.compile
    def step(x):
        rest = found[1:]
        found.append(x.sum().item())
        found.clear()
        return list(rest)

    for i in range(CALLS):
        found += [0.5, 1.5] * (i % 7 == 0)
        expected = found[1:]
        assert step(X) == expected
    assert not step.stats.eager_reasons


def test_the_end_of_a_schedule_is_its_own_error_and_no_difference(monkeypatch):
    monkeypatch.setattr("lucid.compiler.programs.audits.FIRST", 5)
    opt = lucid.optim.SGD([nn.Parameter(lucid.ones(2))], lr=0.1)
    schedule = lucid.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=5)

    @lucid.compile
    def step():
        opt.step()
        schedule.step()
        return schedule.get_last_lr()[0]

    for _ in range(5):
        step()
    with pytest.raises(lucid.OptionError, match="step 6, where total_steps is 5"):
        step()
    assert not step.stats.eager_reasons and schedule.last_epoch == 5


def test_audits_are_no_traces_of_their_own():
    """`stats.traces` stays 1 in a healthy loop, however often it was audited."""
    net = nn.Linear(3, 3)
    step = lucid.compile(lambda x: net(x).detach())
    for _ in range(500):
        step(X)
    assert step.stats.audits > 0
    assert step.stats.traces == 1
    assert step.stats.retrace_reasons == []


@same_as_eager(changes=False, traces=2)
def test_audits_leave_nothing_behind(compile):
    """What a step does is done once a call: counters, logs, random numbers, weights, hooks."""
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3, affine=False))
    optimizer = lucid.optim.SGD(net.parameters(), lr=1e-4)
    run = types.SimpleNamespace(count=0)
    losses, x = [], lucid.randn(4, 3)

    @compile
    def step(x):
        optimizer.zero_grad()
        loss = net(x + 0.1 * lucid.randn(4, 3)).square().mean()
        loss.backward()
        optimizer.step()
        run.count += 1
        losses.append(loss.detach())
        return loss.detach()

    results = [step(x) for _ in range(50)]
    return [*results, run.count, losses, net[0].weight, net[2].num_batches_tracked, lucid.rand(2)]


def test_an_exception_that_comes_from_elsewhere_is_raised_and_is_no_difference(monkeypatch):
    """A signal's handler raises while a call is audited; the trace that follows is as it was."""
    from lucid.compiler.recording import trace as tracing

    step, trace = lucid.compile(lambda x: x * 2), tracing.trace
    for _ in range(10):
        step(X)
    raising = [TimeoutError("late")]

    def interrupted(*args):
        if raising:
            raise raising.pop()
        return trace(*args)

    monkeypatch.setattr(tracing, "trace", interrupted)
    with pytest.raises(TimeoutError, match="late"):
        step(X)
    assert is_same(observed(step(X)), observed(X * 2))
    assert step.stats.audits == 1 and not step.stats.eager_reasons and step.stats.traces == 1


def test_an_audit_of_a_path_that_its_call_does_not_take_says_nothing():
    """Whether the step's own handler runs follows from the values, whatever an exit is told."""

    def body(x):
        try:
            return f"{int(x.sum()):c}"
        except OverflowError as error:
            return str(error)

    step = lucid.compile(body)
    for i in range(CALLS):
        for x in (lucid.tensor([i - 30.0]), lucid.tensor([65.0 + i])):
            assert step(x) == body(x)
    assert step.stats.audits and not step.stats.eager_reasons


def test_an_audit_does_not_compare_numbers_that_nothing_is_computed_of():
    """That they move another program may have found out, which this one needn't know."""

    def found(op, is_live):
        graph = parse(f"graph f(%x: f32[2]) {{ %y = {op} %x, %x return %y }}")
        if is_live:
            graph.add_input(TensorType(f64, ()), "live", "n", "self.n")
            graph.inputs.reverse()
        return graph

    was = types.SimpleNamespace(outline=[])
    for is_live in (True, False):
        was.recorded = found("add", is_live)
        assert difference(was, found("add", not is_live), []) is None
        assert "mul %x, %x" in difference(was, found("mul", not is_live), [])
