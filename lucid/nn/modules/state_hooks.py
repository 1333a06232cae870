"""Hooks around a module's `state_dict` and `load_state_dict`.

Args:
    hook: what is called.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lucid.autograd.hooks import HookHandle
from lucid.ir.errors import LucidError

if TYPE_CHECKING:
    from lucid.nn.modules.module import Module
    from lucid.nn.state import IncompatibleKeys

Hook = Callable[..., Any]


class StateHooked:
    """What modules have of such hooks: registers that come into being with the first hook."""

    def _add_state_hook(self, register: str, hook: Hook) -> HookHandle:
        registers = vars(self).setdefault("_state_hooks", {})
        return HookHandle.add(registers.setdefault(register, OrderedDict()), hook)

    def _state_hooks_of(self, register: str) -> tuple[Hook, ...]:
        return tuple(vars(self).get("_state_hooks", {}).get(register, {}).values())

    def register_state_dict_pre_hook(self, hook: Hook) -> HookHandle:
        """Call `hook(module, prefix, keep_vars)` before a state dict is made.

        The handle that it returns takes it away again: `handle.remove()`.

        >>> layer = nn.Linear(3, 2)
        >>> handle = layer.register_state_dict_pre_hook(lambda *given: print("saving"))
        >>> state = layer.state_dict()
        saving
        """
        return self._add_state_hook("before_saving", hook)

    def register_state_dict_post_hook(self, hook: Hook) -> HookHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` afterwards, children first.

        It may change the state dict in place.

        >>> layer = nn.Linear(3, 2)
        >>> handle = layer.register_state_dict_post_hook(lambda m, state, *rest: state.clear())
        >>> list(layer.state_dict())
        []
        """
        return self._add_state_hook("after_saving", hook)

    def _register_state_dict_hook(self, hook: Hook) -> HookHandle:
        return self._add_state_hook("after_saving", hook)

    def register_load_state_dict_pre_hook(self, hook: Hook) -> HookHandle:
        """Call a hook before values are taken from a state dict; it may change it in place.

        The call is `hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)`; what is added to the lists is reported.

        >>> layer = nn.Linear(3, 2)
        >>> handle = layer.register_load_state_dict_pre_hook(lambda *given: print("loading"))
        >>> layer.load_state_dict(layer.state_dict())
        loading
        <All keys matched successfully>
        """
        return self._add_state_hook("before_loading", hook)

    def _register_load_state_dict_pre_hook(
        self, hook: Hook, with_module: bool = False
    ) -> HookHandle:
        """The same; without the module unless that is asked for."""
        if with_module:
            return self.register_load_state_dict_pre_hook(hook)
        return self.register_load_state_dict_pre_hook(lambda module, *args: hook(*args))

    def register_load_state_dict_post_hook(self, hook: Hook) -> HookHandle:
        """Call `hook(module, incompatible_keys)` afterwards, children first.

        It may change the lists of keys in place, which are reported then. The handle that it
        returns takes it away again: `handle.remove()`.

        >>> layer = lucid.nn.Linear(3, 2)
        >>> handle = layer.register_load_state_dict_post_hook(
        ...     lambda module, keys: print(keys.missing_keys)
        ... )
        >>> found = layer.load_state_dict({"weight": lucid.ones(2, 3)}, strict=False)
        ['bias']
        """
        return self._add_state_hook("after_loading", hook)


def _walk(module: Module, prefix: str = "") -> list[tuple[str, Module]]:
    """The modules with their prefixes, parents first."""
    return [(f"{prefix}{path}." if path else prefix, found) for path, found in module.walk()]


def before_saving(module: Module, prefix: str, keep_vars: bool) -> None:
    """Run the hooks that come before a state dict is made."""
    for path, found in _walk(module, prefix):
        for hook in found._state_hooks_of("before_saving"):
            hook(found, path, keep_vars)


def after_saving(module: Module, state: dict[str, Any], prefix: str) -> None:
    """Run the hooks that may change a state dict that was made."""
    for path, found in reversed(_walk(module, prefix)):
        for hook in found._state_hooks_of("after_saving"):
            if hook(found, state, path, {}) is not None:
                raise LucidError("state_dict post-hook must return None: change it in place")


def before_loading(
    module: Module,
    state: dict[str, Any],
    strict: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> None:
    """Run the hooks that may change what is loaded."""
    for prefix, found in _walk(module):
        for hook in found._state_hooks_of("before_loading"):
            hook(found, state, prefix, {}, strict, missing, unexpected, errors)


def may_forgive(module: Module) -> bool:
    """Whether there are hooks that may change which keys don't match, once all is loaded."""
    return any(found._state_hooks_of("after_loading") for found in module.modules())


def after_loading(module: Module, keys: IncompatibleKeys) -> None:
    """Run the hooks that may change what is reported."""
    for _, found in reversed(_walk(module)):
        for hook in found._state_hooks_of("after_loading"):
            if hook(found, keys) is not None:
                raise LucidError(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected "
                    "to return new values, if incompatible_keys need to be modified, it should be "
                    "done inplace."
                )
