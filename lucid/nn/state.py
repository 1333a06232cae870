"""state_dict and load_state_dict: a module's parameters and buffers by path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from lucid.autograd.modes import no_grad
from lucid.ir.errors import ArgumentError
from lucid.nn.modules import state_hooks
from lucid.nn.naming import ModuleStateError
from lucid.nn.parameter import Parameter
from lucid.nn.uninitialized import Uninitialized
from lucid.tensor.arrays import plain_array
from lucid.tensor.core import of_array
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_

if TYPE_CHECKING:
    from lucid.nn.modules.module import Module


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict(strict=False)` found not to match."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )


class _Place(NamedTuple):
    """Where a tensor of the state lives."""

    module: Module
    name: str
    register: str
    tensor: Tensor


def _places(module: Module, prefix: str = "") -> dict[str, _Place]:
    """Every parameter and persistent buffer by path; shared ones under each of their paths."""
    found: dict[str, _Place] = {}
    for register in ("_parameters", "_buffers"):
        for name, tensor in module._registered(register).items():
            if tensor is not None and name not in module._transient:
                found[prefix + name] = _Place(module, name, register, tensor)
    for name, child in module._registered("_modules").items():
        if child is not None:
            found.update(_places(child, f"{prefix}{name}."))
    return found


_EXTRA = "_extra_state"


def _with_extra_state(module: Module) -> dict[str, Module]:
    """The modules that have more state than tensors, by the path of that state."""
    from lucid.nn.modules.module import Module as Base

    return {
        f"{path}.{_EXTRA}" if path else _EXTRA: found
        for path, found in module.walk()
        if type(found).get_extra_state is not Base.get_extra_state
    }


def save_state(
    module: Module, destination: dict[str, Any], prefix: str, keep_vars: bool
) -> dict[str, Any]:
    """Enter the module's tensors into `destination`, which is returned."""
    state_hooks.before_saving(module, prefix, keep_vars)
    for path, place in _places(module, prefix).items():
        destination[path] = place.tensor if keep_vars else place.tensor.detach()
    for path, owner in _with_extra_state(module).items():
        destination[prefix + path] = owner.get_extra_state()
    state_hooks.after_saving(module, destination, prefix)
    return destination


def load_state(
    module: Module, state: Mapping[str, Any], strict: bool, assign: bool
) -> IncompatibleKeys:
    """Copy `state` into the module once all of it is known to fit. Raises `ModuleStateError`."""
    if not isinstance(state, Mapping):
        raise ArgumentError(f"Expected state_dict to be dict-like, got {type(state).__name__}.")
    given = dict(state)
    missing: list[str] = []
    unexpected: list[str] = []
    complaints: list[str] = []
    state_hooks.before_loading(module, given, strict, missing, unexpected, complaints)
    places, extra = _places(module), _with_extra_state(module)
    missing += [path for path in (*places, *extra) if path not in given]
    unexpected += [path for path in given if path not in places and path not in extra]
    if strict and not state_hooks.may_forgive(module):
        complaints += _mismatches(IncompatibleKeys(missing, unexpected))
    values = {path: _as_tensor(path, given[path]) for path in places if path in given}
    for path, value in values.items():
        complaints += _misfit(path, places[path].tensor, value)
    if complaints:
        _complain(module, complaints)
    with no_grad():
        for path, value in values.items():
            (_assign if assign else _copy)(places[path], value)
    for path, owner in extra.items():
        if path in given:
            owner.set_extra_state(given[path])
    keys = IncompatibleKeys(missing, unexpected)
    state_hooks.after_loading(module, keys)
    if strict and (complaints := _mismatches(keys)):  # as hooks leave them
        _complain(module, complaints)
    return keys


def _mismatches(keys: IncompatibleKeys) -> list[str]:
    found = []
    if keys.unexpected_keys:
        found.append(f"Unexpected key(s) in state_dict: {_quoted(keys.unexpected_keys)}.")
    if keys.missing_keys:
        found.append(f"Missing key(s) in state_dict: {_quoted(keys.missing_keys)}.")
    return found


def _misfit(path: str, own: Tensor, value: Tensor) -> list[str]:
    """What is wrong with a value, if anything."""
    if isinstance(own, Uninitialized):
        return []
    if isinstance(value, Uninitialized):
        return [f"{path}: copying an uninitialized parameter or buffer into an initialized one"]
    if tuple(value.shape) == tuple(own.shape):
        return []
    return [
        f"size mismatch for {path}: copying a param with shape {list(value.shape)} from "
        f"checkpoint, the shape in current model is {list(own.shape)}."
    ]


def _complain(module: Module, complaints: list[str]) -> NoReturn:
    listed = "\n\t".join(complaints)
    raise ModuleStateError(
        f"Error(s) in loading state_dict for {type(module).__name__}:\n\t{listed}"
    )


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _as_tensor(path: str, value: Any) -> Tensor:
    """A tensor of the state, which may also hold arrays, as after a round trip through a file."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return of_array(plain_array(value, f'load_state_dict: "{path}"'))
    raise ArgumentError(
        f'While copying the parameter named "{path}", expected lucid.Tensor or numpy.ndarray from '
        f"checkpoint but received {type(value).__name__}"
    )


def _copy(place: _Place, value: Tensor) -> None:
    if isinstance(place.tensor, Uninitialized):
        if isinstance(value, Uninitialized):
            return
        place.tensor.materialize(value.shape)
    kinds = value.dtype.kind, place.tensor.dtype.kind
    if kinds == ("float", "int"):  # what PyTorch's copy_ does; in-place arithmetic refuses it
        value = value.to(place.tensor.dtype)
    write_(place.tensor, value.detach())


def _assign(place: _Place, value: Tensor) -> None:
    if place.register == "_parameters" and not isinstance(value, Parameter):
        value = Parameter(value.detach(), place.tensor.requires_grad)
    setattr(place.module, place.name, value)
