"""Graphs in files: passes on them, what they compute, and what of them shows a fault."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lucid.codegen.lower.legalize import LEGALIZE
from lucid.compiler.reports.checking import Meaning
from lucid.ir import ops
from lucid.ir.clone import rewritten
from lucid.ir.environment import VERIFY
from lucid.ir.errors import ArgumentError, OptionError, ParseError
from lucid.ir.graph import Graph, Input
from lucid.ir.interpret import interpret
from lucid.ir.passes.pipeline import Pass, PassLog, Pipeline, name_of, optimize
from lucid.ir.passes.regions import outline, outline_repeated
from lucid.ir.reduce import reduce_graph
from lucid.ir.text import parse
from lucid.ir.text.literals import number
from lucid.ir.text.printer import value_names
from lucid.ir.verify import verify
from lucid.runtime.executable import compile_graph
from lucid.serialization.container import COMPLAINTS


def read(path: Path) -> Graph:
    """The graph that a file has. Raises what parsing and verifying it does."""
    graph = parse(_text(path))
    verify(graph)
    return graph


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"{path} is no text in UTF-8: {error.reason} {error.start}") from None


def passes_by_name() -> dict[str, Pass]:
    """All passes and pipelines."""
    found: dict[str, Pass] = {name_of(run): run for run in (outline, outline_repeated)}
    queue: list[Pass] = [optimize, LEGALIZE]
    for run in queue:  # which grows meanwhile
        found[name_of(run)] = run
        queue += run.passes if isinstance(run, Pipeline) else ()
    return found


def opt(options: argparse.Namespace) -> int:
    """Run passes on a graph and print it."""
    known = passes_by_name()
    chosen, shown = (_listed(text) for text in (options.passes, options.print_after))
    for name in (*chosen, *shown):
        if name not in known and (name != "all" or name in chosen):
            raise OptionError(f"there is no pass {name}; there are {', '.join(sorted(known))}")
    graph = read(options.file)
    if options.verify:
        os.environ[VERIFY.name] = "1"
    log = PassLog(texts={})
    Pipeline("opt", [known[name] for name in chosen])(graph, log)
    assert log.texts is not None
    for stage, text in log.texts.items():
        name = stage.partition(" ")[0]
        if name != "opt" and not {name, "all"}.isdisjoint(shown):
            sys.stderr.write(f"# {graph.name} after {stage}\n{text}\n")
    sys.stdout.write(str(graph))
    return 0


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def run(options: argparse.Namespace) -> int:
    """Run a graph, and print or write its results."""
    graph = read(options.file)
    if graph.hosts or any(node.op is ops.host for node in graph.nodes):
        raise ArgumentError("it calls Python, which a file doesn't have")
    inputs = _inputs(graph, options.inputs, options.random)
    names = value_names(graph)
    labels = [names[value] for value in graph.outputs]
    labels += [f"{names[cell]} after" for cell, _ in graph.writes]
    results = _results(graph, inputs, native=not options.interpret)
    for label, array in zip(labels, results, strict=True):
        _show(label, array, options.out)
    if not options.check:
        return 0
    native = _results(graph, inputs, native=True) if options.interpret else results
    rows = zip(labels, Meaning(graph, inputs).compared(native), strict=True)
    wrong = [label for label, row in rows if not row.agrees]
    sys.stdout.write(
        f"native and NumPy differ in {', '.join(wrong)}\n" if wrong else "both agree\n"
    )
    return int(bool(wrong))


def _inputs(graph: Graph, given: Sequence[str], seed: int | None) -> list[Any]:
    needed = graph.inputs
    if len(given) > len(needed) or (len(given) < len(needed) and seed is None):
        names = value_names(graph)
        listed = "\n".join(f"  %{names[x.value]}: {x.value.type}" for x in needed)
        raise ArgumentError(
            f"the graph has {len(needed)} inputs, and {len(given)} are given\n{listed}\n"
            "hint: --random 0 makes those that are missing"
        )
    rng = np.random.default_rng(seed)
    found = [_read_input(text, entry) for text, entry in zip(given, needed, strict=False)]
    return found + [_random_input(entry, rng) for entry in needed[len(given) :]]


def _read_input(text: str, entry: Input) -> Any:
    type_ = entry.value.type
    if text.endswith(".npy"):
        array = _read_array(text)
    else:
        try:
            array = np.asarray(number(text, type_.dtype))
        except (ValueError, OverflowError):
            raise ArgumentError(
                f"{text!r} is neither a number of {type_.dtype.name} nor a .npy file"
            ) from None
    if array.shape != type_.shape or array.dtype != type_.dtype.numpy:
        raise ArgumentError(f"{text}: {array.dtype}{list(array.shape)} where {type_} is needed")
    return array.item() if entry.kind == "live" else array


def _read_array(path: str) -> np.ndarray:
    with open(path, "rb") as file:
        try:
            return np.lib.format.read_array(file, allow_pickle=False)
        except COMPLAINTS as error:
            raise ArgumentError(f"{path} is no array that NumPy wrote: {error}") from None


def _random_input(entry: Input, rng: np.random.Generator) -> Any:
    """Numbers that most ops take: between a half and two, or small ones."""
    type_ = entry.value.type
    if type_.dtype.is_floating_point:
        array = rng.uniform(0.5, 2.0, type_.shape).astype(type_.dtype.numpy)
    else:
        array = rng.integers(0, 2, type_.shape).astype(type_.dtype.numpy)
    return array.item() if entry.kind == "live" else np.asarray(array)


def _results(graph: Graph, inputs: Sequence[Any], native: bool) -> list[np.ndarray]:
    """Outputs, then what was written."""
    if not native:
        outputs, written = interpret(graph, list(inputs))
        return [np.asarray(array) for array in (*outputs, *written)]
    own = [x.copy() if isinstance(x, np.ndarray) else x for x in inputs]
    outputs = compile_graph(rewritten(graph, optimize))(own)
    numbers = {entry.value: number for number, entry in enumerate(graph.inputs)}
    return [*outputs, *(own[numbers[cell]] for cell, _ in graph.writes)]


def _show(label: str, array: np.ndarray, folder: Path | None) -> None:
    text = np.array2string(array, threshold=20, prefix=" " * 4)
    sys.stdout.write(f"%{label}: {array.dtype}{list(array.shape)}\n    {text}\n")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{label.replace(' ', '_')}.npy", array)


def reduce(options: argparse.Namespace) -> int:
    """Make a graph smaller as long as a command accepts it."""
    graph = parse(_text(options.file))
    count = len(graph.nodes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / options.file.name
        found = reduce_graph(graph, lambda candidate: _accepts(options.check, candidate, path))
    sys.stderr.write(f"{count} nodes, {len(found.nodes)} are left\n")
    if options.out is None:
        sys.stdout.write(str(found))
    else:
        options.out.write_text(str(found), encoding="utf-8")
    return 0


def _accepts(command: str, graph: Graph, path: Path) -> bool:
    """Whether a command, run by the shell, exits with 0 for a graph."""
    path.write_text(str(graph), encoding="utf-8")
    quoted = shlex.quote(str(path))
    text = command.replace("{}", quoted) if "{}" in command else f"{command} {quoted}"
    return subprocess.run(text, shell=True, capture_output=True, check=False).returncode == 0
