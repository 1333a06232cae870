"""From LLVM IR text to machine code in this process; the only module that runs LLVM."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import llvmlite
import llvmlite.binding as llvm

from lucid.codegen.llvm.forking import Rank, hold_at_forks
from lucid.codegen.llvm.target import Target

_lock = threading.Lock()
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
_OPTIONS = {"opt": 2, "reloc": "pic", "codemodel": _CODE_MODEL, "jit": True}


class CodegenError(Exception):
    """LLVM refused generated IR: a defect of the generator, never of the user's program."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Library:
    """Linked code. It stays loaded for as long as this object lives.

    Attributes:
        addresses: exported function name to address.
        nbytes: of the object file.
    """

    addresses: Mapping[str, int]
    nbytes: int
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
        _machines[key] = llvm.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu, features=target.features, **_OPTIONS
        )
    return _machines[key]


def _parse(text: str) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise CodegenError(str(error)) from error
    return module


def compile_object(text: str, target: Target) -> bytes:
    """Machine code of an IR module, as an object file.

    No mid-level pass runs: the IR is emitted as it should execute, so that they only cost time
    and would make the result depend on LLVM's heuristics.

    Raises:
        CodegenError: the text doesn't parse or doesn't verify. (LLVM would end the process.)
    """
    with _lock:
        machine = _machine(target)
        module = _parse(text)
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        return bytes(machine.emit_object(module))


def compile_assembly(text: str, target: Target) -> str:
    """The assembler listing of an IR module, to read and to test."""
    with _lock:
        machine = _machine(target)
        module = _parse(text)
        module.data_layout = str(machine.target_data)
        return str(machine.emit_assembly(module))


def link_object(
    image: bytes, exports: Sequence[str], imports: Mapping[str, int] | None = None
) -> Library:
    """Load object code and resolve it against this process and `imports` (name to address).

    Raises:
        CodegenError: a symbol is missing.
    """
    global _linked
    with _lock:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        if not _linker:
            _linker.append(llvm.create_lljit_compiler(use_jit_link=_USE_JIT_LINK))
        builder = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
        for name, address in (imports or {}).items():
            builder.import_symbol(name, address)
        for name in exports:
            builder.export_symbol(name)
        _linked += 1
        try:
            tracker = builder.link(_linker[0], f"lucid{_linked}")
            return Library({name: tracker[name] for name in exports}, len(image), tracker)
        except (RuntimeError, KeyError) as error:
            raise CodegenError(str(error)) from error


def load(
    text: str, target: Target, exports: Sequence[str], imports: Mapping[str, int] | None = None
) -> Library:
    """Compile an IR module and link it."""
    return link_object(compile_object(text, target), exports, imports)


hold_at_forks(Rank.CODE, _lock.acquire, _lock.release)
_of_llvmlite = getattr(llvm.ffi.lib, "_lock", None)  # which code is disposed of with, too
if _of_llvmlite is not None:
    hold_at_forks(Rank.LLVM, _of_llvmlite.__enter__, _of_llvmlite.__exit__)
