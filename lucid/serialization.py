"""Saving to files and loading: nested containers of tensors, numbers and strings."""

from __future__ import annotations

import io
import os
import pickle
from typing import IO, Any

from lucid.device import check_device
from lucid.ir.errors import OptionError

File = str | os.PathLike[str] | IO[bytes]

# What a file may name besides tensors and their parts: nothing that could run code.
_ALLOWED = {
    "builtins": {"set", "frozenset", "slice", "range", "complex", "bytearray"},
    "collections": {"OrderedDict", "defaultdict", "Counter"},
    "numpy": {"ndarray", "dtype"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.numeric": {"_frombuffer"},
    "lucid.tensor.tensor": {"Tensor"},
    "lucid.tensor.size": {"Size"},
    "lucid.functions.protocols": {"_rebuilt"},
    "lucid.nn.parameter": {"Parameter", "Buffer", "TransientBuffer", "_restore"},
    "lucid.ir.types": {"dtype_named"},
    "lucid.device": {"device"},
}


class _Unpickler(pickle.Unpickler):
    """Reads data, and refuses what could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if name in _ALLOWED.get(module, ()) or module == "numpy.dtypes":
            return super().find_class(module, name)
        raise OptionError(
            f"load: the file holds a {module}.{name}, which is no plain data\n"
            "hint: save a state_dict; or, where the file is to be trusted as a program is, "
            "load(f, weights_only=False)"
        )


def save(obj: Any, f: File) -> None:
    """Write tensors, and containers of them, to a path or a binary file.

    Raises: `LucidError` for tensors with history.
    """
    if isinstance(f, (str, os.PathLike)):
        data = pickle.dumps(obj, protocol=4)  # first: a failure leaves an older file as it was
        with open(f, "wb") as file:
            file.write(data)
    else:
        pickle.dump(obj, f, protocol=4)


def load(f: File, map_location: Any = None, *, weights_only: bool = True) -> Any:
    """Read what `save` wrote.

    weights_only: take plain data alone. Raises: `OptionError` for a file that holds more.
    """
    if not callable(map_location) and not isinstance(map_location, dict):
        check_device(map_location, "load")
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return load(io.BytesIO(file.read()), weights_only=weights_only)
    return _Unpickler(f).load() if weights_only else pickle.load(f)
