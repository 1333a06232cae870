"""Functions on tensors, written with the ops; `Tensor`'s methods are these functions."""
