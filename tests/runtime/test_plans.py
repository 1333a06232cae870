"""Plans on disk: what was planned once is run by later functions and processes, and only that."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.codegen import costs
from lucid.codegen.lower.schedule import make_program
from lucid.runtime import cache, executable, plans

Step = Callable[..., Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the entries of a cache of its own are to stand; plans are for who verifies nothing."""
    monkeypatch.setenv("LUCID_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LUCID_CACHE", "1")
    monkeypatch.setenv("LUCID_VERIFY", "0")
    return tmp_path / "cache" / "lucid-objects"


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the graphs that are planned."""
    names: list[str] = []

    def noted(graph: Any, *args: Any, **kwargs: Any) -> Any:
        names.append(graph.name)
        return make_program(graph, *args, **kwargs)

    monkeypatch.setattr(executable, "make_program", noted)
    return names


def classified(**options: Any) -> tuple[Step, tuple[lucid.Tensor, ...], lucid.nn.Module]:
    """A training step that checks classes and indices, with its arguments."""
    lucid.manual_seed(0)
    embedding, model = lucid.nn.Embedding(5, 4), lucid.nn.Linear(4, 3)
    optimizer = lucid.optim.Adam([*embedding.parameters(), *model.parameters()])

    @lucid.compile(**options)
    def step(words: lucid.Tensor, classes: lucid.Tensor) -> lucid.Tensor:
        optimizer.zero_grad()
        loss = lucid.nn.functional.cross_entropy(model(embedding(words)), classes)
        loss.backward()
        optimizer.step()
        return loss

    return step, (lucid.tensor([0, 4, 2]), lucid.tensor([2, 0, 1])), model


def test_a_graph_that_was_planned_is_not_planned_again(planned: list[str]) -> None:
    seen = []
    for _ in range(2):
        step, args, model = classified()
        losses = [step(*args).item() for _ in range(4)]
        errors = []
        for wrong in ((args[0], lucid.tensor([2, 0, 3])), (lucid.tensor([0, 5, 2]), args[1])):
            with pytest.raises(IndexError) as found:
                step(*wrong)
            errors.append(str(found.value))
        assert planned == ["step"]
        weight = model.weight.detach().numpy().tobytes()
        seen.append((losses, errors, weight, list(step.stages), dict(step.stages)))
        assert step.explain().stats.cache_hits == len(seen) - 1
        planned[1:] = []  # to be looked at
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("other", "options"),
    [
        (lambda x: (x * 2.5).sum(), {}),
        (lambda x: (x * 2).sum(0), {}),
        (lambda x: (x * 2).sum(), {"nan": "raise"}),
        (lambda x: (x[:4] * 2).sum(), {}),
    ],
)
def test_another_graph_is_planned(planned: list[str], other: Step, options: Any) -> None:
    x = lucid.arange(12.0).reshape(4, 3)
    for function, given in ((lambda x: (x * 2).sum(), {}), (other, options)):
        assert lucid.compile(function, **given)(x).sum().item() == function(x).sum().item()
    assert len(planned) == 2


def test_what_plans_depend_on_is_part_of_their_names(
    planned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        lucid.compile(lambda x: (x * 2).exp())(lucid.ones(3))
    assert len(planned) == 1
    monkeypatch.setattr(costs, "WORTH_SECONDS", 1.0)
    lucid.compile(lambda x: (x * 2).exp())(lucid.ones(3))
    assert len(planned) == 2
    monkeypatch.setattr(plans, "generator_version", lambda: "another release")
    lucid.compile(lambda x: (x * 2).exp())(lucid.ones(3))
    assert len(planned) == 3


@pytest.mark.parametrize("name", ["LUCID_VERIFY", "LUCID_PRINT_AFTER"])
def test_who_looks_at_passes_has_them_run(
    planned: list[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, {"LUCID_VERIFY": "1"}.get(name, "cse"))
    for count in (1, 2):
        lucid.compile(lambda x: x.exp() + 1)(lucid.ones(3))
        assert len(planned) == count


def broken(change: Callable[[list[Any]], object]) -> Callable[[bytes], bytes]:
    def changed(text: bytes) -> bytes:
        found = json.loads(text)
        change(found)
        return json.dumps(found).encode()

    return changed


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"",
        lambda text: text[:-9],
        lambda text: b"\xff" + text,
        lambda text: b"[" * 100_000,
        lambda text: b"[]",
        lambda text: b'{"facts": 1}',
        broken(lambda x: x[0].__setitem__(0, -1)),
        broken(lambda x: x[0].__setitem__(1, [99])),
        broken(lambda x: x[0][2].append(["a message", "no such error", None])),
        broken(lambda x: x.__setitem__(2, {"k0": ["a key", "no list"]})),
        broken(lambda x: x.__setitem__(1, "no such code")),
        broken(lambda x: x[2].update(k99=["a key", [""]])),
        broken(lambda x: x.pop()),
    ],
)
def test_an_entry_that_makes_no_sense_is_none(
    folder: Path, planned: list[str], change: Callable[[bytes], bytes]
) -> None:
    lucid.compile(lambda x: x.exp() + 1)(lucid.zeros(3))
    found = {path: cache.read_entry(path) for path in folder.iterdir()}
    (path,) = (path for path, image in found.items() if image and image.startswith(b"[["))
    cache.write_entry(path, change(found[path] or b""))
    result = lucid.compile(lambda x: x.exp() + 1)(lucid.zeros(3))
    np.testing.assert_array_equal(result.numpy(), [2, 2, 2])
    assert len(planned) == 2


def test_a_plan_without_its_code_is_made_again(folder: Path, planned: list[str]) -> None:
    lucid.compile(lambda x: x.exp() + 1)(lucid.zeros(3))
    for path in folder.iterdir():
        if not (cache.read_entry(path) or b"").startswith(b"[["):
            path.unlink()
    lucid.compile(lambda x: x.exp() + 1)(lucid.zeros(3))
    assert len(planned) == 2


def test_other_sizes_are_open_after_a_plan_from_disk() -> None:
    for _ in range(2):
        step = lucid.compile(lambda x: (x * 2).exp().sum(1))
        for size in (3, 4, 5, 6):
            x = lucid.ones(size, 2)
            np.testing.assert_allclose(step(x).numpy(), (x * 2).exp().sum(1).numpy(), 1e-6)
        assert [x.source for x in step.stats.history][-1] == "other sizes"


def test_checkpointed_blocks_are_part_of_a_graph(planned: list[str]) -> None:
    from lucid.utils.checkpoint import checkpoint

    def two(x: lucid.Tensor) -> lucid.Tensor:
        checkpoint(lambda x: x.sin().cos(), checkpoint(lambda x: x.sin().cos(), x)).sum().backward()
        return x.sum()

    def one(x: lucid.Tensor) -> lucid.Tensor:
        checkpoint(lambda x: x.sin().cos().sin().cos(), x).sum().backward()
        return x.sum()

    for function in (two, one):
        x = lucid.linspace(0, 1, 5).requires_grad_()
        function(x)
        expected, x.grad = x.grad, None
        lucid.compile(function)(x)
        np.testing.assert_allclose(x.grad.numpy(), expected.numpy(), rtol=1e-6)
    assert len(planned) == 2
