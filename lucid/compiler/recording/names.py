"""Names in dumps: inputs by the user's expressions for them, values by the user's variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from lucid.compiler.guards.calls import GuardCollector
from lucid.compiler.inputs.cells import GradUse
from lucid.compiler.inputs.objects import walk
from lucid.compiler.recording.recorder import Recorder
from lucid.compiler.results.output_specs import GraphOutput, OutputSpec
from lucid.ir.graph import Graph, Node
from lucid.ir.location import Location
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage


def name_inputs(recorder: Recorder, collector: GuardCollector) -> None:
    """Give inputs of the graph the user's expressions for them."""
    names = _storage_names(collector)
    inputs = {entry.value: entry for entry in recorder.graph.inputs}
    for use in recorder.grads.values():
        if use.leaf is not None:
            use.name = names.get(use.leaf._storage, "")
    for live in inputs.values():
        if live.kind == "live":
            live.value.name = identifier(live.source)
    for storage, cell in recorder.cells.items():
        if cell.kind in ("arg", "replaced") or cell.value not in inputs:
            continue
        entry = inputs[cell.value]
        if cell.kind == "constant":
            entry.source = "a constant made inside of the step"
            continue
        entry.source = names.get(storage, "")
        if cell.leaf is not None:
            entry.source = names.get(cell.leaf._storage, "") + ".grad"
        entry.value.name = identifier(entry.source)


def name_gradients(graph: Graph, grads: Iterable[tuple[GradUse, OutputSpec | None]]) -> None:
    """Name the gradients that the step leaves by their leaves: `layer_weight.grad`."""
    for use, spec in grads:
        if use.name and isinstance(spec, GraphOutput):
            value = graph.outputs[spec.slot]
            if value.producer is not None and not value.name:
                value.name = f"{identifier(use.name)}.grad"


def _storage_names(collector: GuardCollector) -> dict[Storage, str]:
    """The user's expressions for the storages within reach; Modules name theirs first."""
    found: dict[Storage, str] = {}
    for path, tensor in collector.tensors():
        found.setdefault(tensor._storage, path)
    for path, value in collector.library_objects:
        for name, tensor in _named_tensors(path, value, found):
            found.setdefault(tensor._storage, name)
    return found


def _named_tensors(
    path: str, value: Any, names: dict[Storage, str]
) -> Iterator[tuple[str, TensorCore]]:
    """Tensors that a library object holds, each with the user's way to it.

    names: what to call the parameters that key an optimizer's state.
    """
    if isinstance(value, TensorCore):
        yield path, value
    held: dict[str, Any] = getattr(value, "__dict__", {})
    state: Any = held.get("state") if isinstance(held.get("state"), dict) else {}
    parts = [(f"{path}.{key}", item) for key, item in held.items() if item is not state]
    for i, (key, item) in enumerate(state.items()):
        name = names.get(key._storage, str(i)) if isinstance(key, TensorCore) else repr(key)
        parts.append((f"{path}.state[{name}]", item))
    for path, part in parts:
        yield from (
            (name, x) for name, x, _ in walk(part, path, set()) if isinstance(x, TensorCore)
        )


def identifier(source: str) -> str:
    """A short name for a value from the user's expression: `opt.param_groups[0]['lr']` is `lr`."""
    words: list[str] = re.findall(r"[A-Za-z_]\w*|\d+", source)
    for holder, skipped in (("param_groups", 2), ("state", 1)):
        if holder in words[:-skipped]:
            words = words[words.index(holder) + skipped :]
    return "_".join(words[-5:]).strip("_")


# ---------------------------------------------------------------------- intermediate values


def name_values(graph: Graph) -> None:
    """Name what the user assigned: `h = F.relu(z)` gives the line's last value the name h.

    Of a call of a custom Function that is the last result. Nodes of the backward have no names of
    this kind, since their lines are those of the forward.
    """
    last: dict[tuple[str, int], Node] = {}
    for node in graph.nodes:
        if node.location is not None and node.gradient_of is None:
            last[node.location.file, node.location.line] = node
    for node in last.values():
        if node.location is not None and node.results:
            is_host = node.op.kind == "host"  # whose saved ones follow
            result = node.results[0 if is_host else -1]
            result.name = result.name or assigned_name(node.location)
    for function in graph.functions.values():
        name_values(function)


# A variable or an attribute, an annotation perhaps, and what assigns to it.
_ASSIGNED = re.compile(
    r"\s*(?:\w+\.)*([A-Za-z_]\w*)\s*(?::[^=]*)?(?:[-+*/@%&|^]|//|\*\*|<<|>>)?=[^=]"
)


def assigned_name(location: Location) -> str:
    """The variable that a line assigns, the first of several; empty when it does something else."""
    found = _ASSIGNED.match(location.text)
    return found.group(1) if found else ""
