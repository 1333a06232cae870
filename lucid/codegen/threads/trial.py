"""Whether the threads help a step is tried out while it runs, again from time to time.

How fast one processor gets what another one wrote depends on where the two are, on a virtual
machine also on what its host does at the moment; and another process may take one of them. A step
of many short kernels may then take longer on two processors than on one. Results are the same
either way.

A step keeps its notes in the record of each context that it runs in, behind those on errors.
"""

from __future__ import annotations

from lucid.codegen import costs
from lucid.codegen.llvm.builder import FunctionBuilder, Val, const
from lucid.codegen.llvm.clock import counter_of
from lucid.codegen.threads.pool import FIRST_WORKER, WORKERS

# Words of the record: calls so far; 1 if this one is alone; the shortest times with threads and
# without, in ticks; 1 if alone was the better way; the workers that there were.
CALLS, ALONE, BEST, BEST_ALONE, CHOICE, WORKERS_THEN = range(2, 8)
_NEVER = (1 << 63) - 1
NOBODY = "nobody"  # the state of a pool that has no workers


class Trial:
    """The trial of one step.

    Args:
        record: address of the step's record; `pool`: of the pool's state.
    """

    def __init__(self, b: FunctionBuilder, record: Val, pool: Val) -> None:
        self._b = b
        self._record = record
        self._pool = pool

    def keep(self) -> None:
        """Do as was chosen."""
        self._set(ALONE, self._get(CHOICE))

    def begin(self) -> None:
        """Decide for this call, and look at the clock. Other workers are a reason to try anew."""
        b = self._b
        workers = b.load("i64", b.at("i8", self._pool, WORKERS))
        with b.if_(b.ne(workers, self._get(WORKERS_THEN))):
            self._set(WORKERS_THEN, workers)
            self._set(CALLS, const("i64", 0))
        calls = self._get(CALLS)
        self._set(CALLS, b.add(calls, 1))
        self._place = b.and_(calls, costs.TRIAL_PERIOD - 1)
        with b.if_(b.eq(self._place, 0)):
            self._set(BEST, const("i64", _NEVER))
            self._set(BEST_ALONE, const("i64", _NEVER))
        self._is_tried = b.lt(self._place, costs.TRIAL_CALLS)
        tried = b.cast("zext", b.ge(self._place, costs.TRIAL_CALLS // 2), "i64")
        self._way = b.select(self._is_tried, tried, self._get(CHOICE))
        self._set(ALONE, self._way)
        self._start = b.call(counter_of(b.target), "i64")

    def end(self) -> None:
        """Note the time of a call that was tried; choose after the last one."""
        b = self._b
        with b.if_(self._is_tried):
            taken = b.sub(b.call(counter_of(b.target), "i64"), self._start)
            best = b.at("i64", self._record, b.add(self._way, BEST))
            known = b.load("i64", best)
            b.store(b.select(b.lt(taken, known), taken, known), best)
            with b.if_(b.eq(self._place, costs.TRIAL_CALLS - 1)):
                alone = b.lt(self._get(BEST_ALONE), self._get(BEST))
                self._set(CHOICE, b.cast("zext", alone, "i64"))

    def pool(self) -> Val:
        """The pool that runs regions in this call: the true one, or one without workers."""
        b = self._b
        nobody = f"@{NOBODY} = internal global [{FIRST_WORKER // 8} x i64] zeroinitializer"
        b.module.globals.setdefault(NOBODY, nobody)
        return b.select(b.ne(self._get(ALONE), 0), Val("ptr", f"@{NOBODY}"), self._pool)

    def _get(self, word: int) -> Val:
        return self._b.load("i64", self._b.at("i64", self._record, word))

    def _set(self, word: int, value: Val) -> None:
        self._b.store(value, self._b.at("i64", self._record, word))
