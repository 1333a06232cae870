"""However Python comes by a value, a change of it is seen: by computed names, views, protocols."""

from __future__ import annotations

import abc
import argparse
import ast
import collections
import configparser
import contextlib
import contextvars
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import importlib
import inspect
import itertools
import json
import logging
import operator
import os
import random
import statistics
import sys
import threading
import types
import typing
import weakref

import numpy as np
import pytest
from border.harness import X, calls, fresh, same_as_eager

import lucid
from lucid import nn
from lucid.compiler.guards import events

K = 1.0
MODE = "sum"


def assign(name, value):
    """Change a global of this module."""
    globals()[name] = value


@pytest.fixture(autouse=True)
def globals_as_they_were(monkeypatch):
    monkeypatch.setitem(globals(), "K", 1.0)
    monkeypatch.setitem(globals(), "MODE", "sum")


def reset():
    """What each run of a program that uses the globals begins with."""
    assign("K", 1.0)
    assign("MODE", "sum")


@dataclasses.dataclass
class Config:
    scale: float = 1.0
    shift: float = 0.5
    mode: str = "a"


class Plain:
    def __init__(self, **fields):
        self.__dict__.update(fields)


# ------------------------------------------------------------------ computed names


@same_as_eager
def test_getattr_with_a_computed_name(compile):
    cfg = Config()
    key = "".join(["sca", "le"])
    step = compile(lambda x: x * getattr(cfg, key))
    return calls(step, lambda: setattr(cfg, "scale", 2.0))


@same_as_eager
def test_weights_of_losses_by_their_names(compile):
    class Criterion(nn.Module):
        def __init__(self):
            super().__init__()
            self.lambda_l1, self.lambda_l2 = 1.0, 0.5

        def forward(self, y):
            losses = {"l1": y.abs().sum(), "l2": y.square().sum()}
            return sum(getattr(self, f"lambda_{name}") * loss for name, loss in losses.items())

    criterion = Criterion()
    step = compile(lambda x: criterion(x))
    return calls(step, lambda: setattr(criterion, "lambda_l2", 3.0))


@same_as_eager
def test_layers_and_scales_by_their_numbers(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            for i in range(2):
                setattr(self, f"layer{i}", nn.Linear(3, 3))
                setattr(self, f"scale{i}", 1.0)

        def forward(self, x):
            for i in range(2):
                x = getattr(self, f"layer{i}")(x) * getattr(self, f"scale{i}")
            return x

    net = Net()
    step = compile(lambda x: net(x))
    return calls(
        step,
        lambda: setattr(net, "scale1", 2.0),
        lambda: setattr(net, "layer0", nn.Linear(3, 3)),
        lambda: setattr(net.layer1, "forward", lambda x: x),
    )


@same_as_eager
def test_getattr_with_a_default_and_hasattr(compile):
    cfg = Plain()
    step = compile(
        lambda x: x * getattr(cfg, "ga" + "in", 1.0) * (2 if hasattr(cfg, "dou" + "ble") else 1)
    )
    return calls(step, lambda: setattr(cfg, "gain", 2.0), lambda: setattr(cfg, "double", True))


@same_as_eager
def test_attrgetter_of_two_levels(compile):
    cfg = Plain(model=Plain(scale=1.0))
    scale = operator.attrgetter("model.scale")
    step = compile(lambda x: x * scale(cfg))
    return calls(
        step,
        lambda: setattr(cfg.model, "scale", 2.0),
        lambda: setattr(cfg, "model", Plain(scale=4.0)),
    )


@same_as_eager
def test_itemgetter_and_methodcaller(compile):
    table = {"scale": 1.0}
    scale, shift = operator.itemgetter("scale"), operator.methodcaller("get", "shift", 0.0)
    step = compile(lambda x: x * scale(table) + shift(table))
    return calls(step, lambda: table.update(scale=2.0), lambda: table.update(shift=1.0))


@same_as_eager
def test_eval_of_an_expression(compile):
    cfg = Config()
    step = compile(lambda x: x * eval("cfg.scale + 1", {"cfg": cfg}))
    return calls(step, lambda: setattr(cfg, "scale", 2.0))


@same_as_eager
def test_the_attributes_that_dir_lists(compile):
    cfg = Plain(w_one=1.0, other=7.0)
    step = compile(lambda x: x * sum(getattr(cfg, n) for n in dir(cfg) if n.startswith("w_")))
    return calls(step, lambda: setattr(cfg, "w_two", 2.0), lambda: setattr(cfg, "w_one", 5.0))


# ------------------------------------------------------------------ an object's dict


@same_as_eager
def test_vars_of_a_config(compile):
    cfg = Config()
    step = compile(lambda x: x * vars(cfg)["scale"])
    return calls(step, lambda: setattr(cfg, "scale", 2.0))


@same_as_eager
def test_vars_as_keyword_arguments(compile):
    cfg = Plain(scale=1.0, shift=0.5)

    def affine(x, scale, shift, power=1.0):
        return (x * scale + shift) ** power

    step = compile(lambda x: affine(x, **vars(cfg)))
    return calls(
        step,
        lambda: setattr(cfg, "scale", 2.0),
        lambda: setattr(cfg, "power", 2.0),
    )


@same_as_eager
def test_items_of_an_objects_dict(compile):
    cfg = Plain(a=1.0, b=2.0)
    step = compile(lambda x: sum(x * v if k != "b" else x + v for k, v in cfg.__dict__.items()))
    return calls(step, lambda: setattr(cfg, "b", 5.0), lambda: setattr(cfg, "c", 5.0))


@same_as_eager
def test_values_of_an_objects_dict_summed(compile):
    cfg = Plain(a=1.0, b=2.0)
    step = compile(lambda x: x * sum(cfg.__dict__.values()))
    return calls(step, lambda: setattr(cfg, "b", 5.0))


@same_as_eager
def test_a_loop_over_dataclass_fields(compile):
    @dataclasses.dataclass
    class Weights:
        l1: float = 1.0
        l2: float = 2.0

    weights = Weights()
    step = compile(lambda x: x * sum(getattr(weights, f.name) for f in dataclasses.fields(weights)))
    return calls(step, lambda: setattr(weights, "l2", 5.0))


@pytest.mark.parametrize(
    "read",
    [
        lambda cfg: dataclasses.asdict(cfg)["scale"],
        lambda cfg: dataclasses.astuple(cfg)[0],
        lambda cfg: dataclasses.replace(cfg, shift=3.0).scale,
        lambda cfg: copy.deepcopy(cfg).scale,
        lambda cfg: copy.copy(cfg).scale,
        lambda cfg: json.loads(json.dumps(vars(cfg)))["scale"],
        lambda cfg: float(f"{cfg.scale:.3f}"),
        lambda cfg: float(repr(cfg).split("scale=")[1].split(",")[0]),
        lambda cfg: 3.0 if cfg == Config(scale=1.0) else 4.0,
        lambda cfg: ast.literal_eval(str(cfg.scale)),
    ],
    ids=[
        "asdict",
        "astuple",
        "replace",
        "deepcopy",
        "copy",
        "json",
        "format",
        "repr",
        "equal",
        "literal_eval",
    ],
)
@same_as_eager
def test_a_dataclass_as_a_whole(compile, read):
    cfg = Config()
    step = compile(lambda x: x * read(cfg))
    return calls(step, lambda: setattr(cfg, "scale", 2.0))


@same_as_eager
def test_a_frozen_dataclass_that_is_replaced(compile):
    @dataclasses.dataclass(frozen=True, slots=True)
    class Frozen:
        scale: float = 1.0

    holder = Plain(cfg=Frozen())
    step = compile(lambda x: x * holder.cfg.scale)
    return calls(step, lambda: setattr(holder, "cfg", dataclasses.replace(holder.cfg, scale=3.0)))


@pytest.mark.parametrize("make", [Plain, types.SimpleNamespace, argparse.Namespace])
@same_as_eager
def test_a_namespace(compile, make):
    args = make(lr=1.0, warm=False)
    step = compile(lambda x: x * args.lr if not args.warm else x)
    return calls(step, lambda: setattr(args, "lr", 2.0), lambda: setattr(args, "warm", True))


# ------------------------------------------------------------------ modules


@same_as_eager
def test_a_global_and_the_dict_of_globals(compile):
    reset()
    step = compile(lambda x: x * globals()["K"] + K)
    return calls(step, lambda: assign("K", 2.0))


@same_as_eager
def test_a_global_that_chooses_a_function_by_name(compile):
    reset()
    step = compile(lambda x: getattr(x, MODE)() * globals()["K"])
    return calls(step, lambda: assign("MODE", "mean"), lambda: assign("K", 3.0))


@same_as_eager
def test_a_global_that_comes_to_cover_a_builtin(compile):
    step = compile(lambda x: x * max(1.0, 2.0))
    results = [step(X), step(X)]
    assign("max", min)
    results += [step(X), step(X)]
    del globals()["max"]
    return [*results, step(X)]


@same_as_eager
def test_a_module_in_sys_modules(compile):
    fresh("border.project")
    settings = fresh("border.project.settings")
    step = compile(lambda x: x * sys.modules["border.project.settings"].SCALE)
    return calls(step, lambda: setattr(settings, "SCALE", 2.0))


@same_as_eager
def test_another_module_in_sys_modules(compile):
    name = "border.project.settings"
    fresh("border.project")
    fresh(name)
    other = types.ModuleType(name)
    other.SCALE = 5.0
    step = compile(lambda x: x * sys.modules["border.project.settings"].SCALE)
    return calls(step, lambda: sys.modules.__setitem__(name, other))


@same_as_eager
def test_a_users_module_through_an_attribute(compile):
    fresh("border.project")
    run = Plain(settings=fresh("border.project.settings"))
    step = compile(lambda x: x * run.settings.SCALE + run.settings.OPTIONS["power"])
    return calls(
        step,
        lambda: setattr(run.settings, "SCALE", 2.0),
        lambda: run.settings.OPTIONS.update(power=3.0),
    )


@same_as_eager
def test_a_users_module_as_an_argument(compile):
    fresh("border.project")
    settings = fresh("border.project.settings")
    step = compile(lambda x, cfg: x * cfg.SCALE)
    return calls(step, lambda: setattr(settings, "SCALE", 2.0), args=(X, settings))


@same_as_eager
def test_a_users_module_imported_within_the_function(compile):
    fresh("border.project")
    settings = fresh("border.project.settings")

    @compile
    def step(x):
        import border.project.settings as chosen

        return x * chosen.SCALE

    return calls(step, lambda: setattr(settings, "SCALE", 2.0))


@same_as_eager
def test_a_name_imported_within_the_function(compile):
    fresh("border.project")
    settings = fresh("border.project.settings")

    @compile
    def step(x):
        from border.project.settings import SCALE

        return x * SCALE

    return calls(step, lambda: setattr(settings, "SCALE", 2.0))


@same_as_eager
def test_import_module(compile):
    fresh("border.project")
    settings = fresh("border.project.settings")
    step = compile(lambda x: x * importlib.import_module("border.project.settings").SCALE)
    return calls(step, lambda: setattr(settings, "SCALE", 2.0))


@same_as_eager
def test_a_setting_that_a_function_of_another_module_reads(compile):
    fresh("border.project")
    losses = fresh("border.project.losses")
    step = compile(lambda x: losses.weighted(x))
    return calls(
        step,
        lambda: setattr(losses.settings, "SCALE", 2.0),
        lambda: setattr(losses, "settings", Plain(SCALE=6.0)),
    )


@same_as_eager
def test_the_getattr_of_a_module(compile):
    fresh("border.project")
    settings = fresh("border.project.settings")
    step = compile(lambda x: x * settings.OLD_SCALE)
    return calls(step, lambda: setattr(settings, "SCALE", 2.0))


# ------------------------------------------------------------------ views and references


@same_as_eager
def test_a_mapping_proxy(compile):
    table = {"scale": 1.0}
    proxy = types.MappingProxyType(table)
    step = compile(lambda x: x * proxy["scale"] + proxy.get("shift", 0.0))
    return calls(step, lambda: table.update(scale=2.0), lambda: table.update(shift=3.0))


@same_as_eager
def test_a_mapping_proxy_that_is_iterated(compile):
    table = {"a": 1.0}
    proxy = types.MappingProxyType(table)
    step = compile(lambda x: x * sum(v for _, v in proxy.items()) * len(proxy))
    return calls(step, lambda: table.update(a=2.0), lambda: table.update(b=3.0))


@same_as_eager
def test_the_dict_of_a_class(compile):
    class Registry:
        gain = 1.0

    step = compile(lambda x: x * vars(Registry)["gain"] * Registry.__dict__.get("more", 1.0))
    return calls(step, lambda: setattr(Registry, "gain", 2.0), lambda: setattr(Registry, "more", 3))


@same_as_eager
def test_a_weak_reference(compile):
    cfg = Plain(v=1.0)
    reference = weakref.ref(cfg)
    step = compile(lambda x: x * reference().v)
    return calls(step, lambda: setattr(cfg, "v", 2.0))


@same_as_eager
def test_a_weak_reference_that_dies(compile):
    holder = [Plain(v=5.0)]
    reference = weakref.ref(holder[0])

    @compile
    def step(x):
        target = reference()
        return x if target is None else x * target.v

    return calls(step, holder.clear)


@same_as_eager(traces=2)
def test_weak_references_to_methods_one_of_which_dies(compile):
    class Listener:
        def hear(self, x):
            return x

    listeners = [Listener(), Listener()]
    heard = [weakref.WeakMethod(listener.hear) for listener in listeners]
    step = compile(lambda x: sum(hear()(x) for hear in heard if hear() is not None))
    return calls(step, listeners.pop)


@same_as_eager
def test_a_weak_proxy(compile):
    cfg = Plain(v=1.0)
    proxy = weakref.proxy(cfg)
    step = compile(lambda x: x * proxy.v)
    return calls(step, lambda: setattr(cfg, "v", 2.0))


@same_as_eager(or_said=True)
def test_a_weak_proxy_of_what_has_gone(compile):
    holder = [Plain(v=5.0)]
    proxy = weakref.proxy(holder[0])

    @compile
    def step(x):
        try:
            return x * proxy.v
        except ReferenceError:
            return x

    return calls(step, holder.clear)


@same_as_eager
def test_weak_dictionaries(compile):
    key, value = Plain(), Plain(v=1.0)
    by_key = weakref.WeakKeyDictionary({key: 1.0})
    by_name = weakref.WeakValueDictionary(a=value)
    step = compile(lambda x: x * by_key[key] + by_name["a"].v)
    return calls(step, lambda: by_key.__setitem__(key, 3.0), lambda: setattr(value, "v", 2.0))


@same_as_eager
def test_a_weak_set_of_listeners(compile):
    listeners = [Plain(v=1.0), Plain(v=2.0)]
    known = weakref.WeakSet(listeners[:1])
    step = compile(lambda x: x * sum(listener.v for listener in known))
    return calls(step, lambda: known.add(listeners[1]), lambda: setattr(listeners[0], "v", 7.0))


ASKED = {
    "summed": lambda x, known: x * sum(listener.v for listener in known),
    "counted": lambda x, known: x * len(known),
    "a_branch": lambda x, known: x * 2 if len(known) > 1 else x,
    "joined": lambda x, known: x * len(known | set()),
}


@pytest.mark.parametrize("name", ASKED)
@same_as_eager
def test_a_weak_set_one_of_whose_listeners_dies(compile, name):
    listeners = [Plain(v=1.0), Plain(v=2.0)]
    known = weakref.WeakSet(listeners)
    step = compile(lambda x: ASKED[name](x, known))
    return calls(step, listeners.pop)


@same_as_eager
def test_a_context_variable(compile):
    scale = contextvars.ContextVar("scale", default=1.0)
    step = compile(lambda x: x * scale.get())
    token = []
    return calls(
        step,
        lambda: token.append(scale.set(2.0)),
        lambda: scale.reset(token[0]),
    )


@same_as_eager
def test_a_context_variable_in_another_context(compile):
    scale = contextvars.ContextVar("scale", default=1.0)
    step = compile(lambda x: x * scale.get())

    def in_another():
        scale.set(3.0)
        return step(X)

    return [step(X), step(X), contextvars.copy_context().run(in_another), step(X)]


@same_as_eager
def test_an_object_in_a_context_variable(compile):
    current = contextvars.ContextVar("current")
    current.set(Config())
    step = compile(lambda x: x * current.get().scale)
    return calls(step, lambda: setattr(current.get(), "scale", 2.0))


@same_as_eager
def test_values_of_a_thread(compile):
    local = threading.local()
    local.scale = 1.0
    step = compile(lambda x: x * local.scale)
    return calls(step, lambda: setattr(local, "scale", 2.0))


@same_as_eager
def test_dict_views_that_were_kept(compile):
    table = {"a": 1.0}
    values, items, keys = table.values(), table.items(), table.keys()
    step = compile(lambda x: x * sum(values) + sum(v for _, v in items) * len(keys))
    return calls(step, lambda: table.update(a=2.0), lambda: table.update(b=3.0))


@same_as_eager
def test_whether_a_view_has_a_key(compile):
    table = {"a": 1.0}
    keys = table.keys()
    step = compile(lambda x: x * 2 if "b" in keys else x)
    return calls(step, lambda: table.update(b=3.0))


@same_as_eager
def test_a_chain_of_maps(compile):
    defaults, own = {"scale": 1.0, "shift": 0.5}, {}
    options = collections.ChainMap(own, defaults)
    step = compile(lambda x: x * options["scale"] + options.get("shift"))
    return calls(
        step,
        lambda: own.update(scale=2.0),
        lambda: defaults.update(shift=4.0),
        lambda: options.maps.insert(0, {"scale": 9.0}),
    )


@same_as_eager
def test_what_a_chain_of_maps_lacks(compile):
    options = collections.ChainMap({"scale": 1.0}, {})
    step = compile(lambda x: x * options.get("shift", 3.0) + ("new" in options))
    return calls(step, lambda: options.maps[1].update(shift=4.0), lambda: options.update(new=None))


@same_as_eager
def test_a_user_dict_and_a_user_list(compile):
    table, row = collections.UserDict(a=1.0), collections.UserList([1.0])
    step = compile(lambda x: x * table["a"] + row[0])
    return calls(step, lambda: table.update(a=2.0), lambda: row.__setitem__(0, 5.0))


@same_as_eager
def test_a_config_parser(compile):
    parser = configparser.ConfigParser()
    parser.read_string("[optim]\nlr = 0.5\nwarm = no\n")
    step = compile(
        lambda x: (
            x * parser.getfloat("optim", "lr") * (2 if parser["optim"].getboolean("warm") else 1)
        )
    )
    return calls(
        step,
        lambda: parser.set("optim", "lr", "2.5"),
        lambda: parser["optim"].__setitem__("warm", "yes"),
    )


@same_as_eager
def test_the_level_of_a_logger(compile):
    logger = logging.getLogger("border.a")
    logger.setLevel(logging.INFO)

    @compile
    def step(x):
        return x * 2 if logger.isEnabledFor(logging.DEBUG) else x

    return calls(step, lambda: logger.setLevel(logging.DEBUG))


@same_as_eager
def test_the_level_of_a_loggers_parent(compile):
    parent, logger = logging.getLogger("border.b"), logging.getLogger("border.b.c")
    parent.setLevel(logging.INFO)
    step = compile(lambda x: x * logger.getEffectiveLevel())
    return calls(step, lambda: parent.setLevel(logging.DEBUG))


@same_as_eager
def test_a_logger_that_is_disabled(compile):
    logger = logging.getLogger("border.d")
    logger.disabled = False
    logger.setLevel(logging.DEBUG)
    step = compile(lambda x: x * 2 if logger.isEnabledFor(logging.DEBUG) else x)
    return calls(step, lambda: setattr(logger, "disabled", True))


# ------------------------------------------------------------------ protocols of classes


@same_as_eager
def test_properties_descriptors_and_cached_properties(compile):
    class Stored:
        values: typing.ClassVar[dict[str, float]] = {}

        def __get__(self, instance, owner):
            return self.values.get("k", 1.0)

    class Options:
        base = 1.0
        stored = Stored()

        @property
        def doubled(self):
            return self.base * 2

        @functools.cached_property
        def cached(self):
            return self.base + 1

    options = Options()
    assert options.cached == 2.0
    step = compile(lambda x: x * options.doubled + options.stored - options.cached)
    return calls(
        step,
        lambda: setattr(options, "base", 2.0),
        lambda: Stored.values.update(k=3.0),
        lambda: options.__dict__.update(cached=7.0),
    )


@same_as_eager
def test_a_getattr_that_delegates(compile):
    class Wrapper:
        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, name):
            return getattr(self._inner, name)

    inner = Plain(scale=1.0)
    wrapped = Wrapper(inner)
    step = compile(lambda x: x * wrapped.scale)
    return calls(step, lambda: setattr(inner, "scale", 2.0), lambda: setattr(wrapped, "scale", 3.0))


@same_as_eager
def test_an_attribute_dict(compile):
    class AttrDict(dict):
        __getattr__ = dict.__getitem__
        __setattr__ = dict.__setitem__

    cfg = AttrDict(scale=1.0)
    step = compile(lambda x: x * cfg.scale)
    return calls(step, lambda: setattr(cfg, "scale", 2.0), lambda: cfg.update(scale=3.0))


@same_as_eager
def test_a_nested_attribute_dict_in_a_module(compile):
    class AttrDict(dict):
        def __getattr__(self, name):
            return self[name]

    class Net(nn.Module):
        def __init__(self, cfg):
            super().__init__()
            self.cfg = cfg

        def forward(self, x):
            return x * self.cfg.model.scale

    net = Net(AttrDict(model=AttrDict(scale=1.0)))
    step = compile(net)
    return calls(
        step,
        lambda: net.cfg.model.update(scale=2.0),
        lambda: net.cfg.update(model=AttrDict(scale=5.0)),
    )


@same_as_eager
def test_a_dict_with_missing(compile):
    class Table(dict):
        default = 1.0

        def __missing__(self, key):
            return self.default

    table = Table()
    step = compile(lambda x: x * table["z"])
    return calls(step, lambda: setattr(table, "default", 2.0), lambda: table.update(z=5.0))


@same_as_eager
def test_a_container_of_the_users(compile):
    class Bag:
        def __init__(self):
            self.items = [1.0, 2.0]

        def __getitem__(self, i):
            return self.items[i]

        def __len__(self):
            return len(self.items)

        def __contains__(self, item):
            return item in self.items

        def __bool__(self):
            return self.items[0] > 0

    bag = Bag()
    step = compile(
        lambda x: x * sum(bag) * len(bag) * (2 if 9.0 in bag else 1) * (1 if bag else -1)
    )
    return calls(
        step,
        lambda: bag.items.append(3.0),
        lambda: bag.items.append(9.0),
        lambda: bag.items.__setitem__(0, -1.0),
    )


@pytest.mark.parametrize(
    "use",
    [
        lambda x, n: x * float(n),
        lambda x, n: x[int(n) :].sum(),
        lambda x, n: x * n(),
        lambda x, n: x * 2 if n == 1 else x,
        lambda x, n: x * 2 if n < 2 else x,
        lambda x, n: x * {1: 3.0, 2: 4.0}[hash(n)],
        lambda x, n: x * round(n) * abs(n),
        lambda x, n: x * float(f"{n}"),
        lambda x, n: x * (n + 1.0),
        lambda x, n: x * sum(range(n)),
    ],
    ids=["float", "int", "call", "eq", "lt", "hash", "round", "format", "add", "index"],
)
@same_as_eager
def test_a_number_of_the_users(compile, use):
    class Number:
        def __init__(self, value):
            self.value = value

        def __eq__(self, other):
            return self.value == other

        def __lt__(self, other):
            return self.value < other

        def __hash__(self):
            return self.value

        def __float__(self):
            return float(self.value)

        def __int__(self):
            return self.value

        def __index__(self):
            return self.value + 1

        def __call__(self):
            return self.value

        def __round__(self):
            return self.value

        def __abs__(self):
            return self.value

        def __format__(self, spec):
            return str(self.value)

        def __add__(self, other):
            return self.value + other

    number = Number(1)
    step = compile(lambda x: use(x, number))
    return calls(step, lambda: setattr(number, "value", 2))


@pytest.mark.parametrize(
    "use",
    [
        lambda x, n: x * float(n),
        lambda x, n: x + int(n),
        lambda x, n: x[operator.index(n) :],
    ],
    ids=["float", "int", "operator"],
)
@same_as_eager
def test_a_number_of_the_users_that_moves_and_counts_how_often_it_is_asked(compile, use):
    return asked_as_it_moves(compile, use)


@pytest.mark.parametrize(
    "use",
    [
        lambda x, n: x * [1.0, 2.0, 3.0, 4.0][n],
        lambda x, n: x * (1.0, 2.0, 3.0, 4.0)[n],
        lambda x, n: x * collections.deque([1.0, 2.0, 3.0, 4.0])[n],
    ],
    ids=["list", "tuple", "deque"],
)
@same_as_eager(or_said=True)
def test_an_index_that_an_object_of_the_users_says(compile, use):
    return asked_as_it_moves(compile, use)


def asked_as_it_moves(compile, use):
    class Schedule:
        def __init__(self):
            self.steps, self.asked = 0, 0

        def __float__(self):
            self.asked += 1
            return min(1.0, self.steps / 8)

        def __int__(self):
            self.asked += 1
            return self.steps

        def __index__(self):
            self.asked += 1
            return self.steps % 4

    schedule, found = Schedule(), []
    step = compile(lambda x: use(x, schedule))
    for _ in range(8):
        schedule.steps += 1
        found.append((step(lucid.arange(4.0)), schedule.asked))
    return found


@same_as_eager(traces=1)
def test_a_rate_that_a_schedule_says(compile):
    class Warmup:
        def __init__(self):
            self.steps = 0

        def __float__(self):
            return min(1.0, self.steps / 16)

    warmup, weight, found = Warmup(), lucid.ones(3), []

    @compile
    def step(gradient):
        warmup.steps += 1
        weight.sub_(float(warmup) * gradient)

    for _ in range(20):
        step(X)
        found.append(weight.clone())
    return found


@same_as_eager(or_said=True)
def test_an_item_that_a_number_of_the_users_replaces_and_deletes(compile):
    class Place:
        at = 0

        def __index__(self):
            self.at += 1
            return self.at % 3

    place, items = Place(), [1.0, 2.0, 3.0, 4.0]

    @compile
    def step(x):
        items[place] = items[place] + 1.0
        del items[place]
        items.append(0.5)
        return x * items[0]

    return [(step(X), list(items), place.at) for _ in range(6)]


@same_as_eager
def test_slots_and_class_attributes(compile):
    class Slotted:
        __slots__ = ("mode", "scale")
        table: typing.ClassVar = {"a": 1.0, "b": 2.0}

    cfg = Slotted()
    cfg.mode, cfg.scale = "a", 1.0
    step = compile(lambda x: x * cfg.scale * cfg.table[cfg.mode])
    return calls(
        step,
        lambda: setattr(cfg, "scale", 2.0),
        lambda: setattr(cfg, "mode", "b"),
        lambda: setattr(Slotted, "table", {"b": 8.0}),
    )


@same_as_eager
def test_enums_and_flags(compile):
    class Phase(enum.IntEnum):
        WARM = 1
        MAIN = 2

    class Parts(enum.Flag):
        BODY = 1
        HEAD = 2

    run = Plain(phase=Phase.WARM, parts=Parts.BODY)
    step = compile(
        lambda x: x * run.phase * (3 if Parts.HEAD in run.parts else 1) + len(run.phase.name)
    )
    return calls(
        step,
        lambda: setattr(run, "phase", Phase.MAIN),
        lambda: setattr(run, "parts", Parts.BODY | Parts.HEAD),
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (decimal.Decimal("1.5"), decimal.Decimal("2.5")),
        (fractions.Fraction(1, 2), fractions.Fraction(3, 2)),
        (datetime.timedelta(seconds=1), datetime.timedelta(seconds=4)),
        (range(3), range(5)),
        (slice(0, 2), slice(1, 3)),
        (1 + 2j, 3 + 2j),
        (b"ab", b"cde"),
        (types.SimpleNamespace(v=1), types.SimpleNamespace(v=2)),
        (frozenset({1.0}), frozenset({2.0})),
    ],
    ids=lambda value: type(value).__name__,
)
@same_as_eager
def test_a_value_of_another_type(compile, first, second):
    def number(value):
        if isinstance(value, datetime.timedelta):
            return value.total_seconds()
        if isinstance(value, slice):
            return value.start + value.stop
        if isinstance(value, complex):
            return value.real
        if isinstance(value, types.SimpleNamespace):
            return value.v
        if isinstance(value, (range, bytes, frozenset)):
            return float(sum(value))
        return float(value)

    holder = Plain(value=first)
    step = compile(lambda x: x * number(holder.value))
    return calls(step, lambda: setattr(holder, "value", second))


@same_as_eager
def test_named_tuples_that_are_replaced(compile):
    class Options(typing.NamedTuple):
        scale: float = 1.0
        shift: float = 0.5

    holder = Plain(options=Options())
    step = compile(lambda x: x * holder.options.scale + holder.options[1])
    return calls(step, lambda: setattr(holder, "options", holder.options._replace(scale=2.0)))


@same_as_eager
def test_an_abstract_class_that_gets_a_member(compile):
    import abc

    class Scaled(abc.ABC):  # noqa: B024 - members are registered
        pass

    class Thing:
        pass

    thing = Thing()
    step = compile(lambda x: x * 2 if isinstance(thing, Scaled) else x)
    return calls(step, lambda: Scaled.register(Thing))


@same_as_eager
def test_the_getattr_of_a_metaclass(compile):
    class Meta(type):
        values: typing.ClassVar = {"gain": 1.0}

        def __getattr__(cls, name):
            return cls.values[name]

    class Settings(metaclass=Meta):
        pass

    step = compile(lambda x: x * Settings.gain)
    return calls(step, lambda: Meta.values.update(gain=2.0), lambda: setattr(Settings, "gain", 3.0))


@same_as_eager
def test_what_inspect_says_of_a_function(compile):
    def loss(y, weight=1.0):
        return y * weight

    holder = Plain(loss=loss)
    step = compile(lambda x: x * len(inspect.signature(holder.loss).parameters))
    return calls(step, lambda: setattr(holder, "loss", lambda y: y))


@same_as_eager
def test_the_name_of_an_objects_class(compile):
    class First:
        pass

    class Second:
        pass

    holder = Plain(thing=First())
    step = compile(lambda x: x * 2 if holder.thing.__class__.__name__ == "First" else x)
    return calls(step, lambda: setattr(holder, "thing", Second()))


# ------------------------------------------------------------------ functions and control flow


@same_as_eager
def test_generators_and_comprehensions(compile):
    parts = [Plain(v=1.0), Plain(v=2.0)]

    def values():
        yield from (part.v for part in parts)

    step = compile(lambda x: x * sum(values()) * max([part.v for part in parts]))
    return calls(step, lambda: setattr(parts[0], "v", 5.0), lambda: parts.append(Plain(v=9.0)))


@same_as_eager
def test_a_lookup_that_fails(compile):
    table = {}

    @compile
    def step(x):
        try:
            return x * table["k"]
        except KeyError:
            return x

    return calls(step, lambda: table.update(k=2.0))


@same_as_eager
def test_a_suppressed_attribute_error(compile):
    cfg = Plain()

    @compile
    def step(x):
        with contextlib.suppress(AttributeError):
            x = x * cfg.scale
        return x

    return calls(step, lambda: setattr(cfg, "scale", 2.0))


@same_as_eager
def test_a_context_manager_of_the_users(compile):
    cfg = Plain(v=1.0)

    @contextlib.contextmanager
    def scaled():
        yield cfg.v

    @compile
    def step(x):
        with scaled() as scale:
            return x * scale

    return calls(step, lambda: setattr(cfg, "v", 2.0))


@same_as_eager
def test_super_and_a_patched_base(compile):
    class Base:
        k = 1.0

        def f(self, x):
            return x * self.k

    class Derived(Base):
        def f(self, x):
            return super().f(x) * 2

    thing = Derived()
    step = compile(lambda x: thing.f(x))
    return calls(
        step,
        lambda: setattr(thing, "k", 3.0),
        lambda: setattr(Base, "f", lambda self, x: x * 9),
    )


@same_as_eager
def test_a_variable_of_an_enclosing_function(compile):
    scale = 1.0

    def change(value):
        nonlocal scale
        scale = value

    step = compile(lambda x: x * scale)
    return calls(step, lambda: change(2.0))


@same_as_eager
def test_a_decorators_own_setting(compile):
    cfg = Plain(v=1.0)

    def scaled(function):
        @functools.wraps(function)
        def wrapper(x):
            return function(x) * cfg.v

        return wrapper

    @scaled
    def f(x):
        return x * cfg.w if hasattr(cfg, "w") else x

    step = compile(lambda x: f(x))
    return calls(step, lambda: setattr(cfg, "v", 2.0), lambda: setattr(cfg, "w", 2.0))


@same_as_eager
def test_what_a_partial_holds(compile):
    weights = [2.0]
    scaled = functools.partial(lambda w, x, shift: x * w[0] + shift, weights, shift=1.0)
    step = compile(lambda x: scaled(x))
    return calls(
        step,
        lambda: weights.__setitem__(0, 3.0),
        lambda: scaled.keywords.update(shift=5.0),
    )


@same_as_eager
def test_functions_that_c_calls_back(compile):
    cfg = Plain(v=1.0)
    parts = [Plain(v=2.0), Plain(v=3.0)]
    step = compile(
        lambda x: (
            x * sorted(parts, key=lambda part: part.v * cfg.v)[0].v
            + sum(map(lambda part: part.v, parts))  # noqa: C417 - map is what is tested
            + functools.reduce(lambda a, part: a * part.v, parts, 1.0)
            + max(filter(lambda v: v < 100, itertools.accumulate(part.v for part in parts)))
        )
    )
    return calls(step, lambda: setattr(cfg, "v", -1.0), lambda: setattr(parts[1], "v", 0.5))


@same_as_eager
def test_any_all_zip_and_enumerate(compile):
    flags, weights = [True, True], [1.0, 2.0]

    @compile
    def step(x):
        total = x if all(flags) else -x
        for i, (flag, weight) in enumerate(zip(flags, weights, strict=True)):
            total = total + i * flag * weight
        return total

    return calls(step, lambda: flags.__setitem__(0, False), lambda: weights.__setitem__(1, 5.0))


@same_as_eager
def test_patterns_unpacking_and_keyword_arguments(compile):
    cfg, options, row = Config(), {"k": 1.0}, [1.0, 2.0]

    def scaled(x, k):
        return x * k

    @compile
    def step(x):
        first, *rest = row
        match cfg:
            case Config(mode="a"):
                return scaled(x, **options) * first + len(rest)
            case _:
                return x * 7

    return calls(
        step,
        lambda: options.update(k=2.0),
        lambda: row.__setitem__(0, 3.0),
        lambda: row.append(3.0),
        lambda: setattr(cfg, "mode", "b"),
    )


@same_as_eager
def test_a_coroutine_run_by_hand_and_recursion(compile):
    cfg = Plain(v=1.0, depth=3)

    async def scaled(x):
        return x * cfg.v

    def repeated(x, depth):
        return x if depth == 0 else repeated(x * cfg.v + 1, depth - 1)

    @compile
    def step(x):
        try:
            scaled(x).send(None)
        except StopIteration as end:
            return repeated(end.value, cfg.depth)

    return calls(step, lambda: setattr(cfg, "v", 2.0), lambda: setattr(cfg, "depth", 2))


@same_as_eager
def test_names_of_the_function_itself(compile):
    def step(x):
        return x * step.scale

    step.scale = 1.0
    compiled = compile(step)
    return calls(compiled, lambda: setattr(step, "scale", 2.0))


@same_as_eager(or_said=True)
def test_a_function_behind_a_cache(compile):
    cfg = Plain(v=1.0)

    @functools.lru_cache
    def scale():
        return cfg.v

    step = compile(lambda x: x * scale())
    results = [step(X), step(X)]
    cfg.v = 2.0
    results += [step(X)]
    scale.cache_clear()
    return [*results, step(X), step(X)]


@same_as_eager
def test_exec_of_a_users_expression(compile):
    cfg = Config()

    @compile
    def step(x):
        names = {"x": x, "cfg": cfg}
        exec("y = x * cfg.scale", names)
        return names["y"]

    return calls(step, lambda: setattr(cfg, "scale", 2.0))


@same_as_eager
def test_typed_and_ordered_dicts(compile):
    order = collections.OrderedDict(a=2.0, b=3.0)
    counts = collections.Counter(a=1)
    groups = collections.defaultdict(list, a=[1.0])
    step = compile(
        lambda x: (
            x * next(iter(order.values()))
            + counts["b"]
            + counts.most_common(1)[0][1]
            + sum(groups["a"])
            + len(groups["b"])
        )
    )
    return calls(
        step,
        lambda: order.move_to_end("a"),
        lambda: counts.update(b=1),
        lambda: counts.update(a=5),
        lambda: groups["b"].append(1.0),
    )


@same_as_eager
def test_containers_whose_class_has_methods_that_go_on_to_pythons_own(compile):
    class Settings(dict):
        def __getitem__(self, key):
            return super().__getitem__(key.lower())

        def __len__(self):
            return super().__len__() * 2

    class Scales(list):
        def __getitem__(self, index):
            return list.__getitem__(self, index) * 10

        def __iter__(self):
            return (item + 1 for item in super().__iter__())

        def __len__(self):
            return super().__len__() + 1

    settings, scales = Settings(lr=1.0, decay=2.0), Scales([1.0, 2.0])
    step = compile(
        lambda x: x * settings["LR"] + settings.get("decay") + scales[0] + sum(scales) + len(scales)
    )
    return calls(
        step,
        lambda: settings.update(lr=3.0),
        lambda: settings.update(decay=4.0),
        lambda: list.__setitem__(scales, 0, 5.0),
        lambda: scales.append(0.5),
    )


@same_as_eager
def test_an_element_of_a_users_sequence_module_list(compile):
    class Scaled(nn.Module):
        gain = 1.0

        def forward(self, x):
            return x * self.gain * cfg.scale

    cfg = Config()
    model = nn.Sequential(nn.Linear(3, 3), Scaled(), nn.Dropout(0.0))
    step = compile(lambda x: model(x))
    return calls(
        step,
        lambda: setattr(cfg, "scale", 2.0),
        lambda: setattr(model[1], "gain", 3.0),
        lambda: setattr(model[2], "p", 1.0),
    )


@same_as_eager
def test_a_getattr_of_lucid_by_name(compile):
    cfg = Plain(act="tanh")
    step = compile(lambda x: getattr(lucid, cfg.act)(x))
    return calls(step, lambda: setattr(cfg, "act", "exp"))


# ------------------------------------------------------------------ what code in C reads


class Slots:
    __slots__ = ("lr", "sizes")

    def __init__(self):
        self.lr, self.sizes = 1.0, [1, 2]


def by_rate(x, y):
    return x.lr - y.lr


def yields_from(row):
    yield from row


class Rows:
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        yield from self.rows


def state():
    """Values of the kinds that programs keep, nested."""

    class Shape:
        def __init__(self, n):
            self.n = n

        def __lt__(self, other):
            return self.n < other.n

        def area(self, by):
            return by

    parser = configparser.ConfigParser()
    parser.read_dict({"a": {"lr": "1"}})
    logger = logging.getLogger("border.handlers")
    logger.propagate, logger.handlers = False, [logging.NullHandler()]
    return types.SimpleNamespace(
        shape=Shape(1),
        parser=parser,
        logger=logger,
        plain=Plain(lr=1.0, sizes=[1, 2]),
        slots=Slots(),
        cfg={"lr": 1.0, "sizes": [1, 2]},
        rows=[[1, 2], [3, 4]],
        pairs=[["a", 1], ["b", 2]],
        last=collections.deque([1, 2, 3], 3),
        named={"a": [1, 2], "b": [3, 4]},
    )


READ_IN_C = {
    "a template's mapping": (lambda s: "%(lr)s" % s.cfg, lambda s: s.cfg.update(lr=2.0)),  # noqa: UP031
    "a template's tuple": (lambda s: "%s %s" % (s.rows, s.cfg), lambda s: s.rows[0].append(5)),  # noqa: UP031
    "an attribute in a format": (
        lambda s: "{p.lr}".format(p=s.plain),  # noqa: UP032
        lambda s: setattr(s.plain, "lr", 2.0),
    ),
    "an entry in a format": (
        lambda s: "{p.sizes[0]} {0}".format(s.plain.lr, p=s.plain),  # noqa: UP032
        lambda s: s.plain.sizes.__setitem__(0, 7),
    ),
    "an attribute in format_map": (
        lambda s: "{p.lr}".format_map({"p": s.slots}),
        lambda s: setattr(s.slots, "lr", 2.0),
    ),
    "the text of a namespace": (
        lambda s: f"{types.SimpleNamespace(a=s.rows)}",
        lambda s: s.rows[1].clear(),
    ),
    "texts by map": (lambda s: " ".join(map(repr, s.rows)), lambda s: s.rows[0].append(5)),
    "the text of a chain of maps": (
        lambda s: str(collections.ChainMap(s.cfg)),
        lambda s: s.cfg.update(lr=2.0),
    ),
    "texts of a view's values": (
        lambda s: sorted(map(str, s.cfg.values())),
        lambda s: s.cfg["sizes"].append(3),
    ),
    "attributes by map": (
        lambda s: sum(map(operator.attrgetter("lr"), [s.plain, s.slots])),
        lambda s: setattr(s.slots, "lr", 2.0),
    ),
    "several attributes": (
        lambda s: operator.attrgetter("lr", "sizes")(s.slots),
        lambda s: setattr(s.slots, "lr", 2.0),
    ),
    "a copy of an object with slots": (
        lambda s: copy.copy(s.slots).lr,
        lambda s: setattr(s.slots, "lr", 2.0),
    ),
    "a deep copy of one": (
        lambda s: copy.deepcopy([s.slots])[0].sizes,
        lambda s: s.slots.sizes.append(3),
    ),
    "nested lists compared": (
        lambda s: s.rows == [[1, 2], [3, 4]],
        lambda s: s.rows[1].append(5),
    ),
    "a list in a list": (lambda s: [3, 4] in s.rows, lambda s: s.rows[1].append(5)),
    "a list among values": (
        lambda s: [1, 2] in s.cfg.values(),
        lambda s: s.cfg["sizes"].append(5),
    ),
    "lists counted": (lambda s: s.rows.count([1, 2]), lambda s: s.rows[0].append(5)),
    "the largest list": (lambda s: max(s.rows), lambda s: s.rows[0].insert(0, 9)),
    "lists sorted by a function in C": (
        lambda s: [len(row) for row in sorted(s.rows, key=sum)],
        lambda s: s.rows[0].append(9),
    ),
    "elements of a deque by a star": (
        lambda s: max(*collections.deque(s.rows, 2)),
        lambda s: s.rows[0].insert(0, 9),
    ),
    "a deque by a star": (lambda s: max(*s.last), lambda s: s.last.append(7)),
    "values by a star": (
        lambda s: [*zip(*s.named.values(), strict=True)],
        lambda s: s.named["a"].__setitem__(0, 9),
    ),
    "the text of a partial function": (
        lambda s: repr(functools.partial(max, s.rows)).partition("max")[2],
        lambda s: s.rows[0].append(5),
    ),
    "lists added": (
        lambda s: functools.reduce(operator.add, s.rows),
        lambda s: s.rows[0].append(9),
    ),
    "pairs made a dict": (lambda s: dict(s.pairs), lambda s: s.pairs[0].__setitem__(1, 5)),
    "a dict updated with pairs": (
        lambda s: (found := {}, found.update(s.pairs))[0],
        lambda s: s.pairs[1].__setitem__(0, "c"),
    ),
    "a choice of a generator of the step's own": (
        lambda s: random.Random(0).choice(s.cfg["sizes"]),
        lambda s: s.cfg["sizes"].extend([7, 8, 9]),
    ),
    "one of NumPy's": (
        lambda s: np.random.default_rng(0).choice(s.cfg["sizes"]).item(),
        lambda s: s.cfg["sizes"].extend([7, 8, 9]),
    ),
    "lists that a generator gives, by a star": (
        lambda s: [*zip(*(row for row in s.rows), strict=True)],
        lambda s: s.rows[0].__setitem__(0, 9),
    ),
    "attributes by map, by a star": (
        lambda s: set().union(*map(operator.attrgetter("sizes"), [s.plain, s.slots])),
        lambda s: s.slots.sizes.append(7),
    ),
    "lists that a generator gives, chained": (
        lambda s: [*itertools.chain.from_iterable(row for row in s.rows)],
        lambda s: s.rows[0].append(9),
    ),
    "the first of lists that a generator gives": (
        lambda s: min(row for row in s.rows),
        lambda s: s.rows[0].__setitem__(0, 9),
    ),
    "whether all of some lists have entries": (
        lambda s: all(row for row in s.rows),
        lambda s: s.rows[1].clear(),
    ),
    "those of some lists that have entries": (
        lambda s: len([*filter(None, (row for row in s.rows))]),
        lambda s: s.rows[1].clear(),
    ),
    "lists added that a generator gives": (
        lambda s: functools.reduce(operator.add, (row for row in s.rows)),
        lambda s: s.rows[0].append(9),
    ),
    "a list in those that a generator gives": (
        lambda s: [1, 9] in (row for row in s.rows),
        lambda s: s.rows[0].__setitem__(slice(None), [1, 9]),
    ),
    "a list in an object that gives lists": (
        lambda s: [1, 9] in Rows(s.rows),
        lambda s: s.rows[0].__setitem__(slice(None), [1, 9]),
    ),
    "entries that a generator yields from a list": (
        lambda s: [*yields_from(s.rows[0])],
        lambda s: s.rows[0].append(9),
    ),
    "the largest by an attribute, of a generator": (
        lambda s: max((x for x in [s.plain, s.slots]), key=operator.attrgetter("lr")) is s.plain,
        lambda s: setattr(s.slots, "lr", 2.0),
    ),
    "a list sorted by an attribute": (
        lambda s: (
            (found := [s.plain, s.slots], found.sort(key=operator.attrgetter("lr")))
            and found[0] is s.plain
        ),
        lambda s: setattr(s.plain, "lr", 3.0),
    ),
    "groups by an attribute": (
        lambda s: len(
            [*itertools.groupby([s.plain, s.slots], key=operator.attrgetter("lr", "sizes"))]
        ),
        lambda s: (setattr(s.slots, "lr", s.plain.lr), s.slots.sizes.append(s.plain.sizes)),
    ),
    "groups by a function, by position": (
        lambda s: len([*itertools.groupby([s.plain, s.slots], lambda x: x.sizes)]),
        lambda s: s.slots.sizes.append(5),
    ),
    "attributes by a partial getattr": (
        lambda s: [*map(functools.partial(getattr, s.plain), ["lr"])],
        lambda s: setattr(s.plain, "lr", 2.0),
    ),
    "the largest by what a function returns": (
        lambda s: max([s.slots, s.plain], key=lambda x: x.sizes) is s.plain,
        lambda s: s.plain.sizes.append(7),
    ),
    "those for which a function returns any": (
        lambda s: len([*filter(lambda x: x.sizes, [s.plain, s.slots])]),
        lambda s: s.plain.sizes.clear(),
    ),
    "those up to one for which a function returns none": (
        lambda s: len([*itertools.takewhile(lambda x: x.sizes, [s.plain, s.slots])]),
        lambda s: s.plain.sizes.clear(),
    ),
    "objects sorted by comparing them": (
        lambda s: [x.n for x in sorted([s.shape, type(s.shape)(2)])],
        lambda s: setattr(type(s.shape), "__lt__", lambda self, other: self.n > other.n),
    ),
    "objects sorted by a function that compares": (
        lambda s: [x.lr for x in sorted([s.slots, s.plain], key=functools.cmp_to_key(by_rate))],
        lambda s: setattr(s.plain, "lr", -2.0),
    ),
    "the truth of an object": (
        lambda s: bool(s.shape),
        lambda s: setattr(type(s.shape), "__bool__", lambda self: False),
    ),
    "whether all objects are true": (
        lambda s: all([s.shape]),
        lambda s: setattr(type(s.shape), "__len__", lambda self: 0),
    ),
    "a path of attributes": (
        lambda s: functools.reduce(getattr, ["plain", "lr"], s),
        lambda s: setattr(s.plain, "lr", 2.0),
    ),
    "a method by its name": (
        lambda s: [*map(operator.methodcaller("area", by=2), [s.shape])],
        lambda s: setattr(type(s.shape), "area", lambda self, by: -by),
    ),
    "what a class has": (
        lambda s: [name for name in dir(s.shape) if name[0] != "_"],
        lambda s: setattr(type(s.shape), "width", 2),
    ),
    "all of a chain of maps": (
        lambda s: {**collections.ChainMap({}, s.cfg)},
        lambda s: s.cfg.update(new=2.0),
    ),
    "a section of a parser": (
        lambda s: dict(s.parser["a"]),
        lambda s: s.parser.set("a", "new", "1"),
    ),
    "whether a logger has handlers": (
        lambda s: s.logger.hasHandlers(),
        lambda s: s.logger.handlers.clear(),
    ),
}


@same_as_eager
def test_what_is_in_a_view_or_a_class_that_the_step_changes(compile):
    class Shape:
        made = 0

    table = {"n": 1}
    view = table.items()

    @compile
    def step(x):
        Shape.made += 1
        table["n"] += 2
        return x + vars(Shape)["made"], ("n", 5) in view, dict(view)

    return [*calls(step, lambda: table.update(n=9), lambda: setattr(Shape, "made", 5)), Shape.made]


@same_as_eager(or_said=True)
def test_a_number_of_a_class_that_is_read_from_its_dict_before(compile):
    class Shape:
        made = 0

    held = vars(Shape)

    @compile
    def step(x):
        Shape.made += 1
        return x + held["made"]

    return calls(step, lambda: setattr(Shape, "made", 5))


@same_as_eager(or_said=True)
def test_a_variable_of_the_environment_that_the_step_has_set(compile):
    cfg = Config()

    @compile
    def step(x):
        os.environ["BORDER_SET"] = str(cfg.scale)
        return x * float(os.getenv("BORDER_SET"))

    results = calls(step, lambda: setattr(cfg, "scale", 2.0))
    del os.environ["BORDER_SET"]
    return results


@same_as_eager(or_said=True)
def test_a_context_variable_that_was_not_set(compile):
    variable = contextvars.ContextVar("variable", default=1.0)

    @compile
    def step(x):
        before = variable.get(5.0)
        variable.set(variable.get() + 1)
        return x * before

    return contextvars.copy_context().run(calls, step, lambda: None)


@same_as_eager(or_said=True)
def test_a_mean_of_numbers_that_a_generator_gives(compile):
    values = [Plain(v=1.0), Plain(v=2.0)]
    step = compile(lambda x: x * statistics.mean(value.v for value in values))
    return calls(step, *(lambda v=v: setattr(values[0], "v", v) for v in (4.0, 5.0, 7.0)))


@pytest.mark.parametrize(("use", "change"), READ_IN_C.values(), ids=READ_IN_C)
@same_as_eager
def test_what_code_in_c_reads(compile, use, change):
    held = state()
    step = compile(lambda x: (use(held), x + 1))
    return calls(step, lambda: change(held))


@same_as_eager(traces=2)
def test_no_more_is_read_of_entries_than_a_function_in_python_reads(compile):
    rows = [{"lr": 1.0, "note": "a"}, {"lr": 2.0, "note": "b"}]
    step = compile(lambda x: x * max(rows, key=lambda row: row["lr"])["lr"])
    found = [step(X), step(X)]
    rows[0]["note"] = "c"
    found.append(step(X))
    rows[0]["lr"] = 3.0
    return [*found, step(X)]


# ------------------------------------------------------------------ what lucid's objects say


def made_net():
    lucid.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0), nn.LayerNorm(4))
    return net, lucid.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)


SAYS_SETTINGS = {
    "the text of a module": lambda net, opt: f"{net[1]} {net[2]!r}",
    "the text of a model": lambda net, opt: str(net),
    "a module's copy": lambda net, opt: str(copy.deepcopy(net)),
    "the text of an optimizer": lambda net, opt: str(opt),
    "the groups of a state dict": lambda net, opt: opt.state_dict()["param_groups"],
    "the text of a state dict": lambda net, opt: json.dumps(opt.state_dict()["param_groups"]),
    "a copy of a group": lambda net, opt: copy.copy(opt.param_groups[0])["lr"],
    "a copy of all groups": lambda net, opt: copy.deepcopy(opt.param_groups)[0]["weight_decay"],
    "a dict of a group": lambda net, opt: dict(opt.param_groups[0])["lr"],
    "a copy of the optimizer": lambda net, opt: copy.deepcopy(opt).param_groups[0]["lr"],
}


@pytest.mark.parametrize("says", SAYS_SETTINGS.values(), ids=SAYS_SETTINGS)
@same_as_eager(or_said=True)
def test_settings_that_library_objects_say(compile, says):
    net, opt = made_net()

    @compile
    def step(x):
        opt.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        opt.step()
        return loss, says(net, opt), net[0].weight.sum()

    group = opt.param_groups[0]
    changes = [lambda: group.update(lr=0.25), lambda: group.update(weight_decay=0.125)]
    changes += [lambda p=p: setattr(net[1], "p", p) for p in (0.0625, 0.125)]
    changes += [lambda: setattr(net[2], "eps", 0.5)]
    found = calls(step, *changes)
    text = says(net, opt)
    assert "0.25" in str(text) or "0.125" in str(text)
    return found


@same_as_eager(or_said=True)
def test_the_state_that_an_optimizer_says_it_has_before_its_first_step(compile):
    net, opt = made_net()

    @compile
    def step(x):
        opt.zero_grad()
        net(x).square().sum().backward()
        state = opt.state_dict()["state"]
        opt.step()
        return len(state), list(state)

    return [step(X), step(X), opt.state.clear(), step(X), step(X)]


# ------------------------------------------------------------------ in a backward walk


@same_as_eager
def test_hooks_of_a_walk_that_else_runs_unheard(compile):
    reset()

    def step(x):
        x = x.detach().requires_grad_()
        y = x.exp() * x
        y.register_hook(lambda g: g * K)
        y.grad_fn.register_prehook(lambda gs: (gs[0] + K,))
        y.grad_fn.register_hook(lambda inputs, outputs: tuple(g * K for g in inputs))
        (y * y).sum().backward()
        return x.grad

    return calls(compile(step), lambda: assign("K", 2.0), lambda: assign("K", 3.0))


@same_as_eager
def test_hooks_of_what_a_walk_looks_at(compile):
    reset()

    def step(x):
        x = x.detach().requires_grad_()
        with lucid.autograd.graph.saved_tensors_hooks(lambda t: t * K, lambda t: t + K):
            y = x * x
        (y.sin() * 2).sum().backward()
        return x.grad

    return calls(compile(step), lambda: assign("K", 2.0), lambda: assign("K", 3.0))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="no call of the library's is told there")
def test_little_of_what_the_library_does_is_heard(monkeypatch):
    heard, told = [0], events._Tracer.__call__

    def counted(self, *event):
        heard[0] += 1
        return told(self, *event)

    monkeypatch.setattr(events._Tracer, "__call__", counted)

    def traced(count):
        def step(x):
            y = x
            for factor in range(count):
                y = lucid.stack([y * x + factor, x])[0, :2]
            y.sum().backward()

        heard[0] = 0
        lucid.compile(step)(lucid.tensor([1.0, 2.0], requires_grad=True))
        return heard[0]

    traced(20), traced(30)  # modules are imported
    # Four calls a round, of public functions and operators, where machine code has begun to apply
    # ops or not; and four of the loop's.
    assert traced(30) - traced(20) <= 10 * (4 * 4 + 4)


@same_as_eager
def test_code_of_what_public_functions_are_given(compile):
    """Other calls of them run without events."""
    reset()

    class Place:
        def __index__(self):
            return int(K)

    def step(x):
        with lucid.autograd.graph.saved_tensors_hooks(lambda t: t * K, lambda t: t):
            y = lucid.exp(x.detach().requires_grad_())
        y.sum().backward()
        return x[Place()], x[: Place()], lucid.stack([x, x], Place()), y

    return calls(compile(step), lambda: assign("K", 0.0), lambda: assign("K", 1.0))


@same_as_eager()
def test_settings_that_a_module_says_itself(compile):
    """Not through repr(), but by the method that modules of the user's override for it."""
    drop, linear = nn.Dropout(0.5), nn.Linear(2, 3)
    step = compile(lambda x: (x + 1, drop.extra_repr(), linear.extra_repr()))
    found = []
    for p in (0.5, 0.25, 0.25, 0.75):
        drop.p, linear.in_features = p, 7 if p > 0.5 else 2
        found.append(step(lucid.zeros(2)))
    return found


@same_as_eager()
def test_a_function_that_gets_a_list_when_it_is_known(compile):
    """Once it has been called with a number, or with a tensor, all has been read of itself."""
    values, method = [1.0, 2.0, 3.0], lucid.Tensor.add

    def step(x):
        return method(x, 1.0) + lucid.tensor(1.0) + lucid.tensor(values) + method(x, K)

    return calls(
        compile(lambda x: step(x[:3])),
        lambda: values.__setitem__(1, 5.0),
        lambda: assign("K", 2.0),
        reset,
    )


@same_as_eager()
def test_a_class_that_registers_later(compile):
    """An abstract class is asked again, of what the step makes as well, and by a pattern."""

    class Shape(abc.ABC):  # noqa: B024
        """Whatever registers."""

    @typing.runtime_checkable
    class Sized(typing.Protocol):
        size: float

    class Made:
        pass

    class Matched:
        pass

    def step(x):
        match Matched():
            case Shape():
                x = x + 100
        return x * isinstance(Made(), Shape), x * isinstance(Made(), Sized)

    return calls(
        compile(step),
        lambda: Shape.register(Made),
        lambda: Shape.register(Matched),
        lambda: setattr(Made, "size", 1.0),
        lambda: delattr(Made, "size"),
    )


@same_as_eager(or_said=True)
def test_what_a_cache_says_of_itself(compile):
    cached = functools.lru_cache(lambda number: number + 1)
    step = compile(lambda x: x * cached(1) + cached.cache_info().currsize)
    return calls(step, lambda: cached(2), lambda: cached(3))


class Batch(typing.NamedTuple):
    """Data with a name for each part."""

    data: typing.Any
    size: int = 1


def kept_in_a_cache(data):
    cached = functools.lru_cache(lambda: data)
    cached()
    return cached


def in_a_module(data):
    module = types.ModuleType("settings")
    module.data = data
    return module


def in_a_group(data):
    optimizer = lucid.optim.SGD([lucid.ones(1, requires_grad=True)], lr=0.1)
    optimizer.param_groups[0]["data"] = data
    return optimizer


@pytest.mark.parametrize("make", [lambda: {"k": 2.0}, dict, lambda: np.array([2.0, 3.0])])
@pytest.mark.parametrize(
    ("put", "get"),
    [
        (Batch, lambda held: held.data),
        (lambda data: [Batch(Batch(data))], lambda held: held[0].data.data),
        (Batch, lambda held: getattr(held, held._fields[0])),
        (
            lambda data: contextvars.ContextVar("settings", default=data),
            lambda held: held.get(),
        ),
        (kept_in_a_cache, lambda held: held()),
        (in_a_module, lambda held: held.__dict__["data"]),
        (in_a_group, lambda held: held.param_groups[0]["data"]),
    ],
)
def test_data_of_which_nothing_tells_how_old_it_is(make, put, get):
    """Python's collector knows no arrays, nor dicts of numbers alone: who holds them is asked."""

    @same_as_eager
    def program(compile):
        data = make()
        held = put(data)

        def step(x):
            found = get(held)
            value = found.get("k", 1.0) if isinstance(found, dict) else found[0].item()
            return x * value + len(found)

        change = data.update if isinstance(data, dict) else lambda k: data.fill(k)
        return calls(compile(step), lambda: change(k=5.0), lambda: change(k=7.0))

    program()


@pytest.mark.parametrize("put", [lambda data: data, lambda data: (data, 1), lambda data: [data]])
def test_memory_in_a_group_of_an_optimizer_is_read_at_each_call(put):
    @same_as_eager(or_said=True)
    def program(compile):
        data = bytearray([2])
        optimizer = in_a_group(put(data))

        def step(x):
            found = optimizer.param_groups[0]["data"]
            return x * (found if isinstance(found, bytearray) else found[0])[0]

        def change(number):
            data[0] = number

        return calls(compile(step), lambda: change(5), lambda: change(7))

    program()


@pytest.mark.parametrize("make", [lambda: [2.0], lambda: np.array([2.0])])
def test_a_function_that_is_bound_to_data_is_called_with_what_stands_for_it(make):
    @same_as_eager
    def program(compile):
        data = make()
        count = types.MethodType(lambda data: data.__setitem__(0, data[0] + 1), data)

        def step(x):
            count()
            return x * float(data[0])

        return calls(compile(step), lambda: data.__setitem__(0, 5.0))

    program()


_MODULE = """
import numpy as np
import lucid

K, TABLE, ROWS, SCALE = 2.0, {"k": 3.0}, np.array([4.0]), lucid.ones(1) * 6


def shifted(x, by=1.0):
    return x + by
"""


def from_import(x):
    from late_package.settings import ROWS, SCALE, TABLE, K, shifted

    return shifted(x * K + TABLE["k"] + float(ROWS[0]) + SCALE)


def plain_import(x):
    import late_package.settings as of

    return of.shifted(x * of.K + of.TABLE["k"] + float(of.ROWS[0]) + of.SCALE)


def by_name(x):
    of = importlib.import_module("late_package.settings")
    return of.shifted(x * of.K + of.TABLE["k"] + float(of.ROWS[0]) + of.SCALE)


def of_a_package(x):
    from late_package import settings as of

    return of.shifted(x * of.K + of.TABLE["k"] + float(of.ROWS[0]) + of.SCALE)


def relative(x):
    return importlib.import_module("late_package").read(x)


@pytest.mark.parametrize("step", [from_import, plain_import, by_name, of_a_package, relative])
def test_a_module_that_a_step_is_the_first_to_import(step, tmp_path, monkeypatch):
    """What its code makes is none of the step's, though it was made within its first call."""
    package = tmp_path / "late_package"
    package.mkdir()
    (package / "settings.py").write_text(_MODULE)
    (package / "__init__.py").write_text(
        "def read(x):\n"
        "    from . import settings as of\n"
        "    return of.shifted(x * of.K + of.TABLE['k'] + float(of.ROWS[0]) + of.SCALE)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    @same_as_eager
    def program(compile):
        for name in ("late_package", "late_package.settings"):
            sys.modules.pop(name, None)

        def settings():
            return sys.modules["late_package.settings"]

        return calls(
            compile(step),
            lambda: setattr(settings(), "K", 9.0),
            lambda: settings().TABLE.update(k=8.0),
            lambda: settings().ROWS.fill(7.0),
            lambda: settings().SCALE.fill_(5.0),
            lambda: setattr(settings().shifted, "__defaults__", (3.0,)),
        )

    program()
    for name in ("late_package", "late_package.settings"):
        sys.modules.pop(name, None)


def test_a_relative_import_runs_no_module_that_has_that_name_alone(tmp_path, monkeypatch):
    (tmp_path / "late_package").mkdir()
    (tmp_path / "late_package" / "settings.py").write_text("K = 2.0")
    (tmp_path / "late_package" / "__init__.py").write_text(
        "import importlib\n"
        "def by_name(x):\n"
        "    return x * importlib.import_module('.settings', __name__).K\n"
        "def by_level(x):\n"
        "    return x * __import__('settings', globals(), None, ('K',), 1).K\n"
    )
    (tmp_path / "settings.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("by_name", "by_level"):
        package = importlib.import_module("late_package")
        assert lucid.compile(getattr(package, name))(lucid.ones(1)).item() == 2.0
        for module in ("late_package", "late_package.settings"):
            sys.modules.pop(module)
