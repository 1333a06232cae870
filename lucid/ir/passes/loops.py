"""Loops: what no round needs goes, and what all rounds can do together is done outside.

The passes take a graph and its functions as one: a loop in a loop is in a function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import takewhile

from lucid.ir import ops
from lucid.ir.clone import copy_graph, copy_node
from lucid.ir.extents import hint
from lucid.ir.graph import Graph, Input, Node, Value, unused_name
from lucid.ir.op import Trait
from lucid.ir.ranges import Ranges
from lucid.ir.region_ops import BODIES, CONTROL, body_names, is_loop, stacked
from lucid.ir.types import TensorType

_FREE = ("view", "create")  # kinds of ops that take no time
_ROWS = 8  # for which a product copies its second operand, rather than read it in place


class Loop:
    """A loop in a graph with the body that only it runs, to be changed."""

    def __init__(self, graph: Graph, node: Node, body: Graph) -> None:
        self.graph, self.node, self.body = graph, node, body
        self._behind = 0  # how many nodes were added there

    @property
    def length(self) -> int:
        """How many rounds there are at most; it may be open."""
        length: int = self.node.attributes["length"]
        return length

    @property
    def is_while(self) -> bool:
        """Whether its first two carries control it, and not all of its rows are of a round."""
        return self.node.op is ops.while_loop

    @property
    def carries(self) -> int:
        return int(self.node.attributes["carries"])

    @property
    def rows(self) -> range:
        """The numbers of the operands that are rows."""
        return range(self.carries, self.carries + self.node.attributes["rows"])

    def operand_of(self, value: Value) -> Value:
        """What of the graph an input of the body is, or is a row of."""
        return self.node.operands[value.index]

    def add_input(self, operand: Value, *, is_row: bool) -> Value:
        """Let the body read a value of the graph, or its rows."""
        type = TensorType(operand.dtype, operand.shape[1:]) if is_row else operand.type
        number = self.rows.stop if is_row else len(self.node.operands)
        value = Value(type, self.body, None, number, operand.name)
        self.body.inputs.insert(number, Input(value, "arg"))
        operands = [*self.node.operands]
        operands.insert(number, operand)
        self.node.operands = tuple(operands)
        self.node.attributes["rows"] += is_row
        _number(self.body)
        return value

    def add_stack(self, value: Value) -> Value:
        """The rows that a value of the body has in all rounds."""
        for number in range(self.carries, len(self.body.outputs)):
            if self.body.outputs[number] is value:
                return self.node.results[number]
        type, results = stacked(value.type, self.length), self.node.results
        self.body.outputs.append(value)
        self.node.results = (*results, Value(type, self.graph, self.node, len(results), value.name))
        return self.node.results[-1]

    def keep(self, inputs: Sequence[int], results: Sequence[int]) -> None:
        """Drop all inputs and results but these; of a carry both go."""
        node, body = self.node, self.body
        counts = sum(i < self.carries for i in inputs), sum(i in self.rows for i in inputs)
        node.attributes["carries"], node.attributes["rows"] = counts
        node.operands = tuple(node.operands[i] for i in inputs)
        body.inputs = [body.inputs[i] for i in inputs]
        body.outputs = [body.outputs[i] for i in results]
        node.results = tuple(node.results[i] for i in results)
        for number, value in enumerate(node.results):
            value.index = number
        _number(body)

    def emit(self, build: Callable[[], Value], *, behind: bool) -> Value:
        """What `build` makes of values of the graph, by nodes before or behind the loop."""
        value, made = apart(self.graph, self.node, build)
        nodes = self.graph.nodes
        place = nodes.index(self.node) + (1 + self._behind if behind else 0)
        nodes[place:place] = made
        self._behind += len(made) if behind else 0
        return value


def apart(graph: Graph, at: Node, build: Callable[[], Value]) -> tuple[Value, list[Node]]:
    """What `build` makes of values of the graph, and the nodes that it takes, of another's line.

    They are to be put where they belong.
    """
    before, graph.nodes = graph.nodes, []
    try:
        value = build()
    finally:
        made, graph.nodes = graph.nodes, before
    for node in made:
        node.location, node.scope = at.location, at.scope
    return value, made


def _number(body: Graph) -> None:
    for number, entry in enumerate(body.inputs):
        entry.value.index = number


def _loops(graph: Graph) -> Iterator[Loop]:
    """The loops of a graph and, after each, those in its body; none shares its body with others."""
    for part, node, bodies in _region_ops(graph):
        if is_loop(node):
            yield Loop(part, node, *bodies)


def _region_ops(graph: Graph) -> Iterator[tuple[Graph, Node, list[Graph]]]:
    """The region ops of a graph, each with the graph that it is in and with bodies of its own."""
    if not graph.functions:
        return
    parts = (graph, *graph.functions.values())
    shared = Counter(name for part in parts for node in part.nodes for name in body_names(node))
    pending = [graph]
    while pending:
        part = pending.pop()
        for node in [*part.nodes]:
            bodies = []
            for key in BODIES.get(node.op, ()):
                name = node.attributes[key]
                if shared[name] > 1:
                    shared[name] -= 1
                    name = node.attributes[key] = _copied(graph, name, shared)
                bodies.append(graph.functions[name])
            if bodies:
                pending += bodies
                yield part, node, bodies


def _copied(graph: Graph, name: str, shared: Counter[str]) -> str:
    """A function of its own, with those that it runs counted once more."""
    copied = copy_graph(graph.functions[name])
    unique = copied.name = unused_name(name, graph.functions)
    graph.functions[unique] = copied
    shared.update(name for node in copied.nodes for name in body_names(node))
    return unique


# ---------------------------------------------------------------------- what nobody needs


def trim_loops(graph: Graph) -> bool:
    """Drop what no result depends on of carries, rows and stacks, or what is there twice.

    A carry that each round passes on as it is becomes a value from outside, and a stack of a row
    the operand that has it. Of a cond go results and operands. (Dead code elimination, for the
    results of region ops.)
    """
    changed = False
    for loop in [*_loops(graph)]:
        for step in (_pass_by, _drop_unused):
            changed = step(loop) or changed
    for part, node, bodies in [*_region_ops(graph)]:
        if node.op is ops.cond:
            changed = _trim_branches(part, node, bodies) or changed
    return changed


def _trim_branches(graph: Graph, node: Node, bodies: Sequence[Graph]) -> bool:
    """Drop what neither branch reads, and results that nobody does."""
    used = {*graph.uses(), *graph.results()}
    kept = [number for number, value in enumerate(node.results) if value in used]
    for body in bodies:
        body.outputs = [body.outputs[number] for number in kept]
        read = _read_by(body, body.outputs)
        body.nodes = [x for x in body.nodes if x.op is not ops.check or x.operands[0] in read]
        body.drop_dead_nodes()
    reads = [{*body.uses(), *body.outputs} for body in bodies]
    inputs = [
        number
        for number in range(len(bodies[0].inputs))
        if any(body.inputs[number].value in read for body, read in zip(bodies, reads, strict=True))
    ]
    changed = len(kept) < len(node.results) or len(inputs) < len(bodies[0].inputs)
    node.results = tuple(node.results[number] for number in kept)
    for number, value in enumerate(node.results):
        value.index = number
    node.operands = (node.operands[0], *(node.operands[1 + number] for number in inputs))
    for body in bodies:
        body.inputs = [body.inputs[number] for number in inputs]
        _number(body)
    return changed


def _pass_by(loop: Loop) -> bool:
    """Replace results that need no loop, and inputs that are there twice."""
    node, body, inside = loop.node, loop.body, {}
    outside: dict[Value, Value] = {}
    inputs = [entry.value for entry in body.inputs]
    seen: dict[tuple[Value, bool], Value] = {}
    for number, value in enumerate(inputs):
        operand = node.operands[number]
        if number < loop.carries:
            is_control = loop.is_while and number < CONTROL
            if body.outputs[number] is value and not is_control:
                outside[node.results[number]] = operand
                inside[value] = loop.add_input(operand, is_row=False)
        else:
            first = seen.setdefault((operand, number in loop.rows), value)
            if first is not value:
                inside[value] = first
    stacks: dict[Value, Value] = {}
    for value, result in zip(
        body.outputs[loop.carries :], node.results[loop.carries :], strict=True
    ):
        first = stacks.setdefault(value, result)
        if first is not result:
            outside[result] = first
        elif value.producer is None and value.index in loop.rows and not loop.is_while:
            outside[result] = loop.operand_of(value)
    used = {*loop.graph.uses(), *loop.graph.results()}
    outside = {value: by for value, by in outside.items() if value in used}
    outputs = body.outputs[: loop.carries]
    body.substitute(inside)
    loop.graph.substitute(outside)
    for number in range(loop.carries):  # a carry that is passed on still is one, until it goes
        if outputs[number] in inside:
            body.outputs[number] = outputs[number]
    return bool(outside)


def _drop_unused(loop: Loop) -> bool:
    """Drop what is neither used outside nor needed for what is."""
    node, body = loop.node, loop.body
    used = {*loop.graph.uses(), *loop.graph.results()}
    results = [i for i, value in enumerate(node.results) if value in used]
    carries = {i for i in results if i < loop.carries}
    carries |= {*range(CONTROL if loop.is_while else 0)}
    while True:
        stacks = [i for i in results if i >= loop.carries]
        read = _read_by(body, [body.outputs[i] for i in (*carries, *stacks)])
        more = {i for i in range(loop.carries) if body.inputs[i].value in read} - carries
        if not more:
            break
        carries |= more
    rest = range(loop.carries, len(body.inputs))
    inputs = [*sorted(carries), *(i for i in rest if body.inputs[i].value in read)]
    kept = [*sorted(carries), *stacks]
    if len(inputs) == len(body.inputs) and len(kept) == len(node.results):
        return False
    loop.keep(inputs, kept)
    body.nodes = [x for x in body.nodes if x.op is not ops.check or x.operands[0] in read]
    body.drop_dead_nodes()
    return True


def _read_by(body: Graph, values: Sequence[Value]) -> set[Value]:
    """What these values, and calls of Python, are computed from, these values included."""
    found = set(values)
    for node in reversed(body.nodes):
        is_call = node.has_effect and node.op is not ops.check
        if is_call or not found.isdisjoint(node.results):
            found.update(node.operands)
    return found


# ---------------------------------------------------------------------- what can be done before


def hoist_from_loops(graph: Graph) -> bool:
    """f(w) in each round -> once before; x_t @ w of a row x_t -> xs @ w of all, as one product.

    (Loop-invariant code motion; loop fission for products.)
    """
    changed = [Hoisting(loop).run() for loop in reversed([*_loops(graph)])]
    return any(changed)


def free_nodes(
    nodes: Sequence[Node],
    known: dict[Value, bool],
    is_while: bool,
    checked: Container[Value] = (),
) -> dict[Node, bool]:
    """The nodes of a round that no carry comes into, and whether rows do.

    known: what is read from outside, and whether by rows; gets what these nodes make.
    checked: indices that are known to be right outside as well.
    """
    found: dict[Node, bool] = {}
    for node in nodes:
        flags = [known.get(operand) for operand in node.operands]
        is_pure = not node.has_effect
        if Trait.INDEXED in node.op.traits:
            is_pure = is_pure and node.operands[1] in checked
        is_pure = is_pure and len(node.results) == 1
        if is_pure and None not in flags and (node.op.batch is not None or not any(flags)):
            if node.op.kind == "region" and (any(flags) or is_while):
                continue  # without a round nobody has checked what its bodies read
            found[node] = any(flags)
            known |= dict.fromkeys(node.results, any(flags))
    return found


class Hoisting:
    """Values of a body outside of the loop: those of all rounds, or of each.

    Attributes:
        outside: of values of the body, what they are in the graph, and whether by rows.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.outside: dict[Value, tuple[Value, bool]] = {}
        for number, entry in enumerate(loop.body.inputs):
            if number >= loop.carries:
                self.outside[entry.value] = loop.operand_of(entry.value), number in loop.rows

    def run(self) -> bool:
        """Move what can be moved."""
        loop, replacement = self.loop, dict[Value, Value]()
        free, constants, ranges, known = self.free(), set[Value](), Ranges(), list[Node]()
        copied = _copied_for_products(loop.body)
        for node in [*loop.body.nodes]:
            ranges.note(node)
            by_row = free.get(node)
            if by_row is None or (by_row and loop.is_while):
                continue
            if node.result.type.size == 1 and constants.issuperset(node.operands):
                constants.add(node.result)  # its number will be known before the step runs
            elif node.op.kind in _FREE and (by_row or node not in copied):
                continue
            elif not by_row or node.op.kind == "contract":
                value, is_row = self.place(node.result, behind=False)
                given = replacement[node.result] = loop.add_input(value, is_row=is_row)
                check = ranges.check_of(node.result, given)
                known += () if check is None else (check,)
        loop.body.substitute(replacement)
        if any(Trait.INDEXED in node.op.traits for node in loop.body.nodes):
            loop.body.nodes[:0] = known  # what is known of its indices, which is seen no more
        loop.body.drop_dead_nodes()
        return bool(replacement)

    def free(self, checked: Container[Value] = ()) -> dict[Node, bool]:
        """The nodes that no carry comes into, and whether rows do; `checked` as of `free_nodes`."""
        known = {value: by_row for value, (_, by_row) in self.outside.items()}
        return free_nodes(self.loop.body.nodes, known, self.loop.is_while, checked)

    def place(self, wanted: Value, *, behind: bool) -> tuple[Value, bool]:
        """What a value is in the graph, made there of what it is computed from."""
        pending = [wanted]
        while pending:
            value = pending[-1]
            node = value.producer
            if value in self.outside:
                pending.pop()
                continue
            assert node is not None, "a carry isn't the same outside"
            missing = [x for x in node.operands if x not in self.outside]
            pending += missing
            if not missing:
                found = [self.outside[x] for x in node.operands]
                flags = tuple(by_row for _, by_row in found)
                operands = [x for x, _ in found]
                made = self.loop.emit(
                    lambda node=node, flags=flags, operands=operands: self._made(  # type: ignore[misc]
                        node, flags, operands
                    ),
                    behind=behind,
                )
                self.outside[value] = made, any(flags)
        return self.outside[wanted]

    def _made(self, node: Node, flags: tuple[bool, ...], operands: Sequence[Value]) -> Value:
        if any(flags):
            assert node.op.batch is not None
            made: Value = node.op.batch(
                node.op, self.loop.length, flags, *operands, **node.attributes
            )
            return made
        graph = self.loop.graph
        copied = copy_node(node, graph, dict(zip(node.operands, operands, strict=True)))
        copied.gradient_of = None
        graph.nodes.append(copied)
        return copied.result


# ---------------------------------------------------------------------- what can be done after


def sink_from_loops(graph: Graph) -> bool:
    """Sums of products over rounds -> one product; a stack of products -> a product of stacks.

    The gradient of a weight is the sum over t of a_t' b_t, which is A' B for the rows of all rounds
    together; and what a round computes for a stack alone by a product is done for all at once. Both
    where the factors are no larger than the products, or are stacked anyway. What each round adds
    to a part of an array, as the gradient of `x[t]` does, is added at once.
    """
    changed = [_sink(loop) for loop in reversed([*_loops(graph)])]
    return any(changed)


def _sink(loop: Loop) -> bool:
    if loop.is_while or not loop.length:
        return False
    body, changed = loop.body, False
    moving = _Sinking(loop)
    uses = Counter(operand for node in body.nodes for operand in node.operands)
    uses.update(body.outputs)
    for number, output in enumerate([*body.outputs]):
        result = loop.node.results[number]
        if number >= loop.carries:
            if output.producer is not None and output.producer.op is ops.matmul:
                is_only_stacked = uses[output] == body.outputs.count(output)
                if is_only_stacked and moving.are_small(output.producer.operands, output):
                    changed = moving.replace(result, output) or changed
            continue
        addend = _summed(body, number, uses)
        if addend is not None and (total := moving.total(addend)) is not None:
            operand = loop.node.operands[number]
            end = loop.emit(lambda x=operand, y=total: ops.add(x, y), behind=True)  # type: ignore[misc]
            moving.substitute(result, end)
            changed = True
    return changed


def _summed(body: Graph, number: int, uses: Counter[Value]) -> Value | None:
    """What is added to a carry in each round, if that is all that is done with it."""
    carry, output = body.inputs[number].value, body.outputs[number]
    node = output.producer
    if node is None or node.op is not ops.add or carry.shape != output.shape:
        return None
    others = [x for x in node.operands if x is not carry]
    if uses[carry] != 1 or uses[output] != 1 or len(others) != 1:
        return None
    return others[0] if others[0].shape == carry.shape else None


class _Sinking(Hoisting):
    """Values of a body behind the loop, computed from stacks."""

    def are_small(self, factors: Sequence[Value], product: Value) -> bool:
        """Whether stacking the factors takes no more memory than stacking the product."""
        new = {x for x in map(_base, factors) if not self._is_outside(x)}
        return sum(x.type.nbytes for x in new) <= product.type.nbytes

    def _is_outside(self, value: Value) -> bool:
        stacks = self.loop.body.outputs[self.loop.carries :]
        return value in self.outside or any(value is x for x in stacks) or _is_free(value)

    def replace(self, result: Value, value: Value) -> bool:
        """Compute what is stacked behind the loop."""
        assert value.producer is not None
        for factor in value.producer.operands:
            self._stack(factor)
        made, is_row = self.place(value, behind=True)
        if is_row:
            self.substitute(result, made)
        return is_row

    def substitute(self, result: Value, by: Value) -> None:
        """Let a value stand for a result; the node that makes it may read the result."""
        loop = self.loop
        loop.graph.substitute({result: by})

    def _stack(self, value: Value) -> None:
        base = _base(value)
        if base not in self.outside and not _is_free(base):
            self.outside[base] = self.loop.add_stack(base), True

    def total(self, addend: Value) -> Value | None:
        """The sum over all rounds of a product, of a sum, or of what is added at a row of places.

        None where it stays in the loop.
        """
        base = _base(addend)
        node = base.producer
        if node is None:
            return None
        if node.op is ops.matmul and len(base.shape) == 2:
            factors = node.operands
            if max(map(_size_of_base, factors)) > _MOST * base.type.nbytes:
                return None
        elif node.op is ops.sum and self._is_outside(_base(node.operands[0])):
            factors = node.operands
        elif node.op is ops.index_add and _is_zero(node.operands[0]) and self._has_row(node):
            factors = node.operands[1:]
        else:
            return None
        for factor in factors:
            self._stack(factor)
        found = [self.place(factor, behind=True) for factor in factors]
        if not all(by_row for _, by_row in found):
            return None
        stacks = [x for x, _ in found]
        return self.loop.emit(lambda: _seen(addend, base, _total(node, stacks)), behind=True)

    def _has_row(self, node: Node) -> bool:
        """Whether an index is a row, and all of its rows are known to be right."""
        index, by_row = self.outside.get(node.operands[1], (None, False))
        if index is None or not by_row:
            return False
        ranges, size = Ranges(), node.result.shape[node.attributes["axis"]]
        for before in takewhile(lambda x: x is not self.loop.node, self.loop.graph.nodes):
            ranges.note(before)
        known = ranges.of(index)
        return known is not None and known.is_within(-size, size - 1)


_MOST = 64  # how many times larger than a sum of products a factor may be


def _size_of_base(value: Value) -> int:
    return _base(value).type.nbytes


def _total(node: Node, stacks: Sequence[Value]) -> Value:
    """The sum over the rows of stacks of what the node makes of each."""
    if node.op is ops.sum:
        axes = (0, *(axis + 1 for axis in node.attributes["axes"]))
        return ops.sum(stacks[0], axes=axes)
    if node.op is ops.index_add:
        index, values = stacks
        axis: int = node.attributes["axis"]
        order = (*range(1, axis + 1), 0, *range(axis + 1, len(values.shape)))
        zero = ops.broadcast(index.graph.constant(0, node.result.dtype), shape=node.result.shape)
        return ops.index_add(zero, index, ops.transpose(values, perm=order), axis=axis)
    (length, m, k), n = stacks[0].shape, stacks[1].shape[2]
    a = ops.reshape(ops.transpose(stacks[0], perm=(1, 0, 2)), shape=(m, length * k))
    return ops.matmul(a, ops.reshape(stacks[1], shape=(length * k, n)))


def _seen(value: Value, base: Value, instead: Value) -> Value:
    """What a value would be that is seen through views of a base, if that were another one."""
    views = []
    while value is not base:
        assert value.producer is not None
        views.append(value.producer)
        value = value.producer.operands[0]
    for node in reversed(views):
        instead = node.op(instead, **node.attributes)
    return instead


def _copied_for_products(body: Graph) -> set[Node | None]:
    """Turned matrices that products would copy in each round: x @ w.T reads lines of w.T.

    Few rows are multiplied by what lies where it is.
    """
    found = set[Node | None]()
    for node in body.nodes:
        turned = node.operands[1].producer if node.op is ops.matmul else None
        if turned is not None and turned.op is ops.transpose:
            *_, columns = node.result.type.shape
            if hint(node.result.type.size) >= _ROWS * hint(columns):
                found.add(turned)
    return found


def _base(value: Value) -> Value:
    """What a chain of views looks at."""
    while (node := value.producer) is not None and node.op.is_view and len(node.operands) == 1:
        value = node.operands[0]
    return value


def _is_zero(value: Value) -> bool:
    node = _base(value).producer
    return node is not None and node.op is ops.constant and not node.attributes["value"]


def _is_free(value: Value) -> bool:
    return value.producer is not None and value.producer.op in (ops.constant, ops.iota)
