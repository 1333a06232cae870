"""Object code on disk: found again by other processes, and trusted only when it is right."""

from __future__ import annotations

import dataclasses
import errno
import logging
import os
import socket
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from lucid.codegen.llvm.jit import Take
from lucid.codegen.llvm.target import Target, host_target
from lucid.ir.graph import Graph
from lucid.ir.types import TensorType, f32
from lucid.runtime import cache, compile_graph

posix = pytest.mark.skipif(os.name == "nt", reason="owners, modes and links of files")

SCRIPT = """
from pathlib import Path
import numpy as np
from lucid.codegen.llvm import jit
from lucid.ir import ops
from lucid.ir.graph import Graph
from lucid.ir.types import TensorType, f32
from lucid.runtime import cache, compile_graph

compiled = []
compile_objects = cache.compile_objects
cache.compile_objects = lambda texts, target: compiled.append(1) or compile_objects(texts, target)
graph = Graph()
x = graph.add_input(TensorType(f32, (3,)))
graph.outputs = [ops.add(x, x)]
result = compile_graph(graph).call([np.ones(3, np.float32)])[0]
assert result.tolist() == [2, 2, 2]
print(len(compiled))
"""


def run(given: Path, script: str = SCRIPT, **environment: str) -> int:
    """How many modules another process compiles."""
    environment = {"LUCID_CACHE_DIR": str(given), "LUCID_CACHE": "1", **environment}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the entries of a cache of its own are to stand."""
    monkeypatch.setenv("LUCID_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LUCID_CACHE", "1")
    return tmp_path / "cache" / "lucid-objects"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules that are compiled."""
    texts: list[str] = []
    compile_objects = cache.compile_objects

    def counted(modules: Sequence[str] | Callable[[Take], None], target: Target) -> list[bytes]:
        given: list[str] = []
        if callable(modules):
            modules(given.append)
        else:
            given = [*modules]
        texts.extend(given)
        return compile_objects(given, target)

    monkeypatch.setattr(cache, "compile_objects", counted)
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
write_entry = cache.write_entry
cache.write_entry = lambda path, image: compiled.append(1) or write_entry(path, image)
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
for _ in range(100):
    x = x + 1
print(len(compiled))
"""


def test_a_second_process_trains_without_compiling(tmp_path: Path) -> None:
    """The step, the native entry of its calls, threads, and what applies ops and draws numbers."""
    assert run(tmp_path, TRAINING) == 6
    assert run(tmp_path, TRAINING) == 0


def test_processes_may_fill_and_repair_a_cache_at_once(tmp_path: Path) -> None:
    for _ in range(2):
        for path in entries(tmp_path / "lucid-objects"):
            path.write_bytes(b"lucid object code 1\n" + bytes(3000))
        with ThreadPoolExecutor(2) as executor:
            counts = list(executor.map(lambda _: run(tmp_path), range(2)))
        assert max(counts) == 1
        assert run(tmp_path) == 0
        assert [path.suffix for path in (tmp_path / "lucid-objects").iterdir()] == [".o"]


@pytest.mark.parametrize("name", ["replace", "scandir"])
def test_a_disk_that_fails_is_no_error(
    name: str, folder: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is full, read-only, or gone."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, name, fail)
        step()
        assert all(name.endswith(".o") for name in os.listdir(folder))
    step()
    step()
    assert len(compilations) == (1 if name == "scandir" else 2)


FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
"""


@posix
def test_a_disk_that_is_full_leaves_nothing_unfinished(tmp_path: Path) -> None:
    assert run(tmp_path, FULL + SCRIPT) == 1
    assert not list((tmp_path / "lucid-objects").iterdir())


def test_an_entry_that_can_t_be_touched_is_a_hit(
    folder: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on a disk that can't be written."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    step()
    for name in ("utime", "replace", "unlink", "mkdir"):
        monkeypatch.setattr(os, name, fail)
    step()
    assert len(compilations) == 1


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The entry that the script makes, to spoil others of its name."""
    folder = tmp_path_factory.mktemp("made")
    assert run(folder) == 1
    (entry,) = entries(folder / "lucid-objects")
    return entry


def plant_socket(entry: Path) -> None:
    place = os.getcwd()
    os.chdir(entry.parent)  # the path of a socket is to be short
    try:
        socket.socket(socket.AF_UNIX).bind(entry.name[-40:])
        os.rename(entry.name[-40:], entry.name)
    finally:
        os.chdir(place)


def plant_device(entry: Path) -> None:
    try:
        os.mknod(entry, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero, which never ends
    except PermissionError:
        pytest.skip("only root makes devices")


def plant_huge_file(entry: Path) -> None:
    with open(entry, "wb") as file:
        file.write(b"lucid object code 1\n")
        file.truncate(1 << 42)


PLANTED: dict[str, Callable[[Path], None]] = {
    "folder": Path.mkdir,
    "link to nothing": lambda entry: entry.symlink_to("nothing"),
    "fifo": lambda entry: os.mkfifo(entry, 0o600),
    "socket": plant_socket,
    "device": plant_device,
    "huge file": plant_huge_file,
}


@posix
@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_what_is_no_file_is_no_entry(name: str, tmp_path: Path, made: Path) -> None:
    """To open a FIFO would wait for ever, to read a device would never end."""
    entry = tmp_path / "lucid-objects" / made.name
    entry.parent.mkdir(mode=0o700)
    PLANTED[name](entry)
    assert run(tmp_path) == 1
    assert entry.is_dir() if name == "folder" else entry.read_bytes() == made.read_bytes()
    assert [path.name for path in entry.parent.iterdir()] == [entry.name]


@posix
def test_a_fifo_that_comes_after_the_look_isn_t_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step()
    (entry,) = entries(folder)
    status = entry.stat()
    entry.unlink()
    os.mkfifo(entry, 0o600)
    monkeypatch.setattr(cache.Folder, "status", lambda *_: status)
    assert cache.read_entry(entry) is None


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


@posix
@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_entries_are_private_under_any_umask(umask: int, folder: Path) -> None:
    before = os.umask(umask)
    try:
        step()
    finally:
        os.umask(before)
    (entry,) = entries(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == [entry.name]


@posix
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_the_folder_around_may_be_read_and_be_sticky(
    mode: int, folder: Path, compilations: list[str]
) -> None:
    folder.parent.mkdir()
    folder.parent.chmod(mode)
    step()
    step()
    assert len(compilations) == 1


@posix
@pytest.mark.parametrize("mode", [0o770, 0o775, 0o777])
def test_a_folder_in_one_that_others_may_write_isn_t_trusted(
    mode: int, folder: Path, compilations: list[str]
) -> None:
    """They could put another one in its place."""
    step()
    folder.parent.chmod(mode)
    with pytest.warns(
        UserWarning, match=rf"others may write to {folder.parent} \(mode 0{mode:o}\)"
    ):
        step()
    step()
    assert len(compilations) == 3
    folder.parent.chmod(0o700)
    step()
    assert len(compilations) == 3


@posix
def test_a_folder_in_place_of_the_one_checked_isn_t_used(folder: Path, tmp_path: Path) -> None:
    """It may be renamed between check and use."""
    step()
    (entry,) = entries(folder)
    with cache.Folder(folder) as held:
        folder.rename(tmp_path / "elsewhere")
        folder.mkdir()
        (folder / entry.name).write_bytes(b"of somebody else")
        assert [name for name, _ in held.files()] == [entry.name]
        assert (
            held.status(entry.name).st_size == (tmp_path / "elsewhere" / entry.name).stat().st_size
        )
        held.rename(entry.name, "moved")
        held.touch("moved")
        os.close(held.open("moved", os.O_RDONLY))
        held.remove("moved")
    assert not list((tmp_path / "elsewhere").iterdir())
    assert (folder / entry.name).read_bytes() == b"of somebody else"


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


@posix
@pytest.mark.parametrize("others", [0o020, 0o002])
def test_an_entry_that_others_may_write_isn_t_trusted(
    others: int, folder: Path, compilations: list[str]
) -> None:
    step()
    (entry,) = entries(folder)
    entry.chmod(0o600 | others)
    step()
    assert len(compilations) == 2
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600


@posix
@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_folder_that_others_may_write_is_left_alone_and_warned_of(
    mode: int, folder: Path, compilations: list[str]
) -> None:
    step(2.0)
    before = entries(folder)
    folder.chmod(mode)
    with pytest.warns(UserWarning) as warned:
        step(2.0)
    step(3.0)
    assert len(compilations) == 3
    assert entries(folder) == before
    (warning,) = warned
    assert str(warning.message) == (
        f"LUCID_CACHE_DIR={str(folder.parent)!r}: expected a folder that can be written to; "
        f"compiled code isn't cached: others may write to {folder} (mode 0{mode:o}), and what is "
        "in it would be run; once it is removed, lucid makes it anew"
    )
    assert warning.filename == __file__


@posix
def test_an_untrusted_folder_in_the_user_s_cache_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_user_folder", lambda: tmp_path)
    monkeypatch.delenv("LUCID_CACHE_DIR", raising=False)
    monkeypatch.setenv("LUCID_CACHE", "1")
    folder = tmp_path / "lucid" / "lucid-objects"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.warns(
        UserWarning, match="compiled code isn't cached: others may write to"
    ) as found:
        step()
    step()
    assert len(found) == 1


def test_a_user_without_a_place_for_a_cache_isn_t_bothered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A service's home may not exist; that is logged for who wants to know."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(cache, "_user_folder", lambda: tmp_path / "file")
    monkeypatch.delenv("LUCID_CACHE_DIR", raising=False)
    monkeypatch.setenv("LUCID_CACHE", "1")
    with caplog.at_level(logging.INFO, "lucid.cache"):
        step()
    said = [text for text in caplog.messages if not text.startswith("no ")]
    assert said[0].startswith("compiled code isn't cached: [Errno ")


@posix
def test_what_others_own_isn_t_trusted(
    folder: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.warns(UserWarning, match=f"{folder} belongs to another user"):
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


@posix
def test_a_link_in_place_of_the_folder_isn_t_followed(folder: Path, tmp_path: Path) -> None:
    folder.parent.mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match="compiled code isn't cached"):
        step()
    assert not list((tmp_path / "elsewhere").iterdir())


@posix
def test_a_link_to_the_folder_around_is_followed(
    folder: Path, tmp_path: Path, compilations: list[str]
) -> None:
    """Caches are often put on another disk by a link."""
    (tmp_path / "disk").mkdir()
    folder.parent.symlink_to(tmp_path / "disk")
    step()
    step()
    assert len(compilations) == 1


NO_FOLDERS = {
    "a file": lambda path: path.write_text(""),
    "in a file": lambda path: path.parent.write_text(""),
    "a link to nothing": lambda path: (path.parent.mkdir(), path.symlink_to("nothing")),
    "a fifo": lambda path: (path.parent.mkdir(), os.mkfifo(path)),
}


@posix
@pytest.mark.parametrize("name", NO_FOLDERS)
def test_a_folder_that_can_t_be_made_is_a_warning(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    given = tmp_path / "given" / "cache" if name != "a file" else tmp_path / "file"
    NO_FOLDERS[name](given)
    monkeypatch.setenv("LUCID_CACHE_DIR", str(given))
    monkeypatch.setenv("LUCID_CACHE", "1")
    with pytest.warns(UserWarning) as warned:
        step()
    step()
    assert len(compilations) == 2
    (warning,) = warned
    assert str(warning.message).startswith(
        f"LUCID_CACHE_DIR={str(given)!r}: expected a folder that can be written to; "
        "compiled code isn't cached: [Errno "
    )


@posix
@pytest.mark.parametrize(
    "given", ["/dev/null", "/dev/zero/x", "/proc/x", "n" * 5000, "\udcff\n"], ids=range(5)
)
def test_nonsense_in_place_of_a_folder_means_compiling(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LUCID_CACHE_DIR", given)
    monkeypatch.setenv("LUCID_CACHE", "1")
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        step()
        step()


@pytest.mark.parametrize("given", ["here", "./a/b", "~/cache"])
def test_a_folder_may_be_relative_or_in_the_home(
    given: str, tmp_path: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LUCID_CACHE_DIR", given)
    monkeypatch.setenv("LUCID_CACHE", "1")
    step()
    step()
    assert len(compilations) == 1
    assert len(entries(tmp_path / given.replace("~/", "") / "lucid-objects")) == 1


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
    assert cache.cache_folder() == Path("/home/me/.cache/lucid/lucid-objects")


def test_what_was_used_last_stays(tmp_path: Path) -> None:
    names = [f"{number:064x}.o" for number in range(10)]
    old, new = (f"{names[0]}.{number:016x}.part" for number in range(2))
    for number, name in enumerate((*names, old, new)):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (number, number))
    os.utime(tmp_path / names[0], (99, 99))
    os.utime(tmp_path / new)
    with cache.Folder(tmp_path) as folder:
        cache.shrink(folder, limit=500)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {names[0], *names[7:], new}


def test_many_small_entries_are_too_many_as_well(tmp_path: Path) -> None:
    names = [f"{number:064x}.o" for number in range(30)]
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (number, number))
    with cache.Folder(tmp_path) as folder:
        cache.shrink(folder, most=30)
        assert len(list(tmp_path.iterdir())) == 30
        cache.shrink(folder, most=20)
    assert {path.name for path in tmp_path.iterdir()} == {*names[12:]}


def test_what_lucid_hasn_t_named_stays(
    folder: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in the folder that the user names, nor in lucid's own."""
    step()
    (entry,) = entries(folder)
    digest = "0" * 64
    others = [
        f"{digest}.part",
        f"{digest}.o.part",
        f"{digest}.o.o",
        f"x{digest}.o",
        f"{'A' * 64}.o",
    ]
    others += ["movie.part", "main.o", f"{digest}.o.0123456789abcdef.part~", f"{digest}.o\n"]
    around = [*others, entry.name, f"{entry.name}.0123456789abcdef.part"]
    paths = [folder / name for name in others] + [folder.parent / name for name in around]
    for path in paths:
        with open(path, "wb") as file:
            file.truncate(1 << 30)
        os.utime(path, (0, 0))
    step(3.0)
    step(3.0)
    assert len(compilations) == 2
    assert len(entries(folder)) == 2 + len([name for name in others if name.endswith(".o")])
    assert all(path.stat().st_size == 1 << 30 for path in paths)


def test_processes_may_shrink_a_cache_at_once(tmp_path: Path) -> None:
    for number in range(400):
        (tmp_path / f"{number:064x}.o").write_bytes(bytes(10))

    def shrink(_: int) -> None:
        with cache.Folder(tmp_path) as folder:
            cache.shrink(folder, limit=1000)

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(shrink, range(8)))
    assert 0 < len(list(tmp_path.iterdir())) <= 100


def test_processes_may_clear_a_cache_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each removes what it finds; what another one has removed by then is no error."""
    for number in range(3):
        (tmp_path / f"{number:064x}.o").write_bytes(bytes(10))
    remove = cache.Folder.remove

    def remove_twice(self: cache.Folder, name: str) -> None:
        remove(self, name)
        remove(self, name)

    monkeypatch.setattr(cache.Folder, "remove", remove_twice)
    assert cache.clear(tmp_path) == (3, 30)
    assert not list(tmp_path.iterdir())


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
