"""Object code on disk: found again by other processes, and trusted only when it is right."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from lucid.codegen.target import Target, host_target
from lucid.ir.graph import Graph
from lucid.ir.types import TensorType, f32
from lucid.runtime import cache, compile_graph

SCRIPT = """
from pathlib import Path
import numpy as np
from lucid.codegen import jit
from lucid.ir import ops
from lucid.ir.graph import Graph
from lucid.ir.types import TensorType, f32
from lucid.runtime import cache, compile_graph

compiled = []
compile_object = cache.compile_object
cache.compile_object = lambda text, target: compiled.append(1) or compile_object(text, target)
graph = Graph()
x = graph.add_input(TensorType(f32, (3,)))
graph.outputs = [ops.add(x, x)]
result = compile_graph(graph).call([np.ones(3, np.float32)])[0]
assert result.tolist() == [2, 2, 2]
print(len(compiled))
"""


def run(folder: Path, script: str = SCRIPT, **environment: str) -> int:
    """How many modules another process compiles."""
    environment = {"LUCID_CACHE_DIR": str(folder), "LUCID_CACHE": "1", **environment}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own."""
    monkeypatch.setenv("LUCID_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LUCID_CACHE", "1")
    yield tmp_path / "cache"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules that are compiled."""
    texts: list[str] = []
    compile_object = cache.compile_object

    def counted(text: str, target: Target) -> bytes:
        texts.append(text)
        return compile_object(text, target)

    monkeypatch.setattr(cache, "compile_object", counted)
    return texts


def step(factor: float = 2.0) -> None:
    """Compile and run a program; it must be right."""
    graph = Graph()
    x = graph.add_input(TensorType(f32, (5,)))
    graph.outputs = [x * factor]
    (result,) = compile_graph(graph).call([np.arange(5, dtype=np.float32)])
    assert result.tolist() == [factor * i for i in range(5)]


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.o"))


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    assert run(tmp_path) == 1
    assert run(tmp_path) == 0
    assert run(tmp_path, LUCID_CACHE="0") == 1


TRAINING = """
import lucid
from lucid.runtime import cache

compiled = []
compile_object = cache.compile_object
cache.compile_object = lambda text, target: compiled.append(1) or compile_object(text, target)
model = lucid.nn.Linear(64, 64)
optimizer = lucid.optim.Adam(model.parameters())
@lucid.compile
def step(x):
    optimizer.zero_grad()
    loss = (model(x) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss
lucid.manual_seed(0)
x = lucid.randn(2048, 64)
losses = [step(x).item() for _ in range(4)]
assert losses == sorted(losses, reverse=True)
print(len(compiled))
"""


def test_a_second_process_trains_without_compiling(tmp_path: Path) -> None:
    """The step, the native entry of its calls, and the pool of threads."""
    assert run(tmp_path, TRAINING) == 3
    assert run(tmp_path, TRAINING) == 0


def test_processes_may_fill_and_repair_a_cache_at_once(tmp_path: Path) -> None:
    for _ in range(2):
        for path in entries(tmp_path):
            path.write_bytes(b"lucid object code 1\n" + bytes(3000))
        with ThreadPoolExecutor(2) as executor:
            counts = list(executor.map(lambda _: run(tmp_path), range(2)))
        assert max(counts) == 1
        assert run(tmp_path) == 0
        assert [path.suffix for path in tmp_path.iterdir()] == [".o"]


@pytest.mark.parametrize("name", ["mkstemp", "replace", "scandir"])
def test_a_disk_that_fails_is_no_error(
    name: str, folder: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is full, read-only, or gone."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(cache.tempfile if name == "mkstemp" else cache.os, name, fail)
        step()
        left = [path for path in folder.iterdir() if path.suffix != ".o"]
        assert not left
    step()
    step()
    assert len(compilations) == (1 if name == "scandir" else 2)


def test_a_folder_in_place_of_an_entry_is_no_error(folder: Path, compilations: list[str]) -> None:
    step()
    (entry,) = entries(folder)
    entry.unlink()
    entry.mkdir()
    step()
    step()
    assert len(compilations) == 3
    assert [path.name for path in folder.iterdir()] == [entry.name]


def test_an_entry_that_doesn_t_link_is_written_anew(folder: Path, compilations: list[str]) -> None:
    """Its checksum is right, but it is no code for this module."""
    step()
    (entry,) = entries(folder)
    content = entry.read_bytes()
    cache.write_entry(entry, b"no object file")
    step()
    assert len(compilations) == 2
    assert entry.read_bytes() == content


def test_equal_programs_share_an_entry(folder: Path, compilations: list[str]) -> None:
    for factor in (2.0, 3.0, 2.0, 3.0):
        step(factor)
    assert len(entries(folder)) == len(compilations) == 2


def test_entries_are_private(folder: Path) -> None:
    step()
    (entry,) = entries(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == [entry.name]


def spoil_last_byte(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


SPOILED = {
    "truncated": lambda content: content[:-100],
    "empty": lambda content: b"",
    "one bit": spoil_last_byte,
    "another format": lambda content: b"x" + content[1:],
    "no header": lambda content: content[60:],
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_entry_is_written_anew(name: str, folder: Path, compilations: list[str]) -> None:
    step()
    (entry,) = entries(folder)
    content = entry.read_bytes()
    entry.write_bytes(SPOILED[name](content))
    step()
    assert len(compilations) == 2
    assert entry.read_bytes() == content
    step()
    assert len(compilations) == 2


def test_an_entry_can_t_stand_in_for_another_one(folder: Path, compilations: list[str]) -> None:
    step(2.0)
    (first,) = entries(folder)
    step(3.0)
    (second,) = set(entries(folder)) - {first}
    second.write_bytes(first.read_bytes())
    step(3.0)
    assert len(compilations) == 3


def test_what_everybody_may_write_isn_t_trusted(folder: Path, compilations: list[str]) -> None:
    step()
    (entry,) = entries(folder)
    entry.chmod(0o666)
    step()
    assert len(compilations) == 2
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    folder.chmod(0o777)
    step()
    assert len(compilations) == 3


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owner here")
def test_what_others_own_isn_t_trusted(
    folder: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    step()
    assert len(compilations) == 2


def test_a_link_in_place_of_an_entry_isn_t_followed(
    folder: Path, compilations: list[str], tmp_path: Path
) -> None:
    step()
    (entry,) = entries(folder)
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    step()
    assert len(compilations) == 2
    assert not entry.is_symlink()


def test_a_folder_that_can_t_be_made_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LUCID_CACHE_DIR", str(tmp_path / "file" / "cache"))
    step()


def test_the_cache_can_be_turned_off(
    folder: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUCID_CACHE", "0")
    step()
    step()
    assert len(compilations) == 2
    assert not folder.exists()


def test_the_default_folder_is_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUCID_CACHE_DIR", raising=False)
    monkeypatch.setenv("LUCID_CACHE", "1")
    monkeypatch.setattr(cache, "_user_folder", lambda: Path("/home/me/.cache"))
    assert cache.cache_folder() == Path("/home/me/.cache/lucid")


def test_what_was_used_last_stays(tmp_path: Path) -> None:
    for number in range(10):
        path = tmp_path / f"{number}.o"
        path.write_bytes(bytes(100))
        os.utime(path, (number, number))
    os.utime(tmp_path / "0.o", (99, 99))
    (tmp_path / "old.part").write_bytes(b"")
    os.utime(tmp_path / "old.part", (0, 0))
    (tmp_path / "new.part").write_bytes(b"")
    cache.shrink(tmp_path, limit=500)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"0.o", "9.o", "8.o", "7.o", "new.part"}


def test_a_hit_makes_an_entry_young(folder: Path) -> None:
    step()
    (entry,) = entries(folder)
    os.utime(entry, (0, 0))
    step()
    assert entry.stat().st_mtime > 0


def test_names_depend_on_text_and_processor() -> None:
    target = host_target()
    other = dataclasses.replace(target, cpu="i386")
    names = {cache.entry_name(text, t) for text in ("a", "b") for t in (target, other)}
    assert len(names) == 4
