"""A character-level transformer like nanoGPT's, its output tied to the embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from workloads.workload import Loss, Model, Optimizer, Workload, cross_entropy_of, normal

LAYERS, WIDTH, HEADS, LENGTH, BATCH, CHARACTERS, EPSILON = 4, 128, 4, 64, 16, 65, 1e-5
HEAD = WIDTH // HEADS


def torch_model(torch: Any) -> Model:
    """Blocks of attention and perceptron before the residual, no biases."""
    F = torch.nn.functional

    def heads(x: Any) -> Any:
        return x.view(BATCH, LENGTH, HEADS, HEAD).transpose(1, 2)

    def block(P: Any, i: int, x: Any) -> Any:
        h = F.layer_norm(x, (WIDTH,), P[f"norm_a{i}"], None, EPSILON)
        q, k, v = map(heads, F.linear(h, P[f"qkv{i}"]).split(WIDTH, dim=2))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(h.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH), P[f"out{i}"])
        h = F.layer_norm(x, (WIDTH,), P[f"norm_b{i}"], None, EPSILON)
        return x + F.linear(F.gelu(F.linear(h, P[f"up{i}"])), P[f"down{i}"])

    def model(P: Any, text: Any) -> Any:
        x = F.embedding(text, P["characters"]) + P["places"]
        for i in range(LAYERS):
            x = block(P, i, x)
        x = F.layer_norm(x, (WIDTH,), P["norm"], None, EPSILON)
        return F.linear(x, P["characters"]).view(-1, CHARACTERS)

    return model


def jax_loss() -> Loss:
    """The same with jax, and the cross-entropy.

    Products are on flattened rows, which XLA's CPU backend likes better.
    """
    import jax
    import jax.numpy as jnp

    causal = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))

    def norm(x: Any, w: Any) -> Any:
        d = x - x.mean(-1, keepdims=True)
        return d * jax.lax.rsqrt((d**2).mean(-1, keepdims=True) + EPSILON) * w

    def linear(x: Any, w: Any) -> Any:
        return (x.reshape(BATCH * LENGTH, -1) @ w.T).reshape(BATCH, LENGTH, -1)

    def heads(x: Any) -> Any:
        return x.reshape(BATCH, LENGTH, HEADS, HEAD).transpose(0, 2, 1, 3)

    def block(P: Any, i: int, x: Any) -> Any:
        qkv = linear(norm(x, P[f"norm_a{i}"]), P[f"qkv{i}"])
        q, k, v = map(heads, jnp.split(qkv, 3, axis=2))
        scores = jnp.where(causal, q @ k.swapaxes(2, 3) * HEAD**-0.5, -jnp.inf)
        x = x + linear((jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3), P[f"out{i}"])
        h = jax.nn.gelu(linear(norm(x, P[f"norm_b{i}"]), P[f"up{i}"]), approximate=False)
        return x + linear(h, P[f"down{i}"])

    def loss(P: Any, text: Any, following: Any) -> Any:
        x = P["characters"][text] + P["places"]
        for i in range(LAYERS):
            x = block(P, i, x)
        scores = jax.nn.log_softmax(linear(norm(x, P["norm"]), P["characters"]))
        return -jnp.take_along_axis(scores, following[..., None], 2).mean()

    return loss


def characters() -> Workload:
    """Four layers of width 128."""
    rng = np.random.default_rng(0)
    ones = np.ones(WIDTH, np.float32)
    parameters = {
        "characters": normal(rng, CHARACTERS, WIDTH, scale=0.02),
        "places": normal(rng, LENGTH, WIDTH, scale=0.02),
        "norm": ones.copy(),
    }
    for i in range(LAYERS):
        parameters |= {
            f"norm_a{i}": ones.copy(),
            f"norm_b{i}": ones.copy(),
            f"qkv{i}": normal(rng, 3 * WIDTH, WIDTH, scale=0.02),
            f"out{i}": normal(rng, WIDTH, WIDTH, scale=0.02),
            f"up{i}": normal(rng, 4 * WIDTH, WIDTH, scale=0.02),
            f"down{i}": normal(rng, WIDTH, 4 * WIDTH, scale=0.02),
        }
    texts = rng.integers(0, CHARACTERS, (4, BATCH, LENGTH + 1))
    return Workload(
        "transformer, 4 layers of width 128, 16 x 64 characters, Adam",
        parameters,
        [(np.ascontiguousarray(t[:, :-1]), np.ascontiguousarray(t[:, 1:])) for t in texts],
        cross_entropy_of(torch_model),
        jax_loss,
        Optimizer("Adam", 1e-3),
        torch_model=torch_model,
        classes=CHARACTERS,
    )
