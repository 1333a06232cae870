"""The program's text at each stage of the compiler, made when somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lucid.ir.errors import UnknownStageError
from lucid.ir.frames import edge_of_class


@edge_of_class
class Stages(Mapping[str, str]):
    """Texts by name, in the order of the stages; printing takes long, so each waits to be read."""

    def __init__(
        self,
        printers: Mapping[str, Callable[[], str]],
        choose: Callable[..., Stages] | None = None,
    ) -> None:
        """`choose`: finds those of the program that serves a call."""
        self._printers = dict(printers)
        self._choose = choose
        self._texts: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        is_name = isinstance(name, str)  # what else is asked for may have no hash
        if not is_name or name not in self._texts:
            if not is_name or name not in self._printers:
                raise UnknownStageError(
                    f"stages: there is no stage {name!r} of this step; there are "
                    + ", ".join(self._printers)
                )
            self._texts[name] = self._printers[name]()
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._printers)

    def __call__(self, *args: Any, **kwargs: Any) -> Stages:
        """Those of the program that serves a call with these arguments."""
        return self if self._choose is None else self._choose(*args, **kwargs)

    def choosing(self, choose: Callable[..., Stages]) -> Stages:
        """The same stages, which can be called."""
        return Stages(self._readers(), choose)

    def __len__(self) -> int:
        return len(self._printers)

    def then(self, later: Stages) -> Stages:
        """These stages, and those of what follows."""
        return Stages(self._readers() | later._readers())

    def _readers(self) -> dict[str, Callable[[], str]]:
        return {name: self._reader(name) for name in self}

    def _reader(self, name: str) -> Callable[[], str]:
        return lambda: self[name]
