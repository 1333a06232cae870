"""Checkpointed blocks: what their backward needs is computed again instead of being kept."""

from __future__ import annotations

from bisect import bisect_left

from lucid.ir import ops
from lucid.ir.clone import copy_node
from lucid.ir.graph import Graph, Node, Region, Value


def rematerialize(graph: Graph) -> bool:
    """barrier(f(x)) -> f(barrier(x, g)): move barriers to where values enter their block.

    A barrier with one operand is what a backward reads of a value that a checkpointed block, the
    barrier's region, has saved. In front of the first of them the block is computed again, as far
    as they need it, from what enters it. `g` is the last value computed before that place and after
    the block: so the second computation neither becomes one with the first nor comes before the
    backward has come to the block. What enters are values from outside, results that can't be
    computed again (of calls of Python, of checks), and values of the block that something else
    reads later still, such as what the next block starts from. Of blocks in blocks the outer one is
    computed first, and then what the inner ones in it need in turn.

    Reference: Griewank and Walther, "Algorithm 799: revolve", 2000; Chen et al., "Training Deep
    Nets with Sublinear Memory Cost", 2016.

    Args:
        graph: what is rewritten, in place, once its calls are inlined.

    >>> from lucid.ir import parse
    >>> from lucid.ir.passes.rematerialize import rematerialize
    >>> text = '''graph step(%x: f32[4]) {
    ...   %a = exp %x #1
    ...   %b = sin %a #1
    ...   %g = neg %b
    ...   %saved = barrier %a #1
    ...   %h = mul %g, %saved
    ...   return %b, %h
    ... }
    ... checkpoint #1 Block'''
    >>> graph = parse(text)
    >>> rematerialize(graph)
    True
    >>> print(graph, end="")
    graph step(%x: f32[4]) {
      %a = exp %x : f32[4]                                            #1
      %b = sin %a : f32[4]                                            #1
      %g = neg %b : f32[4]
      %x_1 = barrier %x, %g : f32[4]                                  #2
      %a_1 = exp %x_1 : f32[4]                                        #2
      %h = mul %g, %a_1 : f32[4]
      return %b, %h
    }
    checkpoint #1 Block
    repeated #2 Block
    """
    if any(node.op is ops.call for node in graph.nodes) or not any(map(_is_ask, graph.nodes)):
        return False
    _drop_asks_elsewhere(graph)
    while any(map(_is_ask, graph.nodes)):
        _Sweep(graph).run()
        graph.drop_dead_nodes()
    return True


def _can_be_repeated(node: Node) -> bool:
    """Whether computing a node again does nothing but take time."""
    return not node.has_effect


def outermost_block(node: Node) -> Region | None:
    """The checkpointed block that a node is in and that is in no other."""
    found = None
    for block in () if node.region is None else node.region.blocks:
        found = block
    return found


def _is_ask(node: Node) -> bool:
    """Whether a node is what a backward reads of a value that a block has saved."""
    return node.op is ops.barrier and len(node.operands) == 1


def _drop_asks_elsewhere(graph: Graph) -> None:
    """Let go of barriers of blocks that are in another graph, which a call has kept values of."""
    here = {outermost_block(node) for node in graph.nodes if not _is_ask(node)}
    asks = [node for node in graph.nodes if _is_ask(node) and outermost_block(node) not in here]
    if asks:
        gone = set(asks)
        graph.nodes = [node for node in graph.nodes if node not in gone]
        graph.substitute({node.result: node.operands[0] for node in asks})


class _Block:
    """A checkpointed block that is in no other.

    Attributes:
        bit: tells the blocks apart in sets of them.
        members: its nodes; asks: the barriers of what it, or a block in it, has saved. By position.
        boundary: the values that enter what is computed again.
        again: nodes that are.
    """

    def __init__(self, region: Region, bit: int) -> None:
        self.region = region
        self.bit = bit
        self.members: dict[Node, int] = {}
        self.asks: dict[Node, int] = {}
        self.boundary: dict[Value, None] = {}
        self.again: set[Node] = set()

    @property
    def place(self) -> int:
        """Where it is computed again."""
        return min(self.asks.values())

    @property
    def end(self) -> int:
        """Where it has been computed for the first time."""
        return max(self.members.values(), default=0)


class _Sweep:
    """One round: blocks that are in no others are computed again."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._results = set(graph.results())
        self._read: dict[Value, list[tuple[int, Region | None]]] = {}
        self._after: list[int] = []  # for each node the set of the blocks that it follows from
        self._blocks = self._find_blocks()
        self._asked = sorted(at for block in self._blocks for at in block.asks.values())

    def run(self) -> None:
        inserted: dict[int, list[Node]] = {}
        replacement: dict[Value, Value] = {}
        for block in sorted(self._blocks, key=lambda block: block.place):
            self._choose(block)
            for value in block.boundary:
                self._read.setdefault(value, []).append((block.place, block.region))
        for block in self._blocks:
            inserted[block.place] = self._again(block, replacement)
        nodes: list[Node] = []
        for at, node in enumerate(self._graph.nodes):
            nodes += inserted.get(at, ())
            if _is_ask(node) and outermost_block(node) is None:
                replacement[node.result] = node.operands[0]
            if node.op is not ops.barrier or node.result not in replacement:
                nodes.append(node)
        self._graph.nodes = nodes
        self._graph.substitute(replacement)

    def _find_blocks(self) -> list[_Block]:
        """The blocks of which anything is asked; notes who reads what, and what follows from it."""
        blocks: dict[Region, _Block] = {}
        following: dict[Value, int] = {}
        for at, node in enumerate(self._graph.nodes):
            region, bits = outermost_block(node), 0
            for operand in node.operands:
                bits |= following.get(operand, 0)
            if region is not None:
                block = blocks.setdefault(region, _Block(region, 1 << len(blocks)))
                (block.asks if _is_ask(node) else block.members)[node] = at
                bits |= block.bit
            if not _is_ask(node):
                for operand in node.operands:
                    self._read.setdefault(operand, []).append((at, region))
            following.update(dict.fromkeys(node.results, bits))
            self._after.append(bits)
        return [block for block in blocks.values() if block.asks]

    def _choose(self, block: _Block) -> None:
        """Find what must be computed again, and from what."""
        first = self._asked[bisect_left(self._asked, min(block.end, block.place))]
        pending = [operand for ask in block.asks for operand in ask.operands]
        for value in pending:  # which grows meanwhile
            node = value.producer
            if node is not None and not node.operands and not node.has_effect:
                continue  # constants are there at no cost
            is_inside = node is not None and node in block.members
            if node is None or not is_inside or self._is_there(value, block, first):
                block.boundary[value] = None
            elif node not in block.again:
                block.again.add(node)
                pending += node.operands

    def _is_there(self, value: Value, block: _Block, first: int) -> bool:
        """Whether a value of the block needn't be computed again.

        first: where the walk begins that comes to the block.
        """
        node = value.producer
        assert node is not None
        if not _can_be_repeated(node) or value in self._results:
            return True
        readers = self._read.get(value, ())
        return any(at >= first and region is not block.region for at, region in readers)

    def _again(self, block: _Block, replacement: dict[Value, Value]) -> list[Node]:
        """The barriers and copies of nodes of a block, and what the asks get instead of it."""
        graph, token = self._graph, self._token(block)
        regions = {block.region: _repeated(block.region)}
        mapping: dict[Value, Value] = {}
        nodes: list[Node] = []
        for value in block.boundary:
            node = Node(ops.barrier, (value, *token), {}, (value.type,), graph)
            node.location, node.region = block.region.location, regions[block.region]
            node.result.name = value.name
            mapping[value] = node.result
            nodes.append(node)
        for node in block.members:  # in their order
            if node in block.again:
                for operand in node.operands:
                    mapping.setdefault(operand, operand)
                again = copy_node(node, graph, mapping)
                again.region = _inside(node.region, regions)
                nodes.append(again)
        for ask in block.asks:
            (operand,) = ask.operands
            if ask.region is block.region:
                replacement[ask.result] = mapping.get(operand, operand)
            else:
                ask.operands = (mapping.get(operand, operand),)
                ask.region = _inside(ask.region, regions)
        return nodes

    def _token(self, block: _Block) -> tuple[Value, ...]:
        """The last value that is computed before the block is needed again, and after it."""
        for at in range(block.place - 1, -1, -1):
            node = self._graph.nodes[at]
            if self._after[at] & block.bit and node.op.kind not in ("view", "create", "check"):
                return (node.results[0],) if node.results else ()
        return ()


def _repeated(block: Region) -> Region:
    return Region(block.name, block.location, block.parent, "repeated")


def _inside(region: Region | None, regions: dict[Region, Region]) -> Region:
    """The region that stands for one in a block, where that is computed again."""
    assert region is not None, "it is in the block"
    found = regions.get(region)
    if found is None:
        parent = _inside(region.parent, regions)
        found = regions[region] = Region(region.name, region.location, parent, region.kind)
    return found
