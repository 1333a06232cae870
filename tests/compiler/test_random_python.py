"""Random steps of plain Python: what they make, keep, share, print and decide is eager mode's.

They make arrays, containers, functions, models and optimizers; they branch, loop and leave early;
the caller then changes what it got and gave.
"""

from __future__ import annotations

import contextlib
import io
import random
import textwrap
from typing import Any

import numpy as np
import pytest
from fuzzing import many
from random_sources import aliases, filled, load, outcome, shown, table

import lucid

COUNT = many(40)
CALLS = 6

TENSORS = table("""
$t + $t
$t * $n
lucid.tanh($t)
lucid.tensor([1.0, $n, 2.0])
lucid.tensor([float(v) for v in $t])
lucid.as_tensor($a)
lucid.from_numpy($a)
lucid.tensor($a)
lucid.full((3,), $n)
lucid.stack([$t[0], $t[1], $t[2]])
lucid.where($t > 0, $t, $n)
$t.clone()
$t.detach()
lucid.rand_like($t)
sum([$t, $t, $t])
lucid.zeros_like($t).copy_($t)
lucid.tensor($t.tolist())
$t.cumsum(0)
$t.sort()[0]
lucid.cat([$t[:1], $t[1:]])
$t.new_zeros(3)
$t[lucid.randperm(3)]
lucid.eye(3)[s.i % 3]
F.one_hot($t.argmax(), 3).double()
$t.to(lucid.float32).double()
$t[:]
$t.reshape(3, 1)[:, 0]
$t.expand(3)
$t.data
s.m[s.i % 2]
s.m.t()[:, 1]
s.m.unbind()[1]
helper($t, 2, $t, $n, scale=$n)
functools.partial(helper, k=$n)($t)
functools.reduce(lambda a, b: a * 0.5 + b, [$t, $t, $t])
(lambda v, k=$n: v * k + $t)($t)
next(rows($t, 3))
""")
ARRAYS = table("""
np.zeros(3)
np.asarray($t.detach())
$t.detach().numpy()
$t.detach().numpy().copy()
np.array([$n, 1.0, 2.0])
np.array($t.tolist())
$a * $a
np.maximum($a, 0)
np.cumsum($a)
$a[::-1]
$a[:]
np.where($a > 0, $a, 0.0)
np.random.randn(3)
np.full(3, $n, dtype=float)
""")
NUMBERS = table("""
$t.sum().item()
float($t[0])
int($t.sum())
$t.argmax().item()
$t.tolist()[1]
$n + $n
min($n, $n)
round($n, 2)
math.sqrt(abs($n))
len([v for v in $t if v > 0])
random.random()
$n if $c else $n
sorted([$n, $n])[0]
float(f'{$n:.2f}')
$a.sum()
float($a[0])
int($a.argmax())
""")
CONTAINERS = table("""
[$t, $t]
($t, $n)
{'a': $t, 'b': $n}
Pair($t, $n)
Record($t, $n)
Frozen($t, $t)
list(rows($t, 3))
dict(zip('ab', [$t, $t]))
collections.defaultdict(list, {'k': [$t]})
collections.deque([$t, $t], maxlen=2)
SimpleNamespace(a=$t, b=$n)
[[$t], {'q': ($t,)}]
$t.split(2)
dataclasses.replace(Record($t), n=$n)
sorted([$t, $t], key=lambda t: t.sum().item())
list(s.log)
s.hold[-2:]
$t.max(0)
[$t] * 2
[$a, $t]
dataclasses.asdict(Record($t, $n))
""")
STATEMENTS = table("""
with lucid.no_grad(): $t.add_($n)
with lucid.no_grad(): $t[0] = $n
with lucid.no_grad(): $t[1] = $t[0]
with lucid.no_grad(): $t[s.i % 3] += 1
with lucid.no_grad(): $t.copy_($t)
with lucid.no_grad(): $t[$t > 0] = $n
with lucid.no_grad(): $t.numpy()[0] += 1
$t.data.mul_(0.9)
$t.mul_(2)
$a[0] = $n
$a[s.i % 3] = $n
$a[$a > 1] = 0
$a[:] = $t.detach().numpy()
np.add($a, 1, out=$a)
s.arr = $a
s.i += 1
s.f = s.f * 0.5 + $n
s.last = $t
s.log.append($n)
s.log.append($t.sum().item())
s.log.append(f'{$n:.2f}')
s.log.extend($t.tolist())
s.log[-3:] = []
s.log.pop() if s.log else None
s.hold.append($t.detach())
s.queue.append($n)
s.d['k'] = $n
s.d[s.i] = $n
s.d.setdefault('l', []).append($n)
s.d.pop('k', None)
s.w = s.w * 0.9 + $t.detach()
s.w.mul_(0.9).add_($t.detach())
s.mode = Mode.B if s.mode is Mode.A else Mode.A
s.best = max(s.best, $n)
if $n > s.best: s.best, s.saved = $n, s.w.clone()
s.grid[s.i % 2][0] = $n
s.back = lambda v, t=$t: v + t
s.log.append(s.back($t).sum().item())
(s.p * $t.detach()).sum().backward()
s.p.grad = None
if s.p.grad is not None: s.log.append(s.p.grad.norm().item())
s.opt.step()
s.opt.param_groups[0]['lr'] *= 0.9
q = $t.detach().clone().requires_grad_(); fit(q, optim.Adam([q], lr=0.1, eps=0.1)); s.q = q
net = nn.Linear(3, 3); fit(net.weight, optim.SGD(net.parameters(), lr=0.1)); s.net = net
s.lin = s.model($t).detach()
s.saved = copy.deepcopy(s.model.state_dict())
s.copied = copy.deepcopy(s.model)
cached = functools.cache(lambda k: $t * k); s.last = cached(2) + cached(2)
print($n, $t.sum().item())
print(f'{$n:.3f} {s.i:03d}', $t)
print(s.d, s.log[-2:])
if $c: return $t
""")
CONDITIONS = table("""
$t.sum() > $n
float($t.max()) > 1
$n > 2
$t.mean().item() < $n
lucid.isfinite($t).all()
($t > 0).any()
s.i % 2 == 0
np.any($a > 0)
$t[0] > $t[1]
s.mode is Mode.A
len(s.log) > 3
""")
BLOCKS = table("""
if $c:$b
if $c:$b\\nelse:$b
for _ in range(s.i % 3):$b
for _ in ($t, $t):$b\\n    if $c: break
try:$b\\n    if $c: raise Failed('b')\\nexcept Failed as error:\\n    s.log.append(str(error))
try:$b\\nfinally:\\n    s.f += 1
with lucid.no_grad():$b
with contextlib.suppress(Failed):$b
k = 0\\nwhile $t.abs().sum() > k and k < 4:\\n    k += 1$b\\ns.k = k
""")
RESULTS = table("""
$t
$t, $t
$t, $n
{'a': $t, 'n': $n, 's': s.w}
Pair($t, $n)
[$t, x, $a]
s.hold
x
$a
Record($t, $n, [$t])
""")
AFTERWARDS = table("""
scale(got)
with lucid.no_grad(): x.add_(1)
given[0] = 7
if isinstance(got, list): got.append(1.0)
s.i += 1
s.f *= 1.1
with lucid.no_grad(): s.w[0] += 1
s.hold.append(x)
s.arr[1] = -1
s.w = lucid.ones(3)
kept.append(got)
s.p.grad = None
s.log = []
s.hold = [got]
given = s.arr
s.w = x
""")
HEAD = """
import collections, contextlib, copy, dataclasses, enum, functools, math, random
from types import SimpleNamespace
import numpy as np
import lucid, lucid.nn.functional as F
from lucid import nn, optim

Pair = collections.namedtuple("Pair", "a b")
Mode = enum.Enum("Mode", "A B")
class Failed(Exception): pass
@dataclasses.dataclass
class Record:
    t: object
    n: float = 0.0
    items: list = dataclasses.field(default_factory=list)
@dataclasses.dataclass(frozen=True)
class Frozen:
    a: object
    b: object = None
def rows(t, n):
    for i in range(n): yield t * i
def helper(t, k=2, *rest, scale=1.0): return (t * k + sum(rest, 0)) * scale
def fit(q, opt):
    for _ in range(2):
        opt.zero_grad(); ((q - 1) ** 2).sum().backward(); opt.step()
        if float(q.grad.norm()) < 0.1: break
def scale(got):
    if isinstance(got, lucid.Tensor):
        with lucid.no_grad(): got.mul_(1.5)
    elif isinstance(got, np.ndarray): got *= 2
    elif isinstance(got, (tuple, list)):
        for item in got: scale(item)
def make():
    s = SimpleNamespace(i=0, f=0.5, log=[], hold=[lucid.ones(3)], d={'k': 1.0}, grid=[[0], [0]])
    s.w, s.m = lucid.tensor([0.5, -1.0, 2.0]), lucid.arange(6.0).reshape(2, 3)
    s.arr, s.mode, s.best, s.last = np.array([1.0, -2.0, 3.0]), Mode.A, -1e9, None
    s.p, s.back = lucid.tensor([1.0, -0.5, 0.25], requires_grad=True), lambda v: v * 2
    s.model, s.queue = nn.Linear(3, 3), collections.deque(maxlen=3)
    s.opt = optim.SGD([s.p], lr=0.1, momentum=0.9)
"""


class Writer:
    """Writes the source of one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = {"t": ["x", "y", "s.w", "s.p"], "a": ["given", "s.arr"]}
        self.names |= {"n": ["1", "0.5", "s.i", "s.f"]}
        self.made = 0

    def expression(self, forms: list[str]) -> str:
        return filled(self.random, self.random.choice(forms), {**self.names, "c": self.condition})

    def condition(self) -> str:
        return filled(self.random, self.random.choice(CONDITIONS), self.names)

    def block(self, depth: int) -> str:
        before = {kind: [*names] for kind, names in self.names.items()}
        body = "\n".join(self.statement(depth - 1) for _ in range(self.random.randint(1, 2)))
        self.names = before  # what a branch makes isn't there outside of it
        return "\n" + textwrap.indent(body, "    ")

    def statement(self, depth: int = 2) -> str:
        kind = self.random.choice([*"ttaanncss", *("bb" if depth else "")])
        if kind == "s":
            return self.expression(STATEMENTS)
        if kind == "b":
            form, block = self.random.choice(BLOCKS), lambda: self.block(depth)
            return filled(self.random, form, {**self.names, "c": self.condition, "b": block})
        forms = {"t": TENSORS, "a": ARRAYS, "n": NUMBERS, "c": CONTAINERS}[kind]
        value, self.made = self.expression(forms), self.made + 1
        name = f"{kind}{self.made}"
        if kind == "c":
            return f"{name} = {value}\ns.{self.random.choice(['kept', 'seen'])} = {name}"
        self.names[kind] = [*self.names[kind][-4:], name]
        return f"{name} = {value}"

    def program(self) -> str:
        body = [self.statement() for _ in range(self.random.randint(2, 8))]
        body += [f"return {self.expression([*RESULTS, *CONTAINERS])}"]
        afterwards = self.random.choices(AFTERWARDS, k=self.random.randint(0, 3))
        afterwards += ["return given"]
        return (
            f"{HEAD}    def step(x, y, given):\n{textwrap.indent(chr(10).join(body), ' ' * 8)}\n"
            f"    return s, step\ndef after(s, got, x, given, kept):\n"
            f"{textwrap.indent(chr(10).join(afterwards), ' ' * 4)}\n"
        )


def records(source: str, file: str, compile: Any) -> tuple[list[Any], Any]:
    """What can be seen after each of some calls, and the step."""
    lucid.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    program, kept, found = load(source, file), [], []
    state, step = program["make"]()
    step, rng = compile(step), np.random.default_rng(1)
    for i in range(CALLS):
        if i % 3 == 0:
            y, given = lucid.tensor(rng.normal(size=3)), rng.normal(size=3)
        x, said = lucid.tensor(rng.normal(size=3)), io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                got = step(x, y, given)
            world = {"got": got, "s": state, "x": x, "y": y, "given": given, "kept": [*kept]}
            drawn = [lucid.get_rng_state().tolist(), random.random(), np.random.rand()]
            found.append([shown(world), said.getvalue(), drawn, aliases(world)])
            given = program["after"](state, got, x, given, kept)
        except Exception as error:  # of the program's own
            return [*found, type(error).__name__], step
    return found, step


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> Any:
    before = lucid.get_default_dtype()
    lucid.set_default_dtype(lucid.float64)
    yield
    lucid.set_default_dtype(before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, COUNT, 10))
def test_random_python_agrees_with_eager_mode(first: int, in_float64: None) -> None:
    native = 0
    for seed in range(first, min(first + 10, COUNT)):
        source = Writer(seed).program()
        expected, _ = records(source, f"<random {seed}>", lambda step: step)
        found, step = records(source, f"<random {seed}>", lucid.compile)
        at = outcome(found, expected)
        assert at is None, f"seed {seed}: {at}\n{source[len(HEAD) :]}\n{step.stats}"
        native += not step.stats.eager_reasons
    assert native > 0.3 * min(10, COUNT - first)
