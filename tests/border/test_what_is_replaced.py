"""A function, a class or a part of one is replaced: the next call runs the new one."""

from __future__ import annotations

import abc
import builtins
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import io
import itertools
import math
import operator
import os
import types
from unittest import mock

import numpy as np
import pytest
from border.harness import X, calls, same_as_eager

import lucid
from lucid import nn
from lucid.nn import functional as F


class Holder:
    def __init__(self, **fields):
        self.__dict__.update(fields)


def doubled(x):
    return x * 2


def tripled(x):
    return x * 3


# ------------------------------------------------------------------ functions


@same_as_eager
def test_a_function_of_an_object(compile):
    holder = Holder(f=doubled)
    step = compile(lambda x: holder.f(x))
    return calls(step, lambda: setattr(holder, "f", tripled))


@same_as_eager
def test_a_function_of_the_module(compile):
    names = {"f": doubled, "__builtins__": __builtins__}
    exec("def step(x):\n    return f(x)\n", names)
    step = compile(names["step"])
    return calls(step, lambda: names.update(f=tripled))


@same_as_eager
def test_a_function_in_a_list_and_a_dict(compile):
    chain, table = [doubled], {"loss": doubled}
    step = compile(lambda x: table["loss"](chain[0](x)))
    return calls(
        step, lambda: chain.__setitem__(0, tripled), lambda: table.update(loss=lambda x: x + 9)
    )


@same_as_eager
def test_the_code_of_a_function(compile):
    def f(x):
        return x * 2

    step = compile(lambda x: f(x))
    return calls(step, lambda: setattr(f, "__code__", (lambda x: x * 5).__code__))


@same_as_eager
def test_the_code_of_the_compiled_function_itself(compile):
    def f(x):
        return x * 2

    step = compile(f)
    return calls(step, lambda: setattr(f, "__code__", (lambda x: x * 5).__code__))


@same_as_eager
def test_defaults(compile):
    def f(x, k=1.0, *, shift=0.0):
        return x * k + shift

    step = compile(lambda x: f(x))
    return calls(
        step,
        lambda: setattr(f, "__defaults__", (5.0,)),
        lambda: f.__kwdefaults__.update(shift=2.0),
        lambda: setattr(f, "__kwdefaults__", {"shift": 7.0}),
    )


@same_as_eager
def test_defaults_of_classes_that_python_writes(compile):
    Point = collections.namedtuple("Point", "a k", defaults=(1.0,))

    @dataclasses.dataclass
    class Scale:
        by: float = 2.0

    step = compile(lambda x: x * Point(2).k + Scale().by)
    return calls(
        step,
        lambda: setattr(Point.__new__, "__defaults__", (5.0,)),
        lambda: setattr(Scale.__init__, "__defaults__", (7.0,)),
    )


@same_as_eager
def test_a_default_that_is_a_list(compile):
    def f(x, weights=[1.0]):  # noqa: B006 - what is tested
        return x * weights[0]

    step = compile(lambda x: f(x))
    return calls(step, lambda: f.__defaults__[0].__setitem__(0, 4.0))


@same_as_eager
def test_the_cell_of_a_closure(compile):
    def make(k):
        return lambda x: x * k

    f = make(1.0)
    step = compile(lambda x: f(x))
    return calls(step, lambda: setattr(f.__closure__[0], "cell_contents", 3.0))


@same_as_eager
def test_the_function_of_a_method(compile):
    class Model:
        def f(self, x):
            return x * 2

    model = Model()
    step = compile(lambda x: model.f(x))
    return calls(
        step,
        lambda: setattr(model, "f", types.MethodType(lambda self, x: x * 3, model)),
        lambda: delattr(model, "f") or setattr(Model, "f", lambda self, x: x * 4),
    )


@same_as_eager
def test_a_static_a_class_method_and_a_property(compile):
    class Model:
        @staticmethod
        def scale():
            return 1.0

        @classmethod
        def shift(cls):
            return 0.5

        @property
        def power(self):
            return 1.0

    model = Model()
    step = compile(lambda x: x**model.power * model.scale() + model.shift())
    return calls(
        step,
        lambda: setattr(Model, "scale", staticmethod(lambda: 2.0)),
        lambda: setattr(Model, "shift", classmethod(lambda cls: 3.0)),
        lambda: setattr(Model, "power", property(lambda self: 2.0)),
    )


@same_as_eager
def test_an_operator_of_a_class(compile):
    class Scale:
        def __rmul__(self, x):
            return x + 1

        def __call__(self, x):
            return x + 2

        def __getitem__(self, i):
            return 1.0

    scale = Scale()
    step = compile(lambda x: scale(x) + (x * scale) * scale[0])
    return calls(
        step,
        lambda: setattr(Scale, "__call__", lambda self, x: x * 5),
        lambda: setattr(Scale, "__rmul__", lambda self, x: x * 7),
        lambda: setattr(Scale, "__getitem__", lambda self, i: 9.0),
    )


@same_as_eager
def test_a_registration_of_singledispatch(compile):
    @functools.singledispatch
    def scaled(thing, x):
        return x

    class Base:
        pass

    class Derived(Base):
        pass

    thing = Derived()
    step = compile(lambda x: scaled(thing, x))
    return calls(
        step,
        lambda: scaled.register(Base)(lambda thing, x: x * 2),
        lambda: scaled.register(Derived)(lambda thing, x: x * 3),
    )


@same_as_eager
def test_a_registration_with_an_abstract_class_of_singledispatch(compile):
    class Abstract(abc.ABC):
        @abc.abstractmethod
        def run(self): ...

    class Thing:
        pass

    thing = Thing()
    scaled = functools.singledispatch(lambda thing, x: x)
    scaled.register(Abstract)(lambda thing, x: x * 2)
    step = compile(lambda x: scaled(thing, x))
    return calls(step, lambda: Abstract.register(Thing))


@same_as_eager
def test_a_registration_of_a_singledispatchmethod(compile):
    class Loss:
        @functools.singledispatchmethod
        def of(self, k, x):
            return x

    loss = Loss()
    step = compile(lambda x: loss.of(3, x))
    return calls(step, lambda: Loss.__dict__["of"].register(int)(lambda self, k, x: x * k))


@same_as_eager
def test_the_parts_of_a_partial(compile):
    f = functools.partial(lambda x, k=1.0: x * k, k=2.0)
    step = compile(lambda x: f(x))
    return calls(
        step,
        lambda: f.keywords.update(k=3.0),
        lambda: f.__setstate__((lambda x, k: x + k, (), {"k": 9.0}, {})),
    )


@same_as_eager
def test_a_function_that_is_mocked(compile):
    step = compile(lambda x: F.relu(x - 2) * math.sqrt(4.0))
    results = [step(X), step(X)]
    with mock.patch.object(F, "relu", lambda x: x + 1):
        results += [step(X), step(X)]
    results += [step(X)]
    with mock.patch.object(math, "sqrt", lambda x: 9.0):
        results += [step(X), step(X)]
    return [*results, step(X)]


@same_as_eager(or_said=True)
def test_a_method_by_a_mock(compile):
    """It makes a mock for each attribute that it is asked for: what has none isn't asked."""
    holder = Holder(rate=lambda: 2.0)
    step = compile(lambda x: x * holder.rate())
    results = [step(X), step(X)]
    with mock.patch.object(holder, "rate", return_value=5.0) as made:
        results += [step(X), step(X)]
    return [*results, step(X), lucid.tensor(made.call_count)]


@same_as_eager
def test_a_function_of_lucid_that_is_patched(compile):
    step = compile(lambda x: lucid.tanh(x))
    results = [step(X), step(X)]
    with mock.patch.object(lucid, "tanh", lambda x: x * 4):
        results += [step(X), step(X)]
    return [*results, step(X)]


@same_as_eager
def test_a_method_of_the_users_that_all_tensors_have(compile):
    methods = [lambda x, by: x * by, lambda x, by: x - by]
    step = compile(lambda x: x.scaled(3) + 1)
    lucid.Tensor.scaled = methods[0]
    try:
        return calls(step, lambda: setattr(lucid.Tensor, "scaled", methods[1]))
    finally:
        del lucid.Tensor.scaled


@same_as_eager
def test_a_method_of_tensors_that_is_patched(compile):
    step = compile(lambda x: x.relu() * (2 if hasattr(x, "unheard_of") else 1))
    results = [step(X), step(X)]
    with mock.patch.object(lucid.Tensor, "relu", lambda self: self * 7):
        results += [step(X), step(X)]
    with mock.patch.object(lucid.Tensor, "unheard_of", None, create=True):
        results += [step(X), step(X)]
    return [*results, step(X)]


@same_as_eager
def test_a_print_of_the_users_own(compile):
    """As programs on several machines do, of which one speaks."""
    heard, speaks, built_in = io.StringIO(), [True], builtins.print

    def own(*values, force=False):
        if force or speaks[0]:
            built_in("[rank 0]", *values, file=heard)

    step = compile(lambda x: (print("sum", x.sum().item()), x)[1])
    forced = compile(lambda x: (print("most", x.max().item(), force=True), x)[1])
    with mock.patch.object(builtins, "print", own):
        results = [step(X), forced(X), step(X), forced(X)]
        speaks[0] = False
        results += [step(X), forced(X)]
    with contextlib.redirect_stdout(heard):
        results += [step(X), step(X)]
    return [*results, heard.getvalue()]


@same_as_eager
def test_an_array_by_one_that_is_equal(compile):
    """It is another array, which the step may write, or keep."""
    state = types.SimpleNamespace(read=np.ones(3), written=np.zeros(3))
    kept, before = [], []

    def step(x):
        state.written[0] += 1
        kept.append(state.read)
        return x * state.read[0], state.written[0]

    def copy(name):
        before.append(getattr(state, name))
        setattr(state, name, before[-1].copy())

    results = calls(
        compile(step),
        lambda: copy("written"),
        lambda: copy("read"),
        lambda: state.read.__setitem__(0, 5.0),
    )
    is_there = [x is state.read for x in kept]
    return results, is_there, [x.tolist() for x in before], state.written.tolist()


@same_as_eager(or_said=True)
def test_how_an_array_lies_in_memory(compile):
    state = types.SimpleNamespace(a=np.ones((2, 3)))
    step = compile(lambda x: x * state.a.strides[0])
    return calls(step, lambda: setattr(state, "a", np.asfortranarray(state.a)))


@same_as_eager
def test_a_function_of_numpy_that_is_patched(compile):
    step = compile(lambda x: x * float(np.sum([1.0, 2.0])))
    results = [step(X), step(X)]
    with mock.patch.object(np, "sum", lambda values: 9.0):
        results += [step(X), step(X)]
    return [*results, step(X)]


@same_as_eager
def test_a_wrapped_function(compile):
    @functools.wraps(doubled)
    def wrapper(x):
        return wrapper.__wrapped__(x)

    step = compile(lambda x: wrapper(x))
    return calls(step, lambda: setattr(wrapper, "__wrapped__", tripled))


# ------------------------------------------------------------------ classes


@same_as_eager
def test_the_class_of_an_object(compile):
    class A:
        k = 1.0

    class B(A):
        k = 2.0

    thing = A()
    step = compile(lambda x: x * thing.k)
    return calls(step, lambda: setattr(thing, "__class__", B))


@same_as_eager
def test_the_class_of_a_python_module(compile):
    class Computing(types.ModuleType):
        @property
        def scale(self):
            return 7.0

    settings = types.ModuleType("settings")
    settings.scale = 2.0
    step = compile(lambda x: x * settings.scale)
    return calls(step, lambda: setattr(settings, "__class__", Computing))


@same_as_eager
def test_the_class_of_a_module(compile):
    class Identity(nn.Linear):
        def forward(self, x):
            return x

    net = nn.Sequential(nn.Linear(3, 3))
    step = compile(lambda x: net(x))
    return calls(step, lambda: setattr(net[0], "__class__", Identity))


@same_as_eager
def test_the_bases_of_a_class(compile):
    class A:
        k = 1.0

    class B:
        k = 4.0

    class C(A):
        pass

    thing = C()
    step = compile(lambda x: x * thing.k * (2 if isinstance(thing, B) else 1))
    return calls(step, lambda: setattr(C, "__bases__", (B,)))


@same_as_eager
def test_attributes_of_classes_and_bases(compile):
    class A:
        k = 1.0

    class B(A):
        pass

    thing = B()
    step = compile(lambda x: x * thing.k)
    return calls(
        step,
        lambda: setattr(A, "k", 2.0),
        lambda: setattr(B, "k", 3.0),
        lambda: setattr(thing, "k", 4.0),
        lambda: delattr(thing, "k"),
        lambda: delattr(B, "k"),
    )


@same_as_eager
def test_a_getattr_that_a_class_gets(compile):
    class A:
        def __getattr__(self, name):
            return 1.0

    thing = A()
    step = compile(lambda x: x * thing.scale)
    return calls(
        step,
        lambda: setattr(A, "__getattr__", lambda self, name: 2.0),
        lambda: setattr(A, "__getattribute__", lambda self, name: 3.0),
    )


@same_as_eager
def test_the_getattr_that_a_module_gets(compile):
    module = types.ModuleType("settings")
    step = compile(lambda x: x * getattr(module, "K", 1.0))
    return calls(
        step,
        lambda: setattr(module, "__getattr__", lambda name: 2.0),
        lambda: setattr(module, "__getattr__", lambda name: 3.0),
        lambda: setattr(module, "K", 4.0),
        lambda: vars(module).clear(),
    )


class Ranked:
    def __init__(self, rank):
        self.rank = rank


def _by_class(one, other):
    return isinstance(one, type(other))


@pytest.mark.parametrize(
    ("use", "name", "method"),
    [
        (lambda a, b: [a].count(b) + 2, "__eq__", _by_class),
        (lambda a, b: (b in (a, a)) + 2, "__eq__", _by_class),
        (lambda a, b: ({"k": [a]} == {"k": [b]}) + 2, "__eq__", _by_class),
        (lambda a, b: operator.eq(a, b) + 2, "__eq__", _by_class),
        (lambda a, b: (a != b) + 2, "__eq__", _by_class),
        (lambda a, b: callable(a) + 2, "__call__", lambda self: 3),
        (lambda a, b: (f"{a}" == "A") + 2, "__str__", lambda self: "A"),
        (lambda a, b: (str([a]) == "[A]") + 2, "__repr__", lambda self: "A"),
        (lambda a, b: setattr(a, "rank", 2.0) or a.rank, "__setattr__", lambda *_: None),
    ],
)
@same_as_eager
def test_a_special_method_that_code_in_c_calls(compile, use, name, method):
    class A(Ranked):
        pass

    one, other = A(1.0), A(2.0)
    step = compile(lambda x: x * use(one, other))

    def put():
        one.rank = 1.0
        setattr(A, name, method)

    return calls(step, put)


@pytest.mark.parametrize(
    ("use", "name", "method"),
    [
        (lambda a: abs(a), "__abs__", lambda self: 3.0),
        (lambda a: math.floor(a), "__floor__", lambda self: 3.0),
        (lambda a: float(a), "__float__", lambda self: 3.0),
        (lambda a: operator.index(a), "__index__", lambda self: 3),
        (lambda a: sorted([a, a])[0].rank, "__lt__", lambda self, other: False),
        (lambda a: a(), "__call__", lambda self: 3.0),
        (lambda a: int(a), "__int__", lambda self: 3),
        (lambda a: next(map(int, [a])), "__int__", lambda self: 3),
        (lambda a: len([1] * a), "__index__", lambda self: 3),
        (lambda a: len([1, 2][a:]), "__index__", lambda self: 1),
        (lambda a: math.prod([2.0, a]), "__rmul__", lambda self, other: 3.0),
        (lambda a: sum(itertools.accumulate([0, a])), "__radd__", lambda self, other: 3.0),
        (lambda a: len(os.path.join("a", a)), "__fspath__", lambda self: "b"),
    ],
)
@same_as_eager
def test_a_special_method_that_was_missing(compile, use, name, method):
    class A(Ranked):
        pass

    thing = A(1.0)

    @compile
    def step(x):
        try:
            return x * use(thing)
        except TypeError:
            return x * 7.0

    return calls(step, lambda: setattr(A, name, method))


def _first(first, *rest):
    return first


@pytest.mark.parametrize(
    "use",
    [
        lambda items: _first(*items),
        lambda items: len([*items, *items]) * _first(*[*items]),
        lambda items: sum(x for x in items),
        lambda items: (2.0 in items) + 1.0,
        lambda items: next(iter(items)),
    ],
)
@pytest.mark.parametrize("name", ["__getitem__", "__iter__"])
@same_as_eager
def test_what_gives_the_items_of_an_object(compile, use, name):
    class Items:
        pass

    def gives(*values):
        methods = {"__getitem__": lambda _, i: values[i], "__iter__": lambda _: iter(values)}
        setattr(Items, name, methods[name])

    gives(1.0, 3.0)
    items = Items()
    step = compile(lambda x: x * use(items))
    return calls(step, lambda: gives(2.0, 4.0))


@pytest.mark.parametrize(
    "use",
    [
        lambda a: 2.0 if a else 3.0,
        lambda a: 1.0 + len(a),
        lambda a: 1.0 + a[0],
        lambda a: 2.0 if 0.0 in a else 3.0,
        lambda a: 1.0 + _first(*a),
        lambda a: 1.0 + max([a, a]).rank,
        lambda a: 1.0 + bool([x for x in [a] if x]),
    ],
)
@same_as_eager
def test_the_class_of_an_object_that_code_in_c_asks(compile, use):
    class Idle(Ranked):
        def __len__(self):
            return 0

        def __getitem__(self, index):
            return [0.0][index]

        def __gt__(self, other):
            other.rank = self.rank = 0.0
            return False

    class Busy(Idle):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return [1.0][index]

        def __gt__(self, other):
            other.rank = self.rank = 1.0
            return False

    state = Idle(0.0)
    step = compile(lambda x: x * use(state))
    return calls(step, lambda: setattr(state, "__class__", Busy))


@pytest.mark.parametrize(
    ("use", "name", "first", "second"),
    [
        (lambda kind: kind.rate, "__getattr__", lambda *_: 1.0, lambda *_: 2.0),
        (lambda kind: isinstance(1, kind) + 1, "__instancecheck__", lambda *_: 0, lambda *_: 1),
        (lambda kind: issubclass(int, kind) + 1, "__subclasscheck__", lambda *_: 0, lambda *_: 1),
    ],
)
@same_as_eager
def test_a_special_method_of_a_metaclass(compile, use, name, first, second):
    class Meta(type):
        pass

    class A(metaclass=Meta):
        pass

    setattr(Meta, name, first)
    step = compile(lambda x: x * use(A))
    return calls(step, lambda: setattr(Meta, name, second))


@same_as_eager
def test_what_a_class_gives_for_its_parameters(compile):
    class A:
        def __class_getitem__(cls, item):
            return 1.0

    step = compile(lambda x: x * A[int])
    return calls(step, lambda: setattr(A, "__class_getitem__", lambda item: 2.0))


@same_as_eager
def test_the_factory_of_a_defaultdict(compile):
    table = collections.defaultdict(lambda: 1.0)
    step = compile(lambda x: x * table["k"])

    def change():
        table.clear()
        table.default_factory = lambda: 2.0

    return [step(X), *calls(step, change), table]


@same_as_eager
def test_the_constructor_of_a_class_that_code_in_c_calls(compile):
    class A(Ranked):
        pass

    step = compile(lambda x: x * next(map(A, [1.0])).rank)
    return calls(
        step, lambda: setattr(A, "__init__", lambda self, rank: setattr(self, "rank", 2.0))
    )


@same_as_eager
def test_the_name_of_a_class_and_a_function_and_a_members_value(compile):
    class Mode(enum.Enum):
        FAST = 1.0

    class A:
        pass

    def metric():
        pass

    step = compile(
        lambda x: (
            x * len(A.__name__)
            + len(type(A()).__qualname__)
            + len(metric.__name__)
            + Mode.FAST.value
            + len(A.__subclasses__())
        )
    )
    derived = []
    return calls(
        step,
        lambda: setattr(A, "__name__", "Renamed"),
        lambda: setattr(A, "__qualname__", "Renamed"),
        lambda: setattr(metric, "__name__", "m"),
        lambda: setattr(Mode.FAST, "_value_", 9.0),
        lambda: derived.append(type("B", (A,), {})),
    )


@same_as_eager
def test_the_dict_of_an_object_is_replaced(compile):
    holder = Holder(scale=1.0)
    step = compile(lambda x: x * holder.scale)
    return calls(step, lambda: setattr(holder, "__dict__", {"scale": 5.0}))


@same_as_eager
def test_objects_that_change_places(compile):
    """What a step leaves in an object of the one place isn't left in that of the other."""
    one, other = Holder(n=1.0, w=lucid.ones(3)), Holder(n=10.0, w=lucid.zeros(3))
    roles = {"actor": one, "critic": other}

    @compile
    def step(x):
        roles["actor"].n += 1.0
        roles["critic"].w = roles["critic"].w + x
        return x * roles["actor"].n + roles["critic"].w

    def swap():
        roles["actor"], roles["critic"] = roles["critic"], roles["actor"]

    found = calls(step, swap, swap, swap)
    return [*found, one.n, one.w, other.n, other.w]


@same_as_eager
def test_objects_that_a_step_lets_change_places_and_keeps(compile):
    pair, kept = [Holder(n=1.0), Holder(n=10.0)], Holder(last=None)

    @compile
    def step(x):
        pair[0], pair[1] = pair[1], pair[0]
        kept.last = pair[0]
        return x * kept.last.n

    return [(step(X), [one.n for one in pair], kept.last.n) for _ in range(6)]


@same_as_eager
def test_objects_of_a_list_that_the_step_sorts(compile):
    players = [Holder(w=lucid.ones(3) * i, score=i * 5 % 4 + 0.1) for i in range(4)]

    @compile
    def step(x):
        players.sort(key=lambda player: player.score)
        best = players[-1]
        best.score -= 0.7
        return x * best.w

    return [(step(X), [player.score for player in players]) for _ in range(9)]


@same_as_eager
def test_a_class_that_is_chosen_by_name(compile):
    names = types.SimpleNamespace(loss=nn.MSELoss)
    step = compile(lambda x: names.loss()(x, x * 2))
    return calls(step, lambda: setattr(names, "loss", nn.L1Loss))


@same_as_eager
def test_a_rebound_class(compile):
    class Options:
        scale = 1.0

    first = Options

    class Options2:
        scale = 3.0

    chosen = {"options": first}
    step = compile(lambda x: x * chosen["options"]().scale)
    return calls(step, lambda: chosen.update(options=Options2))


# ------------------------------------------------------------------ modules


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 3)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


@same_as_eager
def test_forward_at_the_class(compile):
    class Own(Net):
        pass

    net = Own()
    step = compile(net)
    return calls(step, lambda: setattr(Own, "forward", lambda self, x: self.first(x)))


@same_as_eager
def test_forward_at_the_class_of_a_layer(compile):
    class Layer(nn.Module):
        def forward(self, x):
            return x * 2

    net = nn.Sequential(nn.Linear(3, 3), Layer())
    step = compile(lambda x: net(x))
    return calls(step, lambda: setattr(Layer, "forward", lambda self, x: x * 7))


@same_as_eager
@pytest.mark.parametrize(("kind", "name"), [(nn.Linear, "forward"), (nn.Module, "__call__")])
def test_forward_of_a_built_in_class(compile, kind, name):
    net = Net()
    step = compile(lambda x: net(x))
    results = [step(X), step(X)]
    with mock.patch.object(kind, name, lambda self, x: x * sum(p.sum() for p in self.parameters())):
        results += [step(X), step(X)]
    return [*results, step(X)]


@pytest.mark.parametrize(
    "change",
    [
        lambda net: setattr(net, "forward", lambda x: x * 3),
        lambda net: setattr(net.first, "forward", lambda x: lucid.cat([x, x[:1]])),
        lambda net: setattr(net, "first", nn.Linear(3, 4)),
        lambda net: setattr(net.first, "weight", nn.Parameter(lucid.ones(4, 3))),
        lambda net: setattr(net.first, "bias", None),
        lambda net: setattr(net.first.weight, "data", lucid.ones(4, 3)),
        lambda net: net.register_forward_hook(lambda module, args, y: y + 5),
        lambda net: net.first.register_forward_pre_hook(lambda module, args: args[0] * 2),
        lambda net: (
            nn.utils.parametrizations.weight_norm(net.first) and net.first.bias.data.add_(2)
        ),
        lambda net: net.load_state_dict({k: v + 1 for k, v in net.state_dict().items()}),
        lambda net: net.apply(lambda m: isinstance(m, nn.Linear) and m.weight.data.fill_(0.5)),
    ],
    ids=[
        "forward",
        "layers_forward",
        "layer",
        "weight",
        "bias",
        "data",
        "hook",
        "pre_hook",
        "parametrized",
        "state",
        "apply",
    ],
)
@same_as_eager
def test_a_part_of_a_net(compile, change):
    net = Net()
    step = compile(lambda x: net(x))
    return calls(step, lambda: change(net))


@same_as_eager
def test_a_list_of_layers_that_grows_and_shrinks(compile):
    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3)])
            self.heads = nn.ModuleDict({"a": nn.Linear(3, 3)})

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return sum(head(x) for head in self.heads.values())

    net = Stack()
    step = compile(lambda x: net(x))
    return calls(
        step,
        lambda: net.layers.append(nn.Linear(3, 3)),
        lambda: net.heads.update({"b": nn.Linear(3, 3)}),
        lambda: net.layers.__delitem__(0),
        lambda: net.heads.pop("a"),
        lambda: net.layers.__setitem__(0, nn.Tanh()),
    )


@same_as_eager
def test_a_hook_that_is_removed(compile):
    net = Net()
    handle = net.register_forward_hook(lambda module, args, y: y + 5)
    step = compile(lambda x: net(x))
    return calls(step, handle.remove)


@same_as_eager
def test_a_net_in_double_precision(compile):
    net = Net()
    step = compile(lambda x: net(x))
    results = [step(X), step(X)]
    net.double()
    double = X.double()
    results += [step(double), step(double)]
    net.float()
    return [*results, step(X)]


@same_as_eager
def test_a_training_step_in_double_precision(compile):
    net = Net()
    optimizer = lucid.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    @compile
    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    results = [step(X), step(X)]
    net.double()
    optimizer.state.clear()
    double = X.double()
    return [*results, step(double), step(double), net.first.weight]


@same_as_eager
def test_train_and_eval_of_a_single_layer(compile):
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(1.0))
    step = compile(lambda x: net(x))
    return calls(
        step,
        lambda: net[1].eval(),
        lambda: setattr(net[1], "training", True),
        net.eval,
    )


@same_as_eager
def test_a_copied_net_that_is_put_in_place(compile):
    holder = Holder(net=Net())
    step = compile(lambda x: holder.net(x))

    def replace():
        holder.net = copy.deepcopy(holder.net)
        holder.net.first.weight.data.mul_(2)

    return calls(step, replace)


# ------------------------------------------------------------------ optimizers


def training(make):
    net = Net()
    holder = Holder(net=net, optimizer=make(net.parameters()))

    def step(x):
        holder.optimizer.zero_grad()
        loss = holder.net(x).square().mean()
        loss.backward()
        holder.optimizer.step()
        return loss.detach(), holder.net.first.weight.detach().clone()

    return holder, step


def sgd(parameters):
    return lucid.optim.SGD(parameters, lr=0.1)


def adam(parameters):
    return lucid.optim.Adam(parameters, lr=0.1, weight_decay=0.01)


def replace_group(optimizer):
    optimizer.param_groups[0] = copy.copy(optimizer.param_groups[0])
    optimizer.param_groups[0]["lr"] = 0.9


def other_list_of_groups(optimizer):
    optimizer.param_groups = [copy.copy(group) for group in optimizer.param_groups]
    optimizer.param_groups[0]["lr"] = 0.9


def group_of_another(optimizer):
    other = lucid.optim.Adam(optimizer.param_groups[0]["params"], lr=0.5, betas=(0.1, 0.2))
    optimizer.param_groups[0] = other.param_groups[0]


def fewer_parameters(optimizer):
    optimizer.param_groups[0]["params"] = optimizer.param_groups[0]["params"][1:]


def drop_a_parameter(optimizer):
    del optimizer.param_groups[0]["params"][0]


def no_state(optimizer):
    optimizer.state.clear()


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (sgd, lambda opt: opt.param_groups[0].update(lr=0.9)),
        (sgd, lambda opt: opt.param_groups[0].update(momentum=0.9)),
        (sgd, lambda opt: opt.param_groups[0].update(maximize=True)),
        (sgd, replace_group),
        (sgd, other_list_of_groups),
        (sgd, fewer_parameters),
        (sgd, drop_a_parameter),
        (adam, lambda opt: opt.param_groups[0].update(betas=(0.5, 0.6))),
        (adam, lambda opt: opt.param_groups[0].update(eps=1.0)),
        (adam, lambda opt: opt.param_groups[0].update(weight_decay=0.9)),
        (adam, lambda opt: opt.param_groups[0].update(amsgrad=False, lr=0.4)),
        (adam, replace_group),
        (adam, group_of_another),
        (adam, no_state),
        (adam, lambda opt: opt.load_state_dict(opt.state_dict() | {"state": {}})),
        (adam, lambda opt: setattr(opt, "step", lambda: None)),
    ],
)
@same_as_eager
def test_a_part_of_an_optimizer(compile, make, change):
    holder, step = training(make)
    step = compile(step)
    return [step(X), step(X), change(holder.optimizer) and None, step(X), step(X), step(X)]


@same_as_eager
def test_settings_of_an_optimizer_that_the_step_reads(compile):
    optimizer = adam(Net().parameters())

    @compile
    def step(x):
        return x * optimizer.defaults["lr"] + optimizer.param_groups[0]["betas"][0]

    return calls(
        step,
        lambda: optimizer.defaults.update(lr=7.0),
        lambda: optimizer.param_groups[0].update(betas=(0.5, 0.6)),
    )


@same_as_eager
def test_another_optimizer(compile):
    holder, step = training(sgd)
    step = compile(step)
    results = [step(X), step(X)]
    holder.optimizer = adam(holder.net.parameters())
    return [*results, step(X), step(X)]


@same_as_eager
def test_a_group_of_parameters_that_is_added(compile):
    net = Net()
    optimizer = lucid.optim.SGD(net.first.parameters(), lr=0.1)

    @compile
    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), net.second.weight.detach().clone()

    results = [step(X), step(X)]
    optimizer.add_param_group({"params": net.second.parameters(), "lr": 0.5})
    return [*results, step(X), step(X)]


@same_as_eager
def test_a_schedulers_parts(compile):
    holder, step = training(sgd)
    schedule = lucid.optim.lr_scheduler.LambdaLR(holder.optimizer, lambda epoch: 0.9**epoch)

    @compile
    def whole(x):
        found = step(x)
        schedule.step()
        return found

    results = [whole(X), whole(X)]
    schedule.lr_lambdas[0] = lambda epoch: 0.1
    results += [whole(X), whole(X)]
    schedule.base_lrs[0] = 3.0
    return [*results, whole(X), whole(X), holder.optimizer.param_groups[0]["lr"]]


class Varied(nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.scale, self.count, self.more = nn.LeakyReLU(0.1), 0.5, 2, None
        self.register_buffer("shift", lucid.ones(3))
        self.weight = nn.Parameter(lucid.ones(3))
        self.register_forward_hook(lambda net, args, result: result * 2)

    @functools.cached_property
    def cached(self):
        return 0.5

    def forward(self, x):
        x = self.act(x * self.weight - 1) * self.scale * self.count * self.cached + self.shift
        return x if self.more is None else x + self.more


MADE = nn.Tanh(), nn.Parameter(lucid.ones(3) * 3), lucid.ones(3) * 5


@same_as_eager
@pytest.mark.parametrize(
    "change",
    [
        lambda net: vars(net).update(scale=0.25),
        lambda net: net.__dict__.__setitem__("count", 3),
        lambda net: vars(net).update(more=1.5),
        lambda net: vars(net).__setitem__("cached", 2.0),
        lambda net: vars(net).update(forward=lambda x: x * 7),
        lambda net: setattr(net, "__dict__", {**vars(net), "count": 5}),
        lambda net: net._modules.update(act=MADE[0]),
        lambda net: (net._modules.pop("act"), vars(net).update(act=doubled)),
        lambda net: net._parameters.update(weight=MADE[1]),
        lambda net: net._buffers.__setitem__("shift", MADE[2]),
        lambda net: net._forward_hooks.clear(),
        lambda net: setattr(net, "_forward_hooks", collections.OrderedDict()),
        lambda net: net._forward_pre_hooks.update({1 << 40: lambda net, args: (args[0] * 3,)}),
    ],
)
def test_attributes_and_registers_of_a_module_behind_its_back(compile, change):
    net = Varied()
    step = compile(lambda x: net(x).detach().clone())
    return [step(X), *calls(step, lambda: change(net))]


@pytest.mark.parametrize(
    "change",
    [
        lambda net, optimizer: optimizer.param_groups[0].__ior__({"weight_decay": 0.5}),
        lambda net, optimizer: optimizer.state.__ior__(
            {net.first.weight: {"momentum_buffer": lucid.ones(4, 3)}}
        ),
        lambda net, optimizer: optimizer.state[net.first.weight].__ior__(
            {"momentum_buffer": lucid.ones(4, 3)}
        ),
        lambda net, optimizer: optimizer.state.popitem(),
        lambda net, optimizer: optimizer.state[net.first.weight].clear(),
        lambda net, optimizer: setattr(
            optimizer, "param_groups", [{**optimizer.param_groups[0], "lr": 0.5}]
        ),
        lambda net, optimizer: optimizer.param_groups.__setitem__(
            0, {"params": [net.first.weight], "lr": 0.5}
        ),
    ],
)
@same_as_eager(or_said=True)
def test_groups_and_state_of_an_optimizer(compile, change):
    net = Net()
    optimizer = lucid.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.25)

    @compile
    def step(x):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        return net.first.weight.detach().clone()

    results = [step(X), step(X), step(X)]
    change(net, optimizer)
    return [*results, step(X), step(X), step(X)]


@same_as_eager
def test_momentum_of_a_batch_norm_that_is_none_for_a_while(compile):
    norm = nn.BatchNorm1d(3)
    step = compile(lambda x: (norm(x), norm.running_mean * 1.0))
    return calls(
        step,
        lambda: setattr(norm, "momentum", None),
        lambda: setattr(norm, "momentum", 0.75),
        lambda: setattr(norm, "momentum", None),
        args=(lucid.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 7.0]]),),
    )
