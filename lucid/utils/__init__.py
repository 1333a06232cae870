"""Feeding data to a program: `lucid.utils.data`."""

from lucid.utils import data

__all__ = ["data"]
