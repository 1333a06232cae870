"""From sets of values to transforms of all numbers into them: `transform_to` and `biject_to`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid.distributions import constraints, transforms
from lucid.distributions.constraints import Constraint
from lucid.ir.errors import ArgumentError, MissingRuleError
from lucid.ir.frames import edge_of_class

__all__ = ["biject_to", "transform_to"]


def _key(constraint: Any) -> object:
    """A class of sets; of the sets that have no class of their own, what they say."""
    if isinstance(constraint, type):
        return constraint
    kind = type(constraint)
    return constraint.said if kind is type(constraints.simplex) else kind


@edge_of_class
class ConstraintRegistry:
    """Transforms of unconstrained numbers to the values of a set, by the kind of the set.

    Called with a set it returns the transform; `biject_to` has invertible ones with a density, for
    changes of variables, `transform_to` also cheaper ones, for optimizing.

    >>> weights = lucid.tensor([0.0, 1.0], requires_grad=True)
    >>> lucid.distributions.transform_to(lucid.distributions.constraints.simplex)(weights)
    tensor([0.2689, 0.7311], grad_fn=<SoftmaxBackward>)
    """

    def __init__(self) -> None:
        self._factories: dict[object, Callable[[Any], transforms.Transform]] = {}

    def register(
        self, constraint: Any, factory: Callable[[Any], transforms.Transform] | None = None
    ) -> Any:
        """Enter a function from sets of a kind to their transform; without it, a decorator.

        Args:
            constraint: a set, or a class of sets.
            factory: takes such a set, and returns a `Transform`.

        Raises:
            ArgumentError: `constraint` is neither.

        >>> registry = lucid.distributions.constraint_registry.ConstraintRegistry()
        >>> @registry.register(lucid.distributions.constraints.positive)
        ... def to_positive(constraint):
        ...     return lucid.distributions.ExpTransform()
        >>> type(registry(lucid.distributions.constraints.positive)).__name__
        'ExpTransform'
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        of_sets = isinstance(constraint, type) and issubclass(constraint, Constraint)
        if not of_sets and not isinstance(constraint, Constraint):
            raise ArgumentError(
                f"register: constraint must be a Constraint or a class of them, not {constraint!r}"
            )
        self._factories[_key(constraint)] = factory
        return factory

    def __call__(self, constraint: Any) -> transforms.Transform:
        """Return the transform to this set. Raises `MissingRuleError` where none is entered."""
        factory = self._factories.get(_key(constraint))
        if factory is None:
            raise MissingRuleError(f"no transform to {constraint!r} is registered")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _is(bound: Any, number: float) -> bool:
    return isinstance(bound, (int, float)) and bound == number


def _above(constraint: Any) -> transforms.Transform:
    bound = constraint.lower_bound
    if _is(bound, 0):
        return transforms.ExpTransform()
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(bound, 1)]
    )


def _below(constraint: Any) -> transforms.Transform:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)]
    )


def _between(constraint: Any) -> transforms.Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if _is(low, 0) and _is(high, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform(
        [transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)]
    )


def _register_all(registry: ConstraintRegistry) -> None:
    """What both have; parts of a set are transformed by the same registry."""
    registry.register(constraints.real, lambda _: transforms.identity_transform)
    for above in (constraints.greater_than, constraints.greater_than_eq):
        registry.register(above, _above)
    registry.register(constraints.less_than, _below)
    for between in (constraints.interval, constraints.half_open_interval, constraints.open_below):
        registry.register(between, _between)
    registry.register(constraints.lower_cholesky, lambda _: transforms.LowerCholeskyTransform())
    registry.register(constraints.corr_cholesky, lambda _: transforms.CorrCholeskyTransform())
    for positive in (constraints.positive_definite, constraints.positive_semidefinite):
        registry.register(positive, lambda _: transforms.PositiveDefiniteTransform())
    registry.register(
        constraints.independent,
        lambda c: transforms.IndependentTransform(
            registry(c.base_constraint), c.reinterpreted_batch_ndims
        ),
    )
    registry.register(
        constraints.cat,
        lambda c: transforms.CatTransform([registry(p) for p in c.cseq], c.dim, c.lengths),
    )
    registry.register(
        constraints.stack, lambda c: transforms.StackTransform([registry(p) for p in c.cseq], c.dim)
    )


_register_all(biject_to)
_register_all(transform_to)
biject_to.register(constraints.simplex, lambda _: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda _: transforms.SoftmaxTransform())
