"""What each kind of instruction reads and writes, as Python's data model has it.

`obj.name` reads the class of `obj`, the classes of its method resolution order until one has the
name, and the attributes of `obj` itself, where the name may be absent; `owner[key]` reads an entry.
"""

from __future__ import annotations

import abc
import builtins
import decimal
import functools
import itertools
import operator
import sys
import threading
import types
from collections import defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from lucid.compiler.guards.collector import PLAIN, VIEWS, Collector
from lucid.compiler.guards.events import COMPARISONS, Starred
from lucid.compiler.guards.guard import (
    ABSENT,
    CONTENTS,
    Attributes,
    ClassAttributes,
    asked_of,
    instance_dict,
)
from lucid.compiler.guards.moving_entries import HOLDERS, MovingEntry
from lucid.compiler.guards.mutable_sources import identity_of
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.late import bases_of, early_formula, is_late
from lucid.compiler.inputs.objects import SCALARS
from lucid.compiler.inputs.scalars import WHOLE, is_known_before, is_live, seen
from lucid.ir.classes import isinstance
from lucid.ir.types import has_dtype
from lucid.ir.whose_code import is_followed, is_librarys, is_unknown, is_users
from lucid.tensor.context import context, epoch
from lucid.tensor.core import TensorCore, attributes_of
from lucid.tensor.tensor import Tensor

_COMPARISONS = [(f"__{name}__",) for name in COMPARISONS.values()]
_IS_OF_PYTHON = 1 << 9  # the flag of a class that a `class` statement has made
_IS_IMMUTABLE = 1 << 8  # the flag of a class in C, whose attributes can't be set
_OF_FUNCTIONS = frozenset(dir(types.FunctionType)) - {"__dict__"}
_NAMES_OF_FUNCTIONS = ("__name__", "__qualname__", "__doc__", "__module__")
_OF_TENSORS = frozenset(dir(TensorCore))
_QUIET = frozenset({Tensor, int, float})  # of whose values operators read nothing else
REGISTERS = ("_parameters", "_buffers", "_modules")
_FieldOfTuple: Any = type(vars(namedtuple("_", "field"))["field"])
_OF_ARRAYS = frozenset({"shape", "size", "ndim", "strides", "flags", "dtype"})
# Special methods that code in C may call of whatever it is handed.
_MAY_BE_CALLED = (
    *("__eq__", "__hash__", "__lt__", "__gt__", "__bool__", "__len__", "__iter__", "__getitem__"),
    *("__contains__", "__float__", "__int__", "__index__", "__array__", "__call__", "__fspath__"),
    *("__add__", "__radd__", "__mul__", "__rmul__", "__str__", "__repr__", "__format__"),
)
_INDEXED = (list, tuple, deque, str, bytes, range)
_NUMBERS = (int, float, bool)  # whose equality with one that moves a guard can ask for
_FEW = 64  # entries of a container of which each is compared with a number that moves


class Reads(Collector):
    """Enters what instructions read and write, as `events.py` tells of them.

    A method may return what is to take the place of its first operand.

    Attributes:
        hand_over: reads all of an object, since code that isn't followed gets it.
        look_through: reads a container and the containers in it.
        read_text: reads what of a value code in C shows in its text.
        tell: calls a function on behalf of the user's code, and reads what the call reads.
    """

    hand_over: Callable[[Any], None]
    tell: Callable[..., Any]
    look_through: Callable[[Any], None]
    read_text: Callable[[Any], None]

    # ------------------------------------------------------------------ attributes

    def load_attribute(self, owner: Any, name: str) -> None:
        owner = _wrapped(owner)
        kind = type(owner)
        if name == "__class__":
            self.substitutes.looked_at(owner)
        is_late_array = isinstance(owner, np.ndarray) and not issubclass(kind, np.ndarray)
        if kind in SCALARS or is_live(owner) or is_late_array:
            return
        path = self.path_of(owner)
        if kind is types.ModuleType:
            self._load_from_module(owner, name, path)
        elif isinstance(owner, type):
            if name == "__dict__":
                self.all_attributes(owner)
            elif self._load_from_class(owner, name) is ABSENT:
                found: Any = self._load_from_class(type(owner), name)
                if isinstance(found, types.GetSetDescriptorType):  # such as `__name__`
                    self.answer(f"{owner.__name__}.{name}", getattr, owner, name)
                elif found is ABSENT:
                    self._special(owner, "__getattr__")
        elif isinstance(owner, super):
            found = owner
            self._load_from_class(found.__self_class__, name, found.__thisclass__)
        elif isinstance(owner, TensorCore):
            self.tensor(path, owner)
            if id(owner) in self.given_tensors:
                self._look_for_attribute(owner, name)
                self._load_from_class(kind, name)
            elif name not in _OF_TENSORS:
                self._load_from_object(owner, name, path, attributes_of(owner))
        elif kind is types.FunctionType:
            if name not in _OF_FUNCTIONS:
                self.entry(f"{path}.{name}", vars(owner), name, holder=owner)
            elif name in _NAMES_OF_FUNCTIONS:
                self.answer(f"{path}.{name}", getattr, owner, name)
        elif kind is types.MethodType:
            self.load_attribute(owner.__func__, name)
        elif kind is not np.ndarray:
            self._load_from_object(owner, name, path, instance_dict(owner))
        elif name in _OF_ARRAYS:
            self.answer(f"{path}.{name}", getattr, owner, name)
        elif name in ("flat", "data"):
            self.array(path, owner)

    def _load_from_module(self, owner: Any, name: str, path: str) -> None:
        entries = vars(owner)
        self._read_class(owner)
        if name == "__dict__":
            self.value(entries, f"{path}.__dict__", owner)
            return
        if name not in entries and owner.__name__ == "lucid":
            getattr(owner, name, None)  # what is imported late is there from now on
        self.entry(f"{path}.{name}", entries, name, holder=owner)
        if name not in entries:
            self.entry(f"{path}.__getattr__", entries, "__getattr__", holder=owner)

    def _load_from_object(
        self, owner: Any, name: str, path: str, attributes: dict[str, Any] | None
    ) -> None:
        self._read_class(owner)
        if name == "__class__":
            return
        if name == "__dict__":
            self.all_attributes(owner)
            return
        place = f"{path}.{name}" if path else name
        self._special(owner, "__getattribute__")
        found = self._load_from_class(type(owner), name)
        if isinstance(found, property) or (
            attributes is None and isinstance(found, types.FunctionType)
        ):
            return  # what a property reads is told when it runs
        is_own = _is_of_threads(owner) and not hasattr(type(found), "__get__")
        if is_own or isinstance(found, types.MemberDescriptorType):  # or a slot
            self.entry(place, Attributes(owner), name, holder=owner)
            return
        if isinstance(found, types.GetSetDescriptorType):
            self.answer(place, getattr, owner, name)
            return
        if isinstance(found, _FieldOfTuple):
            self.value(found.__get__(owner), place, owner)
            return
        if isinstance(found, types.DynamicClassAttribute):  # of an enumeration's member
            name = f"_{name}_"
        if attributes is not None:
            self._load_own(owner, name, place, attributes)
        if found is not ABSENT:
            if not hasattr(type(found), "__get__"):
                self.value(found, place, owner)
        elif attributes is None or name not in attributes:
            self._load_computed(owner, name, place, attributes is None)

    def _load_own(self, owner: Any, name: str, place: str, attributes: dict[str, Any]) -> None:
        gated = self.is_module(owner)
        if gated:
            gated = not isinstance(attributes.get(name), (*PLAIN, np.ndarray))
        if not isinstance(owner, TensorCore):
            self.field(f"{self.path_of(owner)}.__dict__", owner, "__dict__", gated=gated)
        self.entry(place, attributes, name, gated=gated, holder=owner)
        if gated and name not in attributes:
            for register in REGISTERS:
                entries = attributes.get(register)
                if entries and name in entries:
                    self.entry(register, attributes, register, gated=True, holder=owner)
                    self.entry(place, entries, name, gated=True, holder=owner)

    def _load_computed(self, owner: Any, name: str, place: str, has_slots: bool) -> None:
        """An attribute that neither the object nor its class has: `__getattr__` makes it."""
        computes = self._special(owner, "__getattr__")
        if is_unknown(computes):
            self.hand_over(owner)
        elif self._is_of_dicts(owner, "__getattr__"):
            self.load_item(owner, name)
        elif computes is ABSENT and has_slots:
            self.answer(place, getattr, owner, name, None)

    def _load_from_class(self, kind: type, name: str, above: type | None = None) -> Any:
        """What the class has for a name, unbound; ABSENT for nothing.

        above: of its bases only those behind this one are asked.
        """
        if not kind.__flags__ & _IS_IMMUTABLE:
            self.field(f"{kind.__name__}.__mro__", kind, "__mro__")
        order = kind.__mro__
        for base in order if above is None else order[order.index(above) + 1 :]:
            found = vars(base).get(name, ABSENT)
            if not base.__flags__ & _IS_IMMUTABLE:
                self.entry(f"{base.__name__}.{name}", ClassAttributes(base), name)
            if found is not ABSENT:
                for method in ("__get__", "__set__") if is_users(type(found)) else ():
                    self._special(found, method)
                return getattr(found, "__func__", found)
        return ABSENT

    def load_super(self, above: Any, owner: Any, name: str) -> None:
        kind = owner if isinstance(owner, type) else type(owner)
        if isinstance(above, type) and above in kind.__mro__:
            self._load_from_class(kind, name, above)
            if not isinstance(owner, type):
                self.load_attribute(owner, "__class__")

    def store_attribute(self, owner: Any, name: str) -> None:
        owner = _wrapped(owner)
        path = owner.__name__ if isinstance(owner, type) else self.path_of(owner)
        place = f"{path}.{name}" if path else name
        if isinstance(owner, TensorCore):
            self.tensor(path, owner)
            if name in _OF_TENSORS:
                return
            self._refuse_binding(owner, f"it binds .{name} to")
        if id(owner) in self.given_functions:
            self._op_by_op(f"it binds .{name} to a function that it is given")
        if isinstance(owner, types.FunctionType) and name in _OF_FUNCTIONS:
            self.field(place, owner, name)
        elif _is_of_threads(owner):
            self.entry(place, Attributes(owner), name, write=True, holder=owner)
        elif not isinstance(owner, super):
            self._store_own(owner, name, place)

    def delete_attribute(self, owner: Any, name: str) -> None:
        if isinstance(owner, TensorCore) and name not in _OF_TENSORS:
            self._refuse_binding(owner, f"it deletes .{name} of")
        if self._is_of_dicts(owner, "__delattr__"):
            self.delete_item(owner, name)
            return
        self.load_attribute(owner, name)  # which must be there
        self.store_attribute(owner, name)

    def _refuse_binding(self, tensor: TensorCore, what: str) -> None:
        if id(tensor) in self.given_tensors and context.recorder is not None:
            context.recorder.run_op_by_op(f"{what} a tensor that it is given")

    def _look_for_attribute(self, tensor: TensorCore, name: str) -> None:
        """The step looks for an attribute that users may have bound to a tensor argument.

        Calls with a tensor that has it run op by op. Other attributes of the tensor don't matter.
        """
        found = class_has(type(tensor), name)
        if found is not ABSENT and is_users(found):  # which they have given all tensors
            self._load_from_class(type(tensor), name)
        elif found is ABSENT and not name.startswith("__"):
            self._ask(tensor, name)

    def look_for_all_attributes(self, tensor: TensorCore) -> None:
        """The step copies a tensor, with what users have bound to it."""
        if id(tensor) in self.given_tensors:
            self._ask(tensor, CONTENTS)

    def _ask(self, tensor: TensorCore, name: str) -> None:
        self.asked.add(name)
        for bound in asked_of(self.given_tensors[id(tensor)], self.asked):
            self._refuse_binding(tensor, f"it reads .{bound}, which is bound to")

    def _store_own(self, owner: Any, name: str, place: str) -> None:
        found = self._load_from_class(type(owner), name)
        if isinstance(found, types.MemberDescriptorType):
            self.entry(place, Attributes(owner), name, write=True, holder=owner)
        if isinstance(found, (types.MemberDescriptorType, property)):
            return
        attributes: Any = ClassAttributes(owner)
        if not isinstance(owner, type):
            if self._is_of_dicts(owner, "__setattr__"):
                self.store_item(owner, name)
                return
            is_tensor = isinstance(owner, TensorCore)
            attributes = attributes_of(owner) if is_tensor else instance_dict(owner)
        if attributes is None:
            if self.was_there(owner):  # it is there in C alone
                kind = type(owner).__name__
                self._op_by_op(f"it sets {place}, of a {kind}, whose state can't be seen")
            return
        gated = self.is_module(owner)
        if gated:
            self.meet(self.path_of(owner), owner)
            for register in REGISTERS:
                entries = attributes.get(register)
                if entries is not None:
                    self.entry(place, entries, name, write=True, gated=True, holder=owner)
        self.entry(place, attributes, name, write=True, gated=gated, holder=owner)

    def all_attributes(self, owner: Any) -> None:
        """All that an object has in its `__dict__`, and in slots."""
        if isinstance(owner, type):
            names = () if owner.__flags__ & _IS_IMMUTABLE else _names_of_class(owner)
            self.answer(f"vars({owner.__name__})", _names_of_class, owner)
            for name in names:
                self.entry(f"{owner.__name__}.{name}", ClassAttributes(owner), name)
            return
        attributes = instance_dict(owner)
        if attributes is not None:
            self.contents(self.path_of(owner), attributes, holder=owner)
        kind: Any = type(owner)
        for name in slots_of(kind):
            self.load_attribute(owner, name)

    def all_names(self, owner: Any) -> None:
        """What `dir` shows: what an object has, and its classes."""
        self.all_attributes(owner)
        for base in (owner if isinstance(owner, type) else type(owner)).__mro__:
            if not base.__flags__ & _IS_IMMUTABLE:
                self.answer(f"vars({base.__name__})", _names_of_class, base)

    def match_class(self, owner: Any, kind: Any, names: tuple[str, ...]) -> None:
        if isinstance(kind, type):
            self._load_from_class(kind, "__match_args__")
        for name in (*getattr(kind, "__match_args__", ()), *names):
            self.load_attribute(owner, name)
        self.belongs(builtins.isinstance, owner, kind)

    def belongs(self, function: Any, subject: Any, kinds: Any) -> None:
        """`isinstance` and `issubclass` read a class's MRO, and the registry of an abstract one.

        The class of an object that the step has made is asked at each call.
        """
        if function is builtins.isinstance and not self.was_there(subject):
            function, subject = _is_subclass, type(subject)
        for kind in kinds if isinstance(kinds, tuple) else (kinds,):
            if isinstance(kind, abc.ABCMeta):
                self.answer(f"{function.__name__}(…, {kind.__name__})", function, subject, kind)
            for name in ("__instancecheck__", "__subclasscheck__"):
                self._special(kind, name)

    def enter(self, manager: Any) -> None:
        """`with manager` looks both methods up before it calls one."""
        for name in ("__enter__", "__exit__"):
            self._special(manager, name)

    # ------------------------------------------------------------------ entries

    def index_of(self, key: Any) -> Any:
        """The int that a key is as an index of a sequence; None: it can't be one."""
        says = class_has(type(key), "__index__")
        if isinstance(says, types.FunctionType) and is_followed(says.__code__):
            self._op_by_op(f"it has code in C ask a {type(key).__name__} for an index")
        return operator.index(key) if hasattr(key, "__index__") else None

    def load_item(self, owner: Any, key: Any, *, in_c: bool = False) -> Any:
        """`owner[key]` is about to be read; what to index instead of the owner, if anything.

        in_c: the container's own method is called, as by `super().__getitem__(key)`.
        """
        if type(owner) is Tensor and type(key) is int:
            return None
        if isinstance(owner, (TensorCore, np.ndarray)):
            self._read_index(key, given=isinstance(owner, TensorCore))
        path = self.path_of(owner)
        entry = self._entry_of_call(path, owner, key, in_c=in_c)
        if entry is not ABSENT:
            return _Entry(entry)
        for part in (key.start, key.stop, key.step) if type(key) is slice else (key,):
            self.may_call(part)
        if isinstance(owner, dict):
            self.look_for_itself(key)
        elif isinstance(owner, type):
            self._load_from_class(owner, "__class_getitem__")
        if is_live(key) and isinstance(owner, _INDEXED) and not hasattr(key.__class__, "__index__"):
            owner[key.kind()]  # which raises what Python raises
        own = None if in_c else self._special(owner, "__getitem__")
        if isinstance(own, types.FunctionType) and getattr(type(owner), "tells_reads", True):
            if is_unknown(own):
                self.hand_over(owner)
        elif isinstance(owner, dict):
            key = seen(key)
            is_absent = is_hashable(key) and not dict.__contains__(owner, key)
            if is_absent:
                self._special(owner, "__missing__")
                if isinstance(owner, defaultdict):
                    self.load_attribute(owner, "default_factory")
            if is_hashable(key) and not (is_absent and is_librarys(type(owner))):
                self.entry(f"{path}[{self.text_of(key)}]", owner, key)
        elif isinstance(owner, (list, tuple, deque)):
            self._load_by_index(path, owner, seen(key))
        elif isinstance(owner, np.ndarray):
            return self._load_from_array(path, owner, key)
        return None

    def _entry_of_call(self, path: str, owner: Any, key: Any, *, in_c: bool) -> Any:
        """An entry that is another one in each call, by a live number or text; ABSENT: it isn't."""
        if (
            is_known_before(key)
            and isinstance(key.now, WHOLE)
            and _is_table(owner)
            and (key.now in owner if type(owner) is dict else -len(owner) <= key.now < len(owner))
        ):
            self.iterate(owner)
            table: Any = owner.copy() if type(owner) is dict else tuple(owner)
            return key.applied(f"{path}[{key.text}]", lambda index: table[index], [key])
        for question in (self.substitutes.augmented, self.substitutes.entry):
            entry = question(owner, key)
            if entry is not None:
                return entry
        return ABSENT if in_c else self.moving_entry(path, owner, key)

    def _load_from_array(self, path: str, array: np.ndarray, key: Any) -> Any:
        stand_in = self.index_array(array, key)
        if stand_in is not None:
            return stand_in
        key = seen(key)
        parts = key if isinstance(key, tuple) else (key,)
        is_basic = all(isinstance(x, (int, slice, np.integer, type(None))) for x in parts)
        is_view = is_basic and (len(parts) < array.ndim or any(type(x) is slice for x in parts))
        self.array(f"{path}[{key!r}]", array, key if is_basic else ABSENT, given=is_view)
        return None

    def moving_entry(self, path: str, owner: Any, key: Any) -> Any:
        """The stand-in for data at a place that a live number says; ABSENT: guard the number.

        So it is in a container that the step has changed: calls wouldn't find the entry before.
        """
        of_call = early_formula(key) if type(owner) in HOLDERS else None
        if of_call is None or not self.may_move(owner):
            return ABSENT
        text = ", ".join(number.text for number in bases_of([key]).values())
        return self.take_entry(MovingEntry(f"{path}[{text}]", owner, of_call))

    def may_move(self, owner: Any) -> bool:
        """Whether each call may find entries of a container by itself."""
        is_changed = id(owner) in self._appended or id(owner) in self.stored_at_end
        is_own = is_changed or id(owner) in self.stand_ins or id(owner) in self._given
        return type(owner) in HOLDERS and not is_own and self.was_there(owner)

    def _read_index(self, key: Any, *, given: bool) -> None:
        """Read the lists and arrays in an index; of a mask the library looks at the elements."""
        for part in key if type(key) is tuple else (key,):
            if isinstance(part, np.ndarray):
                self.iterate(part, given=given and part.dtype.kind != "b" and has_dtype(part))
            elif isinstance(part, PLAIN):
                self.hand_over(part)

    def _load_by_index(self, path: str, owner: Any, key: Any) -> None:
        index = self.index_of(key)
        if index is None:
            self.iterate(owner)
            return
        if index < 0:
            if not isinstance(owner, tuple):
                self.length(path, owner)
            index += len(owner)
        place = f"{path}[{index}]"
        if not isinstance(owner, tuple):
            self.entry(place, owner, index)
        elif 0 <= index < len(owner):
            self.value(owner[index], place, owner)

    def load_slice(self, owner: Any, start: Any, stop: Any) -> Any:
        return self.load_item(owner, slice(start, stop))

    def assign_item(self, owner: Any, key: Any, value: Any) -> Any:
        """`owner[key] = value`, by an instruction, which may put it somewhere else."""
        return self.substitutes.stored(owner, key, value) or self.store_item(owner, key, value)

    def store_item(self, owner: Any, key: Any, value: Any = None, *, in_c: bool = False) -> Any:
        path = self.path_of(owner)
        if isinstance(owner, (TensorCore, np.ndarray)):
            self._read_index(key, given=isinstance(owner, TensorCore))
        if isinstance(owner, np.ndarray):
            if isinstance(value, (*PLAIN, tuple, np.ndarray)):
                self.hand_over(value)
            return self.write_array(owner, (key, value))
        own = None if in_c else self._special(owner, "__setitem__")
        if isinstance(own, types.FunctionType):
            if is_unknown(own):
                self.hand_over(owner)
        elif isinstance(owner, dict):
            key = seen(key)
            if is_hashable(key):
                self.entry(f"{path}[{self.text_of(key)}]", owner, key, write=True)
        elif isinstance(owner, PLAIN):
            if isinstance(key, slice):
                self.rewrite(path, owner)
            elif (index := self.index_of(key)) is not None:
                if index < 0:
                    self.length(path, owner)
                    index += len(owner)
                self.place(path, owner, index)
                self.entry(f"{path}[{index}]", owner, index, write=True)
        elif not isinstance(owner, TensorCore):
            self._note_change(owner)
        return None

    def delete_item(self, owner: Any, key: Any, *, in_c: bool = False) -> None:
        if isinstance(owner, PLAIN) and not isinstance(key, slice):
            self.load_item(owner, key, in_c=in_c)  # which must be there
        self.store_item(owner, key, in_c=in_c)
        if isinstance(owner, PLAIN) and not is_librarys(type(owner)):
            self.contents(self.path_of(owner), owner, write=True)  # others may have moved

    def store_contents(self, owner: Any, start: Any, stop: Any, value: Any) -> Any:
        return self.store_item(owner, slice(None), (start, stop, value))

    def match_keys(self, owner: Any, keys: tuple[Any, ...]) -> None:
        for key in keys:
            self.load_item(owner, key)

    # ------------------------------------------------------------------ whole containers

    def iterate(self, owner: Any, *, given: bool = False) -> Any:
        """Read all entries of a container, not what is in them; what to iterate instead, or None.

        given: see `array`.
        """
        if isinstance(owner, (range, TensorCore)) or is_late(owner):
            instead = self.substitutes.rounds(owner)
            if instead is not None or type(owner) is range:
                return instead
        instead = self.substitutes.without_none(owner)
        if instead is not None:
            return instead
        path = self.path_of(owner)
        if isinstance(owner, tuple):
            for i, item in enumerate(owner):
                self.value(item, f"{path}[{i}]", owner)
        elif isinstance(owner, PLAIN):
            if is_librarys(type(owner)):
                self.meet(path, owner)
            else:
                self.contents(path, owner)
        elif isinstance(owner, np.ndarray):
            self.array(path, owner, given=given)
        elif hasattr(type(owner), "__next__"):
            self._special(owner, "__iter__")
            self.advance(owner)
        else:
            iterates = self._special(owner, "__iter__")
            if iterates is ABSENT:
                self._special(owner, "__getitem__")
            elif is_unknown(iterates):
                self.hand_over(owner)
        return None

    def copied(self, items: Any) -> Any:
        """A copy of what stands for a list, for `[*items]`; None: nothing does."""
        return self.substitutes.copied(self.stand_in_for(items))

    def displayed(self, made: Any) -> Any:
        """What takes the place of `[*a, b]`, where something stands for `a`; None: it stays."""
        if type(made) not in (list, tuple) or not any(type(x) is Starred for x in made):
            return None
        parts: list[Any] = []
        for is_starred, items in itertools.groupby(made, lambda x: type(x) is Starred):
            group = [*items]
            parts += [x.part for x in group] if is_starred else [group]
        try:
            found = functools.reduce(operator.add, parts)
            return tuple(found) if type(made) is tuple else found
        except RestartTrace as restart:  # nothing can raise here: it is met behind the step
            self.restart = restart
            return None

    def advance(self, iterator: Any) -> None:
        """An iterator is about to give an item."""
        if isinstance(self._special(iterator, "__next__"), types.FunctionType):
            return  # what it reads is told
        self._note_change(iterator)
        if id(iterator) in self._given or not self.was_there(iterator):
            return
        path = self._paths.get(id(iterator), "an iterator")
        self._op_by_op(
            f"it advances {path}, a {type(iterator).__name__}",
            "take the item outside of the compiled function, and pass it as an argument",
        )

    def measure(self, owner: Any) -> None:
        """Read the truth or the length of an object."""
        if isinstance(owner, PLAIN):
            if not is_late(owner):  # which tells by itself
                self.length(self.path_of(owner), owner)
        elif isinstance(owner, np.ndarray) and owner.size == 1:
            self.array(self.path_of(owner), owner)
        elif not isinstance(owner, (*SCALARS, TensorCore)):
            for name in ("__bool__", "__len__"):
                if is_unknown(self._special(owner, name)):
                    self.hand_over(owner)

    def contains(self, owner: Any, key: Any) -> Any:
        """`key in owner`; an iterator's items are looked at as they come."""
        found = self.look_for(key, owner)
        if found is not None:
            return () if found is ABSENT else (key,)
        kind = type(owner)
        is_searched = hasattr(kind, "__iter__") and not hasattr(kind, "__contains__")
        return self.taken(owner, self.look_through) if is_searched else None

    def taken(self, items: Any, look: Callable[[Any], None]) -> Iterator[Any]:
        """The items of an iterator; `look` reads each as it comes."""
        if hasattr(type(items), "__next__"):
            self.advance(items)
        for value in items:
            if not self.is_over:
                look(value)
            yield value

    def look_for(self, key: Any, owner: Any) -> Any:
        """`key in owner`; for a live number it is only compared with the keys, if these are few."""
        if is_one_of_few(key, owner):
            self.iterate(owner)
            return next((x for x in owner if type(x) in _NUMBERS and key == x), ABSENT)
        path = self.path_of(owner)
        if isinstance(owner, (*PLAIN, tuple)) and not isinstance(key, TensorCore):
            self.look_for_itself(key)
        if isinstance(owner, (dict, set)):
            self._refuse_stored(path, id(owner))
            key = seen(key)
            if not is_hashable(key):
                return None
            written = self.guards.get((id(owner), key)) if isinstance(key, SCALARS) else None
            if written is None or written.was_read:
                self._looked_at.add(id(owner))
                whole = self.guards.get(identity_of(owner, CONTENTS))  # as before the step
                had = ABSENT if whole is None else key in whole.expected
                text = f"{self.text_of(key)} in {path}"
                self.answer(text, operator.contains, owner, key, answered=had)
        elif is_unknown(self._special(owner, "__contains__")):
            self.hand_over(owner)
        elif isinstance(owner, (*PLAIN, tuple, *VIEWS)):
            self.look_through(owner)
            self.look_through(key)
        else:
            self.iterate(owner)
        return None

    def operate(self, left: Any, right: Any, methods: tuple[str, ...]) -> Any:
        if type(left) in _QUIET and type(right) in _QUIET:
            return None
        if type(left) is str and methods[:1] == ("__mod__",):
            self.read_text(right)
            return self.substitutes.template(left, right)
        given = isinstance(left, TensorCore) or isinstance(right, TensorCore)
        compares = methods[:1] in _COMPARISONS
        if compares and type(left) is type(right) and not given:
            self.look_for_itself(left)
            self.look_for_itself(right)
        for operand in (left, right):
            if compares and isinstance(operand, (*PLAIN, tuple)):
                self.look_through(operand)
            elif isinstance(operand, (*PLAIN, tuple, np.ndarray)):
                self.iterate(operand, given=given)
            elif isinstance(operand, np.generic):
                self.answer("numpy.geterr()", np.geterr)
            elif not isinstance(operand, (*SCALARS, TensorCore)):
                self.look_at_context(operand)
                if isinstance(left, _INDEXED):
                    self.may_call(operand)  # for its `__index__`
                for name in (*methods, "__eq__") if "__ne__" in methods else methods:
                    if is_unknown(self._special(operand, name)):
                        self.hand_over(operand)
        return None

    def look_at_context(self, number: Any) -> None:
        """A number is computed with; for a `Decimal`, read the thread's context."""
        if isinstance(number, decimal.Decimal):
            self._op_by_op("it computes with a Decimal, by the precision that the thread has then")

    def join(self, *parts: str) -> None:
        self._joining = parts

    def joined(self, text: str) -> Any:
        parts, self._joining = self._joining, ()
        return self.substitutes.joined(parts)

    def _special(self, owner: Any, name: str) -> Any:
        """The special method by which a class answers for an instruction."""
        kind = type(owner)
        if kind.__flags__ & _IS_IMMUTABLE or is_librarys(kind):
            return class_has(kind, name)
        self._read_class(owner)
        return self._load_from_class(kind, name)

    def _read_class(self, owner: Any) -> None:
        self.field(f"type({self.path_of(owner)})", owner, "__class__")

    def _is_of_dicts(self, owner: Any, name: str) -> bool:
        """Whether a class's attributes are entries, as after `__getattr__ = dict.__getitem__`."""
        found = self._special(owner, name)
        return isinstance(owner, dict) and getattr(found, "__objclass__", object) is not object

    def may_call(self, value: Any, *names: str) -> None:
        """Code in C is handed an object, whose special methods it may call, or look for in vain."""
        kind = type(value)
        if kind.__flags__ & _IS_IMMUTABLE or is_librarys(kind):
            return
        self._read_class(value)
        for name in (*_MAY_BE_CALLED, *names):
            if (kind, name) not in self._may_call:
                self._may_call.add((kind, name))
                self._load_from_class(kind, name)

    def operate_in_place(self, left: Any, right: Any, methods: tuple[str, ...]) -> Any:
        self.operate(None, right, methods)
        self.look_at_context(left)
        if isinstance(left, np.ndarray):
            return self.write_array(left, (right,))
        elif type(left) is list and isinstance(right, (list, tuple)):
            later = self.substitutes.lengthened(left, right)
            if later is not None:
                return later
            self.append(self.path_of(left), left, "extend", (list(right),))
        elif isinstance(left, PLAIN) and not is_late(left):
            self.rewrite(self.path_of(left), left)
        else:
            self.operate(left, None, methods)
        return None

    def show(self, value: Any) -> Any:
        self.read_text(value)
        return self.substitutes.shown(value)

    def give_back(self, value: Any) -> Any:
        if hasattr(type(value), "__next__"):  # of an `__iter__`, perhaps
            self._special(value, "__next__")
        return self.substitutes.given_back(value)

    # ------------------------------------------------------------------ variables

    def load_global(self, names: dict[str, Any], builtins: dict[str, Any], name: str) -> None:
        self.entry(name, names, name)
        if name not in names:
            self.entry(name, builtins, name)

    def store_global(self, names: dict[str, Any], builtins: dict[str, Any], name: str) -> None:
        self.entry(name, names, name, write=True)

    def load_cell(self, cell: Any, name: str) -> None:
        if isinstance(cell, types.CellType):
            self.entry(name, cell, None)

    def store_cell(self, cell: Any, name: str) -> None:
        if id(cell) in self.given_cells:
            self._op_by_op(f"it binds {name}, which a function that it is given has as well")
        if isinstance(cell, types.CellType):
            self.entry(name, cell, None, write=True)

    def import_module(self, name: str, level: int = 0, names: Sequence[str] | None = ()) -> None:
        """`from name import names`; the trace begins again if this is the module's first import.

        Its code is no part of the step: what it makes is older than the next trace.
        """
        entries = instance_dict(sys.modules.get(name)) or {}
        is_package = "__path__" in entries  # of which a name may be a module
        if level or not entries or (is_package and not entries.keys() >= {*(names or ())}):
            before, recorder = len(sys.modules), context.recorder
            try:
                context.recorder = None
                __import__(name, self._globals_here(), None, names or (), level)
            except Exception:
                return  # which the step is about to meet
            finally:
                context.recorder = recorder
            if len(sys.modules) != before:
                self.begin_again(f"imports {'.' * level}{name}")
        if name in sys.modules and not level:
            self.entry(f"sys.modules[{name!r}]", sys.modules, name)

    def _globals_here(self) -> dict[str, Any] | None:
        """The globals of the user's code that runs."""
        frame: types.FrameType | None = sys._getframe()
        code = None if self.at is None else self.at[0]
        while frame is not None and frame.f_code is not code:
            frame = frame.f_back
        return None if frame is None else frame.f_globals

    # ------------------------------------------------------------------

    def is_module(self, owner: Any) -> bool:
        """Whether it is a Module, each of whose changes moves the epoch."""
        return isinstance(owner, epoch.movers)


def _names_of_class(kind: type) -> tuple[str, ...]:
    return tuple(vars(kind))


def _is_subclass(kind: type, base: type) -> Any:
    """Whether a class belongs to an abstract one; of a protocol: all names that it has."""
    return tuple(dir(kind)) if getattr(base, "_is_protocol", False) else issubclass(kind, base)


def _wrapped(owner: Any) -> Any:
    """What a `Compiled` wraps, whose attributes it passes on; any other object itself."""
    if isinstance(owner, TensorCore) or not is_librarys(type(owner)):
        return owner
    return (instance_dict(owner) or {}).get("__wrapped__", owner)


def _is_of_threads(owner: Any) -> bool:
    """Whether an object has other attributes in each thread, and they are the user's."""
    return isinstance(owner, threading.local) and not is_librarys(type(owner))


@functools.lru_cache(maxsize=512)
def slots_of(kind: type) -> list[str]:
    """The attributes that classes in Python keep in slots."""
    classes = [base for base in kind.__mro__ if base.__flags__ & _IS_OF_PYTHON]
    names = [name for base in classes for name in vars(base)]
    return [x for x in names if isinstance(class_has(kind, x), types.MemberDescriptorType)]


def class_has(kind: type, name: str) -> Any:
    """What a class has for a name, unbound; ABSENT for nothing."""
    for base in kind.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return ABSENT


def part_of(function: Any, name: str, default: Any = None) -> Any:
    """An attribute of a function; the default for other objects, whose `__getattr__` may run."""
    is_asked = isinstance(class_has(type(function), "__getattr__"), types.FunctionType)
    return default if is_asked else getattr(function, name, default)


def is_hashable(key: Any) -> bool:
    """Whether a value can be a key of a dict."""
    try:
        hash(key)
    except TypeError:
        return False
    return True


class _Entry:
    """Takes a container's place in `owner[key]`, and gives one value for every key."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __getitem__(self, key: Any) -> Any:
        return self._value


def is_one_of_few(key: Any, owner: Any) -> bool:
    """Whether a container has few keys, with each of which a live number can be compared.

    So no keys of NumPy's short floats: their hashes, which Python compares first, aren't those of
    equal Python floats.
    """
    if not is_known_before(key) or key.__class__ in (np.float16, np.float32):
        return False
    is_few = type(owner) in (dict, set, frozenset) and len(owner) <= _FEW
    return is_few and all(type(x) in (*_NUMBERS, str, bytes, type(None)) for x in owner)


def _is_table(owner: Any) -> bool:
    """Whether it is a sequence of numbers, or a dict from ints to numbers, as a schedule is."""
    if type(owner) is np.ndarray:
        return owner.ndim == 1 and owner.dtype in (np.float64, np.float32)
    is_dict = type(owner) is dict and all(type(x) is int for x in owner)
    values = owner.values() if is_dict else owner
    is_plain = is_dict or type(owner) in (list, tuple)
    return is_plain and all(type(x) in (int, float) for x in values)
