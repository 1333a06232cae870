"""The device: there is one, the CPU; code that names it runs unmodified."""

from __future__ import annotations

from typing import Any, Self

from lucid.ir.errors import ArgumentError, OptionError


class device:  # noqa: N801 - PyTorch's name
    """The CPU. Equal to the string "cpu", as programs compare it.

    There is no other device; code that names this one runs unmodified.

    Args:
        type: "cpu", "cpu:0", or such a device.
        index: PyTorch's number of a device; the CPU has 0.

    Raises:
        OptionError: another device or index.

    >>> lucid.device("cpu")
    device(type='cpu')
    >>> lucid.zeros(2).device == "cpu"
    True
    >>> with lucid.device("cpu"):
    ...     lucid.zeros(2)
    tensor([0., 0.])
    """

    __slots__ = ()
    type = "cpu"
    index = None

    def __init__(self, type: Any = "cpu", index: int | None = None) -> None:
        check_device(type, "device")
        if index not in (None, 0):
            raise OptionError(f"device: there is one CPU, not one with index {index}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """A block in which tensors are made on this device, as everywhere."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) or (isinstance(other, str) and other in _NAMES)

    def __hash__(self) -> int:
        return hash("cpu")

    def __repr__(self) -> str:
        return "device(type='cpu')"

    def __str__(self) -> str:
        return "cpu"

    def __reduce__(self) -> tuple[Any, ...]:
        return device, ()


_NAMES = ("cpu", "cpu:0")


def check_device(value: Any, op: str) -> None:
    """Accept None and the CPU. Raises `OptionError` for another device."""
    if value is None or isinstance(value, device):
        return
    if not isinstance(value, str):
        raise ArgumentError(f"{op}: device must be a string or a device, not {value!r}")
    if value not in _NAMES:
        hint = "\nhint: leave this out; all tensors have their data here" if value == "meta" else ""
        message = f"{op}: device {value!r} does not exist; lucid runs on the CPU: 'cpu'"
        raise OptionError(message + hint)


CPU = device()
