"""A program as LLVM IR: one function per different kernel, and `step` that calls them in order.

`i32 step(ptr table)`: the table holds the addresses of the inputs, then of the outputs, the arena's
and the error record's; a live scalar's slot is the f64 itself. The result is 0, or 1 when an index
was out of range: the record then has 1 + the number of the check and the index.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucid.codegen import lowering
from lucid.codegen.contract import emit_contract
from lucid.codegen.direct import emit_axes
from lucid.codegen.items import Buffer
from lucid.codegen.kernel import AxesKernel, CheckKernel, ContractKernel, Kernel, LoopKernel
from lucid.codegen.lines import emit_check, emit_sort
from lucid.codegen.llvm import FunctionBuilder, Module, Val, const
from lucid.codegen.loops import LoopEmitter
from lucid.codegen.schedule import Program
from lucid.codegen.sweep import SweepEmitter, is_swept
from lucid.codegen.target import Target
from lucid.ir.errors import MissingRuleError
from lucid.ir.graph import Graph

STEP = "step"


@dataclass(frozen=True, slots=True)
class Emitted:
    """LLVM IR of a program.

    Attributes:
        kernels: number of different kernel functions.
        calls: number of kernel calls in a step.
    """

    text: str
    kernels: int
    calls: int


def require_rules(graph: Graph) -> None:
    """Raise `MissingRuleError` for an op that has no lowering."""
    for node in graph.nodes:
        if node.op.kind == "map" and node.op.name not in lowering.RULES:
            raise MissingRuleError(f"{node.op.name}: no lowering to native code")
        if node.op.kind not in _KINDS:
            raise MissingRuleError(f"{node.op.name}: ops of kind {node.op.kind} can't be lowered")


_KINDS = ("map", "create", "view", "move", "scan", "sort", "reduce", "contract", "random")


def emit_program(program: Program, target: Target) -> Emitted:
    """Write all kernels and the step that calls them; equal kernels are one function."""
    module = Module(target)
    names: dict[str, str] = {}
    with FunctionBuilder(module, STEP, [("ptr", "table")], "i32") as b:
        slots = Slots(b, program)
        checks = 0
        for step in program.steps:
            text = str(step.kernel)
            name = names.get(text)
            if name is None:
                name = names[text] = f"k{len(names)}"
                _emit_kernel(module, name, step.kernel, len(step.args))
            args = [slots.address(buffer) for buffer in step.args]
            if isinstance(step.kernel, CheckKernel):
                checks += 1
                args = [slots.record, const("i64", checks), *args]
            b.call(name, "void", *args)
            if isinstance(step.kernel, CheckKernel):
                with b.if_(b.ne(b.load("i64", slots.record), 0)):
                    b.ret(const("i32", 1))
        b.ret(const("i32", 0))
    return Emitted(module.text(), len(names), len(program.steps))


def _emit_kernel(module: Module, name: str, kernel: Kernel, args: int) -> None:
    pointers = [("ptr", f"a{i}") for i in range(args)]
    if isinstance(kernel, CheckKernel):
        pointers = [("ptr", "record"), ("i64", "code"), *pointers]
    with FunctionBuilder(module, name, pointers, internal=True) as b:
        if isinstance(kernel, LoopKernel):
            (SweepEmitter if is_swept(kernel) else LoopEmitter)(b, kernel, b.args).run()
        elif isinstance(kernel, ContractKernel):
            emit_contract(b, kernel, b.args)
        elif isinstance(kernel, AxesKernel):
            emit_axes(b, kernel, b.args)
        elif isinstance(kernel, CheckKernel):
            emit_check(b, kernel, b.args)
        else:
            emit_sort(b, kernel, b.args)
        b.ret()


class Slots:
    """Addresses of buffers, from the table that a step gets."""

    def __init__(self, b: FunctionBuilder, program: Program) -> None:
        self._b = b
        self._program = program
        self._table = b.args[0]
        slots = len(program.inputs) + len(program.outputs)
        self._arena = b.load("ptr", b.at("ptr", self._table, slots))
        self.record = b.load("ptr", b.at("ptr", self._table, slots + 1))

    def address(self, buffer: Buffer) -> Val:
        b = self._b
        if buffer.kind == "temp":
            return b.at("i8", self._arena, self._program.offsets[buffer])
        slot = buffer.index + (len(self._program.inputs) if buffer.kind == "output" else 0)
        place = b.at("ptr", self._table, slot)
        if buffer.kind == "input" and buffer.index in self._program.live:
            return place
        return b.load("ptr", place)
