"""What programs ask about GPUs before they fall back to the CPU: there are none."""

from __future__ import annotations

from lucid.choices import check_kind
from lucid.cuda import amp as amp
from lucid.device import device as _device
from lucid.docstrings import like
from lucid.functions.arguments import integer
from lucid.ir import frames


def is_available() -> bool:
    """Return False: lucid runs on the CPU, so programs that ask fall back to it.

    >>> "cuda" if lucid.cuda.is_available() else "cpu"
    'cpu'
    """
    return False


def device_count() -> int:
    """Return 0, the number of GPUs that lucid can use on any machine.

    >>> lucid.cuda.device_count()
    0
    """
    return 0


def manual_seed(seed: int) -> None:
    """Do nothing: there is no generator on a GPU; `lucid.manual_seed` seeds the CPU's.

    Args:
        seed: an int; nothing is seeded with it.

    Raises:
        ArgumentError: it is no int.

    >>> print(lucid.cuda.manual_seed(0))
    None
    """
    integer(seed, "cuda.manual_seed", "seed")


@like(manual_seed)
def manual_seed_all(seed: int) -> None:
    """Do nothing: there is no generator on any GPU; `lucid.manual_seed` seeds the CPU's."""
    integer(seed, "cuda.manual_seed_all", "seed")


def synchronize(device: object = None) -> None:
    """Do nothing: no call returns before its results are there, so nothing runs in the background.

    Args:
        device: a number or a name; there is none to wait for.

    Raises:
        ArgumentError: it is something else.

    >>> print(lucid.cuda.synchronize())
    None
    """
    check_kind(device, (int, str, _device), "device", "cuda.synchronize")


def empty_cache() -> None:
    """Do nothing: there is no memory on a GPU that could be given back.

    >>> print(lucid.cuda.empty_cache())
    None
    """


def memory_allocated(device: object = None) -> int:
    """Return 0, the bytes that tensors take on a GPU.

    Args:
        device: a number or a name; nothing is on any.

    Raises:
        ArgumentError: it is something else.

    >>> lucid.cuda.memory_allocated()
    0
    """
    check_kind(device, (int, str, _device), "device", "cuda.memory_allocated")
    return 0


@like(memory_allocated)
def max_memory_allocated(device: object = None) -> int:
    """Return 0, the most bytes that tensors have taken on a GPU."""
    check_kind(device, (int, str, _device), "device", "cuda.max_memory_allocated")
    return 0


@like(memory_allocated)
def memory_reserved(device: object = None) -> int:
    """Return 0, the bytes of a GPU's memory that are held for tensors."""
    check_kind(device, (int, str, _device), "device", "cuda.memory_reserved")
    return 0


@like(memory_allocated)
def max_memory_reserved(device: object = None) -> int:
    """Return 0, the most bytes of a GPU's memory that were held for tensors."""
    check_kind(device, (int, str, _device), "device", "cuda.max_memory_reserved")
    return 0


frames.edge_of_module(__name__)
