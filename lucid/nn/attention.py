"""PyTorch's choice of an attention kernel, of which lucid has one: `lucid.nn.attention`."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lucid.choices import check_flag, check_kind
from lucid.ir import frames

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """PyTorch's attention kernels, by name. All mean what `scaled_dot_product_attention` computes.

    >>> lucid.nn.attention.SDPBackend.MATH.name
    'MATH'
    """

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(
    backends: SDPBackend | Sequence[SDPBackend], set_priority: bool = False
) -> Iterator[None]:
    """Compute attention in a with block by one of some kernels; lucid's is the same in all.

    Args:
        backends: one of them, or several.
        set_priority: whether their order says which comes first.

    Raises:
        ArgumentError: something that isn't an `SDPBackend`.

    >>> from lucid.nn.attention import SDPBackend, sdpa_kernel
    >>> with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    ...     F.scaled_dot_product_attention(*3 * [lucid.ones(1, 2, 3)]).shape
    lucid.Size([1, 2, 3])
    """
    for backend in [backends] if isinstance(backends, SDPBackend) else backends:
        check_kind(backend, SDPBackend, "backends", "sdpa_kernel")
    check_flag(set_priority, "set_priority", "sdpa_kernel")
    yield


frames.edge_of_module(__name__)
