"""Kernels from their texts: `parse_kernel(str(kernel)) == kernel`, as the texts say everything."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Sequence
from math import inf

from lucid.codegen.contraction.attention import Attention
from lucid.codegen.contraction.axes import Axis, Padded
from lucid.codegen.contraction.blocked import BlockedPlan, BlockedProduct
from lucid.codegen.kernel_ir.affine import AffineExpr, form
from lucid.codegen.kernel_ir.instruction import (
    Bits,
    Fold,
    Indexed,
    Inst,
    InstAttributes,
    Keywords,
    OpenBits,
    Scattered,
)
from lucid.codegen.kernel_ir.kernel import Kernel, Partition, TileGrid
from lucid.codegen.kernel_ir.nest import LoopNest, analyze
from lucid.codegen.kernels.attention import AttentionKernel
from lucid.codegen.kernels.axes import AxesKernel
from lucid.codegen.kernels.blocked import BlockedKernel
from lucid.codegen.kernels.body import Calls, Place
from lucid.codegen.kernels.branch import BranchKernel
from lucid.codegen.kernels.check import CheckKernel
from lucid.codegen.kernels.host import HostKernel
from lucid.codegen.kernels.loop import LoopKernel
from lucid.codegen.kernels.scan import ScanKernel
from lucid.codegen.kernels.sort import SortKernel
from lucid.ir.errors import ParseError
from lucid.ir.op import OPS
from lucid.ir.ops.attention import AttentionSizes
from lucid.ir.types import DType, Shape, TensorType, dtype_named


def parse_kernel(text: str) -> Kernel:
    """The kernel of a text. Raises `ParseError` for what is none, with the line."""
    for head, parse in _KINDS.items():
        if text.startswith(head):
            try:
                return parse(text.split("\n"))
            except ParseError:
                raise
            except (
                LookupError, SyntaxError, TypeError, ValueError, AssertionError, StopIteration
            ) as error:  # fmt: skip
                raise ParseError(
                    f"kernel: {text.splitlines()[0]} isn't understood: {error}"
                ) from None
    raise ParseError(f"no kernel begins with {text.splitlines()[:1]}")


def parse_kernels(text: str) -> dict[str, Kernel]:
    """The kernels of `stages["kernels"]`, by name."""
    found = re.finditer(r"^kernel (\w+) = (.*?)\n(?=kernel |call )", text, re.M | re.S)
    return {match[1]: parse_kernel(match[2]) for match in found}


def _match(pattern: str, line: str) -> re.Match[str]:
    found = re.fullmatch(pattern, line)
    if found is None:
        raise ParseError(f"kernel: this line isn't understood: {line.strip()}")
    return found


def _ints(text: str, separator: str) -> tuple[int, ...]:
    return tuple(int(entry) for entry in text.split(separator) if entry.strip())


# Forms and parts ------------------------------------------------------------------------------


def _form(text: str) -> AffineExpr:
    """Of `i0*12 + i1 + 3`; a line's or matrix's own index, `k*4`, is not part of it."""
    offset, terms = 0, []
    for term in text.split(" + "):
        if term[0] == "i":
            dim, _, value = term[1:].partition("*")
            terms.append((int(dim), int(value or 1)))
        else:
            offset += int(term)
    return form(offset, terms)


_PARTS = r"(?: in (\d+) parts of (\d+) along i(\d+)((?:, a\d+ \d+ for each)*))?"


def _partition(count: str | None, size: str, dim: str, partials: str) -> Partition | None:
    if count is None:
        return None
    blocks = re.findall(r"a(\d+) (\d+)", partials)
    own = tuple((int(arg), int(elements)) for arg, elements in blocks)
    return Partition(int(dim), int(size), int(count), own)


def _dims(text: str) -> Shape:
    return tuple(int(size) for size in re.findall(r"i\d+ in (\d+)", text))


# Loops ----------------------------------------------------------------------------------------


def _loop(lines: list[str]) -> Kernel:
    nest, rest = _nest(lines)
    return LoopKernel(nest, _partition(*_match(_PARTS, rest).groups()))


class _Nest:
    """What the lines of a nest say, collected."""

    def __init__(self) -> None:
        self.kept: dict[int, int] = {}
        self.reduced: dict[int, int] = {}
        self.in_pass = False
        self.vector, self.lanes = -1, 1
        self.insts: dict[int, Inst] = {}
        self.scratch: dict[int, int] = {}

    def line(self, line: str, args: Sequence[DType]) -> None:
        text, _, comment = line.strip().partition("  // ")
        if text.startswith("for "):
            dim, size, lanes = _match(
                r"for i(\d+) in (\d+)(?: step (\d+) lanes)? \{", text
            ).groups()
            (self.reduced if self.in_pass else self.kept)[int(dim)] = int(size)
            if lanes:
                self.vector, self.lanes = int(dim), int(lanes)
        elif text.startswith("pass "):
            self.in_pass = True
        elif text != "}":
            number, inst = _inst(text, args)
            self.insts[number] = inst
            if comment:
                self.scratch[int(_match(r"s(\d+): .*", comment)[1])] = number


def _nest(lines: list[str]) -> tuple[LoopNest, str]:
    """Loops, and what their head says about how threads share them."""
    head, parts = _match(r"loop\((.*?)\)(.*) \{", lines[0]).groups()
    args = [dtype_named(name) for name in re.findall(r"a\d+: (\w+)\*", head)]
    found = _Nest()
    for line in lines[1:]:
        found.line(line, args)
    insts = [found.insts[number] for number in sorted(found.insts)]
    for number, (said, inst) in enumerate(zip(sorted(found.insts), insts, strict=True)):
        if said != number or any(operand >= number for operand in inst.operands):
            raise ParseError(f"kernel: %{said} follows {number} others, and needs all its operands")
    kept, reduced = (tuple(x.values()) for x in (found.kept, found.reduced))
    nest = LoopNest(args, kept, reduced, found.vector, found.lanes, insts)
    analyze(nest)
    nest.scratch = [found.scratch[place] for place in sorted(found.scratch)]
    return nest, parts


_EFFECT = r"%(\d+): a(\d+)\[(.*)\] (<-|\+=) (%\d+(?:, %\d+)*)(.*)"
_VALUE = r"%(\d+) = (\w+)(?: a(\d+)\[([^]]*)\]| \(([^)]*)\))?((?: %\d+,?)*)(.*) : (\w+)"


def _inst(text: str, args: Sequence[DType]) -> tuple[int, Inst]:
    if "] <- " in text or "] += " in text:
        number, arg, place, arrow, given, rest = _match(_EFFECT, text).groups()
        op = "accumulate" if arrow == "+=" else "write" if rest else "store"
        attributes = _attributes(op, rest)
        dtype, operands = args[int(arg)], _numbers(given)
        return int(number), Inst(op, dtype, operands, _form(place), int(arg), attributes)
    number, op, arg, place, value, given, rest, name = _match(_VALUE, text).groups()
    at = place if arg is not None else value
    where = None if at is None else _form(at)
    attributes = _attributes(op, rest)
    arg_number = -1 if arg is None else int(arg)
    operands = _numbers(given)
    return int(number), Inst(op, dtype_named(name), operands, where, arg_number, attributes)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"%(\d+)", text))


def _attributes(op: str, text: str) -> InstAttributes:
    if not text:
        return None
    if op == "const":
        if found := re.fullmatch(r" open (-?\d+)( bits)?", text):
            return OpenBits(int(found[1]), found[2] is not None)
        return Bits(bytes.fromhex(text))
    if op in ("reduce", "scan", "accumulate"):
        return Fold(text.strip())
    if op in ("gather", "index_at", "write"):
        stride, size, mode = _match(r" stride (-?\d+) size (\d+)(?: (add|set))?", text).groups()
        if mode is None:
            return Indexed(int(stride), int(size))
        return Scattered(int(stride), int(size), mode == "add")
    if op not in OPS:
        raise ParseError(f"kernel: no instruction {op}")
    pairs = re.findall(r" (\w+)=(.*?)(?= \w+=|$)", text)
    return Keywords(tuple((name, literal_eval(value)) for name, value in pairs))


# Products -------------------------------------------------------------------------------------


def _over_axes(lines: list[str]) -> Kernel:
    head = _match(rf"contract over axes, (\d+) lanes{_PARTS}:", lines[0])
    start = next(number for number, line in enumerate(lines) if line.startswith("loop("))
    sides = [_match(r"  ([ab]): a(\d+)\[(.*)\]", line) for line in lines[start - 2 : start]]
    strides, offsets = zip(*(_strides(side[3]) for side in sides), strict=True)
    loops: list[Axis] = []
    inner: list[Axis] = []
    steps: list[int] = []
    vector, block = -1, 0
    axis = r"  (\w+) ([ik])(\d+) in (\d+)(?: step (\d+))?(, lanes)?(?: in blocks of (\d+))?"
    for line in lines[1 : start - 2]:
        kind, letter, number, size, step, lanes, blocks = _match(axis, line).groups()
        a, b = (found.get(letter + number, 0) for found in strides)
        dim = int(number) if letter == "i" else -1
        (loops if letter == "i" else inner).append(Axis(kind, int(size), a, b, dim))
        if letter == "i":
            steps.append(int(step or 1))
            vector = dim if lanes else vector
        block = int(blocks or block)
    nest, _ = _nest(lines[start:])
    return AxesKernel(
        nest,
        tuple(loops),
        tuple(steps),
        tuple(inner),
        vector,
        int(head[1]),
        (int(sides[0][2]), int(sides[1][2])),
        (offsets[0], offsets[1]),
        block,
        _partition(*head.groups()[1:]),
    )


def _blocked(lines: list[str]) -> Kernel:
    pattern = (
        r"contract in blocks of (\d+) of k(\d+), (\d+) rows, (\d+) columns, a (.*?), b (.*?), "
        r"(tile|dots) (\d+)x(\d+) of (\d+) lanes(, without padding)?"
        r"(?: in (\S+) parts of (\d+x\d+x\d+))?(?:, packed in (\d+))?:"
    )
    (
        extent,
        split,
        rows,
        columns,
        *packed,
        kind,
        height,
        width,
        lanes,
        skips,
        counts,
        size,
        packs,
    ) = _match(pattern, lines[0]).groups()
    tile = int(lanes), int(height), int(width), kind == "dots"
    blocks = int(split), int(extent), int(columns), int(rows)
    plan = BlockedPlan(*tile, *blocks, packed[0], packed[1], skips is not None)
    start = next(number for number, line in enumerate(lines) if line.startswith("loop("))
    sides = [_match(r"  ([ab]): a(\d+)\[(.*)\]", line) for line in lines[start - 2 : start]]
    strides, offsets = zip(*(_strides(side[3]) for side in sides), strict=True)
    axes: dict[str, list[Axis]] = {letter: [] for letter in "imnk"}
    pattern = r"  (\w+) ([imnk])(\d+) in (\d+)(?: along p(\d+)\*(\d+) in (-?\d+)\.\.(-?\d+))?"
    for line in lines[1 : start - 2]:
        kind, letter, number, extent, *along = _match(pattern, line).groups()
        a, b = (found.get(letter + number, 0) for found in strides)
        place, by, low, high = (int(entry or 0) for entry in along)
        padded = Padded(place, low, high) if along[0] else None
        axes[letter].append(Axis(kind, int(extent), a, b, padded=padded, by=by))
    nest, _ = _nest(lines[start:])
    product = BlockedProduct(
        nest,
        tuple(axes["i"]),
        tuple(axes["m"]),
        tuple(axes["n"]),
        tuple(axes["k"]),
        (int(sides[0][2]), int(sides[1][2])),
        (offsets[0], offsets[1]),
        plan,
    )
    if counts is None:
        return BlockedKernel(product)
    (p, q, r), (s, t, u) = _ints(counts, "x"), _ints(size, "x")
    return BlockedKernel(product, TileGrid((s, t, u), (p, q, r), int(packs or 0)))


def _strides(text: str) -> tuple[dict[str, int], int]:
    """Of `i0*24 + k1*3 + 7` the strides by axis, and the offset."""
    *terms, offset = text.split(" + ")
    pairs = (term.split("*") for term in terms)
    return {name: int(value) for name, value in pairs}, int(offset)


# Others ---------------------------------------------------------------------------------------


def _check(lines: list[str]) -> Kernel:
    pattern = r"check\((.*)\) (-?\d+) <= a0\[(.*)\] : (\w+) < (-?\d+)"
    dims, low, place, dtype, high = _match(pattern, lines[0]).groups()
    return CheckKernel(dtype_named(dtype), _dims(dims), _form(place), int(low), int(high))


def _sort(lines: list[str]) -> Kernel:
    pattern = (
        r"sort\((.*)\) (ascending|descending) (\d+) (\w+) (\w+)(?: first (\d+))?: "
        rf"a0\[(.*) \+ k\*(-?\d+)\] -> a1\[(.*) \+ k\*(-?\d+)\]{_PARTS}"
    )
    found = _match(pattern, lines[0])
    dims, order, length, dtype, keeps, first, source, step, target, stride = found.groups()[:10]
    return SortKernel(
        dtype_named(dtype),
        _dims(dims),
        int(length),
        _form(source),
        int(step),
        _form(target),
        int(stride),
        order == "descending",
        keeps,
        int(length if first is None else first),
        _partition(*found.groups()[10:]),
    )


def _attention(lines: list[str]) -> Kernel:
    pattern = (
        r"attention( gradient)?( causal)?( nan)?(?: (\w+) mask(?: of (\S+))?)?( dropout)? (f\d+) "
        r"(one|[\dx]+) of "
        r"(\d+) queries (\d+) keys, (\d+) (\d+), blocks of (\d+)x(\d+): (.*), (\d+) own" + _PARTS
    )
    found = _match(pattern, lines[0]).groups()
    gradient, causal, nan_rows, mask, fill, dropout, dtype, batch = found[:8]
    rows, keys, inner, columns, queries, whole = map(int, found[8:14])
    places = tuple(_form(text) for text in re.findall(r"a\d+\[(.*?)\]", found[14]))
    sizes = AttentionSizes(() if batch == "one" else _ints(batch, "x"), rows, keys, inner, columns)
    spec = Attention(
        dtype_named(dtype),
        sizes,
        gradient is not None,
        causal is not None,
        nan_rows is not None,
        None if mask is None else dtype_named(mask),
        dropout is not None,
        places,
        (queries, whole),
        -inf if fill is None else float(fill),
    )
    return AttentionKernel(spec, int(found[15]), _partition(*found[16:]))


def _host(lines: list[str]) -> Kernel:
    name, operands, results = _match(r"host (.*?)\((.*)\) -> \((.*)\)", lines[0]).groups()
    return HostKernel(_types(operands), _types(results), name)


def _types(text: str) -> tuple[TensorType, ...]:
    found = re.findall(r"a\d+: (\w+)\[([\d,]*)\]", text)
    return tuple(TensorType(dtype_named(name), _ints(sizes, ",")) for name, sizes in found)


def _scan(lines: list[str]) -> Kernel:
    kind, operands, results = _match(r"(scan|while)\((.*)\) -> \((.*)\)", lines[0]).groups()
    pattern = r"  (\d+) rounds( in reverse)?, carry (\d+), rows (\d+), (\d+) bytes, (\d+) flops"
    length, reverse, carries, rows, size, flops = _match(pattern, lines[1]).groups()
    kernels: list[Kernel] = []
    calls = _calls(lines[2:], kernels)
    return ScanKernel(
        operands=_types(operands),
        results=_types(results),
        bytes=int(size),
        flops=int(flops),
        kernels=tuple(kernels),
        carries=int(carries),
        rows=int(rows),
        length=int(length),
        reverse=reverse is not None,
        is_while=kind == "while",
        calls=calls,
    )


def _branch(lines: list[str]) -> Kernel:
    operands, results = _match(r"branch\((.*)\) -> \((.*)\)", lines[0]).groups()
    size, flops = _match(r"  (\d+) bytes, (\d+) flops", lines[1]).groups()
    middle = lines.index("  else")
    kernels: list[Kernel] = []
    then, otherwise = (_calls(x, kernels) for x in (lines[2:middle], lines[middle + 1 :]))
    return BranchKernel(
        operands=_types(operands),
        results=_types(results),
        bytes=int(size),
        flops=int(flops),
        kernels=tuple(kernels),
        then=then,
        otherwise=otherwise,
    )


def _calls(lines: list[str], kernels: list[Kernel]) -> Calls:
    """The calls of a body; the kernels that its lines define are entered."""
    text = "\n".join(line[2:] for line in lines)
    calls: list[tuple[int, tuple[Place, ...]]] = []
    for part in re.split(r"\n(?=kernel |call )", text) if text else ():
        kind, name, rest = _match(r"(?s)(kernel|call) (\d+)(?: = )?(.*)", part).groups()
        if kind == "kernel":
            kernels.append(parse_kernel(rest))
            continue
        places = re.findall(r"(\w+) a(\d+)(?: \+ (\d+))?(?: \+ t\*(\d+))?", rest)
        found = (
            Place(int(arg), int(offset or 0), int(step or 0), dtype_named(dtype))
            for dtype, arg, offset, step in places
        )
        calls.append((int(name), tuple(found)))
    return tuple(calls)


_KINDS: dict[str, Callable[[list[str]], Kernel]] = {
    "loop(": _loop,
    "contract over axes": _over_axes,
    "contract in blocks": _blocked,
    "check(": _check,
    "sort(": _sort,
    "attention": _attention,
    "host ": _host,
    "scan(": _scan,
    "branch(": _branch,
    "while(": _scan,
}
