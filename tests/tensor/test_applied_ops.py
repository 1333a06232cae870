"""Ops of eager mode by machine code: what they leave is what Python leaves."""

from __future__ import annotations

import gc
import math
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.autograd import native
from lucid.autograd.native import op_by_op, row_major
from lucid.autograd.node import OpNode
from lucid.autograd.rules import Derivative
from lucid.autograd.saved import SavedTensor
from lucid.ir import ops
from lucid.ir.op import OPS, Op, Sample, Trait, ops_with
from lucid.ir.types import f32, shared_type
from lucid.nn import functional as F
from lucid.runtime.entry.common import Common
from lucid.tensor import applied as applied_ops, core, slow_ops
from lucid.tensor.applied import applied
from lucid.tensor.context import context
from lucid.tensor.core import emit

found = applied()
pytestmark = pytest.mark.skipif(found is None, reason="objects look different here")


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Machine code applies ops from the first one on, when they come for the second time."""
    assert found is not None
    monkeypatch.setattr(applied_ops, "APART", 0)
    monkeypatch.setattr(applied_ops, "TIMES", 1)
    monkeypatch.setattr(core, "natively", found.function)
    monkeypatch.setattr(core, "call", found.call)
    yield


def in_python(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Any]) -> Any:
    with monkeypatch.context() as patched:
        patched.setattr(core, "natively", core.leave_to_python)
        patched.setattr(core, "call", core.leave_call)
        return run()


def warm(op: Op, operands: Any, attributes: dict[str, Any]) -> None:
    """Let the op be known, for as many operands that require grad as may be."""
    for _ in range(4):
        core.apply_op(op, operands, attributes)


def is_native(op: Op, operands: Any, attributes: dict[str, Any]) -> bool:
    made = core.natively(op, operands, attributes)
    return made is not None and made is not core.MISSED


def slots(value: Any, left_out: tuple[str, ...] = ()) -> dict[str, Any]:
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    kept = [name for name in names if not name.startswith("__") and name not in left_out]
    return {name: getattr(value, name) for name in kept}


def described(value: Any) -> Any:
    """What an object is made of, in a form that two calls have in common."""
    if isinstance(value, lucid.Tensor):
        own = slots(value, ("_spot", "_array", "_storage", "_counter", "_grad_fn", "_base"))
        return {
            **{name: described(part) for name, part in own.items()},
            "array": (
                value._array.dtype,
                value._array.tobytes(),
                value._array.size and value._array.strides,
            ),
            "storage": value._storage.root_type,
            "count": value._counter.now,
            "base": id(value._base),
            "node": described(value._grad_fn),
        }
    if type(value) is OpNode:
        own = slots(value, ("_sequence", "_spot", "_ends", "_derivative"))
        own["derivative"] = value.derivative
        ends = [end if end is None else (type(end), id(end)) for end in value._ends]
        return {**{name: described(part) for name, part in own.items()}, "ends": ends}
    if type(value) is SavedTensor:
        kept = slots(value, ("tensor",))
        same = value.tensor if value.output_nr < 0 else described(value.tensor)
        return {**kept, "tensor": id(same) if value.output_nr < 0 else same}
    if type(value) is Derivative:  # the look-up of these may have dropped one, and made another
        return value.types, value.needed
    if isinstance(value, dict):
        return {key: described(part) for key, part in value.items()}
    return value


def leaves(sample: Sample, dtype: Any, requires_grad: bool) -> list[lucid.Tensor]:
    rng = np.random.default_rng(0)
    low, high = sample.domain or (-2.0, 2.0)
    made = []
    for operand in sample.operands:
        given = operand
        if isinstance(given, tuple):
            given = rng.uniform(low, high, given).astype(dtype.numpy)
        tensor = lucid.from_numpy(np.array(given))
        if requires_grad and tensor.dtype.is_floating_point:
            tensor.requires_grad_()
        made.append(tensor)
    return made


def test_two_ops_with_one_slot_are_both_known() -> None:
    """Ops that aren't on elements: one record would serve those of all types."""
    assert found is not None
    along: dict[str, Any] = {"axes": (0,)}
    known: dict[int, lucid.Tensor] = {}
    for size in range(1, 1000):
        x = lucid.ones(size, 1, 3, 1, 2)
        core.natively(ops.sum, (x,), along)
        other = known.setdefault(int(found._plan[Common.SLOT]), x)
        if other is not x:
            break
    assert other is not x
    for each in other, x, other, x:
        core.apply_op(ops.sum, (each,), along)
    slot = int(found._plan[Common.SLOT])
    there = [found._records[place] for place in (slot, slot ^ 1)]
    assert {record._known.types for record in there if record} == {(other._type,), (x._type,)}
    assert is_native(ops.sum, (other,), along)
    assert is_native(ops.sum, (x,), along)


def test_an_op_stays_known_though_many_other_shapes_came_between() -> None:
    along: dict[str, Any] = {"axes": (0,)}
    first = lucid.ones(25, 3)
    warm(ops.sum, (first,), along)
    assert is_native(ops.sum, (first,), along)
    del first
    for size in range(5000):
        shared_type(f32, (size, 3, 1))
    again = lucid.ones(25, 3)
    warm(ops.sum, (again,), along)
    assert is_native(ops.sum, (again,), along)


APPLIED = [op for op in OPS.values() if op.samples and op.kind not in ("host", "region")]


@pytest.mark.parametrize("is_of_any", [False, True], ids=["its types", "any types"])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("op", APPLIED, ids=lambda op: op.name)
def test_objects_are_as_python_makes_them(
    op: Op, requires_grad: bool, is_of_any: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the record of the op on such operands, or on as many of any types."""
    if is_of_any:
        monkeypatch.setattr(applied_ops, "APART", 1 << 40)
    for sample in op.samples:
        operands = tuple(leaves(sample, lucid.float32, requires_grad))

        def call(operands: Any = operands, sample: Any = sample) -> Any:
            return described(core.apply_op(op, operands, dict(sample.attributes)))

        try:
            expected = in_python(monkeypatch, call)
        except lucid.LucidError as error:
            for _ in range(4):
                with pytest.raises(type(error)):
                    call()
            continue
        for _ in range(4):
            assert call() == expected


def test_what_is_usual_is_applied_by_machine_code() -> None:
    x, w = lucid.ones(2, 3, requires_grad=True), lucid.ones(2, 3)
    y = x * w
    for op, operands, attributes in (
        (ops.add, (x, w), {}),
        (ops.mul, (y, y), {}),
        (ops.exp, (y,), {}),
        (ops.sum, (y,), {"axes": (1,)}),
        (ops.transpose, (y,), {"perm": (1, 0)}),
        (ops.slice, (w,), {"starts": (0, 1), "stops": (2, 2), "steps": (1, 1)}),
        (ops.windows, (w,), {"axes": (1,), "sizes": (2,), "steps": (1,), "dilations": (1,)}),
        (ops.lt, (x, w), {}),
        (ops.add, (lucid.nn.Parameter(w), w), {}),
        (ops.concat, (x, w, y, w, x), {"axis": 0}),
    ):
        warm(op, operands, attributes)
        assert is_native(op, operands, attributes), op


@pytest.mark.parametrize("count", [8, 9, 32, 33])
@pytest.mark.parametrize("wanted", ["none", "all", "first", "last"])
def test_many_operands(count: int, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [lucid.full((2, 3), float(n)) for n in range(count)]
    asked = {"none": [], "all": parts, "first": parts[:1], "last": parts[-1:]}[wanted]
    for part in asked:
        part.requires_grad_()

    def call() -> Any:
        return described(core.apply_op(ops.concat, tuple(parts), {"axis": 1}))

    expected = in_python(monkeypatch, call)
    for _ in range(4):
        assert call() == expected
    is_known = count <= 8 or (count <= 32 and wanted in ("none", "all"))
    assert is_native(ops.concat, tuple(parts), {"axis": 1}) == is_known


@pytest.mark.parametrize("count", [2, 12, 40])
@pytest.mark.parametrize("join", [lucid.cat, lucid.stack, lucid.hstack])
def test_gradients_of_what_is_joined_have_memory_of_their_own(
    count: int, join: Callable[..., lucid.Tensor]
) -> None:
    parts = [lucid.full((3, 2), float(n), requires_grad=True) for n in range(count)]
    weights = lucid.arange(count * 6.0)
    split = np.hsplit if join is lucid.hstack else np.split
    for _ in range(3):
        joined = join([parts[0], parts[1] * 1.0, *parts[2:]])
        weighted = weights.reshape(joined.shape)
        (joined * weighted).sum().backward()
        for part, row in zip(parts, split(weighted.numpy(), count), strict=True):
            assert part.grad is not None
            np.testing.assert_array_equal(part.grad.numpy(), row.reshape(3, 2))
            whole: Any = part.grad._array
            while whole.base is not None:
                whole = whole.base
            assert whole.size == part._type.size
            part.grad = None


def test_what_is_to_be_seen_is_left_to_python() -> None:
    x, w = lucid.ones(2, requires_grad=True), lucid.ones(2)
    warm(ops.mul, (x, w), {})
    assert is_native(ops.mul, (x, w), {})
    with lucid.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        assert not is_native(ops.mul, (x, w), {})
    seen: list[bool] = []

    def example(v: lucid.Tensor) -> lucid.Tensor:
        seen.append(is_native(ops.mul, (x, w), {}))
        return v

    lucid.vmap(example)(x)
    assert seen == [False]
    context.forward = object()  # type: ignore[assignment]
    try:
        assert not is_native(ops.mul, (x, w), {})
    finally:
        context.forward = None
    base = lucid.ones(2, 2)
    row = base[0]
    warm(ops.mul, (row, w), {})
    base.mul_(x)  # the row's history is to be derived anew
    assert not is_native(ops.mul, (row, w), {})
    assert (row * w).requires_grad


def test_other_threads_are_in_modes_of_their_own() -> None:
    x = lucid.ones(3, requires_grad=True)
    warm(ops.exp, (x,), {})
    flags = []

    def other() -> None:
        with lucid.no_grad():
            for _ in range(50):
                flags.append(core.apply_op(ops.exp, (x,), {}).requires_grad)  # type: ignore[attr-defined]

    threads = [threading.Thread(target=other) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert core.apply_op(ops.exp, (x,), {}).requires_grad  # type: ignore[attr-defined]
    assert flags == [False] * 150


def test_errors_name_operands_and_the_users_line() -> None:
    table = lucid.ones(4, 2)
    right, wrong = lucid.tensor([1, 2]), lucid.tensor([1, 9])
    for _ in range(4):
        table[right]
    with pytest.raises(lucid.LucidError, match=r"index 9 is out of bounds(.|\n)*test_applied_ops"):
        table[wrong]


def test_an_interrupt_in_an_op_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arrays: Any, **attributes: Any) -> Any:
        raise KeyboardInterrupt

    op = Op("interrupted", ops.exp.infer, interrupted)
    with pytest.raises(KeyboardInterrupt):
        core.apply_op(op, (lucid.ones(2),), {})
    calm = Op("calm", ops.exp.infer, lambda x: raising[0](x))
    raising: list[Any] = [np.exp]
    x = lucid.ones(2)
    warm(calm, (x,), {})
    assert is_native(calm, (x,), {})
    raising[0] = interrupted
    with pytest.raises(KeyboardInterrupt):
        core.apply_op(calm, (x,), {})


def test_nothing_is_kept_alive_and_nothing_is_dropped_twice() -> None:
    x, w = lucid.ones(3, 4, requires_grad=True), lucid.ones(3, 4, requires_grad=True)

    def run(times: int) -> None:
        for _ in range(times):
            y = (x * w + x).exp()
            y[1].view(2, 2).transpose(0, 1).sum().backward()
            x.grad = w.grad = None

    def counts() -> list[int]:
        while gc.collect():  # what others have left may take several rounds
            pass
        objects = (x, w, x._array, x._counter, x._type, True, None, core.MISSED, ops.mul, ())
        return [sys.getrefcount(each) for each in objects]

    run(20)
    before, blocks = counts(), sys.getallocatedblocks()
    run(1000)
    after = counts()
    assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=True)), (before, after)
    assert sys.getallocatedblocks() - blocks < 500


def test_many_shapes_and_attributes_take_turns() -> None:
    """Records that share a slot of the table, and ops that come but once."""
    x = lucid.arange(300.0)
    for _ in range(3):
        for i in range(300):
            assert x[i : i + 1].item() == i
            assert core.apply_op(ops.neg, (x[:i],), {})._type.shape == (i,)


# ---------------------------------------------------------------------- backward walks


MIXED: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a * b,
    lambda a, b: a + b,
    lambda a, b: (a / (b * b + 1.0)).exp().tanh(),
    lambda a, b: a.transpose(0, 1).reshape(5, 3).transpose(0, 1) - b,
    lambda a, b: a[1:].sum(0) * b,
    lambda a, b: lucid.softmax(a, 1) + b,
    lambda a, b: lucid.where(a > b, a, b),
]


def gradients(seed: int, of_some: bool = False) -> list[bytes]:
    """Those of a random graph: views, broadcasts, several uses, library Functions, a hook.

    of_some: those of a leaf and some values on the way alone.
    """
    rng = np.random.default_rng(seed)
    x, w, v = (
        lucid.from_numpy(rng.uniform(0.5, 1.5, shape).astype(np.float32)).requires_grad_()
        for shape in ((3, 5), (5,), (3, 1))
    )
    values = [x, x * w, v + x]
    for _ in range(12):
        a, b = (values[i] for i in rng.integers(0, len(values), 2))
        values.append(MIXED[rng.integers(0, len(MIXED))](a, b))
    if seed % 3 == 0:
        values[5].register_hook(lambda gradient: gradient * 2.0)
    loss = sum(((value * value).sum() for value in values[-4:]), lucid.zeros(()))
    assert isinstance(loss, lucid.Tensor)
    if of_some:
        some = [w, *(values[i] for i in rng.choice(np.arange(1, 13), 3, replace=False))]
        for keeps in (True, False):
            found = lucid.autograd.grad(loss, some, retain_graph=keeps, allow_unused=True)
        assert x.grad is v.grad is None
        return [b"" if gradient is None else gradient.numpy().tobytes() for gradient in found]
    loss.backward(retain_graph=True)
    loss.backward()
    return [b"" if leaf.grad is None else leaf.grad.numpy().tobytes() for leaf in (x, w, v)]


@pytest.mark.parametrize("of_some", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_walk_by_machine_code_has_the_same_bits(
    seed: int, of_some: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = in_python(monkeypatch, lambda: gradients(seed, of_some))
    for _ in range(3):
        assert gradients(seed, of_some) == expected


def test_nodes_of_ops_are_run_by_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from lucid.autograd.engine import BackwardRun

    ran: list[str] = []
    run_node = BackwardRun._run_node

    def noting(run: BackwardRun, node: Any) -> None:
        ran.append(node.name())
        run_node(run, node)

    monkeypatch.setattr(BackwardRun, "_run_node", noting)
    x = lucid.ones(2, 3, requires_grad=True)

    def step() -> lucid.Tensor:
        return lucid.cat([x * x + x, x, x.exp()], 1).transpose(0, 1).exp().sum()

    for _ in range(8):  # a rule gets its table when it comes again
        step().backward()
    ran.clear()
    step().backward()
    x.grad = None
    step().backward()
    assert not ran
    for _ in range(2):
        lucid.autograd.grad(lucid.softmax(step() * x, 1).sum(), x)
    ran.clear()
    lucid.autograd.grad(lucid.softmax(step() * x, 1).sum(), x)
    assert ran == ["SoftmaxBackward", "AccumulateGrad"]
    kept = step()
    y = x * 3.0
    x.detach().zero_()  # what x * x has saved was written
    with pytest.raises(lucid.LucidError, match=r"modified by an inplace(.|\n)*test_applied_ops"):
        kept.backward()
    y.sum().backward()
    with pytest.raises(lucid.LucidError, match="second time"):
        (loss := (x * x).sum()).backward()
        loss.backward()


@pytest.fixture
def ruled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ops whose rules were made, from now on, as if there had been none before."""
    from lucid.autograd import rules

    names: list[str] = []
    make = rules.Rule.__init__

    def noting(rule: rules.Rule, of: Any, *args: Any) -> None:
        names.append(of.op.name)
        make(rule, of, *args)

    monkeypatch.setattr(rules.Rule, "__init__", noting)
    monkeypatch.setattr(rules, "_alike", {})
    return names


def test_rules_of_ops_on_elements_are_the_same_for_all_shapes(ruled: list[str]) -> None:
    """After some of a few shapes they serve walks of Python, of machine code and of traces."""

    def gradient(size: int) -> tuple[np.ndarray, np.ndarray]:
        x = lucid.arange(1.0, size + 1).requires_grad_()
        y = lucid.arange(size, 0, -1, dtype=lucid.float32).requires_grad_()
        z = x * y
        z.backward((z + x).detach())
        assert x.grad is not None and y.grad is not None
        return x.grad.numpy(), y.grad.numpy()

    for size in (173, 179, 181, 183, 184, 185, 173, 173):
        a = np.arange(1.0, size + 1, dtype=np.float32)
        b = a[::-1]
        ours = gradient(size)
        np.testing.assert_array_equal(ours[0], (a * b + a) * b)
        np.testing.assert_array_equal(ours[1], (a * b + a) * a)
    assert ruled.count("mul") == 4  # of three sizes, and of open ones
    many = lucid.ones(2**15 + 3, requires_grad=True)
    (many * many).sum().backward()
    row = lucid.ones(191, requires_grad=True)  # it is broadcast, which its shape tells
    (row * lucid.ones(3, 191, requires_grad=True)).sum().backward()
    assert row.grad is not None and row.grad.tolist() == [3.0] * 191
    assert ruled.count("mul") == 6
    step = lucid.compile(lambda x: lucid.autograd.grad((x * x).sum(), x)[0])
    for size in (193, 197):
        x = lucid.arange(float(size)).requires_grad_()
        np.testing.assert_array_equal(step(x), 2 * np.arange(size))


_RULED: dict[str, Callable[[lucid.Tensor], lucid.Tensor]] = {
    "broadcast": lambda x: x * x[:1] + x[:, :1],
    "sums": lambda x: x.sum(0) * x.sum(1).mean() + x.sum((0, 1)),
    "greatest": lambda x: x.amax(0) + x.max(1)[0].sum(),
    "slices": lambda x: x[1:, ::2] * x[:-1, 1:5],
    "end": lambda x: x[len(x) // 2 :] * 2.0,
    "shapes": lambda x: x.view(-1, 2, 4).transpose(0, 2).reshape(-1) * 3.0,
    "joined": lambda x: lucid.cat([x, x * x, x[3:]]) ** 2,
    "padded": lambda x: F.pad(x, (1, 2, 3, 4)) ** 2,
    "products": lambda x: x @ (x.t() @ x),
    "taken": lambda x: x[lucid.tensor([1, 3, 1])] * x.gather(0, lucid.zeros(3, 8).long()),
    "running": lambda x: x.cumsum(0) * x.cumsum(1),
    "windows": lambda x: x.unfold(0, 4, 2) ** 2,
    "chosen": lambda x: lucid.where(x > 0, x * 2.0, x.flip(0)),
    "positions": lambda x: (x.view(-1, 2) * x.view(-1, 2).sum(1, keepdim=True)).amax(1),
}


@pytest.mark.parametrize("name", _RULED)
def test_rules_are_made_for_open_sizes(name: str, ruled: list[str]) -> None:
    """They give the same bits as those made for the sizes, and are none of them made any more."""
    from lucid.autograd import rules

    rng = np.random.default_rng(3)

    def gradient(array: np.ndarray) -> np.ndarray:
        x = lucid.tensor(array, requires_grad=True)
        y = _RULED[name](x)
        y.backward(lucid.linspace(-1.0, 1.0, y.numel()).view(y.shape))
        assert x.grad is not None
        return x.grad.numpy()

    # Rows are few, or so many that native code does what NumPy is slow at, in the same way.
    for sizes in (range(10, 26), range(3000, 3016)):
        arrays = [rng.normal(size=(n, 8)).astype(np.float32) for n in sizes]
        for array in arrays[:10]:
            gradient(array)
        ruled.clear()
        found = [gradient(array) for array in arrays]
        assert not ruled
        known = dict(rules._alike)
        for array, ours in zip(arrays, found, strict=True):
            rules._alike.clear()
            np.testing.assert_array_equal(ours, gradient(array))
        rules._alike.update(known)


def test_leaves_gradients_are_their_own_memory_and_added_to_in_place() -> None:
    x, y, w = (lucid.ones(4, 4, requires_grad=True) for _ in range(3))
    loss = (x + y + (w * w).t()).sum()  # one array is the gradient of two leaves
    for _ in range(4):
        x.grad = y.grad = w.grad = None
        for times in range(1, 4):
            loss.backward(retain_graph=True)
            for leaf, expected in ((x, 1), (y, 1), (w, 2)):
                gradient = leaf.grad
                assert gradient is not None and gradient.is_leaf and not gradient.requires_grad
                assert (gradient == expected * times).all()
                assert gradient._version == times - 1
        assert x.grad is not None and y.grad is not None
        assert x.grad.data_ptr() != y.grad.data_ptr()


def test_whoever_sees_or_gave_a_leafs_gradient_finds_it_as_python_leaves_it() -> None:
    x, heard = lucid.ones(2, 3, requires_grad=True), list[float]()
    loss = (x * x).sum()
    memory = lucid.zeros(3, 4)
    for _ in range(3):
        x.grad = memory[:, :2].t()
        for times in range(1, 3):
            loss.backward(retain_graph=True)
            np.testing.assert_array_equal(memory[:, :2].numpy(), np.full((3, 2), 2.0 * times))
        assert memory.sum() == 24.0
        memory.zero_()
        x.grad = lucid.zeros(1, 3).expand(2, 3)
        with pytest.raises(lucid.LucidError, match="more than one element"):
            loss.backward(retain_graph=True)
    x.grad = None
    handles = [
        x.register_hook(lambda gradient: gradient * 10.0),
        x.register_post_accumulate_grad_hook(lambda leaf: heard.append(leaf.grad.sum().item())),  # type: ignore[union-attr]
    ]
    loss.backward(retain_graph=True)
    assert heard == [120.0]
    for handle in handles:
        handle.remove()
    loss.backward(retain_graph=True)
    assert x.grad is not None and x.grad.sum() == 132.0 and heard == [120.0]


def test_a_walk_for_some_gradients_goes_nowhere_else() -> None:
    """Neither to nodes from which nothing wanted is reached, nor to other leaves."""
    x, w = lucid.ones(3, requires_grad=True), lucid.ones(3, requires_grad=True)
    heard: list[str] = []
    x.register_hook(lambda _: heard.append("leaf"))
    for _ in range(6):
        hidden = x * 2.0
        hidden.register_hook(lambda _: heard.append("value"))
        y = hidden.exp() * w + x
        (gradient,) = lucid.autograd.grad(y.sum(), w)
        assert gradient.tolist() == hidden.exp().tolist()
    assert not heard and x.grad is None


def test_sums_of_scalars_gradients_are_arrays() -> None:
    x = lucid.tensor(3.0, requires_grad=True)
    for _ in range(3):
        x.grad = None
        y = x * 2.0
        (y * y + y * y).backward()
        assert x.grad is not None and x.grad.item() == 48.0
        assert type(x.grad._array) is np.ndarray


def test_gradients_overflow_silently() -> None:
    x = lucid.full((2,), 2e19, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            x.grad = None
            y = x * 1e19
            (y * 1e19 + y * -1e19).sum().backward()
            (x * 3e38 + x * 3e38).sum().backward()
            assert x.grad is not None and x.grad.tolist() == [math.inf] * 2


def test_an_interrupt_in_a_rule_comes_through_and_the_walk_can_be_repeated() -> None:
    x = lucid.ones(3, requires_grad=True)
    step, raising = [ops.exp.evaluate], [False]

    def evaluate(array: np.ndarray) -> np.ndarray:
        if raising[0]:
            raise KeyboardInterrupt
        return step[0](array)

    inner = Op("inner", ops.exp.infer, evaluate)
    outer = Op("outer", ops.exp.infer, evaluate, lambda g, y, x: (g * inner(x),))

    def run() -> lucid.Tensor:
        y = core.apply_op(outer, (x,), {})
        assert isinstance(y, lucid.Tensor)
        return (y * 2.0).sum()

    for _ in range(3):
        run().backward()
    loss, x.grad = run(), None
    raising[0] = True
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            loss.backward()
    assert x.grad is None
    raising[0] = False
    loss.backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), (2.0 * x.detach().exp()).numpy())


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of ops for which code was made, none of which is left of other tests."""
    found: list[str] = []
    graph_of = slow_ops._graph

    def noted(op: Op, *args: Any) -> Any:
        found.append(op.name)
        return graph_of(op, *args)

    slow_ops._codes.cache_clear()
    monkeypatch.setattr(slow_ops, "_graph", noted)
    yield found
    slow_ops._codes.cache_clear()


def many(rng: np.random.Generator, dtype: Any) -> np.ndarray:
    """Numbers with ties, NaN, infinities and both zeros among them, in an order of columns."""
    x = rng.normal(size=(211, 307)).round(2).astype(dtype).T
    x[::7, 3], x[5, ::9], x[11, 2], x[12, 2] = np.nan, -0.0, np.inf, -np.inf
    return x


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_elements_go_through_native_code_where_numpy_is_slow(
    dtype: Any, made: list[str]
) -> None:
    rng = np.random.default_rng(4)
    x = many(rng, dtype)
    index = rng.integers(0, 307, (307, 211))
    rows = rng.integers(0, 13, 307)
    y = rng.uniform(0.5, 2.0, x.shape).astype(dtype)
    near = ("erf", "exp", "expm1", "log1p", "sin", "cos", "tanh", "sigmoid")
    summed = ("sum", "prod", "cumlogsumexp")
    cases: dict[str, tuple[list[np.ndarray], dict[str, Any]]] = {
        "sort": ([x], {"axis": 1, "descending": True}),
        "argsort": ([x], {"axis": 0, "descending": False}),
        "gather": ([x, index], {"axis": 0}),
        "scatter_add": ([x, index, np.nan_to_num(x)], {"axis": 0}),
        "scatter": ([x, index, np.nan_to_num(x)], {"axis": 0}),
        "index_add": ([np.zeros((13, 211), dtype), rows, np.nan_to_num(x)], {"axis": 0}),
        "index_set": ([np.zeros((13, 211), dtype), rows, x], {"axis": 0}),
        "where": ([x > 0, x, y], {}),
        "clamp": ([x, y, np.array(0.5, dtype)], {}),
        "sum": ([y], {"axes": (1,)}),
        "prod": ([y[:, :200]], {"axes": (0,)}),
        "recurrence": ([np.cos(y), y], {"axis": 1}),
        "cumprod": ([np.sign(y)], {"axis": 0}),
        "cumlogsumexp": ([x], {"axis": 1}),
        **{name: ([x], {"axis": 1}) for name in ("cumsum", "cummax", "cummin")},
        **{name: ([x, y], {}) for name in ("floor_div", "remainder")},
        **{name: ([x], {}) for name in ("sign", "sqrt", "rsqrt", "reciprocal")},
        **{name: ([x], {}) for name in near},
    }
    slow = {op.name for op in ops_with(Trait.SLOW) if op.kind != "random"}
    assert cases.keys() == slow
    for name, (arrays, attributes) in cases.items():
        op, before = OPS[name], len(made)
        found = emit(op, [lucid.tensor(array) for array in arrays], **attributes).numpy()
        assert len(made) == before + 1
        with np.errstate(all="ignore"):
            expected = op.evaluate(*arrays, **attributes)
        if name in (*near, *summed):
            ulps = 500 if name in summed else 4
            np.testing.assert_allclose(found, expected, rtol=ulps * np.finfo(dtype).eps)
            if name not in summed:
                number = ~np.isnan(expected)
                np.testing.assert_array_equal(
                    np.signbit(found)[number], np.signbit(expected)[number]
                )
        else:
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_reshape_that_copies_does_it_once(requires_grad: bool) -> None:
    """By machine code: Python copied again what that had left."""
    x = lucid.ones(3, 4, 5, requires_grad=requires_grad).transpose(0, 2)
    flat: dict[str, Any] = {"shape": (60,)}
    warm(ops.reshape, (x,), flat)
    assert is_native(ops.reshape, (x,), flat)
    copy: Any = core.apply_op(ops.reshape, (x,), flat)
    assert copy._base is None and copy._version == 0 and copy.requires_grad is requires_grad
    with lucid.no_grad():
        copy.zero_()
    assert x.sum() == 60 and copy.view(3, 20)._base is copy


def test_a_clone_of_other_strides_is_copied_once() -> None:
    array = np.ones((3, 4), np.float32).T
    assert np.shares_memory(ops.cast.evaluate(array, dtype=f32), array)  # who keeps it copies it
    copy = lucid.from_numpy(array).clone()
    assert copy.is_contiguous() and not np.shares_memory(copy.numpy(), array)


def test_an_op_that_only_comes_again_at_once_gets_no_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As that of equal layers, where each batch has a size of its own; nor one that comes twice."""
    assert found is not None
    monkeypatch.setattr(applied_ops, "APART", 12)
    monkeypatch.setattr(applied_ops, "TIMES", 6)
    entered: set[Any] = set()
    put = type(found)._put

    def noting(self: Any, slot: int, record: Any) -> None:
        entered.add((record._known.op, record._known.types[0].shape))
        put(self, slot, record)

    monkeypatch.setattr(type(found), "_put", noting)
    x, y = lucid.ones(7, 13), lucid.ones(7, 14)
    for _ in range(6):
        emit(ops.sum, (x,), axes=(0,))
    for _ in range(2):
        for size in range(20):
            emit(ops.sum, (lucid.ones(size, 17),), axes=(0,))
        emit(ops.sum, (y,), axes=(0,))
    assert not {(ops.sum, (7, 13)), (ops.sum, (7, 14))} & entered
    emit(ops.sum, (x,), axes=(0,))
    assert (ops.sum, (7, 13)) in entered
    for _ in range(200):  # of an op on elements Python sees one in eight
        emit(ops.add, (x, x))
        y.sigmoid()  # by a record of the call
    assert {(ops.add, (7, 13)), (ops.sigmoid, (7, 14))} <= entered


def test_ever_other_sizes_are_left_to_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """An op that has come on as many operands, of any types, needs no Python but its type rule."""
    monkeypatch.setattr(applied_ops, "APART", 1 << 40)

    def applied_to(n: int) -> list[bool]:
        x, w = (lucid.ones(n, n + 1, requires_grad=True) for _ in range(2))
        index = lucid.arange(n)
        return [
            is_native(op, operands, attributes)
            for op, operands, attributes in (
                (ops.add, (x, w), {}),
                (ops.mul, (x, lucid.ones(n + 1)), {}),
                (ops.lt, (x, w), {}),
                (ops.sum, (x,), {"axes": (1,)}),
                (ops.transpose, (x,), {"perm": (1, 0)}),
                (ops.slice, (x,), {"starts": (0, 1), "stops": (2, n), "steps": (1, 1)}),
                (ops.concat, (x, w), {"axis": 0}),
                (ops.take, (x, index), {"axis": 0}),
            )
        ]

    for n in (131, 132):
        x, w = (lucid.ones(n, n + 1, requires_grad=True) for _ in range(2))
        x + w, x * w[0].detach(), x < w, x.sum(1), x.T, x[:2, 1:], lucid.cat([x, w])
        x[lucid.arange(n)]
    assert applied_to(133) == [True] * 8


@pytest.mark.parametrize("requires_grad", [False, True])
def test_ops_on_elements_of_other_sizes_leave_what_python_leaves(
    requires_grad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With operands that are numbers, of other dtypes, broadcast, or of no elements."""
    monkeypatch.setattr(applied_ops, "APART", 1 << 40)
    calls: list[Callable[[lucid.Tensor], lucid.Tensor]] = [
        lambda x: x + x,
        lambda x: x * 2.0,
        lambda x: 2.0 - x,
        lambda x: x * lucid.tensor(3.0, requires_grad=requires_grad),
        lambda x: x / x[:1],
        lambda x: x.exp(),
        lambda x: -x.double(),
        lambda x: x > 0.5,
        lambda x: x.sum() * x.sum(),
    ]

    def result_and_gradient(call: Callable[..., Any], x: lucid.Tensor) -> tuple[Any, Any]:
        result = call(x)
        if not result.requires_grad:
            return described(result), None
        (gradient,) = lucid.autograd.grad(result, x, lucid.full_like(result, 2.0))
        return described(result), gradient.numpy().tobytes()

    for rows in (3, 4, 0, 1, *range(200, 220)):
        x = lucid.rand(rows, 3, requires_grad=requires_grad)
        for call in calls:
            found = result_and_gradient(call, x)
            expected = in_python(monkeypatch, lambda: result_and_gradient(call, x))  # noqa: B023
            assert found[1] == expected[1]
            assert requires_grad or found[0] == expected[0]  # else nodes of operands differ


def test_errors_at_other_sizes_name_operands_and_the_users_line() -> None:
    for n in (3, 4):
        lucid.ones(n, 5, requires_grad=True) + lucid.ones(5)
    x, y = lucid.ones(6, 5, requires_grad=True), lucid.ones(4)
    with pytest.raises(lucid.ShapeError, match=r"5 and 4(.|\n)*f32\[6,5\].*test_applied_ops"):
        x + y
    table = lucid.ones(9, 5, requires_grad=True)
    with pytest.raises(lucid.LucidError, match=r"index 9 is out of bounds(.|\n)*test_applied_ops"):
        table[lucid.tensor([1, 9])]
    product = x * (z := lucid.ones(6, 5, requires_grad=True) * 1.0)
    z.zero_()
    with pytest.raises(lucid.LucidError, match=r"test_applied_ops"):
        product.sum().backward()


def small_axes(rng: np.random.Generator, dtype: Any) -> dict[str, list[np.ndarray]]:
    """Operands of 3,000 rows of three, over which NumPy goes row by row."""
    rows = (rng.normal(size=(3000, 3)) * 3).astype(dtype)
    if np.dtype(dtype).kind == "f":
        rows[5, 1], rows[7, 0], rows[9], rows[11, 2] = np.nan, np.inf, -0.0, -np.inf
    return {"rows": [rows], "a column": [rows, rows[:, :1]], "a row": [rows, rows[12]]}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.bool_])
def test_short_axes_go_through_native_code(dtype: Any, made: list[str]) -> None:
    """As axes that are folded, or along which an operand is broadcast; the numbers are the same."""
    given = small_axes(np.random.default_rng(4), dtype)
    folded: list[tuple[str, dict[str, Any]]] = [
        (name, {"axes": (axis,)}) for name in ("sum", "prod", "amax", "amin") for axis in (0, 1)
    ]
    folded += [(name, {"axis": 1}) for name in ("argmax", "argmin", "cumsum", "cumprod", "cummax")]
    cases = [("rows", name, attributes) for name, attributes in folded]
    cases += [
        (operands, name, {})
        for operands in ("a column", "a row")
        for name in ("add", "sub", "mul", "maximum", "lt")
    ]
    checked = 0
    for operands, name, attributes in cases:
        op, arrays = OPS[name], given[operands]
        try:
            before = len(made)
            found = emit(op, [lucid.tensor(array) for array in arrays], **attributes).numpy()
        except lucid.LucidError:  # not of this dtype
            continue
        assert len(made) == before + 1, name
        with np.errstate(all="ignore"):
            expected = op.evaluate(*arrays, **attributes)
        rtol = 3000 * np.finfo(dtype).eps if np.dtype(dtype).kind == "f" else 0
        np.testing.assert_allclose(found, expected, rtol=rtol, err_msg=name)
        assert found.dtype == expected.dtype
        checked += 1
    assert checked >= 6


@pytest.mark.parametrize("shape", [(1000, 3), (1000, 32), (20, 1000), (1, 1500), (1500, 1)])
def test_few_rows_and_long_ones_are_left_to_numpy(shape: tuple[int, int], made: list[str]) -> None:
    x = lucid.ones(*shape)
    for axis in (0, 1):
        x.sum(axis)
    assert (x - x[0]).shape == (x - x[:, :1]).shape == x.shape
    assert not made


def test_ever_other_sizes_share_code(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """From the third one on; sizes keep theirs, and other sizes of short axes have their own."""
    monkeypatch.setattr(native, "_SIZES_APART", 2)
    rng = np.random.default_rng(7)
    for size in (5000, 3000, 4001, 2999, 7003, 5000, 4001):
        x, y = rng.normal(size=(size, 3)), rng.normal(size=(size, 1))
        for op, arrays, attributes in (
            (ops.sum, [x], {"axes": (1,)}),
            (ops.mul, [x, y], {}),
            (ops.cumsum, [x], {"axis": 0}),
            (ops.gather, [np.tile(x, 5), rng.integers(0, size, (size, 15))], {"axis": 0}),
        ):
            found = emit(op, [lucid.tensor(a) for a in arrays], **attributes).numpy()
            np.testing.assert_allclose(found, op.evaluate(*arrays, **attributes), rtol=1e-9)
    assert len(made) == 4 * (2 + 2)  # and two that say what is open
    for shape in ((2500, 4), (2500, 1, 3), (40_000, 33), (41_000, 34), (39_000, 33)):
        x = rng.normal(size=shape)
        np.testing.assert_allclose(lucid.tensor(x).sum(-1).numpy(), x.sum(-1), rtol=1e-9)
    x, index = rng.normal(size=(5500, 15)), rng.integers(0, 5500, (4400, 15))
    found = emit(ops.gather, [lucid.tensor(x), lucid.tensor(index)], axis=0).numpy()
    np.testing.assert_array_equal(found, np.take_along_axis(x, index, 0))
    with pytest.raises(lucid.IndexOutOfRangeError, match="9999"):
        emit(ops.gather, [lucid.zeros(6000, 15), lucid.full((6000, 15), 9999)], axis=0)


def test_code_for_all_sizes_keeps_no_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_SIZES_APART", 2)
    slow_ops._codes.cache_clear()
    kept = []
    for size in (3000, 3001, 3002, 3003):
        array = np.ones((size, 3))
        kept.append(weakref.ref(array))
        lucid.from_numpy(array).sum(1)
        del array
    assert [found() for found in kept] == [None] * 4


@pytest.mark.parametrize("name", ["sub", "mul"])
def test_so_do_their_derivatives(name: str, made: list[str]) -> None:
    """They agree with the rule run op by op, which a recorded backward does."""
    rng = np.random.default_rng(5)
    operands = [
        lucid.tensor(rng.normal(size=shape), requires_grad=True) for shape in ((50, 1, 3), (50, 3))
    ]
    result = emit(OPS[name], operands)
    weights = lucid.tensor(rng.normal(size=result.shape))
    made.clear()
    found = lucid.autograd.grad(result, operands, weights, retain_graph=True)
    assert "sum" in made
    recorded = lucid.autograd.grad(result, operands, weights, create_graph=True)
    for ours, by_ops in zip(found, recorded, strict=True):
        np.testing.assert_allclose(ours.numpy(), by_ops.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: np.broadcast_to(x[:, None, :3], (70, 50, 3)),
        lambda x: np.broadcast_to(x[:, :50, None], (70, 50, 3)),
        lambda x: np.broadcast_to(x[:1, :50, None], (70, 50, 3)),
        lambda x: x.T,
        lambda x: x[:, ::-1],
        lambda x: x[::-1, ::-1].T,
        lambda x: np.broadcast_to(x[::-1, None, :3], (70, 50, 3)).transpose(1, 2, 0),
        lambda x: x[:, ::2],
        lambda x: x[:, :3],
        lambda x: x[:0].T,
    ],
)
def test_a_copy_of_any_layout_is_row_major(layout: Callable[[np.ndarray], np.ndarray]) -> None:
    for dtype in (np.float32, np.float64, np.int32, np.bool_):
        for columns in (600, 601):
            array = layout(np.random.default_rng(6).normal(size=(70, columns)).astype(dtype))
            found = row_major(array)
            assert found.flags.c_contiguous and not np.shares_memory(found, array)
            np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("name", ["div", "maximum", "pow", "clamp", "prod", "rsqrt", "amax"])
def test_derivatives_with_many_elements_are_native_code(name: str) -> None:
    """They agree with the rule run op by op, which a recorded backward does."""
    rng = np.random.default_rng(5)
    x, y = (lucid.tensor(rng.uniform(0.3, 2.0, (211, 307)), requires_grad=True) for _ in range(2))
    column = lucid.tensor(rng.uniform(0.3, 2.0, (211, 1)), requires_grad=True)
    cases: dict[str, tuple[list[lucid.Tensor], dict[str, Any]]] = {
        "clamp": ([x, column, y], {}),
        "prod": ([x], {"axes": (0,)}),
        "amax": ([x], {"axes": (1,)}),
        "rsqrt": ([x], {}),
    }
    operands, attributes = cases.get(name, ([x, column], {}))
    result = emit(OPS[name], operands, **attributes)
    rule = result.grad_fn.derivative.rule  # type: ignore[union-attr]
    assert rule.code is not None
    found = lucid.autograd.grad(result, operands, lucid.ones_like(result), retain_graph=True)
    recorded = lucid.autograd.grad(result, operands, lucid.ones_like(result), create_graph=True)
    for ours, by_ops in zip(found, recorded, strict=True):
        np.testing.assert_allclose(ours.numpy(), by_ops.detach().numpy(), rtol=1e-13)


def test_functions_of_several_ops_are_one_program_for_many_elements() -> None:
    """Also where a tensor is there twice, is broadcast, or has gaps; with few they are ops."""
    x = lucid.tensor(many(np.random.default_rng(6), np.float32), requires_grad=True)
    row = lucid.linspace(0.3, 2.0, 211, requires_grad=True)
    calls: list[Callable[[lucid.Tensor], lucid.Tensor]] = [
        lambda x: lucid.lerp(x, row, 0.25),
        lambda x: lucid.addcmul(x, row, x, value=2),
        lambda x: lucid.fmod(x, row),
        lambda x: lucid.nan_to_num(x, nan=3.0),
        lambda x: lucid.copysign(x, row - 1),
        lambda x: lucid.frac(x[::2]),
    ]
    activations: list[Callable[[lucid.Tensor], lucid.Tensor]] = [
        lambda x: F.hardswish(x - 1),
        lambda x: F.hardsigmoid(x - 1),
        lambda x: F.softshrink(x - 1, 0.25),
        lambda x: F.hardshrink(x - 1, 0.25),
        lambda x: F.threshold(x, 1.0, 2.0),
        lambda x: F.prelu(x - 1, lucid.tensor([0.5])),
        lambda x: F.celu(x - 1, 2.0),
        lambda x: F.glu(x[:, 1:], 1),
    ]
    for call in calls + activations:
        y = call(x)
        assert call in calls or type(y.grad_fn) is not OpNode
        (found,) = lucid.autograd.grad(y, [x], lucid.ones_like(y))
        with op_by_op():
            same = call(x)
            (expected,) = lucid.autograd.grad(same, [x], lucid.ones_like(y))
        np.testing.assert_allclose(y.detach().numpy(), same.detach().numpy(), rtol=1e-6)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=4e-6)
    names = {type(lucid.frac(x[:rows]).grad_fn).__name__ for rows in (3, 300)}
    assert names == {"FracBackward", "OpNode"}


@pytest.mark.parametrize("perm", [(1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0)])
@pytest.mark.parametrize("dtype", [lucid.float32, lucid.float64, lucid.bool])
def test_large_arrays_in_another_order_of_axes(perm: tuple[int, ...], dtype: lucid.dtype) -> None:
    """Results are row-major, of views of a part and of repeated rows as well."""
    array = np.random.default_rng(7).integers(0, 2, (33, 60, 48)).astype(dtype.numpy)
    x = lucid.tensor(array)
    for view, shown in (
        (x.permute(perm), array.transpose(perm)),
        (x[1:].permute(perm), array[1:].transpose(perm)),
        (x[:, ::2].permute(perm), array[:, ::2].transpose(perm)),
        (x[:1].expand(33, 60, 48).permute(perm), array[[0] * 33].transpose(perm)),
    ):
        copy, other = view.contiguous(), view != 0
        np.testing.assert_array_equal(copy.numpy(), shown)
        np.testing.assert_array_equal(other.numpy(), shown != 0)
        assert copy.is_contiguous() and other.is_contiguous()
        assert copy.view(-1)[0] == view[0, 0, 0]


@pytest.mark.parametrize("count", [0, 1, 2, 5, 10])
@pytest.mark.parametrize("dtype", [lucid.float32, lucid.float64, lucid.int32])
def test_progressions_are_bit_for_bit_those_of_a_compiled_step(
    count: int, dtype: lucid.dtype
) -> None:
    for first, last in ((0.0, 10.0), (1.5, -2.25), (-1e308, 1e308), (0.0, np.inf), (np.nan, 1.0)):

        @lucid.compile
        def step(first: float = first, last: float = last) -> list[lucid.Tensor]:
            return [
                lucid.linspace(first, last, count, dtype=dtype),
                lucid.arange(count, 3 * count, 2, dtype=dtype),
                lucid.eye(count, 3, dtype=dtype),
            ]

        for one, other in zip(step(), step.__wrapped__(), strict=True):
            assert one.dtype is other.dtype and one.shape == other.shape
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def functions_called(call: Callable[[], Any]) -> int:
    """How many functions of Python a call takes at least, when it isn't the first one."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    found = []
    for _ in range(4):
        call()
    before = sys.getprofile()
    for _ in range(3):  # the collector calls some as well, where it begins in between
        count = 0
        sys.setprofile(note)
        try:
            call()
        finally:
            sys.setprofile(before)
        found.append(count)
    return min(found)


X, POSITIVE, IMAGE = lucid.randn(16, 16), lucid.rand(16, 16) + 0.1, lucid.randn(1, 1, 8, 8)
ROWS, COLUMNS, CHOSEN = lucid.arange(16), lucid.arange(16).flip(0), lucid.randn(16, 16) > 0


@pytest.mark.parametrize(
    ("call", "most"),
    [
        (X.std, 20),
        (lambda: X.var(1), 20),
        (X.norm, 16),
        (lambda: X.logsumexp(1), 16),
        (lambda: F.cosine_similarity(X, POSITIVE), 16),
        (lambda: F.normalize(X), 16),
        (lambda: X.topk(3), 50),
        (lambda: X.unbind(), 160),
        (lambda: X.lerp(X, 0.9), 36),
        (lambda: X.roll(1, 0), 45),
        (lambda: lucid.randint(0, 9, (4,)), 65),
        (lambda: F.one_hot(ROWS, 16), 32),
        (lambda: X[ROWS, COLUMNS], 40),
        (lambda: X[CHOSEN], 40),
        (lambda: F.avg_pool2d(IMAGE, 2), 54),
        (lambda: X.clone().uniform_(), 50),
        (lambda: lucid.bernoulli(POSITIVE.clamp(0.0, 1.0)), 110),
        (lambda: lucid.multinomial(POSITIVE, 2), 120),
        (lambda: lucid.multinomial(POSITIVE, 2, replacement=True), 80),
        (lambda: lucid.histc(X, 4, -1, 1), 50),
        (lambda: lucid.histc(X, 4), 60),
        (lambda: X.mode(1), 90),
    ],
)
def test_functions_of_python_that_a_call_takes(call: Callable[[], Any], most: int) -> None:
    assert functions_called(call) <= most


@pytest.mark.parametrize("op", [ops.gather, ops.scatter, ops.scatter_add])
def test_few_elements_are_gathered_and_scattered_by_native_code(
    op: Op, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In NumPy's order; what is out of range, or transposed, is NumPy's as before."""
    rng = np.random.default_rng(0)
    x, *source = (lucid.tensor(rng.normal(size=(6, 7)).astype(np.float32)) for _ in range(2))
    at = lucid.tensor(rng.integers(0, 7, (6, 7)))
    given = source if len(op.samples[0].operands) > 2 else []
    made: list[Any] = []
    code = slow_ops.exact_code

    def noting(*asked: Any) -> Any:
        made.append(code(*asked))
        return made[-1]

    def run(x: Any, at: Any) -> Any:
        return emit(op, (x, at, *given), axis=1).numpy().tobytes()

    expected = in_python(monkeypatch, lambda: run(x, at))
    with monkeypatch.context() as patched:
        patched.setattr(slow_ops, "exact_code", noting)
        assert [run(x, at) for _ in range(4)] == [expected] * 4
    assert made.pop() is not None
    assert run(x.T.clone().T, at) == expected
    with pytest.raises(lucid.IndexOutOfRangeError, match="7"):
        run(x, at.clone().fill_(7))


def test_the_ops_of_a_backward_that_is_recorded_are_machine_codes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert found is not None
    x, w = (lucid.ones(n, 3, requires_grad=True) for n in (2, 4))

    def twice() -> Any:
        (first,) = lucid.autograd.grad(F.linear(x, w).tanh().sum(), x, create_graph=True)
        return lucid.autograd.grad(first.sum(), w)[0].tolist()

    expected = [twice() for _ in range(4)]
    left: list[str] = []

    def noting(op: Op, *given: Any) -> Any:
        made = found.function(op, *given)
        if made is None:
            left.append(op.name)
        return made

    monkeypatch.setattr(core, "natively", noting)
    assert [twice()] == expected[:1]
    assert not left
