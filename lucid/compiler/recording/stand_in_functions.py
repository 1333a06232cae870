"""What is called in place of functions that need values which only a call of the step knows.

`float(loss)`, `str(loss)`, `"%.3f" % loss`, `json.dumps({"loss": loss.item()})`: Python wants exact
types there. A function of the same meaning is called instead, whose result is known after the call
as well. Functions in C that would look into such a value make the call run op by op.
"""

from __future__ import annotations

import builtins
import functools
import heapq
import itertools
import json
import math
import os
import pickle
import pprint
import random
import secrets
import statistics
import string
import time
import traceback
import types
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.generators import GENERATORS
from lucid.compiler.guards.age import owner_of
from lucid.compiler.guards.calls import GuardCollector, is_heard, written_by
from lucid.compiler.guards.collector import PLAIN
from lucid.compiler.guards.events import used_in, without_first
from lucid.compiler.guards.guard import ITERATORS, Progress, counts_by_ones, is_exhausted
from lucid.compiler.guards.mutable_sources import stands_for_list
from lucid.compiler.guards.reads import part_of
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.late import Unseen, is_late
from lucid.compiler.inputs.objects import SCALARS
from lucid.compiler.inputs.scalars import (
    EXTREMES,
    ONLY_COMPUTE,
    is_known_before,
    is_live,
    live_function,
)
from lucid.compiler.recording.deferred_calls import Augmented
from lucid.compiler.recording.late.drawn_records import draw_records, is_container, record_at
from lucid.compiler.recording.late.filled_lists import is_stacked
from lucid.compiler.recording.late.growing_lists import GrowingView
from lucid.compiler.recording.late.iterables import (
    MAKERS,
    LateIterable,
    is_iterable,
    iterable_made,
    iterable_of,
    may_be_iterable,
)
from lucid.compiler.recording.late.late_arrays import (
    LateArray,
    NeedsDataError,
    computed,
    of_numpy,
    stand_in_of,
)
from lucid.compiler.recording.late.late_numbers import (
    LateScalar,
    LateSize,
    is_close,
    place_of,
)
from lucid.compiler.recording.late.late_sequences import REDUCTIONS, of_lists
from lucid.compiler.recording.late.list_items import AnyItem, for_each
from lucid.compiler.recording.late.optional_rows import OptionalRow, without_none
from lucid.compiler.recording.late.texts import (
    TEXTS,
    WRITERS,
    Answers,
    LateText,
    asked,
    entry_of,
    holds,
    is_early_text,
    is_in_text,
    is_number_or_text,
    is_written_by_python,
    joined,
    table_of,
)
from lucid.compiler.recording.loops.loop_code import loop_behind
from lucid.compiler.recording.loops.python_loops import rounds
from lucid.compiler.results.pytree import DICTS
from lucid.functions.from_data import as_tensor, asarray, from_numpy
from lucid.ir.classes import isinstance
from lucid.ir.extents import is_open
from lucid.ir.location import LIBRARY, here
from lucid.ir.whose_code import is_followed, is_packages
from lucid.tensor.core import TensorCore
from lucid.tensor.tree import flatten

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder

_TIMES = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
# Functions in C that hand values on, or ask of them what they can answer.
_HAND_ON: frozenset[Any] = frozenset(
    {
        *(issubclass, callable, id, getattr, setattr, hasattr, delattr, vars, dir, len, next),
        builtins.isinstance,
        *(iter, list, tuple, dict, set, frozenset, enumerate, zip, map, filter, reversed, range),
        *(slice, sum, min, max, sorted, any, all, abs, round, pow, divmod, bool, hash, super),
        *(object, type, complex, *TEXTS),
    }
)
_KEEP = ("append", "appendleft", "insert", "setdefault")
# What Python gives the float that a tensor with one element is.
_OF_FLOATS: frozenset[Any] = frozenset(
    {
        *(math.isnan, math.isfinite, math.isinf, math.isclose, math.fabs, math.copysign),
        *(math.exp, math.expm1, math.log, math.log2, math.log10, math.log1p, math.sqrt),
        *(math.sin, math.cos, math.tan, math.tanh, math.erf, math.degrees, math.radians),
        *(math.hypot, math.fmod, math.atan, math.atan2, math.asin, math.acos, math.erfc),
        *(math.floor, math.ceil, math.pow),
    }
)
# Functions that each call of a step calls: clocks, and what gives random bytes.
_CLOCKS = (
    *(getattr(time, f"{name}{unit}") for name in _TIMES for unit in ("", "_ns")),
    *(time.localtime, time.gmtime, time.ctime, time.strftime),
    *(getattr(time, name) for name in ("clock_gettime", "clock_gettime_ns") if hasattr(time, name)),
    *(datetime.now, datetime.utcnow, datetime.today, date.today),
)
_ENTROPY = (
    *(os.urandom, uuid.uuid1, uuid.uuid4, secrets.randbits, secrets.randbelow),
    *(secrets.token_bytes, secrets.token_hex, secrets.token_urlsafe),
)
_CALLED_ANEW = frozenset((*_CLOCKS, *_ENTROPY))
_OF_TIMES = frozenset({datetime, date, timedelta})
_OF_STATISTICS = frozenset(vars(statistics)[name] for name in statistics.__all__)
_OF_SEQUENCES = (math.fsum, math.dist)
_GO_OVER = frozenset({np.fromiter, math.fsum, *_OF_STATISTICS})
# Methods of random generators that draw nothing, or something else than numbers and arrays.
_NO_DRAWS = frozenset(
    {
        *("seed", "getstate", "setstate", "get_state", "set_state", "bit_generator", "spawn"),
        *("bytes", "randbytes"),
    }
)
_LAZY: tuple[type, ...] = (types.GeneratorType, map, filter, type(iter([])))
_LISTS = ("choices", "sample")  # methods of `random` that draw some of a sequence
_SEQUENCES = (range, list, tuple, deque, str)
_FEW = 8  # ways to draw what are no numbers, each of which is a path
_MODULES = frozenset(
    {
        *("math", "operator", "_operator", "functools", "_functools", "itertools", "copy"),
        *("collections", "_collections", "dataclasses", "types", "_abc", "numpy", "lucid"),
        *("bisect", "_bisect", "heapq", "_heapq"),  # which compare and move
    }
)
_COMPARE = (heapq.nlargest, heapq.nsmallest)  # which are Python of the standard library's
_SHARE_ARRAYS = frozenset({as_tensor, asarray, from_numpy})
_OF_NUMPY = (np.ufunc, type(np.sum))
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, type, *_OF_NUMPY)
_OF_CLASSES = (types.MethodDescriptorType, types.WrapperDescriptorType)
# Methods of which code in C wants an exact int or float.
_EXACT = frozenset(
    {
        *("__float__", "__int__", "__index__", "__hash__", "__len__", "__length_hint__"),
        *("__complex__", "__bool__", "__sizeof__"),
    }
)
# Of these texts are written with all that is in them.
_WHOLE = (*PLAIN, tuple, types.SimpleNamespace, BaseException)
_DEBUGGERS = ("set_trace", "Pdb.set_trace", "post_mortem")
# Functions that do something outside, to be done before what comes after them.
_AT_ONCE: dict[Any, str] = {
    **dict.fromkeys((pickle.dump, np.save, np.savez, np.savez_compressed), "it writes a file"),
    **dict.fromkeys((np.savetxt, os.mkdir, os.makedirs, os.rename, os.replace), "it writes a file"),
    **dict.fromkeys((os.remove, os.unlink), "it removes a file"),
    **dict.fromkeys((traceback.print_exc, traceback.print_stack), "it prints"),
    **dict.fromkeys((pprint.pprint, pprint.pp), "it prints"),
    time.sleep: "it waits",
    pickle.dumps: "it looks at all that an object holds",
}


class StandInFunctions:
    """Those of one trace; the collector asks them (`Substitutes`)."""

    asking = frozenset({asked.__code__, GuardCollector.tell.__code__})

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._exits = recorder.exits
        self._collector = recorder.collector
        self._outside = recorder.outside

    def stored(self, owner: Any, key: Any, value: Any) -> Any:
        """What takes an item for a dict or list, at a key that only a call knows; None: itself.

        In a list that is a place which each call finds to be there, before it runs.
        """
        if type(value) is Augmented:
            return self._outside.put_augmented(value)
        name = self._collector.name_of(owner)
        is_place = type(owner) is list and bool(name) and is_known_before(key)
        is_key = type(owner) in DICTS and _is_key_of_call(key)
        if not (is_place or is_key) or here() in self._recorder.at_start.looked_at:
            return None
        later = self._outside.stored(owner)
        if later is not None and is_place:
            self._collector.length(name, owner)
            later = later if key.is_place_in(len(owner)) else None
        return later

    def augmented(self, owner: Any, key: Any) -> Any:
        """What stands for the entry in `d[key] += 1`, at such a key; None: it is looked at."""
        if not _is_key_of_call(key) or here() in self._recorder.at_start.looked_at:
            return None
        return self._outside.augmented(owner, key)

    def computed_anew(self, memo: Any, given: Sequence[Any]) -> Any:
        """What is called instead of a function that keeps its results, where sizes are open.

        Each call computes the result itself. It must follow from the arguments alone, and nothing
        may be drawn, or changed, nor may the result be: it would be kept so. Else the sizes are
        looked at.
        """
        recorder, line, function = self._recorder, here(), memo.__wrapped__
        is_plain = all(map(_is_constant, given)) and _reads_arguments_alone(function)
        if line in recorder.at_start.looked_at or not is_plain:
            return None

        def restart() -> RestartTrace:
            name = function.__qualname__
            return RestartTrace(f"looks at what {name} has kept", "looked_at", [line])

        def compute(*args: Any, **kwargs: Any) -> Any:
            with recorder.loops.looking(()) as noted:
                found = function(*args, **kwargs)
            nodes = recorder.graph.nodes[noted.start :]
            does_more = any(x.has_effect or x.op.kind == "random" for x in nodes)
            if does_more or noted.problem() is not None:
                raise restart()
            for x in flatten(found)[0]:
                if isinstance(x, TensorCore):
                    recorder.loops.lend(x, restart)
            return found

        return compute

    def called(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What is called instead of a function; None: the function itself."""
        kind = type(function)
        is_draw = bool(args) and isinstance(args[0], GENERATORS) and kind not in _FUNCTIONS
        if kind in _OF_CLASSES or is_draw:
            if not args or not isinstance(args[0], getattr(function, "__objclass__", GENERATORS)):
                return None  # which raises an error
            method = function.__get__(args[0], type(args[0]))
            instead = self.called(method, args[1:], kwargs)
            return None if instead is None else without_first(instead)
        if kind not in _FUNCTIONS and not issubclass(kind, type):
            return None
        self._refuse(function, args)
        telling = self._outside.instead_of(function, kwargs)
        if telling is not None:
            return telling
        owner, given = getattr(function, "__self__", None), (*args, *kwargs.values())
        if type(owner) in ITERATORS and self._collector.was_there(owner):
            self._collector.advance(owner)  # or asks how far it has come
        only: Any = args[0] if len(args) == 1 and not kwargs else None
        instead = (
            self._of_item(function, only, args, kwargs)
            or self._of_number(function, only, args)
            or self._of_value(function, args, kwargs)
            or self._of_data(function, given, args)
            or self._of_object(function, only)
            or self._of_many(function, only, given, args)
        )
        if instead is not None:
            return instead
        made = self._iterable(function, args, kwargs)
        if made is not None:
            return lambda *_, **__: made
        return self._of_late(function, given, args) if holds(given, is_late) else None

    def _of_item(
        self, function: Any, only: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """What is called where a list gets more entries, or a function gets any item of one."""
        is_known = here() in self._recorder.at_start.looked_at
        added = None if is_known else self._outside.added(function, only)
        if added is not None:
            return added
        given = (*args, *kwargs.values())
        for value in given:
            if issubclass(type(value), Unseen) and not _takes(function, value):
                return value.handed_to(function, args, kwargs) or function
        return None

    def _of_number(self, function: Any, only: Any, args: Sequence[Any]) -> Any:
        """What is called where Python makes numbers of tensors, or goes on with them."""
        if (function is float or function is int) and self._is_number(only):
            return functools.partial(_as_number, function)
        is_each = function is map and _is_in_c(args)
        if is_each and (args[0] in (float, int) or args[0] in _OF_FLOATS):
            each = functools.partial(self._collector.tell, args[0])
            return lambda _, *items: map(each, *items)
        if function is next and self._goes_on(args[0] if args else None):
            return self._taken
        if function in _OF_FLOATS and any(map(self._is_number, args)):
            return functools.partial(_of_floats, function)
        return None

    def _of_value(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What is called where a call of the step makes a text, a time or a draw of its own."""
        owner, given = getattr(function, "__self__", None), (*args, *kwargs.values())
        if isinstance(owner, str):
            return self._of_text(function, args, kwargs) or function
        makes = owner if isinstance(owner, type) else function
        is_of_data = makes in _OF_TIMES or owner is int  # and what a call finds, perhaps
        if function in _CALLED_ANEW or (is_of_data and holds(given, is_number_or_text)):
            return functools.partial(self._called_anew, function)
        if isinstance(owner, GENERATORS) and self._draws(function, args, kwargs):
            return functools.partial(self._drawn, function)
        is_shown = bool(args) and (isinstance(args[0], _WHOLE) or type(args[0]) is LateArray)
        is_whole = function in TEXTS and is_shown
        if function is json.dumps or (is_whole and holds(given, is_in_text)):
            return functools.partial(self._outside.text, function)
        return None

    def _of_data(self, function: Any, given: Sequence[Any], args: Sequence[Any]) -> Any:
        """What is called where a function that isn't followed computes with the step's values."""
        owner = getattr(function, "__self__", None)
        goes_over = function in _GO_OVER or isinstance(owner, bytes)
        if goes_over and any(type(x) in _LAZY for x in given):
            return functools.partial(self._of_items, function)
        if not _is_numpys(function) or isinstance(owner, GENERATORS):
            return None
        only_computes = function in ONLY_COMPUTE or function in _OF_STATISTICS
        if holds(given, self._is_data) or (only_computes and holds(given, is_live)):
            name = _name_of_numpys(function)
            if _asks_for_method(function, args):
                return functools.partial(self._by_method, name, function)
            return lambda *args, **kwargs: of_numpy(self._exits, name, function, args, kwargs)
        return None

    def _of_object(self, function: Any, only: Any) -> Any:
        """What is called where an object is asked for its length, its number, or its class."""
        if function is len and isinstance(only, (TensorCore, LateArray)) and only.ndim:
            size = (only.value if type(only) is LateArray else only)._type.shape[0]
            return (lambda _: self._exits.shown(size)) if is_open(size) else function
        if function is len and is_early_text(only):
            return lambda text: self._recorder.parts_of(text, list, ()).length
        if function is len and is_heard(getattr(type(only), "__len__", None)):
            self._collector.measure(only)
            return type(only).__len__
        if function is float or function is int:
            says: Any = getattr(type(only), f"__{function.__name__}__", None)
            if is_heard(says):
                self._collector.may_call(only, says.__name__)
                return functools.partial(self._said, says, function)
        if function is type and (is_live(only) or is_late(only)):
            return lambda value: value.__class__
        return None

    def _of_many(self, function: Any, only: Any, given: Sequence[Any], args: Sequence[Any]) -> Any:
        """What is called where a function takes all that a loop, or a list of each call, has."""
        if function in (sum, list) and args and self._recorder.loops.offers(args[0]):
            return functools.partial(self._gathered, function)
        if self._recorder.at_start.lists:
            if function in EXTREMES and type(only) in _LAZY:
                return functools.partial(self._of_items, function)
            if function is map and _is_in_c(args) and holds(args[1:], stands_for_list):
                each = functools.partial(self._collector.tell, args[0])
                return lambda _, *items: iter([*map(each, *items)])
        filled = [x for x in given if is_stacked(x)]
        is_known = function in (len, sum) or any(x.has_array for x in filled)
        if filled and is_known and (function is len or function in REDUCTIONS):
            return functools.partial(self.of_lists, function)
        return None

    def _of_late(self, function: Any, given: Sequence[Any], args: Sequence[Any]) -> Any:
        """What is called with values that each call has later; the call runs op by op if nothing.

        That is where a function looks at them which isn't followed.
        """
        for leaf in flatten(given)[0] if _is_librarys(function) else ():
            if type(leaf) is OptionalRow:
                leaf._look()
        if getattr(function, "__wrapped__", function) in _SHARE_ARRAYS and any(
            type(x) is LateArray for x in given
        ):
            return functools.partial(_with_tensors, function)
        if not self._may_get(function, args) and not all(map(_is_looked_at, given)):
            self._exits.op_by_op(
                f"it hands a value that the step computes to {function.__qualname__}(), which "
                "isn't traced"
            )
        return None

    def lengthened(self, owner: list[Any], value: Any) -> Any:
        """What stands for a list in `owner += value`, of any number of entries; None: itself."""
        is_known = here() in self._recorder.at_start.looked_at
        return None if is_known else self._outside.lengthened(owner, value)

    def _said(self, says: Callable[[Any], Any], kind: type, owner: Any) -> Any:
        """What an object's own `__float__` or `__int__` gives, perhaps a number of each call."""
        number = self._collector.tell(says, owner)
        return number if number.__class__ is kind else kind(owner)  # which says what is wrong

    def is_late(self, value: Any) -> bool:
        """Whether only a call knows a value, or what is in it."""
        return holds(value, lambda x: is_live(x) or isinstance(x, GENERATORS) or self._is_data(x))

    def array(self, array: np.ndarray, given: Any) -> Any:
        """What stands for an array that the step has made, if a call knows what is given."""
        is_shown = id(owner_of(array)) in self._recorder.array_owners
        if not is_shown and not self.is_late(given):
            return None
        return stand_in_of(self._recorder, array, is_made=True)

    def of_lists(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """What a function gives of lists that grow, or parts of them."""
        made = self._iterable(function, [*map(self._collector.stand_in_for, args)], kwargs)
        return of_lists(self._collector, function, args, kwargs) if made is None else made

    def copied(self, items: Any) -> Any:
        """A copy of what stands for a list, for `[*items]`; None: nothing does."""
        return items.as_list() if stands_for_list(items) else None

    def rounds(self, things: Any) -> Iterator[Any] | None:
        """What a loop is to go over instead, so that perhaps one of its rounds is recorded."""
        at = self._collector.at
        if is_early_text(things):
            things = self._recorder.parts_of(things, list, ())
        found = None if at is None else iterable_of(things, self._exits)
        if at is not None and stands_for_list(things) and things.is_early:
            instead = for_each(things, self._recorder.loops, *at)
            if instead is not None:
                return instead
        instead = None if at is None or found is None else rounds(self._recorder, found, *at)
        return things if instead is None and is_iterable(things) else instead  # which tells itself

    def without_none(self, items: Any) -> Iterator[Any] | None:
        """What `[x for x in items if x is not None]` is to go over instead."""
        at = self._collector.at
        return None if at is None else without_none(items, *at)

    def is_none(self, value: Any) -> tuple[Any, Any] | None:
        """What stands for the answers of `value is None`, a False, and `is not`, a True."""
        return value.column.answers(value.number) if type(value) is OptionalRow else None

    def looked_at(self, value: Any) -> None:
        """The user's code goes another way if a value is None."""
        if type(value) is OptionalRow:
            value.column.refuse()

    def _gathered(self, function: Any, generator: Any, *start: Any, **named: Any) -> Any:
        """What `sum` or `list` gives of a generator expression, one round of which is recorded."""
        made = self._recorder.loops.gather(generator)
        if not is_stacked(made):
            return function(made, *start, **named)
        return made if function is list else self.of_lists(sum, made, *start, **named)

    def _of_items(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """What a function that isn't followed gives of all that generators and the like give."""
        args = tuple([[*x] if type(x) in _LAZY else x for x in args])
        return self._collector.tell(function, *args, **kwargs)

    def _iterable(
        self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> LateIterable | None:
        """What stands for something to go over, as far as only a call knows how long it is."""
        at = self._collector.at
        if function not in MAKERS or at is None:
            return None
        args = [self._recorder.parts_of(x, list, ()) if is_early_text(x) else x for x in args]
        if not holds(args, may_be_iterable):
            return None
        is_looped = loop_behind(*at) is not None
        return iterable_made(function, args, kwargs, self._exits, is_looped=is_looped)

    def template(self, template: str, values: Any) -> Any:
        """What stands for the left side of `template % values`."""
        return _Template(self._outside.text, template) if holds(values, is_in_text) else None

    def joined(self, parts: Sequence[str]) -> str | None:
        """What an f-string gives."""
        return joined("", parts) if any(type(part) is LateText for part in parts) else None

    def is_asked(self, value: Any) -> bool:
        """Whether Python code, which is followed, writes the text of an object."""
        return is_written_by_python(value)

    def shown(self, value: Any) -> Any:
        """What stands for a container in an f-string."""
        is_whole = isinstance(value, _WHOLE) and not is_written_by_python(value)
        is_meant = is_whole and holds(value, is_in_text)
        text = self._outside.text
        return Answers(lambda write, *how: text(write, value, *how)) if is_meant else None

    def given_back(self, value: Any) -> Any:
        """What a function returns: what only a call knows not to code in C that looks into it."""
        at = self._collector.at
        assert at is not None
        name = at[0].co_name
        if type(value) is not LateText and not (is_live(value) and name in _EXACT):
            return None
        frame = self._outside.frame()
        caller = frame.f_back
        assert caller is not None
        if not caller.f_code.co_filename.startswith(LIBRARY):
            is_told = self._collector.hears(caller) and self._takes(caller, frame)
        elif name in WRITERS or name in _EXACT:
            is_told = caller.f_code in self.asking
        else:
            is_told = True
        return None if is_told else value._look()

    def _takes(self, caller: types.FrameType, frame: types.FrameType) -> bool:
        """Whether a frame gets what another one returns as it is."""
        method, function, first = used_in(caller)
        if method == "show" or (method == "call" and function in TEXTS):
            names = frame.f_code.co_varnames
            return bool(names) and first() is frame.f_locals.get(names[0])  # its object
        if isinstance(function, (types.FunctionType, types.MethodType)):
            return True
        if frame.f_code.co_name in _EXACT:
            return method == "run"
        if method != "call":
            return True
        return self._may_get(function, (None,))

    def refuse_after_writing(self, by: str) -> None:
        """Give up: what is told the world is told when the native step has run."""
        if self._outside.writes_files:
            self._exits.op_by_op(f"it asks {by} when it has written files")

    def _refuse(self, function: Any, args: Sequence[Any]) -> None:
        """Give up where another function, or another mode, is meant."""
        is_debugger = type(function) is types.FunctionType and function.__qualname__ in _DEBUGGERS
        if function is breakpoint or is_debugger:
            self._exits.op_by_op(
                f"it stops for a debugger, by {function.__qualname__}()",
                "LUCID_EAGER=1 runs all steps op by op",
            )
        if function in _AT_ONCE:
            name = f"{function.__module__}.{function.__name__}"
            self._exits.op_by_op(f"{_AT_ONCE[function]}, by {name}()")
        if function is sorted and args and isinstance(args[0], TensorCore):
            self._exits.op_by_op("it sorts the elements of a tensor, by sorted()", "use lucid.sort")

    def _is_number(self, value: Any) -> bool:
        if type(value) is LateArray:
            return value.value.type.size == 1
        if isinstance(value, TensorCore):
            return value._type.size == 1 and self._recorder.known(value) is None
        return type(value) in (LateScalar, LateSize)

    def _is_data(self, value: Any) -> bool:
        """Whether NumPy would look into a value that the step computes."""
        if isinstance(value, TensorCore):
            return self._recorder.known(value) is None
        return type(value) in (LateArray, LateScalar)

    def _goes_on(self, iterator: Any, *, at_end: bool = True) -> bool:
        """Whether the next item of an iterator from outside is at a place that moves by one.

        at_end: or whether there is none.
        """
        if type(iterator) is zip:
            parts: Any = iterator.__reduce__()
            return bool(parts[1]) and all(self._goes_on(x, at_end=False) for x in parts[1])
        if type(iterator) not in ITERATORS or not self._collector.was_there(iterator):
            return False
        place = Progress(iterator)
        if type(iterator) is itertools.count:
            return counts_by_ones(iterator)
        return at_end or bool(place["at"] < len(place["items"]))

    def _taken(self, iterator: Any, *default: Any) -> Any:
        """The next item: each call finds it at the place that it begins with, and goes on."""
        collector = self._collector
        path = collector.path_of(iterator)
        if type(iterator) is zip:
            parts = iterator.__reduce__()[1]
            for i in range(len(parts)):
                collector.answer(f"{path}, part {i}", _part_of_zip, iterator, i)
            return (*map(self._taken, parts),)
        place = Progress(iterator)
        if type(iterator) is itertools.count:
            collector.answer(f"{path} by ones", counts_by_ones, iterator)
            collector.entry(f"the place of {path}", place, "at", holder=iterator)
            at = place["at"]
            collector.entry(f"the place of {path}", place, "at", write=True, holder=iterator)
            place["at"] = at + 1
            return at
        if is_exhausted(iterator):
            collector.answer(f"{path} has ended", is_exhausted, iterator)
            return _ended(*default)
        collector.entry(f"the items of {path}", place, "items", holder=iterator)
        collector.entry(f"the place of {path}", place, "at", holder=iterator)
        items, at = place["items"], place["at"]
        collector.length(f"the items of {path}", items)
        is_more = at < len(items)  # which each call is asked
        collector.entry(f"the place of {path}", place, "at", write=True, holder=iterator)
        if not is_more:
            place.stand_at(at + 1)
            return _ended(*default)
        place["at"] = at + 1
        return (collector.load_item(items, at) or items)[at]

    def _called_anew(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """A clock is read at each call, when all that comes before it has been computed."""
        name = f"{function.__module__ or function.__self__.__name__}.{function.__name__}"
        after = self._exits.latest() if function in _CLOCKS else ()
        return computed(self._exits, name, function, args, kwargs, after=after)

    def _draws(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether a method gives random numbers of a generator from outside, or shuffles so."""
        generator, name = function.__self__, function.__name__
        if name.startswith("_") or name in _NO_DRAWS or not hasattr(type(generator), name):
            return False
        if isinstance(generator, random.SystemRandom):  # which has no state to be put back
            return False
        if name == "shuffle" and type(written_by(function, args, kwargs)) is not LateArray:
            is_list = isinstance(generator, random.Random) and len(args) == 1 and not kwargs
            if not (is_list and type(args[0]) is list and _are_numbers(args[0])):
                return False
        if name in _LISTS and not _can_be_drawn(name, args, kwargs):
            return False
        return self._collector.is_shared(generator)

    def drawing(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What draws records from a container, at which the step doesn't look; None: no such."""
        generator = part_of(function, "__self__", None)
        is_draw = isinstance(generator, random.Random) and function.__name__ in _LISTS
        if not (is_draw and len(args) > 0) or "counts" in kwargs:
            return None
        view = self._collector.stand_in_for(args[0])
        grows = type(view) is GrowingView
        if not is_container([x for _, x in view.places[:1]] if grows else args[0]):
            return None
        is_put_back = type(generator) is not random.SystemRandom
        is_one_of_few = _can_be_drawn(function.__name__, args, kwargs) and not grows
        if is_one_of_few or not (is_put_back and self._collector.is_shared(generator)):
            return None
        name = f"{self._collector.name_of_generator(generator)}.{function.__name__}"
        return functools.partial(draw_records, self._exits, self._collector, name, function)

    def entry(self, owner: Any, key: Any, *default: Any) -> Any:
        """What `owner[key]` gives, at a place that the step computes; None: it is looked at.

        Of a table of texts or numbers an entry, of a container of records the record.
        """
        if type(key) is AnyItem:
            return key.looked_up(self._collector, owner, *default)
        if type(key) is int and not (isinstance(owner, TensorCore) or is_stacked(owner)):
            size = len(owner) if type(owner) is list else None
            self._recorder.loops.note_key(key, self._collector.at, size)
        key = place_of(key)
        is_place = isinstance(key, TensorCore) and self._is_number(key) and is_container(owner)
        if is_place and key._type.dtype.kind == "int":
            key = key.item()
        if type(key) is not LateScalar or key.kind is not int:
            return None
        if is_container(owner):
            return record_at(self._exits, self._collector, owner, key)
        table = table_of(owner)
        if table is None or not (key >= 0 and key < len(table)):
            return None
        self._collector.iterate(owner)
        return entry_of(table, key)

    def _by_method(self, name: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        """What a tensor's method gives, or NumPy where the method doesn't take what it is given."""
        self._recorder.asks_for_method = True
        try:
            return function(*args, **kwargs)
        except NeedsDataError:
            self._recorder.asks_for_method = False
            return of_numpy(self._exits, name, function, args, kwargs)
        finally:
            self._recorder.asks_for_method = False

    def _drawn(self, draw: Any, *args: Any, **kwargs: Any) -> Any:
        """Random numbers are drawn at each call, in the program's order."""
        generator, exits = draw.__self__, self._exits
        name = f"{self._collector.name_of_generator(generator)}.{draw.__name__}"
        if draw.__name__ == "shuffle":
            array, *others = args
            if type(array) is list:
                return self._shuffle(name, draw, array)
            change = lambda data, *others, **kwargs: draw(data, *others, **kwargs)  # noqa: E731
            return array.write(name, change, *others, generator=generator, **kwargs)
        if isinstance(generator, random.Random) and draw.__name__ in (
            "choice",
            "choices",
            "sample",
        ):
            items = args[0] if args else kwargs.pop("seq")
            if not isinstance(items, np.ndarray) and not _are_numbers(items):
                args = (range(len(items)), *args[1:])
                found = computed(exits, name, draw, args, kwargs, generator=generator)
                return [items[i] for i in found] if type(found) is list else items[found]
            args = (items, *args[1:])
        return self._recorder.ended_loops.draw(
            (id(generator), name, *args, *itertools.chain.from_iterable(kwargs.items())),
            lambda: computed(exits, name, draw, args, kwargs, generator=generator),
        )

    def _shuffle(self, name: str, draw: Any, items: list[Any]) -> None:
        """Bring numbers in another order at each call."""

        def shuffled(*items: Any) -> list[Any]:
            found = [*items]
            draw(found)
            return found

        found = computed(self._exits, name, shuffled, items, {}, generator=draw.__self__)
        if self._collector.was_there(items):
            self._collector.rewrite(self._collector.path_of(items), items)
        items[:] = found

    def _of_text(self, method: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """For a method of a `str`."""
        template, given = method.__self__, (*args, *kwargs.values())
        if method.__name__ == "join" and args:
            is_lazy = not isinstance(args[0], (str, *_WHOLE))
            return functools.partial(_joined, template) if is_lazy or holds(args, is_late) else None
        is_format = method.__name__ in ("format", "format_map")
        if is_format and (holds(given, is_in_text) or _looks_up(template)):
            return functools.partial(self._outside.text, getattr(str, method.__name__), template)
        return None

    def _may_get(self, function: Any, args: Sequence[Any]) -> bool:
        """Whether a function is told what it does with such values, or refuses them by itself."""
        code = _code_of(function)
        if code is not None:
            is_known = code.co_filename.startswith((LIBRARY, "<")) or function in _COMPARE
            return is_known or is_followed(code)
        if function in _HAND_ON:
            return function not in (map, filter) or type(args[0]) not in _OF_CLASSES
        owner = getattr(function, "__self__", None)
        if isinstance(function, type):
            is_python = isinstance(getattr(function, "__init__", None), types.FunctionType)
            if is_python or issubclass(function, (BaseException, tuple)):
                return True
        elif isinstance(owner, (*PLAIN, TensorCore)) or is_live(owner):
            return True
        elif isinstance(owner, type) and function.__name__ == "__new__":
            return True  # of a named tuple
        module = getattr(function, "__module__", None) or getattr(owner, "__name__", "")
        return str(module).partition(".")[0] in _MODULES


def _is_key_of_call(key: Any) -> bool:
    """Whether only a call knows a key, or a part of one."""
    return any(is_live(x) or is_late(x) for x in (key if type(key) is tuple else (key,)))


def _ended(*default: Any) -> Any:
    """What `next` gives behind the last item."""
    if not default:
        raise StopIteration
    return default[0]


def _part_of_zip(iterator: Any, number: int) -> Any:
    return iterator.__reduce__()[1][number]


def _takes(function: Any, value: Any) -> bool:
    """Whether a function is told what it does with such a value, or keeps it."""
    code = getattr(function, "__init__" if isinstance(function, type) else "__func__", function)
    if function in (builtins.isinstance, type):
        return value.__class__ is not type(value)  # passes for what it stands for
    return isinstance(code, types.FunctionType) or function.__name__ in _KEEP


def _is_librarys(function: Any) -> bool:
    code = _code_of(function)
    return code is not None and code.co_filename.startswith(LIBRARY)


def _code_of(function: Any) -> types.CodeType | None:
    """The code of a function or method in Python."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if isinstance(code, types.CodeType) else None


class _Template:
    """Stands for the left side of `template % values`."""

    def __init__(self, write: Callable[..., str], template: str) -> None:
        self._write = write
        self._template = template

    def __mod__(self, values: Any) -> str:
        items = tuple(values) if isinstance(values, tuple) else values
        return self._write(str.__mod__, self._template, items)


def _looks_up(template: str) -> bool:
    """Whether `template.format()` reads attributes or entries of what it gets."""
    try:
        names = [name or "" for _, name, _, _ in string.Formatter().parse(template)]
    except ValueError:
        return False
    return any("." in name or "[" in name for name in names)


def _is_constant(value: Any) -> bool:
    """Whether it can't change: a number, a text, a tuple of these, an object of a package's own."""
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    if is_live(value) or isinstance(value, SCALARS):
        return True
    return is_packages(type(value)) and not isinstance(value, (*PLAIN, np.ndarray, TensorCore))


def _reads_arguments_alone(function: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether what a function in Python finds elsewhere are functions, and modules of packages."""
    code = getattr(function, "__code__", None)
    if function in seen:
        return True
    if code is None or not is_followed(code) or code.co_freevars or function.__defaults__:
        return False
    names, inner = {*code.co_names}, [x for x in code.co_consts if isinstance(x, types.CodeType)]
    names.update(name for x in inner for name in x.co_names)
    found = [function.__globals__[name] for name in names if name in function.__globals__]
    seen |= {function}
    return all(_is_code_of_packages(x) or _reads_arguments_alone(x, seen) for x in found)


def _is_code_of_packages(thing: Any) -> bool:
    kinds = (types.ModuleType, types.BuiltinFunctionType, type)
    return _is_librarys(thing) or (isinstance(thing, kinds) and is_packages(thing))


def _is_in_c(args: Sequence[Any]) -> bool:
    """Whether the first argument is a function in C, or a class."""
    return bool(args) and type(args[0]) in (type, types.BuiltinFunctionType)


def _is_numpys(function: Any) -> bool:
    """Whether a function is NumPy's, and looks into what it gets by itself."""
    module = str(getattr(function, "__module__", ""))
    package = module.partition(".")[0]
    is_ufuncs = isinstance(getattr(function, "__self__", function), np.ufunc)
    if is_ufuncs or package in ("scipy", "statistics") or function in _OF_SEQUENCES:
        return True
    is_known = package == "numpy" or module.startswith("sklearn.metrics.")
    return is_known and (not isinstance(function, type) or issubclass(function, np.generic))


def _name_of_numpys(function: Any) -> str:
    module = str(getattr(function, "__module__", ""))
    package = next(
        (x for x in ("scipy", "statistics", "sklearn.metrics", "math") if x in module), "np"
    )
    return f"{package}.{getattr(function, '__name__', type(function).__name__)}"


def _asks_for_method(function: Any, args: Sequence[Any]) -> bool:
    """Whether a function of NumPy's calls a tensor's method of its name, if that takes the rest."""
    code = getattr(getattr(function, "__wrapped__", None), "__code__", None)
    calls_method = code is not None and os.path.basename(code.co_filename) == "fromnumeric.py"
    return calls_method and bool(args) and isinstance(args[0], TensorCore)


def _with_tensors(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of lucid's on the memory of arrays, with tensors for those of the step."""
    leaves, rebuild = flatten((args, kwargs))
    args, kwargs = rebuild(
        [x.as_tensor(is_copied=False) if type(x) is LateArray else x for x in leaves]
    )
    return args[0] if function.__name__ == "from_numpy" else function(*args, **kwargs)


def _as_number(kind: type, value: Any) -> Any:
    number = value._number("item()") if isinstance(value, TensorCore) else value
    number = number.number() if type(number) is LateArray else number
    if not is_live(number):
        return kind(number)
    return number if number.__class__ is kind else number.apply(kind.__name__, kind)


def _of_floats(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    numbers = [_as_number(float, x) if isinstance(x, (TensorCore, LateArray)) else x for x in args]
    if function is math.isclose and any(type(x) is LateScalar for x in numbers):
        return is_close(*numbers, **kwargs)
    return (live_function(function, numbers, kwargs) or function)(*numbers, **kwargs)


def _joined(separator: str, parts: Any) -> str:
    if type(parts) is map:
        made_of: Any = parts.__reduce__()
        function, *items = made_of[1]
        if function in TEXTS:
            parts = [asked(function, *each) for each in zip(*items, strict=False)]
    found = [*parts]
    return joined(separator, found) if any(map(is_late, found)) else separator.join(found)


def _can_be_drawn(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether `random.choices` or `sample` gives numbers, or one of a few lists of other things."""
    if not args or not isinstance(args[0], _SEQUENCES) or "counts" in kwargs:
        return False
    count = kwargs.get("k", args[1] if name == "sample" and len(args) > 1 else 1)
    if _are_numbers(args[0]):
        return True
    if count.__class__ is int:
        count = int(count)  # of objects the trace has as many as it knows
    return type(count) is int and count <= _FEW and len(args[0]) ** count <= _FEW


def _are_numbers(items: Sequence[Any]) -> bool:
    """Whether a sequence has numbers of one type: what is drawn is a number of each call."""
    return isinstance(items, range) or {x.__class__ for x in items} in ({int}, {float})


def _is_looked_at(value: Any) -> bool:
    """Whether code in C may see a value as it is now."""
    if is_iterable(value) or (type(value) is LateText and len(value.numbers) > 0):
        value._look()
        return True
    return not holds(value, is_late)
