"""state_dict and load_state_dict: a module's parameters and buffers by path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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


class Complaints(list[str]):
    """What doesn't fit, and what is to be done once all of it is known to fit."""

    def __init__(self, assign: bool) -> None:
        super().__init__()
        self.assign = assign
        self.values: list[tuple[_Place, Tensor]] = []
        self.extra: list[tuple[Module, Any]] = []

    def carry_out(self) -> None:
        """Give all places their values, and modules their further state."""
        with no_grad():
            for place, value in self.values:
                if self.assign:
                    setattr(place.module, place.name, value)
                else:
                    _copy(place, value)
        for owner, state in self.extra:
            owner.set_extra_state(state)


def _own_places(module: Module, prefix: str) -> dict[str, _Place]:
    """The module's own parameters and persistent buffers by path."""
    return {
        prefix + name: _Place(module, name, register, tensor)
        for register in ("_parameters", "_buffers")
        for name, tensor in module._registered(register).items()
        if tensor is not None and name not in module._transient
    }


_EXTRA = "_extra_state"


def _has_extra_state(module: Module) -> bool:
    """Whether it has more state than tensors."""
    from lucid.nn.modules.module import Module as Base

    return type(module).get_extra_state is not Base.get_extra_state


def _children(module: Module) -> Iterator[tuple[str, Module]]:
    """The submodules by name; a shared one under each of its names."""
    for name, child in module._registered("_modules").items():
        if child is not None:
            yield name, child


def save_state(
    module: Module, destination: dict[str, Any], prefix: str, keep_vars: bool
) -> dict[str, Any]:
    """Enter the module's state and that of its submodules into `destination`, which is returned."""
    state_hooks.run(module, "before_saving", prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in _children(module):
        child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    state_hooks.run(module, "after_saving", destination, prefix, {})
    return destination


def save_own(module: Module, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
    """Enter what is the module's own."""
    for path, place in _own_places(module, prefix).items():
        destination[path] = place.tensor if keep_vars else place.tensor.detach()
    if _has_extra_state(module):
        destination[prefix + _EXTRA] = module.get_extra_state()


def load_state(
    module: Module, state: Mapping[str, Any], strict: bool, assign: bool
) -> IncompatibleKeys:
    """Copy `state` into the module once all of it is known to fit. Raises `ModuleStateError`."""
    if not isinstance(state, Mapping):
        raise ArgumentError(f"Expected state_dict to be dict-like, got {type(state).__name__}.")
    keys_given: Iterable[Any] = state
    if strays := [key for key in keys_given if not isinstance(key, str)]:
        raise ArgumentError(f"Expected the keys of state_dict to be names, got {strays[0]!r}.")
    keys = IncompatibleKeys([], [])
    complaints = Complaints(assign)
    _load(module, dict(state), "", (keys.missing_keys, keys.unexpected_keys, complaints))
    if strict and not state_hooks.may_forgive(module):
        complaints[:0] = _mismatches(keys)
    if complaints:
        _complain(module, complaints)
    complaints.carry_out()
    state_hooks.after_loading(module, keys)
    if strict and (found := _mismatches(keys)):  # as hooks leave them
        _complain(module, found)
    return keys


Lists = tuple[list[str], list[str], list[str]]  # missing and unexpected keys, complaints


def _load(module: Module, given: dict[str, Any], prefix: str, lists: Lists) -> None:
    module._load_from_state_dict(given, prefix, {}, True, *lists)
    for name, child in _children(module):
        inner = f"{prefix}{name}."
        part = {path: value for path, value in given.items() if path.startswith(inner)}
        _load(child, part, inner, lists)


def load_own(
    module: Module, given: dict[str, Any], prefix: str, strict: bool, lists: Lists
) -> None:
    """Note what becomes of the module's own tensors, and what of `given` doesn't fit."""
    missing, unexpected, complaints = lists
    state_hooks.run(module, "before_loading", given, prefix, {}, strict, *lists)
    plan = complaints if isinstance(complaints, Complaints) else Complaints(False)
    places = _own_places(module, prefix)
    for path, place in places.items():
        if path in given:
            value = _as_tensor(path, given[path])
            misfit = _misfit(path, place.tensor, value)
            complaints += misfit
            if not misfit:
                plan.values.append((place, _own(place, value) if plan.assign else value))
        elif strict:
            missing.append(path)
    has_extra = _has_extra_state(module)
    if has_extra and prefix + _EXTRA in given:
        plan.extra.append((module, given[prefix + _EXTRA]))
    elif has_extra and strict:
        missing.append(prefix + _EXTRA)
    if strict:
        known = {name for name, _ in _children(module)}
        for path in given:
            first, is_deeper, _ = path.removeprefix(prefix).partition(".")
            is_known = first in known if is_deeper else path in places
            if path.startswith(prefix) and not is_known and (first != _EXTRA or not has_extra):
                unexpected.append(path)
    if plan is not complaints:  # asked for by itself
        plan.carry_out()


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


def _own(place: _Place, value: Tensor) -> Tensor:
    """What takes the place of a tensor: a parameter where there was one."""
    if place.register == "_parameters" and not isinstance(value, Parameter):
        return Parameter(value.detach(), place.tensor.requires_grad)
    return value
