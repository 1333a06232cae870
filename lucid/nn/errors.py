"""Errors of modules and optimizers that no op can raise."""

from __future__ import annotations

from lucid.ir.errors import LucidError


class NamingError(LucidError, KeyError):
    """A name or key that is missing, taken, or not allowed."""

    __str__ = RuntimeError.__str__  # KeyError would show the text's repr


class NoSuchAttributeError(LucidError, AttributeError):
    """A module hasn't the attribute, or can't hold it yet."""


class ModuleStateError(LucidError):
    """A state dict that doesn't fit the module."""


class UninitializedError(LucidError, ValueError):
    """A parameter or buffer of a lazy module is used before the module's first call."""
