"""The command line: `lucid`, or `python -m lucid`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import lucid
from lucid.cli import graphs, machine, scripts
from lucid.ir.errors import LucidError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 where it has succeeded, 1 where what it looked at is wrong, 2 for misuse.

    >>> main(["config"])  # doctest: +ELLIPSIS
    LUCID_NUM_THREADS...
    0
    """
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (LucidError, OSError, MemoryError, RecursionError) as error:
        sys.stderr.write(f"lucid {options.command}: {error}\n")
        return 2


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a seed is a whole number from 0 on, not {text!r}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("lucid", description="Look into compiled steps, and at lucid.")
    parser.add_argument("--version", action="version", version=f"lucid {lucid.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    opt = commands.add_parser("opt", help="run passes on a graph, and print what they leave")
    opt.add_argument("file", type=Path, metavar="FILE.lir")
    opt.add_argument("--passes", default="optimize", metavar="A,B", help="default: optimize")
    opt.add_argument("--verify", action="store_true", help="verify the graph after each pass")
    opt.add_argument("--print-after", default="", metavar="A,B", help="to stderr; or: all")
    opt.set_defaults(run=graphs.opt)

    run = commands.add_parser("run", help="run a graph on arrays, natively or with NumPy")
    run.add_argument("file", type=Path, metavar="FILE.lir")
    run.add_argument("inputs", nargs="*", metavar="INPUT", help="a .npy file or a number, in order")
    run.add_argument("--random", type=_seed, metavar="SEED", help="make inputs that are missing")
    run.add_argument("--interpret", action="store_true", help="with NumPy, op by op")
    run.add_argument("--check", action="store_true", help="both, and compare; 1 if they differ")
    run.add_argument("--out", type=Path, metavar="DIR", help="write results there as .npy")
    run.set_defaults(run=graphs.run)

    reduce = commands.add_parser("reduce", help="make a graph smaller that a command accepts")
    reduce.add_argument("file", type=Path, metavar="FILE.lir")
    reduce.add_argument(
        "--check",
        required=True,
        metavar="CMD",
        help="exits with 0 for a graph that still shows the fault; {} in it is the graph's file",
    )
    reduce.add_argument("--out", type=Path, metavar="FILE.lir", help="default: print it")
    reduce.set_defaults(run=graphs.reduce)

    explain = commands.add_parser("explain", help="run a script, and explain its compiled steps")
    explain.add_argument("--full", action="store_true", help="show all")
    explain.add_argument("--html", type=Path, metavar="DIR", help="write a page for each step")
    explain.add_argument("script", type=Path, metavar="SCRIPT.py")
    explain.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    explain.set_defaults(run=scripts.explain)

    cache = commands.add_parser("cache", help="compiled code on disk")
    cache.add_argument("action", choices=("info", "clear"))
    cache.set_defaults(run=machine.cache)

    config = commands.add_parser("config", help="the environment variables that lucid reads")
    config.set_defaults(run=machine.config)

    doctor = commands.add_parser("doctor", help="versions, processor, and a test of kernels")
    doctor.set_defaults(run=machine.doctor)
    return parser
