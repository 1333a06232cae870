"""What a call reads: functions that are followed tell it as they run, for others there are rules.

All code is followed but the library's own, the standard library's and NumPy's. The library tells by
itself what it reads (`meet`), functions in C have rules in tables, and all other code may read its
arguments as a whole.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import glob
import importlib.util
import inspect
import itertools
import locale
import logging
import operator
import os
import pathlib
import random
import re
import sys
import tempfile
import threading
import types
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn

import numpy as np

from lucid.autograd.generators import GENERATORS
from lucid.compiler.guards.collector import OPAQUE, PLAIN, VIEWS, parts_of_referent
from lucid.compiler.guards.events import ARITHMETIC, are_single
from lucid.compiler.guards.following import is_known_by_place
from lucid.compiler.guards.guard import ABSENT, CONTENTS, brief, closure_of, instance_dict
from lucid.compiler.guards.mutable_sources import stands_for_list
from lucid.compiler.guards.reads import (
    REGISTERS,
    Reads,
    class_has,
    is_one_of_few,
    part_of,
    slots_of,
)
from lucid.compiler.inputs.late import is_late, now_of
from lucid.compiler.inputs.objects import BY_TEXT, PLAIN_DATA, SCALARS, walk
from lucid.compiler.inputs.scalars import (
    ONLY_COMPUTE,
    is_known_before,
    is_live,
    live_function,
    only_computes,
    seen,
)
from lucid.functions.from_data import as_tensor, from_numpy, tensor
from lucid.ir.classes import isinstance
from lucid.ir.errors import LucidError
from lucid.ir.location import LIBRARY
from lucid.ir.types import has_dtype
from lucid.ir.whose_code import (
    EDGE,
    LIBRARYS_ATTRIBUTES,
    NUMPY,
    PRINT,
    is_called_by_followed,
    is_followed,
    is_librarys,
    is_unknown,
)
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore

MEMO = type(functools.lru_cache(lambda: None))
_GLOBAL_GENERATORS = {
    id(getattr(random, "_inst", None)): "random",
    id(np.random.mtrand._rand): "numpy.random",
}
# Classes whose methods have rules, or change nothing, such as those of descriptors.
_KNOWN_OWNERS = (
    *(*PLAIN, *PLAIN_DATA, *BY_TEXT, tuple, frozenset, np.ndarray, type, super, property),
    *(types.ModuleType, types.MappingProxyType, re.Pattern, re.Match, logging.Logger),
    *(types.MemberDescriptorType, types.GetSetDescriptorType, types.MethodDescriptorType),
    *(types.WrapperDescriptorType, types.FunctionType),
)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, type)
_GETTERS = (operator.attrgetter, operator.itemgetter, operator.methodcaller)
# Functions in C that call another one, their first argument or `key=`: what reads its results.
_CALL_FIRST = (map, functools.reduce, itertools.starmap)
_ASK_FIRST = (filter, itertools.filterfalse, itertools.takewhile, itertools.dropwhile)
_CALLERS: dict[Any, str | None] = {
    **dict.fromkeys(_CALL_FIRST, None),
    **dict.fromkeys(_ASK_FIRST, "measure"),
    **dict.fromkeys((sorted, min, max, itertools.groupby), "look_through"),
}
_TAKE_ALL = frozenset(
    {all, any, sum, min, max, sorted, set, frozenset, dict, itertools.chain.from_iterable}
)
_OF_CYTHON = type(np.random.seed)
# Functions around methods of NumPy's global generator, or of the same kind.
_OF_GLOBAL_GENERATOR: dict[Any, Any] = {
    getattr(np.random, name): getattr(np.random.mtrand._rand, method)
    for name, method in (
        ("seed", "seed"),
        ("sample", "random_sample"),
        ("ranf", "random_sample"),
        ("get_bit_generator", "get_state"),
        ("set_bit_generator", "set_state"),
    )
}
_STATE_OF_GENERATORS = ("seed", "getstate", "get_state", "setstate", "set_state", "bit_generator")
_UNSEEDED = (np.random.default_rng, random.Random, np.random.RandomState, np.random.SeedSequence)
_OF_LIBRARY = {"get_num_threads", "get_num_interop_threads", "get_printoptions", "extra_repr"}
# What can't be guarded, by the package and the name of the function that is called; of modules all
# functions, and the classes.
_OF_THE_WORLD = {
    "it reads the clock": "datetime.now datetime.utcnow datetime.today",  # of classes of the user's
    "it uses a file": """
        io.open _io.open builtins.input configparser.read fileinput.input linecache.getline
        mmap.mmap numpy.load numpy.loadtxt numpy.genfromtxt numpy.fromfile
        pathlib.open pathlib.read_text pathlib.read_bytes pathlib.glob
        pathlib.write_text pathlib.write_bytes pathlib.touch pathlib.unlink
        pathlib.rglob pathlib.mkdir pathlib.rename pathlib.replace pathlib.rmdir
        shutil tempfile zipfile tarfile gzip bz2 lzma shelve dbm sqlite3""",
    "it draws random numbers": "secrets.choice",
    "it starts a thread": "_thread.start_new_thread _thread.start_joinable_thread",
    "it changes a setting of all": """
        numpy.set_printoptions numpy.seterr numpy.seterrcall numpy.setbufsize
        warnings.filterwarnings warnings.simplefilter warnings.resetwarnings
        decimal.getcontext decimal.setcontext locale.setlocale gc.disable gc.enable gc.freeze
        gc.set_threshold sys.settrace sys.setswitchinterval time.tzset codecs.register
        faulthandler.enable""",
    "it asks or changes the system": "os posix nt resource fcntl signal atexit webbrowser",
    "it runs a program": "subprocess multiprocessing",
    "it uses the network": "socket select ssl urllib.request http.client smtplib ftplib",
}
_WHY = {name: why for why, names in _OF_THE_WORLD.items() for name in names.split()}
_INSIDE = (os.fspath, os.fsencode, os.fsdecode, os.strerror)


def _named(owner: Any, names: str) -> list[Any]:
    return [getattr(owner, name) for name in names.split() if hasattr(owner, name)]


_ASKED_AGAIN: set[Any] = {
    *_named(os, "access cpu_count getcwd getenv getlogin getpid getppid listdir stat uname"),
    *_named(os.path, "exists expandvars expanduser getmtime getsize isdir isfile"),
    *_named(threading, "active_count current_thread get_ident get_native_id main_thread"),
    *_named(pathlib.Path, "exists is_dir is_file iterdir resolve samefile stat"),
    *_named(sys, "getrecursionlimit getswitchinterval"),
    *(np.geterr, np.get_printoptions, gc.isenabled, gc.get_threshold),
    *(glob.glob, locale.getlocale, tempfile.gettempdir, type(os.environ).copy),
}
_ASKED_BY_NAME = {"multiprocessing.process.current_process"}  # of a module that few import
_DISPATCH = functools.singledispatch(len).dispatch.__code__  # keeps what it has found, by class
_OF_ENVIRONMENT = (os.getenv, os.path.expandvars, os.path.expanduser, type(os.environ).copy)
_OF_LOGGERS = ("hasHandlers", "getEffectiveLevel")
_SHARED = {"threading", "queue", "multiprocessing", "concurrent", "asyncio", "subprocess"}
# Functions in C that go through a container, and don't look into what is in it.
_ONE_LEVEL = {
    *(enumerate, zip, reversed, iter, list, tuple, set, frozenset, map, filter, dict, sum, all),
    *(any, min, max, sorted, PRINT, super, issubclass, type, id, callable, object),
    builtins.isinstance,
    *(range, deque, itertools.chain, itertools.cycle, itertools.islice, itertools.pairwise),
    *(itertools.zip_longest, itertools.product, itertools.combinations, itertools.permutations),
}
_LOOK_INTO_ENTRIES = {set, frozenset, dict}
_COMPARE: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys((sorted, min, max), ("__lt__", "__gt__")),
    sum: ("__add__", "__radd__"),
}
_OF_TEXTS = ("__str__", "__repr__", "__format__")
_LOOK: frozenset[Any] = frozenset(
    {bool, len, repr, format, ascii, str, getattr, hasattr, np.asarray}
)
_METHODS_OF_CLASSES = (types.MethodDescriptorType, types.WrapperDescriptorType)
_SHOWS_ALL = ("__reduce__", "__reduce_ex__", "__getstate__", "__dir__", "__sizeof__")
# Functions in C, and methods by name, that do what an instruction does: who is told, and how many
# operands it has.
_AS_INSTRUCTIONS: dict[Any, tuple[str, int]] = {
    **dict.fromkeys((getattr, hasattr, "__getattribute__", "__getattr__"), ("load_attribute", 2)),
    **dict.fromkeys((setattr, "__setattr__", "__delattr__"), ("store_attribute", 2)),
    delattr: ("delete_attribute", 2),
    **dict.fromkeys((vars, *_SHOWS_ALL), ("all_attributes", 1)),
    dir: ("all_names", 1),
    **dict.fromkeys((str, repr, format, ascii), ("show", 1)),
    operator.setitem: ("store_item", 3),
    operator.delitem: ("delete_item", 2),
    operator.getitem: ("load_item", 2),
    **dict.fromkeys((len, bool), ("measure", 1)),
    **dict.fromkeys((next, "__next__", "send", "throw"), ("advance", 1)),
}
_ADDS: dict[type, frozenset[str]] = {
    list: frozenset({"append", "extend", "insert", "clear"}),
    set: frozenset({"add", "discard", "update", "difference_update", "clear"}),
    deque: frozenset({"append", "appendleft", "extend", "extendleft", "clear"}),
}
# Methods of containers that read or write one entry; the `pop` of others than dicts may move them.
_OF_ENTRIES = {
    **dict.fromkeys(("get", "__getitem__", "setdefault"), ("load_item",)),
    "__setitem__": ("store_item",),
    "__delitem__": ("delete_item",),
    "pop": ("load_item", "delete_item"),
}
_ITERATES = frozenset({"extend", "extendleft", "update", "difference_update"})
_LOOKS_ONLY = frozenset(
    {
        *("index", "count", "copy", "get", "keys", "values", "items"),
        *("__iter__", "__getitem__", "__reduce_ex__", "__contains__", "__len__"),
    }
)
_COMPARES = ("index", "count", "remove", "__contains__", "__eq__")
_SHOW_ALL = (*PLAIN, tuple, types.SimpleNamespace, functools.partial)
_REDIRECTS = (contextlib.redirect_stdout, contextlib.redirect_stderr)
_IN_PLACE = tuple(f"__i{name}__" for name in ARITHMETIC.values())
WRITES_ARRAYS = frozenset(
    {
        *("fill", "sort", "partition", "put", "resize", "itemset", "setfield", "byteswap"),
        *("setflags", "__setitem__", *_IN_PLACE),
    }
)
_WRITE_FIRST: frozenset[Any] = frozenset(
    {
        *(np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis),
        *(operator.setitem, *(getattr(operator, name) for name in _IN_PLACE)),
    }
)
_ARE_WRITTEN = frozenset(map(id, _WRITE_FIRST))  # what else is called may have no hash
_MAKE_TENSORS = frozenset({tensor, as_tensor, from_numpy})
_VIEWS = frozenset({"reshape", "view", "transpose", "squeeze", "swapaxes", "diagonal"})
_DATA = (slice, range, frozenset, type, types.ModuleType, np.generic)
_OF_FUNCTION = ("forward", "backward", "setup_context", "jvp", "vmap", "generate_vmap_rule")


def _is_asked_again(function: Any) -> bool:
    """Whether each call can ask a function of the standard library, and compare its answer."""
    if function in _ASKED_AGAIN or getattr(function, "__code__", None) is _DISPATCH:
        return True
    module = getattr(function, "__module__", None)
    return f"{module}.{function.__name__}" in _ASKED_BY_NAME


class GuardCollector(Reads):
    """Enters what a trace reads and writes of what was there before it.

    Args:
        apart: places that the step reads at each call; they need no guards.
        skipped: code that runs at each call, and reads anew.
    """

    def __init__(
        self, apart: frozenset[Any] = frozenset(), skipped: frozenset[object] = frozenset()
    ) -> None:
        super().__init__(apart)
        self._skipped = skipped
        self._met: set[int] = set()
        self._known_below: set[int] = set()  # modules, each below another one
        # Functions that have been called, of the library's and those that are followed.
        self._called_before: weakref.WeakSet[types.FunctionType] = weakref.WeakSet()
        homes = [sys.modules.get(type(finder).__module__) for finder in sys.meta_path]
        self._import_hooks = {getattr(module, "__file__", None) for module in homes}

    def listens_to(self, code: types.CodeType, names: dict[str, Any]) -> bool:
        if code in self._skipped or code is _DISPATCH or not is_followed(code):
            return False
        if code.co_filename in self._import_hooks:
            return False  # which runs where something happens to be imported first
        if code.co_filename != "<string>":
            return True
        # What `dataclasses` made for the library, and what `namedtuple` makes, which only holds.
        return not (names.get("__name__", "").startswith("lucid") or "_tuple_new" in names)

    def listens_in(self, frame: types.FrameType) -> bool:
        caller = frame.f_back
        if caller is not None and caller.f_code.co_filename in self._import_hooks:
            return False
        also = (*self.substitutes.asking, *_FOR_USERS)
        return not self.is_over and is_called_by_followed(frame, also)

    # ------------------------------------------------------------------ calls

    def call(self, function: Any, args: Sequence[Any], kwargs: Any) -> Any:
        """Enter what a call reads; returns what to call instead, None: the function itself."""
        if type(function) is _OF_CYTHON and function in _OF_GLOBAL_GENERATOR:
            method = _OF_GLOBAL_GENERATOR[function]
            return self.call(method, args, kwargs) or method
        if self._is_known(function, args, kwargs):
            return None
        if isinstance(function, _METHODS_OF_CLASSES) and args and is_late(args[0]):
            name = function.__name__  # what stands for an object has methods of its own
            return lambda owner, *rest, **named: self.tell(getattr(owner, name), *rest, **named)
        if type(function) is functools.partial:
            given = (*function.args, *args), {**function.keywords, **kwargs}
            instead = self.instead(function.func, *given)
            if instead is not None:
                return lambda *_, **__: instead(*given[0], **given[1])
        target = written_by(function, args, kwargs)
        if type(target) is np.ndarray:
            owner = part_of(function, "__self__", None)
            self.write_array(target, [owner, *args, *kwargs.values()])
        instead = self._with_stand_ins(function, args, kwargs)
        instead = instead or self.substitutes.drawing(function, args, kwargs)
        if instead is not None:
            return instead
        instead = self.instead(function, args, kwargs)
        if instead is None:
            if self.watchers:
                self._note_call(function, args)
            self._call(function, args, kwargs)
            if any(map(is_live, args)) and _is_in_c(function):
                return self._checked_function(function, (*args, *kwargs.values()))
        else:
            for value in args:
                self.may_call(value, *_methods_for(function))
            kinds = (*PLAIN, tuple, np.ndarray)
            data = [x for x in (*args, *kwargs.values()) if isinstance(x, kinds)]
            is_method = type(function) is types.MethodDescriptorType and len(args) > 0
            if is_method and id(args[0]) in self.stored_at_end:
                data = [x for x in data if x is not args[0]]  # which it fills
            self._look_at_all(data, {})
        return instead

    def _note_call(self, function: Any, args: Sequence[Any]) -> None:
        """Note that code which isn't followed may change the object whose method it is."""
        owner = part_of(function, "__self__", None)
        if owner is None and args and not isinstance(function, _FUNCTIONS):
            owner = args[0]  # a method of its class
        if owner is None or is_librarys(type(owner)) or isinstance(owner, _KNOWN_OWNERS):
            return
        if _is_in_c(function):
            self._note_change(owner)

    def _checked_function(self, function: Any, given: Sequence[Any]) -> Any:
        """What to call so that a TypeError for live numbers gives the trace up.

        Where Python's own numbers cause one as well, that is raised: the step may handle it.
        None: call the function itself, as it may call the user's code.
        """
        is_builtin = getattr(function, "__module__", None) == "builtins"  # they ask for the number
        if is_builtin or not all(is_live(x) or isinstance(x, SCALARS) for x in given):
            return None

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                if isinstance(error, LucidError):
                    raise
                refused = error
            function(*map(now_of, args), **{name: now_of(x) for name, x in kwargs.items()})
            self._op_by_op(
                "with numbers that it would read at each call its trace fails: "
                f"TypeError: {refused}"
            )

        return call

    def _is_known(self, function: Any, args: Sequence[Any], kwargs: Any) -> bool:
        """Whether a function has been called before, and this call reads nothing new.

        So it is for functions of the library and followed ones that get only tensors and plain
        data: a followed function tells what else it reads, and the library's is known.
        """
        is_method = type(function) is types.MethodType
        owner = function.__self__ if is_method else None
        called = function.__func__ if is_method else function
        if type(called) is not types.FunctionType or called not in self._called_before:
            return False
        given = (owner, *args, *kwargs.values()) if kwargs else (owner, *args)
        if not are_single(given):
            return False
        if owner is not None:
            self.value(owner, self.path_of(owner))
            self.meet(self.path_of(owner), owner)
        return True

    def _with_stand_ins(self, function: Any, args: Sequence[Any], kwargs: Any) -> Any:
        """What to call with stand-ins for growing lists and changing arrays; None: no stand-in."""
        if not self.stand_ins:
            return None
        owner = part_of(function, "__self__", None)
        if stands_for_list(owner):
            return function  # which tells by itself
        view, name = self.stand_in_for(owner), _name_of(function)
        if view is not owner:  # a method that was bound before, or a function bound to data
            is_written = type(function) is types.MethodType
            return types.MethodType(function.__func__, view) if is_written else getattr(view, name)
        if args and isinstance(function, _METHODS_OF_CLASSES):
            first = self.stand_in_for(args[0])
            if first is not args[0] or (name == "__copy__" and is_late(first)):
                return lambda _, *rest, **named: getattr(first, name)(*rest, **named)
        lend = self._lent_to(function)
        looked_at = args[:1] if function is getattr else args
        looked_at = (*looked_at, *(() if function is dict else kwargs.values()))
        given = [*map(lend, looked_at)]
        is_lent = any(x is not y for x, y in zip(given, looked_at, strict=True))
        if not is_lent and not any(map(stands_for_list, given)):
            return None
        if function is type and len(args) == 1:
            return lambda value: value.__class__
        if function in (builtins.isinstance, issubclass, id, callable, type):
            return function
        of_lists = any(map(stands_for_list, given))
        if not (_looks(function) if of_lists else _is_in_c(function)):
            return None
        call = self.substitutes.of_lists if of_lists else self._call_with_arrays
        return functools.partial(call, function)

    def _lent_to(self, function: Any) -> Callable[[Any], Any]:
        """What maps an argument of a function to its stand-in, or to itself.

        For NumPy and the library also lists and tuples are mapped, item by item.
        """

        def lent(value: Any) -> Any:
            if type(value) not in (list, tuple):
                return self.stand_in_for(value)
            found = [*map(self.stand_in_for, value)]
            if id(value) in self.stand_ins or all(map(operator.is_, found, value)):
                return self.stand_in_for(value)
            self.iterate(value)
            return type(value)(found)

        return lent if _is_of_arrays(function) else self.stand_in_for

    def _call_with_arrays(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        lend = self._lent_to(function)
        return self.tell(function, *map(lend, args), **{k: lend(x) for k, x in kwargs.items()})

    def instead(self, function: Any, args: Sequence[Any], kwargs: Any) -> Any:
        return (
            self._instead_of_get(function, args)
            or self._instead_of_getter(function)
            or self._instead_of_memo(function, args, kwargs)
            or live_function(function, args, kwargs)
            or self.substitutes.called(function, args, kwargs)
            or self._instead_of_caller(function, args, kwargs)
            or self._instead_of_consumer(function, args)
        )

    def _instead_of_get(self, function: Any, args: Sequence[Any]) -> Any:
        """What to call instead of `dict.get`, where the key is a number of each call."""
        if type(function) is types.BuiltinFunctionType and function.__name__ == "get":
            function, args = dict.get, (function.__self__, *args)
        if function is not dict.get or len(args) < 2:
            return None
        owner, key, *default = args
        entry = self.substitutes.entry(owner, key, *default)
        if entry is not None:
            return lambda *_: entry
        if not is_one_of_few(key, owner):
            return None
        found = self.look_for(key, owner)
        return lambda *_: owner.get(found, *default)

    def _instead_of_memo(self, function: Any, args: Sequence[Any], kwargs: Any) -> Any:
        """What to call instead of an `lru_cache`: with live numbers as they are now, guarded."""
        if not isinstance(function, MEMO):
            return None
        values = (*args, *kwargs.values())
        moves = any(map(_moves, values))
        anew = self.substitutes.computed_anew(function, values) if moves else None
        if anew is not None or not any(map(is_known_before, values)):
            return anew
        given = [seen(x) if is_known_before(x) else x for x in args]
        named = {key: seen(x) if is_known_before(x) else x for key, x in kwargs.items()}
        instead = self.call(function, given, named) or function
        return lambda *_, **__: instead(*given, **named)

    def _instead_of_getter(self, function: Any) -> Any:
        """What to call instead of an `attrgetter`, `itemgetter` or `methodcaller`, to see reads."""
        if type(function) not in _GETTERS:
            return None
        names = function.__reduce__()[1]
        if isinstance(function, operator.methodcaller):
            name, args, kwargs = _of_methodcaller(function)
            return lambda thing: self.tell(self.tell(getattr, thing, name), *args, **kwargs)
        is_item = isinstance(function, operator.itemgetter)
        ways = [[name] if is_item else name.split(".") for name in names]
        get = operator.getitem if is_item else getattr

        def got(thing: Any) -> Any:
            found = [
                functools.reduce(lambda x, name: self.tell(get, x, name), way, thing)
                for way in ways
            ]
            return found[0] if len(found) == 1 else tuple(found)

        return got

    def _instead_of_caller(
        self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """What to call instead of a function in C that calls another one, such as `map`, `sorted`.

        It reads each result of the inner function as that comes, and each item of an iterator.
        """
        owner = part_of(function, "__self__", args[0] if args else None)
        is_sort = type(owner) is list and _name_of(function) == "sort"
        if not is_sort and not _is_any(function, _CALLERS):
            return None
        reads = "look_through" if is_sort else _CALLERS[function]
        look = None if reads is None else getattr(self, reads)
        if reads == "look_through":
            is_by_position = function is itertools.groupby and len(args) > 1
            called, given = (args[1], args[:1]) if is_by_position else (kwargs.get("key"), args)
        else:
            called, *given = args or (None,)
            called = bool if called is None and look is not None else called
        kinds = object if called is str else SCALARS  # what `str` looks into is read below
        is_seen = is_heard(called) or (
            (called is str or only_computes(called))
            and not any(map(_is_iterator, given))
            and all(isinstance(x, kinds) for values in given for x in _entries(values))
        )
        if called is None or (look is None and is_seen):
            return None

        def call(*values: Any) -> Any:
            result = self.tell(called, *values)
            if look is not None and not self.is_over:
                look(result)
            return result

        if is_sort:
            self._call(function, args, {})
        self._look_at_all(given, {})
        if reads != "look_through":
            return lambda _, *given: self._run(function, call, *given)
        return lambda *_, **named: self._run(function, *given, **{**named, "key": call})

    def _instead_of_consumer(self, function: Any, args: Sequence[Any]) -> Any:
        """What to call instead of a function in C that consumes iterators: it reads their items."""
        if not _is_any(function, _TAKE_ALL) or not any(map(_is_iterator, args)):
            return None
        look = self.measure if function in (all, any) else self.look_through
        taken = [self.taken(x, look) if _is_iterator(x) else x for x in args]
        return lambda *_, **named: self._run(function, *taken, **named)

    def _run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def tell(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function as the user's code does."""
        instead = None if self.is_over else self.call(function, args, kwargs)
        return (instead or function)(*args, **kwargs)

    def _call(self, function: Any, args: Sequence[Any], kwargs: Any) -> None:
        kind, owner = type(function), part_of(function, "__self__", None)
        if owner is None and args and kind is not types.FunctionType:
            owner = args[0]  # of a method of a class in C
        is_given = any(x is not None for x in (*args, *kwargs.values()))
        if not is_given and any(function is x for x in _UNSEEDED):
            self._draws(f"{function.__name__}()")
        module = _imported(function, args, kwargs)
        if module:
            self.import_module(module)
        if isinstance(owner, GENERATORS) and hasattr(type(owner), _name_of(function)):
            self._draw(owner, function.__name__)
            self._look_at_all(args, kwargs)
            if function.__name__ == "shuffle" and args:
                self.store_item(args[0], slice(None))
        elif kind is types.MethodType:
            self._call_method(function, args, kwargs)
        elif kind is types.FunctionType:
            self.value(function, function.__name__)
            self._call_python(function, args, kwargs, None)
        elif isinstance(function, type):
            self._call_class(function, args, kwargs)
        elif isinstance(function, (types.BuiltinFunctionType, types.MethodWrapperType)):
            self._call_builtin(function, function.__self__, args, kwargs)
        elif isinstance(function, _METHODS_OF_CLASSES):
            if args:
                self._call_method_in_c(args[0], function.__name__, args[1:], kwargs)
        elif isinstance(function, MEMO):
            self.value(function.__wrapped__, self.path_of(function))
            self._look_into(args, kwargs)
            if self.was_there(function):
                self._ask_memo(function, args, kwargs)
        elif isinstance(function, functools.partial):
            self.value(function, self.path_of(function))
            self._call(function.func, (*function.args, *args), {**function.keywords, **kwargs})
        elif isinstance(function, (weakref.ReferenceType, weakref.WeakMethod)):
            self._weak.update(map(id, parts_of_referent(function)))
            self.answer(f"{self.path_of(function)}()", _target_of, function)
        else:
            self._call_object(function, args, kwargs)

    def _look_at_world(self, function: Any) -> None:
        name, owner = function.__name__, part_of(function, "__self__", None)
        if isinstance(owner, type):
            owner = next((base for base in owner.__mro__ if name in vars(base)), owner)
        module = getattr(function, "__module__", None) or getattr(owner, "__module__", None) or ""
        package = module.partition(".")[0]  # a method-wrapper has none
        why = _WHY.get(f"{package}.{name}")
        if why is None and function not in _INSIDE and not _is_asked_again(function):
            is_method = "." in function.__qualname__ or isinstance(owner, type)
            is_error = isinstance(function, type) and issubclass(function, BaseException)
            known = _WHY.get(module.removeprefix("_"), _WHY.get(package.removeprefix("_")))
            why = None if is_method or is_error else known  # as that in C is called
        if why is not None:
            package = package.removeprefix("_").replace("posix", "os")  # where CPython keeps them
            self._op_by_op(f"{why}, by {package}.{name}()")

    def _call_method(self, method: Any, args: Sequence[Any], kwargs: Any) -> None:
        owner, function = method.__self__, method.__func__
        self.value(owner, self.path_of(owner))
        if isinstance(function, types.FunctionType):
            self.value(function, function.__qualname__)
            self._call_python(function, args, kwargs, owner)
        else:
            self._call(function, (owner, *args), kwargs)

    def _call_python(
        self, function: types.FunctionType, args: Sequence[Any], kwargs: Any, owner: Any
    ) -> None:
        code = function.__code__
        if code in self._skipped or (is_followed(code) and code is not _DISPATCH):
            self._called_before.add(function)
            return
        module, file = function.__module__ or "", code.co_filename
        self._look_at_world(function)
        is_asked_again = file.startswith(LIBRARY) and function.__name__ in _OF_LIBRARY
        if is_asked_again or _is_asked_again(function):
            self._ask_again(function, args if owner is None else (owner, *args), kwargs)
        elif file.startswith(LIBRARY):
            if not self._call_library(owner):
                self._called_before.add(function)
                given = [*args, *kwargs.values()]
                is_made = part_of(function, "__wrapped__", function) in _MAKE_TENSORS
                sizes = [] if is_made else [x for x in given if _may_be_sizes(x)]
                others = [x for x in given if all(x is not size for size in sizes)]
                self._look_into(others, {}, may_write=False, given=True)
                self._look_into(sizes, {}, may_write=False)
        elif file.startswith(NUMPY):
            self._look_into((owner, *args), kwargs)
        elif isinstance(owner, logging.Logger) and function.__name__ in _OF_LOGGERS:
            self._ask_again(function, (owner, *args), kwargs)
        elif isinstance(owner, logging.Logger):
            for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
                text = f"{self.path_of(owner)}.isEnabledFor({level})"
                self.answer(text, owner.isEnabledFor, level)
        elif (
            module.partition(".")[0] in _SHARED
            and owner is not None
            and (
                self.was_there(owner) or not module.startswith("asyncio")  # whose loops run here
            )
        ):
            self._op_by_op(f"it calls {function.__qualname__}(), which other threads take part in")
        else:
            given = [owner, *args, *kwargs.values(), *closure_of(function).values()]
            self._look_into(given, {}, objects=True)

    def _call_library(self, owner: Any) -> bool:
        """Read what a function of the library's doesn't tell; whether it hands its arguments on."""
        from lucid.autograd.function import Function

        if isinstance(owner, type) and issubclass(owner, Function):
            for name in _OF_FUNCTION:
                self._load_from_class(owner, name)
            return True
        elif self.is_module(owner):
            if "_modules" not in (instance_dict(owner) or ()):
                return False  # its constructor is about to make it
            for path, module in owner.named_modules():
                full = ".".join(filter(None, (self.path_of(owner), path)))
                self.meet(full, module)
        elif owner is not None and is_librarys(type(owner)):
            self.meet(self.path_of(owner), owner)
        return False

    def _call_class(self, kind: Any, args: Sequence[Any], kwargs: Any) -> None:
        made_by = type(kind).__call__
        if isinstance(made_by, types.FunctionType):
            self._load_from_class(type(kind), "__call__")
        for name in ("__new__", "__init__"):
            found = self._load_from_class(kind, name)
            if type(found) is types.FunctionType:  # as of a named tuple, which isn't followed
                self.value(found, found.__qualname__)
        if is_heard(class_has(kind, "__del__")):
            self._op_by_op(f"it makes a {kind.__name__}, whose __del__ runs when Python likes")
        if kind is warnings.catch_warnings or kind in _REDIRECTS:
            self._op_by_op(f"it looks at what is told meanwhile, by {kind.__name__}()")
        self._call_in_c(kind, args, kwargs)

    def _call_object(self, function: Any, args: Sequence[Any], kwargs: Any) -> None:
        """An object whose class has `__call__`."""
        run = self._special(function, "__call__")
        path = self.path_of(function)
        self.value(function, path)
        if self.is_module(function):
            self.meet(path, function)
            self.load_attribute(function, "forward")
            run = class_has(type(function), "forward")
        elif is_heard(run):
            self.load_attribute(function, "__call__")
        elif is_librarys(type(function)):
            self.meet(path, function)
        elif isinstance(run, types.FunctionType):
            self.hand_over(function)
        if not is_heard(run):
            self._look_into(args, kwargs, handed=not only_computes(function))

    # ------------------------------------------------------------------ functions in C

    def _call_builtin(self, function: Any, owner: Any, args: Sequence[Any], kwargs: Any) -> None:
        if owner is not None and not isinstance(owner, (types.ModuleType, type)):
            self._call_method_in_c(owner, function.__name__, args, kwargs)
        else:
            self._call_in_c(function, args, kwargs)

    def _call_in_c(self, function: Any, args: Sequence[Any], kwargs: Any) -> None:
        """Read what a function in C reads, or a class, whose constructor may be followed."""
        self._look_at_world(function)
        if function in (id, hash) and args and is_known_by_place(args[0]):
            self.answer(f"{function.__name__}({self.path_of(args[0])})", function, args[0])
        for value in args:
            self.may_call(value, *_methods_for(function))
        if function in _AS_INSTRUCTIONS:
            self._as_instruction(function, args)
        elif function in (builtins.isinstance, callable, id, issubclass):
            if function is id and args:
                self.look_for_itself(args[0])
            if function is builtins.isinstance and args:
                self.load_attribute(args[0], "__class__")
            if function in (builtins.isinstance, issubclass) and len(args) == 2:
                self.belongs(function, *args)
        elif function in (globals, locals):
            pass
        elif _is_asked_again(function) or function.__name__ == "__subclasses__":
            self._ask_again(function, args, kwargs)
        elif function in _ONE_LEVEL:
            self._look_at_all(args, kwargs)
            items = (item for value in args for item in _entries(value))
            if function in (all, any):
                for item in items:
                    self.measure(item)
            elif function is map and args and args[0] is str:
                for item in items:
                    self.read_text(item)
            elif function in _LOOK_INTO_ENTRIES:
                for item in items:
                    self._look_at_all((item,), {})
                    self.may_call(item)
            elif function in _COMPARE:
                self._look_into(args, {}, handed=False)
                for item in items:
                    self.operate(item, None, _COMPARE[function])
        elif _is_in_c(function):
            self._look_into(args, kwargs, handed=not only_computes(function))

    def _as_instruction(self, function: Any, args: Sequence[Any]) -> None:
        method, count = _AS_INSTRUCTIONS[function]
        if len(args) >= count:
            getattr(self, method)(*args[:count])

    def _call_method_in_c(self, owner: Any, name: str, args: Sequence[Any], kwargs: Any) -> None:
        """Read what a method in C of a container, an array or another object reads."""
        path = self.path_of(owner)
        if isinstance(owner, (TensorCore, *SCALARS)) or is_live(owner):
            self._look_into(args, kwargs)
        elif isinstance(owner, PLAIN):
            self._call_on_container(owner, name, args, kwargs)
        elif isinstance(owner, np.ndarray):
            self.array(path, owner, write=name in WRITES_ARRAYS, given=name in _VIEWS)
            self._look_into(args, kwargs)
        elif name in _AS_INSTRUCTIONS:
            self._as_instruction(name, (owner, *args))
        elif isinstance(owner, ContextVar) and name != "get":
            self._op_by_op(f"it sets {path}, a ContextVar")
        elif isinstance(owner, MEMO) and name.startswith("cache_") and self.was_there(owner):
            self._op_by_op(f"it calls {name}() of what functools.lru_cache keeps")
        else:
            self.look_at_context(owner)
            self._ask_unknown(owner, name)
            self._look_into(args, kwargs)

    def _call_on_container(self, owner: Any, name: str, args: Sequence[Any], kwargs: Any) -> None:
        path, kind = self.path_of(owner), type(owner)
        adds = next((methods for base, methods in _ADDS.items() if isinstance(owner, base)), ())
        if is_librarys(kind):
            self.meet(path, owner)
            return
        for value in args:
            self.may_call(value)
        if args and name in _OF_ENTRIES and (name != "pop" or isinstance(owner, dict)):
            for method in _OF_ENTRIES[name]:
                getattr(self, method)(owner, args[0], in_c=True)
        elif name in adds and (name not in _ITERATES or all(isinstance(x, PLAIN) for x in args)):
            given = tuple(map(list, args)) if name in _ITERATES else tuple(args)
            self._look_at_all(args if name in _ITERATES else (), {})
            self.append(path, owner, name, given)
        elif name not in ("__new__", "__class__", "__setattr__"):
            (self.contents if name in _LOOKS_ONLY else self.rewrite)(path, owner)
            self._look_at_all(args, kwargs)
            if name in _COMPARES or name == "sort":
                for value in args:
                    self.look_for_itself(value)
                self._look_into((owner, *args), {})
            elif name == "update":
                for value in args:
                    self._look_at_all(_entries(value), {})

    def _ask_again(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Guard the answer of a function: each call asks it again, and compares."""
        self.substitutes.refuse_after_writing(f"{function.__name__}()")
        variables = self.guards.get((id(vars(os.environ).get("_data")), CONTENTS))
        if function in _OF_ENVIRONMENT and variables is not None and not variables.holds():
            self._op_by_op(f"it asks {function.__name__}() after it has changed os.environ")
        given = ", ".join([*map(brief, args), *(f"{k}={brief(x)}" for k, x in kwargs.items())])
        ask = functools.partial(function, *args, **kwargs)
        if not self.answer(f"{function.__name__}({given})", ask, holder=function):
            self._op_by_op(f"it asks {function.__name__}(), which gives something else each time")
        return self.guards[ask,].expected

    def _ask_memo(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Guard the result of an `lru_cache`, which each call of the step asks again.

        A result that isn't cached yet is computed now, as in eager mode, and the trace begins again
        and finds it. It may not cache values of the step. A step that needs an entry which others
        have displaced runs op by op.
        """
        name, before = function.__qualname__, function.cache_info()
        refusal = f"it fills the cache of {name}, by functools.lru_cache"
        if _is_of_step((args, kwargs)) or before.maxsize == 0:
            self._op_by_op(refusal)
        recorder = context.recorder
        try:
            context.recorder = None
            answer = self._ask_again(function, args, kwargs)
        finally:
            context.recorder = recorder
        has_raised = isinstance(answer, type) and issubclass(answer, Exception)
        if function.cache_info().misses == before.misses or has_raised:
            return
        if _is_of_step(answer):
            function.cache_clear()
            self._op_by_op(refusal)
        if before.currsize == before.maxsize:
            self._op_by_op(f"{refusal}, which is full")
        self.begin_again(f"fills the cache of {name}")

    def _ask_unknown(self, owner: Any, name: str) -> None:
        """A method of an object whose state can't be read: give up if it is from outside."""
        path, package = self._paths.get(id(owner)), type(owner).__module__.partition(".")[0]
        is_data = package in _VALUES or isinstance(owner, (*_DATA, *OPAQUE))
        if path is None or is_data or is_librarys(type(owner)) or name.startswith("__"):
            return
        if self.was_there(owner):
            self._op_by_op(
                f"it calls {path}.{name}(), of a {type(owner).__name__}, whose state can't be seen"
            )

    # ------------------------------------------------------------------ what can't be guarded

    def _draw(self, generator: Any, name: str) -> None:
        """A method of a random generator."""
        if name.startswith("_"):
            return
        if isinstance(generator, random.SystemRandom):
            self._draws(f"SystemRandom.{name}()")
        if not self.is_shared(generator):
            return
        path = self.name_of_generator(generator)
        if name in _STATE_OF_GENERATORS:
            self._op_by_op(f"it reads or sets the state of {path}")
        self._draws(f"{path}.{name}()")

    def load_attribute(self, owner: Any, name: str) -> None:
        is_words = isinstance(owner, (np.random.BitGenerator, np.random.SeedSequence))
        if is_words and self.was_there(owner):
            self._op_by_op(f"it asks a {type(owner).__name__} from outside")
        super().load_attribute(owner, name)

    def is_shared(self, generator: Any) -> bool:
        """Whether a random generator was there before the step."""
        return id(generator) in _GLOBAL_GENERATORS or self.was_there(generator)

    def name_of_generator(self, generator: Any) -> str:
        """What messages call it."""
        known = _GLOBAL_GENERATORS.get(id(generator)) or self._paths.get(id(generator))
        return known or "a random generator"

    def _draws(self, what: str) -> NoReturn:
        self._op_by_op(f"it draws random numbers, by {what}")

    # ------------------------------------------------------------------ what others are handed

    def _look_at_all(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Read the entries of containers among the arguments, but not what is in the entries."""
        for value in (*args, *kwargs.values()):
            if not self._hand_function(value):
                self.iterate(value)

    def hand_over(self, owner: Any) -> None:
        """Read all that an object holds: plain data as a whole, objects by all attributes."""
        self._look_into((owner,), {}, objects=True)

    def look_through(self, owner: Any) -> None:
        self._look_into((owner,), {}, handed=False)

    def read_text(self, value: Any) -> None:
        is_asked = self.substitutes.is_asked
        self.may_call(value)
        shows: Any = type(value).__repr__
        if type(value) is itertools.count:
            self.advance(value)  # its text says how far it has come
        if shows is object.__repr__ and is_known_by_place(value):
            self.answer(f"repr({self.path_of(value)})", object.__repr__, value)
        if is_asked(value) or isinstance(value, (*_SHOW_ALL, np.ndarray)):
            self._look_into((value,), {}, objects=True, may_write=False, is_asked=is_asked)
        if isinstance(value, (np.ndarray, np.generic)):
            self.answer("numpy.get_printoptions()", np.get_printoptions)

    def hears(self, frame: types.FrameType) -> bool:
        """Whether this is told of what a frame does."""
        return self.listens_to(frame.f_code, frame.f_globals) and self.listens_in(frame)

    def _look_into(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        objects: bool = False,
        may_write: bool = True,
        given: bool = False,
        handed: bool = True,
        is_asked: Callable[[Any], bool] | None = None,
    ) -> None:
        """Read the containers among a call's arguments as a whole, with those within them.

        objects: whether to read the attributes of objects as well.
        may_write: whether who gets an array may write it; given: whether the library gets it,
            which makes a tensor on its memory unless it is in a list or of a dtype of NumPy's only.
        handed: whether the code that gets it may need exact numbers, and no live ones.
        is_asked: says of an object whether its class has Python code that reads it.
        """
        stack, seen = [*args, *kwargs.values()], set()
        whole = {*map(id, stack)} if given else set()
        held = set[int]()  # by objects that are given, from which only they may take
        while stack:
            value = stack.pop()
            if isinstance(value, (*SCALARS, TensorCore, type, types.ModuleType)):
                continue
            if is_live(value) or id(value) in seen:
                continue
            seen.add(id(value))
            self.may_call(value)
            if self._hand_function(value):
                continue
            if is_asked is not None and is_asked(value):
                texts = [self._special(value, name) for name in _OF_TEXTS]
                if any(map(is_unknown, texts)):
                    stack += self._parts(value)
            elif isinstance(value, (*PLAIN, tuple)):
                self.iterate(value)
                if handed and not given:
                    self.hand_contents(value)
                if not is_librarys(type(value)):
                    stack += dict.values(value) if isinstance(value, dict) else value
            elif isinstance(value, VIEWS):
                stack += value
            elif isinstance(value, np.ndarray):
                self.iterate(value, given=id(value) in whole and has_dtype(value))
                if may_write:
                    self.hand(value)
            else:
                if _is_iterator(value) and id(value) not in held:
                    self.advance(value)
                if objects and not isinstance(value, GENERATORS):
                    parts = [*self._parts(value)]
                    held.update(map(id, parts))
                    stack += parts

    def _hand_function(self, function: Any) -> bool:
        """Note that code which isn't followed may call a function in C; False: it isn't one.

        If it is a method of a container, such as `found.append`, that may change the container.
        """
        if isinstance(function, functools.partial):
            self._look_into((function.func, *function.args), function.keywords)
        elif not isinstance(function, (types.BuiltinFunctionType, types.MethodWrapperType)):
            return False
        elif isinstance(owner := function.__self__, PLAIN) and not is_librarys(type(owner)):
            is_read = function.__name__ in _LOOKS_ONLY
            (self.contents if is_read else self.rewrite)(self.path_of(owner), owner)
        return True

    def _parts(self, value: Any) -> list[Any]:
        """Read the attributes of an object, or what a function that isn't followed holds; these."""
        if isinstance(value, types.FunctionType):
            self.value(value, value.__name__)
            is_known = is_followed(value.__code__)
            return [] if is_known else [*closure_of(value).values()]
        attributes = instance_dict(value) or {}
        if is_librarys(type(value)):
            self.meet(self.path_of(value), value)
            return []
        self.all_attributes(value)
        self.hand_contents(attributes)
        kind: Any = type(value)
        slots = [name for name in slots_of(kind) if hasattr(value, name)]
        return [*attributes.values(), *[getattr(value, name) for name in slots]]

    # ------------------------------------------------------------------ the library's own

    def meet(self, path: str, thing: Any) -> None:
        """Note that the step uses an object of the library's: a Module, an optimizer, a hook."""
        if isinstance(thing, TensorCore):
            self.tensor(path, thing)
        if id(thing) in self._met or isinstance(thing, TensorCore):
            return
        self._met.add(id(thing))
        self._held.append(thing)
        self.value(thing, path)
        if isinstance(thing, dict):
            self._meet_dict(path, thing)
        elif self.is_module(thing):
            self._meet_module(path, thing)
        elif isinstance(thing, types.FunctionType):
            self.value(thing, path)
        elif is_librarys(type(thing)):
            self.library_objects.append((path, thing))
            for part in getattr(type(thing), "_users_parts", lambda _: ())(thing):
                self.value(part, path, thing)
            is_open = getattr(type(thing), "_is_changed_by_users", False)
            attributes = (instance_dict(thing) or {}) if is_open else {}
            for name, value in list(attributes.items()):
                if not name.startswith(LIBRARYS_ATTRIBUTES):
                    self.entry(f"{path}.{name}", attributes, name, holder=thing)
                    if isinstance(value, PLAIN):
                        self.contents(f"{path}.{name}", value)

    def _know_below(self, module: Any) -> None:
        """Find out of all modules below one whether the step has made them, at once."""
        found = [module]
        for each in found:  # which grows meanwhile
            children = (instance_dict(each) or {}).get("_modules")
            values = dict.values(children) if isinstance(children, dict) else ()
            below = [x for x in values if self.is_module(x)]
            found += [x for x in below if id(x) not in self._known_below]
            self._known_below.update(map(id, below))
        if len(found) > 1:
            self._held += found
            self._age.know(found)

    def _meet_dict(self, path: str, owner: dict[Any, Any]) -> None:
        """Read what of an optimizer's group, or of its state, isn't read at each call."""
        is_live_key = getattr(owner, "is_read_live", lambda _: False)
        self.length(path, owner)
        for key, value in list(dict.items(owner)):
            if not is_live_key(key):
                place = f"{path}[{self.text_of(key)}]"
                self.entry(place, owner, key)
                if type(value) is list:
                    self.contents(place, value)

    def _meet_module(self, path: str, module: Any) -> None:
        self._know_below(module)
        self.field(f"type({path})", module, "__class__", gated=True)
        self.field(f"{path}.__dict__", module, "__dict__", gated=True)
        attributes = instance_dict(module) or {}
        global_hooks = module._global_hooks()
        registers = (*REGISTERS, *global_hooks)
        of_library = _read_by_library(module.__class__) & attributes.keys()
        for name in ("forward", "training", *sorted(of_library - {*registers})):
            value = attributes.get(name, ABSENT)
            gated = not isinstance(value, (*PLAIN, np.ndarray))
            place = f"{path}.{name}" if path else name
            self.entry(place, attributes, name, gated=gated, holder=module)
            if isinstance(value, PLAIN):
                self.contents(place, value)
        for group in registers:
            entries = attributes.get(group)
            if entries is not None:
                self.entry(f"{path}.{group}", attributes, group, gated=True, holder=module)
                self._meet_register(f"{path}.{group}", path, entries, module)
        for group, entries in global_hooks.items():
            self._meet_register(f"nn.modules.module.{group}", "", entries, None)
        for name in ("__call__", "forward"):
            self._load_from_class(type(module), name)

    def _meet_register(self, place: str, path: str, entries: Any, holder: Any) -> None:
        """Members of a module by name, or hooks by number."""
        for key, value in list(entries.items()):
            name = f"{place}[{key}]" if isinstance(key, int) else f"{path}.{key}".lstrip(".")
            self.value(value, name, entries)
            self.entry(name, entries, key, gated=True, holder=holder)
        self.contents(place, entries, holder=holder)
        whole = self.guards.get((id(entries), CONTENTS))
        if whole is not None:
            whole.gated = True

    def note(self, path: str, owner: Any, key: Any, *, write: bool = False) -> None:
        """The library depends on an entry, or is about to bind one."""
        self.entry(path, owner, key, write=write, gated=True)


# Code of this class that calls the user's for the user.
_FOR_USERS = tuple(
    function.__code__
    for function in (GuardCollector.tell, GuardCollector._run, GuardCollector.taken)
)
# Packages whose objects in C are values, not state.
_VALUES = frozenset(
    {
        *("builtins", "datetime", "decimal", "re", "_operator", "functools", "itertools"),
        *("numpy", "llvmlite", "collections", "types", "typing", "_abc", "_struct"),
    }
)


def _moves(value: Any) -> bool:
    """Whether it is a number that each call has for itself, or a tuple with such, as of sizes."""
    return is_live(value) or (isinstance(value, tuple) and any(map(_moves, value)))


@functools.lru_cache(maxsize=512)
def _read_by_library(kind: type) -> set[str]:
    """The attributes that methods of the library's classes read, other than at each call."""
    names: set[str] = set()
    live: set[Any] = set()
    for base in kind.__mro__:
        if is_librarys(base) and base.__name__ != "Module":
            for item in vars(base).values():
                function = getattr(item, "__func__", getattr(item, "fget", item))
                code = getattr(inspect.unwrap(function), "__code__", None)
                names.update(code.co_names if code is not None else ())
                if code is not None and "live_attribute" in code.co_names:
                    live.update(code.co_consts)
    return names - live


def _entries(value: Any) -> Sequence[Any]:
    """What is in a container; of a dict the keys."""
    is_plain = isinstance(value, (*PLAIN, tuple, *VIEWS))
    return list(value) if is_plain else []


def _looks(function: Any) -> bool:
    """Whether a function in C, or of a library, doesn't change the lists that it gets."""
    if function in _ONE_LEVEL or function in _LOOK or function in ONLY_COMPUTE:
        return True
    return _is_of_arrays(function) or getattr(function, "__module__", "") in ("statistics", "math")


def _methods_for(function: Any) -> tuple[str, ...]:
    """The special methods by which classes answer for a function in C, besides the common ones."""
    name = _name_of(function)
    return f"__{name}__", f"__r{name}__"


def _imported(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The module that a call imports by its whole name; empty: none, or it can't be said."""
    try:
        if function is importlib.import_module:
            name, package = (*args, *kwargs.values(), None)[:2]
            return importlib.util.resolve_name(name, package)
        if function is __import__ and len(args) == 1 and not kwargs and type(args[0]) is str:
            return str(args[0])
    except Exception:  # which the step is about to meet
        pass
    return ""


def _is_iterator(value: Any) -> bool:
    return hasattr(type(value), "__next__")


def _is_any(function: Any, of: Collection[Any]) -> bool:
    """Whether it is one of some functions in C; others may not be comparable with these."""
    return type(function) in (type, types.BuiltinFunctionType) and function in of


def _of_methodcaller(function: Any) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """The method's name, and its arguments."""
    made_by, args = function.__reduce__()
    if isinstance(made_by, functools.partial):  # where there are named ones
        return made_by.args[0], args, made_by.keywords
    return args[0], args[1:], {}


def _is_of_arrays(function: Any) -> bool:
    """Whether it is NumPy's or the library's."""
    file = getattr(part_of(function, "__code__", None), "co_filename", "")
    module = str(getattr(function, "__module__", "")).partition(".")[0]
    is_ufuncs = isinstance(part_of(function, "__self__", function), np.ufunc)
    return file.startswith(LIBRARY) or is_ufuncs or module == "numpy"


def is_heard(function: Any) -> bool:
    """Whether it is Python code whose instructions are followed, also as users call it."""
    function = part_of(function, "__func__", function)  # of a method
    if not isinstance(function, types.FunctionType):
        return False
    is_edge = function.__code__.co_filename == EDGE
    return is_followed((function.__dict__["__wrapped__"] if is_edge else function).__code__)


def written_by(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The array that a function of NumPy's is about to write; None: there is none."""
    is_draw = bool(args) and isinstance(args[0], GENERATORS) and _name_of(function) == "shuffle"
    if is_draw or isinstance(function, _METHODS_OF_CLASSES):
        if not args or not isinstance(args[0], getattr(function, "__objclass__", GENERATORS)):
            return None  # which raises an error
        function, args = function.__get__(args[0], type(args[0])), args[1:]
    if "out" in kwargs and not is_heard(function):
        out = kwargs["out"]
        return out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if isinstance(function, np.ufunc):
        return args[function.nin] if len(args) > function.nin else None
    if args and not returns_written(function):
        return args[0]
    owner = part_of(function, "__self__", None)
    if args and isinstance(owner, GENERATORS) and _name_of(function) == "shuffle":
        return args[0]
    return owner if type(owner) is np.ndarray and function.__name__ in WRITES_ARRAYS else None


def returns_written(function: Any) -> bool:
    """Whether a function of NumPy's doesn't write its first argument, and return nothing."""
    is_at = isinstance(part_of(function, "__self__", None), np.ufunc) and function.__name__ == "at"
    return not is_at and id(function) not in _ARE_WRITTEN


def _is_in_c(function: Any) -> bool:
    """Whether a function's instructions aren't followed, so that its reads aren't told."""
    return not is_heard(class_has(function, "__init__") if isinstance(function, type) else function)


def _may_be_sizes(value: Any) -> bool:
    """Whether the library may take an array for sizes or places, which it looks at."""
    return isinstance(value, np.ndarray) and value.ndim <= 1 and value.dtype.kind in "iu"


def _name_of(function: Any) -> str:
    name = part_of(function, "__name__", None)
    return name if isinstance(name, str) else ""


def _target_of(reference: Any) -> tuple[int, ...]:
    return (*map(id, parts_of_referent(reference)),)


def _is_of_step(tree: Any) -> bool:
    """Whether there are values in it that the step computes, or reads at each call."""
    parts = [part for _, part, _ in walk(tree, "", set())]
    return any(is_live(x) or (isinstance(x, TensorCore) and x.is_traced) for x in parts)
