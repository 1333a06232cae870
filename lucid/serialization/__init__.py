"""Saving to files and loading: nested containers of tensors, numbers and strings.

What `save` writes is data: no file of its format can name a class or a function (`container.py`,
`tree.py`). Objects of other classes are pickled, and such a file is only read by a `load` that is
told to trust it. Files that earlier versions wrote, pickles, are interpreted (`pickles.py`), not
unpickled.
"""

from __future__ import annotations

import os
import pickle
from typing import IO, Any

from lucid.compiler.recording import hooks
from lucid.device import check_device
from lucid.ir import frames
from lucid.ir.errors import ArgumentError
from lucid.serialization.container import (
    COMPLAINTS,
    Source,
    begins,
    read,
    replaced_at_once,
    write,
)
from lucid.serialization.pickles import PickleReader
from lucid.serialization.tree import Decoder, Encoder, NotDataError, PickledError, pickled

File = str | os.PathLike[str] | IO[bytes]


def save(obj: Any, f: File) -> None:
    """Write tensors, and containers of them, to a path or a binary file.

    Data are tensors, NumPy arrays and numbers, Python's numbers, strings and bytes, and lists,
    tuples, dicts, sets and the like of data; a tensor keeps its class and whether it requires grad,
    its history stays behind. What occurs twice is one object again when it is loaded. An object
    that holds anything else is pickled as a whole, and takes `load(f, weights_only=False)`.

    A path is replaced in one step: until all is written and on the disk, the older file stays. The
    format is that of safetensors, whose readers find the tensors by their place in `obj`.

    Args:
        obj: what to write.
        f: a path, or a file that is open for writing bytes.

    Raises:
        ArgumentError: `f` is neither a path nor such a file.
        OptionError: a container that holds itself, or is nested more than 100 deep.
        OSError: from writing; and what pickle raises for an object that it can't take.

    >>> import io, lucid
    >>> file = io.BytesIO()
    >>> lucid.save({"w": lucid.ones(2), "epoch": 3}, file)
    >>> _ = file.seek(0)
    >>> lucid.load(file)
    {'w': tensor([1., 1.]), 'epoch': 3}
    """
    hooks.run_op_by_op("it saves to a file, which each call is to write")
    encoder = Encoder()
    not_data = ""
    try:
        tree = encoder.encode(obj)
    except NotDataError as found:
        not_data = str(found)
    if not_data:  # what pickle raises is shown alone
        tree, encoder = pickled(pickle.dumps(obj, protocol=4), not_data)
    if isinstance(f, (str, os.PathLike)):
        with replaced_at_once(_checked_path(f, "save")) as file:
            write(file, tree, encoder.arrays)
    elif callable(getattr(f, "write", None)) and not hasattr(f, "encoding"):  # which texts have
        write(f, tree, encoder.arrays)
    else:
        kind = type(f).__name__
        raise ArgumentError(f"save takes a path or a file that is open for bytes, not a {kind}")


def load(f: File, map_location: Any = None, *, weights_only: bool | None = None) -> Any:
    """Read what `save` wrote.

    Nothing in the file is run. Sizes are compared with the length of the file before memory is
    taken, and checksums with what is read, so that a wrong file is an error and not wrong numbers.

    Args:
        f: a path, or a binary file that stands where `save` began to write; it is left where the
            data end.
        map_location: where tensors go in PyTorch; here there is the CPU alone.
        weights_only: take data alone, as None does, the default. With False, objects that `save`
            has pickled are unpickled: **this runs code that the file names**. Do it only where you
            would run a program from the same place.

    Raises:
        FileFormatError: with path, offset and what is wrong: a file that is truncated or changed,
            or that holds more than data.
        OptionError: a `map_location` other than the CPU.
        OSError: from reading.

    >>> import io, lucid
    >>> file = io.BytesIO()
    >>> lucid.save([lucid.ones(2), "note"], file)
    >>> _ = file.seek(0)
    >>> lucid.load(file)
    [tensor([1., 1.]), 'note']
    """
    hooks.run_op_by_op("it loads a file, which each call is to read")
    if not callable(map_location) and not isinstance(map_location, dict):
        check_device(map_location, "load")
    is_trusted = weights_only is False  # and not what merely counts as false
    if isinstance(f, (str, os.PathLike)):
        with open(_checked_path(f, "load"), "rb") as file:
            source = Source(file, os.fspath(f))
            loaded = _load(source, is_trusted)
            source.expect_end()
        return loaded
    source = Source(f)
    try:
        return _load(source, is_trusted)
    finally:
        source.give_back()


def _checked_path(path: str | os.PathLike[str], op: str) -> str | os.PathLike[str]:
    """The path. Raises `ArgumentError` for a text that no system takes as one."""
    try:
        if b"\0" not in os.fsencode(path):
            return path
        why = "it holds a null character"
    except UnicodeEncodeError as error:
        why = str(error)
    raise ArgumentError(f"{op}: {os.fspath(path)!a:.200} can't be a path: {why}")


def _load(source: Source, is_trusted: bool) -> Any:
    if begins(source):
        tree, arrays = source.checked(lambda: read(source))
        try:
            return source.checked(lambda: Decoder(arrays).decode(tree))
        except PickledError as found:
            if not is_trusted:
                source.refuse(str(found)[:500])
            return pickle.loads(found.data)
    if not is_trusted:
        return source.checked(PickleReader(source).read)
    try:
        return pickle.load(source)
    except (pickle.UnpicklingError, EOFError, *COMPLAINTS) as error:
        raise source.error(str(error) or type(error).__name__) from error


frames.edge_of_module(__name__)
