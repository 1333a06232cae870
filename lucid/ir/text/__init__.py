"""IR text: what is printed parses to the same program, for every graph."""

from lucid.ir.text.parser import parse
from lucid.ir.text.printer import print_graph

__all__ = ["parse", "print_graph"]
