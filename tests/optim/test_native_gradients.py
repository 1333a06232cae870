"""Gradients that are clipped or zeroed from Python: one native call, as single ops would do it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.compiler import set_stance
from lucid.compiler.repeated import WARM_UP, Repeated
from lucid.compiler.tracing import Tracer
from lucid.nn.utils import clip_grad

SIZES = ((7, 5), (33,), ())

Change = Callable[[list[nn.Parameter]], Any]
CHANGES: dict[str, Change] = {
    "norm": lambda ps: nn.utils.clip_grad_norm_(ps, 1.0),
    "no need to clip": lambda ps: nn.utils.clip_grad_norm_(ps, 1e9),
    "norm of order 1": lambda ps: nn.utils.clip_grad_norm_(ps, 2, 1),
    "norm of order 3": lambda ps: nn.utils.clip_grad_norm_(ps, 0.5, norm_type=3.0),
    "largest element": lambda ps: nn.utils.clip_grad_norm_(ps, 0.5, math.inf, foreach=True),
    "finite": lambda ps: nn.utils.clip_grad_norm_(ps, 0.5, error_if_nonfinite=True),
    "generator": lambda ps: nn.utils.clip_grad_norm_((p for p in ps), 0.5),
    "-0.0": lambda ps: nn.utils.clip_grad_norm_(ps, -0.0),
    "tensor": lambda ps: nn.utils.clip_grad_norm_(ps, lucid.tensor(0.5)),  # type: ignore[arg-type]
    "value": lambda ps: nn.utils.clip_grad_value_(ps, 0.5),
    "value, foreach": lambda ps: nn.utils.clip_grad_value_(iter(ps), 1, foreach=True),
    "zeros": lambda ps: lucid.optim.SGD(list(dict.fromkeys(ps))).zero_grad(set_to_none=False),
    "none": lambda ps: lucid.optim.SGD(list(dict.fromkeys(ps))).zero_grad(),
}


def plain(number: int) -> list[nn.Parameter]:
    lucid.manual_seed(number)
    parameters = [nn.Parameter(lucid.randn(size)) for size in SIZES]
    for p in parameters:
        p.grad = lucid.randn(tuple(p.shape)) * 10.0 ** (number - 2)
    return parameters


def not_finite(number: int) -> list[nn.Parameter]:
    parameters = plain(number)
    parameters[1].grad[3], parameters[0].grad[1, 1] = math.inf, math.nan
    return parameters


def some(number: int) -> list[nn.Parameter]:
    parameters = plain(number)
    parameters[number % 3].grad = None
    return parameters


def nothing(number: int) -> list[nn.Parameter]:
    return [nn.Parameter(lucid.ones(3))]


def twice(number: int) -> list[nn.Parameter]:
    parameters = plain(number)
    return [*parameters, parameters[0]]


def one_gradient(number: int) -> list[nn.Parameter]:
    a, b = (nn.Parameter(lucid.ones(3)) for _ in range(2))
    a.grad = b.grad = lucid.arange(3.0) + number
    return [a, b]


def views_of_one_buffer(number: int) -> list[nn.Parameter]:
    buffer = lucid.arange(10.0) + number
    parameters = [nn.Parameter(lucid.ones(6)), nn.Parameter(lucid.ones(2, 3))]
    parameters[0].grad, parameters[1].grad = buffer[:6], buffer[4:].view(2, 3)
    return parameters


def overlapping(number: int) -> list[nn.Parameter]:
    array = np.arange(10, dtype=np.float32) + number
    parameters = [nn.Parameter(lucid.ones(6)), nn.Parameter(lucid.ones(6))]
    parameters[0].grad, parameters[1].grad = map(lucid.from_numpy, (array[:6], array[4:]))
    return parameters


def of_any_stride(number: int) -> list[nn.Parameter]:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    parameters = [nn.Parameter(lucid.ones(6, 4)), nn.Parameter(lucid.ones(2, 6))]
    parameters[0].grad = lucid.from_numpy(array.T.copy(order="F"))
    parameters[1].grad = lucid.from_numpy(array.copy()[:: 2 + number % 2][:2])
    return parameters


def with_history(number: int) -> list[nn.Parameter]:
    p = nn.Parameter(lucid.arange(3.0) + number)
    (p**3).sum().backward(create_graph=True)
    return [p]


def of_two_dtypes(number: int) -> list[nn.Parameter]:
    parameters = plain(number)
    parameters[1] = nn.Parameter(lucid.ones(4, dtype=lucid.float64))
    parameters[1].grad = lucid.arange(4, dtype=lucid.float64)
    return parameters


def empty(number: int) -> list[nn.Parameter]:
    parameters = [*plain(number), nn.Parameter(lucid.ones(0, 2))]
    parameters[-1].grad = lucid.ones(0, 2)
    return parameters


def found(change: Change, parameters: list[nn.Parameter]) -> list[Any]:
    """What a change returns and leaves, or the error that it raises."""
    gradients = [p.grad for p in parameters]
    versions = [0 if g is None else g._version for g in gradients]
    try:
        result = change(parameters)
    except RuntimeError as error:
        result = str(error).partition("\n")[0]
    pairs = list(zip(parameters, gradients, strict=True))
    left = [(p.grad is g, g is not None and g.requires_grad) for p, g in pairs]
    counts = zip(gradients, versions, strict=True)
    moved = [0 if g is None else g._version - v for g, v in counts]
    if isinstance(result, lucid.Tensor):
        assert (result.shape, result.requires_grad, result._version) == ((), False, 0)
        left.append((result.dtype, result.is_leaf))
    numbers = [None if g is None else g.detach().numpy().copy() for g in gradients]
    return [result, left, moved, *numbers]


ODD = (some, nothing, twice, one_gradient, views_of_one_buffer, overlapping)
ODD += (of_any_stride, with_history, of_two_dtypes, empty)
CASES = [(name, make) for name in CHANGES for make in (plain, not_finite)]
CASES += [(name, make) for name in ("norm", "value", "zeros") for make in ODD]


@pytest.mark.parametrize(("name", "make"), CASES)
def test_a_native_call_does_what_single_ops_do(name: str, make: Any) -> None:
    """The norm alone is rounded otherwise, and what is scaled by it."""
    for number in range(WARM_UP + 2):
        native = found(CHANGES[name], make(number))
        with set_stance("force_eager"):
            expected = found(CHANGES[name], make(number))
        assert native[1:3] == expected[1:3]
        for a, b in zip((native[0], *native[3:]), (expected[0], *expected[3:]), strict=True):
            if isinstance(b, (lucid.Tensor, np.ndarray)):
                np.testing.assert_allclose(a, b, rtol=2e-6 if "value" not in name else 0)
                np.testing.assert_array_equal(np.signbit(np.array(a)), np.signbit(np.array(b)))
            else:
                assert a == b


def calls_of(repeated: Repeated) -> int:
    return 0 if repeated.compiled is None else repeated.compiled.stats.calls


def test_calls_with_the_same_shapes_are_native() -> None:
    tensors = [p.grad for p in plain(0) if p.grad is not None]
    limit = clip_grad._argument(1.0)
    norm = clip_grad._clipping(2.0)._of_shapes([limit, *tensors])
    value = clip_grad._limiting._of_shapes([limit, *tensors])
    before = [calls_of(repeated) for repeated in (norm, value)]
    for number in range(8):
        parameters = plain(number)
        total = nn.utils.clip_grad_norm_(parameters, 1.0 + number)
        assert isinstance(total, lucid.Tensor)
        nn.utils.clip_grad_value_(parameters, 0.1 / (1 + number))
        assert all(abs(p.grad.numpy()).max() <= 0.1 / (1 + number) for p in parameters)
        lucid.optim.SGD(parameters).zero_grad(set_to_none=False)
        assert all(not p.grad.numpy().any() for p in parameters)
    after = [calls_of(repeated) for repeated in (norm, value)]
    assert all(b - a >= 8 - WARM_UP for a, b in zip(before, after, strict=True))


def test_a_native_call_looks_for_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = plain(0)
    for _ in range(WARM_UP + 1):
        nn.utils.clip_grad_value_(parameters, 1.0)
    repeated = clip_grad._limiting._of_shapes(
        [clip_grad._argument(1.0), *(p.grad for p in parameters if p.grad is not None)]
    )
    assert repeated.compiled is not None
    monkeypatch.setattr(Tracer, "program_for", lambda *_: pytest.fail("looked for a program"))
    nn.utils.clip_grad_value_(plain(1), 1.0)


def test_memory_that_may_not_be_written_is_refused() -> None:
    array = np.ones(3, np.float32)
    array.flags.writeable = False
    p = nn.Parameter(lucid.ones(3))
    p.grad = lucid.from_numpy(array)
    for _ in range(WARM_UP + 2):
        with pytest.raises(RuntimeError, match="read-only"):
            nn.utils.clip_grad_value_([p], 0.5)
        with pytest.raises(RuntimeError, match="read-only"):
            nn.utils.clip_grad_norm_([p], 0.5)
    assert array.tolist() == [1.0, 1.0, 1.0]


def test_zeros_have_no_history() -> None:
    p = nn.Parameter(lucid.ones(3))
    (p**2).sum().backward(create_graph=True)
    gradient = p.grad
    lucid.optim.SGD([p]).zero_grad(set_to_none=False)
    assert p.grad is gradient
    assert gradient is not None
    assert (gradient.grad_fn, gradient.requires_grad) == (None, False)
    assert gradient.tolist() == [0.0, 0.0, 0.0]


def test_a_graph_that_saved_a_gradient_knows_that_it_was_clipped() -> None:
    p, w = nn.Parameter(lucid.ones(3)), lucid.ones(3, requires_grad=True)
    for _ in range(WARM_UP + 2):
        p.grad = lucid.arange(3.0)
        product = (p.grad * w).sum()
        nn.utils.clip_grad_value_([p], 1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()


def test_clipping_in_a_compiled_step_is_part_of_it() -> None:
    p = nn.Parameter(lucid.ones(3))

    @lucid.compile
    def step(limit: float) -> lucid.Tensor:
        p.grad = None
        (p * 3).sum().backward()
        total = nn.utils.clip_grad_norm_([p], limit)
        nn.utils.clip_grad_value_([p], 1.0)
        return total

    for limit in (1.0, 2.0, 3.0):
        assert step(limit).item() == pytest.approx(27**0.5)
        assert p.grad is not None
        assert p.grad[0].item() == pytest.approx(min(limit / 3**0.5, 1.0))
    assert step.stats.traces == 1


def test_threads_may_clip_at_the_same_time() -> None:
    def clip(number: int) -> None:
        for _ in range(50):
            p = nn.Parameter(lucid.ones(1000))
            p.grad = lucid.full((1000,), float(number))
            total = nn.utils.clip_grad_norm_([p], 1.0)
            sums.append(abs(total.item() - number * 1000**0.5) < 1e-2)
            sums.append(abs(p.grad.norm().item() - 1.0) < 1e-4)

    sums: list[bool] = []
    threads = [threading.Thread(target=clip, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sums) == 400
    assert all(sums)
