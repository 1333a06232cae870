"""Global settings of PyTorch that programs set: here they are always as good as on."""

from __future__ import annotations

from typing import Any

from lucid.device import CPU, check_device, device
from lucid.dtypes import of_tensor_class, set_default_dtype
from lucid.ir import frames
from lucid.ir.errors import OptionError


def get_num_threads() -> int:
    """How many threads compute a compiled step.

    By default `LUCID_NUM_THREADS`, or as many as the process has processors.
    """
    from lucid.runtime import threads

    return threads.pool.num_threads


def set_num_threads(num: int) -> None:
    """Set how many threads compute a compiled step. Results don't depend on it.

    Raises `OptionError` for less than one thread.
    """
    from lucid.runtime import threads

    threads.set_num_threads(num)


# What was set, though nothing of the library's depends on it: programs ask.
_chosen: dict[str, Any] = {"deterministic": False, "warn_only": False, "precision": "highest"}


def _asked(key: str) -> Any:
    """What was set; a compiled step that asks is traced again when it is set anew."""
    from lucid.compiler.recording import hooks

    return hooks.live(_chosen, key, f"lucid.settings[{key!r}]")


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Do nothing but to keep what was asked for: results are always the same."""
    _chosen.update(deterministic=bool(mode), warn_only=bool(warn_only))


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms` has asked for them."""
    return bool(_asked("deterministic"))


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether `use_deterministic_algorithms` has asked for no more than warnings."""
    return bool(_asked("warn_only"))


def set_float32_matmul_precision(precision: str) -> None:
    """Do nothing but to keep it: products of float32 are always computed in float32."""
    if precision not in ("highest", "high", "medium"):
        raise OptionError(f"set_float32_matmul_precision: {precision!r} is not a precision")
    _chosen["precision"] = precision


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was told."""
    return str(_asked("precision"))


def get_num_interop_threads() -> int:
    """One: operations run one after the other."""
    return 1


def set_flush_denormal(mode: bool) -> bool:
    """Whether small numbers can become zero: they never do, so asking for it gives False."""
    return not mode


def set_num_interop_threads(num: int) -> None:
    """Do nothing: operations run one after the other."""


def get_default_device() -> device:
    """Return the CPU, the only device."""
    return CPU


def set_default_device(device: object) -> None:
    """Do nothing for the CPU. Raises `OptionError` for another device."""
    check_device(device, "set_default_device")


def set_default_tensor_type(t: object) -> None:
    """Set the default dtype by the class of a tensor, or its name: `torch.DoubleTensor`."""
    dtype = of_tensor_class(t)
    if dtype is None or not dtype.is_floating_point:
        raise OptionError(f"set_default_tensor_type: only floats can be the default, not {t!r}")
    set_default_dtype(dtype)


frames.edge_of_module(__name__)
