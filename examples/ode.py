"""An ODE with an adaptive step size as a `while_loop`, and the gradient through it.

The rate k of x' = -k x is fitted to where the solution is at the end. How many steps the solver
takes depends on the error it finds, so on k; the gradient goes through just those. Compiled, all
steps of the solver and the way back through them are one native call.
"""

from __future__ import annotations

import math

import lucid

TOLERANCE = 1e-6


def heun_and_euler(f, t, x, h):
    """Return a step of order 2, and the difference to one of order 1 as its error."""
    k1 = f(t, x)
    k2 = f(t + h, x + h * k1)
    return x + h / 2 * (k1 + k2), (h / 2 * (k2 - k1)).abs().max()


def odeint(f, x, end):
    """Integrate x' = f(t, x) from 0 to `end` and return x there, and how many steps that took.

    A step whose error is above the tolerance is not taken, and halved; after one far below it the
    next is longer. The choice of the step is no part of the gradient: `h` is computed without.
    """

    def is_before_end(t, h, x, steps):
        return t < end

    def step(t, h, x, steps):
        h = lucid.minimum(h, end - t)
        new, error = heun_and_euler(f, t, x, h)
        with lucid.no_grad():
            accepted = error <= TOLERANCE
            factor = (0.9 * (TOLERANCE / (error + 1e-300)).sqrt()).clamp(0.2, 5.0)
        taken = lucid.where(accepted, t + h, t)
        return taken, h * factor, lucid.where(accepted, new, x), steps + 1

    zero = lucid.zeros((), dtype=lucid.float64)
    first = zero + 0.1
    _, _, x, steps = lucid.while_loop(is_before_end, step, (zero, first, x, 0))
    return x, steps


def solve(k):
    """Return x(1) of x' = -k x with x(0) = 1, its derivative by k, and the number of steps."""
    x, steps = odeint(lambda t, x: -k * x, lucid.ones(1, dtype=lucid.float64), 1.0)
    (slope,) = lucid.autograd.grad(x.sum(), k)
    return x.sum().detach(), slope, steps


def fit(wanted: float = 0.5) -> tuple[float, int]:
    """Find the k with exp(-k) = `wanted` by Newton's method; return it, and the last steps."""
    compiled = lucid.compile(solve)
    k = lucid.tensor(1.0, dtype=lucid.float64, requires_grad=True)
    for _ in range(6):
        x, slope, steps = compiled(k)
        k = (k - (x - wanted) / slope).detach().requires_grad_()
    assert not compiled.stats.eager_reasons
    return k.item(), int(steps)


def main() -> None:
    """Fit k, and compare value and gradient with what mathematics says."""
    k = lucid.tensor(0.7, dtype=lucid.float64, requires_grad=True)
    x, slope, steps = solve(k)
    assert abs(x.item() - math.exp(-0.7)) < 1e-5
    assert abs(slope.item() + math.exp(-0.7)) < 1e-5  # d exp(-k) / dk = -exp(-k)
    found, _ = fit()
    assert abs(found - math.log(2)) < 1e-5
    print(f"x(1) = {x.item():.5f} after {int(steps)} steps, dx/dk = {slope.item():.5f}")
    print(f"k = {found:.5f}, and log 2 = {math.log(2):.5f}")


if __name__ == "__main__":
    main()
