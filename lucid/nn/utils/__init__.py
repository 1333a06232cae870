"""Gradient clipping, all parameters as one vector, parametrizations, sequences of any length.

Args:
    name: of the parameter.
    foreach: True, False or None; the result is the same.
"""

import sys
from typing import Any

from lucid import ported
from lucid.functions.border import constructors_at_border, explain_calls
from lucid.ir import frames
from lucid.nn.utils import rnn
from lucid.nn.utils.clip_grad import (
    clip_grad_norm_,
    clip_grad_norm_ as clip_grad_norm,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from lucid.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from lucid.random import fork_rng

explain_calls(sys.modules[__name__], dict(vars()), "lucid.nn.utils.")
explain_calls(rnn, dict(vars(rnn)), "lucid.nn.utils.")
constructors_at_border({"PackedSequence": rnn.PackedSequence}, "lucid.nn.utils.")

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_",
    "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights",
    "get_total_norm", "parameters_to_vector", "parametrizations", "parametrize", "prune",
    "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init", "spectral_norm",
    "vector_to_parameters", "weight_norm",
]  # fmt: skip

_NORMS = ("weight_norm", "remove_weight_norm", "spectral_norm", "remove_spectral_norm")
_FUSIONS = tuple(name for name in __all__ if name.startswith("fuse_"))


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a module without drawing from the default generator: its values are to be set.

    Args:
        module_cls: the class.
        *args: what it is made with.
        **kwargs: what it is made with, by name.

    >>> nn.utils.skip_init(nn.Linear, 3, 2).weight.shape
    lucid.Size([2, 3])
    """
    with fork_rng():
        return module_cls(*args, **kwargs)


explain_calls(sys.modules[__name__], {"skip_init": skip_init}, __name__)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _FUSIONS:
        return getattr(import_module("lucid.nn.utils.fusion"), name)
    if name in _NORMS:
        return getattr(import_module("lucid.nn.utils.norms"), name)
    return ported.submodule(__name__, name)


frames.edge_of_module(__name__)
