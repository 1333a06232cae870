"""Several threads share a step: the same bits for any number of them, and nothing ever hangs."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from random_graphs import Case, cases

from lucid.codegen import costs
from lucid.codegen.threads import pool as code, trial
from lucid.ir import environment, ops
from lucid.ir.errors import IndexOutOfRangeError, OptionError
from lucid.ir.graph import Graph, Value
from lucid.ir.interpret import interpret
from lucid.ir.location import Location
from lucid.ir.types import DType, TensorType, f32, f64, i64
from lucid.runtime import Executable, compile_graph
from lucid.runtime.once import Once
from lucid.runtime.threads import (
    default_num_threads,
    pool,
    processor_quota,
    set_num_threads,
)

COUNTS = (1, 2, 5)
Build = Callable[..., Sequence[Value]]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    count = pool.num_threads
    yield
    set_num_threads(count)


@pytest.fixture
def eager_to_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut even the smallest kernels into parts."""
    monkeypatch.setattr(costs, "WORTH_SECONDS", 0.0)


def graph_of(build: Build, *shapes: tuple[int, ...], dtype: DType = f32) -> Graph:
    graph = Graph("shared")
    values = [graph.add_input(TensorType(dtype, shape)) for shape in shapes]
    graph.outputs = list(build(*values))
    return graph


def drawn(graph: Graph, rng: np.random.Generator) -> list[np.ndarray]:
    return [
        rng.normal(size=entry.value.shape).astype(entry.value.dtype.numpy) for entry in graph.inputs
    ]


def results_of(executable: Executable, inputs: Sequence[np.ndarray]) -> list[bytes]:
    """All that a step leaves: its results, and the inputs after it."""
    given = [np.array(array) for array in inputs]
    return [array.tobytes() for array in (*executable.call(given), *given)]


def assert_same_bits(executable: Executable, inputs: Sequence[np.ndarray]) -> None:
    set_num_threads(1)
    want = results_of(executable, inputs)
    for count in COUNTS[1:]:
        set_num_threads(count)
        for _ in range(3):
            assert results_of(executable, inputs) == want, f"{count} threads"


def softmax(x: Value) -> Value:
    e = ops.exp(ops.sub(x, ops.amax(x, axes=(0,))))
    return ops.div(e, ops.sum(e, axes=(0,)))


def transposed_product(a: Value, b: Value) -> Value:
    return ops.matmul(a, ops.transpose(b, perm=(1, 0)))


def windows(x: Value, size: int) -> Value:
    place = {"axes": (2, 3), "sizes": (size, size), "steps": (1, 1), "dilations": (1, 1)}
    return ops.windows(x, **place)


LARGE: dict[str, tuple[Build, tuple[tuple[int, ...], ...]]] = {
    "a map": (lambda x: [ops.tanh(x)], ((1003, 211),)),
    "rows": (lambda x: [ops.sum(ops.exp(x), axes=(1,))], ((1003, 211),)),
    "columns": (lambda x: [ops.sum(ops.exp(x), axes=(0,))], ((503, 2011),)),
    "few columns": (lambda x: [ops.sum(ops.exp(x), axes=(0,))], ((60003, 7),)),
    "some columns": (lambda x: [ops.amax(ops.exp(x), axes=(0,))], ((20003, 40),)),
    "rows and columns": (
        lambda x: [ops.sum(y := ops.exp(x), axes=(1,)), ops.sum(y, axes=(0,))],
        ((1008, 211),),
    ),
    "everything": (
        lambda x: [ops.sum(ops.exp(x), axes=(0, 1)), ops.amin(x, axes=(0, 1)), ops.exp(x)],
        ((1003, 211),),
    ),
    "a norm": (lambda x: [x / ops.sqrt(ops.sum(x * x, axes=(0, 1)))], ((1003, 211),)),
    "one long softmax": (lambda x: [softmax(x)], ((200_001,),)),
    "a small product": (lambda a, b: [ops.tanh(ops.matmul(a, b))], ((301, 77), (77, 203))),
    "a packed product": (lambda a, b: [ops.tanh(ops.matmul(a, b))], ((301, 500), (500, 403))),
    "a transposed product": (lambda a, b: [transposed_product(a, b)], ((150, 128), (130, 128))),
    "one row": (lambda a, b: [ops.matmul(a, b)], ((1, 300), (300, 20_000))),
    "dot products": (lambda a, b: [ops.matmul(a, b)], ((20_000, 300), (300, 1))),
    "two rows of dot products": (lambda a, b: [transposed_product(a, b)], ((2, 900), (5001, 900))),
    "many products": (lambda a, b: [ops.matmul(a, b)], ((16, 4, 65, 33), (16, 4, 33, 70))),
    "few elements of a long product": (
        lambda a, b: [ops.contract(a, b, indices="kp,kq->pq")],
        ((9000, 40), (9000, 33)),
    ),
    "weights of few channels": (
        lambda a, b: [ops.contract(a, windows(b, 3), indices="noxy,ncxyij->ocij")],
        ((8, 3, 38, 38), (8, 2, 40, 40)),
    ),
    "weights of more channels": (
        lambda a, b: [ops.tanh(ops.contract(a, windows(b, 4), indices="noxy,ncxyij->ocij"))],
        ((5, 40, 16, 15), (5, 3, 19, 18)),
    ),
    "three products": (lambda a, b: [ops.matmul(a, b)], ((3, 200, 300), (3, 300, 250))),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_kernels_are_shared_and_give_the_same_bits(
    name: str, rng: np.random.Generator
) -> None:
    build, shapes = LARGE[name]
    graph = graph_of(build, *shapes)
    executable, inputs = compile_graph(graph), drawn(graph, rng)
    assert executable.shared_count > 0
    assert_same_bits(executable, inputs)
    set_num_threads(2)
    for got, want in zip(executable.call(inputs), interpret(graph, inputs)[0], strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def test_f64_products_are_shared_too(rng: np.random.Generator) -> None:
    graph = graph_of(lambda a, b: [ops.matmul(a, b)], (150, 301), (301, 250), dtype=f64)
    executable, inputs = compile_graph(graph), drawn(graph, rng)
    assert executable.shared_count == 1
    assert_same_bits(executable, inputs)
    np.testing.assert_allclose(executable.call(inputs)[0], inputs[0] @ inputs[1], rtol=1e-10)


def test_parts_that_run_one_after_the_other_copy_to_the_same_memory(
    rng: np.random.Generator,
) -> None:
    executable = compile_graph(graph_of(lambda x, w: [ops.matmul(x, w)], (128, 256), (256, 256)))
    kernel = executable.calls[0].kernel
    assert kernel.parts is not None and kernel.scratch
    inputs = [rng.normal(size=shape).astype(np.float32) for shape in ((128, 256), (256, 256))]
    set_num_threads(1)
    executable.call(inputs)
    (context,) = executable.free
    assert context.arena is not None
    arena = (ctypes.c_ubyte * context.arena_bytes).from_address(context.arena.address)
    ctypes.memset(arena, 0, len(arena))
    executable.call(inputs)
    pieces = np.frombuffer(arena, np.uint8).reshape(kernel.parts.count, -1)
    assert pieces[0].any() and not pieces[1:].any()


def test_state_is_updated_in_place_by_all_threads(rng: np.random.Generator) -> None:
    graph = Graph()
    w = graph.add_input(TensorType(f32, (400, 300)), "state")
    x = graph.add_input(TensorType(f32, (64, 400)))
    y = graph.add_input(TensorType(f32, (64, 300)))
    error = ops.sub(ops.matmul(x, w), y)
    gradient = ops.matmul(ops.transpose(x, perm=(1, 0)), error)
    graph.writes = [(w, w - gradient * 0.01)]
    graph.outputs = [ops.sum(ops.mul(error, error), axes=(0, 1))]
    executable = compile_graph(graph)
    assert executable.shared_count >= 2
    assert_same_bits(executable, drawn(graph, rng))


@hypothesis.settings(max_examples=60)
@hypothesis.given(case=cases())
def test_random_programs_give_the_same_bits(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "WORTH_SECONDS", 0.0)
        executable = compile_graph(case.graph)
    try:
        assert_same_bits(executable, case.inputs)
    except IndexOutOfRangeError:
        hypothesis.reject()


def test_random_programs_are_right_when_cut_into_parts(eager_to_share: None) -> None:
    """Cutting everything changes no more than the order of sums."""
    rng = np.random.default_rng(5)
    for rows, columns in ((40, 70), (7, 300), (300, 7), (33, 33)):
        graph = Graph()
        x = graph.add_input(TensorType(f32, (rows, columns)))
        w = graph.add_input(TensorType(f32, (columns, 19)))
        y = ops.matmul(x, w)
        means = ops.sum(ops.tanh(x), axes=(1,))
        sums = ops.sum(ops.mul(y, y), axes=(0,))
        graph.outputs = [ops.sigmoid(y), means, sums, ops.amax(x, axes=(0, 1))]
        inputs = drawn(graph, rng)
        executable = compile_graph(graph)
        assert executable.shared_count
        assert_same_bits(executable, inputs)
        for got, want in zip(executable.call(inputs), interpret(graph, inputs)[0], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


# Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", COUNTS)
def test_the_first_wrong_index_is_named(count: int) -> None:
    graph = Graph()
    x = graph.add_input(TensorType(f32, (50, 64)))
    index = graph.add_input(TensorType(i64, (40_000,)))
    taken = ops.take(x, index, axis=0)
    assert taken.producer is not None
    taken.producer.location = Location("train.py", 3)
    graph.outputs = [taken]
    executable = compile_graph(graph)
    indices = np.zeros(40_000, np.int64)
    indices[[17_003, 20_000, 39_999]] = 77, -51, 1000
    set_num_threads(count)
    message = "take: index 77 is out of range for axis 0 with size 50\n  in train.py:3"
    for _ in range(5):
        with pytest.raises(IndexOutOfRangeError) as caught:
            executable.call([np.ones((50, 64), np.float32), indices])
        assert str(caught.value) == message


# The pool -------------------------------------------------------------------------------------


@pytest.fixture
def busy_step() -> tuple[Executable, list[np.ndarray], bytes]:
    """A step of several regions, its inputs and its result."""
    graph = graph_of(lambda x: [ops.sum(ops.tanh(ops.exp(x)), axes=(1,))], (600, 300))
    executable = compile_graph(graph)
    inputs = drawn(graph, np.random.default_rng(0))
    return executable, inputs, executable.call(inputs)[0].tobytes()


def test_many_regions_follow_one_another(
    busy_step: tuple[Executable, list[np.ndarray], bytes],
) -> None:
    executable, inputs, want = busy_step
    for count in (2, 3, 7, 1, 2):
        set_num_threads(count)
        for _ in range(200):
            assert executable.call(inputs)[0].tobytes() == want


def test_threads_may_call_at_once(busy_step: tuple[Executable, list[np.ndarray], bytes]) -> None:
    executable, inputs, want = busy_step
    set_num_threads(2)
    wrong: list[int] = []

    def call() -> None:
        for number in range(100):
            if executable.call(inputs)[0].tobytes() != want:
                wrong.append(number)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for _ in range(20):  # in the middle of it
        set_num_threads(3)
        set_num_threads(2)
    for caller in callers:
        caller.join()
    assert not wrong


def wait_until_parked(worker: int) -> None:
    place = pool.address + code.FIRST_WORKER + code.LINE * worker + code.PARKED
    parked = ctypes.c_int64.from_address(place)
    for _ in range(10_000):
        if parked.value:
            return
        time.sleep(0.001)
    pytest.fail("a worker without work goes on spinning")


def test_parked_workers_come_back(busy_step: tuple[Executable, list[np.ndarray], bytes]) -> None:
    executable, inputs, want = busy_step
    set_num_threads(2)
    for _ in range(5):
        assert executable.call(inputs)[0].tobytes() == want
        wait_until_parked(0)


def record_of(executable: Executable) -> list[int]:
    (context,) = executable.free
    return list(context.record)


def test_a_step_finds_out_whether_threads_help_it(
    busy_step: tuple[Executable, list[np.ndarray], bytes],
) -> None:
    executable, inputs, expected = busy_step
    set_num_threads(2)
    executable(inputs)
    executable.free[0].record[trial.CALLS] = 0
    for call in range(2 * costs.TRIAL_CALLS):
        assert executable(inputs)[0].tobytes() == expected
        record = record_of(executable)
        assert record[trial.CALLS] == call + 1 and record[trial.WORKERS_THEN] == 1
        if call < costs.TRIAL_CALLS:
            assert record[trial.ALONE] == (call >= costs.TRIAL_CALLS // 2)
        else:
            assert record[trial.ALONE] == record[trial.CHOICE]
    best, best_alone = record[trial.BEST], record[trial.BEST_ALONE]
    assert best > 0 and best_alone > 0 and record[trial.CHOICE] == (best_alone < best)

    set_num_threads(3)
    executable(inputs)
    assert record_of(executable)[trial.CALLS] == 1, "other workers are a reason to try anew"


def test_a_step_that_chose_to_be_alone_tries_again(
    busy_step: tuple[Executable, list[np.ndarray], bytes],
) -> None:
    executable, inputs, expected = busy_step
    set_num_threads(2)
    executable(inputs)
    record = executable.free[0].record
    record[trial.CALLS], record[trial.CHOICE] = costs.TRIAL_PERIOD - 2, 1
    ways = []
    for _ in range(4):
        assert executable(inputs)[0].tobytes() == expected
        ways.append(record[trial.ALONE])
    assert ways == [1, 1, 0, 0]


@pytest.mark.parametrize(("own", "others", "stalls"), [(0.2, 0.3, False), (0.0, 0.3, True)])
def test_a_worker_is_lost_only_if_it_is_much_slower_than_its_caller(
    own: float, others: float, stalls: bool
) -> None:
    """Both parts take much longer than the caller was told."""
    set_num_threads(2)
    pool.start()
    caller, begun = threading.get_ident(), threading.Event()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    def part(frame: int, number: int) -> None:
        if threading.get_ident() == caller:
            assert begun.wait(30)
            time.sleep(own)
        else:
            begun.set()
            time.sleep(others)

    word = ctypes.c_int64.from_address
    word(pool.address + code.ALONE).value = 0
    word(pool.address + code.ALONE_NEXT).value = costs.LEAST_ALONE
    place = ctypes.cast(part, ctypes.c_void_p)
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 4)(pool.entry)
    run(pool.address, place, None, 2, 1, 10, 1)
    assert (word(pool.address + code.ALONE_NEXT).value > costs.LEAST_ALONE) is stalls
    run(pool.address, place, None, 0, 0, 10, costs.MOST_ALONE)  # uses up what is left


@pytest.fixture
def affinity() -> Iterator[Callable[[int, set[int]], None]]:
    """Sets where a thread may run; that of the calling thread is restored."""
    before = os.sched_getaffinity(0)
    yield os.sched_setaffinity
    os.sched_setaffinity(0, before)


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")
@pytest.mark.parametrize("everywhere", [True, False])
def test_a_worker_keeps_its_processors(
    busy_step: tuple[Executable, list[np.ndarray], bytes],
    affinity: Callable[[int, set[int]], None],
    everywhere: bool,
) -> None:
    """It leaves its caller's processor only if it may run on another one, and may come back."""
    executable, inputs, want = busy_step
    set_num_threads(2)
    executable.call(inputs)
    wait_until_parked(0)
    allowed = os.sched_getaffinity(0)
    first = min(allowed)
    worker = next(t.native_id for t in threading.enumerate() if t.name == "lucid-1")
    assert worker is not None
    own = allowed if everywhere else {first}
    affinity(0, {first})
    affinity(worker, own)
    for _ in range(20):
        assert executable.call(inputs)[0].tobytes() == want
        wait_until_parked(0)
        assert os.sched_getaffinity(worker) == own


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_a_pool_of_its_own(
    busy_step: tuple[Executable, list[np.ndarray], bytes],
) -> None:
    executable, inputs, want = busy_step
    set_num_threads(3)
    executable.call(inputs)
    child = os.fork()
    if child == 0:
        right = all(executable.call(inputs)[0].tobytes() == want for _ in range(20))
        os._exit(0 if right and pool.awake else 1)
    assert executable.call(inputs)[0].tobytes() == want
    assert os.waitpid(child, 0)[1] == 0
    assert executable.call(inputs)[0].tobytes() == want


SCRIPT = """
import numpy as np, sys
from lucid.ir import ops
from lucid.ir.graph import Graph
from lucid.ir.types import TensorType, f32
from lucid.runtime import compile_graph
from lucid.runtime.threads import pool, set_num_threads

graph = Graph()
x = graph.add_input(TensorType(f32, (1000, 300)))
graph.outputs = [ops.tanh(x)]
executable = compile_graph(graph)
assert executable.shared_count
executable.call([np.zeros((1000, 300), np.float32)])
print(pool.num_threads, pool.awake)
"""


def run_script(script: str = SCRIPT, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert not done.stderr
    return done.stdout.strip()


def test_the_interpreter_ends_while_workers_spin() -> None:
    assert run_script(LUCID_NUM_THREADS="4") == "4 True"


# How many -------------------------------------------------------------------------------------


def test_the_environment_sets_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCID_NUM_THREADS", "3")
    assert default_num_threads() == 3
    monkeypatch.delenv("LUCID_NUM_THREADS")
    assert 1 <= default_num_threads() <= (os.cpu_count() or 1)


@pytest.mark.parametrize("given", ["many", "0", "-1", "257", "2.5", "9" * 5000])
def test_a_number_in_the_environment_that_makes_no_sense_is_a_warning(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LUCID_NUM_THREADS", raising=False)
    expected = default_num_threads()
    monkeypatch.setenv("LUCID_NUM_THREADS", given)
    monkeypatch.setattr(environment, "_warned", set())
    with pytest.warns(UserWarning) as warned:
        assert default_num_threads() == expected
    assert default_num_threads() == expected
    (warning,) = warned
    assert str(warning.message) == (
        f"LUCID_NUM_THREADS={given!r}: expected a number from 1 to 256; "
        "using the default, all processors that the process may use"
    )


@pytest.mark.parametrize("count", [0, -1, 257])
def test_an_impossible_number_of_threads_is_refused(count: int) -> None:
    with pytest.raises(OptionError) as caught:
        set_num_threads(count)
    assert str(caught.value) == f"set_num_threads: 1 to 256 threads are possible, not {count}"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_tightest_control_group_counts(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/app/worker\n")
    groups = tmp_path / "sys/fs/cgroup"
    write(groups / "app/worker/cpu.max", "max 100000\n")
    assert processor_quota(tmp_path) is None
    write(groups / "app/cpu.max", "150000 100000\n")
    assert processor_quota(tmp_path) == 1.5


def test_control_groups_of_the_first_version_count(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "4:cpu,cpuacct:/job\n3:memory:/job\n")
    group = tmp_path / "sys/fs/cgroup/cpu/job"
    write(group / "cpu.cfs_quota_us", "-1\n")
    write(group / "cpu.cfs_period_us", "100000\n")
    assert processor_quota(tmp_path) is None
    write(group / "cpu.cfs_quota_us", "400000\n")
    assert processor_quota(tmp_path) == 4.0


def test_no_control_group_is_no_limit(tmp_path: Path) -> None:
    assert processor_quota(tmp_path) is None


def test_what_threads_ask_for_at_a_time_is_made_once() -> None:
    """Of machine code that two of them make, one would end while a thread is in it."""

    @Once
    def made(name: str) -> object:
        asked.append(name)
        time.sleep(0.05)
        return (inner(), object()) if name == "outer" else object()

    def inner() -> object:
        return made("inner")

    asked: list[str] = []
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(lambda _: made("outer"), range(4))]
    assert len({*map(id, found)}) == 1
    assert asked == ["outer", "inner"]


def test_what_is_made_once_is_what_was_made_first() -> None:
    """A signal's handler may ask for it while it is made."""
    made: list[object] = []

    def handler() -> object:
        return thing("a") if len(made) == 1 else None

    @Once
    def thing(name: str) -> object:
        made.append(object())
        mine = made[-1]
        handler()
        return mine

    first = thing("a")
    assert len(made) == 2 and first is made[1]
    assert thing("a") is first and thing("b") is made[2]


AT_THE_END = """
import builtins
import lucid

x = lucid.ones(1 << 22)
step = lucid.compile(lambda x: (x * 2).exp().sum())
step(x)

class Last:
    def __del__(self, step=step, x=x, print=print):
        print("before", flush=True)
        step(x)

builtins.last = Last()
"""


def test_a_step_that_python_calls_as_it_ends_does_not_wait_for_threads() -> None:
    """The interpreter starts no thread any more; those that lucid had have left."""
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_END],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LUCID_NUM_THREADS": "3"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "before\n"), done.stderr
