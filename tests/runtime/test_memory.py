"""One arena for all temporaries of a step, and nothing allocated once it runs but its results."""

from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
import tracemalloc
import weakref

import numpy as np
import pytest

import lucid
from lucid.ir import ops
from lucid.ir.errors import TooLargeError
from lucid.ir.graph import Graph
from lucid.ir.types import TensorType, f32
from lucid.runtime import (
    arena as arena_module,
    compile_graph,
    context as context_module,
    executable as executable_module,
)
from lucid.runtime.arena import HUGE_FROM, HUGE_PAGE, Arena, Arenas
from lucid.runtime.executable import Executable


def training_step() -> Graph:
    """Two products with what belongs between them, a loss, and updates of the state."""
    graph = Graph("step")
    v = graph.add_input(TensorType(f32, (256, 128)), "state")
    w = graph.add_input(TensorType(f32, (128, 64)), "state")
    x = graph.add_input(TensorType(f32, (100, 256)))
    hidden = ops.tanh(ops.matmul(x, v))
    y = ops.matmul(hidden, w)
    loss = ops.sum(ops.mul(y, y), axes=(0, 1))
    dw = ops.matmul(ops.transpose(hidden, perm=(1, 0)), y)
    dh = ops.matmul(y, ops.transpose(w, perm=(1, 0)))
    dv = ops.matmul(ops.transpose(x, perm=(1, 0)), dh * (1.0 - hidden * hidden))
    graph.writes = [(v, v - dv * 1e-4), (w, w - dw * 1e-4)]
    graph.outputs = [loss]
    return graph


@pytest.mark.parametrize("size", [0, 1, 1000, 1 << 20])
def test_arenas_are_aligned(size: int) -> None:
    assert Arena(size).address % 64 == 0


def test_large_arenas_begin_at_a_huge_page() -> None:
    arena = Arena(5 << 20)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        assert arena.address % HUGE_PAGE == 0


def test_a_step_has_one_arena_and_keeps_it() -> None:
    executable = compile_graph(training_step())
    inputs = [np.ones(entry.value.shape, np.float32) for entry in training_step().inputs]
    executable.call(inputs)
    (context,) = executable.free
    arena = context.arena
    for _ in range(3):
        executable.call(inputs)
    assert executable.free == [context]
    assert context.arena is arena


def test_nothing_is_allocated_but_the_results() -> None:
    executable = compile_graph(training_step())
    inputs = [np.ones(entry.value.shape, np.float32) for entry in training_step().inputs]
    for _ in range(3):
        executable.call(inputs)
    gc.collect()
    tracemalloc.start()
    try:
        executable.call(inputs)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(20):
            executable.call(inputs)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 4000
    assert peak - before < 8000


def test_memory_that_there_is_no_room_for_is_an_error_of_the_librarys() -> None:
    """More bytes than a 64-bit processor can address, however freely the system promises them."""
    with pytest.raises(TooLargeError, match=r"unable to allocate .* GiB") as caught:
        Arena(1 << 56)
    assert isinstance(caught.value, MemoryError)


# Many programs --------------------------------------------------------------------------------

ROWS = 1 << 11


def large_program(extra: int) -> Executable:
    """A step with temporaries of 16 MiB and more, whose result tells its number."""
    graph = Graph(f"large{extra}")
    x = graph.add_input(TensorType(f32, (ROWS, 1024 + extra)))
    t = ops.exp(x)
    totals = ops.reshape(ops.sum(t, axes=(1,)), shape=(ROWS, 1))
    graph.outputs = [ops.sum(ops.matmul(ops.transpose(t, perm=(1, 0)), totals), axes=(0, 1))]
    executable = compile_graph(graph)
    arguments.setdefault(extra, np.zeros((ROWS, 1024 + extra), np.float32))
    assert executable._arena_bytes > 8 << 20
    return executable


arguments: dict[int, np.ndarray] = {}


def run(executable: Executable, extra: int) -> None:
    columns = 1024 + extra
    (result,) = executable.call([arguments[extra]])
    np.testing.assert_allclose(result, ROWS * columns**2, rtol=1e-4)


def test_a_context_that_finds_no_room_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that comes again with as large a size would run on memory that is too small."""
    context = compile_graph(training_step())._new_context()
    context.need(1000)
    arena = context.arena

    def fail(size: int) -> mmap.mmap:
        raise TooLargeError("no room")

    monkeypatch.setattr(arena_module, "_mapped", fail)
    for _ in range(2):
        with pytest.raises(TooLargeError):
            context.need(2 * HUGE_FROM)
        assert context.arena is arena
        assert context.arena_bytes == 1000


@pytest.fixture
def room_for_two(monkeypatch: pytest.MonkeyPatch) -> Arenas:
    """An own sharing of arenas that holds two of the programs' at a time."""
    shared = Arenas(idle_bytes=2 * large_program(8)._arena_bytes)
    for module in (arena_module, executable_module, context_module):
        monkeypatch.setattr(module, "arenas", shared)
    return shared


def test_programs_take_turns_with_arenas(room_for_two: Arenas) -> None:
    programs = [large_program(extra) for extra in range(6)]
    for turn in (0, 1, 2, 3, 4, 5, 0, 5, 3, 3, 1, 0):
        run(programs[turn], turn)
        held = [c.arena for program in programs for c in program.free if c.arena is not None]
        assert len(held) <= 2
        assert programs[turn].free[0].arena in held


def test_a_program_that_is_called_again_keeps_its_arena(room_for_two: Arenas) -> None:
    first, second = large_program(0), large_program(1)
    for _ in range(3):
        run(first, 0)
        run(second, 1)
    kept = [program.free[0].arena for program in (first, second)]
    run(first, 0)
    run(second, 1)
    assert [program.free[0].arena for program in (first, second)] == kept


def test_memory_that_was_touched_is_handed_on(room_for_two: Arenas) -> None:
    programs = [large_program(extra) for extra in (3, 2, 1)]
    addresses = []
    for program, extra in zip(programs, (3, 2, 1), strict=True):
        run(program, extra)
        addresses.append(program.free[0].table[2])
    assert programs[0].free[0].arena is None
    assert addresses[2] == addresses[0]


def test_an_arena_that_a_call_uses_is_not_taken(room_for_two: Arenas) -> None:
    programs = [large_program(extra) for extra in range(3)]
    for extra in (0, 1):
        run(programs[extra], extra)
    used = [program.free.pop() for program in programs[:2]]
    run(programs[2], 2)
    assert all(context.arena is not None for context in used)


def test_arenas_go_with_their_programs(room_for_two: Arenas) -> None:
    program = large_program(0)
    run(program, 0)
    arena = weakref.ref(program.free[0].arena)
    del program
    gc.collect()
    assert arena() is None
    run(large_program(1), 1)
    assert len(room_for_two._tenants) <= 1


def test_a_step_of_many_shapes_keeps_the_memory_of_a_few(room_for_two: Arenas) -> None:
    """Through the native entry, too: it leaves a call without an arena to Python."""
    step = lucid.compile(lambda x: (x.exp() @ x.exp().sum(0)).sum())
    inputs = [lucid.zeros(1 << 11, 2048 + 8 * extra) for extra in range(5)]
    for x in inputs * 3:
        for _ in range(3):
            expected = x.shape[0] * x.shape[1] * x.shape[0]
            np.testing.assert_allclose(step(x).item(), expected, rtol=1e-4)
    tenants = [tenant() for tenant, _ in room_for_two._tenants.values()]
    assert sum(t is not None and t.arena is not None for t in tenants) <= 2


# Memory that is short ---------------------------------------------------------------------------

SHORT = """
import resource
import numpy as np
{before}

def limit(room):
    pages = int(open("/proc/self/statm").read().split()[0]) + (room << 20) // resource.getpagesize()
    size = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))

limit({room})
try:
    {run}
except MemoryError as error:
    print([kind.__name__ for kind in type(error).__mro__ if kind.__name__ == "LucidError"], error)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
{run}
print("all is well")
"""
BLAS = "import lucid; from lucid import nn; a = lucid.eye(3)"
SHORTAGES = {
    "product": (BLAS, "a @ a", "matmul: NumPy's BLAS needs some 40 MiB"),
    "factors": (BLAS, "lucid.linalg.inv(a)", "inv: NumPy's BLAS needs some 40 MiB"),
    "initial values": (BLAS, "nn.init.orthogonal_(lucid.empty(3, 3))", "BLAS needs some 40 MiB"),
    "LLVM": ("import lucid", "lucid.compile(lambda x: x + 1)(lucid.ones(3))", "LLVM can't be load"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit that the system keeps to")
@pytest.mark.parametrize("name", SHORTAGES)
def test_a_library_that_finds_no_memory_does_not_end_the_process(name: str) -> None:
    """BLAS calls `exit`, LLVM `abort`; with more memory, the same works in the same process."""
    before, run, message = SHORTAGES[name]
    script = SHORT.format(before=before, run=run, room=8 if name != "LLVM" else 60)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LUCID_CACHE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['LucidError']") and message in done.stdout
    assert done.stdout.endswith("all is well\n")


RESIDENT = """
import re
import lucid

def resident():
    with open("/proc/self/smaps") as file:
        found = file.read()
    sizes = re.findall(r"/libllvmlite[^/]*\\n(?:\\w+:.*\\n)*?Rss: +(\\d+)", found)
    return sum(map(int, sizes)) >> 10

small = lucid.compile(lambda x: x + 1)
large = lucid.compile(lambda x: (x @ x).tanh() @ x)
assert small(lucid.ones(3)).tolist() == [2, 2, 2]
before = resident()
result = large(lucid.eye(1100))
print(before, resident())
assert result[0, 0].item() > 0.7
assert lucid.compile(lambda x: x * 3)(lucid.ones(3)).tolist() == [3, 3, 3]
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs to know what is in memory")
def test_the_compiler_is_not_in_memory_when_a_large_step_runs() -> None:
    env = os.environ | {"LUCID_CACHE": "0"}
    command = [sys.executable, "-c", RESIDENT]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    before, after = map(int, done.stdout.split())
    assert before > 30, "it was there, in MB"
    assert after < 15
