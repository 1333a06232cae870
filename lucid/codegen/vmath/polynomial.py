"""Evaluation of polynomials with known coefficients."""

from __future__ import annotations

from collections.abc import Sequence

from lucid.codegen.llvm.builder import FunctionBuilder, Val, const


def polynomial(b: FunctionBuilder, x: Val, coefficients: Sequence[float]) -> Val:
    """The polynomial with these coefficients, highest degree first.

    Short ones by Horner's rule; the longer ones of double precision by Estrin's, which has a
    third of the latency and is as accurate where the higher terms are small.
    """
    if x.element == "double" and len(coefficients) > 4:
        return _estrin(b, x, coefficients)
    result = const(x.type, coefficients[0])
    for coefficient in coefficients[1:]:
        result = b.muladd(result, x, coefficient)
    return result


def _estrin(b: FunctionBuilder, x: Val, coefficients: Sequence[float]) -> Val:
    terms = [const(x.type, coefficient) for coefficient in reversed(coefficients)]
    power = x
    while len(terms) > 1:
        pairs = [
            b.muladd(terms[i + 1], power, terms[i]) if i + 1 < len(terms) else terms[i]
            for i in range(0, len(terms), 2)
        ]
        terms = pairs
        if len(terms) > 1:
            power = b.mul(power, power)
    return terms[0]
