"""`lucid.utils.checkpoint`: the same gradients, from blocks that are computed again."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from custom_functions import leaf
from fuzzing import many

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.autograd import Function
from lucid.autograd.graph import saved_tensors_hooks
from lucid.compiler.compiled import collecting
from lucid.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential

Body = Callable[..., Any]
Run = Callable[..., Any]


class Cubed(Function):
    """Saves an argument and what it computes of it."""

    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        square = x * x
        ctx.save_for_backward(x, square)
        return square * x

    @staticmethod
    def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
        _, square = ctx.saved_tensors
        return 3 * square * g


class HostSine(Function):
    """Leaves lucid in its forward."""

    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        ctx.save_for_backward(x)
        calls.append("forward")
        return lucid.from_numpy(np.sin(x.numpy()))

    @staticmethod
    def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
        (x,) = ctx.saved_tensors
        return g * lucid.cos(x)


calls: list[str] = []


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(32), nn.Linear(32, 96)

    def forward(self, x: lucid.Tensor, scale: float = 1.0) -> lucid.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + F.dropout(lucid.softmax(q @ k.transpose(-1, -2) * scale, -1), 0.3) @ v


def plain(function: Body, *args: Any, use_reentrant: bool = False, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def a_chain(ckpt: Body, x: lucid.Tensor, w: lucid.Tensor) -> lucid.Tensor:
    return ckpt(lambda x: lucid.tanh(lucid.exp(x) @ w), x)


def dropouts(ckpt: Body, x: lucid.Tensor, w: lucid.Tensor) -> lucid.Tensor:
    for _ in range(3):
        x = ckpt(lambda x: F.dropout(F.gelu(x @ w), 0.5), x) + x
    return F.dropout(x, 0.5)


def custom_functions(ckpt: Body, x: lucid.Tensor, w: lucid.Tensor) -> lucid.Tensor:
    return ckpt(lambda x: F.softmax(Cubed.apply(F.layer_norm(x @ w, (4,))), -1), x)


def nested(ckpt: Body, x: lucid.Tensor, w: lucid.Tensor) -> lucid.Tensor:
    def inner(x: lucid.Tensor) -> lucid.Tensor:
        return F.dropout(lucid.sin(x @ w), 0.2)

    def outer(x: lucid.Tensor) -> lucid.Tensor:
        return lucid.exp(ckpt(inner, ckpt(inner, x) * 0.5)) * x

    return ckpt(outer, ckpt(outer, x))


def several_results(ckpt: Body, x: lucid.Tensor, w: lucid.Tensor) -> lucid.Tensor:
    def block(x: lucid.Tensor, *, w: lucid.Tensor, power: int) -> Any:
        h = x @ w
        return h**power, {"sine": lucid.sin(h), "count": power}

    a, rest = ckpt(block, x, w=w, power=3)
    return a * rest["sine"] + rest["count"]


def hosts(ckpt: Body, x: lucid.Tensor, w: lucid.Tensor) -> lucid.Tensor:
    return ckpt(lambda x: lucid.exp(HostSine.apply(lucid.tanh(x @ w))), x)


def a_part_without_gradient(ckpt: Body, x: lucid.Tensor, w: lucid.Tensor) -> lucid.Tensor:
    def block(x: lucid.Tensor) -> lucid.Tensor:
        with lucid.no_grad():
            y = lucid.exp(x)
        return y * (x @ w)

    return ckpt(block, x)


def a_gradient_inside(ckpt: Body, x: lucid.Tensor, w: lucid.Tensor) -> lucid.Tensor:
    def block(x: lucid.Tensor) -> lucid.Tensor:
        y = lucid.sin(x @ w)
        (g,) = lucid.autograd.grad((y * y).sum(), x, create_graph=True)
        return g * y

    return ckpt(block, x)


def a_gradient_of_a_block_inside(ckpt: Body, x: lucid.Tensor, w: lucid.Tensor) -> lucid.Tensor:
    def block(x: lucid.Tensor) -> lucid.Tensor:
        y = ckpt(lambda x: F.dropout(lucid.sin(x @ w), 0.3), lucid.exp(x))
        (g,) = lucid.autograd.grad((y * y).sum(), x, create_graph=True)
        return g * y

    return ckpt(block, x)


def written_inside(ckpt: Body, x: lucid.Tensor, w: lucid.Tensor) -> lucid.Tensor:
    def block(x: lucid.Tensor) -> lucid.Tensor:
        y = x @ w
        y.mul_(2).relu_()
        z = lucid.zeros(3, 4)
        z[1:] = y[1:] * y[:2]
        return lucid.sin(z) + y

    return ckpt(block, x)


def indices(ckpt: Body, x: lucid.Tensor, w: lucid.Tensor) -> lucid.Tensor:
    index = lucid.tensor([2, 0, 2])
    return ckpt(lambda x, i: lucid.exp(w)[i] * lucid.sin(x[i]), x, index)


BODIES = [
    a_chain, dropouts, custom_functions, nested, several_results, hosts, a_part_without_gradient,
    a_gradient_inside, a_gradient_of_a_block_inside, written_inside, indices,
]  # fmt: skip


def gradients(run: Run, body: Body, ckpt: Body, order: int = 1) -> list[np.ndarray]:
    """The value, the gradients of a function's square, or of the square of its gradient."""

    def step(x: lucid.Tensor, w: lucid.Tensor) -> lucid.Tensor:
        loss = (body(ckpt, x, w) ** 2).sum()
        for _ in range(order - 1):
            gx, gw = lucid.autograd.grad(loss, (x, w), create_graph=True)
            loss = (gx * gx).sum() + (gw * gw).sum()
        loss.backward()
        return loss.detach()

    lucid.manual_seed(3)
    rng = np.random.default_rng(3)
    x, w = (lucid.tensor(rng.normal(size=size) * 0.4) for size in ((3, 4), (4, 4)))
    x.requires_grad_()
    w.requires_grad_()
    found = [run(step, x, w).numpy()]
    grads = [np.zeros(1) if leaf.grad is None else leaf.grad.numpy() for leaf in (x, w)]
    return [*found, *grads, lucid.get_rng_state().numpy()]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_gradients_are_those_without_a_checkpoint(run: Run, body: Body, order: int) -> None:
    wanted = gradients(plain, body, plain, order)
    for found, expected in zip(gradients(run, body, checkpoint, order), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


Plan = list[tuple[Any, int, int]]


def random_plan(rng: np.random.Generator, depth: int = 0) -> Plan:
    """What a block does: ops, or blocks in it, on two of the values so far."""
    kinds = [*range(7), *([random_plan(rng, depth + 1)] if depth < 2 else [])]
    count = int(rng.integers(2, 6))
    return [
        (kinds[rng.integers(len(kinds))], *map(int, rng.integers(99, size=2))) for _ in range(count)
    ]


def carried_out(plan: Plan, ckpt: Body, w: lucid.Tensor, *given: lucid.Tensor) -> Any:
    values = [*given]
    for kind, first, second in plan:
        a, b = values[first % len(values)], values[second % len(values)]
        match kind:
            case 0:
                values.append(lucid.tanh(a))
            case 1:
                values.append(a * b)
            case 2:
                values.append(a @ w)
            case 3:
                values.append(F.softmax(a, -1) + b)
            case 4:
                values.append(F.dropout(a, 0.4))
            case 5:
                values.append(lucid.sin(a - b.mean(1, keepdim=True)))
            case 6:
                values.append(Cubed.apply(a) * 0.5)
            case _:
                values += ckpt(lambda *given, inner=kind: carried_out(inner, ckpt, w, *given), a, b)
    return values[-1], values[-2]


def random_body(seed: int) -> Body:
    """Two blocks, one after the other, of random ops, with blocks in them."""
    rng = np.random.default_rng(seed)
    plans = [random_plan(rng), random_plan(rng)]

    def body(ckpt: Body, x: lucid.Tensor, w: lucid.Tensor) -> lucid.Tensor:
        values = x @ w, x
        for plan in plans:
            values = ckpt(lambda *given, plan=plan: carried_out(plan, ckpt, w, *given), *values)
        return values[0] + values[1]

    return body


@pytest.mark.parametrize("seed", range(many(12)))
def test_gradients_of_random_programs_are_those_without_a_checkpoint(run: Run, seed: int) -> None:
    wanted = gradients(plain, random_body(seed), plain)
    found = gradients(run, random_body(seed), checkpoint)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


# What is written -------------------------------------------------------------------------------


def test_what_a_block_writes_is_written_once(run: Run) -> None:
    def trained(ckpt: Body, run: Run) -> tuple[lucid.Tensor, nn.BatchNorm1d]:
        lucid.manual_seed(0)
        norm, x = nn.BatchNorm1d(3), leaf([[1.0, 2.0, 3.0], [2.0, 0.0, 1.0]])

        def step(x: lucid.Tensor) -> None:
            lucid.exp(ckpt(norm, x)).sum().backward()

        for _ in range(2):
            run(step, x)
        return x.grad, norm

    wanted, other = trained(plain, plain)
    found, norm = trained(checkpoint, run)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)
    assert norm.num_batches_tracked.item() == other.num_batches_tracked.item() == 2
    np.testing.assert_allclose(norm.running_var.numpy(), other.running_var.numpy(), rtol=1e-6)


def test_a_block_is_computed_again_from_the_state_that_it_found(run: Run) -> None:
    """As spectral normalization does, whose estimate gets better at each call."""
    scale = lucid.tensor(1.0)

    def block(x: lucid.Tensor) -> lucid.Tensor:
        with lucid.no_grad():
            scale.mul_(2)
        return lucid.exp(x * scale.clone())

    def step(x: lucid.Tensor) -> None:
        y = checkpoint(block, x)
        scale.add_(5)
        y.sum().backward()

    x = leaf([0.5])
    run(step, x)
    assert scale.item() == 7.0
    np.testing.assert_allclose(x.grad.numpy(), [2 * np.e], rtol=1e-6)


@pytest.mark.parametrize("what", ["argument", "result"])
def test_what_was_saved_and_then_written_is_the_error_without_a_checkpoint(
    run: Run, what: str
) -> None:
    def step(ckpt: Body, x: lucid.Tensor) -> None:
        h = x * 1
        y = ckpt(lambda h: h * h if what == "argument" else lucid.exp(h), h)
        (h if what == "argument" else y).add_(1)
        y.sum().backward()

    messages = []
    for call, ckpt in ((plain, plain), (run, checkpoint)):
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
            call(step, ckpt, leaf([1.0]))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


# Walks -----------------------------------------------------------------------------------------


def test_walks_through_a_retained_graph_give_the_same(run: Run) -> None:
    def step(x: lucid.Tensor) -> list[lucid.Tensor]:
        y = checkpoint(lambda x: F.dropout(lucid.exp(x), 0.5), x).sum()
        first = lucid.autograd.grad(y, x, retain_graph=True)[0]
        return [first, lucid.autograd.grad(y, x)[0]]

    first, second = run(step, leaf([1.0, 2.0, 3.0, 4.0]))
    assert first.tolist() == second.tolist()


def test_a_second_walk_through_a_freed_graph_is_an_error(run: Run) -> None:
    def step(x: lucid.Tensor) -> None:
        y = checkpoint(lambda x: lucid.exp(x) * x, x).sum()
        y.backward()
        y.backward()

    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        run(step, leaf([1.0]))


def test_saved_tensors_may_be_read_twice(run: Run) -> None:
    class Twice(Cubed):
        @staticmethod
        def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
            return 3 * ctx.saved_tensors[1] * g * ctx.saved_tensors[0] / ctx.saved_tensors[0]

    def step(x: lucid.Tensor) -> None:
        checkpoint(lambda x: lucid.exp(Twice.apply(x)), x).sum().backward()

    x = leaf([0.5])
    run(step, x)
    np.testing.assert_allclose(x.grad.numpy(), [0.75 * np.exp(0.125)], rtol=1e-6)


def test_a_step_may_go_on_into_blocks_from_outside() -> None:
    x = leaf([1.0, 2.0])
    y = checkpoint(lambda x: lucid.exp(x) * x, x)

    def step() -> None:
        (y * y).sum().backward(retain_graph=True)

    step()
    expected = x.grad.tolist()
    x.grad = None
    lucid.compile(step)()
    assert x.grad.tolist() == expected


def test_without_gradients_the_function_is_only_called(run: Run) -> None:
    def step(x: lucid.Tensor) -> lucid.Tensor:
        with lucid.no_grad():
            return checkpoint(lambda x: lucid.exp(x), x)

    assert not run(step, leaf([1.0])).requires_grad


def test_the_argument_may_need_no_gradient(run: Run) -> None:
    layer, x = nn.Linear(2, 2), lucid.ones(1, 2)
    run(lambda: checkpoint(lambda x: lucid.exp(layer(x)), x, use_reentrant=False).sum().backward())
    assert layer.weight.grad is not None


def test_hooks_on_saved_tensors_see_the_arguments_of_a_block_and_not_its_inside() -> None:
    seen = []

    def pack(x: lucid.Tensor) -> lucid.Tensor:
        seen.append(x.shape[0])
        return x

    x = leaf([1.0, 2.0])
    with saved_tensors_hooks(pack, lambda x: x):
        y = checkpoint(lambda x: lucid.exp(lucid.cat([x, x])), x)
    y.sum().backward()
    assert seen == [2]
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp([1.0, 2.0]), rtol=1e-6)


def test_under_vmap_the_function_is_called(run: Run) -> None:
    def step(x: lucid.Tensor) -> lucid.Tensor:
        return lucid.func.vmap(lucid.func.grad(lambda x: checkpoint(lambda x: x.exp() * x, x)))(x)

    found = run(step, lucid.tensor([0.0, 1.0])).numpy()
    np.testing.assert_allclose(found, [1.0, 2 * np.e], rtol=1e-6)


def test_compiled_functions_may_be_called_in_blocks(run: Run) -> None:
    layer = nn.Linear(2, 2)
    inner = lucid.compile(lambda x: F.dropout(lucid.exp(layer(x)), 0.5))

    def step(x: lucid.Tensor) -> lucid.Tensor:
        y = checkpoint(inner, x)
        y.sum().backward()
        return y.detach()

    x = lucid.tensor([[1.0, 2.0]], requires_grad=True)
    y = run(step, x)
    expected = (y @ layer.weight.detach()).numpy()
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5)


# Models compiled alone -------------------------------------------------------------------------


class Deep(nn.Module):
    def __init__(self, is_checkpointed: bool) -> None:
        super().__init__()
        lucid.manual_seed(1)
        self.blocks = nn.ModuleList([Attention() for _ in range(3)])
        self.head = nn.Linear(32, 2)
        self.call = checkpoint if is_checkpointed else plain

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        for block in self.blocks:
            x = self.call(block, x, scale=0.5)
        return self.head(x)


def test_of_a_model_compiled_alone_only_what_enters_blocks_is_kept() -> None:
    models = [Deep(True), Deep(False)]
    compiled, x = lucid.compile(models[0]), lucid.randn(2, 5, 32)
    for _ in range(4):
        grads = []
        for model, call in zip(models, (compiled, models[1]), strict=True):
            model.zero_grad()
            lucid.manual_seed(2)
            (call(x) ** 2).sum().backward()
            grads.append([p.grad.numpy().copy() for p in model.parameters()])
        for a, b in zip(*grads, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    residuals = compiled.stages["residuals"].splitlines()
    kept = [line for line in residuals if line.startswith("kept")]
    assert not [line for line in kept if "matmul" in line or "softmax" in line or "[2,5,5]" in line]
    assert [line for line in residuals if "repeated" in line and "matmul" in line]


# Memory ----------------------------------------------------------------------------------------


def transformer_step(ckpt: Body, layers: int) -> Any:
    lucid.manual_seed(0)
    dims, heads, tokens = 32, 4, 64

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(dims), nn.LayerNorm(dims)])
            self.qkv, self.out = nn.Linear(dims, 3 * dims), nn.Linear(dims, dims)
            self.up, self.down = nn.Linear(dims, 4 * dims), nn.Linear(4 * dims, dims)

        def forward(self, x: lucid.Tensor) -> lucid.Tensor:
            parts = self.qkv(self.norms[0](x)).chunk(3, -1)
            q, k, v = (p.view(2, tokens, heads, -1).transpose(1, 2) for p in parts)
            scores = F.dropout(lucid.softmax(q @ k.transpose(-1, -2), -1), 0.1)
            x = x + self.out((scores @ v).transpose(1, 2).reshape(2, tokens, dims))
            return x + F.dropout(self.down(F.gelu(self.up(self.norms[1](x)))), 0.1)

    blocks = nn.ModuleList([Block() for _ in range(layers)])
    optimizer = lucid.optim.AdamW(blocks.parameters(), lr=1e-3)

    def step(x: lucid.Tensor) -> lucid.Tensor:
        optimizer.zero_grad()
        for block in blocks:
            x = ckpt(block, x)
        loss = (x * x).mean()
        loss.backward()
        optimizer.step()
        return loss

    return lucid.compile(step), lucid.randn(2, tokens, dims)


def arena_bytes(step: Any) -> int:
    return int(step.stages["buffers"].split()[2])


def test_a_checkpointed_transformer_step_needs_less_than_half_of_the_memory() -> None:
    sizes, losses = [], []
    for ckpt in (plain, checkpoint):
        step, x = transformer_step(ckpt, layers=4)
        lucid.manual_seed(4)
        losses.append([step(x).item() for _ in range(3)])
        sizes.append(arena_bytes(step))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert sizes[1] <= 0.5 * sizes[0]


def test_memory_grows_by_the_inputs_of_the_blocks() -> None:
    sizes = []
    for layers in (2, 4):
        step, x = transformer_step(checkpoint, layers)
        step(x)
        sizes.append(arena_bytes(step))
    assert sizes[1] - sizes[0] <= 2 * (2 * 64 * 32 * 4) * 1.5


def test_the_stages_show_what_is_repeated() -> None:
    step, x = transformer_step(checkpoint, layers=1)
    step(x)
    assert "checkpoint #" in step.stages["trace"]
    optimized = step.stages["optimize"]
    (number,) = [line.split()[1] for line in optimized.splitlines() if line.startswith("repeated")]
    repeated = [line for line in optimized.splitlines() if line.endswith(f" {number}")]
    assert sum("= matmul" in line for line in repeated) == 5  # `down` is asked by nobody
    assert sum("= random_uniform" in line for line in repeated) == 2
    assert any("= barrier" in line for line in repeated)


def test_in_eager_mode_the_inside_of_a_block_is_not_held() -> None:
    def held(ckpt: Body) -> int:
        made = []

        def block(y: lucid.Tensor) -> lucid.Tensor:
            for _ in range(4):
                y = (-y).exp()
                made.append(weakref.ref(y.detach().numpy()))
            return y

        y = lucid.ones(1 << 16, requires_grad=True)
        for _ in range(6):
            y = ckpt(block, y)
        gc.collect()
        return sum(array() is not None for array in made)

    assert held(checkpoint) <= 0.3 * held(plain)


def test_in_eager_mode_a_block_lives_as_long_as_its_graph() -> None:
    class Layer(nn.Module):
        def forward(self, x: lucid.Tensor) -> lucid.Tensor:
            return lucid.exp(x) * x

    layer, x = Layer(), leaf([1.0])
    held = weakref.ref(layer)
    y = checkpoint(layer, x).sum()
    del layer
    assert held() is not None
    y.backward()
    assert held() is None


# Arguments -------------------------------------------------------------------------------------


def test_a_sequence_is_cut_into_segments(run: Run) -> None:
    lucid.manual_seed(0)
    layers = nn.Sequential(*(nn.Linear(3, 3) for _ in range(5)))
    x = lucid.randn(2, 3)

    def step(x: lucid.Tensor) -> None:
        checkpoint_sequential(layers, 2, x, use_reentrant=False).sum().backward()

    layers(x).sum().backward()
    expected = [p.grad.numpy().copy() for p in layers.parameters()]
    layers.zero_grad()
    run(step, x)
    for parameter, gradient in zip(layers.parameters(), expected, strict=True):
        np.testing.assert_allclose(parameter.grad.numpy(), gradient, rtol=1e-5)
    with pytest.raises(ValueError, match="5 functions can't be cut into 6 segments"):
        checkpoint_sequential(layers, 6, x)


def test_contexts_stand_around_the_call_and_its_repetition(run: Run) -> None:
    seen: list[str] = []

    class Noted:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            seen.append(self.name)

        def __exit__(self, *_: object) -> None:
            pass

    def step(x: lucid.Tensor) -> None:
        pair = Noted("call"), Noted("repetition")
        checkpoint(lambda x: x.exp() * x, x, context_fn=lambda: pair).sum().backward()

    run(step, leaf([1.0]))
    assert seen == ["call", "repetition"]


@pytest.mark.parametrize("kind", ["an attribute", "a list", "a variable"])
def test_what_a_block_counts_in_python_counts_its_repetition_too(kind: str) -> None:
    def trained(compile: Callable[..., Any]) -> list[Any]:
        layer, seen, count = nn.Linear(2, 2), [0], 0
        layer.count, layer.weight.data = 0, lucid.ones(2, 2)

        def block(x: Any) -> Any:
            nonlocal count
            if kind == "an attribute":
                layer.count += 1
            elif kind == "a list":
                seen.append(len(seen))
            else:
                count += 1
            return layer(x * (1 + layer.count + seen[-1] + count)).exp()

        @compile
        def step(x: Any) -> Any:
            layer.zero_grad()
            loss = checkpoint(block, x.sin(), use_reentrant=False).sum()
            loss.backward()
            return loss.detach()

        found = [step(lucid.ones(2) / 8).item() for _ in range(3)]
        return [found, layer.weight.grad.tolist(), layer.count, seen, count]

    lucid.manual_seed(0)
    expected = trained(lambda step: step)
    lucid.manual_seed(0)
    with collecting() as steps:
        assert trained(lucid.compile) == expected
    assert "which a backward repeats, changes" in next(iter(steps[0].stats.eager_reasons))


def test_a_block_may_keep_what_it_computes_in_python() -> None:
    owner = nn.Module()
    owner.seen = None

    def block(x: Any) -> Any:
        owner.seen = x.detach()
        rows = []
        rows.append(x.exp())
        return rows[0]

    @lucid.compile
    def step(x: Any) -> Any:
        checkpoint(block, x.sin(), use_reentrant=False).sum().backward()

    for _ in range(3):
        step(lucid.ones(2, requires_grad=True))
    assert owner.seen.shape == (2,)
    assert not step.stats.eager_reasons


def test_a_repetition_that_does_something_else_is_an_error() -> None:
    sizes = [2, 3]

    def other_shape(x: lucid.Tensor) -> lucid.Tensor:
        return lucid.exp(x.expand(sizes.pop(0), 1)).sum()

    with pytest.raises(
        CheckpointError, match="have different metadata than during the forward"
    ) as e:
        checkpoint(other_shape, leaf([1.0])).backward()
    assert "tensor at position 0:\nsaved metadata: f64[2,1]\nrecomputed metadata: f64[3,1]" in str(
        e.value
    )
    counts = [2, 1]

    def fewer(x: lucid.Tensor) -> lucid.Tensor:
        for _ in range(counts.pop(0)):
            x = lucid.exp(x)
        return x

    with pytest.raises(CheckpointError, match="A different number of tensors was saved") as e:
        checkpoint(fewer, leaf([1.0])).backward()
    assert "Number of tensors saved during forward: 2\n" in str(e.value)
    assert (
        "during recomputation: 1.\n  in checkpoint(fewer), recorded at test_checkpoint.py"
        in str(e.value)
    )


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="checkpoint: the first argument is a Tensor"):
        checkpoint(lucid.ones(1), lucid.exp)
    with pytest.raises(ValueError, match="determinism_check must be one of"):
        checkpoint(lucid.exp, lucid.ones(1), determinism_check="sometimes")


MANY_OPS = """
import lucid
from lucid.utils.checkpoint import checkpoint

seen = []
x = lucid.randn(3, 4, requires_grad=True)
for i in range(60):
    y = checkpoint(lambda x: (x * 2 + i).sin() * x, x, use_reentrant=False)
    y.sum().backward()
    with lucid.autograd.graph.saved_tensors_hooks(lambda x: seen.append(x) or x, lambda x: x):
        x.sin()
    assert len(seen) == i + 1
"""


def test_a_process_that_has_applied_many_ops_by_then_saves_what_it_did():
    """Machine code is loaded once, in the middle of what a program does."""
    subprocess.run([sys.executable, "-c", MANY_OPS], check=True, capture_output=True)
