"""A compiled Module passes for the Module: its attributes, parameters and state are its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lucid.compiler.compiled import Compiled


class CompiledModule(Compiled):
    """What `compile(module)` returns.

    `isinstance` takes it for the Module, so it can be a submodule; keys of the state dict are the
    Module's. Setting an attribute sets it on the Module.
    """

    _forward: Compiled | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.__wrapped__)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return vars(self.__wrapped__)

    @property
    def forward(self) -> Compiled:
        """The Module's, compiled as well: without hooks it is what a call runs."""
        own, known = self._module.forward, self._forward
        if known is None or known.__wrapped__ != own:
            known = Compiled(own, self._options)
            object.__setattr__(self, "_forward", known)
        return known

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self.__wrapped__)})

    def __getitem__(self, index: Any) -> Any:
        return self._module[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._module[index] = value

    def __delitem__(self, index: Any) -> None:
        del self._module[index]

    def __len__(self) -> int:
        return len(self._module)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(self._module)

    def __contains__(self, item: object) -> bool:
        return item in self._module

    @property
    def _module(self) -> Any:
        return self.__wrapped__
