"""Whatever tells the compiler what a step reads isn't seen by the program itself."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import inspect
import linecache
import subprocess
import sys
import threading
import traceback
import types

import pytest
from border.harness import NotAsEagerError, X, calls, is_same, observed, same_as_eager

import lucid
from lucid import nn
from lucid.compiler.guards import events
from lucid.ir.graph import Graph


@same_as_eager(changes=False)
def test_lines_in_tracebacks(compile):
    cfg = types.SimpleNamespace(v=1.0)

    def inner(x):
        y = x * cfg.v
        return y * cfg.absent

    def step(x):
        return inner(x)

    with pytest.raises(AttributeError) as caught:
        compile(step)(X)
    frames = traceback.extract_tb(caught.value.__traceback__)
    return [(f.name, f.lineno, f.line) for f in frames if f.filename == __file__][1:]


@same_as_eager(changes=False, traces=2)
def test_what_is_asked_of_an_object_that_is_called(compile):
    class Proxy:
        """Counts what is asked of it, and hands it on."""

        def __init__(self, of):
            vars(self).update(of=of, asked={})

        def __getattr__(self, name):
            self.asked[name] = self.asked.get(name, 0) + 1
            return getattr(self.of, name)

        def __call__(self, x):
            return self.of(x)

    layer = nn.Linear(2, 2, dtype=X.dtype)
    with lucid.no_grad():
        layer.weight.fill_(0.5), layer.bias.fill_(0.25)
    proxy = Proxy(layer)

    def step(x):
        return proxy(x.reshape(-1, 1).expand(-1, 2)) * proxy.weight.sum(), dict(proxy.asked)

    step = compile(step)
    return [step(X) for _ in range(4)]


@same_as_eager(changes=False, traces=2)
def test_what_is_read_of_an_object_that_counts_that(compile):
    class Counting:
        def __init__(self, k, read):
            self.__dict__.update(k=k, read=read)

        def __getattribute__(self, name):
            if name != "__dict__":
                object.__getattribute__(self, "__dict__")["read"].append(name)
            return object.__getattribute__(self, name)

    read = []
    held, given = Counting(2.0, read), Counting(3.0, read)
    table = {"held": held, "list": [held]}

    def step(x, given):
        table["given"] = given
        return x * held.k + table["list"][0].k * given.k, isinstance(held, int), len(read)

    step = compile(step)
    return [(step(X, given)[:2], list(read)) for _ in range(4)]


@same_as_eager
def test_an_object_that_says_that_its_class_is_another(compile):
    class Fake:
        scale = 2.0
        __class__ = property(lambda self: dict)

    fake = Fake()
    step = compile(lambda x, y: x * y.scale if isinstance(fake, dict) else x)
    return calls(step, lambda: setattr(Fake, "scale", 3.0), args=(X, fake))


@same_as_eager
def test_after_a_step_that_raised(compile):
    cfg = types.SimpleNamespace(v=1.0, fails=True)

    @compile
    def step(x):
        if cfg.fails:
            raise ValueError("not yet")
        return x * cfg.v

    with contextlib.suppress(ValueError):
        step(X)
    cfg.fails = False
    return calls(step, lambda: setattr(cfg, "v", 2.0))


@pytest.mark.parametrize("installs_itself", [False, True])
def test_a_debuggers_trace_function_is_called_on(unaudited, installs_itself):
    """Also one that takes the place at each call, as that of coverage.py does."""
    cfg = types.SimpleNamespace(v=1.0)
    lines = []

    def scaled(x):
        return x * cfg.v

    def step(x):
        y = scaled(x)
        return y

    def tracer(frame, event, arg):
        if event == "call" and installs_itself:
            sys.settrace(tracer)
        elif frame.f_code is step.__code__ and event == "line":
            lines.append(frame.f_lineno - step.__code__.co_firstlineno)
        return tracer

    compiled = lucid.compile(step)
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        compiled(X)
        kept = sys.gettrace()
    finally:
        sys.settrace(before)
    assert compiled.stats.traces == 1
    if kept is not tracer or not {1, 2} <= set(lines):
        raise NotAsEagerError(f"lines {lines}, kept: {kept is tracer}")
    cfg.v = 2.0
    if not is_same(observed(compiled(X)), observed(X * 2)):
        raise NotAsEagerError("a value that was read beside a debugger is frozen")


def test_a_debugger_may_ask_for_no_instructions():
    cfg = types.SimpleNamespace(v=1.0)

    def step(x):
        y = x * 2
        return y * cfg.v

    def tracer(frame, event, arg):
        frame.f_trace_opcodes = False
        return tracer

    compiled = lucid.compile(step)
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        compiled(X)
    finally:
        sys.settrace(before)
    cfg.v = 3.0
    if not is_same(observed(compiled(X)), observed(X * 6)):
        raise NotAsEagerError("a value that was read beside a debugger is frozen")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="events come from sys.monitoring there")
def test_a_profiler_in_c_may_take_the_place_meanwhile():
    """As line_profiler does around a function: nothing tells then what the function reads."""

    class SetTrace(ctypes._CFuncPtr):
        _flags_ = ctypes._FUNCFLAG_CDECL | ctypes._FUNCFLAG_PYTHONAPI
        _restype_ = None

    set_trace = SetTrace(("PyEval_SetTrace", ctypes.pythonapi))
    cfg, before = types.SimpleNamespace(v=1.0), sys.gettrace()

    @lucid.compile
    def step(x):
        set_trace(None, None)
        return x * cfg.v

    try:
        found = step(X)
        cfg.v = 2.0
        found = [found, step(X)]
    finally:
        sys.settrace(before)
    assert is_same(observed(found), observed([X * 1.0, X * 2.0]))
    assert "traces what it runs, with sys.settrace" in step.stats.eager_reasons[0]


SETTRACE_IS_REPLACED = """
import sys

own = sys.settrace

def settrace(function):
    print("should not be used here")
    own(function)

sys.settrace = settrace
import lucid

step = lucid.compile(lambda x: x * 2)
step(lucid.ones(2))
print(step.stats.traces)
"""


def test_a_debugger_may_have_put_another_settrace_in_its_place(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(SETTRACE_IS_REPLACED)
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert (found.stdout, found.stderr) == ("1\n", "")


def test_a_profilers_function_is_called_on():
    cfg, seen = types.SimpleNamespace(v=1.0), []

    def step(x):
        return x * cfg.v

    def profiler(frame, event, arg):
        if frame.f_code is step.__code__:
            seen.append(event)

    compiled = lucid.compile(step)
    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        compiled(X)
        kept = sys.getprofile()
    finally:
        sys.setprofile(before)
    if kept is not profiler or "call" not in seen:
        raise NotAsEagerError(f"events {seen}, kept: {kept is profiler}")


def test_another_thread_runs_the_same_functions_meanwhile():
    ours, theirs = types.SimpleNamespace(v=1.0), types.SimpleNamespace(v=2.0)
    stop, errors = threading.Event(), []

    def scaled(x, cfg):
        return x * cfg.v

    @lucid.compile
    def step(x):
        for _ in range(20):
            x = scaled(x, ours)
        return x

    def run():
        while not stop.is_set():
            if float(scaled(X, theirs)[0]) != 2.0:
                errors.append("another result in the other thread")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        step(X)
        step(X)
    finally:
        stop.set()
        thread.join()
    assert errors == []
    traces = step.stats.traces
    theirs.v = 5.0
    step(X)
    if step.stats.traces != traces:
        raise NotAsEagerError("what another thread read became a guard")
    ours.v = 2.0
    if not is_same(observed(step(X)), observed(X * 2.0**20)):
        raise NotAsEagerError("what this thread read is frozen")


@same_as_eager
def test_deep_recursion(compile):
    cfg = types.SimpleNamespace(v=1.0)

    def repeated(x, depth):
        return x if depth == 0 else repeated(x * cfg.v, depth - 1)

    step = compile(lambda x: repeated(x, 150))
    return calls(step, lambda: setattr(cfg, "v", 1.01))


@same_as_eager
def test_frames_and_locals_that_the_step_looks_at(compile):
    cfg = types.SimpleNamespace(v=1.0)

    @compile
    def step(x):
        scale = cfg.v
        name = inspect.currentframe().f_code.co_name
        return x * locals()["scale"] * len(name)

    return calls(step, lambda: setattr(cfg, "v", 2.0))


@same_as_eager
def test_a_generator_that_was_begun_before(compile):
    cfg = types.SimpleNamespace(v=1.0)

    def values():
        while True:
            yield cfg.v

    @compile
    def step(x):
        running = values()
        return x * next(running) + next(running)

    return calls(step, lambda: setattr(cfg, "v", 2.0))


@same_as_eager(changes=False, or_said=True)
def test_what_is_collected(compile):
    """Objects that a step made and let go of are gone; the collector is as it was."""
    made = []

    class Note:
        def __init__(self):
            made.append(1)

        def __del__(self):
            made.append(-1)

    @compile
    def step(x):
        note = Note()
        return x * 2 if note else x

    gc.unfreeze()  # what the interpreter itself may have frozen
    before = gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()
    step(X)
    after = gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()
    gc.collect()
    return [before == after, sum(made)]


@same_as_eager
def test_a_step_within_a_step(compile):
    cfg = types.SimpleNamespace(v=1.0, w=1.0)
    inner = compile(lambda x: x * cfg.v)
    step = compile(lambda x: inner(x) + inner(x * cfg.w))
    return calls(step, lambda: setattr(cfg, "v", 2.0), lambda: setattr(cfg, "w", 3.0))


@same_as_eager
def test_the_classes_and_functions_of_the_user_stay_what_they_are(compile):
    class Scaled(nn.Module):
        gain = 1.0

        def forward(self, x):
            return x * self.gain

    net = Scaled()
    code, names = Scaled.forward.__code__, set(vars(Scaled))
    step = compile(net)
    results = calls(step, lambda: setattr(Scaled, "gain", 2.0))
    assert Scaled.forward.__code__ is code
    assert set(vars(Scaled)) == names
    assert type(net) is Scaled
    return results


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="events come from sys.monitoring there")
def test_ops_are_recorded_without_events(monkeypatch):
    """Else each of the library's instructions is slowed down: a trace takes twice as long."""
    tracers = []
    append = Graph.append_typed

    def noting(graph, *args):
        tracers.append(sys.gettrace())
        return append(graph, *args)

    monkeypatch.setattr(Graph, "append_typed", noting)
    cfg = types.SimpleNamespace(v=1.0)
    step = lucid.compile(lambda x: (x * cfg.v).exp() + 1.0)
    assert all(is_same(observed(a), observed(b)) for a, b in [(step(X), X.exp() + 1.0)])
    assert tracers and not any(tracers)
    cfg.v = 2.0
    assert is_same(observed(step(X)), observed((X * 2.0).exp() + 1.0))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="events come from sys.settrace there")
def test_a_trace_is_told_once_that_code_starts(monkeypatch):
    """Else each call of the library's calls Python, to say that nobody follows it."""
    started = []
    tell = events._Monitor._started

    def counting(monitor, code, offset):
        started.append(code)
        return tell(monitor, code, offset)

    monkeypatch.setattr(events._Monitor, "_started", counting)
    cfg = types.SimpleNamespace(v=1.0)

    def scaled(x):
        return x * cfg.v + 1.0

    def whole(x):
        for _ in range(20):
            x = scaled(x)
        return x

    step = lucid.compile(whole)
    expected = observed(whole(X))
    assert is_same(observed(step(X)), expected)
    assert scaled.__code__ in started and len(started) < 2 * len(set(started))
    cfg.v = 0.5  # which the next trace is told of
    assert is_same(observed(step(X)), observed(whole(X)))
    assert step.stats.traces == 2


@pytest.mark.skipif(sys.version_info < (3, 12), reason="events come from sys.settrace there")
def test_an_interrupt_leaves_no_tool_of_sys_monitoring_taken():
    """Wherever it comes while a trace takes the tool or gives it back."""
    cfg = types.SimpleNamespace(v=1.0)
    codes = {code for code in vars(events._Monitor).values() if inspect.isfunction(code)}
    codes = {code.__code__ for code in codes} | {inspect.unwrap(events._monitored).__code__}
    codes -= {events._Monitor.__init__.__code__}
    places, places_of_ours = 0, (3, 4, 5)

    class Interrupt(BaseException):
        pass

    def interrupted(number):
        """Whether there is a line of this number to be interrupted at."""
        seen = [0]

        def trace(frame, event, value):
            if frame.f_code not in codes:
                return None
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            if event == "line" and "(" in line:  # interrupts come with calls
                seen[0] += 1
                if seen[0] == number:
                    raise Interrupt
            return trace

        step = lucid.compile(lambda x: x * cfg.v)
        sys.settrace(trace)
        try:
            step(X)
        except Interrupt:
            return True
        finally:
            sys.settrace(None)
        return False

    while interrupted(places + 1):
        places += 1
        assert [sys.monitoring.get_tool(place) for place in places_of_ours] == [None] * 3
    assert places > 20
    step = lucid.compile(lambda x: x * cfg.v)
    step(X)
    cfg.v = 2.0
    assert is_same(observed(step(X)), observed(X * 2.0))
    assert step.stats.traces == 2
