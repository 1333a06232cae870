"""Bodies that attract each other: leapfrog steps, and how far the end is from what was seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from workloads.workload import Loss, Optimizer, Workload, normal

BODIES, STEPS, DT, SOFTENING = 64, 100, 1e-3, 1e-2


def _loss(sum_of: Any) -> Loss:
    """The same words for all frameworks; `sum_of(x, axis)` is their sum."""

    def accelerations(x: Any, mass: Any) -> Any:
        d = x[None] - x[:, None]
        r2 = sum_of(d * d, -1) + SOFTENING
        return sum_of(d * (mass * r2**-1.5)[..., None], 1)

    def loss(P: Any, x: Any, v: Any, seen: Any) -> Any:
        v = v + P["kick"]
        a = accelerations(x, P["mass"])
        for _ in range(STEPS):
            v = v + (0.5 * DT) * a
            x = x + DT * v
            a = accelerations(x, P["mass"])
            v = v + (0.5 * DT) * a
        return ((x - seen) ** 2).mean()

    return loss


def torch_loss(torch: Any) -> Loss:
    """Velocities and masses are fitted."""
    return _loss(lambda x, axis: x.sum(axis))


def jax_loss() -> Loss:
    """The same with jax."""
    return _loss(lambda x, axis: x.sum(axis))


def leapfrog() -> Workload:
    """64 bodies, 100 steps, differentiated with respect to 64 velocities and masses."""
    rng = np.random.default_rng(0)
    batches = [tuple(normal(rng, BODIES, 3) for _ in range(3)) for _ in range(2)]
    mass = rng.uniform(0.1, 1.0, BODIES).astype(np.float32)
    parameters = {"kick": normal(rng, BODIES, 3, scale=0.1), "mass": mass}
    title = f"{STEPS} leapfrog steps of {BODIES} bodies, SGD"
    return Workload(title, parameters, batches, torch_loss, jax_loss, Optimizer("SGD", 1e-2))
