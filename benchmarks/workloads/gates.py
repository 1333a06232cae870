"""A network of differentiable logic gates (Petersen et al., 2022): gathers and small softmaxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from workloads.workload import Loss, Optimizer, Workload, normal

BATCH, INPUTS, NEURONS, LAYERS, CLASSES, TAU, FACTOR = 128, 1024, 4096, 3, 16, 30.0, 2.0


def gates() -> np.ndarray:
    """f32[16,4]: each two-input gate as a polynomial, coefficients of 1, a, b, ab."""
    truth = (np.arange(16)[:, None] >> np.arange(4)[::-1]) & 1  # of (0,0), (0,1), (1,0), (1,1)
    f00, f01, f10, f11 = truth.T
    return np.stack([f00, f10 - f00, f01 - f00, f00 - f01 - f10 + f11], 1).astype(np.float32)


def wires() -> list[tuple[np.ndarray, np.ndarray]]:
    """Where each layer's neurons take their two inputs from."""
    rng = np.random.default_rng(7)
    widths = [INPUTS] + [NEURONS] * (LAYERS - 1)
    return [(rng.integers(0, n, NEURONS), rng.integers(0, n, NEURONS)) for n in widths]


def torch_loss(torch: Any) -> Loss:
    """Layers of gates; a custom Function scales the gradients between them."""
    F = torch.nn.functional
    table = torch.tensor(gates())
    places = [(torch.tensor(i), torch.tensor(j)) for i, j in wires()]

    class GradFactor(torch.autograd.Function):
        @staticmethod
        def forward(x: Any, factor: float) -> Any:
            return x.view_as(x)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.factor = inputs[1]

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.factor, None

    def loss(P: Any, x: Any, y: Any) -> Any:
        for layer, (i, j) in enumerate(places):
            if layer:
                x = GradFactor.apply(x, FACTOR)
            a, b = x[:, i], x[:, j]
            k = F.softmax(P[f"w{layer}"], dim=1) @ table
            x = k[:, 0] + k[:, 1] * a + k[:, 2] * b + k[:, 3] * (a * b)
        return F.cross_entropy(x.view(BATCH, CLASSES, -1).sum(-1) / TAU, y)

    return loss


def jax_loss() -> Loss:
    """The same with jax."""
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp
    def grad_factor(x: Any) -> Any:
        return x

    grad_factor.defvjp(lambda x: (x, None), lambda _, g: (g * FACTOR,))
    table, places = gates(), wires()

    def loss(P: Any, x: Any, y: Any) -> Any:
        for layer, (i, j) in enumerate(places):
            if layer:
                x = grad_factor(x)
            a, b = x[:, i], x[:, j]
            k = jax.nn.softmax(P[f"w{layer}"]) @ table
            x = k[:, 0] + k[:, 1] * a + k[:, 2] * b + k[:, 3] * (a * b)
        scores = jax.nn.log_softmax(x.reshape(BATCH, CLASSES, -1).sum(-1) / TAU)
        return -jnp.take_along_axis(scores, y[:, None], 1).mean()

    return loss


def logic() -> Workload:
    """Three layers of 4096 neurons."""
    rng = np.random.default_rng(0)
    batches = [
        (rng.random((BATCH, INPUTS), np.float32), rng.integers(0, CLASSES, BATCH)) for _ in range(4)
    ]
    parameters = {f"w{i}": normal(rng, NEURONS, 16) for i in range(LAYERS)}
    title = "3 x 4096 logic gates with GradFactor, batch 128, Adam"
    return Workload(title, parameters, batches, torch_loss, jax_loss, Optimizer("Adam", 1e-2))
