"""`python -m lucid`: what each command prints, writes, and exits with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid.cli import main
from lucid.ir import ops, parse
from lucid.ir.environment import VARIABLES
from lucid.ir.graph import Graph
from lucid.ir.reduce import reduce_graph

TEXT = """graph g(%x: f32[4,8], %y: f32[4,8]) {
  %p = mul %x, %y : f32[4,8]
  %q = mul %y, %x : f32[4,8]
  %s = add %p, %q : f32[4,8]
  %t = tanh %s : f32[4,8]
  %e = exp %t : f32[4,8]
  %r = sum %e {axes = [0]} : f32[8]
  return %r, %e
}
"""

STATEFUL = """graph step {
  arg   %x: f32[3]
  state %w: f32[3] = "w"  // written
  live  %lr: f64[] = "lr"

  %c = cast %lr {dtype = f32} : f32[]
  %m = mul %x, %c : f32[3]
  %n = add %w, %m : f32[3]
  write %w, %n
  return %m
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "g.lir"
    path.write_text(TEXT)
    return path


def test_opt_prints_what_the_passes_leave(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", str(file), "--passes", "cse,dce", "--verify", "--print-after", "cse"]) == 0
    out, err = capsys.readouterr()
    graph = parse(out)
    assert str(graph) == out and [node.op.name for node in graph.nodes].count("mul") == 1
    assert err.startswith("# g after cse\ngraph g(")
    assert main(["opt", str(file)]) == 0
    assert capsys.readouterr() == (str(graph), "")


def test_an_unknown_pass_is_an_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", str(file), "--passes", "cze"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("lucid opt: there is no pass cze; there are ") and " cse, " in error


def test_run_computes_natively_what_numpy_does(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    given = [str(file), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    for more in ([], ["--interpret"]):
        assert main(["run", *given, "--out", str(tmp_path / "out"), *more]) == 0
        expected = np.exp(np.tanh(2 * x * y))
        np.testing.assert_allclose(np.load(tmp_path / "out" / "e.npy"), expected, rtol=1e-5)
        np.testing.assert_allclose(np.load(tmp_path / "out" / "r.npy"), expected.sum(0), rtol=1e-5)
    assert capsys.readouterr().out.count("%r: float32[8]\n") == 2
    assert main(["run", str(file), "--random", "0", "--check"]) == 0
    assert capsys.readouterr().out.endswith("both agree\n")


def test_run_writes_state_and_reads_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.lir").write_text(STATEFUL)
    for name, value in (("x", [1.0, 2.0, 3.0]), ("w", [10.0, 20.0, 30.0])):
        np.save(tmp_path / f"{name}.npy", np.asarray(value, np.float32))
    arrays = [str(tmp_path / f"{name}.npy") for name in ("x", "w")]
    for more in ([], ["--interpret"], ["--check"]):
        assert main(["run", str(tmp_path / "s.lir"), *arrays, "0.5", *more]) == 0
        out = capsys.readouterr().out
        assert "%m: float32[3]\n    [0.5 1.  1.5]" in out
        assert "%w after: float32[3]\n    [10.5 21.  31.5]" in out


def test_wrong_inputs_are_said(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(file)]) == 2
    assert capsys.readouterr().err == (
        "lucid run: the graph has 2 inputs, and 0 are given\n  %x: f32[4,8]\n  %y: f32[4,8]\n"
        "hint: --random 0 makes those that are missing\n"
    )
    assert main(["run", str(file), "1", "2"]) == 2
    assert "lucid run: 1: float32[] where f32[4,8] is needed" in capsys.readouterr().err
    assert main(["run", str(file.parent / "none.lir")]) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["opt", "run", "reduce"])
def test_a_file_that_is_no_text_is_said(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "g.lir").write_bytes(b"graph \xff\xfe")
    more = ["--check", "true"] if command == "reduce" else []
    assert main([command, str(tmp_path / "g.lir"), *more]) == 2
    assert f"lucid {command}: {tmp_path}/g.lir is no text in UTF-8" in capsys.readouterr().err


def test_functions_that_call_each_other_very_deep_are_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = [f"%y = call f{i + 1}(%x) : f32[]" for i in range(3000)] + ["%y = neg %x"]
    bodies = [f"f{i}(%x: f32[]) {{ {call} return %y }}" for i, call in enumerate(calls)]
    (tmp_path / "g.lir").write_text("\nfunction ".join(["graph " + bodies[0], *bodies[1:]]))
    assert main(["opt", str(tmp_path / "g.lir")]) == 2
    assert capsys.readouterr().err.startswith("lucid opt: maximum recursion depth exceeded")


def test_inputs_that_cannot_be_read_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Arrays of no bytes, of others, of more than there are, of objects; numbers out of range."""
    graph, array = tmp_path / "g.lir", tmp_path / "x.npy"
    graph.write_text("graph g(%x: i8[]) { %y = add %x, %x return %y }")
    header = str({"descr": "|i1", "fortran_order": False, "shape": (1 << 60,)}).encode()
    huge = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    np.save(array, np.array([{}]), allow_pickle=True)
    for data in (b"", b"x", b"PK\x03\x04", huge, array.read_bytes()):
        array.write_bytes(data)
        assert main(["run", str(graph), str(array)]) == 2
        assert f"lucid run: {array} is no array that NumPy wrote: " in capsys.readouterr().err
    for text in ("128", "9" * 30, "1.5", "nan"):
        assert main(["run", str(graph), text]) == 2
        expected = f"lucid run: {text!r} is neither a number of i8 nor a .npy file\n"
        assert capsys.readouterr().err == expected
    with pytest.raises(SystemExit):
        main(["run", str(graph), "--random=-1"])
    assert "a seed is a whole number from 0 on, not '-1'" in capsys.readouterr().err


def test_a_wrong_kernel_is_found_by_run(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lucid.cli import graphs

    plain = graphs._results

    def wrong(graph: Graph, inputs: list[object], native: bool) -> list[np.ndarray]:
        first, *rest = plain(graph, inputs, native)
        return [first * (1.01 if native else 1), *rest]

    monkeypatch.setattr(graphs, "_results", wrong)
    assert main(["run", str(file), "--random", "0", "--check"]) == 1
    assert capsys.readouterr().out.endswith("native and NumPy differ in r\n")


def test_reduce_leaves_what_the_check_needs(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reduce", str(file), "--check", "grep -q tanh"]) == 0
    out, err = capsys.readouterr()
    assert out == "graph g(%s: f32[4,8]) {\n  %t = tanh %s : f32[4,8]\n  return %t\n}\n"
    assert err == "6 nodes, 1 are left\n"
    found = tmp_path / "small.lir"
    command = "grep -q tanh {} && grep -q sum {}"
    assert main(["reduce", str(file), "--check", command, "--out", str(found)]) == 0
    assert [n.op.name for n in parse(found.read_text()).nodes] == ["tanh", "sum"]
    assert main(["reduce", str(file), "--check", "grep -q cosh"]) == 2
    assert "the check refuses the graph as it is" in capsys.readouterr().err


def test_a_graph_is_reduced_to_the_nodes_that_matter_together() -> None:
    lines = [f"  %v{i} = add %v{i - 1}, %x : f32[3]" for i in range(1, 40)]
    lines[17] = "  %v18 = mul %v17, %v17 : f32[3]"
    lines[18] = "  %v19 = exp %v18 : f32[3]"
    body = "\n".join(["  %v0 = neg %x : f32[3]", *lines])
    graph = parse(f"graph g(%x: f32[3]) {{\n{body}\n  return %v39, %v5\n}}\n")
    tried = 0

    def shows(candidate: Graph) -> bool:
        nonlocal tried
        tried += 1
        assert str(parse(str(candidate))) == str(candidate)
        users = candidate.uses()
        return any(
            node.op is ops.mul and any(user.op is ops.exp for user in users.get(node.result, ()))
            for node in candidate.nodes
        )

    found = reduce_graph(graph, shows)
    assert [node.op.name for node in found.nodes] == ["mul", "exp"]
    assert (len(found.inputs), len(found.outputs)) == (1, 1) and tried < 150


def test_explain_runs_a_script_and_reports_its_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nimport lucid\n"
        "@lucid.compile\ndef step(x):\n    return x * 2\n"
        "@lucid.compile\ndef never(x):\n    return x\n"
        "def inner():\n    f = lucid.compile(lambda x: x + 1)\n    f(lucid.ones(2))\n"
        "if __name__ == '__main__':\n"
        "    step(lucid.ones(3)); step(lucid.ones(4)); inner(); print(sys.argv[1:])\n"
        "    raise SystemExit(3)\n"
    )
    before = sys.argv, sys.path[:]
    assert main(["explain", str(script), "--epochs", "2"]) == 3
    out = capsys.readouterr().out
    assert out.startswith("['--epochs', '2']\n")
    assert "\nstep(x: f32[4])\n" in out and "\n<lambda>(x: f32[2])\n" in out
    assert "traced for shape: x: f32[3] -> f32[4]   at train.py:13" in out and "never" not in out
    assert (sys.argv, sys.path) == before


def test_explain_shows_the_errors_of_a_script_as_python_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(tmp_path / "none.py")]) == 2
    said = capsys.readouterr()
    assert said.err == f"lucid explain: there is no script {tmp_path / 'none.py'}\n"
    assert said.out == ""
    script = tmp_path / "wrong.py"
    script.write_text("import lucid\nf = lucid.compile(lambda x: x @ x)\nf(lucid.ones(2, 3))\n")
    assert main(["explain", str(script)]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f'Traceback (most recent call last):\n  File "{script}", line 3')
    assert "scripts.py" not in shown and "runpy" not in shown
    script.write_text("x = = 3\n")
    assert main(["explain", str(script)]) == 1
    assert capsys.readouterr().err.startswith(f'  File "{script}", line 1')


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("sys.exit('no data')", 1, "no data\n"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt\n"),
        ("raise GeneratorExit", 1, "GeneratorExit\n"),
        ("sys.exit()", 0, ""),
    ],
)
def test_explain_explains_what_ran_however_a_script_ends(
    end: str,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nor does it matter that the script prints elsewhere by then, and stands in another folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "train.py").write_text(
        "import lucid, os, sys\nstep = lucid.compile(lambda x: x * 2)\nstep(lucid.ones(3))\n"
        f"os.chdir('data')\nsys.stdout = None\n{end}\n"
    )
    assert main(["explain", "--html", "pages", "train.py"]) == code
    shown = capsys.readouterr()
    assert "(x: f32[3])" in shown.out and shown.err.endswith(said)
    assert len(list((tmp_path / "pages").iterdir())) == 1


def test_the_version_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"lucid {lucid.__version__}\n"


def test_explain_writes_a_page_for_each_step(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import lucid\nstep = lucid.compile(lambda x: x * 2)\nstep(lucid.ones(3))\n")
    assert main(["explain", "--html", str(tmp_path / "pages"), str(script)]) == 0
    (page,) = (tmp_path / "pages").iterdir()
    assert page.name == "0__lambda_.html" and "<!DOCTYPE html>" in page.read_text()


def test_the_cache_is_counted_and_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LUCID_CACHE", "on")
    monkeypatch.setenv("LUCID_CACHE_DIR", str(tmp_path))
    assert main(["cache", "info"]) == 0
    assert "entries  0 of at most 8192\n" in capsys.readouterr().out
    lucid.compile(lambda x: (x * 3.25).tanh() - 1.625)(lucid.ones(3, 7))
    (folder,) = tmp_path.iterdir()
    (folder / "note.txt").write_text("mine")
    assert main(["cache", "info"]) == 0
    assert "entries  1 of at most 8192\n" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.startswith("removed 1 entries, ")
    assert [path.name for path in folder.iterdir()] == ["note.txt"]
    monkeypatch.setenv("LUCID_CACHE", "off")
    assert main(["cache", "info"]) == 0
    assert capsys.readouterr().out == "the cache is off\n"


def test_config_shows_each_variable_and_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    assert main(["config"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[: len(VARIABLES)]] == [v.name for v in VARIABLES]
    for line, variable in zip(lines, VARIABLES, strict=False):
        assert "not set" in line and variable.values in line
    monkeypatch.setenv("LUCID_LOG", "foo")
    monkeypatch.setenv("LUCID_EAGR", "1")
    monkeypatch.setenv("LUCID_PORT", "80")
    assert main(["config"]) == 1
    out = capsys.readouterr().out
    assert "'foo': expected retrace" in out and ", so it is ignored" in out
    assert "LUCID_EAGR is no variable of lucid's; did you mean LUCID_EAGER?\n" in out
    assert "LUCID_PORT is no variable of lucid's\n" in out


def test_the_doctor_tests_kernels_and_says_what_is_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert out.count("agrees with NumPy") == 9 and out.endswith("all is well\n")
    for name in ("lucid", "Python", "processor", "threads", "tracing", "native entry", "cache"):
        assert f"\n{name} " in f"\n{out}"
    from lucid.cli import machine

    monkeypatch.setattr(machine, "_tests", lambda: [("sort", ""), ("training", "k0 is wrong")])
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.endswith("1 of the tests have failed\n")


def test_it_is_a_module_that_runs(file: Path) -> None:
    command = [sys.executable, "-m", "lucid", "opt", str(file), "--passes", "cse"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.startswith("graph g(")
    wrong = subprocess.run([sys.executable, "-m", "lucid"], capture_output=True, timeout=60)
    assert wrong.returncode == 2
