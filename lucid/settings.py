"""Global settings of PyTorch that programs set: here they are always as good as on."""

from __future__ import annotations

from typing import Any

from lucid.choices import check_kind
from lucid.device import CPU, check_device, device
from lucid.dtypes import of_tensor_class, set_default_dtype
from lucid.ir import frames
from lucid.ir.errors import OptionError
from lucid.tensor.levels import note_turn

__all__ = [
    "are_deterministic_algorithms_enabled", "get_default_device", "get_float32_matmul_precision",
    "get_num_interop_threads", "get_num_threads", "is_deterministic_algorithms_warn_only_enabled",
    "set_default_device", "set_default_tensor_type", "set_float32_matmul_precision",
    "set_flush_denormal", "set_num_interop_threads", "set_num_threads",
    "use_deterministic_algorithms",
]  # fmt: skip


def get_num_threads() -> int:
    """Return how many threads compute a compiled step.

    By default `LUCID_NUM_THREADS`, or as many as the process has processors. Eager ops run in the
    caller's thread, but for NumPy's products of matrices.

    >>> before = lucid.get_num_threads()
    >>> lucid.set_num_threads(1)
    >>> lucid.get_num_threads()
    1
    >>> lucid.set_num_threads(before)
    """
    from lucid.runtime import threads

    return threads.pool.num_threads


def set_num_threads(num: int) -> None:
    """Set how many threads compute a compiled step. Results don't depend on it, to the bit.

    NumPy's OpenBLAS, which eager products run in, has as many from then on, up to the processors.

    Args:
        num: how many, at least one.

    Raises:
        OptionError: it is less than one.

    >>> before = lucid.get_num_threads()
    >>> lucid.set_num_threads(2)
    >>> lucid.get_num_threads()
    2
    >>> lucid.set_num_threads(before)
    """
    from lucid.codegen.llvm.jit import processors
    from lucid.functions.lapack import set_blas_threads
    from lucid.runtime import threads

    threads.set_num_threads(num)
    set_blas_threads(min(num, processors()))


# What was set: little of the library's depends on it, but programs ask.
_chosen: dict[str, Any] = {"deterministic": False, "warn_only": False, "precision": "highest"}


def _asked(key: str) -> Any:
    """What was set; a compiled step that asks is traced again when it is set anew."""
    from lucid.compiler.recording import hooks

    note_turn()
    return hooks.live(_chosen, key, f"lucid.settings[{key!r}]")


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Keep what was asked for and change nothing: results are always the same.

    Args:
        mode: what `are_deterministic_algorithms_enabled` is to return.
        warn_only: what `is_deterministic_algorithms_warn_only_enabled` is to return.

    >>> lucid.use_deterministic_algorithms(True)
    >>> lucid.are_deterministic_algorithms_enabled()
    True
    >>> lucid.use_deterministic_algorithms(False)
    """
    _chosen.update(deterministic=bool(mode), warn_only=bool(warn_only))


def are_deterministic_algorithms_enabled() -> bool:
    """Return whether `use_deterministic_algorithms` has asked for them; False at first.

    All of the library's algorithms are deterministic all the same.

    >>> lucid.are_deterministic_algorithms_enabled()
    False
    """
    return bool(_asked("deterministic"))


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Return whether `use_deterministic_algorithms` has asked for no more than warnings.

    At first it is False. There is never anything to warn of.

    >>> lucid.is_deterministic_algorithms_warn_only_enabled()
    False
    """
    return bool(_asked("warn_only"))


def set_float32_matmul_precision(precision: str) -> None:
    """Say whether results of float32 may differ by more than rounding, where that takes less time.

    All is computed in float32. With "high" or "medium" convolutions by 3 x 3 weights, of stride and
    dilation one and without groups, are computed by Winograd's algorithm where that pays, which is
    from some 64 channels on; so are their gradients. They take 0.5 to 0.7 of the time, and differ
    from exact ones by some 1e-5 of the largest element, ten times as much as with "highest". An
    infinity or NaN in the input makes NaN of up to 4 x 4 neighbours more than with "highest".

    Args:
        precision: "highest", which there is at first, "high" or "medium".

    Raises:
        OptionError: it is none of them.

    >>> lucid.set_float32_matmul_precision("high")
    >>> lucid.get_float32_matmul_precision()
    'high'
    >>> lucid.set_float32_matmul_precision("highest")
    """
    if precision not in ("highest", "high", "medium"):
        raise OptionError(f"set_float32_matmul_precision: {precision!r} is not a precision")
    _chosen["precision"] = precision


def get_float32_matmul_precision() -> str:
    """Return what `set_float32_matmul_precision` was told, "highest" at first.

    >>> lucid.get_float32_matmul_precision()
    'highest'
    """
    return str(_asked("precision"))


def get_num_interop_threads() -> int:
    """Return 1: operations run one after the other, and threads share the work of each.

    >>> lucid.get_num_interop_threads()
    1
    """
    return 1


def set_flush_denormal(mode: bool) -> bool:
    """Return whether the wish about denormal numbers holds: they never become zero.

    So it is False for True, and True for False.

    Args:
        mode: whether they should.

    >>> lucid.set_flush_denormal(True)
    False
    """
    return not mode


def set_num_interop_threads(num: int) -> None:
    """Do nothing, for programs that set it: operations run one after the other.

    Args:
        num: a positive number, without effect.

    Raises:
        ArgumentError: it is no int.
        OptionError: it isn't positive.

    >>> lucid.set_num_interop_threads(4)
    >>> lucid.get_num_interop_threads()
    1
    """
    check_kind(num, int, "num", "set_num_interop_threads")
    if num < 1:
        raise OptionError(f"set_num_interop_threads: there is at least 1 thread, not {num}")


def get_default_device() -> device:
    """Return the device on which new tensors are made: the CPU, the only one.

    >>> lucid.get_default_device()
    device(type='cpu')
    """
    return CPU


def set_default_device(device: object) -> None:
    """Check that the device is the CPU, the only one; there is nothing to set.

    Args:
        device: the CPU, as a `lucid.device`, as "cpu", or None.

    Raises:
        OptionError: it is another device.

    >>> lucid.set_default_device("cpu")
    >>> lucid.get_default_device()
    device(type='cpu')
    """
    check_device(device, "set_default_device")


def set_default_tensor_type(t: object) -> None:
    """Set the default dtype by the class of a tensor, or by its name: `torch.DoubleTensor`.

    An older way to say `lucid.set_default_dtype`.

    Args:
        t: such as `lucid.DoubleTensor` or "torch.DoubleTensor".

    Raises:
        OptionError: its dtype isn't one of floats.

    >>> lucid.set_default_tensor_type(lucid.DoubleTensor)
    >>> lucid.tensor(0.5).dtype
    lucid.float64
    >>> lucid.set_default_tensor_type("torch.FloatTensor")
    """
    dtype = of_tensor_class(t)
    if dtype is None or not dtype.is_floating_point:
        raise OptionError(f"set_default_tensor_type: only floats can be the default, not {t!r}")
    set_default_dtype(dtype)


frames.edge_of_module(__name__)
