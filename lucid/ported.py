"""Modules whose contents stand elsewhere here, of PyTorch and for einops: programs import them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

# Of each module the names that it has and where they are, or the module that it stands for.
_PLACES: dict[str, dict[str, str] | str] = {
    "einops.layers.lucid": "lucid.utils.einops",
    "lucid.multiprocessing": "multiprocessing",
    "lucid.autograd.profiler": "lucid.profiler",
    "lucid.nn.modules.channelshuffle": {"ChannelShuffle": "lucid.nn.ChannelShuffle"},
    "lucid.nn.modules.flatten": {
        "Flatten": "lucid.nn.Flatten",
        "Unflatten": "lucid.nn.Unflatten",
    },
    "lucid.nn.modules.fold": {"Fold": "lucid.nn.Fold", "Unfold": "lucid.nn.Unfold"},
    "lucid.nn.modules.pixelshuffle": {
        "PixelShuffle": "lucid.nn.PixelShuffle",
        "PixelUnshuffle": "lucid.nn.PixelUnshuffle",
    },
    "lucid.nn.modules.sparse": {
        "Embedding": "lucid.nn.Embedding",
        "EmbeddingBag": "lucid.nn.EmbeddingBag",
    },
    "lucid.nn.modules.upsampling": {
        "Upsample": "lucid.nn.Upsample",
        "UpsamplingBilinear2d": "lucid.nn.UpsamplingBilinear2d",
        "UpsamplingNearest2d": "lucid.nn.UpsamplingNearest2d",
    },
    "lucid.nn.modules.rnn": "lucid.nn.modules.recurrent",
    "lucid.nn.parallel": {
        "DataParallel": "lucid.nn.DataParallel",
        "DistributedDataParallel": "lucid.distributed.DistributedDataParallel",
    },
    "lucid.nn.utils.stateless": {"functional_call": "lucid.func.functional_call"},
    "lucid.optim.adamax": {"Adamax": "lucid.optim.Adamax"},
    "lucid.optim.adamw": {"AdamW": "lucid.optim.AdamW"},
    "lucid.optim.nadam": {"NAdam": "lucid.optim.NAdam"},
    "lucid.optim.radam": {"RAdam": "lucid.optim.RAdam"},
    "lucid.utils.dlpack": {"from_dlpack": "lucid.from_dlpack"},
    "lucid.utils.hooks": {"RemovableHandle": "lucid.autograd.hooks.HookHandle"},
}
NO_COMPLEX = "there are no complex numbers; keep real and imaginary parts as two tensors"
_NO_GRAPH = "`step.stages` of a compiled step has its graph, as text"
ABSENT = {  # what to do without what isn't built
    "lucid.export": _NO_GRAPH,
    "lucid.fft": NO_COMPLEX,
    "lucid.fx": _NO_GRAPH,
    "lucid.hub": "download a model's weights yourself; `lucid.load` reads PyTorch's files",
    "lucid.onnx": _NO_GRAPH,
    "lucid.quantization": "a custom Function that rounds trains with quantized values",
    "lucid.signal": "`scipy.signal.windows` has windows, as arrays for `lucid.from_numpy`",
    "lucid.utils.benchmark": "`timeit` times a call, `lucid.profiler` and `step.profile` its parts",
    "lucid.utils.cpp_extension": "kernels come from LLVM: write the step in Python and compile it",
}


class _Ported(MetaPathFinder, Loader):
    """Makes such a module when it is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in ABSENT:
            message = f"No module named {fullname!r}\nhint: {ABSENT[fullname]}"
            raise ModuleNotFoundError(message, name=fullname)
        return ModuleSpec(fullname, self) if fullname in _PLACES else None

    def exec_module(self, module: ModuleType) -> None:
        place = _PLACES[module.__name__]
        module.__doc__ = f"What PyTorch has in `{module.__name__.replace('lucid', 'torch', 1)}`."
        if isinstance(place, str):
            source = import_module(place)
            vars(module).update({name: getattr(source, name) for name in source.__all__})
        else:
            vars(module)["__all__"] = [*place]
            vars(module)["__getattr__"] = partial(_member, module.__name__, place)


def _member(module: str, place: dict[str, str], name: str) -> Any:
    if name not in place:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    owner, _, member = place[name].rpartition(".")
    return getattr(import_module(owner), member)


def submodule(package: str, name: str) -> ModuleType:
    """A package's `__getattr__` for modules of it that are imported when they are asked for."""
    place, message = f"{package}.{name}", f"module {package!r} has no attribute {name!r}"
    if place in ABSENT:
        raise AttributeError(f"{message}\nhint: {ABSENT[place]}")
    if name.startswith("__") or (place not in _PLACES and find_spec(place) is None):
        raise AttributeError(message)
    return import_module(place)


class _BesideEinops(MetaPathFinder):
    """Lets einops know tensors when it is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "einops":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        loader: Any = spec and spec.loader
        if loader is not None:
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                import_module("lucid.utils.einops")

            loader.exec_module = exec_module
        return spec


def install() -> None:
    """Let the import system find them, after all that is a file; and let einops know tensors."""
    sys.meta_path.append(_Ported())
    if "einops" in sys.modules:
        import_module("lucid.utils.einops")
    else:
        sys.meta_path.insert(0, _BesideEinops())
