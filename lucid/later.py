"""Names of `lucid` that are imported when they are first used: so `import lucid` stays fast."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lucid.dtypes import MISSING
from lucid.ir.types import DTYPES
from lucid.ported import ABSENT, NO_COMPLEX

_MODULES = frozenset((
    "accelerator", "amp", "backends", "compiler", "cuda", "debug", "distributed", "distributions",
    "func", "jit", "nn", "optim", "profiler", "sparse", "special", "testing", "utils",
))  # fmt: skip
_UNLISTED = frozenset(("serialization", "version"))  # modules that older programs look into
_HOMES = {
    "amp": ("GradScaler", "autocast", "is_autocast_enabled"),
    "autograd": ("is_anomaly_check_nan_enabled", "is_anomaly_enabled"),
    "compiler": ("compile",),
    "control_flow": ("cond", "fori_loop", "map", "scan", "while_loop"),
    "func": ("vmap",),
    "serialization": ("load", "save"),
    "sparse": ("sparse_coo_tensor",),
}
_MEMBERS = {name: f"lucid.{module}" for module, names in _HOMES.items() for name in names}
PUBLIC = _MODULES | _MEMBERS.keys()
# Layers and losses that PyTorch has under its first name too.
_LAYERS = frozenset((
    "adaptive_avg_pool1d", "adaptive_max_pool1d",
    "alpha_dropout", "avg_pool1d", "batch_norm", "bilinear",
    "binary_cross_entropy_with_logits", "celu", "celu_", "channel_shuffle", "conv1d", "conv2d",
    "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "cosine_embedding_loss", "cosine_similarity",
    "ctc_loss", "dropout", "dropout_", "group_norm", "hardshrink",
    "hinge_embedding_loss", "instance_norm", "kl_div", "layer_norm", "margin_ranking_loss",
    "max_pool1d", "max_pool2d", "max_pool3d", "pairwise_distance", "pixel_shuffle",
    "pixel_unshuffle", "poisson_nll_loss", "prelu", "rms_norm", "rrelu", "selu", "selu_",
    "threshold", "threshold_", "triplet_margin_loss",
))  # fmt: skip

_OF_COMPLEX = frozenset((
    "chalf", "complex", "complex32", "imag",
    "istft", "polar", "stft", "view_as_complex", "view_as_real",
))  # fmt: skip


def find(name: str) -> Any:
    """The module or member of this name; `AttributeError` says which numbers there are."""
    if name in _MODULES:
        return import_module(f"lucid.{name}")
    if name in _LAYERS:
        return getattr(import_module("lucid.nn.functional"), name)
    if name in _MEMBERS:
        return getattr(import_module(_MEMBERS[name]), name)
    if name.startswith("_foreach_"):
        foreach = import_module("lucid.functions.foreach").find(name)
        if foreach is not None:
            return foreach
    if name in _UNLISTED:
        return import_module(f"lucid.{name}")
    message = f"module 'lucid' has no attribute {name!r}"
    if name in MISSING:
        return MISSING[name]
    if name == "HalfTensor":
        names = [dtype.torch_name for dtype in DTYPES]
        message += f"\nhint: dtypes are {', '.join(names[:-1])} and {names[-1]}"
    hint = NO_COMPLEX if name in _OF_COMPLEX else ABSENT.get(f"lucid.{name}")
    if hint is not None:
        message += f"\nhint: {hint}"
    raise AttributeError(message)
