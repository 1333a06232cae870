"""`weight_norm` and `spectral_norm` with the parameters on the module itself, under older names.

`lucid.nn.utils.parametrizations` has the newer ones. The weight is computed whenever it is read; a
module gets a class of its own for that, under the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
from lucid.autograd.modes import no_grad
from lucid.ir.errors import LucidError, OptionError
from lucid.nn.functional.distance import normalize
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter
from lucid.nn.utils.parametrizations import norm_except_dim
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Put `<name>_g`, lengths, and `<name>_v`, directions, in the place of a parameter.

    Reference: Salimans and Kingma, "Weight Normalization", 2016.
    """
    weight = _taken(module, name)
    with no_grad():
        lengths = norm_except_dim(weight, dim).clone()
    setattr(module, f"{name}_g", Parameter(lengths))
    setattr(module, f"{name}_v", Parameter(weight.detach().clone()))

    def value(own: Any) -> Tensor:
        directions: Tensor = getattr(own, f"{name}_v")
        found: Tensor = directions * (getattr(own, f"{name}_g") / norm_except_dim(directions, dim))
        return found

    return _compute(module, name, value)


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make the present weight a parameter again. Raises `OptionError` where there is no norm."""
    return _restore(module, name, (f"{name}_g", f"{name}_v"), "weight_norm")


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a parameter, `<name>_orig` from now on, by an estimate of its greatest singular value.

    Each call of the module in training mode improves the buffers `<name>_u` and `<name>_v`.

    Reference: Miyato et al., "Spectral Normalization for Generative Adversarial Networks", 2018.
    """
    if n_power_iterations <= 0:
        raise OptionError(
            "Expected n_power_iterations to be positive, but got "
            f"n_power_iterations={n_power_iterations}"
        )
    weight = _taken(module, name)
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0

    def matrix(weight: Tensor) -> Tensor:
        moved = weight.movedim(dim, 0)
        return moved.reshape(moved.shape[0], -1)

    rows, columns = matrix(weight).shape
    for part, size in (("u", rows), ("v", columns)):
        start = normalize(lucid.randn(size, dtype=weight.dtype), dim=0, eps=eps)
        module.register_buffer(f"{name}_{part}", start)
    setattr(module, f"{name}_orig", Parameter(weight.detach().clone()))

    def iterate(own: Any, _: Any) -> None:
        if own.training:
            u, v = getattr(own, f"{name}_u"), getattr(own, f"{name}_v")
            whole = matrix(getattr(own, f"{name}_orig").detach())
            with no_grad():
                for _ in range(n_power_iterations):
                    write_(v, normalize(whole.T @ u, dim=0, eps=eps))
                    write_(u, normalize(whole @ v, dim=0, eps=eps))

    def value(own: Any) -> Tensor:
        weight: Tensor = getattr(own, f"{name}_orig")
        u, v = getattr(own, f"{name}_u").clone(), getattr(own, f"{name}_v").clone()
        found: Tensor = weight / u.dot(matrix(weight).mv(v))
        return found

    handle = module.register_forward_pre_hook(iterate)
    return _compute(module, name, value, handle.remove)


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make the present weight a parameter again. Raises `OptionError` where there is no norm."""
    return _restore(module, name, (f"{name}_orig", f"{name}_u", f"{name}_v"), "spectral_norm")


def _taken(module: Module, name: str) -> Tensor:
    """The parameter of this name, which is taken from the module."""
    if name in _computed(module):
        raise LucidError(f"Cannot register two norms on the same parameter {name}")
    weight = module._parameters.get(name)
    if weight is None:
        raise OptionError(f"Module '{type(module).__name__}' has no parameter with name '{name}'")
    delattr(module, name)
    return weight


def _computed(module: Module) -> dict[str, Callable[[], object]]:
    """The weights that the module computes, each with what is to be done when it ends."""
    found: dict[str, Callable[[], object]] = vars(type(module)).get("_norms", {})
    return found


def _compute(
    module: Module,
    name: str,
    value: Callable[[Any], Tensor],
    end: Callable[[], object] = lambda: None,
) -> Module:
    own, norms = type(module), _computed(module)
    if not norms:
        own = type(own.__name__, (own,), {"_norms": norms, "__module__": own.__module__})
        own.__qualname__ = own.__bases__[0].__qualname__
        object.__setattr__(module, "__class__", own)
    norms[name] = end
    setattr(own, name, property(value))
    return module


def _restore(module: Module, name: str, parts: tuple[str, ...], norm: str) -> Module:
    norms = _computed(module)
    if name not in norms or not hasattr(module, parts[0]):
        raise OptionError(f"{norm} of '{name}' not found in {module}")
    with no_grad():
        value = getattr(module, name).clone()
    norms.pop(name)()
    delattr(type(module), name)
    for part in parts:
        delattr(module, part)
    if not norms:
        object.__setattr__(module, "__class__", type(module).__bases__[0])
    module.register_parameter(name, Parameter(value))
    return module
