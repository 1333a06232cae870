"""What a new user gets wrong first: the message says what to do, and the traceback is theirs.

`golden/mistakes.txt` has the messages, word for word, of both modes; `--update-golden` writes what
eager mode says: then read the diff.
"""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.ir.location import LIBRARY

GOLDEN = Path(__file__).parent / "golden" / "mistakes.txt"
MISTAKES: dict[str, Callable[[], Callable[[], Any]]] = {}


def mistake(make: Callable[[], Callable[[], Any]]) -> Callable[[], Callable[[], Any]]:
    MISTAKES[make.__name__] = make
    return make


class Doubled(lucid.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: lucid.Tensor) -> lucid.Tensor:
        return grad.mul_(2)


class Misspelt(Doubled):
    @staticmethod
    def backward(ctx: Any, grad: lucid.Tensor) -> lucid.Tensor:
        return grad.doubled()


class Unregistered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(3, 3), nn.Linear(3, 3)]


class WithoutInit(nn.Module):
    def __init__(self) -> None:
        self.layer = nn.Linear(2, 2)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return x + self.inner(x)


# ---------------------------------------------------------------------- dtypes and types


@mistake
def numpys_doubles_into_a_layer() -> Callable[[], Any]:
    net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    x = lucid.from_numpy(np.ones((4, 3)))
    return lambda: net(x)


@mistake
def doubles_into_a_block_of_a_stack() -> Callable[[], Any]:
    net = nn.Sequential(nn.Identity(), Block())
    x = lucid.ones(4, 3).double()
    return lambda: net(x)


@mistake
def an_array_into_a_layer() -> Callable[[], Any]:
    layer = nn.Linear(3, 2)
    return lambda: layer(np.ones((4, 3), np.float32))


@mistake
def values_and_indices_into_a_function() -> Callable[[], Any]:
    x = lucid.ones(3, 4)
    return lambda: F.relu(x.max(1))


@mistake
def a_text_as_data() -> Callable[[], Any]:
    return lambda: lucid.tensor("a")


@mistake
def a_list_plus_a_tensor() -> Callable[[], Any]:
    return lambda: lucid.ones(2) + [1.0, 2.0]


@mistake
def int32_targets() -> Callable[[], Any]:
    x, target = lucid.ones(2, 3), lucid.zeros(2, dtype=lucid.int32)
    return lambda: F.cross_entropy(x, target)


@mistake
def int64_targets_of_a_binary_loss() -> Callable[[], Any]:
    x, target = lucid.full((2,), 0.5), lucid.zeros(2, dtype=lucid.int64)
    return lambda: F.binary_cross_entropy(x, target)


@mistake
def int64_targets_of_logits() -> Callable[[], Any]:
    x, target = lucid.ones(2), lucid.zeros(2, dtype=lucid.int64)
    return lambda: F.binary_cross_entropy_with_logits(x, target)


@mistake
def floats_into_an_embedding() -> Callable[[], Any]:
    table = nn.Embedding(10, 4)
    return lambda: table(lucid.ones(3))


# ---------------------------------------------------------------------- shapes


@mistake
def matrices_that_dont_fit() -> Callable[[], Any]:
    a, b = lucid.ones(3, 4), lucid.ones(5, 6)
    return lambda: a @ b


@mistake
def shapes_that_dont_broadcast() -> Callable[[], Any]:
    a, b = lucid.ones(3, 4), lucid.ones(5)
    return lambda: a + b


@mistake
def no_flatten_before_a_layer() -> Callable[[], Any]:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Linear(144, 2))
    return lambda: net(lucid.ones(2, 1, 8, 8))


@mistake
def channels_that_dont_fit() -> Callable[[], Any]:
    conv = nn.Conv2d(3, 8, 3)
    return lambda: conv(lucid.ones(1, 1, 8, 8))


@mistake
def a_batch_norm_of_other_rank() -> Callable[[], Any]:
    norm = nn.BatchNorm2d(3)
    return lambda: norm(lucid.ones(2, 3))


@mistake
def targets_of_another_batch() -> Callable[[], Any]:
    x, target = lucid.ones(4, 3), lucid.zeros(5, dtype=lucid.int64)
    return lambda: F.cross_entropy(x, target)


@mistake
def a_class_too_many() -> Callable[[], Any]:
    x, target = lucid.ones(4, 3), lucid.full((4,), 3, dtype=lucid.int64)
    return lambda: F.cross_entropy(x, target)


@mistake
def a_view_of_a_transpose() -> Callable[[], Any]:
    x = lucid.ones(3, 4).t()
    return lambda: x.view(12)


# ---------------------------------------------------------------------- options


@mistake
def keras_learning_rate() -> Callable[[], Any]:
    layer = nn.Linear(2, 2)
    return lambda: lucid.optim.Adam(layer.parameters(), learning_rate=1e-3)  # type: ignore[call-arg]


@mistake
def keras_use_bias() -> Callable[[], Any]:
    return lambda: nn.Linear(2, 2, use_bias=False)  # type: ignore[call-arg]


@mistake
def numpys_axis_misspelt() -> Callable[[], Any]:
    x = lucid.ones(2, 3)
    return lambda: F.softmax(x, dims=1)  # type: ignore[call-arg]


@mistake
def an_optimizer_of_nothing() -> Callable[[], Any]:
    net = Unregistered()
    return lambda: lucid.optim.SGD(net.parameters(), lr=0.1)


@mistake
def a_module_without_super_init() -> Callable[[], Any]:
    return lambda: WithoutInit()


@mistake
def a_probability_above_one() -> Callable[[], Any]:
    return lambda: F.dropout(lucid.ones(3), p=1.5)


@mistake
def an_unknown_reduction() -> Callable[[], Any]:
    return lambda: F.mse_loss(lucid.ones(3), lucid.ones(3), reduction="avg")


@mistake
def another_models_state() -> Callable[[], Any]:
    one, other = nn.Linear(2, 3), nn.Linear(2, 4)
    return lambda: one.load_state_dict(other.state_dict())


# ---------------------------------------------------------------------- gradients


@mistake
def backward_of_what_needs_no_gradient() -> Callable[[], Any]:
    x = lucid.ones(3)
    return lambda: x.sum().backward()


@mistake
def backward_of_a_vector() -> Callable[[], Any]:
    x = lucid.ones(3, requires_grad=True)
    return lambda: (x * 2).backward()


@mistake
def backward_twice() -> Callable[[], Any]:
    x = lucid.ones(3, requires_grad=True)

    def step() -> None:
        loss = (x * x).sum()
        loss.backward()
        loss.backward()

    return step


@mistake
def a_leaf_in_place() -> Callable[[], Any]:
    w = lucid.ones(3, requires_grad=True)
    return lambda: w.add_(1)


@mistake
def a_part_of_a_leaf_in_place() -> Callable[[], Any]:
    w = lucid.ones(3, requires_grad=True)

    def step() -> None:
        w[0] = 3.0

    return step


@mistake
def a_gradient_in_place() -> Callable[[], Any]:
    x = lucid.ones(3, requires_grad=True)
    return lambda: Doubled.apply(x).sum().backward()


@mistake
def an_error_of_the_users_backward() -> Callable[[], Any]:
    x = lucid.ones(3, requires_grad=True)
    return lambda: Misspelt.apply(x).sum().backward()


@mistake
def an_error_of_the_users_backward_in_grad() -> Callable[[], Any]:
    x = lucid.ones(3, requires_grad=True)
    return lambda: lucid.autograd.grad(Misspelt.apply(x).sum(), x)


@mistake
def numpy_of_what_needs_a_gradient() -> Callable[[], Any]:
    x = lucid.ones(3, requires_grad=True)
    return lambda: (x * 2).numpy()


# ---------------------------------------------------------------------- they are as they should be


def error_of(call: Callable[[], Any]) -> Exception:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


def text_of(error: Exception) -> str:
    """Its class and its message, without the numbers of lines in this file."""
    kind = type(error).__module__.partition(".")[0] + "." + type(error).__qualname__
    return re.sub(r"(test_mistakes\.py):\d+", r"\1", f"{kind.removeprefix('builtins.')}: {error}")


def golden() -> dict[str, str]:
    sections = GOLDEN.read_text(encoding="utf-8").split("\n== ")
    return dict(section.removeprefix("== ").rstrip("\n").split("\n", 1) for section in sections)


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("name", MISTAKES)
def test_the_message_says_what_to_do(name: str, mode: str) -> None:
    call = MISTAKES[name]()
    error = error_of(call if mode == "eager" else lucid.compile(call))
    assert text_of(error) == golden()[name]


def test_the_messages_stand_in_the_file(update_golden: bool) -> None:
    if update_golden:
        texts = [f"== {name}\n{text_of(error_of(make()))}\n" for name, make in MISTAKES.items()]
        GOLDEN.write_text("\n".join(texts), encoding="utf-8")
    assert golden().keys() == MISTAKES.keys()


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("name", MISTAKES)
def test_the_traceback_is_the_users(name: str, mode: str) -> None:
    call = MISTAKES[name]()
    error = error_of(call if mode == "eager" else lucid.compile(call))
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    assert files
    assert not any(file.startswith(LIBRARY) for file in files)
    assert "another exception" not in "".join(traceback.format_exception(error))
    assert "direct cause" not in "".join(traceback.format_exception(error))


def test_all_frames_are_shown_to_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCID_TRACEBACK", "full")
    error = error_of(MISTAKES["shapes_that_dont_broadcast"]())
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    assert any(file.startswith(LIBRARY) for file in files)


def test_an_error_within_the_library_keeps_its_frames_until_it_leaves() -> None:
    """The user's lines between the library's stay, in their order."""

    def outer(x: lucid.Tensor) -> lucid.Tensor:
        return lucid.func.vmap(inner)(x)

    def inner(x: lucid.Tensor) -> lucid.Tensor:
        return x @ lucid.ones(5)

    error = error_of(lambda: outer(lucid.ones(2, 3)))
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names[-2:] == ["outer", "inner"]


# ---------------------------------------------------------------------- warnings


def test_a_schedule_that_steps_first_is_warned_of() -> None:
    opt = lucid.optim.SGD([lucid.ones(2, requires_grad=True)], lr=1.0)
    schedule = lucid.optim.lr_scheduler.StepLR(opt, 1)
    with pytest.warns(UserWarning, match=r"before `optimizer.step\(\)`(.|\n)*call opt.step\(\) f"):
        schedule.step()


def test_a_schedule_that_steps_after_the_optimizer_is_not() -> None:
    opt = lucid.optim.SGD([lucid.ones(2, requires_grad=True)], lr=1.0)
    schedule = lucid.optim.lr_scheduler.StepLR(opt, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opt.step()
        schedule.step()


def test_the_gradient_of_what_is_no_leaf_is_warned_of() -> None:
    x = lucid.ones(2, requires_grad=True)
    y = x * 2
    y.sum().backward()
    with pytest.warns(UserWarning, match=r"not a leaf(.|\n)*y = x \* 2(.|\n)*retain_grad\(\)"):
        assert y.grad is None


def test_kept_gradients_and_those_of_leaves_are_not() -> None:
    x = lucid.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert x.grad is None
        assert y.grad is None


class OnTheHost(Doubled):
    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> Any:
        return np.sin(x.detach().numpy())


def test_an_array_from_a_forward_is_warned_of() -> None:
    x = lucid.ones(3, requires_grad=True)
    with pytest.warns(UserWarning, match=r"OnTheHost.forward returned an ndarray(.|\n)*from_numpy"):
        OnTheHost.apply(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OnTheHost.apply(x.detach())
