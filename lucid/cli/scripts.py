"""Scripts: what is compiled in them, explained."""

from __future__ import annotations

import argparse
import contextlib
import re
import runpy
import sys
import traceback
from types import TracebackType

from lucid.compiler.compiled import collecting
from lucid.ir.errors import ArgumentError


def explain(options: argparse.Namespace) -> int:
    """Run a script as `python` would, then explain each compiled step that it has called.

    One that is interrupted or ends by an error is explained as far as it came. Where the script
    goes to another folder or prints elsewhere, pages and explanations go where they were to go.
    """
    if not options.script.is_file():
        raise ArgumentError(f"there is no script {options.script}")
    pages = None if options.html is None else options.html.absolute()
    before = sys.argv[:], sys.path[:]
    sys.argv = [str(options.script), *options.arguments]
    sys.path.insert(0, str(options.script.resolve().parent))
    code = 0
    with collecting() as found, contextlib.redirect_stdout(sys.stdout):
        try:
            runpy.run_path(str(options.script), run_name="__main__")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if not isinstance(end.code, int | None):
                sys.stderr.write(f"{end.code}\n")
        except BaseException as error:
            error.__traceback__ = _of_script(error.__traceback__, str(options.script))
            traceback.print_exc()
            code = 130 if isinstance(error, KeyboardInterrupt) else 1
        finally:
            sys.argv, sys.path = before
    steps = [step for step in found if step.stats.traces or step.stats.eager_reasons]
    if not steps:
        sys.stdout.write(f"{options.script}: no compiled function was called\n")
    for number, step in enumerate(steps):
        sys.stdout.write(f"\n{step.explain(full=options.full)}\n")
        if pages is not None and step.stats.traces:
            pages.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"\W+", "_", getattr(step, "__name__", type(step).__name__))
            step.report(pages / f"{number}_{name}.html")
    return code


def _of_script(entry: TracebackType | None, script: str) -> TracebackType | None:
    """The entries from the script's own on, as `python` shows them."""
    while entry is not None and entry.tb_frame.f_code.co_filename != script:
        entry = entry.tb_next
    return entry
