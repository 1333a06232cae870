"""Functions on tensors, written with the ops; `Tensor`'s methods are these functions.

Args:
    device: the CPU or None.
    dim: the axis; negative ones count from the end.
    input: a tensor.
    keepdim: whether the axes stay, with size 1.
    requires_grad: whether gradients are recorded for it.
    layout: `lucid.strided` or None.
    memory_format: any memory format, without effect.
    non_blocking: True or False; nothing is copied between devices.
    offset: which diagonal; above 0 right of the main one, below 0 left of it.

Raises:
    IndexOutOfRangeError: there is no axis `dim`.
"""
