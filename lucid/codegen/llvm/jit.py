"""From LLVM IR text to machine code in this process; the only module that runs LLVM."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Self

import llvmlite

from lucid.codegen.llvm.forking import Rank, compiling as _lock, hold_at_forks
from lucid.codegen.llvm.library import llvm
from lucid.codegen.llvm.target import Target

_machines: dict[tuple[str, str, str], llvm.TargetMachine] = {}
_linker: list[llvm.LLJIT] = []
_linked = 0
# JITLink lays the sections of an object out in one mapping and reaches what lies elsewhere through
# stubs, so that code of the small code model runs wherever the mapping comes to lie, and what can't
# be linked is an error. RuntimeDyld places each section by itself, and ends the process where two
# come to lie more than 2 GiB apart. For Windows' objects LLVM has no other: code gets 64-bit
# addresses there.
_USE_JIT_LINK = os.name != "nt"
_CODE_MODEL = "small" if _USE_JIT_LINK else "large"
_SECONDS = 0.2  # after which a thread without work looks whether there is to be more
_OPTIONS = {"opt": 2, "reloc": "pic", "codemodel": _CODE_MODEL, "jit": True}


class CodegenError(Exception):
    """LLVM refused generated IR: a defect of the generator, never of the user's program."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Library:
    """Linked code. It stays loaded for as long as this object lives.

    Attributes:
        addresses: exported function name to address.
        nbytes: of the object files.
        was_compiled: whether LLVM has just made it; False: it was on disk.
    """

    addresses: Mapping[str, int]
    nbytes: int
    was_compiled: bool
    _tracker: llvm.ResourceTracker = field(repr=False)


def compiler_version() -> str:
    """What object code depends on besides IR and target; part of a cache key."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return f"llvm {version}, llvmlite {llvmlite.__version__}, {_OPTIONS}"


def _machine(target: Target) -> llvm.TargetMachine:
    key = (target.triple, target.cpu, target.features)
    if key not in _machines:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        _machines[key] = _new_machine(target)
    return _machines[key]


def _new_machine(target: Target) -> llvm.TargetMachine:
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, **_OPTIONS
    )


def _parse(text: str, target: Target) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(_head(target) + text, llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise CodegenError(str(error)) from error
    return module


@functools.cache
def _head(target: Target) -> str:
    """What a text begins with; to say it by calls takes six of them, and `_held` says why not."""
    layout = _machine(target).target_data
    return f'target datalayout = "{layout}"\ntarget triple = "{target.triple}"\n'


@functools.cache
def _held(name: str) -> Callable[..., Any]:
    """A short function of llvmlite's that keeps the interpreter's lock.

    Who has given it up beside a thread that runs Python waits 5 ms for it.
    """
    wrapped = getattr(llvm.ffi.lib, name)
    function = getattr(wrapped, "_cfn", wrapped)
    kind = ctypes.PYFUNCTYPE(function.restype, *function.argtypes)
    return kind(ctypes.cast(function, ctypes.c_void_p).value or 0)


Take = Callable[[str], None]
"""Who is given the text of a module."""


def compile_objects(modules: Sequence[str] | Callable[[Take], None], target: Target) -> list[bytes]:
    """Machine code of IR modules, as object files; processors share the work.

    No mid-level pass runs: the IR is emitted as it should execute, so that they only cost time
    and would make the result depend on LLVM's heuristics.

    Args:
        modules: the texts; or what writes them, and hands each over, to be compiled meanwhile.

    Raises:
        CodegenError: a text doesn't parse or doesn't verify. (LLVM would end the process.)
    """
    with Compilation(target) as compilation:
        if callable(modules):
            modules(compilation.take)
        else:
            for text in modules:
                compilation.take(text)
        return compilation.images()


class Compilation:
    """IR modules on their way to machine code, in a block, by threads beside the one of the block.

    Args:
        to_come: how many modules are sure to follow the first one.
    """

    def __init__(self, target: Target, to_come: int = 0) -> None:
        self._target, self._to_come = target, to_come
        self._images: list[bytes] = []
        self._waiting: SimpleQueue[tuple[int, str] | None] = SimpleQueue()
        self._errors: list[Exception] = []
        self._others: list[threading.Thread] = []

    def __enter__(self) -> Self:
        _lock.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        try:  # a fork waits for all of them
            with contextlib.suppress(Empty):
                while True:
                    self._waiting.get_nowait()
            self._join()
        finally:
            _lock.release()

    def take(self, text: str) -> None:
        """Begin with a module."""
        _machine(self._target)  # LLVM has begun
        self._waiting.put((len(self._images), text))
        self._images.append(b"")
        count = len(self._images) + self._to_come
        if len(self._others) < min(processors(), count) - 1:
            args = [_new_machine(self._target)]
            thread = threading.Thread(target=self._compile_some, args=args, daemon=True)
            self._others.append(thread)  # first: an interrupt may come as it has started
            with contextlib.suppress(RuntimeError):  # there can't be more threads
                thread.start()

    def images(self) -> list[bytes]:
        """What became of all modules; this thread helps. Raises what `compile_objects` does."""
        self._waiting.put(None)
        self._compile_some(_machine(self._target))
        self._join()
        if self._errors:
            raise self._errors[0]
        return self._images

    def _join(self) -> None:
        """Wait until all threads have ended."""
        self._waiting.put(None)
        for other in self._others:
            with contextlib.suppress(RuntimeError):  # it hasn't been started
                other.join()

    def _compile_some(self, machine: llvm.TargetMachine) -> None:
        """Compile modules until none is left, with a machine of this thread's own."""
        try:
            while (module := self._next()) is not None:
                self._images[module[0]] = _object(module[1], self._target, machine)
        except Exception as error:
            self._errors.append(error)

    def _next(self) -> tuple[int, str] | None:
        """The next module; None: there is none, or an interrupt has kept the block from its end."""
        while True:
            with contextlib.suppress(Empty):
                module = self._waiting.get(timeout=_SECONDS)
                if module is None:  # the others are to find it, too
                    self._waiting.put(None)
                return module
            if _lock.acquire(blocking=False):  # nobody compiles
                _lock.release()
                return None


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _object(text: str, target: Target, machine: llvm.TargetMachine) -> bytes:
    module = _parse(text, target)
    # llvmlite has all of LLVM wait for one lock; what has a context of its own need not.
    emit = llvm.ffi.lib.LLVMPY_TargetMachineEmitToMemory
    with llvm.ffi.OutputString() as error:
        memory = getattr(emit, "_cfn", emit)(machine, module, 1, error)
        if not memory:
            raise CodegenError(str(error))
    try:
        size = _held("LLVMPY_GetBufferSize")(memory)
        return ctypes.string_at(_held("LLVMPY_GetBufferStart")(memory), size)
    finally:
        _held("LLVMPY_DisposeMemoryBuffer")(memory)


def compile_assembly(text: str, target: Target) -> str:
    """The assembler listing of an IR module, to read and to test."""
    with _lock:
        return str(_machine(target).emit_assembly(_parse(text, target)))


def link_objects(
    images: Sequence[bytes],
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
    *,
    was_compiled: bool = False,
) -> Library:
    """Load object files and resolve them against each other, this process, and `imports`.

    Args:
        imports: name to address; `was_compiled`: what `Library` is to say of it.

    Raises:
        CodegenError: a symbol is missing.
    """
    global _linked
    with _lock:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        if not _linker:
            _linker.append(llvm.create_lljit_compiler(use_jit_link=_USE_JIT_LINK))
        builder = llvm.JITLibraryBuilder().add_current_process()
        for image in images:
            builder.add_object_img(image)
        for name, address in (imports or {}).items():
            builder.import_symbol(name, address)
        for name in exports:
            builder.export_symbol(name)
        _linked += 1
        try:
            tracker = builder.link(_linker[0], f"lucid{_linked}")
            addresses = {name: tracker[name] for name in exports}
            return Library(addresses, sum(map(len, images)), was_compiled, tracker)
        except (RuntimeError, KeyError) as error:
            raise CodegenError(str(error)) from error


def load(
    text: str, target: Target, exports: Sequence[str], imports: Mapping[str, int] | None = None
) -> Library:
    """Compile an IR module and link it."""
    return link_objects(compile_objects([text], target), exports, imports)


hold_at_forks(Rank.CODE, _lock.acquire, _lock.release)
_of_llvmlite = getattr(llvm.ffi.lib, "_lock", None)  # which code is disposed of with, too
if _of_llvmlite is not None:
    hold_at_forks(Rank.LLVM, _of_llvmlite.__enter__, _of_llvmlite.__exit__)
