"""Memory of large results: the same pages again and again, and never while anything shows them."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.runtime.recycling import LARGE_BYTES, Recycling, recycling

SIZE = 1 << 20  # elements: 4 MB of f32
F32 = np.dtype(np.float32)


def large(memory: Recycling, nbytes: int = 1 << 22) -> np.ndarray:
    return memory.empty((nbytes // 4,), F32, nbytes)


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def doubling() -> Callable[[lucid.Tensor], lucid.Tensor]:
    return lucid.compile(lambda x: x + x)  # type: ignore[no-any-return]


def test_memory_comes_back_when_the_array_dies() -> None:
    memory = Recycling()
    array = large(memory)
    first = address(array)
    assert (memory.lent, memory.idle) == (1 << 22, 0)
    del array
    assert (memory.lent, memory.idle) == (0, 1 << 22)
    assert address(large(memory)) == first


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize(
    "hold",
    [
        lambda a: a,
        lambda a: a[5:7],
        lambda a: a.reshape(4, -1).T,
        lambda a: a.view(np.int32)[:1],
        lambda a: memoryview(a),
        lambda a: np.from_dlpack(a),
        lambda a: lucid.from_numpy(a)[3:],
    ],
)
def test_memory_stays_as_long_as_anything_shows_it(hold: Callable[[np.ndarray], Any]) -> None:
    memory = Recycling()
    array = large(memory)
    array[:] = 7
    held = hold(array)
    del array
    gc.collect()
    other = large(memory)
    other[:] = 1
    if isinstance(held, lucid.Tensor):
        held = held.numpy()
    assert np.all(np.asarray(held).view(F32) == 7)
    assert memory.lent == 2 << 22
    del held, other
    gc.collect()
    assert memory.lent == 0


def test_small_arrays_are_left_to_numpy() -> None:
    memory = Recycling()
    array = memory.empty((4,), F32, LARGE_BYTES - 1)
    assert array.base.flags.owndata
    assert memory.lent == 0
    assert memory.empty((4,), F32, 16).base is None


def test_idle_memory_is_bounded_by_what_is_in_use() -> None:
    memory = Recycling(idle_bytes=1 << 22)
    arrays = [large(memory) for _ in range(6)]
    del arrays[3:]
    assert (memory.lent, memory.idle) == (3 << 22, 3 << 22)
    arrays.clear()
    assert (memory.lent, memory.idle) == (0, 1 << 22)


def test_memory_that_waits_for_longest_goes_first() -> None:
    memory = Recycling(idle_bytes=1 << 22)
    old, new = large(memory, 1 << 21), large(memory, 1 << 22)
    place = address(new)
    del old, new
    assert memory.idle == 1 << 22
    assert address(large(memory, 1 << 22)) == place


def test_threads_that_borrow_at_once_get_memory_of_their_own() -> None:
    memory = Recycling()
    wrong: list[object] = []

    def borrow(mark: int) -> None:
        for _ in range(200):
            held = [large(memory, LARGE_BYTES) for _ in range(3)]
            for array in held:
                array[::1024] = mark
            if not all(np.all(array[::1024] == mark) for array in held):
                wrong.append(mark)

    threads = [threading.Thread(target=borrow, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert memory.lent == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_recycles_too() -> None:
    """Also where another thread held the lock at the fork."""
    with recycling._lock:
        child = os.fork()
        if child == 0:
            first = address(large(recycling))
            os._exit(address(large(recycling)) != first)
    assert os.waitpid(child, 0)[1] == 0


def test_a_step_that_drops_its_large_result_writes_to_the_same_memory_again() -> None:
    double, x = doubling(), lucid.ones(SIZE)
    places = [address(double(x).numpy()) for _ in range(4)]
    assert len(set(places)) == 1


def test_a_large_result_is_never_written_again_while_it_is_held() -> None:
    double, x = doubling(), lucid.ones(SIZE)
    kept = []
    for i in range(6):
        x.fill_(float(i))
        result = double(x)
        kept.append(result if i % 2 else result[1:2])
        del result
    assert [float(k.numpy()[0]) for k in kept] == [0, 2, 4, 6, 8, 10]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts page faults of Linux")
def test_a_step_with_large_gradients_touches_no_new_pages() -> None:
    import resource

    x = lucid.ones(SIZE, requires_grad=True)

    @lucid.compile
    def step(scale: lucid.Tensor) -> lucid.Tensor:
        x.grad = None
        loss = (x * x * scale).sum()
        loss.backward()
        return loss

    def run(count: int) -> None:
        for i in range(count):
            step(lucid.tensor(float(i)))
            if i % 4 == 3:
                assert x.grad is not None
                assert x.grad.numpy()[-1] == 2 * i

    gc.disable()  # nothing may wait for it
    try:
        run(8)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        run(40)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    finally:
        gc.enable()
    assert faults < 1024  # one gradient has as many pages


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("nbytes", [LARGE_BYTES, 1 << 22, 1 << 23])
def test_what_a_forked_process_writes_stays_there(nbytes: int) -> None:
    array = large(Recycling(), nbytes)
    array[:] = 1
    child = os.fork()
    if child == 0:
        array[:] = 2
        os._exit(0)
    os.waitpid(child, 0)
    assert (array == 1).all()
