"""IR text: `parse(print_graph(graph)) == graph` for every graph."""

from lucid.ir.text.parser import parse
from lucid.ir.text.printer import print_graph

__all__ = ["parse", "print_graph"]
