"""`@lucid.compile`: recording a step, deciding when the record holds, calling native code."""

from lucid.compiler.compiled import Compiled, compile
from lucid.compiler.disable import disable
from lucid.compiler.recording.hooks import is_tracing as is_compiling
from lucid.compiler.reports.statistics import Stats
from lucid.ir import frames
from lucid.runtime.stance import set_stance

__all__ = ["Compiled", "Stats", "compile", "disable", "is_compiling", "set_stance"]

frames.edge_of_module(__name__)
