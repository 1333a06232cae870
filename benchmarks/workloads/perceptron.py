"""Perceptrons: the digits example, and sizes that are bound by calls, by caches, by FMAs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from workloads.workload import (
    Arrays,
    Gradients,
    Loss,
    Model,
    Optimizer,
    Workload,
    cross_entropy_of,
    normal,
    uniform,
)


def layers(sizes: Sequence[int]) -> Arrays:
    """Weights w0, b0, w1, …, as PyTorch draws them."""
    rng = np.random.default_rng(0)
    arrays = {}
    for i, (n, m) in enumerate(pairwise(sizes)):
        arrays[f"w{i}"] = uniform(rng, n, m, n)
        arrays[f"b{i}"] = uniform(rng, n, m)
    return arrays


def torch_model(depth: int, activation: Callable[[Any], Any]) -> Callable[[Any], Model]:
    """Linear layers with an activation between them."""

    def of(torch: Any) -> Model:
        F, act = torch.nn.functional, activation(torch)

        def model(P: Any, x: Any) -> Any:
            for i in range(depth - 1):
                x = act(F.linear(x, P[f"w{i}"], P[f"b{i}"]))
            return F.linear(x, P[f"w{depth - 1}"], P[f"b{depth - 1}"])

        return model

    return of


def jax_loss(depth: int, activation: Callable[[], Any]) -> Callable[[], Loss]:
    """The same with jax, and the cross-entropy."""

    def of() -> Loss:
        import jax
        import jax.numpy as jnp

        act = activation()

        def loss(P: Any, x: Any, y: Any) -> Any:
            for i in range(depth - 1):
                x = act(x @ P[f"w{i}"].T + P[f"b{i}"])
            scores = jax.nn.log_softmax(x @ P[f"w{depth - 1}"].T + P[f"b{depth - 1}"])
            return -jnp.take_along_axis(scores, y[:, None], 1).mean()

        return loss

    return of


def numpy_gradients(depth: int) -> Callable[[], Gradients]:
    """With relu, by hand."""

    def of() -> Gradients:
        def run(P: Arrays, x: np.ndarray, y: np.ndarray) -> tuple[float, Arrays]:
            inputs = [x]
            for i in range(depth - 1):
                z = inputs[-1] @ P[f"w{i}"].T
                z += P[f"b{i}"]
                inputs.append(np.maximum(z, 0, out=z))
            z = inputs[-1] @ P[f"w{depth - 1}"].T
            z += P[f"b{depth - 1}"]
            z -= z.max(1, keepdims=True)
            rows, picked = np.arange(len(y)), z[np.arange(len(y)), y]
            g = np.exp(z, out=z)
            total = g.sum(1, keepdims=True)
            loss = (np.log(total[:, 0]) - picked).mean()
            g /= total
            g[rows, y] -= 1
            g *= np.float32(1 / len(y))
            grads = {}
            for i in reversed(range(depth)):
                grads[f"w{i}"] = g.T @ inputs[i]
                grads[f"b{i}"] = g.sum(0)
                if i:
                    g = g @ P[f"w{i}"]
                    g *= inputs[i] > 0
            return float(loss), grads

        return run

    return of


def relu(batch: int, sizes: Sequence[int], optimizer: Optimizer) -> Workload:
    """A perceptron with relu on random data."""
    rng = np.random.default_rng(1)
    batches = [(normal(rng, batch, sizes[0]), rng.integers(0, sizes[-1], batch)) for _ in range(4)]
    depth = len(sizes) - 1
    model = torch_model(depth, lambda torch: torch.relu)

    def jax_relu() -> Any:
        import jax

        return jax.nn.relu

    return Workload(
        f"{batch}x{'-'.join(map(str, sizes))} perceptron, {optimizer.name}",
        layers(sizes),
        batches,
        cross_entropy_of(model),
        jax_loss(depth, jax_relu),
        optimizer,
        numpy_gradients(depth),
        model,
        sizes[-1],
    )


def tiny() -> Workload:
    """17,000 multiplications per example: calls and dispatch weigh most."""
    return relu(32, (64, 64, 64, 10), Optimizer("SGD", 0.1))


def small() -> Workload:
    """All data fit the cache of one core."""
    return relu(64, (64, 128, 128, 10), Optimizer("Adam", 1e-3))


def medium() -> Workload:
    """Products take most of the time, and a call's own cost still shows."""
    return relu(128, (64, 256, 256, 10), Optimizer("Adam", 1e-3))


def large() -> Workload:
    """2 M parameters: products, and the traffic of Adam."""
    return relu(256, (784, 1024, 1024, 10), Optimizer("Adam", 1e-3))


def swish(torch: Any) -> Any:
    """x * sigmoid(x) as a custom Function."""

    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            s = torch.sigmoid(x)
            ctx.save_for_backward(x, s)
            return x * s

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, s = ctx.saved_tensors
            return grad * s * (1 + x * (1 - s))

    return Swish.apply


def jax_swish() -> Any:
    """The same with jax."""
    import jax

    @jax.custom_vjp
    def act(x: Any) -> Any:
        return x * jax.nn.sigmoid(x)

    def forward(x: Any) -> Any:
        s = jax.nn.sigmoid(x)
        return x * s, (x, s)

    def backward(saved: Any, g: Any) -> Any:
        x, s = saved
        return (g * s * (1 + x * (1 - s)),)

    act.defvjp(forward, backward)
    return act


def digits() -> Workload:
    """The step of examples/digits.py: a custom activation, clipping, AdamW, on its data."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    order = order[: len(order) // 64 * 64].reshape(-1, 64)
    x, y = (data.data / 16).astype(np.float32), data.target.astype(np.int64)
    return Workload(
        "examples/digits.py: 64x64-128-128-10, custom Swish, clipping, AdamW",
        layers((64, 128, 128, 10)),
        [(x[rows], y[rows]) for rows in order],
        cross_entropy_of(torch_model(3, swish)),
        jax_loss(3, jax_swish),
        Optimizer("AdamW", 1e-3, decay=1e-2, clip=1.0),
    )
