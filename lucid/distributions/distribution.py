"""The base of all distributions: shapes, parameters, and what follows from one another.

Args:
    sample_shape: how often. Default: (), once.
    value: a tensor that broadcasts with the batch shape, followed by the event's axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import lucid
from lucid.compiler.recording import hooks
from lucid.distributions.constraints import Constraint, is_dependent
from lucid.docstrings import ending
from lucid.dtypes import get_default_dtype
from lucid.functions.arguments import kind_of, tensor_of, typed
from lucid.functions.checks import require
from lucid.ir.errors import ArgumentError, MissingRuleError, OptionError, ShapeError
from lucid.ir.location import warn
from lucid.tensor.context import within
from lucid.tensor.size import Size
from lucid.tensor.tensor import Tensor

__all__ = ["Distribution"]

Shape = Sequence[int]
D = TypeVar("D", bound="type[Distribution]")
_defaults: dict[str, Any] = {"validate_args": __debug__}


class OfFormulas:
    """What has a table of its properties and methods: formulas of the object, by name."""

    _formulas: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, formula in vars(cls).get("_formulas", {}).items():
            formula.__name__, formula.__qualname__ = name, f"{cls.__qualname__}.{name}"
            setattr(cls, name, formula if callable(getattr(cls, name)) else property(formula))


def example(arguments: str, at: str, **found: str) -> Callable[[D], D]:
    """Show in a docstring what these arguments give: `log_prob` at a value, and properties."""
    calls = [f"{name}(lucid.tensor({at}))" if name == "log_prob" else name for name in found]

    def complete(cls: D) -> D:
        made = f">>> found = lucid.distributions.{cls.__name__}({arguments})"
        asked = f">>> {', '.join(f'found.{call}' for call in calls)}"
        return ending(cls, made, asked, f"({', '.join(f'tensor({x})' for x in found.values())})")

    return complete


class Distribution(OfFormulas):
    """A family of random variables: `batch_shape` of them, each with values of `event_shape`.

    Args:
        batch_shape: the shape of the parameters. Default: (), a single one.
        event_shape: the shape of one draw. Default: (), numbers.
        validate_args: whether parameters and values are checked. Default: None, as
            `set_default_validate_args` says.

    Attributes:
        has_rsample: whether the class defines `rsample`, whose draws are differentiable by the
            parameters, and not just `sample`.
        arg_constraints: what the parameters must be, by their names.
        support: what the values must be.

    Raises:
        OptionError: a parameter is out of range, where that is checked.

    >>> from lucid.distributions import Distribution, Normal
    >>> found = Normal(lucid.zeros(3), 1.0)
    >>> isinstance(found, Distribution), found.batch_shape, found.event_shape
    (True, lucid.Size([3]), lucid.Size([]))
    """

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    _validates: bool | None = None  # where it was said
    _is_changed_by_users = True
    _given = ""  # of two ways to give a parameter the one that was chosen

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        draws = "rsample" in vars(cls) or "_drawn" in vars(cls)
        if draws and "has_rsample" not in vars(cls):
            cls.has_rsample = True

    def __init__(
        self, batch_shape: Shape = (), event_shape: Shape = (), validate_args: Any = None
    ) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = bool(validate_args)
        if self._validate_args:
            self._check_parameters()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Say whether distributions that don't say it themselves check parameters and values.

        They do from the start, except under `python -O`.

        Args:
            value: True or False.

        Raises:
            OptionError: anything else.

        >>> lucid.distributions.Distribution.set_default_validate_args(False)
        >>> found = lucid.distributions.Normal(0.0, -1.0)
        >>> lucid.distributions.Distribution.set_default_validate_args(True)
        >>> found.scale
        tensor(-1.)
        """
        if value not in (True, False):
            raise OptionError(f"set_default_validate_args: a bool is needed, not {value!r}")
        _defaults["validate_args"] = bool(value)

    @property
    def _validate_args(self) -> bool:
        """Whether parameters and values are checked; a step is traced again where that changes."""
        if self._validates is not None:
            return self._validates
        return bool(hooks.live(_defaults, "validate_args", "set_default_validate_args"))

    @_validate_args.setter
    def _validate_args(self, value: bool) -> None:
        self._validates = value

    def _check_parameters(self) -> None:
        """Raise `OptionError` for parameters that no such distribution has."""
        for name, constraint in self.arg_constraints.items():
            if not is_dependent(constraint) and name in vars(self):
                self._check(name, constraint, getattr(self, name))

    def _check(self, name: str, constraint: Constraint, checked: Tensor) -> None:
        text = f"{type(self).__name__}: {name} must be {constraint.said}"
        require(constraint.check(checked), text, **{name: checked})

    def _validate_sample(self, value: Any) -> None:
        """Raise `ShapeError` or `OptionError` for what is no value of such a distribution."""
        if not isinstance(value, Tensor):
            value = lucid.tensor(value)
        event, batch = tuple(self._event_shape), tuple(self._batch_shape)
        own, split = tuple(value.shape), value.ndim - len(event)
        if split < 0 or own[split:] != event:
            raise ShapeError(
                f"{type(self).__name__}: the last axes of value must be the event's, {event}"
                f"{typed(value=value)}"
            )
        pairs = zip(reversed(own[:split]), reversed(batch), strict=False)
        if any(one != other and 1 not in (one, other) for one, other in pairs):
            raise ShapeError(
                f"{type(self).__name__}: value doesn't broadcast with the batch shape {batch}"
                f"{typed(value=value)}"
            )
        if self.support is not None:
            self._check("value", self.support, value)

    def _check_value(self, value: Any) -> None:
        if self._validate_args:
            self._validate_sample(value)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        """Return the distribution with its parameters expanded to `batch_shape`.

        The parameters are views of those that were; this one stays as it is.

        Args:
            batch_shape: a shape that the present one broadcasts to.
            _instance: what a subclass has made of its class, to be filled in.

        >>> lucid.distributions.Normal(0.0, 1.0).expand((2, 3)).batch_shape
        lucid.Size([2, 3])
        """
        own = len(self._batch_shape)
        made = object.__new__(type(self)) if _instance is None else _instance
        for name, value in vars(self).items():
            if isinstance(value, Tensor) and value.ndim >= own:
                value = value.expand(*batch_shape, *value.shape[own:])
            elif isinstance(value, Distribution):
                value = value.expand(batch_shape)
            vars(made)[name] = value
        made._batch_shape = Size(batch_shape)
        return made

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """What `expand` of a class `cls` fills in: a distribution as this one, still without parts.

        Raises `MissingRuleError` for a subclass with another constructor and no `expand`.
        """
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise MissingRuleError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method."
            )
        return object.__new__(type(self)) if _instance is None else _instance

    @property
    def support(self) -> Any:
        """What the values must be; None if it isn't said."""
        return None

    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters: one distribution for each element."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one draw from one of them."""
        return self._event_shape

    def _extended_shape(self, sample_shape: Shape = ()) -> Size:
        if not isinstance(sample_shape, (tuple, list)):
            problem = f"sample_shape must be a tuple of ints, not {kind_of(sample_shape)}"
            raise ArgumentError(f"{type(self).__name__}: {problem}")
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        """Draw `sample_shape` times, differentiably by the parameters.

        Shapes: sample_shape + batch_shape + event_shape.

        Raises:
            MissingRuleError: draws of the family aren't differentiable; `has_rsample` says so.

        >>> loc = lucid.tensor(3.0, requires_grad=True)
        >>> lucid.distributions.Normal(loc, 1.0).rsample((4,)).sum().backward()
        >>> loc.grad
        tensor(4.)
        """
        return self._drawn(self._extended_shape(sample_shape))

    def _drawn(self, shape: Size) -> Tensor:
        """Draws of a shape, differentiable by the parameters."""
        raise MissingRuleError(f"{type(self).__name__} has no rsample: draws aren't differentiable")

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        """Draw `sample_shape` times, without gradients.

        Shapes: sample_shape + batch_shape + event_shape.

        >>> lucid.distributions.Normal(lucid.zeros(3), 1.0).sample((4,)).shape
        lucid.Size([4, 3])
        """
        return within({"grad_enabled": False}, self._sampled, sample_shape)

    def _sampled(self, sample_shape: Shape) -> Tensor:
        """`sample`, where no gradients are recorded."""
        return self.rsample(sample_shape)

    def sample_n(self, n: int) -> Tensor:
        """Draw `n` times, without gradients: `sample((n,))`, which programs should write instead.

        Shapes: (n,) + batch_shape + event_shape. It warns.

        Args:
            n: how often.

        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     drawn = lucid.distributions.Normal(lucid.zeros(3), 1.0).sample_n(4)
        >>> drawn.shape
        lucid.Size([4, 3])
        """
        warn("sample_n(n) will be deprecated. Use .sample((n,)) instead.", UserWarning)
        return self.sample((n,))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return all values that a draw may have, along a new axis in front.

        Shapes: (their number,) + batch_shape + event_shape.

        Args:
            expand: whether to repeat the values for each distribution; without it their batch axes
                have length 1.

        Raises:
            MissingRuleError: there is no list of them; `has_enumerate_support` says so.

        >>> lucid.distributions.Bernoulli(lucid.tensor([0.2, 0.7])).enumerate_support()
        tensor([[0., 0.],
                [1., 1.]])
        """
        raise MissingRuleError(f"{type(self).__name__} has no enumerate_support()")

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        """Values, (n, *event_shape), with the axes of the batch."""
        event = self._event_shape
        found = values.reshape(-1, *(1,) * len(self._batch_shape), *event)
        return found.expand(-1, *self._batch_shape, *event) if expand else found

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the logarithm of the density (or probability) at `value`.

        Shapes: the value's and the batch's, broadcast, without the event's axes.

        Raises:
            MissingRuleError: the family has none.
            ShapeError: the value's shape doesn't fit, where that is checked.
            OptionError: the value isn't of the support, where that is checked.

        >>> lucid.distributions.Normal(0.0, 1.0).log_prob(lucid.tensor([0.0, 1.0]))
        tensor([-0.9189, -1.4189])
        """
        self._check_value(value)
        return self._log_prob(value)

    def _log_prob(self, value: Tensor) -> Tensor:
        """`log_prob` of a value that was checked."""
        raise MissingRuleError(f"{type(self).__name__} must define log_prob()")

    def prob(self, value: Tensor) -> Tensor:
        """Return the density (or probability) at `value`, the exponential of `log_prob`.

        >>> lucid.distributions.Normal(0.0, 1.0).prob(lucid.tensor([0.0, 1.0]))
        tensor([0.3989, 0.2420])
        """
        return self.log_prob(value).exp()

    def cdf(self, value: Tensor) -> Tensor:
        """Return the probability of a draw up to `value`, from 0 to 1.

        Raises:
            MissingRuleError: the family has none.

        >>> lucid.distributions.Normal(0.0, 1.0).cdf(lucid.tensor([0.0, 1.0]))
        tensor([0.5000, 0.8413])
        """
        self._check_value(value)
        return self._cdf(value)

    def _cdf(self, value: Tensor) -> Tensor:
        """`cdf` of a value that was checked."""
        raise MissingRuleError(f"{type(self).__name__} has no cdf()")

    def icdf(self, value: Tensor) -> Tensor:
        """Return where `cdf` is `value`: the quantiles of these probabilities.

        Args:
            value: a tensor of probabilities, which broadcasts with the batch shape.

        Raises:
            MissingRuleError: the family has none.

        >>> lucid.distributions.Normal(0.0, 1.0).icdf(lucid.tensor([0.5, 0.975]))
        tensor([0.0000, 1.9600])
        """
        raise MissingRuleError(f"{type(self).__name__} has no icdf()")

    def entropy(self) -> Tensor:
        """Return the entropy in nats, the mean of `-log_prob` over draws.

        Shapes: the batch's.

        Raises:
            MissingRuleError: the family has none.

        >>> lucid.distributions.Normal(0.0, 1.0).entropy()
        tensor(1.4189)
        """
        raise MissingRuleError(f"{type(self).__name__} has no entropy()")

    def perplexity(self) -> Tensor:
        """Return the exponential of the entropy: of how many equal chances it is the entropy.

        >>> lucid.distributions.Categorical(probs=lucid.ones(4)).perplexity()
        tensor(4.)
        """
        return self.entropy().exp()

    @property
    def mean(self) -> Tensor:
        """The mean of the draws, of batch_shape + event_shape.

        Raises `MissingRuleError` where the family has none.
        """
        raise MissingRuleError(f"{type(self).__name__} has no mean")

    @property
    def mode(self) -> Tensor:
        """The value of the greatest density or probability, of batch_shape + event_shape.

        Raises `MissingRuleError` where the family has none.
        """
        raise MissingRuleError(f"{type(self).__name__} has no mode")

    @property
    def variance(self) -> Tensor:
        """The variance of the draws, of batch_shape + event_shape.

        Raises `MissingRuleError` where the family has none.
        """
        raise MissingRuleError(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation of the draws, the root of the variance."""
        return self.variance.sqrt()

    def __repr__(self) -> str:
        known = {**vars(self), self._given: getattr(self, self._given, None)}
        parts = []
        for name, value in ((name, known.get(name)) for name in self.arg_constraints):
            if isinstance(value, Tensor):
                shown = value.item() if value.numel() == 1 else value.shape
                parts.append(f"{name}: {shown}")
        return f"{type(self).__name__}({', '.join(parts)})"


def filled(instance: Any, made: Distribution) -> Any:
    """A distribution, or what a subclass has made of its class with the distribution's parts."""
    if instance is None:
        return made
    vars(instance).update(vars(made))
    return instance


def parameters_of(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape."""
    dtype = next((v.dtype for v in values if isinstance(v, Tensor)), get_default_dtype())
    tensors = [v if isinstance(v, Tensor) else lucid.tensor(v, dtype=dtype) for v in values]
    return tuple(lucid.broadcast_tensors(*tensors))


def sum_rightmost(value: Tensor, count: int) -> Tensor:
    """The sum over the last `count` axes."""
    return value.sum(tuple(range(-count, 0))) if count else value


def exactly_one(name: str, first: Any, second: Any) -> None:
    """Raise `OptionError` unless one of two ways to give a parameter was chosen."""
    if (first is None) == (second is None):
        raise OptionError(f"{name}: Either `probs` or `logits` must be specified, but not both.")


def require_axis(distribution: Distribution, name: str, parameter: Tensor) -> None:
    """Raise `ShapeError` unless a parameter has an axis, over which it holds proportions."""
    if tensor_of(parameter, type(distribution).__name__, name).ndim < 1:
        raise ShapeError(f"{type(distribution).__name__}: {name} must have at least one axis")


def uniform_like(shape: Shape, like: Tensor) -> Tensor:
    """Uniform numbers from (0, 1) in the dtype of a parameter."""
    tiny = float(lucid.finfo(like.dtype).tiny)
    return lucid.rand(tuple(shape), dtype=like.dtype).clamp(min=tiny)
