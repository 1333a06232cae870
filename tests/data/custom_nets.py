"""Small nets, one for each kind of custom Function, and 20 training steps of each.

Written once with PyTorch's API and run on two modules, as in parity_cases.py: `L` is `torch` when
record_custom_nets.py records the numbers and `lucid` when autograd/test_training.py compares.

A net is a function of `L` that defines its Functions and returns either a *layer*, `f(h)` for the
hidden values h (6, 7) of a perceptron, or the whole *loss*, `f(P, x, t)` of the parameters and one
batch. The modules custom_nets_*.py have them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from parity_cases import STEPS, Arrays, Decorator, Module, Tensor, array, numbers, tensor

OPTIMIZERS = {
    "SGD": dict(lr=0.02, momentum=0.9),
    "Adam": dict(lr=0.02),
    "AdamW": dict(lr=0.02, weight_decay=0.1),
}
PERCEPTRON = {"w": (5, 7), "b": (7,), "v": (7, 3)}


@dataclass(frozen=True)
class Net:
    """One kind of custom Function in a net.

    Attributes:
        build: `build(L)` is the loss, `f(P, x, t)`.
        shapes: of the parameters, by name.
        batch: `batch(i)` is the i-th input and target.
        precise: whether float64 parameters mean float64 computation.
    """

    name: str
    build: Callable[[Module], Callable[..., Tensor]]
    shapes: dict[str, tuple[int, ...]]
    batch: Callable[[int], tuple[np.ndarray, np.ndarray]]
    precise: bool = True

    def run(self, L: Module, compiled: Decorator, dtype: str, optimizer: str) -> Arrays:
        """Train; return the losses, the norm of each gradient at each step, and the end."""
        P = {
            name: tensor(L, 0.4 * numbers(f"{self.name} {name}", *shape), dtype, True)
            for name, shape in self.shapes.items()
        }
        opt = getattr(L.optim, optimizer)(list(P.values()), **OPTIMIZERS[optimizer])
        loss_of = self.build(L)

        @compiled
        def step(x, t):
            opt.zero_grad()
            loss = loss_of(P, x, t)
            loss.backward()
            opt.step()
            return loss

        losses, norms = [], []
        for i in range(STEPS):
            losses.append(array(step(*(tensor(L, a, dtype) for a in self.batch(i)))))
            norms.append([np.linalg.norm(array(p.grad)) for p in P.values()])
        out = {"losses": np.array(losses), "norms": np.array(norms)}
        for name, p in P.items():
            out[f"parameter {name}"] = array(p)
            out[f"gradient {name}"] = array(p.grad)
        return out


@dataclass
class Nets:
    """Nets by name: each module custom_nets_*.py registers its own."""

    by_name: dict[str, Net] = field(default_factory=dict)

    def loss(self, *, batch: Any = None, precise: bool = True, **shapes: tuple[int, ...]) -> Any:
        """Register a function of `L` that returns a loss, under its own name."""

        def register(build: Callable[[Module], Any]) -> Callable[[Module], Any]:
            name = build.__name__.replace("_", " ")
            assert name not in self.by_name, name
            self.by_name[name] = Net(name, build, shapes, batch or regression, precise)
            return build

        return register

    def layer(self, build: Callable[[Module], Callable[[Tensor], Tensor]]) -> Any:
        """Register a function of `L` that returns what works on the hidden values."""

        def loss_with(L: Module) -> Callable[..., Tensor]:
            f = build(L)
            return lambda P, x, t: mse(L, f(x @ P["w"] + P["b"]) @ P["v"], t)

        loss_with.__name__ = build.__name__
        self.loss(**PERCEPTRON)(loss_with)
        return build


def regression(i: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (6, 5) and targets (6, 3)."""
    return numbers(f"inputs {i}", 6, 5), numbers(f"outputs {i}", 6, 3)


def classification(i: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (6, 5) and classes (6,) of 3."""
    x, y = regression(i)
    return x, y.argmax(1)


def mse(L: Module, y: Tensor, t: Tensor) -> Tensor:
    """The mean squared error."""
    return L.nn.functional.mse_loss(y, t)
