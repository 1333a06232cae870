"""Compiled graphs as callables: tables of addresses, buffers, guards and errors."""

from lucid.runtime.executable import Executable, compile_graph

__all__ = ["Executable", "compile_graph"]
