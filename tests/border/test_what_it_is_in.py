"""Whatever holds a value, and however much it holds: a change is seen."""

from __future__ import annotations

import array
import collections
import heapq
import mmap
import queue
import types
from typing import NamedTuple

import numpy as np
import pytest
from border.harness import X, calls, same_as_eager

import lucid
from lucid import nn
from lucid.nn import functional as F

MANY = 600  # more than a small container's entries
LARGE = 20_000  # elements: more than 64 KiB


class Part:
    def __init__(self, v):
        self.v = v


# ------------------------------------------------------------------ sets and keys


class Key:
    """Equal to another one of the same number."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return self.number == other.number

    def __hash__(self):
        return hash(self.number)


class Unlike(Part):
    """Equal to itself alone."""


class Pair(NamedTuple):
    name: str
    number: int


@pytest.mark.parametrize("make", [Key, Unlike, Pair._make, frozenset], ids=str)
def test_keys_that_the_step_makes_hold_plain_numbers(make):
    """Each call has another number in its key, and Python's own int stays in the dict."""

    def kept(compile):
        table = {}

        @compile
        def step(x, number):
            key = make(
                ("n", number) if make == Pair._make else [number] if make is frozenset else number
            )
            table[key] = x.sum()
            return {key: x.sum()}

        made = [next(iter(step(X, i % 5))) for i in range(12)]
        return [[*map(content, keys)] for keys in (table, made)]

    def content(key):
        parts = key if isinstance(key, (tuple, frozenset)) else vars(key).values()
        return [(type(part), part) for part in parts]

    assert kept(lucid.compile) == kept(lambda step: step)


@pytest.mark.parametrize("kind", [set, frozenset, list, tuple, collections.deque])
@same_as_eager
def test_an_attribute_of_an_object_in_a_container(compile, kind):
    part = Part(1.0)
    parts = kind([part])
    step = compile(lambda x: x * sum(p.v for p in parts))
    return calls(step, lambda: setattr(part, "v", 2.0))


@same_as_eager
def test_another_object_in_a_set(compile):
    parts = {Part(1.0)}
    step = compile(lambda x: x * sum(part.v for part in parts))
    return calls(step, lambda: parts.add(Part(4.0)), parts.clear)


@same_as_eager
def test_objects_that_are_keys(compile):
    key = Part(1.0)
    table = {key: 2.0}
    step = compile(lambda x: x * sum(part.v * weight for part, weight in table.items()))
    return calls(step, lambda: setattr(key, "v", 2.0), lambda: table.update({key: 9.0}))


@pytest.mark.parametrize("kind", [Unlike, nn.Linear])
def test_a_key_that_counts_its_calls_is_the_same_one(kind):
    """While the step is traced its attributes are numbers and tensors of the trace."""

    def counted(compile):
        key, counts = kind(3, 3) if kind is nn.Linear else kind(3), {}
        key.steps, key.last = 0, None

        @compile
        def step(x):
            counts[key] = counts.get(key, 0) + 1
            key.steps += 1
            key.last = x.sum().detach()
            return x * key.steps

        found = [step(X * i).tolist() for i in range(5)]
        assert [*counts] == [key]
        return found, counts[key], key.steps, key.last.item()

    assert counted(lucid.compile) == counted(lambda step: step)


@same_as_eager
def test_parameters_in_a_set(compile):
    layers = [nn.Linear(3, 3) for _ in range(3)]
    frozen = {layers[0].weight}

    @compile
    def step(x):
        total = x.sum()
        for layer in layers:
            if layer.weight not in frozen:
                total = total + layer.weight.square().sum()
        return total

    return calls(step, lambda: frozen.add(layers[1].weight))


@same_as_eager
def test_an_object_in_a_frozen_set_of_groups(compile):
    part = Part(1.0)
    groups = {"body": frozenset({part}), "head": frozenset()}
    step = compile(lambda x: x * sum(p.v for group in groups.values() for p in group))
    return calls(step, lambda: setattr(part, "v", 2.0))


@same_as_eager
def test_whether_a_set_has_a_name(compile):
    names = {"bias"}
    step = compile(lambda x: x * 2 if "weight" in names else x)
    return calls(step, lambda: names.add("weight"), lambda: names.discard("weight"))


@same_as_eager
def test_nested_objects_in_tuples_of_keys(compile):
    part = Part(1.0)
    table = {("a", part): 1.0}
    step = compile(lambda x: x * sum(key[1].v for key in table))
    return calls(step, lambda: setattr(part, "v", 3.0))


# ------------------------------------------------------------------ many entries


@pytest.mark.parametrize(
    "read",
    [
        lambda row: row[5],
        lambda row: row[-595],
        sum,
        max,
        lambda row: sum(row[:10]),
        lambda row: sum(v for v in row if v > 0),
        lambda row: next(iter(row[5:])),
        lambda row: row.index(2.0) if 2.0 in row else 700,
        lambda row: row.count(1.0),
        lambda row: sorted(row)[-1],
        lambda row: float(np.asarray(row).sum()),
        lambda row: float(np.mean(row)),
        lambda row: lucid.tensor(row)[5],
    ],
    ids=[
        "item",
        "negative",
        "sum",
        "max",
        "slice",
        "loop",
        "iter",
        "index",
        "count",
        "sorted",
        "asarray",
        "mean",
        "tensor",
    ],
)
@same_as_eager
def test_a_long_list(compile, read):
    row = [1.0] * MANY
    step = compile(lambda x: x * read(row))
    return calls(step, lambda: row.__setitem__(5, 2.0))


@same_as_eager
def test_the_length_of_a_long_list(compile):
    row = [1.0] * MANY
    step = compile(lambda x: x * sum(row[len(row) - 3 :]))
    return calls(step, lambda: row.append(5.0))


@same_as_eager
def test_an_object_in_a_long_list(compile):
    parts = [Part(1.0) for _ in range(MANY)]
    step = compile(lambda x: x * parts[555].v)
    return calls(step, lambda: setattr(parts[555], "v", 2.0))


@pytest.mark.parametrize(
    "read",
    [
        lambda table: table["w5"],
        lambda table: table.get("w5"),
        lambda table: sum(table.values()),
        lambda table: len({v for _, v in table.items()}),
        lambda table: {**table}["w5"],
    ],
    ids=["item", "get", "values", "items", "copy"],
)
@same_as_eager
def test_a_long_dict(compile, read):
    table = dict.fromkeys((f"w{i}" for i in range(MANY)), 1.0)
    step = compile(lambda x: x * read(table))
    return calls(step, lambda: table.update(w5=2.0))


@same_as_eager
def test_a_word_that_a_long_dict_gets(compile):
    table = {f"w{i}": i for i in range(MANY)}
    step = compile(lambda x: x * table.get("new", 1.0) + ("newer" in table) + len(table))
    return calls(step, lambda: table.update(new=5.0), lambda: table.update(newer=1))


@pytest.mark.parametrize(
    "read",
    [sum, lambda row: row[599], lambda row: row[299], lambda row: sum(list(row)[590:])],
    ids=["sum", "last", "item", "list"],
)
@same_as_eager
def test_a_long_deque(compile, read):
    row = collections.deque([1.0] * MANY, MANY)
    step = compile(lambda x: x * read(row))

    def change():
        row[300] = 3.0
        row.append(2.0)

    return calls(step, change)


@pytest.mark.parametrize(
    "read",
    [lambda s: len(s), lambda s: 2.0 if -1 in s else 1.0, sum, lambda s: len(s & {-1, 0})],
    ids=["len", "in", "sum", "and"],
)
@same_as_eager
def test_a_long_set(compile, read):
    numbers = set(range(MANY))
    step = compile(lambda x: x * read(numbers))
    return calls(step, lambda: numbers.update({-1, -2}) or numbers.discard(7))


@same_as_eager
def test_a_dict_of_many_words_one_item_of_which_is_read(compile):
    table = {f"w{i}": float(i) for i in range(30_000)}
    step = compile(lambda x: x * table["w5"] + table.get("w6"))
    return calls(step, lambda: table.update(w5=7.0), lambda: table.update(w6=9.0))


@same_as_eager
def test_a_heap_and_a_table_of_rows(compile):
    heap = [float(i) for i in range(MANY)]
    rows = [(i, float(i)) for i in range(MANY)]
    step = compile(lambda x: x * (heap[0] + 1) + rows[-1][1])
    return calls(step, lambda: heapq.heappop(heap), lambda: rows.append((0, 3.0)))


# ------------------------------------------------------------------ arrays


@pytest.mark.parametrize(
    "read",
    [
        lambda a: float(a[7]),
        lambda a: a[7].item(),
        lambda a: a.item(7),
        lambda a: a.tolist()[7],
        lambda a: float(a[5:9].max()),
        lambda a: float(a.reshape(-1, 100)[0, 7]),
        lambda a: float(a.mean()) * 1e4,
        lambda a: float(np.dot(a, a)),
        lambda a: int(np.argmax(a)) + 1,
        lambda a: 2.0 if (a > 1).any() else 1.0,
        lambda a: float(np.quantile(a, 1.0)),
        lambda a: sum(v for v in a[:10]),
        lambda a: float(a.T.flat[7]),
        lambda a: float(a.data[7]),
        lambda a: float(np.asarray(memoryview(a))[7]),
    ],
    ids=[
        "float",
        "item",
        "item_of",
        "tolist",
        "slice",
        "reshape",
        "mean",
        "dot",
        "argmax",
        "any",
        "quantile",
        "loop",
        "flat",
        "data",
        "view",
    ],
)
@pytest.mark.parametrize("size", [100, LARGE])
@same_as_eager
def test_an_array_of_numpy(compile, size, read):
    data = np.ones(size)
    step = compile(lambda x: x * read(data))
    return calls(step, lambda: data.__setitem__(7, 5.0))


INDEXED = {
    "a_list": lambda x, t, a, at, rows: t[at] * x,
    "a_list_of_an_axis": lambda x, t, a, at, rows: t[:, at] * x[:2],
    "by_numpy": lambda x, t, a, at, rows: lucid.from_numpy(a[:, at]) * x[:2],
    "written": lambda x, t, a, at, rows: t.clone().index_fill_(0, lucid.tensor(at), 2.0) * x,
    "an_entry_set": lambda x, t, a, at, rows: setitem(t.clone(), (slice(None), at), 2.0) * x,
    "by_numpy_set": lambda x, t, a, at, rows: lucid.from_numpy(setitem(a, (0, at), 2.0)) * x,
    "rows_set": lambda x, t, a, at, rows: lucid.from_numpy(setitem(a, slice(None), rows)) * x,
}


def setitem(owner, index, value):
    owner[index] = value
    return owner


@pytest.mark.parametrize("name", INDEXED)
@same_as_eager
def test_lists_in_an_index_and_rows_that_are_stored(compile, name):
    at, rows = [0, 1], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]
    table = lucid.tensor(rows)

    def change():
        at[0] = 2
        rows[0][0] = 5.0

    @compile
    def step(x):
        made = np.arange(9, dtype="f4").reshape(3, 3) - 1
        return INDEXED[name](x, table, made, at, rows)

    return calls(step, change)


READ_TWICE = {
    "summed": lambda x, a: x * lucid.from_numpy(a) + float(a.sum()),
    "an_element_first": lambda x, a: float(a[0]) + x * lucid.from_numpy(a),
    "a_branch": lambda x, a: x * lucid.from_numpy(a) + (1 if a[0] > 1 else 2),
    "a_product": lambda x, a: x * lucid.from_numpy(a) + lucid.from_numpy(a * 2),
    "iterated": lambda x, a: x * lucid.from_numpy(a) * len([v for v in a if v > 1]),
    "a_view": lambda x, a: x * lucid.from_numpy(a) + float(a[:2].sum()),
    "another_view": lambda x, a: x[:2] * lucid.from_numpy(a[1:]) + float(a.reshape(-1)[0]),
    "a_copy": lambda x, a: x * lucid.from_numpy(a) + lucid.from_numpy(a.astype("f8")),
    "sizes": lambda x, a: x.reshape(a.shape) * lucid.tensor(a) + lucid.zeros(int(a[0]) + 3)[:3],
}


@pytest.mark.parametrize("name", READ_TWICE)
@same_as_eager
def test_an_array_that_is_a_tensor_and_read_by_python(compile, name):
    data = np.ones(3, "f4")
    step = compile(lambda x: READ_TWICE[name](x, data))
    return calls(step, lambda: data.__setitem__(0, 5.0))


LOOKED_AT_BY_INDEXING = {
    "a_mask": lambda x, a, ints: x[a].sum() + lucid.from_numpy(a),
    "a_mask_behind_it": lambda x, a, ints: lucid.from_numpy(a) * x[a].sum(),
    "a_mask_of_a_view": lambda x, a, ints: x[:2][a[:2]].sum() + lucid.from_numpy(a),
    "a_mask_that_is_set": lambda x, a, ints: setitem(x.clone(), a, 9.0) * lucid.from_numpy(a),
    "places_of_no_dtype": lambda x, a, ints: x[ints] + lucid.from_numpy(ints.view("i2")),
}


@pytest.mark.parametrize("name", LOOKED_AT_BY_INDEXING)
@same_as_eager
def test_an_array_that_is_a_tensor_and_read_by_indexing(compile, name):
    mask, ints = np.array([True, False, False]), np.array([0, 1, 2], "u2")
    step = compile(lambda x: LOOKED_AT_BY_INDEXING[name](x, mask, ints))

    def change():
        mask[:] = np.roll(mask, 1)
        ints[:] = np.roll(ints, 1)

    return calls(step, change, change)


BY_THE_LIBRARY_ALONE = {
    "whole": lambda x, a, ints: x * lucid.from_numpy(a[0]) + lucid.tensor(a[1]),
    "in_part": lambda x, a, ints: x * lucid.from_numpy(a[1:2]).sum(0) + lucid.from_numpy(a.T).sum(),
    "labels": lambda x, a, ints: F.cross_entropy(lucid.from_numpy(a) * x, lucid.from_numpy(ints)),
    "places": lambda x, a, ints: x[ints].sum() + lucid.from_numpy(ints.reshape(-1)[1:]).sum(),
}


@pytest.mark.parametrize("name", BY_THE_LIBRARY_ALONE)
@same_as_eager(traces=1)
def test_an_array_that_the_library_alone_reads_is_read_at_each_call(compile, name):
    data, ints = np.ones((2, 3), "f4"), np.array([0, 1])
    step = compile(lambda x: BY_THE_LIBRARY_ALONE[name](x, data, ints))

    def change():
        data[:, 1:] *= 3.0
        ints[:] = (ints + 1) % 3

    return calls(step, change, change)


@same_as_eager
def test_a_view_of_a_large_array(compile):
    data = np.ones(LARGE)
    window = data[100:200]
    step = compile(lambda x: x * float(window[0]))
    return calls(step, lambda: data.__setitem__(100, 5.0))


@same_as_eager
def test_a_large_array_that_is_replaced(compile):
    holder = Part(np.ones(LARGE))
    step = compile(lambda x: x * float(holder.v[0]))
    return calls(step, lambda: setattr(holder, "v", np.full(LARGE, 3.0)))


@same_as_eager
def test_a_table_of_integers_that_indexes(compile):
    order = np.arange(LARGE)
    step = compile(lambda x: x[int(order[0]) % 3] * int(order[1]))
    return calls(step, lambda: order.__setitem__(0, 1), lambda: order.__setitem__(1, 5))


@same_as_eager
def test_a_structured_array(compile):
    table = np.zeros(3, dtype=[("w", "f8"), ("n", "i4")])
    table["w"] = 1.0
    step = compile(lambda x: x * float(table["w"][0]) + int(table[1]["n"]))
    return calls(step, lambda: table["w"].__setitem__(0, 2.0), lambda: table["n"].__setitem__(1, 3))


@same_as_eager
def test_an_array_of_objects(compile):
    parts = np.array([Part(1.0), Part(2.0)], dtype=object)
    step = compile(lambda x: x * parts[0].v + sum(part.v for part in parts))
    return calls(
        step,
        lambda: setattr(parts[0], "v", 5.0),
        lambda: parts.__setitem__(1, Part(9.0)),
    )


@same_as_eager
def test_arrays_of_other_kinds(compile):
    record = np.rec.array([(1.0, 2)], dtype=[("w", "f8"), ("n", "i4")])
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    times = np.array(["2020-01-01", "2020-01-03"], dtype="M8[D]")
    scalar = np.array(1.0)
    step = compile(
        lambda x: (
            x * float(record.w[0])
            + float(masked.sum())
            + int((times[1] - times[0]).astype(int))
            + float(scalar)
        )
    )
    return calls(
        step,
        lambda: record.w.__setitem__(0, 3.0),
        lambda: masked.mask.__setitem__(1, False) or masked.__setitem__(1, 7.0),
        lambda: times.__setitem__(1, np.datetime64("2020-02-01")),
        lambda: scalar.__setitem__((), 9.0),
    )


@same_as_eager
def test_the_shape_and_flags_of_an_array(compile):
    data = np.ones((2, 3))
    step = compile(lambda x: x * data.shape[0] * (2 if data.flags.writeable else 1))
    return calls(
        step,
        lambda: data.resize((3, 2), refcheck=False),
        lambda: setattr(data.flags, "writeable", 0),
    )


@pytest.mark.parametrize("size", [3, LARGE])
@pytest.mark.parametrize(
    "make",
    [
        lambda n: array.array("d", [1.0] * n),
        lambda n: bytearray(b"\x01" * n),
        lambda n: memoryview(bytearray(b"\x01" * n)),
        lambda n: memoryview(array.array("d", [1.0] * n)),
        lambda n: memoryview(np.ones(n)),
        lambda n: mmap.mmap(-1, n),
    ],
    ids=["array", "bytearray", "memoryview", "view_of_array", "view_of_numpy", "mmap"],
)
@same_as_eager(or_said=True)
def test_a_buffer(compile, make, size):
    data = make(size)
    step = compile(lambda x: x * data[2])
    return calls(step, lambda: data.__setitem__(2, 5))


@same_as_eager(or_said=True)
def test_a_memoryview_of_what_another_name_holds(compile):
    data = array.array("d", [1.0, 2.0])
    view = memoryview(data)
    step = compile(lambda x: x * view[0] + sum(view))
    return calls(step, lambda: data.__setitem__(0, 5.0))


@same_as_eager
def test_an_array_as_a_mask_in_python(compile):
    keep = np.ones(3, bool)
    step = compile(lambda x: sum((x[i] * (i + 1) for i in range(3) if keep[i]), x[0]))
    return calls(step, lambda: keep.__setitem__(1, False))


@same_as_eager(or_said=True)
def test_what_waits_in_a_queue(compile):
    waiting = queue.Queue()
    step = compile(lambda x: x * waiting.qsize())
    return calls(step, lambda: waiting.put(1), lambda: waiting.put(1))


@same_as_eager
def test_containers_in_containers(compile):
    tree = {"a": [{"b": (1.0, [2.0])}]}
    step = compile(lambda x: x * tree["a"][0]["b"][1][0])
    return calls(
        step,
        lambda: tree["a"][0]["b"][1].__setitem__(0, 3.0),
        lambda: tree["a"].__setitem__(0, {"b": (0, [7.0])}),
    )


# ------------------------------------------------------------------ a model of many blocks

BLOCKS = 70


class Block(nn.Module):
    """A block as of a transformer; most of them are skipped, as in layer drop."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(2)
        self.dense = nn.Linear(2, 2)
        self.register_buffer("shift", lucid.zeros(2))
        self.gain = 1.0
        self.slopes = [2.0**-i for i in range(300)]
        self.options = {"residual": True, "skipped": True, "names": ["a", "b"]}

    def forward(self, x):
        if self.options["skipped"]:
            return x
        y = self.dense(self.norm(x)) * self.gain * self.slopes[0] + self.shift
        return x + 0.1 * y if self.options["residual"] else y


def freeze(block):
    block.dense.weight.requires_grad_(False)


def replace_data(block):
    block.dense.weight.data = block.dense.weight.data * 3 + 1


def add_hook(block):
    block.dense.register_forward_hook(lambda module, args, output: output * 3 + 1)


def add_pre_hook(block):
    block.register_forward_pre_hook(lambda module, args: (args[0] * 3 + 1,))


def replace_layer(block):
    block.dense = nn.Linear(2, 2)


def replace_buffer(block):
    block.shift = lucid.ones(2) * 3


def change_gain(block):
    block.gain = 7.0


def change_options(block):
    block.options["residual"] = False


def change_slopes(block):
    block.slopes[0] = 5.0


def change_eps(block):
    block.norm.eps = 10.0


def replace_forward(block):
    block.dense.forward = lambda x: x * 3 + 1


def hook_a_parameter(block):
    block.dense.bias.register_hook(lambda grad: grad * 3 + 1)


@pytest.mark.parametrize(
    "change",
    [
        freeze,
        replace_data,
        add_hook,
        add_pre_hook,
        replace_layer,
        replace_buffer,
        change_gain,
        change_options,
        change_slopes,
        change_eps,
        replace_forward,
        hook_a_parameter,
    ],
    ids=lambda change: change.__name__,
)
@same_as_eager
def test_a_late_block_of_many(compile, change):
    model = nn.Sequential(*(Block() for _ in range(BLOCKS)))
    model[-1].options["skipped"] = False

    @compile
    def step(x):
        loss = model(x).square().sum()
        trained = [p for p in model[-1].parameters() if p.requires_grad]
        return [loss.detach(), *lucid.autograd.grad(loss, trained, allow_unused=True)]

    x = lucid.tensor([1.0, 2.0])
    return calls(step, lambda: change(model[-1]), args=(x,))


@same_as_eager
def test_a_late_entry_of_many_objects(compile):
    notes = [types.SimpleNamespace(level=1.0, tags=[1.0, 2.0, 3.0]) for _ in range(6000)]
    step = compile(lambda x: x * notes[0].level * notes[5999].level + notes[5998].tags[2])
    return calls(
        step,
        lambda: setattr(notes[5999], "level", 3.0),
        lambda: notes[5998].tags.__setitem__(2, 8.0),
    )


@same_as_eager
def test_a_number_that_is_read_after_many_others(compile):
    table = {f"group{i}": {f"k{j}": 1.0 for j in range(100)} for i in range(250)}
    last = types.SimpleNamespace(scale=1.0)

    @compile
    def step(x):
        total = 0.0
        for group in table.values():
            total += sum(group.values())
        return x * total * last.scale

    return calls(
        step,
        lambda: setattr(last, "scale", 2.0),
        lambda: table["group249"].update(k99=500.0),
    )


@same_as_eager
def test_the_arguments_own_containers(compile):
    batch = {"weights": [1.0] * MANY, "x": X}
    step = compile(lambda batch: batch["x"] * sum(batch["weights"]))
    return calls(step, lambda: batch["weights"].__setitem__(7, 5.0), args=(batch,))
