"""Arrays of other classes than NumPy's own, and of odd dtypes: what each entrance makes of them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.testing import assert_close
from lucid.utils.data import DataLoader, default_collate, default_convert


class Proud(np.ndarray):
    """A subclass that notes whatever is called of it."""

    called: list[str] = []  # noqa: RUF012
    __array_priority__ = 1e6

    def __array_finalize__(self, of: Any) -> None:
        Proud.called.append("__array_finalize__")

    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("__array_ufunc__")

    def __array_function__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("__array_function__")

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("__getitem__")


class Shown:
    """An object that NumPy makes an array of."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.array


def memmap(array: np.ndarray, folder: Path) -> np.ndarray:
    mapped = np.memmap(folder / "array", array.dtype, "w+", shape=array.shape)
    mapped[...] = array
    return mapped


SUBCLASSES: dict[str, Callable[[np.ndarray, Path], np.ndarray]] = {
    "an array": lambda a, _: a,
    "a matrix": lambda a, _: a.view(np.matrix),
    "a memmap": memmap,
    "a recarray": lambda a, _: a.view(np.recarray),
    "a masked array without masked elements": lambda a, _: np.ma.array(a, mask=np.zeros_like(a)),
    "a masked array without a mask": lambda a, _: np.ma.array(a),
    "a class of the user's": lambda a, _: a.view(Proud),
}
DTYPES = ("f2", "g", "c8", "O", "U1", "M8[D]", "m8[D]", "u2", "f4,i4")

X = lucid.tensor([[1.0, 2.0], [3.0, 4.0]])

# What each makes of an array of shape (2, 2), f32.
TAKES: dict[str, Callable[[Any], Any]] = {
    "from_numpy": lambda a: lucid.from_numpy(a) * 2,
    "tensor": lucid.tensor,
    "tensor with a dtype": lambda a: lucid.tensor(a, dtype=lucid.float64),
    "tensor of a list": lambda a: lucid.tensor([a, a]),
    "new_tensor": lambda a: X.new_tensor(a),
    "as_tensor": lambda a: lucid.as_tensor(a) * 2,
    "as_tensor with a dtype": lambda a: lucid.as_tensor(a, dtype=lucid.float64),
    "asarray": lambda a: lucid.asarray(a, copy=False) * 2,
    "from_dlpack": lambda a: lucid.from_dlpack(a) * 2,
    "__array__": lambda a: lucid.tensor(Shown(a)),
    "default_collate": lambda a: default_collate([a, a]),
    "default_convert": lambda a: default_convert({"a": a})["a"],
    "DataLoader": lambda a: next(iter(DataLoader([a, a], batch_size=2))),  # type: ignore[arg-type]
}
REFUSES: dict[str, Callable[[Any], Any]] = {
    "tensor + array": lambda a: X + a,
    "array + tensor": lambda a: a + X,
    "array * tensor": lambda a: a * X,
    "array @ tensor": lambda a: a @ X,
    "tensor == array": lambda a: operator.eq(X, a),
    "tensor != array": lambda a: operator.ne(X, a),
    "add_": lambda a: X.clone().add_(a),
    "where": lambda a: lucid.where(X > 2, a, X),
    "setitem": lambda a: operator.setitem(X.clone(), 0, a),
    "data": lambda a: setattr(X.clone(), "data", a),
    "out": lambda a: lucid.add(X, X, out=a),
    "Parameter": lambda a: nn.Parameter(a),
    "full": lambda a: lucid.full((2,), a),
}


def outcome(function: Callable[[Any], Any], given: Any, compiles: bool) -> Any:
    """What it makes of an array that it finds outside, twice; or the error's class and text."""
    Proud.called.clear()

    def step() -> Any:
        return function(given)

    call = lucid.compile(step) if compiles else step
    try:
        found = [call() for _ in range(2)]
    except lucid.LucidError as error:
        return type(error), str(error)
    assert not Proud.called
    return [(x.dtype, x.tolist(), type(x.detach().numpy())) for x in found]


def agreed(function: Callable[[Any], Any], given: Any) -> Any:
    eager, compiled = (outcome(function, given, compiles) for compiles in (False, True))
    assert eager == compiled
    return eager


@pytest.mark.parametrize("kind", SUBCLASSES)
@pytest.mark.parametrize("entrance", TAKES)
def test_an_array_of_any_class_is_taken_as_what_it_is_in_memory(
    entrance: str, kind: str, tmp_path: Path
) -> None:
    array = np.array([[1, 2], [3, 4]], np.float32)
    found = agreed(TAKES[entrance], SUBCLASSES[kind](array, tmp_path))
    assert found == agreed(TAKES[entrance], array)
    assert {type for *_, type in found} == {np.ndarray}


@pytest.mark.parametrize("entrance", TAKES)
def test_masked_elements_are_refused(entrance: str) -> None:
    array = np.ma.array([[1, 2], [3, 4]], np.float32, mask=[[0, 1], [1, 0]])
    kind, text = agreed(TAKES[entrance], array)
    assert kind is lucid.OptionError
    assert text.endswith(
        ": 2 of the 4 elements of a masked array are masked, and a tensor has no mask\n"
        "  array: float32[2, 2]\nhint: x.filled(value) puts a number in their places"
    )
    filled = array.filled(-1)
    assert agreed(TAKES[entrance], filled)[0][1] == TAKES[entrance](filled).tolist()


@pytest.mark.parametrize("kind", SUBCLASSES)
@pytest.mark.parametrize("entrance", REFUSES)
def test_no_operand_is_an_array_of_any_class(entrance: str, kind: str, tmp_path: Path) -> None:
    given = SUBCLASSES[kind](np.ones((2, 2), np.float32), tmp_path)
    found = agreed(REFUSES[entrance], given)
    assert found[0] is lucid.ArgumentError
    assert type(given).__name__ in found[1]


@pytest.mark.parametrize("kind", SUBCLASSES)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint16, np.bool_, np.dtype(">i4")])
def test_an_index_of_any_class_picks_the_same(dtype: Any, kind: str, tmp_path: Path) -> None:
    array = np.array([[1, 0], [0, 1]], dtype)
    given = SUBCLASSES[kind](array, tmp_path)
    y = lucid.arange(4.0).reshape(2, 2)
    functions: tuple[Callable[[Any], Any], ...] = (
        lambda a: y[a],
        lambda a: y[a,],
        lambda a: [z := y.clone(), operator.setitem(z, a, 9.0)][0],
    )
    for function in functions:
        assert agreed(function, given) == agreed(function, array)


def test_a_masked_index_is_refused() -> None:
    for index in (np.ma.array([0, 1], mask=[0, 1]), np.ma.array([True, False], mask=[0, 1])):
        kind, text = agreed(lambda a: X[a], index)
        assert kind is lucid.OptionError
        assert text.startswith("indexing: 1 of the 2 elements of a masked array are masked")
    for listed in ([np.ma.masked, 1], (0, [np.ma.array(1, mask=True), 0])):
        kind, text = agreed(lambda a: X[a], listed)
        assert issubclass(kind, (lucid.OptionError))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("entrance", TAKES)
def test_a_dtype_that_lucid_has_not_got_is_an_error_in_both_modes(
    entrance: str, dtype: str
) -> None:
    array = np.zeros((2, 2), dtype)
    if entrance == "default_convert" and array.dtype.kind in "UO":
        return  # texts and objects stay what they are
    found = agreed(TAKES[entrance], array)
    converts = "with a dtype" in entrance or entrance == "new_tensor"
    if converts and array.dtype.kind in "fu":
        assert found[0][1] == [[0, 0], [0, 0]]
    else:
        assert found[0] is lucid.DTypeError or "numbers, not" in found[1]


@pytest.mark.parametrize("number", [np.timedelta64(3, "s"), np.complex64(3), np.ma.masked])
def test_what_numpy_has_besides_real_numbers_is_no_operand(number: Any) -> None:
    for function in (lambda n: X + n, lambda n: n * X, lambda n: lucid.full((2,), n)):
        kind, text = agreed(function, number)
        assert kind is lucid.ArgumentError
        assert f"operands are tensors and Python numbers, not {type(number).__name__}" in text
    kind, text = agreed(lambda n: X[n], number)
    assert issubclass(kind, lucid.LucidError) and text.startswith("indexing: ")


@pytest.mark.parametrize("entrance", TAKES)
def test_bytes_in_the_other_order_are_copied_and_never_shared(entrance: str) -> None:
    array = np.array([[1, 2], [3, 4]], ">f4")
    found = agreed(TAKES[entrance], array)
    shares = entrance in ("from_numpy", "as_tensor", "asarray", "from_dlpack", "default_convert")
    if shares:
        assert found[0] is lucid.DTypeError
        assert "arrays of dtype >f4 are not supported" in found[1]
    else:
        assert found == agreed(TAKES[entrance], array.astype("f4"))


@pytest.mark.parametrize("kind", SUBCLASSES)
def test_a_tensor_on_an_array_of_any_class_shares_its_memory(
    kind: str, tmp_path: Path, prepared: Callable[..., Any]
) -> None:
    array = SUBCLASSES[kind](np.zeros((2, 2), np.float32), tmp_path)
    step = prepared(lambda: lucid.from_numpy(array).add_(1) * 2)
    assert [step().sum().item() for _ in range(2)] == [8, 16]
    assert np.asarray(array).tolist() == [[2, 2], [2, 2]]


# ---------------------------------------------------------------------- compiled steps


@pytest.mark.parametrize("nested", [False, True])
def test_arguments_of_all_classes_are_what_they_are(nested: bool, tmp_path: Path) -> None:
    @lucid.compile
    def step(a: Any) -> Any:
        return (lucid.tensor(a["a"] if nested else a) * 2).reshape(-1)

    array = np.array([[1, 2], [3, 4]], np.float32)
    for make in SUBCLASSES.values():
        given = make(array, tmp_path)
        Proud.called.clear()
        assert step({"a": given} if nested else given).tolist() == [2, 4, 6, 8]
        assert not Proud.called
        is_native = type(given) in (np.ndarray, np.memmap)
        assert is_native or type(given).__name__ in step.stats.eager_reasons[-1]
    assert step.stats.traces == 1


def test_a_step_writes_into_an_argument_of_any_class(tmp_path: Path) -> None:
    step = lucid.compile(lambda a: lucid.from_numpy(a).mul_(2).sum())
    for make in SUBCLASSES.values():
        given = make(np.ones((2, 2), np.float32), tmp_path)
        assert [step(given).item() for _ in range(2)] == [8, 16]
        assert np.asarray(given).tolist() == [[4, 4], [4, 4]]


@pytest.mark.parametrize("stance", ["default", "force_eager"])
def test_an_argument_that_can_be_no_tensor_is_refused_where_one_is_made(stance: str) -> None:
    step = lucid.compile(lambda batch, scale: lucid.from_numpy(batch["x"]) * scale)
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])
    with lucid.compiler.set_stance(stance):
        with pytest.raises(lucid.OptionError) as caught:
            step({"x": masked}, scale=2.0)
        assert str(caught.value) == (
            "from_numpy: 1 of the 3 elements of a masked array are masked, and a tensor has no "
            "mask\n  array: float64[3]\nhint: x.filled(value) puts a number in their places"
        )
        with pytest.raises(lucid.DTypeError, match="arrays of dtype >f8"):
            step({"x": np.zeros(3, ">f8")}, scale=2.0)
        assert step({"x": masked.filled(0)}, scale=2.0).tolist() == [2, 0, 6]


@pytest.mark.parametrize("size", [3, 100_000])
def test_elements_that_are_masked_between_calls_are_refused(
    size: int, prepared: Callable[..., Any]
) -> None:
    array = np.ma.array(np.ones(size), mask=np.zeros(size))
    step = prepared(lambda: lucid.from_numpy(array).sum())
    assert [step().item() for _ in range(2)] == [size, size]
    array[1] = np.ma.masked
    with pytest.raises(lucid.OptionError, match=f"1 of the {size} elements"):
        step()
    array.mask = np.ma.nomask
    assert step().item() == size


def test_a_mask_that_numpy_computes_with_is_watched(prepared: Callable[..., Any]) -> None:
    array = np.ma.array([1.0, 2.0, 4.0], mask=[0, 1, 1])
    step = prepared(lambda x: x * float(array.sum()))
    assert step(lucid.ones(2)).tolist() == [1, 1]
    array.mask = [0, 1, 0]
    assert step(lucid.ones(2)).tolist() == [5, 5]


def test_what_users_bind_to_an_array_of_their_class_is_watched(
    prepared: Callable[..., Any],
) -> None:
    class Scaled(np.ndarray):
        scale = 1.0

    array = np.ones(2, np.float32).view(Scaled)
    array.scale = 2.0
    step = prepared(lambda x: x * array.scale)
    assert step(lucid.ones(2)).tolist() == [2, 2]
    array.scale = 3.0
    assert step(lucid.ones(2)).tolist() == [3, 3]


def test_a_host_call_makes_tensors_of_what_numpy_gave_it(prepared: Callable[..., Any]) -> None:
    class Doubled(lucid.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.rows = x.numpy().view(np.matrix) * 2
            return lucid.from_numpy(ctx.rows)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * lucid.tensor(ctx.rows).sum()

    def body(x: Any) -> Any:
        y = Doubled.apply(x)
        (gradient,) = lucid.autograd.grad(y.sum(), x)
        return y.reshape(-1), gradient

    step = prepared(body)
    for scale in (1, 3):
        x = (lucid.ones(1, 2) * scale).requires_grad_()
        y, gradient = step(x)
        assert y.tolist() == [2 * scale] * 2
        assert gradient.tolist() == [[4 * scale] * 2]


# ---------------------------------------------------------------------- states


@pytest.mark.parametrize("kind", SUBCLASSES)
def test_states_are_loaded_from_arrays_of_any_class(kind: str, tmp_path: Path) -> None:
    weight = SUBCLASSES[kind](np.array([[1, 2]], np.float32), tmp_path)
    layer = nn.Linear(2, 1, bias=False)
    layer.load_state_dict({"weight": weight})
    assert_close(layer.weight, np.array([[1, 2]], np.float32))
    optimizer = lucid.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    layer(lucid.ones(1, 2)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    (entry,) = state["state"].values()
    key = next(key for key, value in entry.items() if isinstance(value, lucid.Tensor))
    entry[key] = weight
    optimizer.load_state_dict(state)
    (entry,) = optimizer.state_dict()["state"].values()
    assert_close(entry[key], np.array([[1, 2]], np.float32))


def test_a_masked_state_is_refused_by_its_name() -> None:
    layer = nn.Linear(2, 1, bias=False)
    before = layer.weight.detach().clone()
    with pytest.raises(lucid.OptionError, match=r'^load_state_dict: "weight": 1 of the 2 elements'):
        layer.load_state_dict({"weight": np.ma.array([[1.0, 2.0]], mask=[[0, 1]])})
    assert_close(layer.weight, before)


# An array that is the user's ------------------------------------------------------------------


def _as_integers(array: np.ndarray) -> None:
    array.dtype = np.int32


def _as_columns(array: np.ndarray) -> None:
    array.shape = (3, 2)


def _read_only(array: np.ndarray) -> None:
    array.flags.writeable = False


@pytest.mark.parametrize("change", [_as_integers, _as_columns, _read_only])
@pytest.mark.parametrize("entrance", [lucid.from_numpy, lucid.as_tensor, lucid.from_dlpack, "out"])
def test_what_users_set_of_their_array_is_not_set_of_the_tensor_on_its_memory(
    change: Callable[[np.ndarray], None], entrance: Any
) -> None:
    step = lucid.compile(lambda x: 2 * x)
    array = np.ones((2, 3), np.float32)
    if entrance == "out":
        x = lucid.ones(2, 3)
        array = x.numpy()
    else:
        x = entrance(array)
    step(x)
    change(array)
    x[0, 0] = 5.0
    expected = np.array([[5, 1, 1], [1, 1, 1]], np.float32)
    assert_close(x, expected)
    assert_close(2 * x, 2 * expected)
    assert_close(step(x), 2 * expected)
    assert array.view(np.float32).flat[0] == 5.0
    assert step.stats.traces == 1
