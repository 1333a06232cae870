"""Random training steps that look at values: what they return, keep, print and raise is eager's.

Their numbers are small integers and halves, so that no rounding decides which way a branch goes.
Which zero is the largest of several with other signs is nobody's promise: `+ 0.0` takes the sign.
`FUZZED=10000` in the environment runs so many.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import random
import textwrap
from typing import Any

import numpy as np
import pytest

import lucid

COUNT = int(os.environ.get("FUZZED", "120"))
CALLS = 7


class Writer:
    """Writes the source of one step."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tensors = ["x", "w", "x * 2"]
        self.numbers = ["1", "0.5", "s.total", "s.count"]
        self.names = 0

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    def tensor(self) -> str:
        return self.random.choice(self.tensors[-4:])

    def number(self) -> str:
        return self.random.choice(self.numbers[-4:])

    def condition(self) -> str:
        t, n, c = self.tensor(), self.number(), self.random.randint(-3, 5)
        return self.random.choice(
            [
                f"({t}).sum() > {c}",
                f"{n} > {c}",
                f"bool((({t}) > 0).any())",
                f"int(({t})[0]) % 2 == 0",
                f"({t}).max() >= {n} and {n} < 4",
                f"{n} == {self.number()}",
                f"not lucid.isfinite(({t}).sum())",
                f"({t}).tolist()[1] <= {n}",
            ]
        )

    def block(self, depth: int, count: int) -> list[str]:
        before = list(self.tensors), list(self.numbers)
        lines = [line for _ in range(count) for line in self.statement(depth)]
        if depth < 2:  # what a branch makes isn't there outside of it
            self.tensors, self.numbers = before
        return lines

    def statement(self, depth: int) -> list[str]:
        kinds = [
            "tensor",
            "number",
            "number",
            "arithmetic",
            "say",
            "keep",
            "state",
            "write",
            "into",
        ]
        kinds += (
            ["branch", "branch", "loop", "train", "draw", "call", "raise"] if depth else ["say"]
        )
        lines: list[str] = getattr(self, f"_{self.random.choice(kinds)}")(depth)
        return lines

    def _tensor(self, _: int) -> list[str]:
        a, b, name = self.tensor(), self.tensor(), self.name("t")
        op = self.random.choice(["({}) + ({})", "({}) - ({})", "lucid.maximum({}, {})"])
        self.tensors.append(name)
        return [f"{name} = ({op.format(a, b)}).clamp(-9, 9)"]

    def _number(self, _: int) -> list[str]:
        t, name = self.tensor(), self.name("n")
        how = self.random.choice(
            [
                f"({t}).sum().item()",
                f"float(({t}).max() + 0.0)",
                f"int(({t}).sum())",
                f"({t}).tolist()[2]",
                f"(({t}) > 1).sum().item()",
            ]
        )
        self.numbers.append(name)
        return [f"{name} = {how}"]

    def _arithmetic(self, _: int) -> list[str]:
        a, b, name = self.number(), self.number(), self.name("n")
        how = self.random.choice(
            [
                f"{a} + {b}",
                f"{a} - {b}",
                f"{a} * 0.5",
                f"min({a}, {b})",
                f"max({a}, 2)",
                f"abs({a})",
                f"round({a})",
                f"{a} // 2",
                f"{a} / (1 if {b} == 0 else {b}) if {b} == 2 else {a}",
                f"int({a})",
                f"float({a})",
            ]
        )
        self.numbers.append(name)
        return [f"{name} = {how}"]

    def _say(self, _: int) -> list[str]:
        t, n, m = self.tensor(), self.number(), self.number()
        return [
            self.random.choice(
                [
                    f'print(f"{{{n}:.2f}} of {{{m}}}")',
                    f'print("a", {n}, {t}, sep="|")',
                    f'print("%.1f and %s" % ({n}, {m}))',
                    f'print("{{}} {{:.2f}}".format({t}, {n}))',
                    f"print([{n}, {m}], ({t}).sum().item())",
                    f"print(str({t}), repr({n}))",
                ]
            )
        ]

    def _keep(self, _: int) -> list[str]:
        t, n = self.tensor(), self.number()
        kept = self.random.choice([n, f"({t}).clone()", f'f"{{{n}:.1f}}"', f"[{n}, ({t}) * 1]"])
        return [f"log.append({kept})"]

    def _state(self, _: int) -> list[str]:
        n = self.number()
        return [
            self.random.choice(
                [
                    f"s.total = s.total * 0.5 + {n}",
                    "s.count += 1",
                    f"s.best = max(s.best, {n})",
                    "s.total = 0.0",
                    "s.count = 0",
                    "s.seen = True",
                    "noted.clear()",
                    "noted.add(1)",
                    f"table['k'] = {self.random.choice(['0', n])}",
                ]
            )
        ]

    def _write(self, _: int) -> list[str]:
        t = self.tensor()
        return ["with lucid.no_grad():", f"    w.add_({t}).clamp_(-6, 6)"]

    def _into(self, _: int) -> list[str]:
        t, n, name = self.tensor(), self.number(), self.name("t")
        self.tensors.append(name)
        return [f"{name} = (({t}) * {n}).clamp(-9, 9).trunc()"]

    def _branch(self, depth: int) -> list[str]:
        lines = [f"if {self.condition()}:"]
        lines += ["    " + x for x in self.block(depth - 1, self.random.randint(1, 3))]
        if self.random.random() < 0.6:
            lines += ["else:"]
            lines += ["    " + x for x in self.block(depth - 1, self.random.randint(1, 2))]
        return lines

    def _loop(self, depth: int) -> list[str]:
        t, name, k = self.tensor(), self.name("t"), self.name("k")
        lines = [f"{name}, {k} = ({t}) * 1, 0"]
        lines += [f"while ({name}).sum() > {self.random.randint(-2, 6)} and {k} < 3:"]
        lines += [f"    {name} = {name} - 1", f"    {k} += 1"]
        if self.random.random() < 0.4:
            lines += [f"    if {self.condition()}:", "        break"]
        self.tensors.append(name)
        self.numbers.append(k)
        return lines

    def _train(self, _: int) -> list[str]:
        t = self.tensor()
        return [
            "p.grad = None",
            f"(p * ({t})).sum().backward()",
            "with lucid.no_grad():",
            "    p.sub_(p.grad * 0.5).clamp_(-6, 6).copy_(p.trunc())",
        ]

    def _draw(self, _: int) -> list[str]:
        name = self.name("t")
        self.tensors.append(name)
        return [f"{name} = lucid.randint(-3, 4, (3,)).double()"]

    def _call(self, _: int) -> list[str]:
        name, given = self.name("n"), f"{self.tensor()}, {self.number()}"
        self.numbers.append(name)
        return [f"{name} = helper({given})"]

    def _raise(self, _: int) -> list[str]:
        n = self.number()
        return [f"if {n} > 7:", f'    raise ValueError(f"too large: {{{n}:.1f}}")']


def source_of(seed: int) -> str:
    writer = Writer(seed)
    body = writer.block(2, writer.random.randint(3, 8))
    returned = ", ".join([writer.number(), writer.tensor(), writer.number()])
    lines = [*body, f"return {returned}"]
    return "def step(x):\n" + textwrap.indent("\n".join(lines), "    ") + "\n"


HELPER = """
def helper(t, n):
    if t.sum() > n:
        return (t.max() + 0.0).item()
    return n
"""


def run(seed: int, source: str, compile: Any) -> tuple[list[Any], Any]:
    """What can be seen of some calls, and the step."""

    class State:
        def __init__(self) -> None:
            self.total, self.count, self.best, self.seen = 0.0, 0, -1e9, False

    s, log, noted, table = State(), [], set(), {"k": 0}
    w = lucid.zeros(3, dtype=lucid.float64)
    p = lucid.ones(3, dtype=lucid.float64, requires_grad=True)
    names: dict[str, Any] = {"lucid": lucid, "s": s, "log": log, "w": w, "p": p}
    names |= {"noted": noted, "table": table}
    file = f"<random step {seed}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(builtins_compile(HELPER + source, file), names)
    step = names["step"] if compile is None else compile(names["step"])
    lucid.manual_seed(seed)
    numbers = np.random.default_rng(seed)
    seen: list[Any] = []
    for _ in range(CALLS):
        x = lucid.tensor(numbers.integers(-3, 4, 3).astype(float))
        before = vars(s).copy(), len(log), w.clone(), p.detach().clone(), p.grad
        tables = noted.copy(), table.copy()
        drawn, said = lucid.get_rng_state(), io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                seen.append(repr(step(x)))
        except ValueError as error:
            seen.append(f"{type(error).__name__}: {error}")
            if compile is None:  # a failed step changes nothing, and has said nothing
                vars(s).clear()
                vars(s).update(before[0])
                noted.clear()
                noted.update(tables[0])
                table.update(tables[1])
                del log[before[1] :]
                with lucid.no_grad():
                    w.copy_(before[2])
                    p.copy_(before[3])
                p.grad = before[4]
                lucid.set_rng_state(drawn)
                said = io.StringIO()
        seen.append([repr(noted), repr(table)])
        seen.append([said.getvalue(), vars(s).copy(), w.tolist(), p.tolist(), repr(p.grad)])
    seen += [repr(log), lucid.get_rng_state().tolist()]
    return seen, step


def builtins_compile(source: str, file: str) -> Any:
    return compile(source, file, "exec")


@pytest.mark.parametrize("first", range(0, COUNT, 10))
def test_random_steps_agree_with_eager_mode(first: int) -> None:
    for seed in range(first, min(first + 10, COUNT)):
        source = source_of(seed)
        expected, _ = run(seed, source, None)
        found, step = run(seed, source, lucid.compile)
        assert found == expected, f"seed {seed}\n{source}\n{step.stats}"
        assert not step.stats.eager_reasons, f"seed {seed}\n{source}\n{step.stats.eager_reasons}"
