"""The intermediate representation: types, ops, graphs. It imports nothing else of lucid.

`ops` holds the op table; a `Graph` is made of `Node`s that apply its ops to `Value`s.
"""

from lucid.ir import ops
from lucid.ir.errors import LucidError
from lucid.ir.graph import Graph, Input, Node, Region, Value, is_same_program
from lucid.ir.location import Location
from lucid.ir.op import OPS, Op, Operand, Sample, Trait
from lucid.ir.text import parse, print_graph
from lucid.ir.types import DTYPES, DType, Shape, TensorType

__all__ = [
    "DTYPES", "OPS", "DType", "Graph", "Input", "Location", "LucidError", "Node", "Op", "Operand",
    "Region", "Sample", "Shape", "TensorType", "Trait", "Value", "is_same_program", "ops", "parse",
    "print_graph",
]  # fmt: skip
