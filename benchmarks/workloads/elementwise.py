"""A chain of maps over four million elements: memory traffic and vector maths."""

from __future__ import annotations

from typing import Any

import numpy as np

from workloads.workload import Arrays, Gradients, Loss, Workload, normal

N = 4 << 20


def torch_loss(torch: Any) -> Loss:
    """Sum of tanh(a x + b) sigmoid(c x) + a exp(-x²)."""

    def loss(P: Any) -> Any:
        x, a, b, c = P["x"], P["a"], P["b"], P["c"]
        return (torch.tanh(a * x + b) * torch.sigmoid(c * x) + a * torch.exp(-x * x)).sum()

    return loss


def jax_loss() -> Loss:
    """The same with jax."""
    import jax
    import jax.numpy as jnp

    def loss(P: Any) -> Any:
        x, a, b, c = P["x"], P["a"], P["b"], P["c"]
        return (jnp.tanh(a * x + b) * jax.nn.sigmoid(c * x) + a * jnp.exp(-x * x)).sum()

    return loss


def numpy_gradients() -> Gradients:
    """By hand; coefficients may be scalars."""

    def run(P: Arrays) -> tuple[float, Arrays]:
        x, a, b, c = P["x"], P["a"], P["b"], P["c"]
        t, s, e = np.tanh(a * x + b), 1 / (1 + np.exp(-c * x)), np.exp(-x * x)
        inner = s * (1 - t * t)
        gate = t * s * (1 - s)
        grads = {
            "x": inner * a + gate * c - 2 * a * x * e,
            "a": inner * x + e,
            "b": inner,
            "c": gate * x,
        }
        if not a.ndim:
            grads |= {k: np.float32(grads[k].sum()) for k in "abc"}
        return float((t * s + a * e).sum()), grads

    return run


def workload(title: str, *shape: int) -> Workload:
    """With coefficients of a shape."""
    rng = np.random.default_rng(0)
    coefficients = {k: normal(rng, *shape, scale=0.5) + np.float32(0.5) for k in "abc"}
    parameters = {"x": normal(rng, N)} | {k: np.asarray(v) for k, v in coefficients.items()}
    return Workload(title, parameters, [()], torch_loss, jax_loss, None, numpy_gradients)


def vectors() -> Workload:
    """All coefficients are vectors."""
    return workload("4M-element chain of tanh, sigmoid, exp; all gradients", N)


def scalars() -> Workload:
    """The coefficients are scalars: their gradients are sums."""
    return workload("the same with scalar coefficients")
