"""What this machine can do at most: its bandwidth, and its operations per second."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass

import numpy as np

from lucid.ir import ops
from lucid.ir.graph import Graph
from lucid.ir.types import TensorType, f32
from lucid.runtime.executable import compile_graph
from lucid.runtime.threads import pool

_SIDE = 256  # of a product of matrices: in a cache, and so short that others leave some calls alone
_ELEMENTS = 1 << 23  # 32 MB: more than caches hold
_SMALL = 1 << 13  # that a first-level cache holds
_SECONDS = 0.05  # that each measurement takes at least
_CALLS = 10  # that it has at least: one is slow when it touches memory first, or others run


@dataclass(frozen=True, slots=True)
class Roof:
    """The limits of a machine, as lucid's own kernels reach them.

    Attributes:
        flops: operations on f32 per second, of a product of matrices.
        bandwidth: bytes per second, from memory; cache_bandwidth: from the nearest cache.

    Reference: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model",
    2009.
    """

    flops: float
    bandwidth: float
    cache_bandwidth: float


def roof() -> Roof:
    """Measure it, once for a number of threads."""
    return _roof(pool.num_threads)


@functools.cache
def _roof(threads: int) -> Roof:
    product = _best(_product(), [np.ones((_SIDE, _SIDE), np.float32)] * 2)
    return Roof(
        2 * _SIDE**3 / product,
        8 * _ELEMENTS / _best(_map(_ELEMENTS), [np.ones(_ELEMENTS, np.float32)]),
        8 * _SMALL / _best(_map(_SMALL), [np.ones(_SMALL, np.float32)]),
    )


def _product() -> Graph:
    graph = Graph("product")
    type_ = TensorType(f32, (_SIDE, _SIDE))
    graph.outputs = [ops.matmul(graph.add_input(type_), graph.add_input(type_))]
    return graph


def _map(count: int) -> Graph:
    graph = Graph("map")
    value = graph.add_input(TensorType(f32, (count,)))
    graph.outputs = [ops.neg(value)]
    return graph


def _best(graph: Graph, inputs: list[np.ndarray]) -> float:
    """The shortest time of its kernel, by the processor's clock."""
    run = compile_graph(graph)
    reused, ticks = run.reusable([0]), list[int]()
    with run.timed() as timed:
        end = time.perf_counter() + _SECONDS
        while len(ticks) <= _CALLS or time.perf_counter() < end:
            run(inputs, reused)
            ticks.append(sum(timed.read()))
        return max(min(ticks[1:]), 1) * timed.seconds_per_tick()
