"""From a graph to kernels: legalized, fused, laid out, ordered."""
