"""The machine that lucid runs on: settings, the cache, and whether all works."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import lucid
from lucid.codegen.llvm.jit import compiler_version
from lucid.codegen.llvm.target import host_target
from lucid.compiler.guards.events import is_supported
from lucid.compiler.programs.native import is_measured
from lucid.compiler.reports.tables import size, table
from lucid.ir.environment import CACHE, NATIVE_CALLS, VARIABLES, unknown_names
from lucid.runtime import cache as objects
from lucid.runtime.threads import pool


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def config(options: argparse.Namespace) -> int:
    """Each environment variable, its value and meaning, and what no variable of lucid's is."""
    rows, code = [], 0
    for variable in VARIABLES:
        text = os.environ.get(variable.name, "").strip()
        try:
            value = repr(variable.parse(text)) if text else "not set"
        except ValueError:
            value, code = f"{text!r}: expected {variable.values}, so it is ignored", 1
        meaning = f"{variable.meaning}: {variable.values} (default: {variable.default})"
        rows.append((variable.name, value, meaning))
    for line in table(rows, left=(0, 1, 2)):
        _say(line)
    for name, close in unknown_names():
        code = code or int(bool(close))
        hint = f"; did you mean {close}?" if close else ""
        _say(f"{name} is no variable of lucid's{hint}")
    return code


def cache(options: argparse.Namespace) -> int:
    """What is in the cache, or nothing any more."""
    folder = objects.cache_folder()
    if folder is None:
        _say("the cache is off" if not CACHE.read() else "there is no folder for the cache")
        return 0
    if options.action == "clear":
        count, nbytes = objects.clear(folder)
        _say(f"removed {count} entries, {size(nbytes)}, from {folder}")
        return 0
    count, nbytes = objects.contents(folder)
    _say(f"folder   {folder}")
    _say(f"entries  {count} of at most {objects.COUNT_LIMIT}")
    _say(f"size     {size(nbytes)} of at most {size(objects.SIZE_LIMIT)}")
    return 0


def doctor(options: argparse.Namespace) -> int:
    """Versions, processor, what is on, and kernels against NumPy; 1 if something is wrong."""
    for name, text in _facts():
        _say(f"{name:<16}{text}")
    failed = 0
    for name, wrong in _tests():
        failed += bool(wrong)
        _say(f"{name:<16}{wrong or 'agrees with NumPy'}")
    _say("all is well" if not failed else f"{failed} of the tests have failed")
    return int(failed > 0)


def _facts() -> Iterator[tuple[str, str]]:
    target = host_target()
    yield "lucid", f"{lucid.__version__} in {os.path.dirname(lucid.__file__)}"
    yield "Python", f"{platform.python_version()} ({sys.implementation.name}), {sys.executable}"
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield "packages", ", ".join(f"{x} {_version(x)}" for x in ("numpy", "networkx", "llvmlite"))
    yield "compiler", compiler_version()
    yield "processor", f"{target.cpu}, vectors of {8 * target.vector_bytes} bits"
    features = [x[1:] for x in target.features.split(",") if x.startswith("+")]
    yield "features", " ".join(sorted(features)) or "none that are known"
    yield "threads", f"{pool.num_threads} of {os.cpu_count()} processors"
    if not is_supported():
        yield "tracing", "off: this interpreter's frames aren't known, so calls run op by op"
    else:
        yield "tracing", "on"
    yield "native entry", _entry()
    folder = objects.cache_folder()
    yield "cache", "off" if folder is None else f"{folder}, {size(objects.contents(folder)[1])}"
    for name, close in unknown_names():
        if close:
            yield "warning", f"{name} is no variable of lucid's; did you mean {close}?"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _entry() -> str:
    if not NATIVE_CALLS.read():
        return f"off, by {NATIVE_CALLS.name}"
    if not is_measured():
        return "off: objects of this interpreter don't lie in memory as expected"
    return "on"


def _tests() -> Iterator[tuple[str, str]]:
    """Small steps of each kind of kernel, and what is wrong with each."""
    lucid.manual_seed(0)
    x, w = lucid.randn(33, 20), lucid.randn(20, 17)
    image, filters = lucid.randn(2, 3, 9, 9), lucid.randn(4, 3, 3, 3)
    places = lucid.tensor([3, 0, 2])
    layer = lucid.nn.Linear(20, 3)
    optimizer = lucid.optim.Adam(layer.parameters())

    def train() -> Any:
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    cases: dict[str, Callable[[], Any]] = {
        "elementwise": lambda: (x.exp() + x.sin()).tanh() * x.abs().sqrt(),
        "product": lambda: lucid.relu(x @ w),
        "sums": lambda: (x.softmax(1), x.var(0), x.cumsum(1)),
        "sort": lambda: x.sort(1),
        "indices": lambda: x[places] * 2,
        "convolution": lambda: lucid.nn.functional.conv2d(image, filters, padding=1),
        "random numbers": lambda: lucid.rand(100),
        "gradient": lambda: lucid.func.grad(lambda v: (v @ w).square().mean())(x),
        "training": train,
    }
    for name, case in cases.items():
        try:
            found = lucid.compile(case).check()
            yield name, "" if found.agrees else str(found)
        except Exception as error:
            yield name, f"{type(error).__name__}: {error}"
