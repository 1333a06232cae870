"""`step.check` compares a native step with the NumPy meaning of its ops, and finds what is off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.autograd import Function
from lucid.codegen.emit import lowering
from lucid.codegen.kernel_ir.affine import IndexMap
from lucid.codegen.lower.build import Builder
from lucid.codegen.lower.item import Item


def training_step():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3))
    opt = lucid.optim.Adam(model.parameters(), lr=1e-2)

    @lucid.compile
    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss

    return step, model, (lucid.randn(5, 6), lucid.tensor([0, 1, 2, 1, 0]))


def test_a_training_step_agrees_with_numpy_and_its_two_calls_train() -> None:
    lucid.manual_seed(0)
    step, model, batch = training_step()
    found = step.check(*batch)
    assert found.agrees and not found.culprit and step.stats.traces == 1
    names = [row.name for row in found.rows]
    assert names[0] == "%loss" and "%model_0_weight after the step" in names
    assert str(found).startswith(f"{len(names)} results agree with NumPy; the largest")

    lucid.manual_seed(0)
    same, other, batch = training_step()
    for _ in range(2):
        same(*batch)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert np.array_equal(p.detach().numpy(), q.detach().numpy())


@pytest.mark.parametrize("optimizer", [lucid.optim.SGD, lucid.optim.Adam])
def test_what_rounding_alone_makes_is_no_difference(
    optimizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bias before BatchNorm has no gradient: its terms cancel, and Adam makes what is left large.

    What is wrong by more, in the same step, is found.
    """
    monkeypatch.setenv("LUCID_CACHE", "0")
    lucid.manual_seed(0)

    def check() -> Any:
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        opt = optimizer(model.parameters(), lr=1e-2)

        @lucid.compile
        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            return loss

        return step.check(lucid.randn(32, 6), lucid.arange(32) % 3)

    found = check()
    assert found.agrees and max(row.difference for row in found.rows) > 1e-3, str(found)
    rule = lowering.RULES["sqrt"]
    monkeypatch.setitem(lowering.RULES, "sqrt", lambda b, d, x: b.mul(rule(b, d, x), 1.001))
    monkeypatch.setitem(lowering.RULES, "rsqrt", lambda b, d, x: b.mul(rule(b, d, x), 0.999))
    wrong = check()
    assert wrong.culprit.startswith("native code: k")
    assert sum(not row.agrees for row in wrong.rows) > 3


def test_a_wrong_kernel_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCID_CACHE", "0")
    monkeypatch.setitem(lowering.RULES, "tanh", lowering.RULES["sin"])
    found = lucid.compile(lambda x: x.tanh()).check(lucid.tensor([0.5, 2.0]))
    assert not found.agrees and found.culprit == "native code: k0"
    assert str(found).splitlines()[0] == (
        "1 of 1 results differ from NumPy, since native code: k0; "
        "the largest differences, relative:"
    )
    assert str(found).endswith("  differs")


@pytest.mark.parametrize("strides", ["plain", "transposed", "reversed", "empty", "scalar"])
def test_inputs_of_any_strides_are_read_as_the_step_reads_them(strides: str) -> None:
    base = np.arange(24.0).reshape(4, 6)
    array = {
        "plain": base,
        "transposed": base.T,
        "reversed": base[::-1, ::-2],
        "empty": base[:0],
        "scalar": np.array(3.0),
    }[strides]
    assert lucid.compile(lambda x: (x.sin() + 1).cos()).check(lucid.from_numpy(array)).agrees


def test_nan_infinities_integers_and_bools_are_compared_exactly() -> None:
    step = lucid.compile(lambda x: (x.log(), 1 / x, x > 0, x.to(lucid.int64)))
    found = step.check(lucid.tensor([-1.0, 0.0, 2.0]))
    assert found.agrees and [row.tolerance for row in found.rows] == [1e-4, 1e-4, 0.0, 0.0]


def test_live_numbers_and_calls_of_python_are_checked_too() -> None:
    class Host(Function):
        @staticmethod
        def forward(ctx, x):
            return lucid.from_numpy(np.sort(x.numpy()))

        @staticmethod
        def backward(ctx, g):
            return g

    step = lucid.compile(lambda x, scale: Host.apply(x * scale).sum())
    assert step.check(lucid.tensor([3.0, 1.0, 2.0]), 0.5).agrees
    assert step.check(lucid.tensor([3.0, 1.0, 2.0]), 0.25).agrees and step.stats.traces == 1


def test_what_does_not_run_natively_cannot_be_checked() -> None:
    step = lucid.compile(lambda x: x + 1, mode="eager")
    step.__wrapped__.__name__ = "step"
    with pytest.raises(lucid.LucidError) as error:
        step.check(lucid.ones(3))
    assert str(error.value) == "check: step runs op by op here, so nothing is native"


def two_kernels() -> tuple[Any, lucid.Tensor]:
    return lucid.compile(lambda x: (x @ x).tanh().cumsum(0)), lucid.randn(6, 6) * 0.3


def kernel_with(op: str, text: str) -> str:
    """The name of the only kernel that computes an op."""
    (name,) = [k.split()[0] for k in text.split("kernel ")[1:] if f"= {op} " in k]
    return name


def test_a_kernel_that_is_not_what_the_graph_says_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernels are made wrong: the native code does what they say."""

    compute = Builder._compute

    def computed(self: Builder, item: Item, forms: IndexMap) -> int:
        number = compute(self, item, forms)
        inst = self.body.insts[number]
        if inst.op == "tanh":
            self.body.insts[number] = inst._replace(op="sin")
        return number

    monkeypatch.setenv("LUCID_CACHE", "0")
    monkeypatch.setattr(Builder, "_compute", computed)
    step, x = two_kernels()
    found = step.check(x)
    assert found.culprit == f"kernels: {kernel_with('sin', step.stages['kernels'])}"


def test_native_code_that_is_not_what_its_kernel_says_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LUCID_CACHE", "0")
    monkeypatch.setitem(lowering.RULES, "tanh", lowering.RULES["sin"])
    step, x = two_kernels()
    found = step.check(x)
    assert found.culprit == f"native code: {kernel_with('tanh', step.stages['kernels'])}"


def test_a_kernel_with_a_call_of_python_before_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Host(Function):
        @staticmethod
        def forward(ctx, x):
            return lucid.from_numpy(np.sort(x.numpy()))

        @staticmethod
        def backward(ctx, g):
            return g

    monkeypatch.setenv("LUCID_CACHE", "0")
    monkeypatch.setitem(lowering.RULES, "tanh", lowering.RULES["sin"])
    step = lucid.compile(lambda x: Host.apply(x.exp()).tanh())
    found = step.check(lucid.randn(7))
    assert found.culprit == "native code: k1"
