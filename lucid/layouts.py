"""How tensors lie in memory, by PyTorch's names: `layout` and `memory_format`.

lucid has one layout, and chooses the order of axes in memory itself: to ask for another memory
format changes nothing.
"""

from __future__ import annotations

from typing import Any

from lucid.ir.errors import ArgumentError, OptionError

__all__ = [
    "channels_last", "channels_last_3d", "contiguous_format", "layout", "memory_format",
    "preserve_format", "sparse_coo", "strided",
]  # fmt: skip


class _Named:
    """One of a few objects that are told apart by name; pickled and copied by it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"lucid.{self._name}"

    def __reduce__(self) -> str:
        return self._name

    def __deepcopy__(self, memo: object) -> Any:
        return self


class layout(_Named):  # noqa: N801 -- PyTorch's name
    """The kind of a tensor's storage, told apart by name: `lucid.strided` or `lucid.sparse_coo`.

    Args:
        name: how it is called; programs use the two that there are.

    >>> lucid.sparse_coo_tensor([[0]], [1.0], (2,)).layout
    lucid.sparse_coo
    >>> isinstance(lucid.strided, lucid.layout)
    True
    """


class memory_format(_Named):  # noqa: N801 -- PyTorch's name
    """In which order the axes of an image lie in memory, by PyTorch's names.

    lucid chooses the order itself: functions take a memory format and do nothing with it.

    Args:
        name: how it is called; programs use `lucid.channels_last` and the like.

    >>> isinstance(lucid.channels_last, lucid.memory_format)
    True
    >>> lucid.ones(1, 2, 3, 4).to(memory_format=lucid.channels_last).is_contiguous()
    True
    """


strided = layout("strided")
sparse_coo = layout("sparse_coo")
contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")


def check_layout(value: Any, op: str) -> None:
    """Accept None and `strided`. Raises `OptionError` for another layout."""
    if value is None or value is strided:
        return
    if not isinstance(value, layout):
        raise ArgumentError(f"{op}: layout must be lucid.strided, not {value!r}")
    raise OptionError(f"{op}: a tensor of layout {value!r} can't be made so\nhint: lucid.strided")


def check_memory_format(value: Any, op: str) -> None:
    """Accept None and all memory formats."""
    if value is not None and not isinstance(value, memory_format):
        raise ArgumentError(f"{op}: memory_format must be a lucid.memory_format, not {value!r}")
