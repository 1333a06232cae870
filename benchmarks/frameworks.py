"""A workload made runnable, once per framework.

Each program is what that framework's own users would write for speed: batches converted
beforehand, the whole step handed to the compiler where it takes it.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from workloads.workload import Arrays, Optimizer, Workload

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


@dataclass
class Part:
    """What is timed of a step: `run`; `before` brings about what it starts from."""

    before: Callable[[], object]
    run: Callable[[], object]


@dataclass
class Program:
    """A workload in one framework.

    Attributes:
        step: starts a training step on batch i.
        value: waits for its loss.
        state: the parameters, or the gradients if there is no optimizer.
        parts: of a step, by name, where they are timed alone.
        residual_bytes: what a call of the compiled model keeps for its backward.
    """

    step: Callable[[int], Any]
    value: Callable[[Any], float]
    state: Callable[[], Arrays]
    parts: dict[str, Part] = field(default_factory=dict)
    residual_bytes: Callable[[], int] = int


class UnavailableError(Exception):
    """This framework has no program for this workload."""


def torch_like(L: Any, w: Workload, whole: Any, part: Any, **flags: Any) -> Program:
    """The step with PyTorch's API on `L`; `whole` wraps it, `part` only the loss."""
    P = {k: L.tensor(v.copy(), requires_grad=True) for k, v in w.parameters.items()}
    leaves = list(P.values())
    batches = [tuple(L.tensor(a) for a in batch) for batch in w.batches]
    loss_of = part(w.torch_loss(L))
    opt = torch_optimizer(L, w.optimizer, leaves, flags) if w.optimizer else None
    clip = w.optimizer.clip if w.optimizer else None

    @whole
    def step(*batch: Any) -> Any:
        for p in leaves:
            p.grad = None
        loss = loss_of(P, *batch)
        loss.backward()
        if clip is not None:
            L.nn.utils.clip_grad_norm_(leaves, clip)
        if opt:
            opt.step()
        return loss

    def state() -> Arrays:
        return {k: (p.detach() if opt else p.grad).numpy() for k, p in P.items()}

    return Program(lambda i: step(*batches[i % len(batches)]), lambda loss: loss.item(), state)


def torch_optimizer(L: Any, o: Optimizer, leaves: list[Any], flags: dict[str, Any]) -> Any:
    """PyTorch's optimizer of that name."""
    decay = {"weight_decay": o.decay} if o.decay else {}
    return getattr(L.optim, o.name)(leaves, lr=o.rate, **decay, **flags)


def as_is(f: Any) -> Any:
    """Decorate with nothing."""
    return f


def lucid(w: Workload, mode: str | None = None) -> Program:
    """The whole step in `lucid.compile`."""
    import lucid as L

    L.set_num_threads(threads())
    return torch_like(L, w, partial(L.compile, mode=mode) if mode else L.compile, as_is)


def lucid_eager(w: Workload) -> Program:
    """The same op by op."""
    return lucid(w, mode="eager")


def torch_eager(w: Workload, compiler: Any = as_is) -> Program:
    """PyTorch op by op, with its fused optimizer."""
    import torch

    torch.set_num_threads(threads())
    return torch_like(torch, w, as_is, compiler, **({"fused": True} if w.optimizer else {}))


def torch_compile(w: Workload) -> Program:
    """Forward and loss compiled; `backward()` inside of a compiled function is not supported."""
    return torch_eager(w, torch_compiler())


def torch_compiler() -> Any:
    """`torch.compile`, which needs a C++ compiler."""
    import torch

    if shutil.which(os.environ.get("CXX", "g++")) is None:
        raise UnavailableError("torch.compile needs a C++ compiler, and there is none")
    return torch.compile


def threads() -> int:
    """How many this process may use."""
    return int(os.environ["OMP_NUM_THREADS"])


def jax_jit(w: Workload) -> Program:
    """The step as one pure function in `jax.jit`, its state donated."""
    import jax
    import jax.numpy as jnp

    loss_of, o = w.jax_loss(), w.optimizer
    P = {k: jnp.asarray(v) for k, v in w.parameters.items()}
    batches = [tuple(jnp.asarray(a) for a in batch) for batch in w.batches]

    def train(state: Any, *batch: Any) -> Any:
        P, moments, t = state
        loss, grads = jax.value_and_grad(loss_of)(P, *batch)
        if o.clip is not None:
            norm = jnp.sqrt(sum(jnp.sum(g * g) for g in grads.values()))
            grads = {k: g * jnp.minimum(o.clip / (norm + 1e-6), 1.0) for k, g in grads.items()}
        new = {k: updated(jnp, o, P[k], moments[k], grads[k], t + 1) for k in P}
        return ({k: v[0] for k, v in new.items()}, {k: v[1] for k, v in new.items()}, t + 1), loss

    if o is None:
        gradients = jax.jit(jax.value_and_grad(loss_of))
        state: Any = None

        def compiled(_: Any, *batch: Any) -> Any:
            return gradients(P, *batch)[::-1]
    else:
        compiled = jax.jit(train, donate_argnums=0)
        zeros = {k: moments_of(jnp, o, v) for k, v in P.items()}
        state = (P, zeros, jnp.float32(0))

    def step(i: int) -> Any:
        nonlocal state
        state, loss = compiled(state, *batches[i % len(batches)])
        return loss

    def arrays() -> Arrays:
        return {k: np.array(v) for k, v in (state if o is None else state[0]).items()}

    return Program(step, float, arrays)


def moments_of(xp: Any, o: Optimizer, p: Any) -> Any:
    """The state of Adam for one parameter; SGD has none."""
    return () if o.name == "SGD" else (xp.zeros_like(p), xp.zeros_like(p))


def updated(xp: Any, o: Optimizer, w: Any, moments: Any, g: Any, t: Any) -> tuple[Any, Any]:
    """One parameter and its moments after step `t`, as new arrays of NumPy or jax."""
    if o.name == "SGD":
        return w - o.rate * g, moments
    m, v = moments
    m = BETA1 * m + (1 - BETA1) * g
    v = BETA2 * v + (1 - BETA2) * g * g
    unbiased = xp.sqrt(v / (1 - BETA2**t)) + EPSILON
    return w * (1 - o.rate * o.decay) - o.rate / (1 - BETA1**t) * m / unbiased, (m, v)


def numpy(w: Workload) -> Program:
    """Forward, backward and update by hand, in place."""
    if w.numpy_gradients is None:
        raise UnavailableError("nobody wrote its gradients by hand")
    gradients, optimizer = w.numpy_gradients(), w.optimizer
    P = {k: v.copy() for k, v in w.parameters.items()}
    moments = {k: (np.zeros_like(v), np.zeros_like(v), np.zeros_like(v)) for k, v in P.items()}
    state = P
    t = 0

    def step(i: int) -> float:
        nonlocal state, t
        t += 1
        loss, grads = gradients(P, *w.batches[i % len(w.batches)])
        if optimizer is None:
            state = grads
        elif optimizer.name == "SGD":
            for k, p in P.items():
                p -= np.float32(optimizer.rate) * grads[k]
        else:
            for k, p in P.items():
                adam_in_place(optimizer.rate, p, moments[k], grads[k], t)
        return loss

    return Program(step, float, lambda: {k: np.array(v) for k, v in state.items()})


def adam_in_place(rate: float, p: np.ndarray, moments: Any, g: np.ndarray, t: int) -> None:
    """Update one parameter; the third of `moments` is scratch."""
    m, v, scratch = moments
    m *= np.float32(BETA1)
    m += np.multiply(g, np.float32(1 - BETA1), out=scratch)
    v *= np.float32(BETA2)
    np.multiply(g, g, out=g)
    v += np.multiply(g, np.float32(1 - BETA2), out=g)
    np.sqrt(v, out=scratch)
    scratch *= np.float32(1 / math.sqrt(1 - BETA2**t))
    scratch += np.float32(EPSILON)
    np.divide(m, scratch, out=scratch)
    scratch *= np.float32(rate / (1 - BETA1**t))
    p -= scratch


FRAMEWORKS: dict[str, Callable[[Workload], Program]] = {
    "lucid": lucid,
    "NumPy": numpy,
    "torch eager": torch_eager,
    "torch.compile": torch_compile,
    "jax.jit": jax_jit,
    "lucid eager": lucid_eager,
}
