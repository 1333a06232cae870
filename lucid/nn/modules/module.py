"""Module: a tree of parameters, buffers and submodules with a `forward`.

Args:
    name: what it is called; without dots.
    module: the module, or None.
    prefix: what paths begin with.
    remove_duplicate: name what is shared once only.
    recurse: those of submodules, too.
    target: the path: names, joined by dots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self

from lucid.choices import check_flag, check_kind
from lucid.compiler.recording import hooks as trace_hooks
from lucid.device import check_device
from lucid.docstrings import like
from lucid.dtypes import MissingDType, as_dtype
from lucid.ir.errors import ArgumentError, MissingRuleError, OptionError
from lucid.ir.frames import catching, leave
from lucid.ir.types import DType, f32, f64
from lucid.layouts import check_memory_format
from lucid.nn import tracing
from lucid.nn.gradients import reset_gradients
from lucid.nn.modules.hooked import (
    Hooked as Hooked,
    Register,
    attributes_of,
    call_module,
    register_module_forward_hook as register_module_forward_hook,
    register_module_forward_pre_hook as register_module_forward_pre_hook,
    register_module_full_backward_hook as register_module_full_backward_hook,
    register_module_full_backward_pre_hook as register_module_full_backward_pre_hook,
)
from lucid.nn.modules.places import note_module
from lucid.nn.modules.state_hooks import StateHooked
from lucid.nn.naming import NamingError, NoSuchAttributeError
from lucid.nn.parameter import Buffer, Parameter, TransientBuffer
from lucid.nn.state import IncompatibleKeys, load_own, load_state, save_own, save_state
from lucid.nn.uninitialized import Uninitialized
from lucid.tensor.context import epoch
from lucid.tensor.tensor import Tensor

__all__ = ["Module"]

_EXPECTED = {
    "_parameters": "lucid.nn.Parameter", "_buffers": "lucid.Tensor", "_modules": "lucid.nn.Module",
}  # fmt: skip
_REGISTERS = tuple(_EXPECTED)
_INSTEAD_OF = {
    **dict.fromkeys(("half", "bfloat16"), "models are of float32 or float64: float(), double()"),
    "cuda": "lucid runs on the CPU, to(device) takes 'cpu'",
}


def _no_attribute(module: Module, name: str) -> NoSuchAttributeError:
    hint = f"\nhint: {_INSTEAD_OF[name]}" if name in _INSTEAD_OF else ""
    text = f"'{type(module).__name__}' object has no attribute '{name}'{hint}"
    error = NoSuchAttributeError(text)
    error.name, error.obj = name, module  # Python suggests a similar name
    return error


class Module(Hooked, StateHooked):
    """Base of all layers and models; a Parameter or Module that is assigned becomes part of it.

    Attributes:
        training: what `train()` and `eval()` set; dropout and batch norm read it.

    >>> class Scaled(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.scale = nn.Parameter(lucid.ones(1))
    ...         self.inner = nn.Linear(3, 2)
    ...
    ...     def forward(self, x):
    ...         return self.scale * self.inner(x)
    >>> [name for name, _ in Scaled().named_parameters()]
    ['scale', 'inner.weight', 'inner.bias']
    """

    training: bool
    _parameters = Register[dict[str, Parameter | None]]()
    _buffers = Register[dict[str, Tensor | None]]()
    _modules = Register[dict[str, "Module | None"]]()
    _transient: set[str]  # buffers that are left out of the state dict
    _shown: ClassVar[str] = ""  # `extra_repr`, as a format of the module

    def __init__(self) -> None:
        super().__init__()
        for register in _REGISTERS:
            object.__setattr__(self, register, {})
        object.__setattr__(self, "_transient", set())
        object.__setattr__(self, "training", True)

    # ------------------------------------------------------------------ calling

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's result; subclasses define it. Raises `MissingRuleError`.

        It is called by `module(...)`, with the hooks around it.

        Raises `MissingRuleError` where a subclass has none.

        Args:
            *args: what the subclass takes.
            **kwargs: what the subclass takes, by name.

        >>> class Double(nn.Module):
        ...     def forward(self, x):
        ...         return 2 * x
        >>> Double()(lucid.ones(2)), Double().forward(lucid.ones(2))
        (tensor([2., 2.]), tensor([2., 2.]))
        """
        raise MissingRuleError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    @catching
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if not trace_hooks.is_tracing():
                compiled = attributes_of(self).get("_compiled_call")
                if compiled is None:
                    return call_module(self, args, kwargs)
                return compiled(*args, **kwargs)
            with tracing.running(self):
                return call_module(self, args, kwargs)
        except Exception as error:
            note_module(error, self)
            leave(error)
            raise

    def compile(self, **options: Any) -> None:
        """Let calls of this module run compiled from now on, hooks included: it stays what it is.

        `lucid.compile(module)` returns another object instead.

        Args:
            **options: as of `lucid.compile`, which raises for others.

        >>> layer = lucid.nn.Linear(2, 1, bias=False)
        >>> layer.compile()
        >>> layer(lucid.ones(3, 2)).shape
        lucid.Size([3, 1])
        """
        from lucid.compiler import compile

        self.__dict__["_compiled_call"] = compile(self._call_as_it_is, **options)

    def _call_as_it_is(self, *args: Any, **kwargs: Any) -> Any:
        if not trace_hooks.is_tracing():
            return call_module(self, args, kwargs)
        with tracing.running(self):
            return call_module(self, args, kwargs)

    # ------------------------------------------------------------------ attributes

    @property
    def __dict__(self) -> dict[str, Any]:
        """Its attributes and registers. Who asks for them may be about to change them."""
        tracing.note_change()
        return attributes_of(self)

    @__dict__.setter
    def __dict__(self, attributes: dict[str, Any]) -> None:
        tracing.note_change()
        Hooked.__dict__["__dict__"].__set__(self, attributes)

    @catching  # a layer asks for each of its parameters
    def __getattr__(self, name: str) -> Any:
        attributes = attributes_of(self)
        for register in _REGISTERS:
            held = attributes.get(register)
            if held is not None and name in held:
                if trace_hooks.is_tracing():
                    tracing.meet(self, tracing.path_of(self))
                return held[name]
        try:
            raise _no_attribute(self, name)
        except AttributeError as error:
            leave(error)
            raise

    def __setattr__(self, name: str, value: Any) -> None:
        register, attributes = self._register_for(name, value), attributes_of(self)
        if register is None:
            if name not in attributes or attributes[name] is not value:
                tracing.binds(self, name)
                tracing.note_change()
            object.__setattr__(self, name, value)
            return
        attributes.pop(name, None)
        for other in _REGISTERS:
            if other != register:
                attributes[other].pop(name, None)
        if register != "_buffers":
            self._transient.discard(name)
        elif isinstance(value, Buffer):
            is_transient = isinstance(value, TransientBuffer)
            (self._transient.add if is_transient else self._transient.discard)(name)
        attributes[register][name] = value
        tracing.note_change()

    def _register_for(self, name: str, value: Any) -> str | None:
        """Which register the value belongs to; None for an ordinary attribute."""
        attributes = attributes_of(self)
        for kind, register, expected in _OWN:
            if isinstance(value, kind):
                if "_parameters" not in attributes:
                    raise self._too_early(expected)
                return register
        for register, expected in _EXPECTED.items():
            if name in attributes.get(register, ()):
                if value is None or (register == "_buffers" and isinstance(value, Tensor)):
                    return register
                raise ArgumentError(
                    f"cannot assign '{value.__class__.__name__}' as {register[1:-1]} '{name}' "
                    f"({expected} or None expected)"
                )
        return None

    def _too_early(self, what: str) -> NoSuchAttributeError:
        return NoSuchAttributeError(
            f"cannot assign {what} before Module.__init__() call\n"
            f"hint: {type(self).__name__}.__init__ must call super().__init__() first"
        )

    def __delattr__(self, name: str) -> None:
        tracing.note_change()
        for register in _REGISTERS:
            if name in self.__dict__[register]:
                del self.__dict__[register][name]
                self._transient.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        registers = map(attributes_of(self).get, _REGISTERS)
        held = [name for register in registers for name in register or ()]
        return sorted({*object.__dir__(self), *held})

    def _check_name(self, what: str, name: str, register: str) -> None:
        if "_parameters" not in self.__dict__:
            raise self._too_early(what)
        if not isinstance(name, str):
            raise ArgumentError(f"{what} name should be a string. Got {type(name).__name__}")
        if "." in name or not name:
            raise NamingError(f'{what} name can\'t contain "." or be empty, got "{name}"')
        if hasattr(self, name) and name not in self.__dict__[register]:
            raise NamingError(f"attribute '{name}' already exists")

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but isn't trained, such as a running mean.

        Args:
            tensor: the buffer, or None for its place.
            persistent: whether it belongs into the state dict.

        Raises:
            ArgumentError: it isn't a tensor.

        >>> net = nn.Module()
        >>> net.register_buffer("calls", lucid.zeros(()))
        >>> net.calls
        tensor(0.)
        """
        self._check_name("buffer", name, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"cannot assign '{tensor.__class__.__name__}' object to buffer '{name}' "
                "(lucid.Tensor or None required)"
            )
        self._buffers[name] = tensor
        (self._transient.discard if persistent else self._transient.add)(name)
        tracing.note_change()

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or the place for one (None).

        Args:
            param: the parameter, or None for its place.

        Raises:
            ArgumentError: it isn't a Parameter.
            OptionError: it has a history.

        >>> net = nn.Module()
        >>> net.register_parameter("scale", nn.Parameter(lucid.ones(1)))
        >>> net.scale.shape
        lucid.Size([1])
        """
        self._check_name("parameter", name, "_parameters")
        if param is not None and not isinstance(param, Parameter):
            raise ArgumentError(
                f"cannot assign '{param.__class__.__name__}' object to parameter '{name}' "
                "(lucid.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise OptionError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                "created explicitly."
            )
        self._parameters[name] = param
        tracing.note_change()

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a submodule by name, as `add_module` does.

        It becomes an attribute, and its parameters are the module's.

        >>> net = nn.Module()
        >>> net.register_module("act", nn.ReLU())
        >>> net.act
        ReLU()
        """
        self.add_module(name, module)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule; it can be read as an attribute of this name.

        Raises:
            ArgumentError: it isn't a Module.

        >>> net = nn.Module()
        >>> net.add_module("first", nn.Linear(3, 2))
        >>> net.first
        Linear(in_features=3, out_features=2, bias=True)
        """
        if module is not None and not isinstance(module, Module):
            raise ArgumentError(
                f"{module.__class__.__name__} is not a Module subclass"
                + (f"\nhint: unpack it: {type(self).__name__}(*modules)" * (type(module) is list))
            )
        self._check_name("module", name, "_modules")
        self._modules[name] = module
        tracing.note_change()

    # ------------------------------------------------------------------ walking the tree

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yield this module and all below it with their paths, parents first.

        Args:
            memo: modules that are left out, a set; it grows.

        >>> net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
        >>> [name for name, _ in net.named_modules()]
        ['', '0', '1']
        """
        yield from self._tree(set() if memo is None else memo, prefix, remove_duplicate)

    def _tree(
        self, memo: set[Module], prefix: str, remove_duplicate: bool
    ) -> Iterator[tuple[str, Module]]:
        """`named_modules` without its edge, which each item would pass once for each level."""
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, child in self._registered("_modules").items():
            if child is not None:
                path = f"{prefix}.{name}" if prefix else name
                is_own = getattr(type(child), "named_modules", None) is not Module.named_modules
                walk = child.named_modules if is_own else child._tree
                yield from walk(memo, path, remove_duplicate)

    def walk(self) -> Iterator[tuple[str, Module]]:
        """`named_modules`, for the library's own use where a subclass has overridden it."""
        return Module.named_modules(self)

    def modules(self) -> Iterator[Module]:
        """Yield this module and all below it, parents first; each once.

        >>> net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
        >>> [type(module).__name__ for module in net.modules()]
        ['Sequential', 'Linear', 'ReLU']
        """
        for _, module in self.named_modules():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield the direct submodules with their names; each once.

        >>> net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
        >>> [name for name, _ in net.named_children()]
        ['0', '1']
        """
        seen: set[Module] = set()
        for name, child in self._registered("_modules").items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Module]:
        """Yield the direct submodules; each once.

        Those below them are not among them; see `modules`.

        >>> net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
        >>> list(net.children())
        [Linear(in_features=3, out_features=2, bias=True), ReLU()]
        """
        for _, child in self.named_children():
            yield child

    def _named_members(
        self, register: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        tree = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in tree if recurse else [(prefix, self)]:
            if trace_hooks.is_tracing():
                tracing.meet(module, path or tracing.path_of(module))
            for name, value in module._registered(register).items():
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield f"{path}.{name}" if path else name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yield the parameters with their paths; a shared one once, by its first path.

        >>> net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
        >>> [name for name, _ in net.named_parameters()]
        ['0.weight', '0.bias']
        """
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yield the parameters; a shared one once.

        What an optimizer is made with.

        >>> sum(p.numel() for p in nn.Linear(3, 2).parameters())
        8
        """
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    @like(named_parameters)
    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield the buffers with their paths; a shared one once, by its first path.

        >>> [name for name, _ in nn.BatchNorm1d(3).named_buffers()]
        ['running_mean', 'running_var', 'num_batches_tracked']
        """
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield the buffers; a shared one once.

        Buffers are state that isn't trained, such as running means.

        >>> [b.shape for b in nn.BatchNorm1d(3).buffers()]
        [lucid.Size([3]), lucid.Size([3]), lucid.Size([])]
        """
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path; "" is this one. Raises `NoSuchAttributeError`.

        Raises:
            NoSuchAttributeError: there is nothing of that name.

        >>> net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
        >>> net.get_submodule("1")
        ReLU()
        """
        module: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise NoSuchAttributeError(f"{type(module).__name__} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise NoSuchAttributeError(f"`{name}` is not a Module")
        result: Module = module
        return result

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module at a dotted path, in place of one or, unless `strict`, as a new one.

        Raises: `OptionError` for an empty path or what is no Module, `NoSuchAttributeError`.

        Args:
            module: what is put there.
            strict: there must be one already.

        Raises:
            OptionError: an empty path, or what is no Module.

        >>> net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
        >>> net.set_submodule("1", nn.Tanh())
        >>> net[1]
        Tanh()
        """
        if not target:
            raise OptionError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise OptionError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict or hasattr(parent, name):
            parent.get_submodule(name)
        setattr(parent, name, module)

    @like(get_submodule)
    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path. Raises `NoSuchAttributeError`.

        Names of modules and of the parameter, joined by dots.

        Raises `NoSuchAttributeError`.

        >>> net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
        >>> net.get_parameter("0.bias").shape
        lucid.Size([2])
        """
        path, _, name = target.rpartition(".")
        value = getattr(self.get_submodule(path), name)
        if not isinstance(value, Parameter):
            raise NoSuchAttributeError(f"`{name}` is not a Parameter")
        return value

    @like(get_submodule)
    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path. Raises `NoSuchAttributeError`.

        Names of modules and of the buffer, joined by dots.

        Raises `NoSuchAttributeError`.

        >>> nn.BatchNorm1d(2).get_buffer("running_mean")
        tensor([0., 0.])
        """
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if module._buffers.get(name) is None:
            raise NoSuchAttributeError(f"`{name}` is not a buffer")
        buffer: Tensor = getattr(module, name)
        return buffer

    # ------------------------------------------------------------------ changing the tree

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call `fn` on every module, children first.

        Often to set initial values. Returns the module.

        Args:
            fn: gets each module; what it returns doesn't matter.

        >>> net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
        >>> _ = net.apply(lambda module: print(type(module).__name__))
        Linear
        ReLU
        Sequential
        """
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Set `training` here and below.

        Dropout and batch norm read it. Returns the module.

        Args:
            mode: what it is set to.

        Raises:
            OptionError: it is no bool.

        >>> nn.Dropout(0.5).train(False).training
        False
        """
        if not isinstance(mode, bool):
            raise OptionError("training mode is expected to be boolean")
        self.training = mode
        for child in self.children():  # which may do more, or leave a part of them as it is
            child.train(mode)
        return self

    def eval(self) -> Self:
        """Set `training` to False here and below.

        Dropout and batch norm behave otherwise then. Returns the module.

        >>> nn.Dropout(0.5).eval()(lucid.ones(2))
        tensor([1., 1.])
        """
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether the parameters require grad.

        Without it a backward leaves them alone. Returns the module.

        Args:
            requires_grad: what they are set to.

        >>> nn.Linear(3, 2).requires_grad_(False).weight.requires_grad
        False
        """
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the parameters' gradients, or fill them with zeros, which have no history.

        Args:
            set_to_none: forget them; else fill them with zeros.

        >>> layer = nn.Linear(3, 2)
        >>> layer(lucid.ones(3)).sum().backward()
        >>> layer.zero_grad()
        >>> print(layer.weight.grad)
        None
        """
        reset_gradients(self.parameters(), set_to_none)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace the data of parameters, their gradients, and the buffers; objects stay.

        recurse: those of submodules as well, each of which is asked.
        """
        for child in self.children() if recurse else ():
            child._apply(fn)
        for tensor in (*self.parameters(False), *self.buffers(False)):
            if isinstance(tensor, Uninitialized):
                tensor.convert(fn)
                continue
            gradient, tensor.grad = tensor.grad, None
            tensor.data = fn(tensor.data)
            if gradient is not None:
                tensor.grad = fn(gradient.detach())
        return self

    def to(
        self,
        *args: Any,
        device: Any = None,
        dtype: DType | None = None,
        tensor: Tensor | None = None,
        non_blocking: bool = False,
        memory_format: Any = None,
    ) -> Self:
        """Cast floating point parameters and buffers; `to(dtype)`, `to(tensor)`, `to("cpu")`.

        In place; returns the module.

        Args:
            *args: a dtype, a device, or a tensor that has them; then `non_blocking`.
            device: the CPU or None.
            dtype: the dtype. Default: None, as it is.
            tensor: one that has the dtype.
            non_blocking: True or False; nothing is copied between devices.
            memory_format: any memory format, without effect.

        Raises:
            ArgumentError: a dtype that isn't one of floats; an argument of another type.
            OptionError: another device than the CPU.

        >>> nn.Linear(3, 2).to(lucid.float64).weight.dtype
        lucid.float64
        """
        check_memory_format(memory_format, "Module.to")
        check_flag(non_blocking, "non_blocking", "Module.to")
        check_kind(dtype, DType, "dtype", "Module.to")
        check_kind(tensor, Tensor, "tensor", "Module.to")
        for argument in (*args, device, dtype, tensor):
            wanted = argument.dtype if isinstance(argument, Tensor) else argument
            if isinstance(wanted, (DType, MissingDType)):
                self._cast(as_dtype(wanted, "Module.to"))
            elif not isinstance(argument, (bool, type(None))):
                check_device(argument, "Module.to")
        return self

    def to_empty(self, *, device: object = "cpu", recurse: bool = True) -> Self:
        """Give parameters and buffers new memory without values: all must be set afterwards.

        Returns the module.

        Args:
            device: the CPU.
            recurse: those of submodules as well.

        Raises:
            OptionError: another device.

        >>> nn.Linear(3, 2).to_empty(device="cpu").weight.shape
        lucid.Size([2, 3])
        """
        check_device(device, "Module.to_empty")
        return self._apply(lambda tensor: tensor.new_empty(tensor.shape), recurse)

    def _cast(self, dtype: DType) -> None:
        if not dtype.is_floating_point:
            raise ArgumentError(f"Module.to only accepts floating point dtypes, but got {dtype!r}")
        self._apply(lambda t: t.to(dtype) if t.dtype.is_floating_point else t)

    def float(self) -> Self:
        """Cast floating point parameters and buffers to float32.

        In place; integers stay as they are. Returns the module.

        >>> nn.Linear(3, 2).double().float().weight.dtype
        lucid.float32
        """
        return self.to(f32)

    def double(self) -> Self:
        """Cast floating point parameters and buffers to float64.

        In place; integers stay as they are. Returns the module.

        >>> nn.Linear(3, 2).double().weight.dtype
        lucid.float64
        """
        return self.to(f64)

    def type(self, dst_type: DType | str) -> Self:
        """Cast all parameters and buffers to a dtype.

        In place; returns the module.

        Args:
            dst_type: a dtype, or the name of a tensor class.

        >>> nn.Linear(3, 2).type(lucid.float64).weight.dtype
        lucid.float64
        """
        dtype = as_dtype(dst_type, "Module.type")
        return self._apply(lambda t: t.to(dtype))

    def share_memory(self) -> Self:
        """Nothing happens: threads share memory anyway.

        For programs of several processes; returns the module.

        >>> nn.Linear(3, 2).share_memory()
        Linear(in_features=3, out_features=2, bias=True)
        """
        return self

    def cpu(self) -> Self:
        """Nothing moves: there is only the CPU.

        For programs that name devices; returns the module.

        >>> nn.Linear(3, 2).cpu()
        Linear(in_features=3, out_features=2, bias=True)
        """
        return self

    # ------------------------------------------------------------------ state

    def state_dict(
        self, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by path.

        Aliasing: the tensors share the module's memory; detached unless `keep_vars`.

        Args:
            destination: a dict to put them into. None for a new one.
            keep_vars: give the parameters themselves, not detached.

        >>> list(nn.Linear(3, 2).state_dict())
        ['weight', 'bias']
        """
        return save_state(self, {} if destination is None else destination, prefix, keep_vars)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy values into the parameters and buffers of the same paths, in place.

        Raises `ModuleStateError` that lists all that doesn't fit; then nothing was changed.

        Args:
            state_dict: as `state_dict` makes it.
            strict: missing and unexpected keys are errors; else they are returned.
            assign: hold the given tensors instead of copying.

        >>> layer, other = nn.Linear(3, 2), nn.Linear(3, 2)
        >>> layer.load_state_dict(other.state_dict())
        <All keys matched successfully>
        """
        return load_state(self, state_dict, strict, assign)

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Enter the module's own state, without submodules; modules of users may do it otherwise.

        Args:
            prefix: what stands before the names.
        """
        save_own(self, destination, prefix, keep_vars)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take the module's own state from `state_dict`; modules of users may do it otherwise.

        Called by `load_state_dict` for each module, parents first. There values are put in place
        once all modules have been asked and no message was added.

        Args:
            prefix: what stands before the names.
            local_metadata: an empty dict.
            strict: note keys that are missing or unexpected.
            error_msgs: messages, each of which makes `load_state_dict` raise.
        """
        lists = missing_keys, unexpected_keys, error_msgs
        load_own(self, state_dict, prefix, strict, lists)

    def get_extra_state(self) -> Any:
        """What the state dict holds of this module besides tensors; a subclass defines both.

        Raises:
            MissingRuleError: the subclass defines none.

        >>> class Counted(nn.Module):
        ...     calls = 3
        ...     def get_extra_state(self):
        ...         return {"calls": self.calls}
        >>> Counted().get_extra_state(), list(Counted().state_dict())
        ({'calls': 3}, ['_extra_state'])
        """
        raise MissingRuleError(f"{type(self).__name__} must define get_extra_state()")

    def set_extra_state(self, state: Any) -> None:
        """Take what `get_extra_state` gave.

        Called while a state dict is loaded; a subclass defines both.

        Args:
            state: what the file or the state dict held.

        Raises:
            MissingRuleError: the subclass defines none.

        >>> class Counted(nn.Module):
        ...     calls = 0
        ...     def get_extra_state(self):
        ...         return {"calls": self.calls}
        ...     def set_extra_state(self, state):
        ...         self.calls = state["calls"]
        >>> net = Counted()
        >>> net.set_extra_state({"calls": 3})
        >>> net.calls
        3
        """
        raise MissingRuleError(f"{type(self).__name__} must define set_extra_state()")

    # ------------------------------------------------------------------ printing

    def _get_name(self) -> str:
        """The class's name, which `repr` shows."""
        return type(self).__name__

    def extra_repr(self) -> str:
        """What `repr` shows between the parentheses besides submodules.

        Subclasses override it to say what they were made with.

        >>> nn.Linear(3, 2).extra_repr()
        'in_features=3, out_features=2, bias=True'
        """
        return self._shown.format(self)

    def __repr__(self) -> str:
        tracing.meet_whole(self)
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): " + text.replace("\n", "\n  ") for name, text in self._parts()]
        if len(lines) <= 1 and not children:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join([*lines, *children]) + "\n)"

    def _parts(self) -> Iterable[tuple[str, str]]:
        """Names and texts of the submodules."""
        return ((name, repr(child)) for name, child in self._registered("_modules").items())


epoch.movers += (Module,)
_OWN: tuple[tuple[type, str, str], ...] = (
    (Parameter, "_parameters", "parameters"),
    (Module, "_modules", "module"),
    (Buffer, "_buffers", "buffer"),
)
