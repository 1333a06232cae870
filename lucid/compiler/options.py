"""What `lucid.compile` may be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lucid.choices import check_choice, check_flags, check_kind
from lucid.ir.errors import ArgumentError, OptionError
from lucid.ir.passes.pipeline import Pass

MODES = ("native", "eager", "interpret")
NANS = ("allow", "raise", "skip")
VERIFIED = ("never", "first")
_MODES_ELSEWHERE = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_BACKENDS = ("native", "eager", "inductor", "cudagraphs", "aot_eager")
MOST_PATHS = 32  # through the user's code, by branches on values, that are compiled


@dataclass(frozen=True, slots=True)
class Options:
    """What `lucid.compile` was asked for; see there."""

    mode: str = "native"
    audit: bool = True
    max_paths: int = MOST_PATHS
    fullgraph: bool = False
    passes: tuple[Pass, ...] = ()
    nan: str = "allow"
    verify: str = "never"
    dynamic: bool | None = None

    @property
    def may_open(self) -> bool:
        """Whether programs may have sizes that values decide: nobody looks at what is in them."""
        return self.nan == "allow" and not self.passes and self.mode != "interpret"

    @property
    def may_be_eager(self) -> bool:
        """Whether calls may run op by op."""
        return not self.fullgraph and self.nan == "allow"


def checked(
    *,
    mode: str,
    backend: str,
    disable: bool,
    options: dict[str, Any] | None,
    passes: Any,
    **others: Any,
) -> Options:
    """The options of a call of `lucid.compile`, whose names they have. Raises `ArgumentError`."""
    check_choice(backend, "backend", "compile", _BACKENDS)
    flags = {name: others[name] for name in ("audit", "fullgraph", "dynamic")}
    check_flags("compile", **flags, disable=disable)
    check_kind(options, dict, "options", "compile")
    check_kind(others["max_paths"], int, "max_paths", "compile")
    mode = "native" if mode in _MODES_ELSEWHERE else mode
    mode = "eager" if backend == "eager" or disable else mode
    check_choice(mode, "mode", "compile", MODES)
    check_choice(others["nan"], "nan", "compile", NANS)
    check_choice(others["verify"], "verify", "compile", VERIFIED)
    if mode == "interpret" and others["verify"] != "never":
        raise OptionError(
            f'compile: verify="{others["verify"]}" compares what native code makes, and '
            'mode="interpret" has none\nhint: leave one of them out'
        )
    return Options(mode, passes=_passes(passes), **others)


def _passes(given: Any) -> tuple[Pass, ...]:
    """The passes of the option. Raises `ArgumentError` for what is none."""
    if not isinstance(given, (list, tuple)):
        raise ArgumentError(
            f"compile: passes is a list of functions, not {type(given).__name__}\n"
            "hint: passes=[my_pass]"
        )
    for index, run in enumerate(given):
        if not callable(run):
            raise ArgumentError(
                f"compile: passes[{index}] is not callable, but {type(run).__name__}\n"
                "hint: a pass is a function that takes a lucid.ir.Graph and returns a bool"
            )
    return tuple(given)
