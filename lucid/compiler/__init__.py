"""`@lucid.compile`: recording a step, deciding when the record holds, calling native code."""

from lucid.compiler.stance import set_stance

__all__ = ["set_stance"]
