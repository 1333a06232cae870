"""The file: tensors in the layout of safetensors, and a tree in JSON that says what they make.

    8 bytes   n, the length of the header, little-endian
    n bytes   the header, JSON, padded with spaces:
              {"__metadata__": {"format": "lucid", "version": "1", "crc32": "…",
                                "tree": "…", "checksums": "…"},
               "net.0.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …}
    the rest  the elements of the arrays, row by row, little-endian, one array after the other

`crc32` covers length and header, with its own digits as zeros; `checksums` holds the CRC-32 of each
array's bytes. They find accidents; who forges a file can make them right, and has won nothing: the
header's sizes are compared with the length of the file before anything is allocated, and the tree
can only say data (`tree.py`).
Reference: the safetensors format, https://github.com/huggingface/safetensors.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import IO, Any, NoReturn, TypeVar
from zipfile import BadZipFile

import numpy as np

from lucid.ir.errors import ArgumentError, FileFormatError
from lucid.serialization.arrays import (
    STORED_DTYPES,
    check_elements,
    checked_shape,
    stored_name,
)

T = TypeVar("T")

_LENGTH_BYTES = 8
_LONGEST_HEADER = 100_000_000  # the limit of safetensors
_FORMAT = b'{"__metadata__":{"format":"lucid","version":"'
_VERSION = b"1"
_BEFORE_CHECKSUM = _FORMAT + _VERSION + b'","crc32":"'
_NO_CHECKSUM = b"00000000"
_CHECKSUM = slice(len(_BEFORE_CHECKSUM), len(_BEFORE_CHECKSUM) + len(_NO_CHECKSUM))
_PIECE = 1 << 24  # bytes that are read, hashed or written at once
# What Python and NumPy raise for sizes, codes and texts that make no sense.
COMPLAINTS = (
    ValueError, TypeError, LookupError, ArithmeticError, MemoryError, RecursionError
)  # fmt: skip
# What files raise, besides an `OSError` without a number, that unpack another one.
_DAMAGES: tuple[type[Exception], ...] = (OSError, EOFError, MemoryError, zlib.error, BadZipFile)
with contextlib.suppress(ImportError):  # Python can be built without it
    from lzma import LZMAError

    _DAMAGES = (*_DAMAGES, LZMAError)
_METADATA = {"format", "version", "crc32", "tree", "checksums"}


# Writing --------------------------------------------------------------------------------------


def write(file: Any, tree: object, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a tree and the arrays that it names, which are contiguous and little-endian."""
    # Larger elements first, as safetensors has it: so each array begins at a multiple of its own.
    names = sorted(arrays, key=lambda name: -arrays[name].itemsize)
    entries: dict[str, object] = {}
    checksums = {}
    offset = 0
    for name in names:
        array = arrays[name]
        end = offset + array.nbytes
        dtype = stored_name(array.dtype)
        entries[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": (offset, end)}
        checksums[name] = zlib.crc32(_bytes_of(array))
        offset = end
    metadata = {"tree": _json(tree), "checksums": _json(checksums)}
    _write_all(file, memoryview(_header(metadata, entries)))
    for name in names:
        data = _bytes_of(arrays[name])
        for start in range(0, len(data), _PIECE):
            _write_all(file, data[start : start + _PIECE])


def _write_all(file: Any, data: memoryview) -> None:
    """Write to a file which may take less than it is given, as files without a buffer do."""
    while len(data):
        count = file.write(data)
        if isinstance(count, int) and count <= 0:
            raise OSError(f"save: a {type(file).__name__} took {count} of {len(data)} bytes")
        data = data[count:] if isinstance(count, int) else data[:0]


def _header(metadata: Mapping[str, str], entries: Mapping[str, object]) -> bytes:
    """Length and header, with the checksum in its place."""
    rest = [_json(metadata)[1:], *(f"{_json(name)}:{_json(e)}" for name, e in entries.items())]
    text = _BEFORE_CHECKSUM + _NO_CHECKSUM + b'",' + ",".join(rest).encode() + b"}"
    text += b" " * (-len(text) % _LENGTH_BYTES)
    length = len(text).to_bytes(_LENGTH_BYTES, "little")
    checksum = b"%08x" % zlib.crc32(length + text)
    return length + text[: _CHECKSUM.start] + checksum + text[_CHECKSUM.stop :]


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _bytes_of(array: np.ndarray) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


@contextlib.contextmanager
def replaced_at_once(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to be written, which takes the place of `path` when all of it is on the disk.

    A link stays a link, a file keeps its permissions; what is no file, a pipe, is written as it is.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = None
    if not os.fspath(path) or (mode is not None and not stat.S_ISREG(mode)):
        with open(path, "wb") as file:
            yield file
        return
    place = os.fsdecode(os.path.realpath(path))
    folder, name = os.path.split(place)
    part = os.path.join(folder, f".{name[:40]}.{os.urandom(6).hex()}.part")
    try:
        created = open(part, "xb")  # noqa: SIM115 - closed below; nothing to remove if it fails
    except OSError as error:
        error.filename = os.fsdecode(path)
        raise
    try:
        with created as file:
            yield file
            file.flush()
            if mode is not None:
                with contextlib.suppress(OSError):  # a file system without permissions
                    os.chmod(part, stat.S_IMODE(mode))
            os.fsync(file.fileno())
        os.replace(part, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    """Have the new name on the disk as well, where the system lets a folder be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# Reading --------------------------------------------------------------------------------------


class Source:
    """A binary file that is read once from where it stands, and knows how far it is.

    Attributes:
        name: what messages call it.
        offset: bytes read so far.
        left: bytes that are left; None for a stream, whose length nobody knows.
    """

    def __init__(self, file: Any, name: str | bytes | None = None) -> None:
        if not callable(getattr(file, "read", None)):
            kind = type(file).__name__
            raise ArgumentError(f"load takes a path or a file that is open for bytes, not a {kind}")
        self._file = file
        given = name or getattr(file, "name", None) or f"a {type(file).__name__}"
        self.name = os.fsdecode(given) if isinstance(given, (str, bytes)) else str(given)
        self.offset = 0
        self._ahead = b""
        self.left = _bytes_left(file)
        self._room = _memory_bytes()

    def error(self, what: str, offset: int | None = None) -> FileFormatError:
        """The error that names file, offset and what is wrong there."""
        at = self.offset if offset is None else offset
        return FileFormatError(f"load: {self.name}, byte {at}: {what}")

    def refuse(self, what: str) -> NoReturn:
        """Raise that a file holds more than data."""
        raise self.error(
            f"the file holds {what}, which is no plain data\n"
            "hint: save a state_dict; or, where the file is to be trusted as a program is, "
            "load(f, weights_only=False)"
        )

    def checked(self, make: Callable[[], T]) -> T:
        """What a function makes of the file's contents; its complaints become the file's error."""
        try:
            return make()
        except FileFormatError:
            raise
        except COMPLAINTS as error:
            raise self.error(str(error) or type(error).__name__) from error

    def peek(self, count: int) -> bytes:
        """The next bytes, which are still to be read; fewer at the end."""
        self._ahead += self._read(count - len(self._ahead))
        return self._ahead[:count]

    def exactly(self, count: int, what: str) -> bytes:
        """The next bytes. Raises `FileFormatError` where there are fewer."""
        self.expect(count, what)
        data = self._next(count)
        if len(data) < count:
            raise self._ends_early(count, what, len(data))
        self._advance(count)
        return data

    def expect(self, count: int, what: str) -> None:
        """Raise `FileFormatError` if so many bytes can't come, or memory can't hold them."""
        if self.left is not None and count > self.left:
            raise self._ends_early(count, what, self.left)
        if count > self._room:
            raise self.error(f"{what} takes {count} bytes, more than this machine's memory")

    def fill(self, memory: memoryview, what: str) -> int:
        """Read as many bytes as the memory has room for, and return their CRC-32."""
        checksum = 0
        for start in range(0, len(memory), _PIECE):
            piece = memory[start : start + _PIECE]
            piece[:] = self.exactly(len(piece), what)
            checksum = zlib.crc32(piece, checksum)
        return checksum

    def give_back(self) -> None:
        """Have the file stand behind what was read, if it can: short pickles end sooner."""
        if self._ahead:
            with contextlib.suppress(AttributeError, OSError):
                self._file.seek(-len(self._ahead), os.SEEK_CUR)
            self._ahead = b""

    def expect_end(self) -> None:
        """Raise `FileFormatError` where something comes after the data."""
        if self.peek(1):
            raise self.error("there is more in the file than the data that it begins with")

    def read(self, count: int = -1) -> bytes:
        """As of a file, for pickle."""
        data = self._next(self._room if count < 0 else count)
        self._advance(len(data))
        return data

    def readline(self) -> bytes:
        """As of a file, for pickle."""
        line = bytearray()
        while not line.endswith(b"\n"):
            byte = self.read(1)
            if not byte:
                break
            line += byte
        return bytes(line)

    def _advance(self, count: int) -> None:
        self.offset += count
        if self.left is not None:
            self.left -= count

    def _next(self, count: int) -> bytes:
        if not self._ahead:
            return self._read(count)
        data, self._ahead = self._ahead[:count], self._ahead[count:]
        return data + self._read(count - len(data)) if len(data) < count else data

    def _read(self, count: int) -> bytes:
        """Up to so many bytes; memory is only taken for what is there."""
        pieces = []
        while count > 0:
            piece = self._piece(min(count, _PIECE))
            if not isinstance(piece, bytes):
                raise self.error("load reads files that are open for bytes, mode 'rb'")
            if not piece:
                break
            pieces.append(piece)
            count -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _piece(self, count: int) -> Any:
        """What the file has for one call; what a compressed one says of its contents is ours."""
        try:
            return self._file.read(count)
        except _DAMAGES as error:
            if isinstance(error, OSError) and (error.errno or isinstance(error, ValueError)):
                raise  # of the system's, or of a file that isn't open for reading
            raise self.error(
                f"it can't be unpacked: {str(error) or type(error).__name__}"
            ) from error

    def _ends_early(self, count: int, what: str, left: int) -> FileFormatError:
        return self.error(f"{what} takes {count} bytes, and the file ends after {left}")


def _bytes_left(file: Any) -> int | None:
    """How many bytes are left in a file; None if it doesn't know.

    Asking a compressed file for its end would unpack it, so only plain files are asked.
    """
    if isinstance(file, io.BytesIO):
        return max(len(file.getbuffer()) - file.tell(), 0)
    raw = getattr(file, "raw", file)
    if isinstance(raw, io.FileIO):
        status = os.fstat(raw.fileno())
        if stat.S_ISREG(status.st_mode):
            return max(status.st_size - int(file.tell()), 0)
    return None


def _memory_bytes() -> int:
    """What the process may have at most: the machine's memory, or what it is limited to."""
    found = [2**62]
    with contextlib.suppress(AttributeError, ValueError, OSError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        found += [limit] if limit != resource.RLIM_INFINITY else []
    return min(found)


def begins(source: Source) -> bool:
    """Whether a file is of this format. Raises `FileFormatError` for what nobody could have saved.

    A pickle, which begins with the byte 0x80 and no header, is left to others.
    """
    head = source.peek(_LENGTH_BYTES + len(_BEFORE_CHECKSUM))
    if head[_LENGTH_BYTES:] == _BEFORE_CHECKSUM:
        return True
    if head[_LENGTH_BYTES:].startswith(_FORMAT):
        version = head[_LENGTH_BYTES + len(_FORMAT) :].split(b'"')[0]
        raise source.error(
            f"version {version.decode(errors='replace')} of the format, and this lucid reads "
            f"version {_VERSION.decode()}\nhint: load it with the lucid that wrote it"
        )
    if head.startswith(b"\x80"):
        return False
    raise source.error(_not_ours(head))


def _not_ours(head: bytes) -> str:
    if not head:
        return "the file is empty"
    if head.startswith(b"PK\x03\x04"):
        return (
            "a zip archive, as torch.save and numpy.savez write it\n"
            "hint: read it with the library that made it, and save NumPy arrays with lucid.save"
        )
    if head[_LENGTH_BYTES:].startswith(b"{"):
        return (
            "a file of safetensors that another library wrote\n"
            "hint: safetensors.numpy.load_file(path) and lucid.from_numpy"
        )
    if head.startswith(b"\x1f\x8b"):
        return "compressed by gzip\nhint: load(gzip.open(f))"
    return "this is no file that lucid.save wrote"


def read(source: Source) -> tuple[Any, dict[str, np.ndarray]]:
    """The tree of a file and its arrays, each with its own memory.

    Raises: `FileFormatError` for anything that `write` doesn't write.
    """
    length = source.exactly(_LENGTH_BYTES, "the length of the header")
    size = int.from_bytes(length, "little")
    if size > _LONGEST_HEADER:
        raise source.error(f"a header of {size} bytes, and {_LONGEST_HEADER} are possible", 0)
    text = source.exactly(size, "the header")
    start = source.offset
    zeroed = text[: _CHECKSUM.start] + _NO_CHECKSUM + text[_CHECKSUM.stop :]
    if text[_CHECKSUM] != b"%08x" % zlib.crc32(length + zeroed):
        raise source.error("the header isn't what was written: its checksum differs", 8)
    tree, checksums, entries = source.checked(lambda: _parsed(text))
    total = sum(nbytes for _, _, _, nbytes in entries)
    source.expect(total, "the data")
    arrays = {}
    for name, dtype, shape, nbytes in entries:
        arrays[name] = _read_array(source, name, dtype, shape, nbytes, checksums[name])
    assert source.offset == start + total
    return tree, arrays


Entry = tuple[str, np.dtype[Any], tuple[int, ...], int]


def _parsed(text: bytes) -> tuple[Any, dict[str, int], list[Entry]]:
    """Tree, checksums and arrays in the order of their data. Raises `ValueError`."""
    header = _parse_json(text.decode("utf-8"))
    metadata = header.pop("__metadata__") if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or set(metadata) != _METADATA:
        raise ValueError(f"the header's metadata are {', '.join(sorted(_METADATA))}")
    tree, checksums = (_parse_json(metadata[key]) for key in ("tree", "checksums"))
    if not isinstance(checksums, dict) or set(checksums) != set(header):
        raise ValueError("the header has a checksum for each array")
    entries: list[Entry] = []
    offset = 0
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"{name!r}: an array has dtype, shape and data_offsets")
        begin, end = _pair(entry["data_offsets"])
        if begin != offset or end < begin:
            raise ValueError(f"{name!r}: data at {begin} to {end}, where those at {offset} are due")
        if entry["dtype"] not in STORED_DTYPES:
            raise ValueError(f"{name!r}: no dtype is called {str(entry['dtype'])[:80]!r}")
        dtype = np.dtype(STORED_DTYPES[entry["dtype"]])
        shape = checked_shape(entry["shape"], dtype, end - begin)
        entries.append((name, dtype, shape, end - begin))
        offset = end
    return tree, checksums, entries


def _pair(value: object) -> tuple[int, int]:
    if isinstance(value, list) and [type(v) for v in value] == [int, int]:
        return value[0], value[1]
    raise ValueError("data_offsets are two ints")


def _parse_json(text: object) -> Any:
    if not isinstance(text, str):
        raise ValueError("the header's metadata are strings")
    return json.loads(text, object_pairs_hook=_without_repetition, parse_constant=_no_number)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("the header names something twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _read_array(
    source: Source, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], nbytes: int, crc: int
) -> np.ndarray:
    begin = source.offset
    assert prod(shape) * dtype.itemsize == nbytes
    array: np.ndarray = source.checked(lambda: np.empty(shape, dtype))
    if source.fill(_bytes_of(array), f"array {name!r}") != crc:
        what = f"array {name!r} isn't what was written: its checksum differs"
        raise source.error(f"{what} (bytes {begin} to {source.offset})", begin)
    source.checked(lambda: check_elements(array))
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))
