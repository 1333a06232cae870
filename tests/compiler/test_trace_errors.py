"""What can't be compiled says so in the user's terms: each message word for word."""

from __future__ import annotations

import ctypes
import functools
import inspect
import itertools
import math

import numpy as np
import pytest

import lucid


def error_of(function, *args):
    """The message, with this file's line numbers relative to the function."""
    with pytest.raises(lucid.TraceError) as error:
        lucid.compile(function)(*args)
    return relative(str(error.value), function)


def reason_of(function, *args):
    """Why a call runs op by op, in the same form."""
    step = lucid.compile(function)
    step(*args)
    (reason,) = step.stats.eager_reasons
    return relative(reason, function)


def relative(text, function):
    first = inspect.getsourcelines(function)[1]
    for offset in range(20):
        text = text.replace(f"test_trace_errors.py:{first + offset} ", f"+{offset} ")
    return text


def test_looking_at_digits_runs_op_by_op():
    step = lucid.compile(lambda x: math.ulp(x))
    x = lucid.full((), 4.0)
    assert step(x) == math.ulp(4.0)
    reason, place, hint = step.stats.eager_reasons[0].split("\n")
    assert reason.startswith("it looks at the data of f32[]") and reason.endswith("by float()")
    assert "test_trace_errors.py" in place and hint.startswith("hint: return the tensor")


@pytest.mark.parametrize("look", [np.asarray, np.from_dlpack, lambda x: x.numpy().T])
def test_memory_of_an_argument_is_given_op_by_op(look):
    step = lucid.compile(lambda x: look(x))
    x = lucid.full((2, 3), 4.0)
    assert np.shares_memory(np.asarray(step(x)), x.numpy())
    assert "on memory from outside" in step.stats.eager_reasons[0]


def test_a_list_that_gets_longer_by_a_function_that_is_kept():
    kept = []
    keep = functools.partial(list.append, kept)

    @lucid.compile
    def step(x):
        keep(x * 2)
        return x

    for _ in range(3):
        step(lucid.ones(2))
    assert [x.tolist() for x in kept] == [[2.0, 2.0]] * 3 and step.stats.traces == 1


class Holder:
    last = None

    def __init__(self):
        self.count = 0


holder = Holder()


class Box(map):
    """An iterator: what it has given by now is not in its attributes alone."""

    def __new__(cls, content):
        return super().__new__(cls, str, ())

    def __init__(self, content):
        self.content = content


def keep_in_attribute(x):
    holder.last = Box(x * 2)
    return x.sum()


def test_an_object_of_the_step_kept_in_an_attribute():
    assert reason_of(keep_in_attribute, lucid.ones(2)) == (
        "it keeps in holder.last an object of Box that it made, a Box, which no call can make "
        "again\n"
        "  at +1   holder.last = Box(x * 2)"
    )
    assert holder.last.content.tolist() == [2, 2]
    holder.last = None


def keep_array(x):
    holder.newest = {"mean": np.ones(3)}
    return x.sum()


def test_an_array_of_the_step_kept_in_a_new_attribute():
    step = lucid.compile(keep_array)
    kept = [(step(lucid.ones(2)), holder.newest["mean"])[1] for _ in range(3)]
    del holder.newest
    assert not step.stats.eager_reasons and len({id(array) for array in kept}) == 3
    assert [array.tolist() for array in kept] == [[1, 1, 1]] * 3


def hidden_in(kept):
    """What puts things in a list so that a trace doesn't see it."""
    append = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object)(
        ("PyList_Append", ctypes.pythonapi)
    )
    return functools.partial(append, id(kept))


def test_an_argument_that_escapes():
    kept = []
    hide = hidden_in(kept)

    def step(x):
        hide(x)
        return x * 2

    assert error_of(step, lucid.ones(2)).startswith(
        "a traced tensor escaped from the compiled function, kept in a list, an attribute or a "
    )


def test_an_argument_that_is_kept_in_a_list_of_the_users_class():
    class Keeper(list):
        """A list with a name of its own."""

    kept = Keeper()

    @lucid.compile
    def step(x):
        kept.append(x)
        return x * 2

    given = [lucid.ones(2), lucid.zeros(2)]
    for x in given:
        step(x)
    assert all(a is b for a, b in zip(kept, given, strict=True)) and step.stats.traces == 1


def test_an_array_of_a_dtype_that_lucid_has_not_got_that_the_step_changes():
    counts = np.zeros(2, np.float16)

    def step(x):
        counts[0] += 1
        return x

    assert reason_of(step, lucid.ones(2)) == (
        "it changes counts, an array of NumPy's\n"
        "  at +1   counts[0] += 1\n"
        "hint: keep it in a tensor and write that in place (self.n[0] += 1), or change it outside "
        "of the compiled function"
    )
    assert counts.tolist() == [1.0, 0.0]


def counting(stop):
    number = 0
    while number < stop:
        number += 1
        yield number


def through(items):
    while True:
        yield from items


@pytest.mark.parametrize(
    "make",
    [
        lambda: iter({1: 0, 2: 0, 3: 0, 4: 0}),
        lambda: counting(4),
        lambda: through(counting(4)),
        lambda: enumerate("abcd", 1),
        lambda: zip([1, 2, 3, 4], "abcd", strict=False),
        lambda: map(int, [1, 2, 3, 4]),
        lambda: itertools.chain([1, 2], [3, 4]),
        lambda: itertools.islice(counting(9), 4),
        lambda: itertools.cycle([1, 2]),
    ],
)
@pytest.mark.parametrize("advanced", [0, 1, 2])
def test_an_iterator_that_a_step_advances(make, advanced):
    items = make()
    for _ in range(advanced):
        next(items)

    def step(x):
        next(items)
        return x

    assert reason_of(step, lucid.ones(1)) == (
        f"it advances items, a {type(items).__name__}\n"
        "  at +1   next(items)\n"
        "hint: take the item outside of the compiled function, and pass it as an argument"
    )
    expected = make()
    for _ in range(advanced + 1):
        next(expected)
    assert next(items) == next(expected)


def test_iterators_that_a_step_leaves_alone_or_has_made_are_no_reason_to_refuse_it():
    items, numbers = counting(9), iter([1, 2, 3])

    @lucid.compile
    def step(x):
        for scale in counting(2):
            x = x * scale + next(iter([scale]))
        return x if items is not None and numbers is not None else -x

    for number in (1, 2, 3):
        assert step(lucid.ones(1)).tolist() == [6.0]
        assert next(items) == next(numbers) == number
    assert step.stats.traces == 1


def test_iterators_that_a_host_call_advances_are_no_reason_to_refuse_a_step():
    items = itertools.count()

    class Shifted(lucid.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return lucid.from_numpy(x.numpy() + next(items) * 0)

    @lucid.compile
    def step(x):
        return Shifted.apply(x) if items is not None else x

    assert [step(lucid.ones(1)).tolist() for _ in range(3)] == [[1.0]] * 3


def lazily(x):
    return (x * i for i in range(3))


def test_a_lazy_result():
    step = lucid.compile(lazily)
    assert [[y.tolist() for y in step(lucid.ones(2))] for _ in range(2)] == [
        [[0, 0], [1, 1], [2, 2]]
    ] * 2
    assert step.stats.eager_reasons[0].startswith("it returns an object of generator that it made")


def test_a_tensor_of_the_step_prints_as_in_eager_mode(capsys):
    def body(x):
        y = x.reshape(3, 2) * 2
        print(x, y)
        return f"{y}"

    x = lucid.ones(2, 3)
    expected, shown = body(x), capsys.readouterr().out
    assert lucid.compile(body)(x) == expected
    assert capsys.readouterr().out == shown


def test_a_tensor_of_an_old_trace_says_so():
    kept = []
    hide = hidden_in(kept)

    def step(x):
        hide(x * 2)
        return x

    with pytest.raises(lucid.TraceError):
        lucid.compile(step)(lucid.ones(2))
    with pytest.raises(lucid.TraceError, match="this tensor belongs to a"):
        kept[-1] + 1


def test_options_of_compile():
    with pytest.raises(lucid.ArgumentError) as error:
        lucid.compile(abs, fast=True)
    assert str(error.value).startswith(
        "compile: got an unexpected keyword argument 'fast'\nhint: it"
    )
    with pytest.raises(lucid.OptionError) as error:
        lucid.compile(abs, mode="quick")
    assert (
        str(error.value)
        == "compile: mode must be one of 'native', 'eager', 'interpret', not 'quick'"
    )
    with pytest.raises(lucid.ArgumentError) as error:
        lucid.compile(3)
    assert str(error.value).startswith("compile: int is not callable\nhint: ")
    with pytest.raises(lucid.LucidError) as error:
        lucid.compile(abs).dump_ir()
    assert str(error.value) == "abs has not been called yet, so nothing is compiled"


class Kept:
    def __init__(self):
        self.table, self.rows, self.box = {}, [1], None

    def by_key(self, x):
        self.table["other"] = x
        self.table["made"] = Box(x)

    def by_number(self, x):
        self.rows[0] = Box(x)

    def by_method(self, x):
        self.table.update(made=Box(x))

    def on_one_of_two_lines(self, x):
        if x.ndim:
            self.box = Box(x)
        else:
            self.box = Box(x + 1)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("by_key", '  at +2   self.table["made"] = Box(x)\n'),
        ("by_number", "  at +1   self.rows[0] = Box(x)\n"),
        ("by_method", "  at +1   self.table.update(made=Box(x))\n"),
        ("on_one_of_two_lines", "  at +2   self.box = Box(x)\n"),
    ],
)
def test_errors_about_places_have_the_lines_that_bind_them(name, lines):
    reason = reason_of(getattr(Kept(), name), lucid.ones(2))
    assert f"{reason}\n".endswith(f"which no call can make again\n{lines}")


def test_names_of_evaluated_code_are_not_kept() -> None:
    step = lucid.compile(lambda x: eval("doubled + 1", {"doubled": x * 2}))
    assert step(lucid.tensor([1.0, 2.0])).tolist() == [3.0, 5.0]


class Closing:
    def __init__(self, told):
        self.told = told

    def __del__(self):
        self.told.append(1)


def test_an_object_that_tells_when_it_is_gone():
    told = []

    def step(x):
        Closing(told)
        return x * len(told)

    assert reason_of(step, lucid.ones(1)) == (
        "it makes a Closing, whose __del__ runs when Python likes\n  at +1   Closing(told)"
    )


class Sharing:
    def __init__(self, attributes):
        self.__dict__ = attributes


def test_an_object_that_is_kept_with_the_attributes_of_others():
    kept, shared = [], {"scale": 1.0}

    @lucid.compile
    def step(x):
        kept.append(Sharing(shared))
        return x * kept[-1].scale

    for _ in range(3):
        assert step(lucid.ones(1)).item() == shared["scale"]
        kept[-1].scale += 1.0
    assert shared == {"scale": 4.0}
    assert set(step.stats.eager_reasons) == {
        "it makes and returns or keeps a Sharing, whose __dict__ was there before"
    }
