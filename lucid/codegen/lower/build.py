"""From a fused group to a kernel: addresses become linear forms, dims are ordered and collapsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from lucid.codegen.contraction.axes import merge_axes
from lucid.codegen.contraction.matrices import Product, as_matrices, join_parts
from lucid.codegen.kernel_ir.affine import ZERO, AffineExpr, IndexMap, dot, form, unbroadcast
from lucid.codegen.kernel_ir.instruction import (
    EFFECTS,
    Bits,
    Fold,
    Indexed,
    Inst,
    Keywords,
    OpenBits,
    Scattered,
)
from lucid.codegen.kernel_ir.kernel import Kernel
from lucid.codegen.kernel_ir.nest import LoopNest, analyze, renamed
from lucid.codegen.kernel_ir.regions import Buffer, BufferView
from lucid.codegen.kernels.attention import AttentionKernel
from lucid.codegen.kernels.body import Calls, Place
from lucid.codegen.kernels.branch import BranchKernel
from lucid.codegen.kernels.check import CheckKernel
from lucid.codegen.kernels.host import HostKernel
from lucid.codegen.kernels.loop import LoopKernel
from lucid.codegen.kernels.scan import ScanKernel
from lucid.codegen.kernels.sort import SortKernel, scratch_elements
from lucid.codegen.llvm.target import Target
from lucid.codegen.lower.attention import attention_of
from lucid.codegen.lower.contractions import axes_kernel, axes_of, blocked_kernel, matrix_kernel
from lucid.codegen.lower.fuse import Fusion
from lucid.codegen.lower.groups import FusionGroup, writes_slices
from lucid.codegen.lower.item import SCANS, Item, is_reduction
from lucid.codegen.lower.loop_schedule import (
    choose_scratch,
    choose_vector,
    collapse,
    lanes_for,
    order_dims,
    tile,
)
from lucid.codegen.program.program import Program
from lucid.ir import ops
from lucid.ir.extents import hint, is_open
from lucid.ir.graph import Node, Value, freeze_attributes
from lucid.ir.op import OPS
from lucid.ir.types import i64

# The instruction that stores an item's operand in its region, and how that combines elements.
_STORES: dict[str, tuple[str, Fold | None]] = {
    "store": ("store", None),
    "add_to": ("accumulate", None),
    "partial_sum": ("accumulate", Fold("sum")),
}


Matrix = tuple[AffineExpr, tuple[int, ...]]
"""Where an operand of a product lies for a batch index, and its last two strides."""


@dataclass(slots=True)
class Body:
    """Instructions that are being collected; equal ones are kept once.

    Attributes:
        fixed: number of leading arguments that are not read by instructions only.
    """

    insts: list[Inst] = field(default_factory=list)
    args: list[Buffer] = field(default_factory=list)
    numbers: dict[Inst, int] = field(default_factory=dict)
    fixed: int = 0

    def add(self, inst: Inst) -> int:
        number = self.numbers.get(inst)
        if number is None or inst.is_root:
            number = self.numbers[inst] = len(self.insts)
            self.insts.append(inst)
        return number

    def drop_dead(self) -> None:
        """Remove instructions that no effect depends on; a product stays first."""
        live: set[int] = set()
        for number in range(len(self.insts) - 1, -1, -1):
            inst = self.insts[number]
            if inst.op in EFFECTS or inst.op == "product" or number in live:
                live.add(number)
                live.update(inst.operands)
        if len(live) < len(self.insts):
            kept = {old: new for new, old in enumerate(sorted(live))}
            self.insts = [
                self.insts[old]._replace(operands=tuple(kept[n] for n in self.insts[old].operands))
                for old in kept
            ]
        used = sorted({inst.arg for inst in self.insts if inst.arg >= self.fixed})
        used = [*range(self.fixed), *used]
        if len(used) == len(self.args):
            return
        places = {old: new for new, old in enumerate(used)}
        self.args = [self.args[old] for old in used]
        self.insts = [
            inst._replace(arg=places[inst.arg]) if inst.has_address else inst for inst in self.insts
        ]

    def arg(self, buffer: Buffer) -> int:
        if buffer not in self.args:
            self.args.append(buffer)
        return self.args.index(buffer)


def _over(inst: Inst, names: Mapping[int, int]) -> tuple[object, ...]:
    """What an instruction is, over dims of other names in the same order."""
    index = inst.form
    terms = None if index is None else tuple([(names[dim], value) for dim, value in index.terms])
    at = None if index is None else index.offset
    return inst.op, inst.dtype, inst.operands, inst.arg, inst.attributes, at, terms


class Builder:
    """Builds the kernel of one group.

    Args:
        stored: the values of the group that other groups read, with their homes.
    """

    def __init__(
        self, fusion: Fusion, group: FusionGroup, stored: dict[Value, BufferView], target: Target
    ) -> None:
        self.fusion = fusion
        self.source = fusion.source
        self.group = group
        self.stored = stored
        self.target = target
        self.body = Body()
        self.known: dict[Item, int] = {}

    def instructions(self) -> Body:
        """The instructions of a group of loops, over its own dims."""
        for item in self.group.items:
            self._add_item(item)
        self.body.drop_dead()
        return self.body

    def build(self) -> tuple[Kernel, list[Buffer]]:
        first = self.group.items[0]
        if self.group.kind == "loop":
            kernel: Kernel = self._loop()
        elif self.group.kind == "contract":
            kernel = self._contract()
        else:
            own = {
                "check": self._check,
                "host": self._host,
                "scan": self._scan,
                "while_loop": self._scan,
                "cond": self._branch,
                "attention": self._attention,
                "attention_grad": self._attention,
            }
            kernel = own.get(first.op, self._sort)(first)
        return kernel, self.body.args

    # Instructions -----------------------------------------------------------------------

    def _read(self, value: Value, forms: IndexMap) -> int:
        """The instruction that gives a value at these indices."""
        base = self.source.base(value)
        item = self.fusion.computed.get(base)
        if item is not None and item in self.group.forms:
            return self.known[item]
        layout = self.source.layout(value)
        node = base.producer
        address = dot(forms, layout.strides, layout.offset)
        if base not in self.source.homes and node is not None:
            if node.op is ops.constant:
                bits = Bits(node.attributes["value"].tobytes())
                return self.body.add(Inst("const", base.dtype, attributes=bits))
            if node.op is ops.parameter:
                open_ = OpenBits(node.attributes["value"], node.attributes["is_bits"])
                return self.body.add(Inst("const", base.dtype, attributes=open_))
            assert node.op is ops.iota, f"{node.op.name} has no home"
            return self.body.add(Inst("index", base.dtype, form=address))
        arg = self.body.arg(self.source.homes[base].buffer)
        return self.body.add(Inst("load", base.dtype, form=address, arg=arg))

    def _add_item(self, item: Item) -> None:
        forms = self.group.forms[item]
        if item.op in _STORES:
            assert item.region is not None
            at = self.group.operand_forms.get(item, forms)
            self._store(self._read_operand(item, 0, at), item.region, forms, *_STORES[item.op])
            return
        if item.op == "write_at":
            self._write_at(item, forms)
            return
        number = self._compute(item, forms)
        self.known[item] = number
        if item.value in self.stored:
            self._store(number, self.stored[item.value], forms)

    def _read_operand(self, item: Item, position: int, forms: IndexMap) -> int:
        """The operand of an elementwise item whose element is at `forms`."""
        operand = item.operands[position]
        again = self.source.recomputed(item, position)
        if again is None:
            return self._read(operand, unbroadcast(operand.shape, forms))
        inner = self.fusion.operand_forms_of(operand, forms, self.group)
        assert inner is not None and again.node is not None and again.value is not None
        operands = tuple(self._read_operand(again, n, inner) for n in range(len(again.operands)))
        attributes = attributes_of(again)
        return self.body.add(Inst(again.op, again.value.dtype, operands, attributes=attributes))

    def _store(
        self,
        number: int,
        region: BufferView,
        forms: IndexMap,
        op: str = "store",
        attributes: Fold | None = None,
    ) -> None:
        address = dot(forms, region.strides, region.offset)
        arg = self.body.arg(region.buffer)
        self.body.add(Inst(op, region.buffer.dtype, (number,), address, arg, attributes))

    def _compute(self, item: Item, forms: IndexMap) -> int:
        assert item.node is not None and item.value is not None
        op, dtype = item.op, item.value.dtype
        if op in ("take", "gather"):
            return self._gather(item, forms)
        at = self.group.operand_forms.get(item, forms)
        operands = tuple(
            self._read_operand(item, n, at)
            for n in range(len(item.operands))
            if OPS[op].kind != "random"
        )
        if is_reduction(item):
            place = self._position(item) if op in ("argmax", "argmin") else None
            return self.body.add(Inst("reduce", dtype, operands, place, attributes=Fold(op)))
        if op in SCANS:
            return self.body.add(Inst("scan", dtype, operands, attributes=Fold(op)))
        if OPS[op].kind == "random":
            state = tuple(self._read_element(item.operands[0], i) for i in (0, 1))
            strides = [prod(item.shape[axis + 1 :]) for axis in range(len(item.shape))]
            return self.body.add(Inst(op, dtype, state, dot(forms, strides)))
        return self.body.add(Inst(op, dtype, operands, attributes=attributes_of(item)))

    def _read_element(self, value: Value, index: int) -> int:
        return self._read(value, (AffineExpr(index),))

    def _position(self, item: Item) -> AffineExpr:
        """The index along the axis of an argmax."""
        assert item.node is not None
        return self.group.operand_forms[item][item.node.attributes["axis"]]

    def _split_axis(
        self, item: Item, forms: IndexMap, index: Value
    ) -> tuple[IndexMap, IndexMap, int]:
        """Indices into the index operand, into the indexed array (0 on the axis), and the axis."""
        assert item.node is not None
        axis: int = item.node.attributes["axis"]
        if item.op == "take" or writes_slices(item):
            end = axis + len(index.shape)
            return forms[axis:end], (*forms[:axis], ZERO, *forms[end:]), axis
        return forms, (*forms[:axis], ZERO, *forms[axis + 1 :]), axis

    def _gather(self, item: Item, forms: IndexMap) -> int:
        x, index = item.operands
        at_index, at_x, axis = self._split_axis(item, forms, index)
        position = self._read(index, at_index)
        base, layout = self.source.base(x), self.source.layout(x)
        address = dot(at_x, layout.strides, layout.offset)
        attributes = Indexed(layout.strides[axis], x.shape[axis])
        node = base.producer
        if base not in self.source.homes and node is not None:
            if node.op in (ops.constant, ops.parameter):
                return self._read(x, at_x)
            inst = Inst("index_at", x.dtype, (position,), address, attributes=attributes)
            return self.body.add(inst)
        arg = self.body.arg(self.source.homes[base].buffer)
        return self.body.add(Inst("gather", x.dtype, (position,), address, arg, attributes))

    def _write_at(self, item: Item, forms: IndexMap) -> None:
        assert item.node is not None and item.region is not None
        index, source = item.operands
        at_index, at_base, axis = self._split_axis(item, forms, index)
        operands = self._read(index, at_index), self._read(source, forms)
        region = item.region
        address = dot(at_base, region.strides, region.offset)
        adds = item.node.op.name.endswith("add")
        base = item.node.operands[0]
        attributes = Scattered(region.strides[axis], base.shape[axis], adds)
        arg = self.body.arg(region.buffer)
        inst = Inst("write", base.dtype, operands, address, arg, attributes)
        self.body.add(inst)

    # Loops ------------------------------------------------------------------------------

    def _loop(self) -> LoopKernel:
        """The loops of a group; groups with equal instructions have one kernel."""
        insts, serial = self.instructions().insts, self.group.serial_dims()
        key = self._key(serial)
        known = self.fusion.loops.get(key)
        if known is None:
            known = self.fusion.loops[key] = self._arranged(insts, serial)
        return known

    def _key(self, serial: Sequence[int] = (), forms: Sequence[AffineExpr] = ()) -> object:
        """What decides the kernel of a group, with its dims by their order, and of more forms."""
        sizes = self.group.sizes
        rank = {dim: n for n, dim in enumerate(sorted(sizes))}
        return (
            tuple([(rank[dim], size) for dim, size in sizes.items()]),
            tuple([rank[dim] for dim in serial]),
            frozenset([rank[dim] for dim in self.group.reduced]),
            tuple([buffer.dtype for buffer in self.body.args]),
            tuple([_over(inst, rank) for inst in self.body.insts]),
            tuple([form.renamed(rank) for form in forms]),
        )

    def _arranged(self, insts: list[Inst], serial: list[int]) -> LoopKernel:
        reduced = self.group.reduced
        lanes = lanes_for(insts, self.target)
        insts, sizes = collapse(insts, self.group.sizes, serial, reduced)
        vector = choose_vector(insts, sizes, serial, reduced, lanes)
        order = order_dims(insts, list(sizes), serial, reduced, vector)
        if not serial and not reduced:
            insts, order, sizes = tile(insts, order, sizes, vector)
        kept = [dim for dim in order if dim not in reduced]
        inner = [dim for dim in order if dim in reduced]
        names = {dim: number for number, dim in enumerate(kept + inner)}
        last = [group[-1] for group in (kept, inner) if group]
        vector = next((dim for dim in last if dim == vector), -1)
        if vector >= 0:
            lanes = min(lanes, 1 << (hint(sizes[vector]) - 1).bit_length())
        nest = LoopNest(
            [buffer.dtype for buffer in self.body.args],
            tuple(sizes[dim] for dim in kept),
            tuple(sizes[dim] for dim in inner),
            names.get(vector, -1),
            1 if vector < 0 else lanes,
            [renamed(inst, names) for inst in insts],
        )
        analyze(nest)
        choose_scratch(nest)
        return LoopKernel(nest)

    def _contract(self) -> Kernel:
        first = self.group.items[0]
        assert first.value is not None
        for operand in first.operands:
            self.body.args.append(self.source.homes[self.source.base(operand)].buffer)
        self.body.fixed = 2
        forms = self.group.forms[first]
        self.known[first] = self.body.add(Inst("product", first.value.dtype))
        if first.value in self.stored:
            self._store(self.known[first], self.stored[first.value], forms)
        for item in self.group.items[1:]:
            self._add_item(item)
        self.body.drop_dead()
        key: object = None
        if first.op == "contract":
            product, insts, sizes = self._product_over_axes(first)
            if isinstance(product, Kernel):
                return product
        else:
            a, b = (self._matrix(first, position) for position in (0, 1))
            inner = first.operands[0].shape[-1]
            key = inner, a[1], b[1], self._key(forms=(*forms, a[0], b[0]))
            if key in self.fusion.products:
                return self._with_memory(self.fusion.products[key])
            product, insts, sizes = self._product_of_matrices(forms, inner, a, b)
        if product.prefers_transposed(insts):
            product.transpose()
        args = [buffer.dtype for buffer in self.body.args]
        kernel = matrix_kernel(product, insts, sizes, args, self.target)
        if key is not None:
            self.fusion.products[key] = kernel
        return self._with_memory(kernel)

    def _with_memory(self, kernel: Kernel) -> Kernel:
        """A product, which has one argument more if it copies its operands."""
        if kernel.scratch:
            self.body.args.append(self.source.new_temp(i64, 1))
        return kernel

    def _product_of_matrices(
        self, forms: IndexMap, inner: int, a: Matrix, b: Matrix
    ) -> tuple[Product, list[Inst], dict[int, int]]:
        (at_a, of_a), (at_b, of_b) = a, b
        insts, sizes = self.body.insts, dict(self.group.sizes)
        lead = [dim for f in forms[:-2] for dim, _ in f.terms]
        rows, more_rows, insts = join_parts(forms[-2], insts, sizes)
        columns, more_columns, insts = join_parts(forms[-1], insts, sizes)
        product = Product(
            [*lead, *(dim for dim, _ in (*more_rows, *more_columns))],
            (rows, columns),
            (sizes.get(rows, 1), inner, sizes.get(columns, 1)),
            (
                dot((at_a, AffineExpr(0, more_rows)), (1, of_a[0])),
                dot((at_b, AffineExpr(0, more_columns)), (1, of_b[1])),
            ),
            (*of_a, *of_b),
        )
        insts = product.take_batch_as_rows(insts, sizes)
        return product, insts, sizes

    def _product_over_axes(self, item: Item) -> tuple[Product | Kernel, list[Inst], dict[int, int]]:
        """The product of two matrices, if it is one after all."""
        layouts = [self.source.layout(operand) for operand in item.operands]
        axes = axes_of(item, layouts, self.group.forms[item])
        axes, insts = merge_axes(axes, self.body.insts)
        offsets = layouts[0].offset, layouts[1].offset
        sizes = {axis.dim: axis.size for axis in axes}
        matrices = as_matrices(axes, offsets)
        if matrices is not None:
            return matrices, insts, sizes
        args = [buffer.dtype for buffer in self.body.args]
        blocked = blocked_kernel(axes, insts, args, offsets, self.target)
        if blocked is not None:
            return self._with_memory(blocked), insts, sizes
        kernel = axes_kernel(axes, insts, args, offsets, self.target)
        if kernel.block:
            self.body.args.append(self.source.new_temp(args[0], prod(kernel.body.sizes)))
            args.append(args[0])
        return kernel, insts, sizes

    def _matrix(self, item: Item, position: int) -> Matrix:
        """Where an operand's matrix lies for a batch index, and its last two strides."""
        operand = item.operands[position]
        layout = self.source.layout(operand)
        lead = unbroadcast(operand.shape[:-2], self.group.forms[item][:-2])
        strides = tuple(
            0 if size == 1 else stride
            for size, stride in zip(operand.shape, layout.strides, strict=True)
        )
        return dot(lead, strides[:-2], layout.offset), strides[-2:]

    # Others -----------------------------------------------------------------------------

    def _strided(self, value: Value) -> tuple[AffineExpr, tuple[int, ...]]:
        """Address and sizes of a value in memory, its axes named 0, 1, ... with size 1 left out."""
        layout = self.source.layout(value)
        self.body.args.append(self.source.homes[self.source.base(value)].buffer)
        return strided_form(value.shape, layout.strides, layout.offset)

    def _check(self, item: Item) -> CheckKernel:
        value = item.operands[0]
        address, shape = self._strided(value)
        return CheckKernel(value.dtype, shape, address, *item.limits)

    def _host(self, item: Item) -> HostKernel:
        node, homes = item.node, self.source.homes
        assert node is not None
        self.body.args += [homes[self.source.base(value)].buffer for value in item.operands]
        operands = tuple(value.type for value in node.operands)
        results = tuple(value.type for value in node.results)
        return HostKernel(operands, results, node.attributes["function"])

    def _bodies(self, item: Item) -> tuple[Node, Sequence[Program], int]:
        """The node, the programs of its bodies, and the bytes of memory of their own."""
        node, homes = item.node, self.source.homes
        assert node is not None
        self.body.args += [homes[self.source.base(value)].buffer for value in item.operands]
        bodies = self.source.bodies[node]
        size = max(body.arena_bytes for body in bodies)
        args = [arg for body in bodies for call in body.calls for arg in call.args]
        if not is_open(size) and any(arg.kind == "temp" for arg in args):
            size = max(size, i64.itemsize)  # temps without elements have an address, too
        if is_open(size) or size:
            self.body.args.append(self.source.new_temp(i64, size // i64.itemsize))
        return node, bodies, size

    def _branch(self, item: Item) -> BranchKernel:
        node, bodies, size = self._bodies(item)
        given = len(node.operands)
        first = {"input": 1, "output": given}  # behind what decides

        def argument(buffer: Buffer) -> tuple[int, int]:
            return first[buffer.kind] + buffer.index, 0

        kernels: dict[str, tuple[int, Kernel]] = {}
        memory = given + len(node.results)
        then, otherwise = (_placed(body, memory, argument, kernels) for body in bodies)
        return BranchKernel(
            operands=tuple(value.type for value in node.operands),
            results=tuple(value.type for value in node.results),
            bytes=size,
            flops=max(map(_flops, bodies)),
            kernels=tuple(kernel for _, kernel in kernels.values()),
            then=then,
            otherwise=otherwise,
        )

    def _scan(self, item: Item) -> ScanKernel:
        node, (body,), size = self._bodies(item)
        carries, rows = node.attributes["carries"], node.attributes["rows"]
        length, given = node.attributes["length"], len(node.operands)
        types = [value.type for value in (*node.operands, *node.results)]
        is_while = node.op is ops.while_loop

        def argument(buffer: Buffer) -> tuple[int, int]:
            number = buffer.index
            if buffer.kind == "output":
                number += given + carries
            elif number < carries:
                number += given
            is_row = buffer.kind == "output" or carries <= number < carries + rows
            return number, types[number].nbytes // max(length, 1) if is_row else 0

        kernels: dict[str, tuple[int, Kernel]] = {}
        calls = _placed(body, len(types), argument, kernels)
        return ScanKernel(
            operands=tuple(types[:given]),
            results=tuple(types[given:]),
            bytes=size,
            flops=_flops(body) * (1 if is_while else length),
            kernels=tuple(kernel for _, kernel in kernels.values()),
            carries=carries,
            rows=rows,
            length=length,
            reverse=node.attributes.get("reverse", False),
            is_while=is_while,
            calls=calls,
        )

    def _sort(self, item: Item) -> SortKernel:
        assert item.node is not None and item.value is not None
        x, attributes = item.operands[0], item.node.attributes
        axis: int = attributes["axis"]
        layout, home = self.source.layout(x), self.source.homes[item.value]
        lines = without(x.shape, axis)
        source, shape = strided_form(lines, without(layout.strides, axis), layout.offset)
        target, _ = strided_form(lines, without(home.strides, axis), home.offset)
        kernel = SortKernel(
            x.dtype,
            shape,
            x.shape[axis],
            source,
            layout.strides[axis],
            target,
            home.strides[axis],
            attributes["descending"],
            "positions" if item.op == "argsort" else "values",
            self._first_wanted(item.value, axis),
        )
        scratch = self.source.new_temp(i64, scratch_elements(kernel))
        self.body.args += [self.source.homes[self.source.base(x)].buffer, home.buffer, scratch]
        return kernel

    def _attention(self, item: Item) -> AttentionKernel:
        node = item.node
        assert node is not None and item.value is not None
        spec = attention_of(node, [self.source.layout(x) for x in item.operands], self.target)
        size = spec.scratch(self.target)
        scratch = self.source.new_temp(i64, -(-size * spec.dtype.itemsize // i64.itemsize))
        homes = (self.source.homes[self.source.base(x)].buffer for x in item.operands)
        self.body.args += [*homes, self.source.homes[item.value].buffer, scratch]
        return AttentionKernel(spec, size)

    def _first_wanted(self, value: Value, axis: int) -> int:
        """How many elements along an axis, from its beginning, anybody looks at."""
        graph, size = self.source.graph, value.shape[axis]
        if value in graph.outputs or any(new is value for _, new in graph.writes):
            return size
        wanted = 0
        for node in graph.nodes:
            if value in node.operands:
                stops = node.attributes["stops"] if node.op is ops.slice else value.shape
                forwards = node.op is not ops.slice or node.attributes["steps"][axis] > 0
                wanted = max(wanted, stops[axis] if forwards else size)
        return wanted


def _placed(
    body: Program,
    memory: int,
    argument: Callable[[Buffer], tuple[int, int]],
    kernels: dict[str, tuple[int, Kernel]],
) -> Calls:
    """The calls of a body, with the places of their arguments among those of who runs it.

    memory: the number of the argument that temps are in.
    argument: of all others, its number, and the bytes from row to row.
    kernels: those of the bodies by their texts, with their numbers; others are entered.
    """

    def place(buffer: Buffer, origin: int) -> Place:
        offset = origin * buffer.dtype.itemsize
        if buffer.kind == "temp":
            return Place(memory, offset + body.offsets[buffer], 0, buffer.dtype)
        number, step = argument(buffer)
        return Place(number, offset, step, buffer.dtype)

    return tuple(
        (
            kernels.setdefault(call.text, (len(kernels), call.kernel))[0],
            tuple(place(x, call.origins.get(n, 0)) for n, x in enumerate(call.args)),
        )
        for call in body.calls
    )


def _flops(body: Program) -> int:
    return sum(call.kernel.work(call.args).flops for call in body.calls)


def attributes_of(item: Item) -> Keywords | None:
    """The attributes in a hashable form."""
    assert item.node is not None
    entries = freeze_attributes(item.node.attributes)
    return Keywords(entries) if entries else None


def without(axes: Sequence[int], axis: int) -> tuple[int, ...]:
    """All entries but that of one axis."""
    return (*axes[:axis], *axes[axis + 1 :])


def strided_form(
    shape: Sequence[int], strides: Sequence[int], offset: int
) -> tuple[AffineExpr, tuple[int, ...]]:
    """The address over axes named 0, 1, ... and their sizes; axes of one element are left out."""
    pairs = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    address = form(offset, [(dim, stride) for dim, (_, stride) in enumerate(pairs)])
    return address, tuple(size for size, _ in pairs)
