"""Which of a function's surroundings its code could have read while it was traced.

A watch is kept if code that ran names what it looks at. A container is looked into only if it could
be reached so: a list that nobody but a host call touches may grow.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterable

from lucid.autograd.function import Function
from lucid.compiler.inputs.watches import AnyWatch, ArrayWatch, ClassAttributes, Watch
from lucid.compiler.surroundings.codes import loaded_attributes, nested, read_variables

CONTAINERS = (list, dict, set, deque)
Way = tuple[Watch | None, object]
"""How the walk came to an object: the watch of the place where it stands, and what it stands in."""

DIRECT: Way = (None, None)
_FLAGS = {"generate_vmap_rule", "clear_saved_tensors_on_access", "boxed_grads_call"}
_ASK = {"getattr", "hasattr"}
_DATA = (*CONTAINERS, int, float, str, bytes, tuple, type(None))


class Reads:
    """What code that ran reads, by name.

    Attributes:
        names: of globals and attributes.
        by_user: those that the user's own code names, also in a `getattr`.
        loaded: those of attributes that it reads, or may: not what it only binds.
        asked: those that code which asks for attributes may ask for by a text of its own.
        any_attribute: whether the user's code looks at all attributes of something.
    """

    def __init__(
        self, codes: Iterable[types.CodeType], is_users: Callable[[types.CodeType], bool]
    ) -> None:
        self.codes = set(codes)
        self.names = {name for code in self.codes for name in code.co_names}
        users = [code for code in self.codes if is_users(code)]
        self.by_user = {name for code in users for name in code.co_names}
        self.by_user |= {x for code in users for x in code.co_consts if isinstance(x, str)}
        self.names |= self.by_user
        self.loaded = frozenset[str]().union(*map(loaded_attributes, users))
        asking = [code for code in users if not _ASK.isdisjoint(code.co_names)]
        self.asked = frozenset(
            x
            for code in asking
            for x in code.co_consts
            if isinstance(x, str) and x.isidentifier() and not x.startswith("__")
        )
        self.any_attribute = not self.by_user.isdisjoint({"vars", "__dict__"})

    def reads(self, watch: AnyWatch) -> bool:
        """Whether code that ran names the place that a watch looks at."""
        if not isinstance(watch, (Watch, ArrayWatch)):
            return True
        if watch.code is not None:
            return self._reads_variable(watch.code, watch.path)
        if watch.attribute is None:
            return True
        if isinstance(watch, Watch) and _is_data_of_function(watch):
            return watch.attribute in self.by_user or watch.attribute in _FLAGS
        return watch.attribute in self.names

    def _reads_variable(self, code: types.CodeType, name: str) -> bool:
        """Whether a function that ran reads a variable, and not only hands it to an inner one."""
        if name not in code.co_freevars:
            return code in self.codes
        return any(inner in self.codes and name in read_variables(inner) for inner in nested(code))

    def leads(self, watch: Watch) -> bool:
        """Whether it could have come through that place to what stands there."""
        return self.reads(watch) or (self.any_attribute and watch.attribute is not None)


def _is_data_of_function(watch: Watch) -> bool:
    """Whether it is an attribute of a custom Function's class that the library has no use for."""
    owner = watch.owner
    if not isinstance(owner, ClassAttributes) or not isinstance(watch.expected, _DATA):
        return False
    return isinstance(owner.of, type) and issubclass(owner.of, Function)


class Ways:
    """All ways by which a walk came to each object."""

    def __init__(self) -> None:
        self._ways: dict[int, list[Way]] = {}
        self._holders: dict[int, object] = {}
        self._reached: dict[int, bool] = {}

    def add(self, value: object, way: Way) -> None:
        self._ways.setdefault(id(value), []).append(way)

    def belongs(self, watch: AnyWatch, container: object) -> None:
        """Note that a watch looks into a container."""
        self._holders[id(watch)] = container

    def was_read(self, watch: AnyWatch, reads: Reads) -> bool:
        """Whether code that ran could have read what the watch looks at."""
        if not reads.reads(watch):
            return False
        holder = self._holders.get(id(watch))
        return holder is None or self._is_reached(holder, reads)

    def _is_reached(self, value: object, reads: Reads) -> bool:
        known = self._reached.get(id(value))
        if known is None:
            self._reached[id(value)] = False  # a way that leads through itself is none
            known = self._reached[id(value)] = any(
                (watch is None or reads.leads(watch))
                and (holder is None or self._is_reached(holder, reads))
                for watch, holder in self._ways.get(id(value), ())
            )
        return known
