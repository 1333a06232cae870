"""Parameters that are computed from others: `register_parametrization` and what undoes it.

The module gets a class of its own with a property in the parameter's place; what is optimized are
the originals, in `module.parametrizations`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from lucid.autograd.modes import no_grad
from lucid.functions.arguments import kind_of
from lucid.functions.border import module_at_border
from lucid.ir.errors import LucidError, OptionError
from lucid.nn.modules.container import ModuleDict, ModuleList
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter
from lucid.tensor.context import context
from lucid.tensor.tensor import Tensor


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied in order to its `original` (or originals).

    `register_parametrization` makes it: `module.parametrizations.weight`. Called, it gives the
    tensor's value.

    Args:
        modules: the parametrizations, at least one.
        original: the parameter or buffer that was there.
        unsafe: a value may have another shape or dtype than the tensor had.

    Attributes:
        is_tensor: there is one original, the tensor that was there, with other values.
        ntensors: how many originals there are, else `original0`, `original1`, …

    Raises:
        OptionError: there are no modules, a `right_inverse` returns no tensors, or, unless it is
            `unsafe`, the value has another shape or dtype.

    >>> from lucid.nn.utils.parametrize import ParametrizationList
    >>> found = ParametrizationList([lucid.nn.ReLU()], lucid.tensor([-1.0, 2.0]))
    >>> found(), found.original
    (tensor([0., 2.]), tensor([-1.,  2.]))
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise OptionError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        start = self._inverted(original, lenient=True)
        if not isinstance(start, Tensor | Sequence):
            raise OptionError(f"right_inverse must return tensors, not {kind_of(start)}")
        self.is_tensor = isinstance(start, Tensor)
        self.ntensors = 1 if self.is_tensor else len(start)
        if isinstance(start, Tensor):
            self._check_dtype(start, original.dtype)
            if start is not original:
                original.data = start.detach()
            register(self, "original", original)
        else:
            self._register_parts(start, original)
        if not unsafe:
            _check_kept("tensor", self(), shape, dtype)

    def _inverted(self, value: Any, lenient: bool) -> Any:
        """What the parametrizations make `value` of; lenient: those without inverse keep it."""
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    try:
                        value = module.right_inverse(value)
                    except NotImplementedError:
                        if not lenient:
                            raise
                elif not lenient:
                    raise LucidError(f"{type(module).__name__} does not implement right_inverse")
        return value

    def _register_parts(self, parts: Sequence[Any], original: Tensor) -> None:
        for i, part in enumerate(parts):
            if not isinstance(part, Tensor):
                raise OptionError(f"right_inverse must return tensors, not {kind_of(part)}")
            if isinstance(original, Parameter):
                part = Parameter(part.detach(), original.requires_grad)
            register(self, f"original{i}", part.requires_grad_(original.requires_grad))

    def _check_dtype(self, value: Tensor, dtype: Any) -> None:
        if value.dtype != dtype:
            raise OptionError(f"right_inverse must keep {dtype!r}, not give {value.dtype!r}")

    def originals(self) -> list[Tensor]:
        """What is optimized in the tensor's place."""
        parts = ("original",) if self.is_tensor else _numbered(self.ntensors)
        return [getattr(self, part) for part in parts]

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals in such a way that the parametrizations give `value`, if they can.

        Raises: `LucidError` if one has no `right_inverse`, `OptionError` if the result of one
        doesn't fit the originals.
        """
        found = self._inverted(value, lenient=False)
        if isinstance(found, Tensor) != self.is_tensor:
            wanted = "a tensor" if self.is_tensor else "a sequence of tensors"
            raise OptionError(f"`right_inverse` should return {wanted}. Got {type(found).__name__}")
        parts = [found] if isinstance(found, Tensor) else list(found)
        if len(parts) != self.ntensors:
            raise OptionError(f"right_inverse must give {self.ntensors} tensors, not {len(parts)}")
        for original, part in zip(self.originals(), parts, strict=True):
            if part.dtype != original.dtype:
                raise OptionError(f"right_inverse must give {original.dtype!r}, not {part.dtype!r}")
        for original, part in zip(self.originals(), parts, strict=True):
            original.data = part.detach().clone()

    def forward(self) -> Any:
        first, *rest = list(self)
        value = first(*self.originals())
        for module in rest:
            value = module(value)
        return value


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f"original{i}" for i in range(count))


def register(module: Module, name: str, value: Tensor) -> None:
    """Add a parameter to a module, or what isn't one as a buffer.

    Args:
        module: what gets it.
        name: what the attribute is called.
        value: a `Parameter` or another tensor.

    >>> module = lucid.nn.Module()
    >>> nn.utils.parametrize.register(module, "mean", lucid.zeros(2))
    >>> [name for name, _ in module.named_buffers()]
    ['mean']
    """
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


def _check_kept(what: str, value: Any, shape: Sequence[int], dtype: Any) -> None:
    if not isinstance(value, Tensor):
        raise OptionError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
    for name, before, after in (
        ("dtype", dtype, value.dtype),
        ("shape", tuple(shape), tuple(value.shape)),
    ):
        if before != after:
            raise OptionError(
                f"Registering a parametrization may not change the {name} of the {what}, unless "
                f"`unsafe` flag is enabled.\nunparametrized {name}: {before}\n"
                f"parametrized {name}: {after}"
            )


class _Parametrized:
    """What the class of a parametrized module has besides the module's own."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A module with a class of its own, so that each copy keeps its parametrizations."""
        kind: Any = type(self)
        made = memo[id(self)] = object.__new__(kind.__bases__[1])
        for name, value in vars(self).items():
            object.__setattr__(made, name, copy.deepcopy(value, memo))
        _give_class(made)
        for name in made.parametrizations:
            _give_property(made, name)
        return made

    def __getstate__(self) -> NoReturn:
        raise LucidError("parametrized modules are saved by state_dict() only")


def _run_op_by_op(module: Module) -> None:
    """No trace puts back what becomes of the layer's class."""
    if context.recorder is not None:
        context.recorder.run_op_by_op(f"it changes which class a {type(module).__name__} has")


def _give_class(module: Module) -> None:
    kind = type(module)
    own = type(f"Parametrized{kind.__name__}", (_Parametrized, kind), {})
    own.__module__ = kind.__module__
    object.__setattr__(module, "__class__", own)


def _give_property(module: Any, name: str) -> None:
    def value(own: Any) -> Any:
        return _cache.value(own.parametrizations[name])

    def set_value(own: Any, value: Tensor) -> None:
        own.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(value, set_value))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute `module.<tensor_name>` by `parametrization` from now on; returns the module.

    A `right_inverse` of the parametrization says which originals (one or several) give a value; it
    is asked at first for the present value, and whenever the tensor is assigned. A parametrization
    of what has one is applied after it.

    Args:
        module: the layer. It gets a class of its own.
        tensor_name: of its parameter or buffer.
        parametrization: a module from the original, or originals, to the value.
        unsafe: the value may have another shape or dtype than the tensor.

    Raises:
        OptionError: the name is no parameter or buffer of the module, or the value doesn't fit the
            tensor.

    >>> layer = lucid.nn.Linear(2, 2)
    >>> _ = nn.utils.parametrize.register_parametrization(layer, "weight", lucid.nn.ReLU())
    >>> bool((layer.weight >= 0).all())
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        return _appended(module, tensor_name, parametrization, unsafe)
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise OptionError(f"Module '{module}' has no parameter or buffer '{tensor_name}'")
    _run_op_by_op(module)
    found = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _give_class(module)
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = found
    _give_property(module, tensor_name)
    return module


def _appended(module: Module, name: str, parametrization: Any, unsafe: bool) -> Module:
    """Apply one more parametrization, after those that there are."""
    if not unsafe:
        before = getattr(module, name)
        after = parametrization(before)
        _check_kept(f"tensor '{name}'", after, before.shape, before.dtype)
        if hasattr(parametrization, "right_inverse"):
            try:
                inverse = parametrization.right_inverse(after)
            except NotImplementedError:
                pass
            else:
                _check_kept(
                    f"tensor '{name}' by right_inverse", inverse, before.shape, before.dtype
                )
    present: Any = module.parametrizations[name]
    present.append(parametrization)
    present.unsafe |= unsafe
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has a parametrization, or one of the tensor that is named.

    Args:
        module: what is asked about; its children don't count.
        tensor_name: of which tensor. Default: None, any.

    >>> from lucid.nn.utils import parametrize
    >>> layer = parametrize.register_parametrization(
    ...     lucid.nn.Linear(2, 2), "weight", lucid.nn.ReLU()
    ... )
    >>> parametrize.is_parametrized(layer), parametrize.is_parametrized(layer, "bias")
    (True, False)
    """
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return bool(found) if tensor_name is None else tensor_name in found


def type_before_parametrizations(module: Module) -> type:
    """Return the module's class, without what parametrizations have made of it.

    Args:
        module: any module, parametrized or not.

    >>> layer = lucid.nn.Linear(2, 2)
    >>> _ = nn.utils.parametrize.register_parametrization(layer, "weight", lucid.nn.ReLU())
    >>> type(layer).__name__, nn.utils.parametrize.type_before_parametrizations(layer).__name__
    ('ParametrizedLinear', 'Linear')
    """
    return type(module).__bases__[1] if is_parametrized(module) else type(module)


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make the tensor an ordinary one again: its present value, or else its original.

    A single original stays the same object, so an optimizer goes on with it. Returns the module.

    Args:
        module: what has the parametrization.
        tensor_name: of which tensor.
        leave_parametrized: whether it keeps the value that was computed, else that of the original.

    Raises:
        OptionError: there is none of that name, or `leave_parametrized=False` of one with several
            originals.

    >>> layer = lucid.nn.Linear(2, 2)
    >>> _ = nn.utils.parametrize.register_parametrization(layer, "weight", lucid.nn.ReLU())
    >>> _ = nn.utils.parametrize.remove_parametrizations(layer, "weight")
    >>> nn.utils.parametrize.is_parametrized(layer), bool((layer.weight >= 0).all())
    (False, True)
    """
    if not is_parametrized(module, tensor_name):
        raise OptionError(f"Module {module} does not have a parametrization on {tensor_name}")
    _run_op_by_op(module)
    found: Any = module.parametrizations[tensor_name]
    if found.is_tensor:
        value = found.original
        if leave_parametrized:
            with no_grad():
                value.data = getattr(module, tensor_name).detach()
    elif leave_parametrized:
        computed = getattr(module, tensor_name)
        value = Parameter(computed.detach()) if computed.requires_grad else computed
    else:
        raise OptionError("leave_parametrized=False is for tensors that have a single original")
    del module.parametrizations[tensor_name]
    delattr(type(module), tensor_name)
    register(module, tensor_name, value)
    if not module.parametrizations:
        del module.parametrizations
        object.__setattr__(module, "__class__", type(module).__bases__[1])
    return module


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give `to_module` the parametrizations of the other (or of one tensor), and the originals.

    Both share these then. Returns `to_module`.

    Args:
        from_module: what has parametrizations; without any nothing happens.
        to_module: what gets them, and a parameter of that name where it has none.
        tensor_name: of which tensor. Default: None, of all.

    >>> one, other = lucid.nn.Linear(2, 2), lucid.nn.Linear(2, 2)
    >>> _ = nn.utils.parametrize.register_parametrization(one, "weight", lucid.nn.ReLU())
    >>> _ = nn.utils.parametrize.transfer_parametrizations_and_params(one, other)
    >>> bool((one.weight == other.weight).all())
    True
    """
    if not is_parametrized(from_module):
        return to_module
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        source: Any = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        target: Any = to_module.parametrizations[name]
        for part in ("original", *_numbered(source.ntensors)):
            if hasattr(source, part):
                setattr(target, part, getattr(source, part))
    return to_module


class _Cache:
    """The values of parametrizations in blocks of `cached()`, of Python or of a trace each."""

    def __init__(self) -> None:
        self.depths: dict[object, int] = {}
        self.values: dict[object, dict[ParametrizationList, Tensor]] = {}

    def value(self, parametrizations: ParametrizationList) -> Any:
        values = self.values.get(context.recorder)
        if values is None:
            return parametrizations()
        if parametrizations not in values:
            values[parametrizations] = parametrizations()
        return values[parametrizations]


_cache = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized tensor once in the block, the first time that it is read.

    The values are forgotten at its end. A compiled step that is called in the block computes its
    own; one that has the block in it, once.

    >>> layer = lucid.nn.Linear(2, 2)
    >>> _ = nn.utils.parametrize.register_parametrization(layer, "weight", lucid.nn.ReLU())
    >>> with nn.utils.parametrize.cached():
    ...     layer.weight is layer.weight
    True
    """
    recorder = context.recorder
    _cache.depths[recorder] = _cache.depths.get(recorder, 0) + 1
    _cache.values.setdefault(recorder, {})
    try:
        yield
    finally:
        _cache.depths[recorder] -= 1
        if not _cache.depths[recorder]:
            del _cache.depths[recorder], _cache.values[recorder]


module_at_border(__name__)
