"""The cases: each net with each optimizer, in float32 and float64 by turns."""

from __future__ import annotations

from dataclasses import dataclass

import custom_nets_ctx
import custom_nets_host
import custom_nets_layers
import custom_nets_outputs
from custom_nets import OPTIMIZERS, Net
from parity_cases import DTYPES

MODULES = (custom_nets_ctx, custom_nets_layers, custom_nets_outputs, custom_nets_host)
NETS = [net for module in MODULES for net in module.nets.by_name.values()]


@dataclass(frozen=True)
class NetCase:
    net: Net
    optimizer: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.net.name}, {self.optimizer}, {self.dtype}"


CASES = [
    NetCase(net, optimizer, DTYPES[(i + j) % 2])
    for i, net in enumerate(NETS)
    for j, optimizer in enumerate(OPTIMIZERS)
    if j != i // 2 % 2 * 2  # in turn the first and the last: each net is there with both dtypes
]
