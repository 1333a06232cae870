"""Graph attention over sparse edges (Veličković et al., 2018), with a custom sparse product."""

from __future__ import annotations

from typing import Any

import numpy as np

from workloads.workload import Loss, Optimizer, Workload, normal

NODES, EDGES, FEATURES, WIDTH, HEADS, CLASSES, SLOPE = 2708, 10_000, 128, 8, 8, 7, 0.2


def edges() -> tuple[np.ndarray, np.ndarray]:
    """Random edges and all loops, sorted, none twice."""
    rng = np.random.default_rng(3)
    loops = np.arange(NODES) * (NODES + 1)
    places = np.unique(np.concatenate([rng.integers(0, NODES**2, EDGES), loops]))
    return places // NODES, places % NODES


def torch_loss(torch: Any) -> Loss:
    """The sparse product is a custom Function with a gradient at the nonzeros only."""
    F = torch.nn.functional
    row, col = (torch.tensor(places) for places in edges())
    index, ones = torch.stack([row, col]), torch.ones(NODES, 1)

    def sparse(values: Any) -> Any:
        return torch.sparse_coo_tensor(
            index, values, (NODES, NODES), check_invariants=False, is_coalesced=True
        )

    class SparseProduct(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, values: Any, dense: Any) -> Any:
            ctx.save_for_backward(values, dense)
            return sparse(values) @ dense

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            values, dense = ctx.saved_tensors
            of_values = (grad[row] * dense[col]).sum(1) if ctx.needs_input_grad[0] else None
            of_dense = sparse(values).t() @ grad if ctx.needs_input_grad[1] else None
            return of_values, of_dense

    def attend(x: Any, w: Any, a: Any) -> Any:
        h = x @ w
        pairs = torch.cat((h[row], h[col]), dim=1).t()
        e = torch.exp(-F.leaky_relu((a @ pairs).squeeze(), SLOPE))
        return SparseProduct.apply(e, h) / SparseProduct.apply(e, ones)

    def loss(P: Any, x: Any, y: Any) -> Any:
        heads = [F.elu(attend(x, P[f"w{k}"], P[f"a{k}"])) for k in range(HEADS)]
        scores = F.elu(attend(torch.cat(heads, dim=1), P["w"], P["a"]))
        return F.nll_loss(F.log_softmax(scores, dim=1), y)

    return loss


def jax_loss() -> Loss:
    """The same with jax, by segment sums."""
    import jax
    import jax.numpy as jnp

    row, col = (jnp.array(places) for places in edges())

    @jax.custom_vjp
    def product(values: Any, dense: Any) -> Any:
        terms = values[:, None] * dense[col]
        return jax.ops.segment_sum(terms, row, NODES, indices_are_sorted=True)

    def backward(saved: Any, g: Any) -> Any:
        values, dense = saved
        of_dense = jax.ops.segment_sum(values[:, None] * g[row], col, NODES)
        return (g[row] * dense[col]).sum(1), of_dense

    product.defvjp(lambda values, dense: (product(values, dense), (values, dense)), backward)
    ones = jnp.ones((NODES, 1), jnp.float32)

    def attend(x: Any, w: Any, a: Any) -> Any:
        h = x @ w
        z = (a @ jnp.concatenate([h[row], h[col]], 1).T)[0]
        e = jnp.exp(-jax.nn.leaky_relu(z, SLOPE))
        return product(e, h) / product(e, ones)

    def loss(P: Any, x: Any, y: Any) -> Any:
        heads = [jax.nn.elu(attend(x, P[f"w{k}"], P[f"a{k}"])) for k in range(HEADS)]
        scores = jax.nn.elu(attend(jnp.concatenate(heads, 1), P["w"], P["a"]))
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], 1).mean()

    return loss


def sparse_attention() -> Workload:
    """Eight heads of eight, then one layer to the classes."""
    rng = np.random.default_rng(0)

    def layer(name: str, n: int, m: int) -> dict[str, np.ndarray]:
        weights = normal(rng, n, m, scale=(2 / (n + m)) ** 0.5)
        return {f"w{name}": weights, f"a{name}": normal(rng, 1, 2 * m, scale=0.3)}

    parameters: dict[str, np.ndarray] = {}
    for k in range(HEADS):
        parameters |= layer(str(k), FEATURES, WIDTH)
    parameters |= layer("", HEADS * WIDTH, CLASSES)
    batch = (normal(rng, NODES, FEATURES), rng.integers(0, CLASSES, NODES))
    return Workload(
        "graph attention, 2708 nodes, custom sparse product, Adam",
        parameters,
        [batch],
        torch_loss,
        jax_loss,
        Optimizer("Adam", 5e-3),
    )
