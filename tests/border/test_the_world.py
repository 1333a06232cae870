"""Clocks, entropy, files, threads: what lies outside of the program is read anew, or refused.

Such values can't be compared between two runs. The programs say what holds of them in eager mode.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import datetime
import decimal
import gc
import io
import itertools
import multiprocessing
import os
import pathlib
import queue
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import warnings

import numpy as np
import pytest
from border.harness import X, calls, same_as_eager

import lucid

BIG = lucid.ones(1, dtype=lucid.float64)


def numbers(step, count=4):
    """What each of some calls gave, as Python's numbers."""
    return [float(step(BIG)[0]) for _ in range(count)]


# ------------------------------------------------------------------ clocks


@pytest.mark.parametrize(
    "clock",
    [
        time.time,
        time.perf_counter,
        time.monotonic,
        lambda: time.clock_gettime(time.CLOCK_MONOTONIC),
        time.process_time,
        time.time_ns,
        lambda: datetime.datetime.now().timestamp(),
        lambda: datetime.datetime.now(datetime.UTC).timestamp(),
        lambda: datetime.datetime.today().microsecond,
        lambda: time.localtime().tm_sec + time.time() % 1,
    ],
    ids=[
        "time",
        "perf_counter",
        "monotonic",
        "clock_gettime",
        "process_time",
        "time_ns",
        "now",
        "utc",
        "today",
        "localtime",
    ],
)
@same_as_eager(or_said=True, changes=False)
def test_a_clock(compile, clock):
    step = compile(lambda x: x * clock())
    found = []
    for _ in range(4):
        found.append(float(step(BIG)[0]))
        until = time.process_time() + 2e-3
        while time.process_time() < until:
            pass
    return [len(set(found)) == 4]


@same_as_eager(or_said=True, changes=False)
def test_a_budget_of_time(compile):
    start = time.perf_counter()

    @compile
    def step(x):
        return x * 2 if time.perf_counter() - start > 0.2 else x

    step(X)
    time.sleep(0.21)
    return [step(X), step(X)]


@same_as_eager(or_said=True, changes=False)
def test_the_time_that_a_part_takes(compile):
    times = []

    @compile
    def step(x):
        start = time.perf_counter()
        y = x * 2
        times.append(time.perf_counter() - start)
        return y

    found = [step(X) for _ in range(4)]
    return [*found, len(set(times)) > 1]


# ------------------------------------------------------------------ entropy


@pytest.mark.parametrize(
    "draw",
    [
        lambda: uuid.uuid4().int % 1_000_003,
        lambda: uuid.uuid1().int % 1_000_003,
        lambda: int.from_bytes(os.urandom(4), "little"),
        lambda: secrets.randbelow(2**40),
        lambda: int(secrets.token_hex(4), 16),
        lambda: float(np.random.default_rng().random()),
        lambda: float(np.random.RandomState().rand()),
        lambda: random.SystemRandom().random(),
        lambda: random.Random().random(),
        lambda: float(np.random.SeedSequence().entropy % 1_000_003),
    ],
    ids=[
        "uuid4",
        "uuid1",
        "urandom",
        "randbelow",
        "token",
        "default_rng",
        "RandomState",
        "system",
        "Random",
        "seed",
    ],
)
@same_as_eager(or_said=True, changes=False)
def test_entropy(compile, draw):
    step = compile(lambda x: x * draw())
    return [len(set(numbers(step))) == 4]


@same_as_eager(or_said=True, changes=False)
def test_a_generator_from_outside_that_nobody_seeded(compile):
    rng = np.random.default_rng()
    step = compile(lambda x: x * rng.random())
    return [len(set(numbers(step))) == 4]


@same_as_eager(or_said=True)
def test_generators_that_are_seeded(compile):
    rng, legacy, python = np.random.default_rng(1), np.random.RandomState(1), random.Random(1)
    step = compile(lambda x: x * rng.random() + legacy.rand() + python.random())
    return [step(X) for _ in range(4)]


@same_as_eager(or_said=True)
def test_the_state_of_a_generator(compile):
    rng = np.random.default_rng(1)
    step = compile(lambda x: x * (rng.bit_generator.state["state"]["state"] % 1009))
    return calls(step, lambda: rng.random(), lambda: rng.random())


# ------------------------------------------------------------------ the environment and files


@pytest.mark.parametrize(
    "read",
    [
        lambda name: float(os.environ[name]),
        lambda name: float(os.environ.get(name, "1")),
        lambda name: float(os.getenv(name, "1")),
        lambda name: float(dict(os.environ)[name]),
        lambda name: float(os.environb[name.encode()]),
        lambda name: 1.0 if os.environ.get(f"{name}_ON") is None else 3.0,
        lambda name: float(os.path.expandvars(f"${name}")),
    ],
    ids=["item", "get", "getenv", "copy", "environb", "absent", "expandvars"],
)
@same_as_eager
def test_the_environment(compile, read):
    os.environ["BORDER_SCALE"] = "1"
    os.environ.pop("BORDER_SCALE_ON", None)
    step = compile(lambda x: x * read("BORDER_SCALE"))

    def change():
        os.environ["BORDER_SCALE"] = "2"
        os.environ["BORDER_SCALE_ON"] = "1"

    try:
        return calls(step, change)
    finally:
        del os.environ["BORDER_SCALE"]
        os.environ.pop("BORDER_SCALE_ON", None)


def in_a_folder(program):
    """Run a program in a folder of its own."""
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        return program(folder)
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "read",
    [
        lambda path: float(path.read_text()),
        lambda path: float(path.read_bytes()),
        lambda path: float(open(path).read()),  # noqa: SIM115 - as users write it
        lambda path: float(np.loadtxt(path)),
        lambda path: float(path.stat().st_size),
        lambda path: float(os.path.getsize(path)),
        lambda path: float(os.stat(path).st_size),
        lambda path: len(os.listdir(path.parent)),
        lambda path: len(list(path.parent.glob("*"))),
        lambda path: 2.0 if os.path.exists(path.parent / "stop") else 1.0,
        lambda path: 2.0 if (path.parent / "stop").exists() else 1.0,
        lambda path: 2.0 if (path.parent / "stop").is_file() else 1.0,
    ],
    ids=[
        *[
            "read_text",
            "read_bytes",
            "open",
            "loadtxt",
            "stat",
            "getsize",
            "os_stat",
            "listdir",
            "glob",
        ],
        *["exists", "path_exists", "is_file"],
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@same_as_eager(or_said=True)
def test_files(compile, read):
    def program(folder):
        path = folder / "scale.txt"
        path.write_text("1.5")
        step = compile(lambda x: x * read(path))

        def change():
            path.write_text("22.25")
            (folder / "stop").write_text("")

        return calls(step, change)

    return in_a_folder(program)


@same_as_eager(or_said=True)
def test_a_file_that_is_read_line_by_line(compile):
    def program(folder):
        (folder / "data.txt").write_text("".join(f"{i}\n" for i in range(100)))
        with open(folder / "data.txt") as lines:
            step = compile(lambda x: x * float(lines.readline()))
            return [step(X) for _ in range(4)]

    return in_a_folder(program)


@same_as_eager(or_said=True)
def test_the_working_directory(compile):
    def program(folder):
        before = os.getcwd()
        (folder / "a").mkdir()
        (folder / "a" / "longer").mkdir()
        os.chdir(folder / "a")
        try:
            step = compile(lambda x: x * len(os.path.relpath(os.getcwd(), folder)))
            return calls(step, lambda: os.chdir("longer"))
        finally:
            os.chdir(before)

    return in_a_folder(program)


# ------------------------------------------------------------------ threads and queues


@same_as_eager(or_said=True)
def test_an_event(compile):
    stop = threading.Event()
    step = compile(lambda x: x * 0 if stop.is_set() else x)
    return calls(step, stop.set, stop.clear)


@pytest.mark.parametrize("kind", [queue.Queue, queue.SimpleQueue, queue.LifoQueue])
@same_as_eager(or_said=True)
def test_a_queue(compile, kind):
    waiting = kind()
    for i in range(1000):  # a trace that takes some must not wait for more
        waiting.put(float(i))
    step = compile(lambda x: x * waiting.get())
    return [step(X) for _ in range(4)]


@same_as_eager(or_said=True)
def test_whether_a_queue_is_empty(compile):
    waiting = queue.Queue()
    step = compile(lambda x: x * 2 if waiting.empty() else x)
    return calls(step, lambda: waiting.put(1), waiting.get)


@same_as_eager(or_said=True)
def test_a_lock_that_somebody_holds(compile):
    lock = threading.Lock()
    step = compile(lambda x: x * 2 if lock.locked() else x)
    return calls(step, lock.acquire, lock.release)


@pytest.mark.parametrize(
    "read",
    [
        lambda: threading.current_thread().name == "border",
        lambda: threading.get_ident() == THREAD[0],
        lambda: threading.current_thread() is threading.main_thread(),
    ],
    ids=["name", "ident", "main"],
)
@same_as_eager(or_said=True)
def test_the_thread(compile, read):
    step = compile(lambda x: x * 2 if read() else x)
    THREAD[0] = threading.get_ident()
    results = [step(X), step(X)]
    thread = threading.Thread(target=lambda: results.append(step(X)), name="border")
    thread.start()
    thread.join()
    return [*results, *([] if len(results) == 3 else [None]), step(X)]


THREAD = [0]


@pytest.mark.parametrize(
    "ask",
    [
        lambda: multiprocessing.current_process().name,
        threading.get_native_id,
        tempfile.gettempdir,
        lambda: os.path.join(tempfile.gettempdir(), "log"),
        lambda: os.uname().sysname,
    ],
    ids=["process", "thread", "temporary", "joined", "system"],
)
@same_as_eager
def test_what_a_step_may_ask_of_its_process(compile, ask):
    step = compile(lambda x: (x * 2, str(ask())))
    return [step(X), step(X), step(X + 1)]


@same_as_eager(or_said=True)
def test_how_many_threads_there_are(compile):
    stop = threading.Event()
    before = threading.active_count()
    step = compile(lambda x: x * (1 + threading.active_count() - before))
    thread = threading.Thread(target=stop.wait)
    results = [step(X), step(X)]
    thread.start()
    try:
        results += [step(X), step(X)]
    finally:
        stop.set()
        thread.join()
    return [*results, step(X)]


@same_as_eager(or_said=True)
def test_a_socket(compile):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5)
        theirs.sendall(bytes(range(1, 200)))
        step = compile(lambda x: x * ours.recv(1)[0])
        return [step(X) for _ in range(4)]


# ------------------------------------------------------------------ settings of others


@same_as_eager
def test_the_error_state_of_numpy(compile):
    def scale():
        try:
            return float(np.float64(1.0) / np.float64(0.0))
        except FloatingPointError:
            return 2.0

    step = compile(lambda x: x * min(scale(), 5.0))
    results = []
    for divide in ("ignore", "raise", "ignore"):
        with np.errstate(divide=divide):
            results += [step(X), step(X)]
    return results


@same_as_eager
def test_what_numpy_says_of_its_error_state(compile):
    step = compile(lambda x: x * 2 if np.geterr()["over"] == "ignore" else x)
    results = []
    for over in ("warn", "ignore", "warn"):
        with np.errstate(over=over):
            results += [step(X), step(X)]
    return results


@pytest.mark.parametrize("how", ["raise", "ignore", "call"])
@pytest.mark.parametrize(
    "compute", [np.log, lambda a: 1e38 / a, lambda a: a + 3e38, lambda a: np.exp(1000 * a.max())]
)
@same_as_eager(or_said=True)
def test_an_error_state_of_numpy_that_the_step_enters(compile, how, compute):
    heard = []

    def step(x):
        array = x.numpy()
        try:
            with np.errstate(all=how, call=lambda *what: heard.append(what)):
                found = compute(array)
        except FloatingPointError:
            return x * 7
        return x + lucid.from_numpy(np.asarray(found))

    step, results = compile(step), []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for number in (1.0, 2.0, 0.0, 1e38, 0.0, 3.0):
            results.append(step(lucid.full((3,), number)).numpy().tolist())
    results += [sum("encountered" in str(x.message) for x in told), len(heard)]
    return results


@same_as_eager
def test_print_options_of_numpy(compile):
    step = compile(lambda x: x * len(str(np.float64(1) / np.arange(3, 4))))
    results = []
    for precision in (3, 8, 3):
        with np.printoptions(precision=precision):
            results += [step(X), step(X)]
    return results


@same_as_eager
def test_settings_of_python(compile):
    before = sys.getrecursionlimit()
    step = compile(lambda x: x * (sys.getrecursionlimit() - before + 1) * len(sys.argv))
    try:
        return calls(
            step,
            lambda: sys.setrecursionlimit(before + 5),
            lambda: sys.argv.append("--fast"),
        )
    finally:
        sys.setrecursionlimit(before)
        sys.argv[:] = [a for a in sys.argv if a != "--fast"]


@same_as_eager
def test_the_default_dtype(compile):
    step = compile(lambda x: lucid.ones(3) * x.long())
    results = [step(X), step(X)]
    lucid.set_default_dtype(lucid.float64)
    try:
        results += [step(X), step(X)]
    finally:
        lucid.set_default_dtype(lucid.float32)
    return [*results, step(X)]


@pytest.mark.parametrize(
    ("read", "change", "back"),
    [
        (
            lambda: lucid.get_default_dtype() == lucid.float64,
            lambda: lucid.set_default_dtype(lucid.float64),
            lambda: lucid.set_default_dtype(lucid.float32),
        ),
        (
            lambda: lucid.is_grad_enabled(),
            lambda: lucid.set_grad_enabled(False),
            lambda: lucid.set_grad_enabled(True),
        ),
        (
            lambda: lucid.get_num_threads() == 1,
            lambda: lucid.set_num_threads(1),
            lambda: lucid.set_num_threads(2),
        ),
        (
            lambda: lucid.are_deterministic_algorithms_enabled(),
            lambda: lucid.use_deterministic_algorithms(True),
            lambda: lucid.use_deterministic_algorithms(False),
        ),
        (
            lambda: lucid.is_anomaly_enabled(),
            lambda: lucid.autograd.set_detect_anomaly(True),
            lambda: lucid.autograd.set_detect_anomaly(False),
        ),
        (
            lambda: lucid.initial_seed() == 99,
            lambda: lucid.manual_seed(99),
            lambda: lucid.manual_seed(3),
        ),
    ],
    ids=["dtype", "grad", "threads", "deterministic", "anomaly", "seed"],
)
@same_as_eager(or_said=True)
def test_a_setting_of_lucid(compile, read, change, back):
    back()
    step = compile(lambda x: x * 2 if read() else x)
    try:
        return calls(step, change, back)
    finally:
        back()


@same_as_eager(or_said=True)
def test_the_state_of_lucids_generator(compile):
    step = compile(lambda x: x * (lucid.get_rng_state().sum() % 7 + lucid.initial_seed() % 5))
    return [step(X), step(X)] + [lucid.manual_seed(6) and None, step(X), step(X)]


@same_as_eager(or_said=True)
def test_what_a_user_types(compile):
    before, sys.stdin = sys.stdin, io.StringIO("".join(f"{i}\n" for i in range(100)))
    try:
        step = compile(lambda x: x * float(input()))
        return [step(X) for _ in range(4)]
    finally:
        sys.stdin = before


@same_as_eager(or_said=True)
def test_an_iterator_from_outside(compile):
    weights = iter([1.0, 2.0, 3.0, 4.0])
    step = compile(lambda x: x * next(weights))
    return [step(X) for _ in range(4)]


@same_as_eager(or_said=True)
def test_a_generator_from_outside(compile):
    def rates():
        rate = 1.0
        while True:
            yield rate
            rate *= 0.5

    running = rates()
    step = compile(lambda x: x * next(running))
    return [step(X) for _ in range(4)]


@same_as_eager(or_said=True)
def test_a_counter_of_itertools(compile):
    counter = itertools.count()
    step = compile(lambda x: x * next(counter))
    return [step(X) for _ in range(4)]


@same_as_eager(or_said=True)
def test_counters_that_others_advance_and_replace(compile):
    """A class numbers its objects; a step counts by fractions, and past the ints of a machine."""

    class Numbered:
        ids = itertools.count(5)

        def __init__(self):
            self.number = next(self.ids)

    steps, large = itertools.count(0.5, 0.25), itertools.count(sys.maxsize - 3)

    @compile
    def step(x):
        first, second = Numbered(), Numbered()
        if second.number > 100:
            return x - first.number
        return x * first.number + second.number * next(steps), next(steps), next(large)

    results = []
    for i in range(12):
        if i % 3 == 1:
            next(Numbered.ids)
        if i == 6:
            Numbered.ids = itertools.count(7, 3)
        if i == 10:
            Numbered.ids = itertools.count(200)
        results += [step(X), str(Numbered.ids), str(steps)]
    return results


@same_as_eager(or_said=True)
def test_a_counter_by_its_method(compile):
    advance = itertools.count().__next__
    step = compile(lambda x: x * advance())
    return [step(X) for _ in range(4)]


# ------------------------------------------------------------------ what a call does outside


def in_a_thread(tell, path):
    thread = threading.Thread(target=tell)
    thread.start()
    thread.join()


def in_a_pool(tell, path):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(tell).result()


def in_a_program(tell, path):
    subprocess.run([sys.executable, "-S", "-c", f"open({str(path)!r}, 'a').write('x')"], check=True)


def by_a_shell(tell, path):
    os.system(f"printf x >> {path}")


def in_a_new_file(tell, path):
    os.close(tempfile.mkstemp(dir=path.parent)[0])


def by_a_copy(tell, path):
    shutil.copy(__file__, path)


def by_the_system(tell, path):
    file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(file, b"x")
    os.close(file)


def by_settings_of_numpy(tell, path):
    np.set_printoptions(precision=3)


def by_errors_of_numpy(tell, path):
    np.seterr(under="raise")


def by_precision(tell, path):
    decimal.getcontext().prec = 7


def by_a_signal(tell, path):
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


NUMBER = ctypes.c_int(0)


def by_memory_in_c(tell, path):
    NUMBER.value += 1


@pytest.mark.parametrize(
    "act",
    [
        *(in_a_thread, in_a_pool, in_a_program, by_a_shell, in_a_new_file, by_a_copy),
        *(by_the_system, by_settings_of_numpy, by_errors_of_numpy, by_precision, by_a_signal),
        by_memory_in_c,
    ],
)
@same_as_eager(or_said=True)
def test_what_a_call_does_outside_each_call_does(compile, act):
    told, NUMBER.value = [], 0
    before = decimal.getcontext().prec, signal.getsignal(signal.SIGUSR1)

    def state():
        with np.printoptions():  # which gives what is set
            digits = np.get_printoptions()["precision"], np.geterr()["under"]
        handler = signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
        files = sorted(len(path.read_bytes()) for path in folder.iterdir())
        return str((told, digits, decimal.getcontext().prec, handler, files, NUMBER.value))

    def put_back():
        np.set_printoptions(precision=8)
        np.seterr(under="ignore")
        decimal.getcontext().prec = before[0]
        signal.signal(signal.SIGUSR1, before[1])

    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)

        @compile
        def step(x):
            act(lambda: told.append(1), folder / "out")
            return x * 2

        found = []
        for i in range(6):
            if i % 3:
                step(X)
            found.append(state())
            put_back()
    return found


@same_as_eager(or_said=True)
def test_the_precision_of_decimal_numbers(compile):
    third = [decimal.Decimal(1), decimal.Decimal(3)]
    step = compile(lambda x: x * float(third[0] / third[1]))
    try:
        return calls(step, lambda: setattr(decimal.getcontext(), "prec", 2))
    finally:
        decimal.setcontext(decimal.Context())


@pytest.mark.parametrize(
    ("ask", "settings"),
    [(gc.get_threshold, (900, 11, 12)), (sys.getswitchinterval, 0.25)],
    ids=["gc", "threads"],
)
@same_as_eager
def test_settings_of_collection_and_threads(compile, ask, settings):
    before = ask()
    put = gc.set_threshold if ask is gc.get_threshold else sys.setswitchinterval
    as_tuple = lambda found: found if isinstance(found, tuple) else (found,)  # noqa: E731
    step = compile(lambda x: x * as_tuple(ask())[0])
    try:
        return calls(step, lambda: put(*as_tuple(settings)))
    finally:
        put(*as_tuple(before))


def test_a_step_that_sets_a_trace_function_runs_op_by_op():
    """Before 3.12 nobody would tell what it reads from there on."""

    @lucid.compile
    def step(x):
        before = sys.gettrace()
        sys.settrace(None)
        y = x * 2
        sys.settrace(before)
        return y

    assert step(lucid.ones(1)).tolist() == [2.0]
    assert "it changes a setting of all, by sys.settrace()" in step.stats.eager_reasons[0]
