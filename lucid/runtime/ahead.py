"""LLVM compiles the first kernels of a program while the next ones are planned."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Self

from lucid.codegen import costs
from lucid.codegen.llvm.jit import Compilation
from lucid.codegen.llvm.target import Target
from lucid.codegen.llvm.values import Module, Parts
from lucid.codegen.program.emit import Emitted, Loaded, generator_version
from lucid.codegen.program.program import KernelCall
from lucid.codegen.threads.tasks import define_kernel
from lucid.runtime.cache import may_have, require_memory
from lucid.runtime.kernel_code import kernel_code


class Ahead:
    """A program's kernels on their way to machine code while it is planned, in a block.

    It begins when there are enough of them, unless a program that begins with these is on disk.

    Attributes:
        begin: names the first ones; empty if there are few.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._calls: dict[str, KernelCall] = {}
        self._loaded: dict[str, Loaded] = {}
        self._module = Module(target)
        self._compilation: Compilation | None = None
        self._block = ExitStack()
        self.begin = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._block.close()

    def take(self, call: KernelCall) -> None:
        """Go on with the next call."""
        if not call.kernel.has_function or call.text in self._calls:
            return
        self._calls[call.text] = call
        if self._compilation is not None:
            self._define(len(self._calls) - 1, call)
        elif len(self._calls) == costs.FIRST_KERNELS:
            text = "\n".join([generator_version(), repr(self._target), *self._calls])
            self.begin = hashlib.sha256(text.encode()).hexdigest()
            if not may_have(self.begin, self._target):
                self._start()

    def _start(self) -> None:
        require_memory()
        self._compilation = self._block.enter_context(Compilation(self._target, to_come=1))
        self._module.parts = Parts(self._module, costs.PART_CHARACTERS, self._compilation.take)
        for number, call in enumerate(self._calls.values()):
            self._define(number, call)

    def _define(self, number: int, call: KernelCall) -> None:
        known = kernel_code.known([call.key(self._target)])
        if known:
            self._loaded |= known
        else:
            define_kernel(self._module, f"k{number}", call.kernel, len(call.args))

    def known(self, keys: Iterable[str]) -> Mapping[str, Loaded]:
        """Which of these kernels are loaded, and not compiled here."""
        return kernel_code.known(keys) if self._compilation is None else self._loaded

    def finish(self, emitted: Emitted) -> Callable[[], list[bytes]] | None:
        """What compiles the rest of the program, and gives all; None where nothing has begun."""
        compilation = self._compilation
        if compilation is None:
            return None

        def images() -> list[bytes]:
            with self._block:
                emitted.write_rest(self._module)
                return compilation.images()

        return images
