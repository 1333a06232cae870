"""`weight_norm` and `spectral_norm` with the parameters on the module itself, under older names.

`lucid.nn.utils.parametrizations` has the newer ones. Here a hook computes the weight before each
forward and leaves it on the module, as an ordinary attribute.

Args:
    module: whose weight it is.
"""

from __future__ import annotations

from typing import Any

import lucid
from lucid.autograd.modes import no_grad
from lucid.docstrings import like
from lucid.functions.border import module_at_border
from lucid.ir.errors import LucidError, OptionError
from lucid.nn.functional.distance import normalize
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter
from lucid.nn.uninitialized import UninitializedParameter
from lucid.nn.utils.parametrizations import default_dim, matrix_along, norm_except_dim
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


class WeightNorm:
    """The hook of `weight_norm`: `<name>` is computed of `<name>_g` and `<name>_v`."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, dim

    def compute_weight(self, module: Module) -> Tensor:
        """The directions, with the lengths that the parameter says."""
        lengths, directions = (getattr(module, f"{self.name}_{part}") for part in "gv")
        weight: Tensor = directions * (lengths / norm_except_dim(directions, self.dim))
        return weight

    def remove(self, module: Module) -> None:
        """Make the present weight a parameter again."""
        with no_grad():
            _restore(module, self.name, self.compute_weight(module), ("_g", "_v"))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Put `<name>_g`, lengths, and `<name>_v`, directions, in the place of a parameter.

    The weight is computed of them before each forward.

    Reference: Salimans and Kingma, "Weight Normalization", 2016.

    Args:
        dim: the axis whose places have lengths of their own; None for one length.

    >>> layer = nn.utils.weight_norm(nn.Linear(3, 2))
    >>> sorted(name for name, _ in layer.named_parameters())
    ['bias', 'weight_g', 'weight_v']
    """
    weight = _taken(module, name, WeightNorm)
    with no_grad():
        lengths = norm_except_dim(weight, dim).clone()
    module.register_parameter(f"{name}_g", Parameter(lengths))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    hook = WeightNorm(name, dim)
    hook(module, ())
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make the present weight a parameter again. Raises `OptionError` where there is no norm.

    >>> layer = nn.utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(3, 2)))
    >>> sorted(name for name, _ in layer.named_parameters())
    ['bias', 'weight']
    """
    return _remove(module, name, WeightNorm)


class SpectralNorm:
    """The hook of `spectral_norm`: `<name>` is `<name>_orig` over its greatest singular value.

    Attributes:
        dim: the axis whose elements are the rows of the weight as a matrix.
    """

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        if n_power_iterations <= 0:
            raise OptionError(f"n_power_iterations must be positive, not {n_power_iterations}")
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """The original over `u @ original @ v`, after some iterations of `u` and `v` in place."""
        weight, u, v = (getattr(module, f"{self.name}_{part}") for part in ("orig", "u", "v"))
        matrix = matrix_along(weight, self.dim)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    write_(v, normalize(matrix.mT @ u, dim=0, eps=self.eps))
                    write_(u, normalize(matrix @ v, dim=0, eps=self.eps))
            u, v = u.clone(), v.clone()  # the next forward writes them before this one's backward
        found: Tensor = weight / u.dot(matrix.mv(v))
        return found

    def remove(self, module: Module) -> None:
        """Make the present weight a parameter again."""
        with no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        _restore(module, self.name, weight, ("_orig", "_u", "_v"))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a parameter, `<name>_orig` from now on, by an estimate of its greatest singular value.

    Each call of the module in training mode improves the buffers `<name>_u` and `<name>_v`. Until
    the first call the weight shows the original's memory, so that it can still be initialized.

    Reference: Miyato et al., "Spectral Normalization for Generative Adversarial Networks", 2018.

    Args:
        n_power_iterations: how often the estimate is improved at each call.
        eps: keeps the division finite.
        dim: the axis that counts rows. None is 0, and 1 for transposed convolutions.

    >>> layer = nn.utils.spectral_norm(nn.Linear(3, 2))
    >>> sorted(name for name, _ in layer.named_parameters())
    ['bias', 'weight_orig']
    """
    hook = SpectralNorm(name, n_power_iterations, default_dim(module, dim), eps)
    weight = _taken(module, name, SpectralNorm)
    module.register_parameter(f"{name}_orig", weight)
    setattr(module, name, weight.data)
    for part, size in zip("uv", matrix_along(weight, hook.dim).shape, strict=True):
        start = normalize(lucid.randn(size, dtype=weight.dtype), dim=0, eps=eps)
        module.register_buffer(f"{name}_{part}", start)
    module.register_forward_pre_hook(hook)
    return module


@like(remove_weight_norm)
def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make the present weight a parameter again. Raises `OptionError` where there is no norm.

    >>> layer = nn.utils.remove_spectral_norm(nn.utils.spectral_norm(nn.Linear(3, 2)))
    >>> sorted(name for name, _ in layer.named_parameters())
    ['bias', 'weight']
    """
    return _remove(module, name, SpectralNorm)


Norm = WeightNorm | SpectralNorm
_NAMES: dict[type[Norm], str] = {WeightNorm: "weight_norm", SpectralNorm: "spectral_norm"}


def _taken(module: Module, name: str, kind: type[Norm]) -> Parameter:
    """The parameter of this name, which is taken from the module."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, kind) and hook.name == name:
            raise LucidError(f"{_NAMES[kind]}: there is one on the parameter '{name}' already")
    weight = module._parameters.get(name)
    if weight is None:
        raise OptionError(f"Module '{type(module).__name__}' has no parameter with name '{name}'")
    if isinstance(weight, UninitializedParameter):
        raise OptionError(
            f"{_NAMES[kind]}: the module's parameter '{name}' is not initialized\n"
            "hint: call the module once before"
        )
    delattr(module, name)
    return weight


def _remove(module: Module, name: str, kind: type[Norm]) -> Module:
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, kind) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[number]
            return module
    raise OptionError(f"{_NAMES[kind]} of '{name}' not found in {module}")


def _restore(module: Module, name: str, weight: Tensor, parts: tuple[str, ...]) -> None:
    for part in ("", *parts):
        delattr(module, name + part)
    module.register_parameter(name, Parameter(weight.detach()))


module_at_border(__name__)
