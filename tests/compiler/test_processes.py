"""Compiled steps in forked processes, in threads of all kinds, and when the interpreter ends."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.runtime.threads import pool

ROWS = 512  # enough for threads to share the work


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = lucid.get_num_threads()
    lucid.set_num_threads(2)
    yield
    lucid.set_num_threads(before)


def training(seed: int) -> Callable[[], float]:
    """A step whose kernels threads share; it returns the loss."""
    rng = np.random.default_rng(seed)
    x = lucid.tensor(rng.standard_normal((ROWS, 256), np.float32))
    weight = lucid.tensor(rng.standard_normal((256, 256), np.float32) / 16, requires_grad=True)
    optimizer = lucid.optim.SGD([weight], lr=1e-2)

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        optimizer.zero_grad()
        loss: lucid.Tensor = ((lucid.tanh(x @ weight) - x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    def run() -> float:
        return float(step(x).item())

    run()
    assert step._latest_program().executable.shared_count
    return run


def losses(seed: int, count: int = 5) -> list[float]:
    run = training(seed)
    return [run() for _ in range(count)]


def test_the_number_of_threads_is_what_was_set() -> None:
    for count in (1, 3, 2):
        lucid.set_num_threads(count)
        assert lucid.get_num_threads() == count
        losses(0, 1)
        workers = [t for t in threading.enumerate() if t.name.startswith("lucid-")]
        assert len(workers) == count - 1


@pytest.mark.parametrize("count", [1, 2, 3])
def test_training_is_the_same_for_any_number_of_threads(count: int) -> None:
    expected = losses(7)
    lucid.set_num_threads(count)
    assert losses(7) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_workers_train_while_the_parent_has_threads() -> None:
    expected = [losses(seed) for seed in range(4)]
    run = training(9)
    before = run()
    with multiprocessing.get_context("fork").Pool(2) as processes:
        found = processes.map_async(losses, range(4))
        for _ in range(20):
            assert run() <= before
        assert found.get(60) == expected
    assert pool.awake
    assert losses(0) == expected[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_step_goes_on_in_a_child_forked_beside_running_ones() -> None:
    """Another thread is in the middle of a step at each fork."""
    run, other = training(1), training(2)
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            other()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(5):
            before = run()
            child = os.fork()
            if child == 0:
                os._exit(0 if run() < before and run() < before else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        is_over.set()
        thread.join()


def test_threads_train_models_of_their_own_at_once() -> None:
    expected = [losses(seed, 8) for seed in range(3)]
    found: dict[int, list[float]] = {}
    threads = [
        threading.Thread(target=lambda seed=seed: found.update({seed: losses(seed, 8)}))
        for seed in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed] for seed in range(3)] == expected


def test_an_error_in_a_shared_step_leaves_the_pool_usable() -> None:
    table = lucid.zeros(ROWS * 4, 256)
    step = lucid.compile(lambda i: lucid.tanh(table[i]).sum())
    good = lucid.arange(ROWS * 4)
    wrong = good.clone()
    wrong[3] = ROWS * 4
    for _ in range(4):
        assert step(good).item() == 0
        with pytest.raises(lucid.IndexOutOfRangeError):
            step(wrong)
    assert losses(3) == losses(3)


SCRIPT = """
import sys, threading, time, os
import lucid
{before}
x = lucid.ones(1 << 20)
step = lucid.compile(lambda x: lucid.tanh(x).exp())
def work(): return [step(x) for _ in range(3)]
work()
{after}
print(lucid.get_num_threads(), flush=True)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "time.sleep(0.1)  # the workers park"),
        ("", "threading.Thread(target=lambda: [work() for _ in range(50)], daemon=True).start()"),
        ("", "threading.Thread(target=lambda: [work() for _ in range(5)]).start()"),
        ("import atexit; atexit.register(lambda: work())", ""),
        ("", "lucid.set_num_threads(1); work(); lucid.set_num_threads(2); work()"),
        ("sys.setswitchinterval(1e-6)", "t = threading.Thread(target=work); t.start(); work()"),
    ],
)
def test_the_interpreter_ends_whatever_the_threads_do(before: str, after: str) -> None:
    assert run(SCRIPT.format(before=before, after=after), LUCID_NUM_THREADS="2") == "2"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_the_processors_that_a_process_may_use_set_the_number() -> None:
    one = f"os.sched_setaffinity(0, [{min(os.sched_getaffinity(0))}])"
    assert run(SCRIPT.format(before=one, after="")) == "1"


def run(script: str, **given: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "LUCID_NUM_THREADS"}
    environment |= {"PYTHONPATH": ":".join(sys.path)} | given
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


def test_an_import_leaves_what_few_programs_need_for_later() -> None:
    late = "doctest", "unittest", "pdb", "llvmlite", "networkx"
    script = f"import sys, lucid; print([name for name in {late} if name in sys.modules])"
    assert run(script) == "[]"


def test_a_model_that_is_trained_in_a_thread_is_seen_by_others() -> None:
    model = nn.Linear(256, 256)
    optimizer = lucid.optim.SGD(model.parameters(), lr=1e-2)
    x = lucid.ones(ROWS, 256)

    @lucid.compile
    def step(x: lucid.Tensor) -> None:
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()

    evaluate = lucid.compile(lambda x: (model(x) ** 2).mean())
    before = evaluate(x).item()
    thread = threading.Thread(target=lambda: [step(x) for _ in range(5)])
    thread.start()
    thread.join()
    assert evaluate(x).item() < before


def test_free_threaded_interpreters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [name for name in sys.modules if name.startswith(("lucid.compiler", "lucid.runtime"))]
    for name in modules:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("sysconfig.get_config_var", {"Py_GIL_DISABLED": 1}.get)
    with pytest.raises(ImportError) as found:
        importlib.import_module("lucid.compiler")
    assert isinstance(found.value, lucid.LucidError)
    assert str(found.value) == (
        f"lucid.compiler: Python {sys.version.split()[0]} is a free-threaded build, whose objects "
        "compiled code can't share with other threads\n"
        "hint: use the ordinary build, such as python3.13 in place of python3.13t"
    )
