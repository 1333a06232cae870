"""The emitter: loops, branches, masks, booleans, constants; and what the JIT refuses."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lucid.codegen.llvm import jit
from lucid.codegen.llvm.builder import (
    FunctionBuilder,
    Module,
    Parts,
    Val,
    const,
    element_of,
    i64,
    lanes_of,
    literal,
    vector,
)
from lucid.codegen.llvm.target import host_target


def run(body: Callable[[FunctionBuilder], None], *arrays: np.ndarray[Any, Any], n: int = 0) -> None:
    """Compile `body`, which finds pointers and then an i64 in `args`, and call it."""
    module = Module(host_target())
    parameters = [("ptr", f"p{i}") for i in range(len(arrays))]
    with FunctionBuilder(module, "kernel", [*parameters, ("i64", "n")]) as b:
        body(b)
        b.ret()
    library = jit.load(module.text(), module.target, ["kernel"])
    signature = [ctypes.c_void_p] * len(arrays) + [ctypes.c_int64]
    function = ctypes.CFUNCTYPE(None, *signature)(library.addresses["kernel"])
    function(*(array.ctypes.data for array in arrays), n)


def test_types_are_read_back() -> None:
    assert vector("float", 1) == "float"
    assert vector("double", 8) == "<8 x double>"
    assert (element_of("<8 x double>"), lanes_of("<8 x double>")) == ("double", 8)
    assert (element_of("i64"), lanes_of("i64")) == ("i64", 1)


@pytest.mark.parametrize("value", (0.1, -0.0, math.inf, -math.inf, 5e-324, 1e308, 2.0**-149))
def test_float_constants_are_exact(value: float) -> None:
    out = np.zeros(2)
    run(lambda b: b.store(const("double", value), b.args[0]), out)
    assert out[:1].tobytes() == np.array([value]).tobytes()


def test_integer_constants_wrap() -> None:
    assert literal("i32", 0xFFFFFFFF) == "-1"
    assert literal("i8", 127) == "127"
    assert literal("i1", 1) == "true"


def test_known_indices_are_numbers_in_code_and_addresses_stand_once_in_a_block() -> None:
    with FunctionBuilder(Module(host_target()), "kernel", [("ptr", "p"), ("i64", "n")]) as b:
        pointer, n = b.args
        assert b.mul(i64(6), -7) == b.sub(-40, i64(2)) == i64(-42)
        assert b.mul(n, 0) == i64(0)
        assert {b.mul(n, 1), b.mul(i64(1), n), b.add(n, 0), b.add(0, n), b.sub(n, 0)} == {n}
        assert b.at("float", pointer, b.mul(n, 0)) == pointer
        place = b.at("float", pointer, b.add(n, 3))
        assert b.at("float", pointer, b.add(n, 3)) == place != b.at("double", pointer, b.add(n, 3))
        with b.if_(b.lt(n, 5)):
            assert b.at("float", pointer, b.add(n, 3)) != place
        b.ret()


@pytest.mark.parametrize("n", (0, 1, 2, 7))
def test_a_loop_carries_values_and_may_not_run(n: int) -> None:
    out = np.zeros(2, np.int64)

    def body(b: FunctionBuilder) -> None:
        out_, count = b.args
        with b.loop(0, count, 1, [i64(1), i64(1)]) as loop:
            x, y = loop.carried
            loop.carry(y, b.add(x, y))
        b.store(loop.results[0], out_)
        b.store(loop.results[1], b.at("i64", out_, 1))

    run(body, out, n=n)
    x, y = 1, 1
    for _ in range(n):
        x, y = y, x + y
    assert out.tolist() == [x, y]


@pytest.mark.parametrize("n", (-3, 4))
def test_a_branch_merges_its_sides(n: int) -> None:
    out = np.zeros(1, np.int64)

    def body(b: FunctionBuilder) -> None:
        out_, value = b.args
        with b.if_else(b.lt(value, 0)) as branch:
            with branch.then():
                positive = b.neg(value)
            with branch.otherwise():
                pass
        b.store(branch.merge(positive, value), out_)

    run(body, out, n=n)
    assert out[0] == abs(n)


@pytest.mark.parametrize("lanes", (2, 4, 8, 16))
def test_masked_memory_leaves_the_rest_alone(lanes: int) -> None:
    x, y = np.arange(16, dtype=np.float32), np.full(16, -1, np.float32)

    def body(b: FunctionBuilder) -> None:
        source, destination, count = b.args
        mask = b.tail_mask(lanes, count)
        value = b.masked_load(vector("float", lanes), source, mask, 5)
        b.masked_store(b.add(value, 1.0), destination, mask)

    run(body, x, y, n=1)
    assert y.tolist() == [1.0] + [-1.0] * 15


@pytest.mark.parametrize("lanes", (1, 4, 16))
def test_booleans_are_bytes_in_memory(lanes: int) -> None:
    x = np.array([True, False] * 8)
    y = np.zeros(16, np.uint8)

    def body(b: FunctionBuilder) -> None:
        value = b.load_bool(b.args[0], lanes)
        b.store_bool(b.not_(value), b.args[1])

    run(body, x, y)
    assert y[:lanes].tolist() == (~x[:lanes]).astype(int).tolist()
    assert not y[lanes:].any()


def test_a_reduction_folds_the_upper_half_into_the_lower() -> None:
    x = np.array([1e8, 1, -1e8, 1, 0, 3, 7, 1e-3], np.float32)
    out = np.zeros(1, np.float32)
    run(
        lambda b: b.store(b.reduce(b.load(vector("float", 8), b.args[0]), b.add), b.args[1]), x, out
    )
    half = x[:4] + x[4:]
    assert out[0] == (half[0] + half[2]) + (half[1] + half[3])


def test_operands_of_different_types_are_refused() -> None:
    b = FunctionBuilder(Module(host_target()), "f", [("i32", "x"), ("i64", "y")])
    with pytest.raises(TypeError, match="operands of different types: i32 %x and i64 %y"):
        b.add(*b.args)


def test_a_function_without_a_return_is_refused() -> None:
    b = FunctionBuilder(Module(host_target()), "f", [])
    with pytest.raises(ValueError, match="function f ends without a return"):
        b.finish()


@pytest.mark.parametrize("text", ("define void @f() { ret i32 %x }", "nonsense"))
def test_malformed_text_is_an_error_and_not_the_end(text: str) -> None:
    with pytest.raises(jit.CodegenError):
        jit.compile_objects([text], host_target())
    fine = [f"define void @f{n}() {{ ret void }}" for n in range(9)]
    with pytest.raises(jit.CodegenError):
        jit.compile_objects([*fine, text], host_target())


def test_a_thread_ends_whose_compilation_is_kept_from_its_end() -> None:
    """As by an interrupt where the `__exit__` of the block begins; else it would outlive Python."""
    before = threading.active_count()
    compilation = jit.Compilation(host_target(), to_come=1)
    compilation.take("define void @f() { ret void }")
    assert threading.active_count() > before or jit.processors() == 1
    for other in compilation._others:
        other.join(60)
    assert threading.active_count() == before


def test_an_interrupt_as_a_thread_starts_leaves_none_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second one has started, and what started it does not know."""
    before, start, started = threading.active_count(), threading.Thread.start, []

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        started.append(thread)
        if len(started) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(jit, "processors", lambda: 3)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    texts = [f"define void @f{number}() {{ ret void }}" for number in range(3)]
    for _ in range(5):  # either of them may be the first to find that there is no more
        started.clear()
        with pytest.raises(KeyboardInterrupt):
            jit.compile_objects(texts, host_target())
        assert threading.active_count() == before


def test_missing_symbols_are_an_error() -> None:
    text = "declare void @nobody()\ndefine void @f() {\n call void @nobody()\n ret void\n}"
    images = jit.compile_objects([text], host_target())
    with pytest.raises(jit.CodegenError):
        jit.link_objects(images, ["f"])
    callback = ctypes.CFUNCTYPE(None)(lambda: None)
    address = ctypes.cast(callback, ctypes.c_void_p).value or 0
    library = jit.link_objects(images, ["f"], {"nobody": address})
    ctypes.CFUNCTYPE(None)(library.addresses["f"])()


def test_objects_are_the_same_each_time_and_from_any_thread() -> None:
    module = Module(host_target())
    with FunctionBuilder(module, "f", [("i64", "x")], "i64") as b:
        b.ret(b.mul(b.args[0], 3))
    images: list[bytes] = []
    threads = [
        threading.Thread(
            target=lambda: images.extend(jit.compile_objects([module.text()] * 3, module.target))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(images) == 12
    assert len(set(images)) == 1
    library = jit.link_objects(images[:1], ["f"])
    signature = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    assert signature(library.addresses["f"])(14) == 42


@pytest.mark.parametrize("size", (1, 400, 100_000))
def test_parts_are_the_module(size: int) -> None:
    module, taken = Module(host_target()), list[str]()
    module.parts = Parts(module, size, taken.append)
    ready: list[int] = []

    def define(name: str, body: Callable[[FunctionBuilder], Val], *, internal: bool) -> None:
        with FunctionBuilder(module, name, [("i64", "x")], "i64", internal=internal) as b:
            b.ret(body(b))
        ready.append(len(taken))

    def looked_up(b: FunctionBuilder) -> Val:
        table = module.table("numbers", "i64", [3, 5, 7])
        return b.load("i64", b.at("i64", table, b.args[0]))

    define("inner", looked_up, internal=True)
    define("unshared", lambda b: b.add(b.args[0], 1), internal=True)
    define("g", lambda b: b.add(b.call("inner", "i64", b.args[0]), looked_up(b)), internal=False)
    define(
        "f",
        lambda b: b.mul(b.call("g", "i64", b.args[0]), b.call("g", "i64", b.args[0])),
        internal=False,
    )
    module.parts.end()
    parts: list[str] = []
    module.write_parts(size, parts.append)
    assert parts == taken
    assert len(parts) == {1: 4, 400: 2, 100_000: 1}[size]
    assert ready == {1: [0, 1, 2, 3], 400: [0, 0, 0, 1], 100_000: [0, 0, 0, 0]}[size]
    kind = "internal" if len(parts) == 1 else "hidden"
    assert sum(part.count(f"define {kind}") for part in parts) == 2
    library = jit.link_objects(jit.compile_objects(parts, module.target), ["f"])
    signature = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    assert [signature(library.addresses["f"])(i) for i in range(3)] == [36, 100, 196]


def in_a_process(program: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


LINKED_AMONG_MAPPINGS = """
import ctypes, mmap
from lucid.codegen.llvm import jit
from lucid.codegen.llvm.target import host_target

numbers = ", ".join(f"i64 {3 * i}" for i in range(14_336))
texts = [f'''@numbers = internal constant [14336 x i64] [{numbers}]
define i64 @g(i64 %i) {{
  %place = getelementptr i64, ptr @numbers, i64 %i
  %number = load i64, ptr %place
  ret i64 %number
}}''', '''declare i64 @g(i64)
define i64 @f(i64 %i) {
  %number = call i64 @g(i64 %i)
  ret i64 %number
}''']
images = jit.compile_objects(texts, host_target())
kept = []
for _ in range(300):
    library = jit.link_objects(images, ["f"])
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.addresses["f"])
    assert function(14) == 42
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    kept += [library, mmap.mmap(-1, 1 << 28, private, mmap.PROT_READ)]
"""


@pytest.mark.skipif(sys.platform == "win32", reason="maps memory as POSIX does")
def test_code_and_its_constants_lie_together_whatever_is_mapped_in_between() -> None:
    """300 libraries as large as a transformer's step, among 75 GiB of other mappings."""
    in_a_process(LINKED_AMONG_MAPPINGS)


DROPPED = """
import mmap
from pathlib import Path
from lucid.codegen.llvm import jit
from lucid.codegen.llvm.target import host_target

def code_bytes():  # of what is no file's
    found = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, mode, *rest = line.split()
        if mode == "r-xp" and len(rest) == 3:
            start, _, stop = addresses.partition("-")
            found += int(stop, 16) - int(start, 16)
    return found

images = jit.compile_objects(["define void @f() {\\n ret void\\n}"], host_target())
before = code_bytes()
libraries = [jit.link_objects(images, ["f"]) for _ in range(20)]
assert code_bytes() == before + 20 * mmap.PAGESIZE
del libraries
assert code_bytes() == before
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the mappings of the process")
def test_the_code_of_dropped_libraries_is_given_back() -> None:
    """In a process of its own, where nobody else links code, or drops it."""
    in_a_process(DROPPED)
