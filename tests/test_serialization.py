"""Saving and loading: data comes back as it was, a wrong file is one error, and none runs code."""

from __future__ import annotations

import collections
import contextlib
import gzip
import io
import itertools
import json
import os
import pickle
import random
import signal
import stat
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.serialization import container

DATA = Path(__file__).parent / "data"
OLD = (DATA / "saved_by_0_1.pt").read_bytes()


def saved(obj: Any) -> bytes:
    file = io.BytesIO()
    lucid.save(obj, file)
    return file.getvalue()


def loaded(data: bytes, **options: Any) -> Any:
    return lucid.load(io.BytesIO(data), **options)


def assert_same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, lucid.Tensor):
        assert (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
        assert b.is_leaf
        a, b = a.detach().numpy(), b.detach().numpy()
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        assert repr(a.tolist()) == repr(b.tolist())
    elif isinstance(a, dict):
        assert list(a) == list(b)
        assert [type(key) for key in a] == [type(key) for key in b]
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert repr(a) == repr(b)


def checkpoint() -> dict[str, Any]:
    """What a training script saves, and all kinds of data that there are."""
    lucid.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    opt = lucid.optim.Adam(net.parameters(), lr=0.01)
    net(lucid.randn(4, 2)).sum().backward()
    opt.step()
    return {
        "net": collections.OrderedDict(net.state_dict()),
        "opt": opt.state_dict(),
        "parameters": [nn.Parameter(lucid.ones(2)), nn.Parameter(lucid.ones(1), False)],
        "buffers": (nn.Buffer(lucid.zeros(2)), nn.Buffer(lucid.zeros(1), persistent=False)),
        "tensors": [lucid.zeros(2, 3, dtype=dtype) for dtype in DTYPES],
        "shapes": [lucid.tensor(3), lucid.zeros(0, 3), lucid.ones(1).expand(4), lucid.eye(3).T],
        "special": lucid.tensor([float("nan"), float("inf"), -0.0]),
        "bools": lucid.tensor([True, False]),
        "arrays": [np.arange(6.0).reshape(2, 3).T, np.array(["cat", "é"]), np.array([b"a", b"bc"])],
        "others": [np.zeros(2, np.float16), np.ones((2, 0), np.complex64), np.full(2, 1j)],
        "numbers": [np.float64(0.1), np.int8(-3), np.bool_(True), 1 + 2j, 0.1, -0.0, 10**40, -7],
        "infinite": (float("nan"), float("inf"), -float("inf"), complex(0, float("inf"))),
        "dtypes": [lucid.float32, np.dtype("i4"), lucid.device("cpu"), lucid.zeros(2, 3).shape],
        "text": ["", "ä\ud800", b"\x00abc", bytearray(b"x"), None, True],
        "keys": {
            1: 2,
            (1, "x", None): 3,
            None: 4,
            1.5: 5,
            np.int64(7): 6,
            b"k": 7,
            float("inf"): 8,
        },
        "sets": [{1, (2, 3)}, frozenset({"a"}), set()],
        "collections": [collections.Counter("aab"), collections.defaultdict(list, a=[1])],
        "slices": [slice(1, None), range(3, 9, 2), [], (), {}],
    }


DTYPES = (lucid.bool, lucid.uint8, lucid.int16, lucid.uint32, lucid.int64, lucid.float64)


# What comes back ------------------------------------------------------------------------------


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    lucid.save(checkpoint(), path)
    assert_same(checkpoint(), lucid.load(path, map_location="cpu"))
    assert_same(checkpoint(), loaded(saved(checkpoint())))


@pytest.mark.parametrize("value", [3, None, "x", lucid.ones(2), [lucid.ones(1)], np.arange(3)])
def test_anything_may_be_the_root(value: Any) -> None:
    assert_same(value, loaded(saved(value)))


def test_training_goes_on_from_a_file(tmp_path: Path) -> None:
    def fresh() -> tuple[nn.Module, lucid.optim.Adam]:
        net = nn.Linear(2, 1)
        return net, lucid.optim.Adam(net.parameters())

    def train(net: nn.Module, opt: lucid.optim.Adam) -> None:
        opt.zero_grad()
        net(lucid.ones(3, 2)).sum().backward()
        opt.step()

    net, opt = fresh()
    train(net, opt)
    lucid.save({"net": net.state_dict(), "opt": opt.state_dict()}, tmp_path / "x.pt")
    other, other_opt = fresh()
    state = lucid.load(tmp_path / "x.pt")
    other.load_state_dict(state["net"])
    other_opt.load_state_dict(state["opt"])
    train(net, opt)
    train(other, other_opt)
    np.testing.assert_array_equal(net.weight.detach(), other.weight.detach())


def test_what_occurs_twice_is_one_object() -> None:
    tied, shared = nn.Parameter(lucid.ones(3)), [1]
    found = loaded(saved({"a": tied, "b": (tied, shared), "c": shared, "d": [[2], [2]]}))
    assert found["a"] is found["b"][0]
    assert found["c"] is found["b"][1]
    assert found["d"][0] is not found["d"][1]
    data = saved([shared := [shared, shared] for _ in range(60)][-1:])
    assert len(data) < 10_000  # and no 2**60 lists


def test_a_sparse_tensor_comes_back() -> None:
    places = lucid.tensor([[0, 1, 1], [2, 0, 0]])
    sparse = lucid.sparse_coo_tensor(places, lucid.tensor([3.0, 4.0, 5.0]), (2, 3))
    for given in (sparse, sparse.coalesce()):
        found = loaded(saved({"adjacency": given}))["adjacency"]
        assert found.is_coalesced() == given.is_coalesced()
        assert found.to_dense().tolist() == [[0.0, 0.0, 3.0], [9.0, 0.0, 0.0]]


def test_several_saves_in_one_file_are_loaded_one_after_the_other() -> None:
    file = io.BytesIO()
    lucid.save([1], file)
    lucid.save(lucid.ones(2), file)
    file.seek(0)
    assert lucid.load(file) == [1]
    assert lucid.load(file).tolist() == [1.0, 1.0]


def test_several_files_of_an_earlier_version_in_one_are_loaded_one_after_the_other() -> None:
    """Which may be shorter than what a file is recognized by."""
    for options in ({}, {"weights_only": False}):
        file = io.BytesIO(pickle.dumps(3, protocol=4) + pickle.dumps([4], protocol=4))
        assert lucid.load(file, **options) == 3
        assert lucid.load(file, **options) == [4]


def test_a_compiled_step_saves_and_loads_at_each_call(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"

    @lucid.compile
    def step(x: lucid.Tensor) -> Any:
        lucid.save({"x": x * 2, "calls": lucid.load(path)["calls"] + 1}, path)
        return x + 1

    lucid.save({"calls": 0}, path)
    for calls in (1, 2, 3, 4):
        step(lucid.full((2,), float(calls)))
        found = lucid.load(path)
        assert (found["calls"], found["x"].tolist()) == (calls, [2.0 * calls] * 2)
    assert "it loads a file" in step.stats.eager_reasons[0]


def test_a_stream_of_unknown_length_is_read(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "x.gz", "wb") as file:
        lucid.save(checkpoint(), file)
    with gzip.open(tmp_path / "x.gz", "rb") as file:
        assert_same(checkpoint(), lucid.load(file))


def test_a_file_of_an_earlier_version_is_loaded() -> None:
    """A pickle, as `save` wrote it until it had a format of its own."""
    state = loaded(OLD)
    assert_same(pickle.loads(OLD), state)
    assert state["tied"][0] is state["tied"][1]
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    net.load_state_dict(state["net"])
    lucid.optim.Adam(net.parameters()).load_state_dict(state["opt"])
    assert_same(pickle.loads(OLD), loaded(OLD, weights_only=False))


def test_readers_of_safetensors_find_the_tensors() -> None:
    """Length, header, data without gaps, each at a multiple of its elements' size."""
    data = saved({"flag": lucid.tensor([True]), "net": {"0.weight": lucid.ones(2, 3)}, "n": 5})
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    assert size % 8 == 0
    assert all(type(value) is str for value in header.pop("__metadata__").values())
    assert header == {
        "net.0.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "flag": {"dtype": "BOOL", "shape": [1], "data_offsets": [24, 25]},
    }
    assert data[8 + size :] == np.ones(6, "<f4").tobytes() + b"\x01"


def test_objects_that_are_no_data_take_trust(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    lucid.save({"epoch": 1, "models": [nn.Linear(2, 1)]}, path)
    with pytest.raises(lucid.FileFormatError) as caught:
        lucid.load(path)
    assert str(caught.value) == (
        f"load: {path}, byte {path.stat().st_size}: the file holds "
        "a lucid.nn.modules.linear.Linear at obj['models'][0], which is no plain data\n"
        "hint: save a state_dict; or, where the file is to be trusted as a program is, "
        "load(f, weights_only=False)"
    )
    found = lucid.load(path, weights_only=False)
    assert isinstance(found["models"][0], nn.Linear)


def test_what_a_file_can_not_say_is_refused() -> None:
    circle: list[Any] = []
    circle.append({"self": circle})
    with pytest.raises(lucid.OptionError, match=r"^save: obj\[0\]\['self'\] holds itself"):
        saved(circle)
    deep: Any = 1
    for _ in range(101):
        deep = [deep]
    with pytest.raises(lucid.OptionError, match="is nested more than 100 deep"):
        saved(deep)
    assert loaded(saved(deep[0])) == deep[0]


# Writing --------------------------------------------------------------------------------------


def test_a_failed_save_leaves_the_older_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.pt"
    lucid.save(lucid.ones(1), path)
    with pytest.raises((AttributeError, pickle.PicklingError)):  # which one is Python's choice
        lucid.save({"x": lucid.ones(1), "f": lambda: None}, path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        lucid.save(lucid.zeros(1), path)
    assert lucid.load(path).tolist() == [1.0]
    assert os.listdir(tmp_path) == ["x.pt"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_kill_in_the_middle_leaves_the_older_file(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "x.pt"
    lucid.save(lucid.ones(1), path)
    script = (
        "import os, signal, lucid\n"
        f"os.{moment} = lambda *given: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"lucid.save(lucid.zeros(100_000), {str(path)!r})\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert lucid.load(path).tolist() == [1.0]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX's permissions and links")
def test_a_file_keeps_its_permissions_and_a_link_stays_one(tmp_path: Path) -> None:
    path, link = tmp_path / "x.pt", tmp_path / "latest.pt"
    lucid.save(1, path)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    path.chmod(0o640)
    link.symlink_to(path)
    lucid.save(2, link)
    assert link.is_symlink()
    assert lucid.load(path) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    lucid.save(3, "/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_what_a_file_takes_piece_by_piece_is_written_whole() -> None:
    class Pipe:
        def __init__(self) -> None:
            self.data = b""

        def write(self, data: memoryview) -> int:
            self.data += bytes(data[:7])
            return min(7, len(data))

    pipe = Pipe()
    lucid.save({"w": lucid.ones(3)}, pipe)  # type: ignore[arg-type]
    assert pipe.data == saved({"w": lucid.ones(3)})


@pytest.mark.parametrize("count", [0, -1])
def test_a_file_that_takes_nothing_is_an_error(count: int) -> None:
    class Full:
        def write(self, data: memoryview) -> int:
            return count

    with pytest.raises(OSError, match=f"save: a Full took {count} of"):
        lucid.save(1, Full())  # type: ignore[arg-type]


def test_an_error_of_writing_names_the_path_that_was_given(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "x.pt"
    with pytest.raises(FileNotFoundError) as caught:
        lucid.save(1, path)
    assert caught.value.filename == str(path)
    with pytest.raises(FileNotFoundError, match="''"):
        lucid.save(1, "")
    with pytest.raises(
        lucid.ArgumentError, match=r"save takes a path or a file .*, not a NoneType"
    ):
        lucid.save(1, None)  # type: ignore[arg-type]
    with pytest.raises(lucid.ArgumentError, match=r"open for bytes, not a StringIO"):
        lucid.save(1, io.StringIO())  # type: ignore[arg-type]
    with pytest.raises(lucid.ArgumentError, match=r"load takes a path or a file .*, not a int"):
        lucid.load(3)  # type: ignore[arg-type]


@pytest.mark.skipif(sys.platform == "win32", reason="names are counted in bytes elsewhere")
def test_a_name_may_be_as_long_as_the_system_lets_it(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 126 + ".pt")
    lucid.save(1, path)
    assert lucid.load(path) == 1
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="needs pipes with a path")
def test_a_pipe_is_written_to() -> None:
    source, target = os.pipe()
    lucid.save([1], f"/dev/fd/{target}")
    os.close(target)
    with open(source, "rb") as file:
        assert lucid.load(file) == [1]


def test_the_mask_of_permissions_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the process's: another thread would make files with the one that is set meanwhile."""
    monkeypatch.delattr(os, "umask")
    lucid.save(1, tmp_path / "x.pt")


# Wrong files ----------------------------------------------------------------------------------


def refusal(data: bytes) -> str:
    """The message of the error, from a file on which it must come within a second."""
    begin = time.process_time()
    with pytest.raises(lucid.FileFormatError) as caught:
        loaded(data)
    assert time.process_time() - begin < 5  # and no hang
    return str(caught.value)


@pytest.fixture(scope="module")
def small() -> bytes:
    return saved({"w": lucid.ones(2, 3), "lr": 0.1, "steps": (1, 2), "mask": lucid.ones(2) > 0})


def test_each_changed_byte_is_found(small: bytes) -> None:
    for place in range(len(small)):
        for mask in (0x01, 0x20, 0x80):
            changed = small[:place] + bytes([small[place] ^ mask]) + small[place + 1 :]
            refusal(changed)


def test_each_truncation_is_found(small: bytes, tmp_path: Path) -> None:
    for length in range(len(small)):
        refusal(small[:length])
    path = tmp_path / "x.pt"
    path.write_bytes(small + b"\n")
    with pytest.raises(lucid.FileFormatError, match="there is more in the file"):
        lucid.load(path)


def test_the_message_names_file_offset_and_array(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    lucid.save({"a": lucid.ones(4), "b": lucid.ones(2)}, path)
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    data[start + 18] ^= 1
    path.write_bytes(data)
    with pytest.raises(lucid.FileFormatError) as caught:
        lucid.load(path)
    assert str(caught.value) == (
        f"load: {path}, byte {start + 16}: array 'b' isn't what was written: its checksum differs "
        f"(bytes {start + 16} to {start + 24})"
    )
    path.write_bytes(data[: start + 20])
    with pytest.raises(lucid.FileFormatError) as caught:
        lucid.load(path)
    assert str(caught.value) == (
        f"load: {path}, byte {start}: the data takes 24 bytes, and the file ends after 20"
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a BytesIO, byte 0: the file is empty"),
        (b"hello, world", "this is no file that lucid.save wrote"),
        (b"PK\x03\x04 and so on", "a zip archive, as torch.save and numpy.savez write it"),
        (struct.pack("<Q", 2) + b"{}", "a file of safetensors that another library wrote"),
        (b"\x1f\x8b\x08 and so on", "compressed by gzip\nhint: load(gzip.open(f))"),
    ],
)
def test_other_files_are_told_apart(data: bytes, message: str) -> None:
    assert message in refusal(data)


def test_a_file_of_a_later_version_says_so(small: bytes) -> None:
    later = small.replace(b'"version":"1"', b'"version":"2"', 1)
    assert "version 2 of the format, and this lucid reads version 1" in refusal(later)


def test_a_damaged_stream_is_the_same_error(tmp_path: Path) -> None:
    packed = gzip.compress(saved({"w": lucid.randn(1000)}))
    damaged = packed[:2000] + b"xxxx" + packed[2004:]
    for data in (packed[:1000], packed[:-4], damaged):
        with pytest.raises(lucid.FileFormatError):
            list(map(lucid.load, [gzip.GzipFile(fileobj=io.BytesIO(data))] * 2))


def test_a_text_file_is_no_binary_file() -> None:
    with pytest.raises(lucid.FileFormatError, match="files that are open for bytes, mode 'rb'"):
        lucid.load(io.StringIO("x"))


@pytest.mark.parametrize("path", ["a\0b", Path("a\0b"), "\ud800.pt"], ids=ascii)
def test_a_text_that_no_system_takes_is_no_path(path: Any) -> None:
    with pytest.raises(lucid.ArgumentError, match=r"save: .* can't be a path: "):
        lucid.save(1, path)
    with pytest.raises(lucid.ArgumentError, match=r"load: .* can't be a path: "):
        lucid.load(path)


def edits(data: bytes, random: random.Random) -> bytes:
    """The file truncated, with bytes flipped, cut out, put in, repeated or exchanged."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        a, b = sorted(random.randrange(len(changed) + 1) for _ in range(2))
        b = min(b, a + random.choice((1, 4, 64)))
        kind = random.randrange(6)
        if kind == 0:
            del changed[a:]
        elif kind == 1:
            del changed[a:b]
        elif kind == 2:
            changed[a:a] = changed[a:b]
        elif kind == 3:
            changed[a:a] = random.randbytes(b - a)
        else:
            changed[a:b] = random.randbytes(b - a)
        if not changed:
            break
    return bytes(changed)


@pytest.mark.parametrize("seed", range(4))
def test_an_edited_file_is_what_it_was_or_an_error(seed: int) -> None:
    source, original = random.Random(seed), checkpoint()
    data = saved(original)
    for _ in range(500):
        changed = edits(data, source)
        if changed.startswith(data):  # what comes after it isn't looked at in an open file
            assert_same(original, loaded(changed))
        else:
            refusal(changed)


@pytest.mark.parametrize("seed", range(4))
def test_an_edited_file_of_an_earlier_version_is_data_or_an_error(seed: int) -> None:
    """It has no checksums; but nothing else may come out of it."""
    source = random.Random(seed)
    for _ in range(500):
        changed = edits(OLD, source)
        begin = time.process_time()
        with contextlib.suppress(lucid.FileFormatError):
            repr(loaded(changed))
        assert time.process_time() - begin < 5  # and no hang


# Files that want more than to be data: the format ---------------------------------------------


def forged(tree: str, entries: dict[str, Any] | None = None, data: bytes = b"") -> bytes:
    """A file with a tree and a header of somebody's choice, and all checksums right."""
    sums = {}
    for name, entry in (entries or {}).items():
        start, stop = entry["data_offsets"] if len(entry) == 3 else (0, 0)
        sums[name] = zlib.crc32(data[start:stop])
    metadata = {"tree": tree, "checksums": json.dumps(sums)}
    return container._header(metadata, entries or {}) + data


def entry(dtype: Any, shape: Any, *offsets: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


def test_a_forged_file_may_say_data() -> None:
    data = forged('{"tensor":["Tensor","w",false]}', {"w": entry("F32", [1], 0, 4)}, b"\0\0\x80?")
    assert loaded(data).tolist() == [1.0]


FOUR = b"\0\0\x80?"
HEADERS = {
    "negative": ({"w": entry("F32", [-1], 0, 4)}, "a shape holds sizes, not -1"),
    "too large": ({"w": entry("F32", [2**60], 0, 4)}, "and there are 4"),
    "larger than a size": ({"w": entry("F32", [0, 2**63], 0, 0)}, "a shape holds sizes"),
    "empty and large": ({"w": entry("F32", [0, 2**62, 2**62], 0, 0)}, "byte"),
    "fractional": ({"w": entry("F32", [1.0], 0, 4)}, "a shape holds sizes, not 1.0"),
    "many axes": ({"w": entry("F32", [1] * 65, 0, 4)}, "a shape is expected"),
    "objects": ({"w": entry("O", [1], 0, 8)}, "no dtype is called 'O'"),
    "no string": ({"w": entry(["F32"], [1], 0, 4)}, "byte"),
    "a gap": ({"w": entry("F32", [1], 4, 8)}, "data at 4 to 8, where those at 0 are due"),
    "shared": (
        {"w": entry("F32", [1], 0, 4), "v": entry("F32", [1], 0, 4)},
        "data at 0 to 4, where those at 4 are due",
    ),
    "backwards": ({"w": entry("F32", [1], 0, -4)}, "data at 0 to -4"),
    "beyond the end": ({"w": entry("U8", [5], 0, 5)}, "the file ends after 4"),
    "beyond memory": ({"w": entry("U8", [2**62], 0, 2**62)}, "the file ends after 4"),
    "three offsets": ({"w": {**entry("F32", [1], 0, 4), "more": 1}}, "an array has dtype, shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_makes_no_sense_is_refused(name: str) -> None:
    entries, message = HEADERS[name]
    assert message in refusal(forged("1", entries, FOUR))


TREES = {
    '{"tensor":["Tensor","w",false]}': "the file has no array 'w'",
    '{"tensor":["Module","v",false]}': "no class of tensors is called Module",
    '{"tensor":["Tensor","v",1]}': "a tensor is an array and whether it requires grad",
    '{"tensor":["Tensor","i",true]}': "can't require grad",
    '{"array":["v","|O"]}': "no dtype of data is called '|O'",
    '{"array":["v","<c8"]}': "doesn't hold the bytes of elements of complex64",
    '{"array":["u","<U1"]}': "a string holds no characters",
    '{"scalar":["|O8","AAAAAAAAAAA="]}': "no dtype of data is called",
    '{"scalar":["<f8","AAA="]}': "takes 8 bytes, and there are 2",
    '{"numpy_dtype":"O"}': "no dtype of data is called 'O'",
    '{"object":"lucid.Tensor"}': "no kind of data is called 'object'",
    '{"tuple":[],"list":[]}': "an object in the tree has one entry",
    '{"set":[[1]]}': "a list is no key",
    '{"dict":[[{"tensor":["Tensor","v",false]},1]]}': "a tensor is no key",
    '{"defaultdict":["eval",[]]}': "byte",
    '{"same":0}': "the tree refers to object 0, which isn't there",
    '[[1],{"same":-1}]': "the tree refers to object -1",
    '[{"same":1}]': "the tree refers to object 1",
    "NaN": "NaN is no number of JSON",
    "[" * 100_000: "byte",
    "[" * 101 + "]" * 101: "the tree is nested more than 100 deep",
    '{"tuple":' * 300 + "[]" + "}" * 300: "byte",
    '{"bytes":"?"}': "byte",
    '{"size":[true]}': "ints are expected in the tree, not True",
    '{"range":[0,1,0]}': "byte",
    '{"sparse":[1,2,[3],true]}': "byte",
    '{"sparse":[{"range":[0,4611686018427387904,1]},[],[3],true]}': "is made of two tensors",
    "1" * 5000: "byte",
}


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree[:30])
def test_a_tree_that_is_no_data_is_refused(tree: str) -> None:
    entries = {
        "v": entry("F32", [1], 0, 4),
        "i": entry("I32", [1], 4, 8),
        "u": entry("U8", [1, 4], 8, 12),
    }
    assert TREES[tree] in refusal(forged(tree, entries, FOUR * 2 + b"\xff\xff\xff\xff"))


def test_bools_are_0_or_1() -> None:
    """Compiled code may take others for both."""
    data = forged('{"tensor":["Tensor","w",false]}', {"w": entry("BOOL", [2], 0, 2)}, b"\x01\x02")
    assert "a bool is neither 0 nor 1" in refusal(data)


MODULUS = 2**61 - 1  # of Python's hashes of numbers: its multiples all have the hash 0
MULTIPLES = [i * MODULUS for i in range(20_000)]
ALIKE = {
    "a set": {"set": MULTIPLES},
    "a dict": {"dict": [[key, 0] for key in MULTIPLES]},
    "tuples": {"frozenset": [{"tuple": x} for x in itertools.product((-1, -2), repeat=14)]},
}


@pytest.mark.parametrize("name", ALIKE)
def test_keys_that_were_chosen_for_their_hashes_are_refused(name: str) -> None:
    assert "more than 100 different keys have one hash" in refusal(forged(json.dumps(ALIKE[name])))


def test_keys_that_happen_to_have_one_hash_are_data() -> None:
    corners = {(a, b, c): a * b * c for a in (-2, -1, 0) for b in (-2, -1, 0) for c in (-2, -1)}
    many = dict.fromkeys(range(-1000, 1000))
    for data in (saved([corners, many]), pickle.dumps([corners, many], protocol=4)):
        assert loaded(data) == [corners, many]


def test_a_header_that_names_something_twice_is_refused() -> None:
    text = forged("1", {"w": entry("F32", [1], 0, 4)}, FOUR)
    size = int.from_bytes(text[:8], "little")
    header = text[8 : 8 + size].replace(b'"w":{', b'"w":1,"w":{')
    header = header[: container._CHECKSUM.start] + b"0" * 8 + header[container._CHECKSUM.stop :]
    length = len(header).to_bytes(8, "little")
    checksum = b"%08x" % zlib.crc32(length + header)
    header = header[: container._CHECKSUM.start] + checksum + header[container._CHECKSUM.stop :]
    assert "the header names something twice" in refusal(length + header + FOUR)


def test_a_stream_that_promises_more_than_memory_is_refused() -> None:
    size = 2**50
    bomb = forged('{"array":"w"}', {"w": entry("U8", [size], 0, size)}, bytes(10**6))
    file = gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(bomb)))
    with pytest.raises(lucid.FileFormatError, match=rf"{size} bytes, more than this machine's mem"):
        lucid.load(file)


@pytest.mark.skipif(sys.platform == "win32", reason="needs sparse files")
def test_a_file_larger_than_memory_is_refused(tmp_path: Path) -> None:
    size = 2**42
    path = tmp_path / "sparse.pt"
    with open(path, "wb") as file:
        file.write(forged('{"array":"w"}', {"w": entry("U8", [size], 0, size)}))
        try:
            file.truncate(file.tell() + size)
        except OSError:
            pytest.skip("the file system has no files of this size")
    with pytest.raises(lucid.FileFormatError, match="more than this machine's memory"):
        lucid.load(path)


# Files that want more than to be data: pickles -------------------------------------------------


def text(string: str) -> bytes:
    return b"\x8c" + bytes([len(string)]) + string.encode()


def named(module: str, name: str) -> bytes:
    return text(module) + text(name) + b"\x93"


def dtype(code: str, *state: bytes) -> bytes:
    made = named("numpy", "dtype") + text(code) + b"\x89\x88\x87R"
    return made + (b"(K\x03" + b"".join(state) + b"tb" if state else b"")


NONES, SIZES = b"NNN", b"J\xff\xff\xff\xff" * 2
F4 = dtype("f4", text("<"), NONES, SIZES, b"K\x00")
OBJECTS = dtype("O8", text("|"), NONES, SIZES, b"K\x3f")
ARRAY = named("numpy._core.multiarray", "_reconstruct") + (
    named("numpy", "ndarray") + b"K\x00\x85C\x01b\x87R"
)
POINTERS = struct.pack("<Q", 0x4141414141414141)
TENSOR = named("lucid.tensor.tensor", "Tensor")
RANGE = named("builtins", "range") + b"K\x00J" + struct.pack("<i", 10**9) + b"K\x01\x87R"


def array(dtype: bytes, data: bytes, count: int = 1) -> bytes:
    shape = b"J" + struct.pack("<i", count) + b"\x85"
    return ARRAY + b"(K\x01" + shape + dtype + b"\x89C" + bytes([len(data)]) + data + b"tb"


PICKLES = {
    "a builtin by way of numpy.dtypes": (
        named("numpy.dtypes", "__builtins__.get") + text("eval") + b"\x85R",
        "holds a numpy.dtypes.__builtins__.get, which",
    ),
    "what is found is called": (
        named("numpy.dtypes", "__builtins__.get") + text("eval") + b"\x85R"
        + text("__import__('os').abort()") + b"\x85R",
        "holds a numpy.dtypes.__builtins__.get, which",
    ),
    "a builtin": (named("builtins", "eval") + text("1") + b"\x85R", "holds a builtins.eval, which"),
    "a module's attribute": (named("lucid.tensor.tensor", "np.load"), "np.load, which"),
    "another class of dtypes": (named("numpy.dtypes", "ObjectDType"), "ObjectDType, which"),
    "pointers in an array": (array(OBJECTS, POINTERS), "no dtype of data is called '|O8'"),
    "pointers in a buffer": (
        named("numpy._core.numeric", "_frombuffer") + b"(C\x08" + POINTERS + OBJECTS
        + b"K\x01\x85" + text("C") + b"tR",
        "no dtype of data is called '|O8'",
    ),
    "a pointer as a number": (
        named("numpy._core.multiarray", "scalar") + OBJECTS + b"C\x08" + POINTERS + b"\x86R",
        "no dtype of data is called '|O8'",
    ),
    "a dtype with fields": (
        dtype("V8", text("|"), b"N" + text("a") + b"\x85}", SIZES, b"K\x10"),
        "no dtype of data is called '|V8'",
    ),
    "a dtype that says it holds objects": (
        dtype("f8", text("<"), NONES, SIZES, b"K\x3f"), "with a state that it doesn't have",
    ),
    "a dtype of another size": (
        dtype("f4", text("<"), NONES, b"J\0\0\0\x7f" * 2, b"K\x00"),
        "with a state that it doesn't have",
    ),
    "more elements than bytes": (array(F4, b"\0" * 4, 1_000_000), "takes 4000000 bytes, and there"),
    "an array without contents": (ARRAY, "an array or a dtype has no contents"),
    "an array without contents in a list": (b"]" + ARRAY + b"a", "has no contents"),
    "a state for a class": (
        TENSOR + b"N}" + text("backward") + named("numpy", "dtype") + b"s\x86b", "is expected on",
    ),
    "a state for a tensor": (
        named("lucid.functions.protocols", "_rebuilt") + TENSOR + array(F4, FOUR) + b"\x89\x87R"
        + b"N}" + text("_type") + b"Ns\x86b",
        "a _Unbuilt is expected on the stack",
    ),
    "a tensor of another class": (
        named("lucid.functions.protocols", "_rebuilt") + named("builtins", "list")
        + array(F4, FOUR) + b"\x89\x87R",
        "no class of tensors is called list",
    ),
    "a class as data": (b"]" + TENSOR + b"a", "holds a lucid.tensor.tensor.Tensor, which"),
    "a tensor's class called": (TENSOR + b")R", "holds a lucid.tensor.tensor.Tensor, which"),
    "a set of a range": (named("builtins", "set") + RANGE + b"\x85R", "builtins.set, which"),
    "bytes by number": (
        named("builtins", "bytearray") + b"\x8a\x06\x00\x00\x00\x00\x00\x10\x85R",
        "a bytes is expected, not a int",
    ),
    "a long int": (b"\x8b\x00\x00\x00\x10" + b"\xff" * 100, "an int of 268435456 bytes"),
    "more bytes than there are": (b"\x8e" + b"\xff" * 7 + b"\x00" + b"x", "the file ends after 2"),
    "a deep list": (b"]" * 100_000 + b"a" * 99_999, "nested more than 100 deep"),
    "deep tuples": (b")" + b"\x85" * 100_000, "nested more than 100 deep"),
    "a key that takes for ever to hash": (
        b"})\x94" + b"".join(b"h" + bytes([i]) + b"\x86\x94" for i in range(60)) + b"Ns",
        "a key has more than 1000 parts",
    ),
    "keys that were chosen for their hashes": (
        b"\x8f("
        + b"".join(b"\x8a\x0a" + (i * MODULUS).to_bytes(10, "little") for i in range(20_000))
        + b"\x90",
        "more than 100 different keys have one hash",
    ),
    "keys that share what they hold": (
        b"((" + b"K\x01" * 990 + b"t\x94}("
        + b"".join(b"h\x00J" + struct.pack("<i", i) + b"\x86N" for i in range(40_000)) + b"ut",
        "or all have too many",
    ),
    "long keys that are compared": (
        b"(" + (b"X" + struct.pack("<I", 10**6) + b"x" * 10**6 + b"\x94") * 2
        + b"}(" + b"h\x00Nh\x01N" * 50_000 + b"ut",
        "or all have too many",
    ),
    "copies of bytes": (
        b"(B" + struct.pack("<I", 10**6) + bytes(10**6) + b"\x94"
        + (named("builtins", "bytearray") + b"h\x00\x85R") * 1500 + b"t",
        "objects share contents that each has for itself",
    ),
    "copies of a dict": (
        b"(}(" + b"".join(b"J" + struct.pack("<i", i) + b"N" for i in range(30_000)) + b"u\x94"
        + (named("collections", "Counter") + b"h\x00\x85R") * 300 + b"t",
        "objects share contents that each has for itself",
    ),
    "a list as a key": (b"}]Ns", "a list is no key"),
    "an object that isn't there": (b"h\x07", "object 7 of the pickle isn't there"),
    "an empty stack": (b"a", "finds nothing on the stack"),
    "no mark": (b"t", "finds no mark on the stack"),
    "a name in the old way": (b"cos\nsystem\n", "no instruction b'c' is among those of data"),
    "an object of a class": (b"(" + TENSOR + b"o", "no instruction b'o'"),
    "a persistent name": (b"N" + b"Q", "no instruction b'Q'"),
    "an extension": (b"\x82\x01", "no instruction"),
    "another protocol": (b"\x80\x02N", "pickles of protocol 4 alone"),
    "no characters": (
        array(dtype("U1", text("<"), NONES, b"K\x04K\x04", b"K\x08"), b"\xff" * 4),
        "a string holds no characters",
    ),
    "no bool": (
        array(dtype("b1", text("|"), NONES, SIZES, b"K\x00"), b"\x02"), "a bool is neither 0 nor 1"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_that_is_no_data_is_refused(name: str) -> None:
    body, message = PICKLES[name]
    backward, state = lucid.Tensor.backward, dict(vars(lucid.Tensor))
    assert message in refusal(b"\x80\x04" + body + b".")
    assert lucid.Tensor.backward is backward
    assert dict(vars(lucid.Tensor)) == state


def test_slices_that_share_what_they_hold_are_looked_at_once() -> None:
    deep = b"".join(
        named("builtins", "slice") + (b"h" + bytes([i])) * 3 + b"\x87R\x94" for i in range(30)
    )
    begin = time.process_time()
    assert len(loaded(b"\x80\x04(N\x94" + deep + b"t.")) == 31
    assert time.process_time() - begin < 5  # and no hang


class Trap:
    """What runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return print, ("boo",)


@pytest.mark.parametrize("save", [lucid.save, lambda obj, file: pickle.dump(obj, file)])
def test_a_file_that_could_run_code_is_refused(
    save: Callable[[Any, Any], None], capsys: pytest.CaptureFixture[str]
) -> None:
    file = io.BytesIO()
    save({"x": Trap()}, file)
    file.seek(0)
    for unsaid in (True, None, 0):
        file.seek(0)
        with pytest.raises(lucid.OptionError, match=r"holds a [\w.]+.*, which is no plain data"):
            lucid.load(file, weights_only=unsaid)  # type: ignore[arg-type]
    assert capsys.readouterr().out == ""
    file.seek(0)
    lucid.load(file, weights_only=False)
    assert capsys.readouterr().out == "boo\n"
