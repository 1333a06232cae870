"""A small convolutional network."""

from __future__ import annotations

from typing import Any

import numpy as np

from workloads.workload import Loss, Optimizer, Workload, normal, uniform

BATCH = 64


def torch_loss(torch: Any) -> Loss:
    """Twice convolution, relu and pooling, then a linear layer."""
    F = torch.nn.functional

    def loss(P: Any, x: Any, y: Any) -> Any:
        for i in range(2):
            x = F.conv2d(x, P[f"k{i}"], P[f"b{i}"], padding=1)
            x = F.max_pool2d(F.relu(x), 2)
        return F.cross_entropy(F.linear(x.flatten(1), P["w"], P["b"]), y)

    return loss


def jax_loss() -> Loss:
    """The same with jax; a maximum over reshaped axes is its fastest pooling here."""
    import jax
    import jax.numpy as jnp

    def loss(P: Any, x: Any, y: Any) -> Any:
        for i in range(2):
            layout = ("NCHW", "OIHW", "NCHW")
            x = jax.lax.conv_general_dilated(
                x, P[f"k{i}"], (1, 1), "SAME", dimension_numbers=layout
            )
            x = jax.nn.relu(x + P[f"b{i}"][:, None, None])
            n, c, h, w = x.shape
            x = x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))
        scores = jax.nn.log_softmax(x.reshape(BATCH, -1) @ P["w"].T + P["b"])
        return -jnp.take_along_axis(scores, y[:, None], 1).mean()

    return loss


def two_layers() -> Workload:
    """Images of 28 x 28."""
    rng = np.random.default_rng(0)
    parameters = {
        "k0": uniform(rng, 9, 16, 1, 3, 3),
        "b0": uniform(rng, 9, 16),
        "k1": uniform(rng, 16 * 9, 32, 16, 3, 3),
        "b1": uniform(rng, 16 * 9, 32),
        "w": uniform(rng, 32 * 49, 10, 32 * 49),
        "b": uniform(rng, 32 * 49, 10),
    }
    batches = [(normal(rng, BATCH, 1, 28, 28), rng.integers(0, 10, BATCH)) for _ in range(4)]
    return Workload(
        "64 images of 28 x 28, two convolutions with pooling, SGD",
        parameters,
        batches,
        torch_loss,
        jax_loss,
        Optimizer("SGD", 0.05),
    )
