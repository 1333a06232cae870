"""Pruning: weights that a mask sets to zero, `lucid.nn.utils.prune`.

A pruned parameter `<name>` is `<name>_orig`, which is trained, times the buffer `<name>_mask`. A
hook multiplies them before each forward. Pruning again takes away from what the mask has left.

Reference: Paganini and Forde, "Streamlining Tensor and Network Pruning in PyTorch", 2020.

Args:
    module: whose parameter it is.
    n: of which order the norm is, as `lucid.norm` has it.
    amount: how many channels, an int, or which share of them, a float from 0 to 1.
    dim: the axis whose elements are the channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import lucid
from lucid.autograd.modes import no_grad
from lucid.docstrings import like
from lucid.functions.border import module_at_border
from lucid.ir.errors import ArgumentError, MissingRuleError, OptionError, ShapeError
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter
from lucid.nn.utils.convert_parameters import parameters_to_vector
from lucid.tensor.tensor import Tensor


class BasePruningMethod:
    """What chooses the elements to prune, and the hook that applies the mask.

    Subclasses define `compute_mask(t, default_mask)`: a mask of the importance scores `t`, which
    are 0-d to n-d as `PRUNING_TYPE` says.

    Attributes:
        PRUNING_TYPE: "unstructured": the method gets a vector of what isn't pruned yet;
            "structured": the tensor without the channels along `dim` that are pruned; "global":
            all of it.

    >>> class EveryOther(nn.utils.prune.BasePruningMethod):
    ...     PRUNING_TYPE = "unstructured"
    ...
    ...     def compute_mask(self, t, default_mask):
    ...         mask = default_mask.clone()
    ...         mask.view(-1)[::2] = 0
    ...         return mask
    >>> layer = lucid.nn.Linear(2, 2)
    >>> _ = EveryOther.apply(layer, "weight")
    >>> layer.weight_mask
    tensor([[0., 1.],
            [0., 1.]])
    """

    PRUNING_TYPE: ClassVar[str] = "unstructured"
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the mask by the importance of elements, and the mask that there was."""
        raise MissingRuleError(f"{type(self).__name__} must define compute_mask()")

    def apply_mask(self, module: Module) -> Tensor:
        """Return the parameter times the mask."""
        mask, original = (getattr(module, f"{self._tensor_name}_{x}") for x in ("mask", "orig"))
        pruned: Tensor = mask.to(original.dtype) * original
        return pruned

    @classmethod
    def apply(
        cls,
        module: Module,
        name: str,
        *args: Any,
        importance_scores: Tensor | None = None,
        **kwargs: Any,
    ) -> BasePruningMethod:
        """Prune a parameter of a module; return the method, or the container of several.

        Args:
            *args: what the method is made with.
            importance_scores: of each element, in place of the parameter.
            **kwargs: what the method is made with, by name.

        Raises:
            OptionError: the module has no such parameter.
            ShapeError: the scores have another shape.
        """
        method = cls(*args, **kwargs)
        method._tensor_name = name
        earlier = _hook_of(module, name)
        if earlier is None and module._parameters.get(name) is None:
            raise OptionError(f"Module '{type(module).__name__}' has no parameter '{name}'")
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise ShapeError(f"importance_scores must be {original._type}, not {scores._type}")
        with no_grad():
            if earlier is None:
                mask = method.compute_mask(scores.detach(), lucid.ones_like(original))
                delattr(module, name)
                module.register_parameter(f"{name}_orig", original)
            else:
                number, hook = earlier
                if not isinstance(hook, PruningContainer):
                    hook = PruningContainer(hook)
                hook.add_pruning_method(method)
                method = hook
                before = getattr(module, f"{name}_mask")
                mask = method.compute_mask(scores.detach(), before.clone())
                del module._forward_pre_hooks[number]
        module.register_buffer(f"{name}_mask", mask.to(original.dtype))
        method(module, ())
        module.register_forward_pre_hook(method)
        return method

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None
    ) -> Tensor:
        """Return a tensor times the mask that the method makes of it; no module is changed."""
        mask = lucid.ones_like(t) if default_mask is None else default_mask
        scores = t if importance_scores is None else importance_scores
        return t * self.compute_mask(scores, default_mask=mask)

    def remove(self, module: Module) -> None:
        """Make the pruned weight the parameter; the mask goes."""
        name = self._tensor_name
        original = module._parameters[f"{name}_orig"]
        assert isinstance(original, Parameter)
        with no_grad():
            original.copy_(self.apply_mask(module))
        for part in (name, f"{name}_orig", f"{name}_mask"):
            delattr(module, part)
        module.register_parameter(name, original)


class PruningContainer(BasePruningMethod):
    """Several methods that have pruned one parameter; the last one is the one that prunes.

    Args:
        *args: methods, of one parameter.

    Raises:
        ArgumentError: one is no method.
        OptionError: one is of another parameter.

    >>> layer = lucid.nn.Linear(4, 4)
    >>> _ = nn.utils.prune.l1_unstructured(layer, "weight", 4)
    >>> both = nn.utils.prune.L1Unstructured.apply(layer, "weight", 4)
    >>> isinstance(both, nn.utils.prune.PruningContainer), len(both), layer.weight_mask.sum()
    (True, 2, tensor(8.))
    """

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if args:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Add one, which prunes next.

        Args:
            method: one of this parameter.
        """
        if not isinstance(method, BasePruningMethod):
            raise ArgumentError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise OptionError(f"it is for '{method._tensor_name}', not '{self._tensor_name}'")
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the mask that was, pruned further by the last method."""
        method, mask = self._pruning_methods[-1], default_mask.to(t.dtype).clone()
        kind = method.PRUNING_TYPE
        if kind == "unstructured":
            part: Any = mask == 1
        elif kind == "structured":
            axis = _axis(t, method.dim)  # type: ignore[attr-defined]
            others = [i for i in range(t.ndim) if i != axis]
            part = (*(slice(None),) * axis, mask.sum(others) != 0)
        elif kind == "global":
            part = ...
        else:
            raise OptionError(f"Unrecognized PRUNING_TYPE {kind}")
        found = method.compute_mask(t[part], default_mask=mask[part])
        mask[part] = found.to(mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing, but makes mask and original of a parameter.

    >>> layer = lucid.nn.Linear(2, 1)
    >>> _ = nn.utils.prune.Identity.apply(layer, "weight")
    >>> layer.weight_mask
    tensor([[1., 1.]])
    """

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class CustomFromMask(BasePruningMethod):
    """Prunes what a mask says.

    What an earlier mask has pruned stays pruned: the masks are multiplied.

    Args:
        mask: zeros where the parameter is pruned, of its shape.

    Raises:
        ShapeError: the mask has another shape.

    >>> layer = lucid.nn.Linear(2, 1)
    >>> _ = nn.utils.prune.CustomFromMask.apply(layer, "weight", lucid.eye(1, 2))
    >>> layer.weight_mask
    tensor([[1., 0.]])
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise ShapeError(f"the mask must be {default_mask._type}, not {self.mask._type}")
        return default_mask * self.mask.to(default_mask.dtype)


class _Ranked(BasePruningMethod):
    """Prunes an amount of what counts least."""

    def __init__(self, amount: Any) -> None:
        is_share = isinstance(amount, float)
        if not isinstance(amount, (int, float)) or isinstance(amount, bool):
            raise ArgumentError(f"Invalid type for amount: {amount}. Must be int or float.")
        if amount < 0 or (is_share and amount > 1):
            raise OptionError(f"amount must be a float up to 1 or an int, at least 0: {amount}")
        self.amount = amount

    def _kept(self, scores: Tensor) -> Tensor:
        """A vector of 1 for the scores that stay and 0 for the least ones."""
        size, amount = scores.numel(), self.amount
        count = round(amount * size) if isinstance(amount, float) else amount
        if count > size:
            raise OptionError(f"amount={count} must not be greater than {size}, all that there are")
        kept = lucid.ones_like(scores)
        kept[scores.argsort(stable=True)[:count]] = 0
        return kept


class RandomUnstructured(_Ranked):
    """Prunes elements by chance.

    What an earlier mask has pruned stays pruned; the amount is of what is left.

    Args:
        amount: how many, an int, or which share of those that are left, a float from 0 to 1.

    Raises:
        ArgumentError: the amount is no number.
        OptionError: it is negative, or more than there is.

    >>> nn.utils.prune.RandomUnstructured(3).prune(lucid.ones(5)).sum()
    tensor(2.)
    """

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        kept = self._kept(lucid.rand(t.numel(), dtype=t.dtype))
        return default_mask * kept.reshape(t.shape)


@like(RandomUnstructured)
class L1Unstructured(_Ranked):
    """Prunes the elements of the least absolute value.

    >>> nn.utils.prune.L1Unstructured(0.5).prune(lucid.tensor([3.0, -1.0, 2.0, -4.0]))
    tensor([ 3., -0.,  0., -4.])
    """

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask * self._kept(t.abs().reshape(-1)).reshape(t.shape)


class RandomStructured(_Ranked):
    """Prunes channels by chance.

    What an earlier mask has pruned stays pruned; the amount is of what is left.

    Raises:
        ArgumentError: the amount is no number.
        OptionError: it is negative, or more than there is.
        ShapeError: the parameter has less than two axes.

    >>> nn.utils.prune.RandomStructured(1, dim=0).prune(lucid.ones(3, 2)).sum()
    tensor(4.)
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def _importance(self, t: Tensor, axis: int) -> Tensor:
        return lucid.rand(t.shape[axis], dtype=t.dtype)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        axis = _axis(t, self.dim)
        kept = self._kept(self._importance(t, axis))
        return default_mask * kept.reshape(-1, *(1,) * (t.ndim - 1 - axis))


@like(RandomStructured)
class LnStructured(RandomStructured):
    """Prunes the channels of the least norm.

    >>> nn.utils.prune.LnStructured(1, n=2, dim=0).prune(lucid.tensor([[3.0, 1.0], [1.0, 2.0]]))
    tensor([[3., 1.],
            [0., 0.]])
    """

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _importance(self, t: Tensor, axis: int) -> Tensor:
        return lucid.norm(t, self.n, [i for i in range(t.ndim) if i != axis])


def _axis(t: Tensor, dim: int) -> int:
    if t.ndim < 2:
        raise ShapeError(f"structured pruning needs two axes: {t._type}\nhint: an unstructured one")
    if not -t.ndim <= dim < t.ndim:
        raise OptionError(f"Invalid dim={dim} for tensor of {t.ndim} axes")
    return dim % t.ndim


def _hook_of(module: Module, name: str) -> tuple[int, BasePruningMethod] | None:
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return number, hook
    return None


def identity(module: Module, name: str) -> Module:
    """Make mask and original of a parameter, and prune nothing; return the module.

    >>> layer = nn.utils.prune.identity(lucid.nn.Linear(2, 1), "bias")
    >>> nn.utils.prune.is_pruned(layer), layer.bias_mask
    (True, tensor([1.]))
    """
    Identity.apply(module, name)
    return module


@like(RandomUnstructured)
def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prune elements by chance; return the module.

    >>> layer = nn.utils.prune.random_unstructured(lucid.nn.Linear(4, 2), "weight", 0.5)
    >>> layer.weight_mask.sum()
    tensor(4.)
    """
    RandomUnstructured.apply(module, name, amount)
    return module


@like(random_unstructured)
def l1_unstructured(
    module: Module, name: str, amount: float, importance_scores: Tensor | None = None
) -> Module:
    """Prune the elements of the least absolute value; return the module.

    Args:
        importance_scores: what counts in place of the values.

    >>> layer = lucid.nn.Linear(3, 1)
    >>> scores = lucid.tensor([[3.0, 1.0, 2.0]])
    >>> nn.utils.prune.l1_unstructured(layer, "weight", 1, scores).weight_mask
    tensor([[1., 0., 1.]])
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


@like(random_unstructured)
def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prune channels by chance; return the module.

    >>> layer = nn.utils.prune.random_structured(lucid.nn.Linear(4, 3), "weight", 1, dim=0)
    >>> layer.weight_mask.sum()
    tensor(8.)
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


@like(random_structured)
def ln_structured(
    module: Module,
    name: str,
    amount: float,
    n: Any,
    dim: int,
    importance_scores: Tensor | None = None,
) -> Module:
    """Prune the channels of the least norm; return the module.

    Args:
        importance_scores: of what the norm is in place of the values.

    >>> layer = nn.utils.prune.ln_structured(lucid.nn.Linear(4, 3), "weight", 1, n=2, dim=0)
    >>> layer.weight_mask.sum(1).min()
    tensor(0.)
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


@like(CustomFromMask)
def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune what a mask says; return the module.

    >>> from lucid.nn.utils import prune
    >>> layer = prune.custom_from_mask(lucid.nn.Linear(2, 2), "bias", lucid.tensor([0.0, 1.0]))
    >>> layer.bias[0].item()
    0.0
    """
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune several parameters as if they were one vector.

    Args:
        parameters: pairs of a module and the name of one of its parameters.
        pruning_method: a class of unstructured ones, such as `L1Unstructured`.
        importance_scores: what counts in place of a parameter's values, by such a pair.
        **kwargs: what the method is made with, such as `amount`.

    Raises:
        ArgumentError: the method isn't unstructured.

    >>> net = lucid.nn.Sequential(lucid.nn.Linear(3, 4), lucid.nn.Linear(4, 2))
    >>> pairs = [(net[0], "weight"), (net[1], "weight")]
    >>> nn.utils.prune.global_unstructured(pairs, nn.utils.prune.L1Unstructured, amount=0.4)
    >>> net[0].weight_mask.sum() + net[1].weight_mask.sum()
    tensor(12.)
    """
    pairs, scores = list(parameters), importance_scores or {}
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise ArgumentError(f"a pruning_method must be unstructured, not {method.PRUNING_TYPE}")
    method._tensor_name = "all"
    with no_grad():
        values = [scores.get(pair, getattr(*pair)) for pair in pairs]
        masks = [getattr(m, f"{name}_mask", lucid.ones_like(getattr(m, name))) for m, name in pairs]
        whole = PruningContainer(method)
        mask = whole.compute_mask(parameters_to_vector(values), parameters_to_vector(masks))
    parts = mask.split([value.numel() for value in values])
    for (module, name), value, part in zip(pairs, values, parts, strict=True):
        custom_from_mask(module, name, part.reshape(value.shape))


@like(identity)
def remove(module: Module, name: str) -> Module:
    """Make the pruned weight an ordinary parameter, with its zeros; return the module.

    Raises:
        OptionError: it isn't pruned.

    >>> layer = nn.utils.prune.l1_unstructured(lucid.nn.Linear(2, 2), "weight", 3)
    >>> layer = nn.utils.prune.remove(layer, "weight")
    >>> (layer.weight == 0).sum(), [name for name, _ in layer.named_parameters()]
    (tensor(3), ['bias', 'weight'])
    """
    found = _hook_of(module, name)
    if found is None:
        raise OptionError(f"Parameter '{name}' of {module} isn't pruned")
    number, hook = found
    hook.remove(module)
    del module._forward_pre_hooks[number]
    return module


def is_pruned(module: Module) -> bool:
    """Return whether a parameter of the module, or of one within it, is pruned.

    Args:
        module: the module.

    >>> nn.utils.prune.is_pruned(lucid.nn.Linear(2, 2))
    False
    """
    return any(
        isinstance(hook, BasePruningMethod)
        for part in module.modules()
        for hook in part._forward_pre_hooks.values()
    )


module_at_border(__name__)
