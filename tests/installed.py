"""Try a wheel out: `python tests/installed.py dist/NAME.whl`.

On each supported Python that is here it is installed alone into a fresh environment, where the
README's first example must learn, and the package must bring its types.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.11", "3.12", "3.13")
IS_THAT = """\
import sys, sysconfig, venv
is_other = "%d.%d" % sys.version_info[:2] != sys.argv[1]
sys.exit(bool(is_other or sysconfig.get_config_var("Py_GIL_DISABLED")))
"""
CHECK = """\
import importlib.metadata, importlib.util, pathlib, sys
import lucid
home = pathlib.Path(lucid.__file__).parent
assert home.is_relative_to(sys.prefix), home
assert (home / "py.typed").exists()
assert importlib.metadata.version("lucid-compiler") == lucid.__version__
print("doctor" if importlib.util.find_spec("lucid.__main__") else "")
"""


def found(version: str) -> Path | None:
    """Where that Python is, one with a lock on its interpreter."""
    here = [shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    here += [str(path) for path in sorted(pyenv.glob(f"versions/{version}.*/bin/python"))]
    for each in filter(None, here):
        asked = [each, "-c", IS_THAT, version]
        if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
            return Path(each)
    return None


def example() -> str:
    """The first example of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]


def tried(wheel: Path, python: Path, folder: Path) -> Iterator[str]:
    """Install and run it; what was tried, one by one. What fails raises."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return done.stdout

    run(str(python), "-m", "venv", "--without-pip", "env")  # pip of its own takes seconds
    own = str(folder / "env" / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--python", own)
    run(*pip, "install", "--quiet", "--disable-pip-version-check", str(wheel))
    has_doctor = run(own, "-W", "error", "-c", CHECK).strip()
    yield "installed"
    (folder / "train.py").write_text(example(), encoding="utf-8")
    assert "learnt: True, traces: 1" in run(own, "-W", "error", "train.py")
    yield "the README's example"
    if has_doctor:
        run(own, "-m", "lucid", "doctor")
        yield "doctor"


def main(wheel: Path) -> None:
    """Try the wheel on each Python; one must be here."""
    pythons = {version: found(version) for version in VERSIONS}
    assert any(pythons.values()), "no supported Python is here"
    for version, python in pythons.items():
        if python is None:
            print(f"Python {version}: there is none here")
            continue
        with tempfile.TemporaryDirectory() as folder:
            print(f"Python {version}: {', '.join(tried(wheel, python, Path(folder)))}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
