"""Hooks of modules: around forward, and on the gradients that cross a module's border.

Args:
    hook: what is called.
    prepend: before the module's other hooks of this kind, but after the global ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lucid.autograd.hooks import HookHandle
from lucid.docstrings import like
from lucid.ir.errors import LucidError
from lucid.ir.location import warn
from lucid.nn.modules.border import GradientBorder
from lucid.tensor.context import epoch
from lucid.tensor.tensor import Tensor

if TYPE_CHECKING:
    from lucid.nn.modules.module import Module

Hook = Callable[..., Any]
Hooks = OrderedDict[int, Hook]

REGISTERS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
OPTIONS = ("_hooks_with_kwargs", "_hooks_always_called")
Held = TypeVar("Held", bound=dict[Any, Any])


class Register(Generic[Held]):
    """A dict of a Module's, its members or hooks. Who asks for it may be about to change it."""

    def __set_name__(self, kind: type, name: str) -> None:
        self._name = name

    def __get__(self, holder: Hooked, kind: type) -> Held:
        epoch.count += 1
        try:
            found: Held = attributes_of(holder)[self._name]
        except (KeyError, TypeError):  # it isn't made yet; a class has none
            raise AttributeError(self._name) from None
        return found

    def __set__(self, holder: Hooked, held: Held) -> None:
        epoch.count += 1
        attributes_of(holder)[self._name] = held


class Hooked:
    """What modules have of hooks; all modules share another one of these, the global hooks.

    Attributes:
        _hooks_with_kwargs: numbers of the forward hooks that take the keyword arguments, too.
        _hooks_always_called: numbers of the forward hooks that an error doesn't keep from running.
    """

    _forward_hooks = Register[Hooks]()
    _forward_pre_hooks = Register[Hooks]()
    _backward_hooks = Register[Hooks]()
    _backward_pre_hooks = Register[Hooks]()
    _hooks_with_kwargs: set[int]
    _hooks_always_called: set[int]

    def __init__(self) -> None:
        for register in REGISTERS:
            object.__setattr__(self, register, OrderedDict())
        for option in OPTIONS:
            object.__setattr__(self, option, set())

    def _registered(self, register: str) -> dict[Any, Any]:
        """What a register holds, for who doesn't change it."""
        found: dict[Any, Any] = attributes_of(self)[register]
        return found

    def _add_hook(
        self,
        register: str,
        hook: Hook,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> HookHandle:
        hooks: Hooks = getattr(self, register)
        chosen = zip(OPTIONS, (with_kwargs, always_call), strict=True)
        options = tuple(getattr(self, option) for option, is_set in chosen if is_set)
        handle = HookHandle.add(hooks, hook, options)
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def register_forward_hook(
        self,
        hook: Hook,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> HookHandle:
        """Call `hook(module, args, result)` after each forward; it may return another result.

        Args:
            with_kwargs: the call is `hook(module, args, kwargs, result)`.
            always_call: also when the module's call raises; what the hook raises then is a warning.

        >>> layer = nn.Linear(3, 2)
        >>> def hook(module, args, result):
        ...     return result * 0
        >>> handle = layer.register_forward_hook(hook)
        >>> layer(lucid.ones(3)).abs()
        tensor([0., 0.], grad_fn=<AbsBackward>)
        """
        return self._add_hook("_forward_hooks", hook, prepend, with_kwargs, always_call)

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(module, args)` before each forward; it may return other arguments.

        Args:
            with_kwargs: the call is `hook(module, args, kwargs)`, and it may return a pair of both.

        >>> layer = nn.Linear(3, 2)
        >>> def hook(module, args):
        ...     print(args[0].shape)
        >>> handle = layer.register_forward_pre_hook(hook)
        >>> _ = layer(lucid.ones(3))
        lucid.Size([3])
        """
        return self._add_hook("_forward_pre_hooks", hook, prepend, with_kwargs)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> HookHandle:
        """Call `hook(module, grad_input, grad_output)` when the inputs' gradients are known.

        Both are tuples, with None for what is no tensor; `grad_input` is of the positional
        arguments, with zeros for tensors that don't require grad. The hook may return other
        gradients of the inputs. When no input requires grad, it is called once the outputs'
        gradients are known. What the module gets and gives are views then, which can't be written
        in place.

        Args:
            prepend: call it before the other hooks.

        >>> layer = nn.Linear(3, 2)
        >>> def hook(module, grad_input, grad_output):
        ...     print(grad_output)
        >>> handle = layer.register_full_backward_hook(hook)
        >>> layer(lucid.ones(3, requires_grad=True)).sum().backward()
        (tensor([1., 1.]),)
        """
        return self._add_hook("_backward_hooks", hook, prepend)

    def register_backward_hook(self, hook: Hook) -> HookHandle:
        """Call a hook as `register_full_backward_hook` does, which programs should write instead.

        In PyTorch `grad_input` is of the last operation, here of the module's inputs; it warns.

        >>> import warnings
        >>> layer = nn.Linear(3, 2)
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     handle = layer.register_backward_hook(lambda module, given, got: print(got))
        >>> layer(lucid.ones(3, requires_grad=True)).sum().backward()
        (tensor([1., 1.]),)
        """
        warn(
            "register_backward_hook is deprecated: grad_input is of the module's inputs here, as "
            "in register_full_backward_hook"
        )
        return self.register_full_backward_hook(hook)

    @like(register_full_backward_hook)
    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> HookHandle:
        """Call `hook(module, grad_output)` before the module's backward.

        It may return other gradients of the outputs. Else as `register_full_backward_hook`.

        >>> layer = nn.Linear(3, 2)
        >>> def hook(module, grad_output):
        ...     print(grad_output)
        >>> handle = layer.register_full_backward_pre_hook(hook)
        >>> layer(lucid.ones(3, requires_grad=True)).sum().backward()
        (tensor([1., 1.]),)
        """
        return self._add_hook("_backward_pre_hooks", hook, prepend)

    def _has_hooks(self) -> bool:
        own = attributes_of(self)
        return bool(
            own["_forward_hooks"]
            or own["_forward_pre_hooks"]
            or own["_backward_hooks"]
            or own["_backward_pre_hooks"]
        )

    @staticmethod
    def _global_hooks() -> dict[str, dict[int, Hook]]:
        """The hooks of all modules, by register."""
        return {register: GLOBAL._registered(register) for register in REGISTERS}


attributes_of: Callable[[Hooked], dict[str, Any]] = Hooked.__dict__["__dict__"].__get__
GLOBAL = Hooked()


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> HookHandle:
    """Call `hook(module, args, result)` after each forward of any module, before its own hooks."""
    return GLOBAL.register_forward_hook(hook, with_kwargs=with_kwargs, always_call=always_call)


def register_module_forward_pre_hook(hook: Hook) -> HookHandle:
    """Call `hook(module, args)` before each forward of any module, before its own hooks."""
    return GLOBAL.register_forward_pre_hook(hook)


def register_module_full_backward_hook(hook: Hook) -> HookHandle:
    """Call `hook(module, grad_input, grad_output)` in the backward of any module."""
    return GLOBAL.register_full_backward_hook(hook)


def register_module_full_backward_pre_hook(hook: Hook) -> HookHandle:
    """Call `hook(module, grad_output)` before the backward of any module."""
    return GLOBAL.register_full_backward_pre_hook(hook)


def _of(module: Module, register: str) -> Iterator[tuple[Hooked, int, Hook]]:
    """The hooks that a call runs, global ones first, with who holds them."""
    for holder in (GLOBAL, module):
        for number, hook in tuple(holder._registered(register).items()):
            yield holder, number, hook


def call_module(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the module's forward, with hooks around it if there are any."""
    if not module._has_hooks() and not GLOBAL._has_hooks():
        return module.forward(*args, **kwargs)
    return _Call(module, args, kwargs).run()


class _Call:
    """One call of a module that has hooks."""

    def __init__(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.module, self.args, self.kwargs = module, args, kwargs
        self.result: Any = None
        self.called: set[int] = set()

    def run(self) -> Any:
        try:
            self._run()
        except Exception:
            self._run_always_called()
            raise
        return self.result

    def _run(self) -> None:
        self._run_pre_hooks()
        after = [hook for _, _, hook in _of(self.module, "_backward_hooks")]
        before = [hook for _, _, hook in _of(self.module, "_backward_pre_hooks")]
        border = GradientBorder(self.module, after, before) if after or before else None
        if border is not None:
            self.args = border.enter(self.args)
        self.result = self.module.forward(*self.args, **self.kwargs)
        for holder, number, hook in _of(self.module, "_forward_hooks"):
            self._run_forward_hook(holder, number, hook)
        if border is not None:
            self._warn_of_untracked_result()
            self.result = border.leave(self.result)

    def _run_pre_hooks(self) -> None:
        for holder, number, hook in _of(self.module, "_forward_pre_hooks"):
            if number not in holder._hooks_with_kwargs:
                changed = hook(self.module, self.args)
                if changed is not None:
                    self.args = changed if isinstance(changed, tuple) else (changed,)
                continue
            changed = hook(self.module, self.args, self.kwargs)
            if changed is None:
                continue
            if not (isinstance(changed, tuple) and len(changed) == 2):
                raise LucidError(
                    "forward pre-hook must return None or a tuple of (new_args, new_kwargs), but "
                    f"got {changed}."
                )
            self.args, self.kwargs = changed

    def _run_forward_hook(self, holder: Hooked, number: int, hook: Hook) -> None:
        self.called.add(number)
        takes_kwargs = number in holder._hooks_with_kwargs
        arguments = (self.args, self.kwargs) if takes_kwargs else (self.args,)
        changed = hook(self.module, *arguments, self.result)
        if changed is not None:
            self.result = changed

    def _run_always_called(self) -> None:
        """After an error, run the hooks that ask for it and haven't run."""
        for holder, number, hook in _of(self.module, "_forward_hooks"):
            if number not in holder._hooks_always_called or number in self.called:
                continue
            try:
                self._run_forward_hook(holder, number, hook)
            except Exception as error:  # the first error is the one to be raised
                whose = "global module" if holder is GLOBAL else "module"
                warn(
                    f"{whose} forward hook with ``always_call=True`` raised an exception that was "
                    f"silenced as another error was raised in forward: {error}"
                )

    def _warn_of_untracked_result(self) -> None:
        if not isinstance(self.result, (Tensor, tuple)):
            warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of "
                f"Tensors but received {type(self.result)}"
            )
