"""What the generated code may assume about the processor."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from lucid.codegen.llvm.library import llvm

ELEMENT_BYTES = {
    "i1": 1,
    "i8": 1,
    "i16": 2,
    "i32": 4,
    "i64": 8,
    "i128": 16,
    "float": 4,
    "double": 8,
    "ptr": 8,
}


@dataclass(frozen=True, slots=True)
class Target:
    """A processor, and the vector width that code is written for.

    Attributes:
        vector_bytes: width of the vectors that are emitted; LLVM splits wider ones than it has.
        registers: number of vector registers of that width.
        has_fma: a fused multiply-add is one instruction; without it `llvm.fma` calls libm.
        has_vector_ldexp: one instruction scales a vector by powers of two (AVX-512's `vscalef`).
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int
    has_fma: bool
    has_vector_ldexp: bool

    def lanes(self, element: str) -> int:
        """Lanes of a full vector of `element` (an LLVM type name)."""
        return self.vector_bytes // ELEMENT_BYTES[element]

    def with_vector_bytes(self, vector_bytes: int) -> Target:
        """The same processor, with code written for vectors of another width."""
        if vector_bytes not in (16, 32, 64):
            raise ValueError(f"vectors are 16, 32 or 64 bytes wide, not {vector_bytes}")
        return replace(self, vector_bytes=vector_bytes)

    @property
    def can_mask_stores(self) -> bool:
        """Whether masks have registers; without, a masked store may take as long as 40 (AMD)."""
        return self.vector_bytes == 64

    def can_mask_loads(self, size: int) -> bool:
        """Whether a masked load of elements of this size is one instruction."""
        return self.vector_bytes == 64 or (self.vector_bytes == 32 and size >= 4)

    @property
    def function_attributes(self) -> str:
        """Attributes of every function.

        Both widths are given because some tunings (Intel's) otherwise split 512-bit vectors.
        """
        bits = self.vector_bytes * 8
        return f'nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'


@functools.cache
def host_target() -> Target:
    """The processor of this process, at its full vector width."""
    flags = llvm.get_host_cpu_features()
    triple: str = llvm.get_process_triple()
    arm = triple.startswith(("aarch64", "arm64"))
    avx512 = all(flags.get(name, False) for name in ("avx512f", "avx512dq", "avx512vl"))
    avx = flags.get("avx", False)
    return Target(
        triple=triple,
        cpu=llvm.get_host_cpu_name(),
        features=flags.flatten(),
        vector_bytes=64 if avx512 else 32 if avx else 16,
        registers=32 if avx512 or arm else 16,
        has_fma=arm or flags.get("fma", False),
        has_vector_ldexp=avx512,
    )
