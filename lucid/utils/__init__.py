"""Feeding data to a program, and PyTorch's checkpoints: `lucid.utils`."""

from lucid.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
