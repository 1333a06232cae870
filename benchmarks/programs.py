"""The training step of examples/digits.py, once per framework.

Each program is what that framework's own users would write for speed: batches converted
beforehand, the whole step handed to the compiler where it takes it. All start from the same
weights and see the same batches. A program is `step(i) -> loss` and `value(loss) -> float`,
which waits for the result.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

Step = Callable[[int], Any]
Program = tuple[Step, Callable[[Any], float]]
Batches = list[tuple[np.ndarray, np.ndarray]]

BATCH = 64
SIZES = (64, 128, 128, 10)
RATE, DECAY, CLIP = 1e-3, 1e-2, 1.0
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


def initial_weights() -> list[np.ndarray]:
    """Weights f32[out,in] and biases f32[out], alternating, as PyTorch draws them."""
    rng = np.random.default_rng(0)
    weights = []
    for n, m in pairwise(SIZES):
        bound = 1 / math.sqrt(n)
        weights += [rng.uniform(-bound, bound, shape) for shape in ((m, n), (m,))]
    return [w.astype(np.float32) for w in weights]


def torch_like(L: Any, batches: Batches, compile_step: Any, compile_loss: Any, **adam: Any) -> Step:
    """The step with PyTorch's API, on `L`: torch or lucid."""
    F = L.nn.functional

    class Swish(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            s = L.sigmoid(x)
            ctx.save_for_backward(x, s)
            return x * s

        @staticmethod
        def backward(ctx, grad):
            x, s = ctx.saved_tensors
            return grad * s * (1 + x * (1 - s))

    class Activation(L.nn.Module):
        def forward(self, x):
            return Swish.apply(x)

    layers: list[Any] = []
    for n, m in pairwise(SIZES):
        layers += [L.nn.Linear(n, m), Activation()]
    model = L.nn.Sequential(*layers[:-1])
    with L.no_grad():
        for p, w in zip(model.parameters(), initial_weights(), strict=True):
            p.copy_(L.from_numpy(w))
    opt = L.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY, **adam)
    tensors = [(L.from_numpy(x), L.from_numpy(y)) for x, y in batches]

    @compile_loss
    def loss_of(x, y):
        return F.cross_entropy(model(x), y)

    @compile_step
    def train_step(x, y):
        opt.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        L.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        opt.step()
        return loss

    return lambda i: train_step(*tensors[i % len(tensors)])


def as_is(f: Any) -> Any:
    """Decorate with nothing."""
    return f


def lucid(batches: Batches, mode: str | None = None) -> Program:
    """The whole step in `lucid.compile`."""
    import lucid as L

    compile_step = partial(L.compile, mode=mode) if mode else L.compile
    return torch_like(L, batches, compile_step, as_is), lambda loss: loss.item()


def lucid_eager(batches: Batches) -> Program:
    """The same op by op."""
    return lucid(batches, mode="eager")


def torch_eager(batches: Batches, compile_loss: bool = False) -> Program:
    """PyTorch op by op, with its fused optimizer."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    step = torch_like(torch, batches, as_is, torch.compile if compile_loss else as_is, fused=True)
    return step, lambda loss: loss.item()


def torch_compile(batches: Batches) -> Program:
    """Forward and loss compiled; `backward()` inside of a compiled function is not supported."""
    return torch_eager(batches, compile_loss=True)


def jax_jit(batches: Batches) -> Program:
    """The step as one pure function in `jax.jit`, its state donated."""
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp
    def swish(x):
        return x * jax.nn.sigmoid(x)

    def forward(x):
        s = jax.nn.sigmoid(x)
        return x * s, (x, s)

    def backward(saved, g):
        x, s = saved
        return (g * s * (1 + x * (1 - s)),)

    swish.defvjp(forward, backward)

    def loss_of(weights, x, y):
        for w, b in zip(weights[:-2:2], weights[1:-2:2], strict=True):
            x = swish(x @ w.T + b)
        scores = jax.nn.log_softmax(x @ weights[-2].T + weights[-1])
        return -jnp.take_along_axis(scores, y[:, None], 1).mean()

    def adamw(w, m, v, g, t):
        m = BETA1 * m + (1 - BETA1) * g
        v = BETA2 * v + (1 - BETA2) * g * g
        unbiased = jnp.sqrt(v / (1 - BETA2**t)) + EPSILON
        return w * (1 - RATE * DECAY) - RATE / (1 - BETA1**t) * m / unbiased, m, v

    def train_step(state, x, y):
        weights, ms, vs, t = state
        loss, gs = jax.value_and_grad(loss_of)(weights, x, y)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gs))
        scale = jnp.minimum(CLIP / (norm + 1e-6), 1.0)
        updated = [
            adamw(*args, t + 1)
            for args in zip(weights, ms, vs, [g * scale for g in gs], strict=True)
        ]
        weights, ms, vs = (list(column) for column in zip(*updated, strict=True))
        return (weights, ms, vs, t + 1), loss

    compiled = jax.jit(train_step, donate_argnums=0)
    arrays = [(jnp.asarray(x), jnp.asarray(y)) for x, y in batches]
    weights = [jnp.asarray(w) for w in initial_weights()]
    state = (
        weights,
        [jnp.zeros_like(w) for w in weights],
        [jnp.zeros_like(w) for w in weights],
        jnp.float32(0),
    )

    def step(i):
        nonlocal state
        state, loss = compiled(state, *arrays[i % len(arrays)])
        return loss

    return step, float


PROGRAMS: dict[str, Callable[[Batches], Program]] = {
    "lucid": lucid,
    "lucid eager": lucid_eager,
    "torch eager": torch_eager,
    "torch.compile": torch_compile,
    "jax.jit": jax_jit,
}
