"""Parameters that are computed from others: `register_parametrization` and what undoes it.

The module gets a class of its own with a property in the parameter's place; what is optimized are
the originals, in `module.parametrizations`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lucid.autograd.modes import no_grad
from lucid.ir.errors import LucidError, OptionError
from lucid.nn.modules.container import ModuleDict, ModuleList
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Buffer, Parameter
from lucid.tensor.tensor import Tensor


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied in order to its `original` (or originals)."""

    def __init__(self, modules: list[Module], original: Tensor, is_parameter: bool) -> None:
        super().__init__(modules)
        start: Any = original
        with no_grad():
            for module in reversed(modules):
                if hasattr(module, "right_inverse"):
                    start = module.right_inverse(start)
        self.is_tensor = isinstance(start, Tensor)
        parts = {"original": start} if self.is_tensor else _numbered(start)
        for name, value in parts.items():
            tensor = value.detach().clone()
            made = Parameter(tensor, original.requires_grad) if is_parameter else Buffer(tensor)
            setattr(self, name, made)
        self.originals = list(parts)

    def forward(self) -> Any:
        first, *rest = list(self)
        value = first(*(getattr(self, name) for name in self.originals))
        for module in rest:
            value = module(value)
        return value


def _numbered(values: Any) -> dict[str, Tensor]:
    return {f"original{i}": value for i, value in enumerate(values)}


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute `module.<tensor_name>` by `parametrization` from now on; returns the module.

    A `right_inverse` of the parametrization says which originals (one or several) give a value.
    Raises: `OptionError` for a name that is no parameter or buffer of the module.
    """
    if is_parametrized(module, tensor_name):
        return _appended(module, tensor_name, parametrization)
    is_parameter = tensor_name in module._parameters
    if not is_parameter and tensor_name not in module._buffers:
        raise OptionError(
            f"Module '{type(module).__name__}' does not have a parameter, a buffer, or a "
            f"parametrized element with name '{tensor_name}'"
        )
    original = getattr(module, tensor_name)
    parametrization.train(module.training)
    found = ParametrizationList([parametrization], original, is_parameter)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        own = type(f"Parametrized{type(module).__name__}", (type(module),), {})
        own.__module__ = type(module).__module__
        object.__setattr__(module, "__class__", own)
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = found
    setattr(type(module), tensor_name, property(lambda self: self.parametrizations[tensor_name]()))
    return module


def _appended(module: Module, name: str, parametrization: Module) -> Module:
    """Apply one more parametrization, after those that there are."""
    present: Any = module.parametrizations[name]
    if hasattr(parametrization, "right_inverse"):
        raise OptionError("a parametrization with right_inverse must be the first of a tensor")
    parametrization.train(module.training)
    present.append(parametrization)
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has a parametrization, or one of the tensor."""
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return bool(found) if tensor_name is None else tensor_name in found


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make the tensor an ordinary one again: its present value, or else its original."""
    if not is_parametrized(module, tensor_name):
        raise OptionError(f"Module {type(module).__name__} does not have a parametrization on it")
    found: Any = module.parametrizations[tensor_name]
    if not leave_parametrized and not found.is_tensor:
        raise LucidError("leave_parametrized=False needs a tensor with a single original")
    with no_grad():
        value = found() if leave_parametrized else found.original
    is_parameter = found.originals[0] in found._parameters
    del module.parametrizations[tensor_name]
    delattr(type(module), tensor_name)
    if is_parameter:
        module.register_parameter(tensor_name, Parameter(value.detach().clone()))
    else:
        module.register_buffer(tensor_name, value.detach().clone())
    if not module.parametrizations:
        del module.parametrizations
        object.__setattr__(module, "__class__", type(module).__bases__[0])
    return module


@contextmanager
def cached() -> Iterator[None]:
    """Nothing to keep: a compiled step computes what is the same once anyway."""
    yield
