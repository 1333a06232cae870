"""Hooks of optimizers: around `step`, and around their state dicts.

Args:
    hook: what is called.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from lucid.autograd.hooks import HookHandle
from lucid.docstrings import like
from lucid.ir.errors import LucidError
from lucid.ir.frames import catching, leave

Hook = Callable[..., Any]
Hooks = OrderedDict[int, Hook]

REGISTERS = (
    "_step_pre_hooks",
    "_step_post_hooks",
    "_state_dict_pre_hooks",
    "_state_dict_post_hooks",
    "_load_pre_hooks",
    "_load_post_hooks",
)

NATIVE = "_native"  # the attribute with the compiled updates


class Hooked:
    """What optimizers have of hooks. A compiled step runs them as part of `step`."""

    def __init__(self) -> None:
        for register in REGISTERS:
            setattr(self, register, OrderedDict())

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "step" in vars(cls):
            owner: Any = cls
            owner.step = hooked_step(owner.step)

    def __getstate__(self) -> dict[str, Any]:
        """All but hooks and native code, which a pickled optimizer or a copy has none of."""
        left_out = (*REGISTERS, NATIVE)
        return {key: value for key, value in vars(self).items() if key not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Hooked.__init__(self)
        vars(self).update(state)

    def _add_hook(self, register: str, hook: Hook, prepend: bool = False) -> HookHandle:
        hooks = self._hooks_of(register)
        handle = HookHandle.add(hooks, hook)
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def _hooks_of(self, register: str) -> Hooks:
        """The hooks of one kind, in the order of their calls."""
        return cast(Hooks, vars(self)[register])

    def _hook_numbers(self) -> tuple[tuple[int, ...], ...]:
        """Which hooks there are: what a compiled step is specialized on."""
        return tuple(tuple(vars(self)[register]) for register in REGISTERS)

    def _users_parts(self) -> list[Any]:
        """What a compiled step that has the optimizer runs of the user's code."""
        registers = (vars(self).get(register, {}) for register in REGISTERS)
        return [hook for register in registers for hook in register.values()]

    def register_step_pre_hook(self, hook: Hook) -> HookHandle:
        """Call `hook(optimizer, args, kwargs)` before each step.

        It may return other arguments of the step, as a pair (args, kwargs).

        >>> w = lucid.ones(1, requires_grad=True)
        >>> opt = lucid.optim.SGD([w], lr=0.1)
        >>> handle = opt.register_step_pre_hook(lambda opt, args, kwargs: print("hook"))
        >>> opt.step()
        hook
        """
        return self._add_hook("_step_pre_hooks", hook)

    def register_step_post_hook(self, hook: Hook) -> HookHandle:
        """Call `hook(optimizer, args, kwargs)` after each step.

        >>> w = lucid.ones(1, requires_grad=True)
        >>> opt = lucid.optim.SGD([w], lr=0.1)
        >>> handle = opt.register_step_post_hook(lambda opt, args, kwargs: print("hook"))
        >>> opt.step()
        hook
        """
        return self._add_hook("_step_post_hooks", hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> HookHandle:
        """Call `hook(optimizer)` before a state dict is made.

        Args:
            prepend: call it before the other hooks.

        >>> opt = lucid.optim.SGD([lucid.ones(1, requires_grad=True)], lr=0.1)
        >>> handle = opt.register_state_dict_pre_hook(lambda opt: print("saving"))
        >>> state = opt.state_dict()
        saving
        """
        return self._add_hook("_state_dict_pre_hooks", hook, prepend)

    @like(register_state_dict_pre_hook)
    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> HookHandle:
        """Call `hook(optimizer, state_dict)` afterwards; it may return another state dict.

        >>> opt = lucid.optim.SGD([lucid.ones(1, requires_grad=True)], lr=0.1)
        >>> handle = opt.register_state_dict_post_hook(lambda opt, state: print("saving"))
        >>> state = opt.state_dict()
        saving
        """
        return self._add_hook("_state_dict_post_hooks", hook, prepend)

    @like(register_state_dict_pre_hook)
    def register_load_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> HookHandle:
        """Call `hook(optimizer, state_dict)` before it is loaded; it may return another one.

        >>> opt = lucid.optim.SGD([lucid.ones(1, requires_grad=True)], lr=0.1)
        >>> handle = opt.register_load_state_dict_pre_hook(lambda opt, state: print("loading"))
        >>> opt.load_state_dict(opt.state_dict())
        loading
        """
        return self._add_hook("_load_pre_hooks", hook, prepend)

    @like(register_state_dict_pre_hook)
    def register_load_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> HookHandle:
        """Call `hook(optimizer)` after a state dict was loaded.

        >>> opt = lucid.optim.SGD([lucid.ones(1, requires_grad=True)], lr=0.1)
        >>> handle = opt.register_load_state_dict_post_hook(lambda opt: print("loading"))
        >>> opt.load_state_dict(opt.state_dict())
        loading
        """
        return self._add_hook("_load_post_hooks", hook, prepend)

    def _run_hooks(self, register: str, *args: Any) -> None:
        for hook in tuple(self._hooks_of(register).values()):
            hook(self, *args)

    def _changed_by_hooks(self, register: str, state: dict[str, Any]) -> dict[str, Any]:
        """A state dict after hooks that may replace it."""
        for hook in tuple(self._hooks_of(register).values()):
            found = hook(self, state)
            state = state if found is None else found
        return state


def hooked_step(step: Callable[..., Any]) -> Callable[..., Any]:
    """A class's `step` with hooks around it; a `super().step()` in it runs none."""

    @catching
    @wraps(step)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            before = vars(self).get("_step_pre_hooks")
            after = vars(self).get("_step_post_hooks")
            if not (before or after) or type(self).step is not called:
                return step(self, *args, **kwargs)
            for hook in tuple(before.values()) if before else ():
                changed = hook(self, args, kwargs)
                if changed is None:
                    continue
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise LucidError(
                        f"{hook} must return None or a tuple of (new_args, new_kwargs), but got "
                        f"{changed}."
                    )
                args, kwargs = changed
            result = step(self, *args, **kwargs)
            for hook in tuple(after.values()) if after else ():
                hook(self, args, kwargs)
            return result
        except Exception as error:
            leave(error)
            raise

    return called
