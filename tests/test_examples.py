"""The examples run to their end, and say what they should."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(tmp_path: Path, script: str, *arguments: str) -> str:
    """Run a script in a folder of its own and return what it printed."""
    done = subprocess.run(
        [sys.executable, str(ROOT / script), *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_digits_learns_in_one_trace(tmp_path: Path) -> None:
    printed = run(tmp_path, "examples/digits.py")
    assert "traces              1 " in printed
    assert (tmp_path / "build/digits/loss.png").stat().st_size > 0
    assert "Swish" in (tmp_path / "build/digits/train_step.lir").read_text(encoding="utf-8")
    profile = (tmp_path / "build/digits/profile.txt").read_text(encoding="utf-8")
    assert profile.startswith("train_step: ") and "digits.py:" in profile


def test_digits_learns_eagerly(tmp_path: Path) -> None:
    assert "held-out accuracy" in run(tmp_path, "examples/digits.py", "--eager")


def test_digits_fails_when_it_has_not_learned(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="held-out accuracy"):
        run(tmp_path, "examples/digits.py", "--epochs", "1", "--eager")


def test_custom_function_fits_the_curve(tmp_path: Path) -> None:
    assert "agrees with finite differences" in run(tmp_path, "examples/custom_function.py")


def test_custom_pass_changes_what_is_compiled(tmp_path: Path) -> None:
    printed = run(tmp_path, "examples/custom_pass.py")
    assert "largest difference" in printed and "= rsqrt %add" in printed and "= sqrt" not in printed


def test_the_benchmark_compares_and_draws_what_it_measures(tmp_path: Path) -> None:
    frameworks = ("lucid", "NumPy", "lucid eager")
    printed = run(
        tmp_path,
        "benchmarks/run.py",
        *("--steps", "mlp_tiny", "--rounds", "1", "--seconds", "0.05", "--frameworks"),
        *frameworks,
    )
    assert "| µs per step | lucid | NumPy | lucid eager |" in printed
    result = json.loads((tmp_path / "build/bench/steps.json").read_text(encoding="utf-8"))
    measured = result["steps"]["mlp_tiny"]["frameworks"]
    assert set(measured) == set(frameworks)
    assert all(of["difference"]["state"] < 1e-4 for of in measured.values())
    assert (tmp_path / "build/bench/steps.png").stat().st_size > 0


def test_the_benchmark_times_the_parts_around_a_model_compiled_alone(tmp_path: Path) -> None:
    alone, whole = "lucid model alone", "lucid whole step"
    printed = run(
        tmp_path,
        "benchmarks/run.py",
        *("--steps", "outside_backward", "--models", "mlp", "--rounds", "1"),
        *("--seconds", "0.05", "--frameworks", "lucid"),
    )
    assert f"| µs | {alone} | {whole} |" in printed
    assert f"mlp: model, forward and backward, {alone} / {whole}: " in printed
    assert f"{alone} / ({whole} + residuals): " in printed
    path = tmp_path / "build/bench/outside_backward.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    for of in result["models"].values():
        assert set(of["frameworks"]) == {alone, whole}
        assert all(of["difference"]["state"] < 1e-3 for of in of["frameworks"].values())
    parts = result["models"]["mlp"]["frameworks"][alone]["parts_us"]
    assert set(parts) >= {"model, forward and backward", "opt.step()", "whole iteration"}
    assert result["memory"]["residuals of a call, MiB"][alone] > 0.1
    assert not (tmp_path / "build/bench/steps.json").exists()


def test_a_framework_with_one_thread_has_one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from worker import Worker

    worker = Worker(("steps", "mlp_tiny", "NumPy"), sys.executable, 1, 0.05)
    with worker.process:
        assert worker.built["parts"] == []
        assert len(os.sched_getaffinity(worker.process.pid)) == 1


def test_the_gradient_goes_through_the_steps_that_an_adaptive_solver_took(tmp_path: Path) -> None:
    assert "k = 0.69315, and log 2 = 0.69315" in run(tmp_path, "examples/ode.py")


def test_a_beam_search_finds_the_best_of_all_sentences(tmp_path: Path) -> None:
    assert len(run(tmp_path, "examples/beam_search.py").splitlines()) == 3
