"""Object code on disk, by content: what was compiled once is loaded by later processes.

An entry's name is a hash of all that the code depends on: the IR or what stands for it, the
processor, how and by which versions of LLVM and llvmlite it is compiled.

Who can write an entry can run code as the user, so entries stand in a folder that lucid makes for
them alone, `lucid-objects`, with mode 0700 whatever the umask. It is trusted if the user owns it
and nobody else may write it, nor rename it in the folder around it, unless that is sticky as /tmp
is; an entry if that holds for the file too and its checksum is right. It is opened once, no link
followed, checked, and then used by its descriptor: it stays the one that was checked.

In that folder, names that lucid makes are replaced and removed, and no others. Nothing here ever
fails: a folder that can't be trusted, read or written means compiling, and a warning says so if it
was asked for or anyone may have meddled with it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from lucid.codegen.llvm.jit import (
    CodegenError,
    Library,
    Take,
    compile_objects,
    compiler_version,
    link_objects,
)
from lucid.codegen.llvm.target import Target
from lucid.ir.environment import CACHE, CACHE_DIR, warn_once
from lucid.ir.errors import OutOfMemoryError
from lucid.ir.logs import say
from lucid.ir.memory import is_available

SIZE_LIMIT = 256 << 20  # bytes, of all entries
COUNT_LIMIT = 8192  # of them, two for a program; to look at one takes 3 us
LLVM_BYTES = 64 << 20  # address space that should be free while it works
FOLDER = "lucid-objects"
_ALIKE = 16  # digits of a name
_MAGIC = b"lucid object code 2\n"
_LENGTH = struct.Struct("<Q")
_ENTRY = re.compile(r"[0-9a-f]{64}\.o")
_UNFINISHED = re.compile(r"[0-9a-f]{64}\.o\.[0-9a-f]{16}\.part")
_HOUR = 3600

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
# Links aren't followed, and there is no waiting for the other end of a FIFO.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_READ |= getattr(os, "O_BINARY", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def compiled(
    modules: str | Callable[[Take], None],
    target: Target,
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
    *,
    key: str | None = None,
    begin: str = "",
    finish: Callable[[], list[bytes]] | None = None,
) -> Library:
    """Link the code of IR modules, from the cache if it is there.

    Args:
        modules: the text of one, or what writes those of several where it has to be done, and
            hands each over.
        key: stands for the texts of several; begin: for the first ones of them, as `may_have` asks.
        finish: ends a compilation of them that has begun; None: none has.

    Raises `CodegenError` where LLVM refuses a module, `OutOfMemoryError` before it is short.
    """
    if key is None:
        assert isinstance(modules, str)
        key = modules
    found = cached(target, exports, imports, key=key, begin=begin)
    if found is not None:
        return found
    folder, name = cache_folder(), entry_name(key, target, begin)
    if finish is not None:
        images = finish()
    else:
        images = compile_objects([modules] if isinstance(modules, str) else modules, target)
    say("cache", "no %s: compiled in %d parts", name, len(images))
    if folder is not None:
        write_entry(folder / name, _packed(images))
    return link_objects(images, exports, imports, was_compiled=True)


def cached(
    target: Target,
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
    *,
    key: str,
    begin: str = "",
) -> Library | None:
    """The same where it is there; None where it would have to be compiled."""
    require_memory()
    folder, name = cache_folder(), entry_name(key, target, begin)
    image = None if folder is None else read_entry(folder / name)
    if image is not None:
        with contextlib.suppress(CodegenError):
            found = link_objects(_unpacked(image), exports, imports)
            say("cache", "found %s, %d KB", name, len(image) >> 10)
            return found
    return None


def _packed(images: Sequence[bytes]) -> bytes:
    """Object files behind each other, each behind its length."""
    return b"".join(_LENGTH.pack(len(image)) + image for image in images)


def _unpacked(packed: bytes) -> list[bytes]:
    images: list[bytes] = []
    at = 0
    while at < len(packed):
        (length,) = _LENGTH.unpack_from(packed, at)
        at += _LENGTH.size
        images.append(packed[at : at + length])
        at += length
    return images


def require_memory() -> None:
    """Raise `MemoryError` where LLVM may find none: it ends the process then."""
    if not is_available(LLVM_BYTES):
        raise OutOfMemoryError(
            f"compile: LLVM needs some {LLVM_BYTES >> 20} MiB of memory, which can't be allocated\n"
            "hint: raise the limit on the process (ulimit -v), or compile before memory is used up"
        )


def cache_folder() -> Path | None:
    """Where entries are: in `LUCID_CACHE_DIR`, or in `lucid` in the user's cache folder.

    None if `LUCID_CACHE` is off.
    """
    if not CACHE.read():
        return None
    given = CACHE_DIR.read()
    if given is not None:
        return Path(os.path.expanduser(given), FOLDER)
    try:
        return _user_folder() / "lucid" / FOLDER
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


def entry_name(key: str, target: Target, begin: str = "") -> str:
    """The file name of what a module compiles to, by its text or what stands for it.

    The names of what begins alike begin alike.
    """
    return (_name(begin, target)[:_ALIKE] + _name(key, target))[:64] + ".o"


def may_have(begin: str, target: Target) -> bool:
    """Whether there is an entry of something that begins so."""
    folder = cache_folder()
    if folder is None:
        return False
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    alike = _name(begin, target)[:_ALIKE]
    return any(name.startswith(alike) for name in names)


def _name(key: str, target: Target) -> str:
    parts = (key, target.triple, target.cpu, target.features, compiler_version())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


# The folder -----------------------------------------------------------------------------------


class UntrustedFolderError(OSError):
    """The folder of entries is another user's, or others may write it."""


class Folder:
    """The folder of entries, held open until the end of the block: it stays the one checked.

    Names are looked up in what is open, not in what may have come into its place. Where the system
    can't do that, on Windows, they are looked up by path.

    Raises `OSError` if there is no folder, or `make` fails; `UntrustedFolderError` if there is one
    that isn't the user's alone.
    """

    def __init__(self, path: Path, make: bool = False) -> None:
        self._path = path
        self._descriptor: int | None = None
        try:
            self._open()
        except FileNotFoundError:
            if not make:
                raise
            os.makedirs(path.parent, 0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
            self._open()

    def _open(self) -> None:
        _check_around(self._path.parent, os.stat(self._path.parent))
        _check_folder(self._path, os.lstat(self._path))  # one that can't be opened says why, too
        if not _BY_DESCRIPTOR:
            return
        descriptor = os.open(self._path, _READ | os.O_DIRECTORY)
        try:
            _check_folder(self._path, os.fstat(descriptor))
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _place(self, name: str) -> str:
        return name if self._descriptor is not None else os.path.join(self._path, name)

    def open(self, name: str, flags: int) -> int:
        """A descriptor of a file, which the user alone may read and write if it is made."""
        return os.open(self._place(name), flags, 0o600, dir_fd=self._descriptor)

    def status(self, name: str) -> os.stat_result:
        """Of what has this name, a link itself included."""
        return os.stat(self._place(name), dir_fd=self._descriptor, follow_symlinks=False)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name in one step, whatever file had it before."""
        at = self._descriptor
        os.replace(self._place(old), self._place(new), src_dir_fd=at, dst_dir_fd=at)

    def remove(self, name: str) -> None:
        """Remove a file."""
        os.unlink(self._place(name), dir_fd=self._descriptor)

    def touch(self, name: str) -> None:
        """Make a file the one used last."""
        os.utime(self._place(name), dir_fd=self._descriptor)

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """What is in it and is a file, no link, by name."""
        with os.scandir(self._path if self._descriptor is None else self._descriptor) as found:
            for entry in found:
                with contextlib.suppress(OSError):  # another process has removed it
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield entry.name, status


def _check_around(path: Path, status: os.stat_result) -> None:
    """Raise where others may rename what is in a folder."""
    if not hasattr(os, "geteuid"):
        return
    if status.st_uid not in (os.geteuid(), 0):
        raise UntrustedFolderError(f"{path} belongs to another user, and a cache is one user's")
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if shared and not status.st_mode & stat.S_ISVTX:
        raise UntrustedFolderError(
            f"others may write to {path} (mode {stat.S_IMODE(status.st_mode):04o}), and what is in "
            f"it would be run; chmod go-w {path}"
        )


def _check_folder(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{path} is no folder")
    if not _is_owned(status):
        raise UntrustedFolderError(f"{path} belongs to another user, and a cache is one user's")
    if not _is_private(status):
        mode = stat.S_IMODE(status.st_mode)
        raise UntrustedFolderError(
            f"others may write to {path} (mode {mode:04o}), and what is in it would be run; "
            "once it is removed, lucid makes it anew"
        )


def _is_owned(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _is_private(status: os.stat_result) -> bool:
    """Whether the user owns it and nobody else may write it; not said by Windows."""
    if not hasattr(os, "geteuid"):
        return True
    return _is_owned(status) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _explain(error: OSError) -> None:
    """Say why nothing is cached, to those who asked for a folder or must know that it is open."""
    if CACHE_DIR.read() is not None:
        CACHE_DIR.refuse(f"expected {CACHE_DIR.values}; compiled code isn't cached: {error}")
    elif isinstance(error, UntrustedFolderError):
        warn_once(f"compiled code isn't cached: {error}")
    else:  # the system's users need not have a home that can be written
        say("cache", "compiled code isn't cached: %s", error)


# Entries --------------------------------------------------------------------------------------


def read_entry(path: Path) -> bytes | None:
    """The object code of an entry, now the one used last; None if there is none to be trusted."""
    try:
        with Folder(path.parent) as folder:
            image = _read(folder, path.name)
            if image is not None:
                with contextlib.suppress(OSError):  # it can't be written
                    folder.touch(path.name)
            return image
    except OSError:
        return None


def _read(folder: Folder, name: str) -> bytes | None:
    if not _is_entry(folder.status(name)):  # some devices act when they are opened
        return None
    with open(folder.open(name, _READ), "rb") as file:
        status = os.fstat(file.fileno())
        if not _is_entry(status):
            return None
        head = file.read(len(_MAGIC) + hashlib.sha256().digest_size)
        if not head.startswith(_MAGIC):
            return None
        image = file.read(status.st_size)
    return image if head == _MAGIC + _digest(name, image) else None


def _is_entry(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and _is_private(status) and status.st_size <= SIZE_LIMIT


def write_entry(path: Path, image: bytes) -> None:
    """Put an entry in its place in one step, whatever was there before; make room for it."""
    try:
        folder = Folder(path.parent, make=True)
    except OSError as error:
        _explain(error)
        return
    with folder:
        try:
            _write(folder, path.name, image)
            if path.name.startswith("0"):  # one in sixteen: it looks at all of them
                shrink(folder)
        except OSError as error:
            say("cache", "%s isn't cached: %s", path.name, error)


def _write(folder: Folder, name: str, image: bytes) -> None:
    part = f"{name}.{os.urandom(8).hex()}.part"
    handle = folder.open(part, _WRITE)
    try:
        with open(handle, "wb") as file:
            file.write(_MAGIC + _digest(name, image) + image)
        folder.rename(part, name)
    except BaseException:
        with contextlib.suppress(OSError):
            folder.remove(part)
        raise


def _digest(name: str, image: bytes) -> bytes:
    """The checksum; it covers the name, so that an entry can't stand in for another one."""
    return hashlib.sha256(name.encode() + b"\0" + image).digest()


def contents(path: Path) -> tuple[int, int]:
    """How many entries a folder has, and how many bytes; none where it can't be trusted."""
    try:
        with Folder(path) as folder:
            sizes = [status.st_size for name, status in folder.files() if _ENTRY.fullmatch(name)]
    except OSError:
        return 0, 0
    return len(sizes), sum(sizes)


def clear(path: Path) -> tuple[int, int]:
    """Remove all entries of a folder, and what unfinished writes have left; as `contents` counts.

    Raises `OSError` for a folder that isn't the user's alone, or that can't be written.
    """
    if not path.exists():
        return 0, 0
    found = contents(path)
    with Folder(path) as folder:
        for name, _ in list(folder.files()):
            if _ENTRY.fullmatch(name) or _UNFINISHED.fullmatch(name):
                with contextlib.suppress(FileNotFoundError):  # another process has removed it
                    folder.remove(name)
    return found


def shrink(folder: Folder, limit: int = SIZE_LIMIT, most: int = COUNT_LIMIT) -> None:
    """Remove the entries that weren't used for longest, until a tenth of the limits is free.

    What a process that ended in the middle has left goes after an hour.
    """
    found = []
    for name, status in folder.files():
        if _ENTRY.fullmatch(name):
            found.append((status.st_mtime, status.st_size, name))
        elif _UNFINISHED.fullmatch(name) and status.st_mtime < time.time() - _HOUR:
            with contextlib.suppress(OSError):
                folder.remove(name)
    total, count = sum(size for _, size, _ in found), len(found)
    if total <= limit and count <= most:
        return
    for _, size, name in sorted(found):
        with contextlib.suppress(OSError):
            folder.remove(name)
        total, count = total - size, count - 1
        if total <= limit - limit // 10 and count <= most - most // 10:
            return
