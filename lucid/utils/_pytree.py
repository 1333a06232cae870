"""Nested values as PyTorch's `torch.utils._pytree` sees them: leaves, and what they are in.

Tuples, named tuples, lists, deques and dicts are nodes; all else is a leaf, None as well.

Args:
    tree: nested values.
    is_leaf: says of a value whether it is a leaf, though it may be a node. Default: None.
    pred: what is asked of each leaf.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lucid.ir import frames
from lucid.ir.errors import OptionError

__all__ = [
    "TreeSpec", "tree_all", "tree_any", "tree_flatten", "tree_leaves", "tree_map", "tree_map_only",
    "tree_structure", "tree_unflatten",
]  # fmt: skip

IsLeaf = Callable[[Any], bool] | None
_DICTS = (dict, OrderedDict, defaultdict)


@dataclass(frozen=True, slots=True)
class TreeSpec:
    """A tree without its leaves.

    Attributes:
        type: the class of the node; None of a leaf.
        context: its keys; of a defaultdict or deque, also what else it is made with.
        children: of what is in it.
    """

    type: Any
    context: Any
    children: tuple[TreeSpec, ...]

    @property
    def num_leaves(self) -> int:
        """How many leaves the tree has."""
        return 1 if self.type is None else sum(child.num_leaves for child in self.children)

    def is_leaf(self) -> bool:
        """Whether the tree is a single leaf."""
        return self.type is None

    def _made(self, leaves: Iterator[Any]) -> Any:
        if self.type is None:
            return next(leaves)
        parts = [child._made(leaves) for child in self.children]
        if self.type in _DICTS:
            factory, keys = self.context
            pairs = zip(keys, parts, strict=True)
            return defaultdict(factory, pairs) if self.type is defaultdict else self.type(pairs)
        if self.type is deque:
            return deque(parts, self.context)
        return self.type(parts) if self.type in (tuple, list) else self.type(*parts)

    def _opened(self, tree: Any) -> list[Any]:
        """What stands in another tree where this one has leaves."""
        if self.type is None:
            return [tree]
        kind, context, parts = _node(tree)
        if kind is not self.type or context != self.context or len(parts) != len(self.children):
            raise OptionError(f"tree_map: a {type(tree).__name__} where trees before have {self}")
        pairs = zip(self.children, parts, strict=True)
        return [leaf for child, part in pairs for leaf in child._opened(part)]


def _node(tree: Any) -> tuple[Any, Any, list[Any]]:
    """The class, the context and the parts of a node; None as the class of a leaf."""
    kind = type(tree)
    if kind in _DICTS:
        return kind, (getattr(tree, "default_factory", None), [*tree]), [*tree.values()]
    if kind is deque:
        return kind, tree.maxlen, [*tree]
    if kind in (tuple, list) or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        return kind, None, [*tree]
    return None, None, []


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """Return the leaves in their order, and the tree without them.

    >>> from lucid.utils._pytree import tree_flatten, tree_unflatten
    >>> leaves, spec = tree_flatten({"a": 1, "b": (2, 3)})
    >>> leaves, tree_unflatten([4, 5, 6], spec)
    ([1, 2, 3], {'a': 4, 'b': (5, 6)})
    """
    kind, context, parts = _node(tree)
    if kind is None or (is_leaf is not None and is_leaf(tree)):
        return [tree], TreeSpec(None, None, ())
    flat = [tree_flatten(part, is_leaf) for part in parts]
    spec = TreeSpec(kind, context, tuple(child for _, child in flat))
    return [leaf for leaves, _ in flat for leaf in leaves], spec


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """Return a tree with these leaves.

    Args:
        leaves: as many as the tree had.
        treespec: the tree without leaves.

    Raises:
        OptionError: there are more or fewer.

    >>> from lucid.utils._pytree import tree_structure, tree_unflatten
    >>> tree_unflatten([1, 2], tree_structure([0, 0]))
    [1, 2]
    """
    found = [*leaves]
    if len(found) != treespec.num_leaves:
        wanted = f"the tree has {treespec.num_leaves} leaves"
        raise OptionError(f"tree_unflatten: {wanted}, and {len(found)} are given")
    return treespec._made(iter(found))


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """Return the leaves in their order.

    >>> lucid.utils._pytree.tree_leaves({"a": 1, "b": (2, None)})
    [1, 2, None]
    """
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> TreeSpec:
    """Return the tree without its leaves.

    >>> from lucid.utils._pytree import tree_structure
    >>> tree_structure((1, 2)) == tree_structure((3, 4))
    True
    """
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """Return the tree with `func(leaf, …)` in place of each leaf.

    Args:
        func: of a leaf, and of what stands at its place in the other trees.
        *rests: trees with the same nodes, or more.

    Raises:
        OptionError: another tree has other nodes.

    >>> from lucid.utils._pytree import tree_map
    >>> tree_map(lambda x, y: x + y, {"a": 1, "b": [2]}, {"a": 10, "b": [20]})
    {'a': 11, 'b': [22]}
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec._opened(rest) for rest in rests]
    return tree_unflatten([func(*args) for args in zip(leaves, *others, strict=True)], spec)


def tree_map_only(
    type_or_types: Any, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf = None
) -> Any:
    """Return the tree with `func(leaf)` in place of leaves of some classes.

    Args:
        type_or_types: a class or a tuple of some.
        func: what is called for such a leaf.

    >>> from lucid.utils._pytree import tree_map_only
    >>> tree_map_only(int, lambda x: x + 1, [1, "a", 2.0])
    [2, 'a', 2.0]
    """

    def mapped(leaf: Any) -> Any:
        return func(leaf) if isinstance(leaf, type_or_types) else leaf

    return tree_map(mapped, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Return whether something holds for all leaves.

    >>> lucid.utils._pytree.tree_all(lambda x: x > 0, [1, (2, 3)])
    True
    """
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Return whether something holds for one leaf at least.

    >>> lucid.utils._pytree.tree_any(lambda x: x > 2, [1, (2, 3)])
    True
    """
    return any(map(pred, tree_leaves(tree, is_leaf)))


frames.edge_of_module(__name__)
