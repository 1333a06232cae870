"""Object code on disk, by content: what was compiled once is loaded by later processes.

An entry's name is a hash of all that the code depends on: the IR or what stands for it, the
processor, how and by which versions of LLVM and llvmlite it is compiled. Entries are trusted only
if the user owns them, not everybody may write them, and their checksum is right; others are
ignored, and written anew. Nothing here ever fails: a folder that can't be read or written means
compiling.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lucid.codegen.jit import (
    CodegenError,
    Library,
    compile_object,
    compiler_version,
    link_object,
)
from lucid.codegen.target import Target
from lucid.ir.environment import CACHE, CACHE_DIR

SIZE_LIMIT = 256 << 20
_MAGIC = b"lucid object code 1\n"
_SUFFIX = ".o"
_UNFINISHED = ".part"
_HOUR = 3600


def compiled(
    text: str | Callable[[], str],
    target: Target,
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
    *,
    key: str | None = None,
) -> Library:
    """Link the code of an IR module, from the cache if it is there.

    Args:
        key: stands for the module's text, which then is written only where it has to be.

    Raises `CodegenError` where LLVM refuses the module.
    """
    folder = cache_folder()
    if key is None:
        assert isinstance(text, str)
        key = text
    name = entry_name(key, target)
    image = None if folder is None else read_entry(folder / name)
    if image is not None:
        with contextlib.suppress(CodegenError):
            return link_object(image, exports, imports)
    image = compile_object(text if isinstance(text, str) else text(), target)
    if folder is not None:
        write_entry(folder / name, image)
    return link_object(image, exports, imports)


def cache_folder() -> Path | None:
    """`LUCID_CACHE_DIR`, or `lucid` in the user's cache folder; None if `LUCID_CACHE=0`."""
    if not CACHE.read():
        return None
    given = CACHE_DIR.read()
    if given is not None:
        return Path(given)
    try:
        return _user_folder() / "lucid"
    except RuntimeError:  # the user has no home
        return None


def _user_folder() -> Path:
    if os.name == "nt":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local) if local else Path.home() / "AppData" / "Local"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".cache"


def entry_name(key: str, target: Target) -> str:
    """The file name of what a module compiles to, by its text or what stands for it."""
    parts = (key, target.triple, target.cpu, target.features, compiler_version())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest() + _SUFFIX


# Entries --------------------------------------------------------------------------------------


def read_entry(path: Path) -> bytes | None:
    """The object code of an entry, now the one used last; None if there is none to be trusted."""
    try:
        if not _is_safe(os.stat(path.parent)):
            return None
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        with open(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not (stat.S_ISREG(status.st_mode) and _is_safe(status)):
                return None
            content = file.read()
        image = _checked(path.name, content)
        if image is not None:
            os.utime(path)
    except OSError:
        return None
    return image


def write_entry(path: Path, image: bytes) -> None:
    """Put an entry in its place in one step, whatever was there before; make room for it."""
    part = None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_safe(os.stat(path.parent)):
            return
        handle, part = tempfile.mkstemp(_UNFINISHED, dir=path.parent)
        with open(handle, "wb") as file:
            file.write(_MAGIC + _digest(path.name, image) + image)
        os.replace(part, path)
        shrink(path.parent)
    except OSError:
        if part is not None:
            with contextlib.suppress(OSError):
                os.unlink(part)


def shrink(folder: Path, limit: int = SIZE_LIMIT) -> None:
    """Remove the entries that weren't used for longest, until a tenth of the limit is free."""
    found = []
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            if entry.name.endswith(_SUFFIX):
                found.append((status.st_mtime, status.st_size, entry.path))
            elif entry.name.endswith(_UNFINISHED) and status.st_mtime < time.time() - _HOUR:
                os.unlink(entry.path)
    total = sum(size for _, size, _ in found)
    if total <= limit:
        return
    for _, size, path in sorted(found):
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
        if total <= limit - limit // 10:
            return


def _is_safe(status: os.stat_result) -> bool:
    """Whether the user owns it and not everybody may write it."""
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & stat.S_IWOTH


def _digest(name: str, image: bytes) -> bytes:
    """The checksum; it covers the name, so that an entry can't stand in for another one."""
    return hashlib.sha256(name.encode() + b"\0" + image).digest()


def _checked(name: str, content: bytes) -> bytes | None:
    start = len(_MAGIC) + hashlib.sha256().digest_size
    image = content[start:]
    return image if content[:start] == _MAGIC + _digest(name, image) else None
