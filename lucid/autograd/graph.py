"""Access to the autograd graph: nodes, and hooks on the tensors saved in it."""

from lucid.autograd.hooks import disable_saved_tensors_hooks, saved_tensors_hooks
from lucid.autograd.node import Node

__all__ = ["Node", "disable_saved_tensors_hooks", "saved_tensors_hooks"]
