"""Feeding data to a program, and PyTorch's checkpoints: `lucid.utils`."""

import typing

from lucid import ported
from lucid.utils import checkpoint, data

__all__ = ["checkpoint", "data"]


def __getattr__(name: str) -> typing.Any:
    return ported.submodule(__name__, name)
