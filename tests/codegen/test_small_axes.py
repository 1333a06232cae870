"""Sums over last axes of two to four elements: the same numbers, in full vectors."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import lucid

Step = Callable[..., object]


def accelerations(x: lucid.Tensor) -> lucid.Tensor:
    """Of bodies that attract each other, as physicists write it."""
    d = x[None] - x[:, None]
    r2 = (d * d).sum(-1) + 0.01
    return (d * (r2**-1.5)[..., None]).sum(1)


def differentiated(x: lucid.Tensor) -> lucid.Tensor:
    leaf = x.detach().requires_grad_()
    return lucid.autograd.grad((accelerations(leaf) ** 2).sum(), leaf)[0]


def kept_as_well(x: lucid.Tensor) -> tuple[lucid.Tensor, ...]:
    unit = x / (x * x).sum(-1, keepdim=True).sqrt()
    return unit, (unit * x).sum(), unit.sum(0), unit.max(-1).values, unit.reshape(-1)[:7]


def of_lower_rank(x: lucid.Tensor) -> lucid.Tensor:
    return ((x[:, None] * x[0] + x[1, 2]) * lucid.tensor(2.0, dtype=x.dtype)).sum((-1, 0))


def of_conditions(x: lucid.Tensor) -> lucid.Tensor:
    y = lucid.where(x > 0, x, x.exp())
    return (y * lucid.arange(3.0, dtype=x.dtype)).sum(-1) + (x > 0).sum(-1)


def written_state(x: lucid.Tensor) -> lucid.Tensor:
    y = x.clone()
    y.add_(x * 2)
    y[:, 1] = (y * y).sum(-1)
    return y


def beside_calls(x: lucid.Tensor) -> tuple[lucid.Tensor, ...]:
    covariance = (x * x).sum(-1)[:, None] + (x[:, :1] * 0 + 1) @ x[:, :1].T * 0
    sign, size = lucid.linalg.slogdet(covariance + lucid.eye(len(x), dtype=x.dtype))
    return sign, size * (x * 2).sum()


def moved(x: lucid.Tensor) -> tuple[lucid.Tensor, ...]:
    """Positions that are computed, left and read for all pairs."""
    x = x + 0.1 * x.flip(0)
    return x, accelerations(x)


PROGRAMS: list[Step] = [moved, accelerations, differentiated, kept_as_well, of_lower_rank]
PROGRAMS += [of_conditions, written_state, beside_calls]


@pytest.mark.parametrize("dtype", [lucid.float32, lucid.float64])
@pytest.mark.parametrize("count", [16, 33])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_numbers_are_those_of_eager_mode(
    program: Step, count: int, dtype: lucid.DType, rng: np.random.Generator
) -> None:
    x = lucid.tensor(rng.normal(size=(count, 3)), dtype=dtype)
    expected, found = program(x), lucid.compile(program)(x)
    as_tuple = [y if isinstance(y, tuple) else (y,) for y in (expected, found)]
    for ours, theirs in zip(*as_tuple, strict=True):
        tolerance = 1e-4 if dtype is lucid.float32 else 1e-11
        scale = float(ours.abs().max())
        np.testing.assert_allclose(
            ours.numpy(), theirs.numpy(), rtol=tolerance, atol=tolerance * scale
        )


def test_pairs_of_bodies_take_full_vectors_and_only_coordinates_are_stored() -> None:
    """Those that are read for all pairs lie side by side: they are copied once."""
    step = lucid.compile(accelerations)
    step(lucid.randn(64, 3, dtype=lucid.float64))
    kernels = step.stages["kernels"]
    copies, pairs = kernels.split("kernel k1")
    assert re.findall(r"<- (%\d+)", copies) == ["%0"] and copies.count("call k0") == 3
    assert "for i1 in 64 step" in pairs and " in 3 " not in pairs
    assert "load a0[i1]" in pairs and "[i1*3" not in pairs
    assert step.stages["buffers"].startswith(f"arena of {3 * 64 * 8} bytes")


def test_positions_that_are_computed_and_left_are_copied_as_well() -> None:
    step = lucid.compile(moved)
    step(lucid.randn(64, 3, dtype=lucid.float64))
    pairs = next(x for x in step.stages["kernels"].split("kernel k") if "pow" in x)
    assert "load a0[i1]" in pairs and "[i1*3" not in pairs


def test_what_is_summed_over_no_small_axis_stays_together() -> None:
    step = lucid.compile(lambda x, v: (x + 0.1 * v).sum(0))
    step(lucid.randn(64, 3), lucid.randn(64, 3))
    assert "concat" not in step.stages["kernels"] and "for i0 in 3" in step.stages["kernels"]
