"""The steps that are measured, by name."""

from __future__ import annotations

from collections.abc import Callable

from workloads import bodies, cnn, elementwise, gates, graph, perceptron, transformer
from workloads.workload import Workload

WORKLOADS: dict[str, Callable[[], Workload]] = {
    "digits": perceptron.digits,
    "mlp_tiny": perceptron.tiny,
    "mlp_small": perceptron.small,
    "mlp_large": perceptron.large,
    "elementwise": elementwise.vectors,
    "elementwise_scalar": elementwise.scalars,
    "logic": gates.logic,
    "sparse_attention": graph.sparse_attention,
    "transformer": transformer.characters,
    "cnn": cnn.two_layers,
    "nbody": bodies.leapfrog,
}
