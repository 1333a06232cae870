"""Fit a damped oscillation to noisy measurements, with a gradient derived by hand.

Everything is in double precision; the same fit runs eagerly and compiled, and must agree.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext

import numpy as np

import lucid
from lucid import nn

NAMES = ("amplitude", "decay", "frequency", "phase")
TRUE = (1.5, 0.3, 4.0, 0.7)
START = (1.0, 0.1, 3.7, 0.2)


class DampedOscillation(lucid.autograd.Function):
    """x(t) = a · exp(-d t) · cos(w t + p), and its partial derivatives from the textbook."""

    @staticmethod
    def forward(ctx, t, a, d, w, p):
        envelope = lucid.exp(-d * t)
        angle = w * t + p
        ctx.save_for_backward(t, a, envelope, angle)
        return a * envelope * lucid.cos(angle)

    @staticmethod
    def backward(ctx, grad):
        t, a, envelope, angle = ctx.saved_tensors
        g = grad * envelope
        by_a = (g * lucid.cos(angle)).sum()
        by_p = -a * (g * lucid.sin(angle)).sum()
        by_w = -a * (g * t * lucid.sin(angle)).sum()
        by_d = -a * (g * t * lucid.cos(angle)).sum()
        return None, by_a, by_d, by_w, by_p


def measurements() -> tuple[np.ndarray, np.ndarray]:
    """Return 200 times in [0, 6] and noisy positions at them, both f64[200]."""
    rng = np.random.default_rng(0)
    t = np.linspace(0, 6, 200)
    a, d, w, p = TRUE
    return t, a * np.exp(-d * t) * np.cos(w * t + p) + rng.normal(0, 0.02, t.shape)


def fit(steps: int = 800) -> tuple[list[float], list[float]]:
    """Return the fitted parameters and the loss of each step."""
    t, x = (lucid.from_numpy(a) for a in measurements())
    parameters = [nn.Parameter(lucid.tensor(v, dtype=lucid.float64)) for v in START]
    opt = lucid.optim.Adam(parameters, lr=0.02)

    @lucid.compile
    def step():
        opt.zero_grad()
        loss = ((DampedOscillation.apply(t, *parameters) - x) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    losses = [step().item() for _ in range(steps)]
    return [p.item() for p in parameters], losses


def main() -> int:
    """Check the gradient, fit in both modes, and compare."""
    t = lucid.from_numpy(measurements()[0])
    guess = [lucid.tensor(v, dtype=lucid.float64, requires_grad=True) for v in START]
    lucid.autograd.gradcheck(DampedOscillation.apply, (t, *guess))
    print("the hand-written gradient agrees with finite differences")

    results = {}
    for name, mode in (("compiled", nullcontext()), ("eager", None)):
        with mode or lucid.compiler.set_stance("force_eager"):
            results[name] = fit()
    for i, name in enumerate(NAMES):
        fitted = results["compiled"][0][i]
        print(f"{name:10} true {TRUE[i]:.3f}   fitted {fitted:.6f}")
    print(f"mean squared error  {results['compiled'][1][-1]:.6f}   (noise: {0.02**2:.6f})")

    difference = max(
        abs(a - b) / abs(b)
        for compiled, eager in zip(results["compiled"], results["eager"], strict=True)
        for a, b in zip(compiled, eager, strict=True)
    )
    print(f"eager and compiled differ by {difference:.1e} at most, relative, over all steps")
    good = np.allclose(results["compiled"][0], TRUE, atol=0.03) and difference < 1e-9
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
