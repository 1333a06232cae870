"""The cases: each net with each optimizer, in float32 and float64 by turns."""

from __future__ import annotations

from dataclasses import dataclass

import custom_nets_ctx  # registers
import custom_nets_layers
import custom_nets_outputs  # noqa: F401
from custom_nets import OPTIMIZERS, Net, nets
from parity_cases import DTYPES


@dataclass(frozen=True)
class NetCase:
    net: Net
    optimizer: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.net.name}, {self.optimizer}, {self.dtype}"


CASES = [
    NetCase(net, optimizer, DTYPES[(i + j) % 2])
    for i, net in enumerate(nets.by_name.values())
    for j, optimizer in enumerate(OPTIMIZERS)
]
