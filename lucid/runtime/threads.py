"""The threads that share the work of compiled steps."""

from __future__ import annotations

import atexit
import ctypes
import math
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from lucid.codegen.llvm.forking import Rank, hold_at_forks
from lucid.codegen.llvm.jit import Library, processors
from lucid.codegen.llvm.target import host_target
from lucid.codegen.threads import pool as code
from lucid.ir.environment import MOST_THREADS, NUM_THREADS
from lucid.ir.errors import OptionError
from lucid.runtime.cache import compiled

# Pauses for which a worker waits for the next region before it parks: about half a millisecond.
_SPINS = 20_000
_ROOM = code.state_bytes(MOST_THREADS - 1) + code.LINE


class Pool:
    """The workers of the process; `num_threads - 1` of them, besides the thread that calls.

    Attributes:
        address: of the state that compiled steps get.
        entry: address of the function that runs a region.
        awake: whether the workers have been started; a word at `awake_address`.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._memory = ctypes.create_string_buffer(_ROOM)
        start = ctypes.addressof(self._memory)
        self.address = start + -start % code.LINE
        self.awake_address = self.address + code.AWAKE
        self.entry = 0
        self._library: Library | None = None
        self._wanted: int | None = None
        self._threads: list[threading.Thread] = []
        self._locks: list[int] = []

    @property
    def awake(self) -> bool:
        return bool(ctypes.c_int64.from_address(self.awake_address).value)

    @property
    def num_threads(self) -> int:
        if self._wanted is None:
            self._wanted = default_num_threads()
        return self._wanted

    @num_threads.setter
    def num_threads(self, count: int) -> None:
        with self._lock:
            self.stop()
            self._wanted = count

    def load(self) -> None:
        """Make the machine code, so that `entry` is known."""
        with self._lock:
            if self._library is None:
                names = [code.RUN, code.WORK, code.WAKE]
                text = code.pool_text(host_target())
                self._library = compiled(text, host_target(), names, _imports())
                self.entry = self._library.addresses[code.RUN]

    def start(self) -> None:
        """Start the workers, if they aren't there."""
        with self._lock:
            if self.awake:
                return
            self.load()
            assert self._library is not None
            signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
            work = signature(self._library.addresses[code.WORK])
            # A thread that is started now would wait for the interpreter until that has ended.
            count = 0 if sys.is_finalizing() else self.num_threads - 1
            for number in range(count):
                self._prepare(number)
                args = self.address, number, _SPINS
                name = f"lucid-{number + 1}"
                thread = threading.Thread(target=work, args=args, name=name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # too little memory; or the interpreter shuts down
                    count = number
                    break
                self._threads.append(thread)
            self._set(code.WORKERS, count)
            self._set(code.AWAKE, 1)

    def _prepare(self, number: int) -> None:
        """Give a worker a lock, which it holds from the beginning."""
        while len(self._locks) <= number:
            lock = _allocate_lock()
            _acquire_lock(lock, 1)
            self._locks.append(lock)
        place = code.FIRST_WORKER + code.LINE * number
        self._set(place + code.PARKED, 0)
        self._set(place + code.LOCK, self._locks[number])

    def stop(self) -> None:
        """Let the workers leave, and wait for them; a running region is finished without them."""
        with self._lock:
            if not self.awake:
                return
            assert self._library is not None
            wake = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self._library.addresses[code.WAKE])
            self._set(code.STOP, 1)
            wake(self.address)
            try:
                for thread in self._threads:
                    thread.join()
            finally:
                self._threads.clear()
                self._set(code.WORKERS, 0)
                self._set(code.STOP, 0)
                self._set(code.AWAKE, 0)

    def forget(self) -> None:
        """Begin anew in a forked child: no other thread lives there, a region may be half run."""
        self._lock = threading.RLock()
        self._threads.clear()
        self._locks.clear()
        ctypes.memset(self.address, 0, code.state_bytes(MOST_THREADS - 1))

    def _set(self, place: int, value: int) -> None:
        ctypes.c_int64.from_address(self.address + place).value = value

    # Forks --------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Have a single thread at the fork; workers start again at the next call."""
        self._lock.acquire()
        self.stop()

    def after_fork(self) -> None:
        self._lock.release()


def _imports() -> dict[str, int]:
    """What the pool calls: locks of the interpreter, and the scheduler."""
    names = ("PyThread_acquire_lock", "PyThread_release_lock")
    found = {name: _address(getattr(ctypes.pythonapi, name)) for name in names}
    if sys.platform == "win32":
        found["lucid_yield"] = _address(ctypes.WinDLL("kernel32").SwitchToThread)
    else:
        found["lucid_yield"] = _address(ctypes.CDLL(None).sched_yield)
    if sys.platform == "linux":
        for name in ("sched_getcpu", "sched_getaffinity", "sched_setaffinity"):
            found[name] = _address(getattr(ctypes.CDLL(None), name))
    return found


def _address(function: object) -> int:
    value = ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]
    assert value is not None
    return value


_allocate_lock: Callable[[], int] = ctypes.PYFUNCTYPE(ctypes.c_void_p)(
    ("PyThread_allocate_lock", ctypes.pythonapi)
)
_acquire_lock: Callable[[int, int], int] = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int
)(("PyThread_acquire_lock", ctypes.pythonapi))

pool = Pool()
atexit.register(pool.stop)
hold_at_forks(Rank.WORKERS, pool.before_fork, pool.after_fork, pool.forget)


# How many -------------------------------------------------------------------------------------


def set_num_threads(count: int) -> None:
    """What `lucid.set_num_threads` does."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise OptionError(f"set_num_threads: an int is expected, not {count!r}")
    if not 1 <= count <= MOST_THREADS:
        raise OptionError(f"set_num_threads: 1 to {MOST_THREADS} threads are possible, not {count}")
    pool.num_threads = count


def default_num_threads() -> int:
    """What the environment says; else the processors that affinity and control group allow."""
    given = NUM_THREADS.read()
    if given is not None:
        return given
    count = processors()
    quota = processor_quota()
    if quota is not None:
        count = min(count, math.ceil(quota))
    return max(1, min(count, MOST_THREADS))


def processor_quota(root: Path = Path("/")) -> float | None:
    """How many processors the control groups of this process grant; None if they set no limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            place, read = root / "sys/fs/cgroup", _quota_of_v2
        elif "cpu" in controllers.split(","):
            place, read = root / "sys/fs/cgroup/cpu", _quota_of_v1
        else:
            continue
        folder = place / path.lstrip("/")
        for group in (folder, *folder.parents):
            if group.is_relative_to(place):
                limit = read(group)
                if limit is not None:
                    found.append(limit)
    return min(found, default=None)


def _quota_of_v2(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_of_v1(group: Path) -> float | None:
    try:
        quota = int((group / "cpu.cfs_quota_us").read_text())
        period = int((group / "cpu.cfs_period_us").read_text())
        return quota / period if quota > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
