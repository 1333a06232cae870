"""Values that constants alone decide are known while a step is traced."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.compiler.inputs import present
from lucid.compiler.recording.recorder import Recorder, recording
from lucid.ir import Node, ops
from lucid.tensor.core import apply_op


def test_a_mask_of_constants_can_be_indexed_with() -> None:
    @lucid.compile
    def others(x: lucid.Tensor) -> lucid.Tensor:
        same = lucid.eye(len(x), dtype=lucid.bool)
        return x[~same].view(len(x), -1)

    x = lucid.arange(9.0).view(3, 3)
    assert others(x).tolist() == [[1, 2], [3, 5], [6, 7]]
    assert others(x * 2).tolist() == [[2, 4], [6, 10], [12, 14]]
    assert others.stats.traces == 1


def test_python_may_branch_on_a_constant() -> None:
    @lucid.compile
    def f(x: lucid.Tensor) -> lucid.Tensor:
        steps = lucid.zeros(3)
        steps[1:] += 2
        if steps.sum() > 3 and float(steps[0]) == 0.0:
            return x * int(steps.max())
        return x

    assert f(lucid.ones(2)).tolist() == [2.0, 2.0]


def test_what_an_input_has_a_part_in_is_not_known() -> None:
    offset = lucid.zeros(3)

    @lucid.compile
    def f(x: lucid.Tensor) -> lucid.Tensor:
        return x[lucid.arange(3) + offset > 1]

    assert f(lucid.ones(3)).shape == (1,)
    offset.add_(1)
    assert f(lucid.ones(3)).shape == (2,)

    @lucid.compile
    def g(rate: float) -> lucid.Tensor:
        return lucid.ones(2) if lucid.zeros(2).sum() < rate else lucid.zeros(2)

    assert g(0.5).tolist() == [1.0, 1.0] and g(-0.5).tolist() == [0.0, 0.0]
    assert g(0.25).tolist() == [1.0, 1.0]

    @lucid.compile
    def h() -> bool:
        return bool(lucid.rand(1) > 0.5)

    assert {h() for _ in range(20)} == {False, True}


def test_a_constant_has_the_sign_of_its_own_zero() -> None:
    """Nodes share attributes that are equal; numbers that are may have other bits."""
    recorder = Recorder("step")
    with recording(recorder):
        for value in (0.0, -0.0):
            given = {"value": np.float32(value), "dtype": lucid.float32}
            apply_op(ops.constant, (), given)
    values = [node.attributes["value"] for node in recorder.graph.nodes]
    assert [*map(np.signbit, values)] == [False, True]
    recorder.restore(True)


def test_each_look_evaluates_what_is_new_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated, seen = present.evaluated, Counter[object]()

    def counting(node: Node, *others: Any) -> Any:
        seen[node] += 1
        return evaluated(node, *others)

    monkeypatch.setattr(present, "evaluated", counting)
    recorder = Recorder("f")
    with recording(recorder):
        constant, moving = lucid.arange(3.0) + 1, lucid.rand(3)
        for _ in range(20):
            constant, moving = constant * 1.5, moving * 1.5
            assert recorder.known(constant) is not None
            assert recorder.known(constant * 2 * moving) is None
    recorder.restore(True)
    assert set(seen.values()) == {1} and len(recorder._undecided) < 100
