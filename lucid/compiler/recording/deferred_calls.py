"""What a step does to the world outside: `print`, a logger, a file, a progress bar.

Such a call is taken down while the step is traced, and made at each call of the step, after its
native part and in the program's order, with that call's values.
"""

from __future__ import annotations

import dis
import functools
import io
import json
import logging
import operator
import pathlib
import sys
import types
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Callable, ItemsView, KeysView, Sequence, ValuesView
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lucid.compiler.guards.collector import PLAIN
from lucid.compiler.guards.events import ARITHMETIC
from lucid.compiler.guards.guard import instance_dict
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.hosts.state import reachable
from lucid.compiler.inputs.objects import SCALARS
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.recording.late.late_numbers import LateList
from lucid.compiler.recording.late.texts import TEXTS, is_number_or_text, is_of_call, written
from lucid.ir.classes import isinstance
from lucid.ir.location import Location, here, warning_at
from lucid.ir.whose_code import PRINT, is_users
from lucid.tensor.tree import flatten

if TYPE_CHECKING:
    from lucid.compiler.guards.calls import GuardCollector
    from lucid.compiler.recording.exits import Exits

_LEVELS = {
    name: getattr(logging, name.upper())
    for name in ("debug", "info", "warning", "warn", "error", "critical")
}
_OF_PATHS = ("write_text", "write_bytes", "touch", "unlink", "mkdir", "rmdir", "rename")
_OF_BARS = (
    *("update", "set_postfix", "set_postfix_str", "set_description", "set_description_str"),
    *("write", "refresh", "display", "clear"),
)
_OF_LOGURU = ("trace", "debug", "info", "success", "warning", "error", "critical")
# Methods by which objects tell the world something, by the class that has them; and functions, by
# their module.
_TELL: dict[str, tuple[str, ...]] = {
    "_io._IOBase": ("write", "writelines", "flush"),
    "_csv.writer": ("writerow", "writerows"),
    "csv.DictWriter": ("writerow", "writerows", "writeheader"),
    "pathlib.Path": _OF_PATHS,
    "pathlib._local.Path": _OF_PATHS,
    "queue.Queue": ("put", "put_nowait"),
    "_queue.SimpleQueue": ("put", "put_nowait"),
    "tqdm.std.tqdm": _OF_BARS,
    "rich": ("print",),
    "rich.console.Console": ("print", "rule"),
    "rich.progress.Progress": ("update", "advance"),
    "wandb.sdk.wandb_run.Run": ("log",),
    "mlflow.tracking.fluent": ("log_metric", "log_metrics", "log_param", "log_params"),
    "loguru._logger.Logger": _OF_LOGURU,
}
_NAMES = frozenset(name for names in _TELL.values() for name in names)
_WRITERS = "SummaryWriter"  # of whichever package: its `add_scalar` and the like
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_METHODS = (types.MethodType, types.BuiltinFunctionType)
_VIEWS = (KeysView, ValuesView, ItemsView)


@dataclass(slots=True)
class DeferredCall:
    """A call that is made after each call of the step: its function and its arguments.

    When the trace has ended, output specs make the arguments.

    Attributes:
        prepares: whether the function changes nothing, and returns the call that is to be made.
        owners: the dicts whose entries it sets, if it does nothing else.
        is_said: whether its arguments are copies from when it was deferred.
        of_rounds: the deferred calls of a loop's rounds; the argument is then a list of calls.
    """

    function: Callable[..., Any]
    args: Any
    kwargs: Any
    prepares: bool = False
    owners: Sequence[dict[str, Any]] = ()
    is_said: bool = False
    of_rounds: Sequence[DeferredCall] = ()

    def made(self, args: Any, kwargs: Any) -> Sequence[DeferredCall]:
        """The calls to be made, with the arguments of a call of the step."""
        if self.of_rounds:
            return args[0]  # type: ignore[no-any-return]
        return [DeferredCall(self.function, args, kwargs, self.prepares, self.owners)]

    @property
    def functions(self) -> list[Callable[..., Any]]:
        """What is called."""
        return [self.function, *(x for call in self.of_rounds for x in call.functions)]


class _Later:
    """Stands for a container in `d[key] = value`, or in `owner += value`."""

    def __init__(self, owner: Any, take: Callable[..., None]) -> None:
        self._owner = owner
        self._take = take

    def __setitem__(self, key: Any, value: Any) -> None:
        self._take(key, value)

    def __iadd__(self, value: Any) -> Any:
        self._take(value)
        return self._owner


def _change(owner: Any, method: str, args: tuple[Any, ...]) -> Callable[[], object]:
    return functools.partial(getattr(owner, method), *args)


def _printing(
    *values: Any, sep: Any = None, end: Any = None, file: Any = None, flush: Any = False
) -> Callable[[], object]:
    """A `print`; to a file that C writes in one piece, since `print` looks for signals between."""
    texts, out = [*map(str, values)], sys.stdout if file is None else file
    between, last = " " if sep is None else sep, "\n" if end is None else end
    is_of_c = type(out) in (io.StringIO, io.TextIOWrapper)
    if is_of_c and not flush and type(between) is type(last) is str:
        return functools.partial(out.write, between.join(texts) + last)
    return functools.partial(PRINT, *texts, sep=sep, end=end, file=file, flush=flush)


class Augmented:
    """The stand-in for the entry `d[key]` in `d[key] += 1`, which each call does at its end.

    Attributes:
        owner, key: the dict and the key, which only a call knows; line: the user's line.
        change: the operator's name in `operator`, and its right operand.
    """

    __slots__ = ("change", "key", "line", "owner")

    def __init__(self, owner: Any, key: Any, line: Location | None) -> None:
        self.owner, self.key, self.line = owner, key, line
        self.change: tuple[str, Any] | None = None


def _in_place(name: str) -> Callable[[Augmented, Any], Augmented]:
    def change(entry: Augmented, value: Any) -> Augmented:
        if not isinstance(value, (int, float)):
            raise RestartTrace("looks at an entry of a dict", "looked_at", [entry.line])
        entry.change = name, value
        return entry

    return change


for _name in ARITHMETIC.values():
    setattr(Augmented, f"__i{_name}__", _in_place(f"i{_name}"))


def _augment(owner: Any, key: Any, name: str, value: Any) -> Callable[[], object]:
    return functools.partial(owner.__setitem__, key, getattr(operator, name)(owner[key], value))


@functools.lru_cache(maxsize=1024)
def _is_augmented(code: types.CodeType, offset: int) -> bool:
    """Whether an instruction reads the entry of `d[key] += …`, of which only that gets hold.

    Python copies the dict and the key on the stack before it.
    """
    before = [x for x in dis.get_instructions(code) if x.offset < offset and x.opname != "CACHE"]
    return [(x.opname, x.arg) for x in before[-2:]] == [("COPY", 2)] * 2


class DeferredCalls:
    """The calls of one trace that are made after each call of the step.

    Attributes:
        deferred: the calls, in the program's order.
    """

    def __init__(self, exits: Exits, collector: GuardCollector) -> None:
        self._exits = exits
        self._collector = collector
        self.deferred: list[DeferredCall] = []
        self.warnings: list[Callable[[], None]] = []  # those deferred with known texts
        self._added: set[int] = set()  # lists that deferred calls add to

    @property
    def writes_files(self) -> bool:
        """Whether any call that has been taken down may write a file, or a folder."""
        for deferred in self.deferred:
            owners = [getattr(x, "__self__", None) for x in deferred.functions]
            owners.append(deferred.kwargs.get("file"))
            files = [x for x in owners if isinstance(x, (io.IOBase, pathlib.PurePath))]
            if any(x not in (sys.stdout, sys.stderr) for x in files):
                return True
        return False

    def say(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Let each call of the step call a function at its end."""
        given = {name: _as_of_now(value) for name, value in kwargs.items()}
        self.deferred.append(DeferredCall(function, [*map(_as_of_now, args)], given, is_said=True))

    def _let_listen(self, *listeners: Any) -> None:
        """Note what user's code in deferred calls may change: the step may not read it."""
        roots = [("", x) for x in listeners if is_users(x if callable(x) else type(x))]
        for _, thing in reachable(roots, object):
            attributes = instance_dict(thing)
            holder = thing if attributes is None else attributes
            self._collector.changed_at_end[id(holder)] = thing

    def instead_of(self, function: Any, kwargs: dict[str, Any]) -> Callable[..., Any] | None:
        """The function that defers a call with effects outside; None: the call has none."""
        if function is warnings.warn:
            return self._warn
        if function is PRINT:
            return self._print
        if function is json.dump:
            return self._json
        name = function.__name__ if isinstance(function, (*_FUNCTIONS, *_METHODS)) else ""
        owner = function.__self__ if isinstance(function, _METHODS) else None
        if isinstance(function, types.FunctionType) and function.__module__ == "logging":
            owner = logging.getLogger()
        if isinstance(owner, logging.Logger):
            speaks = name in ("log", "exception", *_LEVELS)
            return self._logging(owner, name, kwargs) if speaks else None
        if isinstance(function, types.FunctionType):
            is_told = name in _TELL.get(function.__module__, ()) and self._is_discarded()
            return functools.partial(self.say, function) if is_told else None
        if owner is None or not tells(owner if isinstance(owner, type) else type(owner), name):
            return None
        is_known = isinstance(owner, pathlib.PurePath) or self._collector.was_there(owner)
        if not is_known or not self._is_discarded():
            return None
        if isinstance(function, types.MethodType):  # in Python: what it changes may be read
            attributes = instance_dict(owner)
            holder = owner if attributes is None else attributes
            self._collector.changed_at_end[id(holder)] = owner
        if name in _OF_LOGURU:
            return functools.partial(self.say, getattr(self._at_this_line(owner), name))
        if name.startswith("put"):
            return functools.partial(self._put, function)
        return functools.partial(self.say, function)

    def _at_this_line(self, logger: Any) -> Any:
        """One of loguru's loggers, whose records say the line that is about to call it."""
        frame = self.frame()
        code, name = frame.f_code, frame.f_globals.get("__name__")
        place = {"function": code.co_name, "line": frame.f_lineno, "name": name}
        place["module"] = pathlib.Path(code.co_filename).stem

        def say_place(record: dict[str, Any]) -> None:
            file = type(record["file"])(pathlib.Path(code.co_filename).name, code.co_filename)
            record.update(place, file=file)

        return logger.patch(say_place)

    def _put(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """What a queue gets is what its reader finds, after the call: a container is itself."""
        self.deferred.append(DeferredCall(function, [*args], kwargs))

    def stored(self, owner: Any) -> Any:
        """A stand-in for the container in `d[key] = value` that defers the store, if it can."""
        if not self._collector.is_only_filled(owner):
            return None
        return _Later(owner, functools.partial(self._change_later, owner, "__setitem__"))

    def augmented(self, owner: Any, key: Any) -> Augmented | None:
        """The stand-in for the entry in `d[key] += …`, of a dict of counts or sums.

        The addition is deferred. None: the instruction does something else.
        """
        at = self._collector.at
        has_zeros = type(owner) is defaultdict and owner.default_factory in (int, float)
        if not (has_zeros or type(owner) is Counter) or at is None or not _is_augmented(*at):
            return None
        if not all(isinstance(x, (int, float)) for x in owner.values()):
            return None
        return Augmented(owner, key, here()) if self._collector.is_only_filled(owner) else None

    def put_augmented(self, entry: Augmented) -> _Later:
        """A stand-in for the dict to which the changed entry is stored: that defers the change."""

        def store(*_: Any) -> None:
            self._collector.stored_at_end.setdefault(id(entry.owner), entry.line)
            given = [entry.owner, entry.key, *(entry.change or ())]
            self.deferred.append(DeferredCall(_augment, given, {}, prepares=True))

        return _Later(entry.owner, store)

    def _change_later(self, owner: Any, method: str, *args: Any) -> None:
        """Let each call change a container, by itself: it may be one of each call's own."""
        self._collector.stored_at_end.setdefault(id(owner), here())
        self.deferred.append(DeferredCall(_change, [owner, method, args], {}, prepares=True))

    def added(self, method: Any, value: Any) -> Callable[[Any], None] | None:
        """The function that defers an `extend` of a list, or a Counter's `update`; None: it can't.

        For entries of a number that only a call knows, and a container that the step doesn't read.
        Later additions to the container are deferred as well.
        """
        owner = getattr(method, "__self__", None)
        name = method.__name__ if type(owner) in (list, deque, Counter) else ""
        if type(owner) is Counter and name in ("update", "subtract"):
            is_of_calls = type(value) is LateList or (
                type(value) is list and any(map(is_live, value))
            )
            is_filled = is_of_calls and self._collector.is_only_filled(owner)
            return functools.partial(self._change_later, owner, name) if is_filled else None
        if name not in ("append", "extend"):
            return None
        if id(owner) not in self._added:
            is_any = name == "extend" and type(value) is LateList
            if not (is_any and self._collector.is_only_filled(owner)):
                return None
            self._added.add(id(owner))
            self._collector.stored_at_end[id(owner)] = here()

        def add(value: Any) -> None:
            is_tree = name == "append" or type(value) is LateList
            self._change_later(owner, name, value if is_tree else [*value])

        return add

    def lengthened(self, owner: list[Any], value: Any) -> Any:
        """A stand-in for the list in `owner += value` that defers the addition; None: it can't."""
        add = self.added(owner.extend, value)
        return None if add is None else _Later(owner, add)

    def _is_discarded(self) -> bool:
        """Whether the user's code drops the result of the call that it is about to make."""
        at = self._collector.at
        return at is not None and at[1] in _discarded(at[0])

    def _logging(
        self, logger: logging.Logger, name: str, kwargs: dict[str, Any]
    ) -> Callable[..., Any]:
        if name == "exception" or kwargs.get("exc_info"):
            self._exits.op_by_op("it logs an exception that it handles")
        level = _LEVELS.get(name, 0)
        if name != "log":
            path = self._collector.path_of(logger)
            self._collector.answer(f"{path}.isEnabledFor({level})", logger.isEnabledFor, level)
            if not logger.isEnabledFor(level):
                return lambda *_, **__: None
        speaker: logging.Logger | None = logger
        while speaker is not None:
            self._let_listen(*speaker.filters, *speaker.handlers)
            speaker = speaker.parent if speaker.propagate else None
        frame = self.frame()
        code, line = frame.f_code, frame.f_lineno

        def log(*args: Any, extra: Any = None, **_: Any) -> None:
            if logger is logging.root and not logger.handlers:
                logging.basicConfig()  # as its functions do
            level, message, *values = args
            if logger.isEnabledFor(level):
                place = code.co_filename, line
                record = (logger.name, level, *place, message, tuple(values), None, code.co_name)
                logger.handle(logger.makeRecord(*record, extra))

        def note(*args: Any, **kwargs: Any) -> None:
            level, message, *values = args if name == "log" else (_LEVELS[name], *args)
            if not all(isinstance(x, SCALARS) or is_of_call(x) for x in (message, *values)):
                message, values = self._message(message, values), []
            self.say(log, level, message, *values, **kwargs)

        return note

    def _message(self, message: Any, values: list[Any]) -> Any:
        """What a log record says, with what objects are now."""
        if not values:
            return self.text(str, message)
        is_named = len(values) == 1 and isinstance(values[0], dict) and bool(values[0])
        return self.text(str.__mod__, str(message), values[0] if is_named else tuple(values))

    def text(self, function: Callable[..., str], *args: Any, **kwargs: Any) -> str:
        """The text that a function writes of values as they are now, also of late ones."""
        for value in (*args, *kwargs.values()):
            self._collector.read_text(value)
        is_own = "cls" in kwargs or kwargs.get("default") not in (None, float, *TEXTS)
        words = (isinstance(x, SCALARS) or is_number_or_text(x) for x in flatten(args)[0])
        if function is json.dumps and is_own and not all(words):
            self._exits.op_by_op("it writes JSON by code of its own")
        return written(function, *args, **kwargs)

    def _print(self, *args: Any, **kwargs: Any) -> None:
        """The texts are those of now: what is printed may change later in the step."""
        self._let_listen(kwargs.get("file") or sys.stdout)
        shown = [x if isinstance(x, str) or is_live(x) else self.text(str, x) for x in args]
        self.say(_printing, *shown, **kwargs)
        self.deferred[-1].prepares = True

    def _json(self, obj: Any, fp: Any, **how: Any) -> None:
        self.say(fp.write, self.text(json.dumps, obj, **how))

    def _warn(self, message: Any, category: Any = UserWarning, *_: Any, **__: Any) -> None:
        category = type(message) if isinstance(message, Warning) else category
        self.warn(self.frame(), message, category or UserWarning)

    def warn(self, frame: types.FrameType, message: Any, category: type[Warning]) -> None:
        """Let each call give a warning at its end, as the filters are then."""
        text = None if is_number_or_text(message) else str(message)
        place = frame.f_globals.get("__name__") or "<unknown>", frame.f_lineno
        self._collector.answer("warnings.filters", _is_error, text, category, *place)
        if _is_error(text, category, *place):
            self._exits.op_by_op("it gives a warning, which warnings.filters makes an error")
        self._let_listen(warnings.showwarning)
        give = warning_at(frame)
        self.say(give, message, category)
        if type(message) is str or isinstance(message, Warning):
            self.warnings.append(functools.partial(give, message, category))

    def frame(self) -> types.FrameType:
        """The user's frame that is about to call or to return."""
        assert self._collector.at is not None
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not self._collector.at[0]:
            frame = frame.f_back
        assert frame is not None
        return frame


def _is_error(text: str | None, category: type[Warning], module: str, place: int) -> bool:
    """Whether a warning raises an error, as the first of the filters says that is about it.

    text: None where only a call knows it; then no filter by texts is.
    """

    def is_about(pattern: Any, text: str | None) -> bool:
        if pattern is None or text is None:
            return pattern is None
        is_text = isinstance(pattern, str)  # as of the interpreter's own filters
        return pattern == text if is_text else bool(pattern.match(text))

    for action, message, kind, where, line in warnings.filters:
        is_there = line in (0, place) and is_about(where, module)
        if is_there and issubclass(category, kind) and is_about(message, text):
            return action == "error"
    return False


def _as_of_now(value: Any) -> Any:
    """A copy of a deferred call's argument that may change until the call is made."""
    kind = type(value)
    is_iterator = hasattr(kind, "__next__") and kind.__module__ in ("builtins", "itertools")
    if is_iterator or isinstance(value, _VIEWS):
        return [*value]
    if isinstance(value, (*PLAIN, tuple)):
        leaves, rebuild = flatten(value)
        return rebuild(leaves)
    return value


def tells(kind: type, name: str) -> bool:
    """Whether a method of a class does something outside."""
    if name not in _NAMES and not name.startswith("add_"):
        return False
    names = [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__]
    is_writer = name.startswith("add_") and any(base.endswith(_WRITERS) for base in names)
    return is_writer or any(name in _TELL.get(base, ()) for base in names)


@functools.lru_cache(maxsize=1024)
def _discarded(code: types.CodeType) -> frozenset[int]:
    """The calls whose result is dropped, by their offset."""
    found: list[int] = []
    calls: list[int] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("PRECALL", "CALL", "CALL_KW", "CALL_FUNCTION_EX"):
            calls.append(instruction.offset)
        else:
            found += calls if instruction.opname == "POP_TOP" else ()
            calls = []
    return frozenset(found)
