"""Modules as functions of their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lucid.compiler.recording import hooks
from lucid.functions.joining import stack
from lucid.ir.errors import LucidError, OptionError
from lucid.nn.modules.batchnorm import _BatchNorm
from lucid.nn.modules.module import Module
from lucid.nn.tracing import meet, path_of
from lucid.tensor.core import TensorCore

Tensors = Mapping[str, TensorCore]
Place = tuple[dict[str, Any], str]  # a register of a module, and a name in it


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Tensors | Sequence[Tensors],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other tensors in place of its parameters and buffers.

    The module holds them during the call alone, and has its own again afterwards.

    Args:
        module: what is called.
        parameter_and_buffer_dicts: tensors by their names in the module, or several such dicts;
            what isn't named stays.
        args: a tuple of positional arguments, or a single one. Default: None, none.
        kwargs: arguments by name. Default: None, none.
        tie_weights: what the module holds under several names is replaced under all of them.
        strict: every parameter and buffer must be named, and nothing else. Default: False, other
            names are ignored.

    Raises:
        LucidError: the names aren't what `strict` asks for.
        OptionError: several dicts have the same name, or one tensor's names get several others.

    >>> layer = lucid.nn.Linear(2, 1, bias=False)
    >>> lucid.func.functional_call(layer, {"weight": lucid.ones(1, 2)}, (lucid.ones(2),))
    tensor([2.])
    """
    tensors: dict[str, TensorCore] = {}
    if isinstance(parameter_and_buffer_dicts, Mapping):
        tensors.update(parameter_and_buffer_dicts)
    else:
        for part in parameter_and_buffer_dicts:
            repeated = tensors.keys() & part.keys()
            if repeated:
                raise OptionError(f"{sorted(repeated)} appear in multiple dictionaries")
            tensors.update(part)
    if hooks.is_tracing():  # while the module has what it depends on
        path = path_of(module)
        for prefix, submodule in module.named_modules():
            meet(submodule, ".".join(filter(None, (path, prefix))))
    places = dict(_places(module))
    if strict:
        _require_all(module, places, tensors)
    if not isinstance(args, tuple):
        args = () if args is None else (args,)
    with _replaced(places, tensors, tie_weights):
        return module(*args, **(kwargs or {}))


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Let no batch norm of a module keep running statistics, which a `vmap` couldn't update.

    Returns the module itself.

    Args:
        root: the module.

    >>> net = lucid.func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(2)))
    >>> net[0].running_mean is None
    True
    """
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None
    return root


def stack_module_state(
    models: Sequence[Module],
) -> tuple[dict[str, TensorCore], dict[str, TensorCore]]:
    """Stack the parameters, and the buffers, of modules of one kind along a new first axis.

    Returns two dicts by name. What comes back are leaves, to be mapped over with `vmap` and
    `functional_call`; they require grad where the first module's do.

    Args:
        models: modules of one class, all in training or all in evaluation.

    Raises:
        OptionError: no modules, several classes, or some in training and some not.

    >>> models = [lucid.nn.Linear(2, 1) for _ in range(3)]
    >>> lucid.func.stack_module_state(models)[0]["weight"].shape
    lucid.Size([3, 1, 2])
    """
    api = "stack_module_state"
    if not models:
        raise OptionError(f"{api}: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise OptionError(f"{api}: Expected all models to have the same training/eval mode.")
    if len({type(model) for model in models}) > 1:
        raise OptionError(f"{api}: Expected all models to be of the same class.")
    parameters = [dict(model.named_parameters()) for model in models]
    buffers = [dict(model.named_buffers()) for model in models]
    return _stacked(parameters), _stacked(buffers)


def _stacked(parts: Sequence[dict[str, Any]]) -> dict[str, TensorCore]:
    found: dict[str, TensorCore] = {}
    for name, first in parts[0].items():
        together = stack([part[name].detach() for part in parts])
        found[name] = together.requires_grad_(first.requires_grad)
    return found


def _places(module: Module) -> Iterator[tuple[str, Place]]:
    """Where each parameter and buffer is held, by name."""
    for prefix, part in module.named_modules(remove_duplicate=False):
        for register in (part._parameters, part._buffers):
            for name in register:
                yield (f"{prefix}.{name}" if prefix else name), (register, name)


def _require_all(module: Module, places: dict[str, Place], tensors: Tensors) -> None:
    named = {name for name, (register, key) in places.items() if register[key] is not None}
    problems = []
    for what, names in (
        ("Unexpected", sorted(tensors.keys() - named)),
        ("Missing", sorted(named - tensors.keys())),
    ):
        if names:
            problems.append(f"{what} key(s): {', '.join(map(repr, names))}.")
    if problems:
        lines = "\n\t".join(problems)
        raise LucidError(f"Error(s) in reparametrizing for {type(module).__name__}:\n\t{lines}")


@contextmanager
def _replaced(places: dict[str, Place], tensors: Tensors, tie_weights: bool) -> Iterator[None]:
    """Hold other tensors inside of the block."""
    held = {name: register[key] for name, (register, key) in places.items()}
    new: dict[int, tuple[str, TensorCore]] = {}
    for name in filter(held.__contains__, tensors if tie_weights else ()):
        first, tensor = new.setdefault(id(held[name]), (name, tensors[name]))
        if tensor is not tensors[name] and held[name] is not None:
            raise OptionError(
                f"functional_call got multiple values for keys {sorted((first, name))}, which are "
                "tied. Consider using tie_weights=False"
            )
    try:
        for name, (register, key) in places.items():
            if name in tensors:
                register[key] = tensors[name]
            elif held[name] is not None and id(held[name]) in new:
                register[key] = new[id(held[name])][1]
        yield
    finally:
        try:
            _put_all(places, held)
        except BaseException:  # an interrupt while they are put back
            _put_all(places, held)
            raise


def _put_all(places: dict[str, Place], held: dict[str, Any]) -> None:
    for name, (register, key) in places.items():
        register[key] = held[name]
