"""Small computations with PyTorch's API, written once and run on two modules.

`L` is `torch` when record_torch.py records the numbers and `lucid` when test_torch_parity.py
compares; nothing else differs. `compiled` is a decorator for the function that is a step: the
identity, or `lucid.compile`.

Two kinds of case: a *function* (values, and gradients with a fixed cotangent) and a *training*
(20 steps of a small network: losses, parameters, buffers, gradients).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Module = Any  # torch, or lucid: neither can be imported here
Tensor = Any
Arrays = dict[str, np.ndarray]
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

STEPS = 20
DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Case:
    """`run(L, compiled, dtype)` returns named results; they are compared one by one."""

    name: str
    run: Callable[[Module, Decorator, str], Arrays]


def numbers(name: str, *shape: int) -> np.ndarray:
    """Normal numbers from a name. `RandomState`, since its stream is frozen for good."""
    seed = [ord(c) for c in name]
    return np.random.RandomState(seed).standard_normal(shape)


def integers(name: str, high: int, *shape: int) -> np.ndarray:
    """Integers below `high` from a name: i64."""
    return np.random.RandomState([ord(c) for c in name]).randint(0, high, shape).astype(np.int64)


def tensor(L: Module, a: np.ndarray, dtype: str, requires_grad: bool = False) -> Tensor:
    """Make a tensor of a copy; floats get the case's dtype, integers keep theirs."""
    array = a.astype(dtype) if a.dtype.kind == "f" else a.copy()
    return L.tensor(array, requires_grad=requires_grad and array.dtype.kind == "f")


def array(t: Tensor) -> np.ndarray:
    """Copy a tensor to NumPy."""
    return np.array(t.detach().numpy())


# --------------------------------------------------------------------------------- functions --


def function(
    name: str, f: Callable[..., Tensor], *inputs: np.ndarray, differentiable: bool = True
) -> Case:
    """A case of `f(L, *tensors)`: its value, and its gradient with respect to each float input."""

    def run(L: Module, compiled: Decorator, dtype: str) -> Arrays:
        @compiled
        def value_and_gradients(cotangent, *xs):
            y = f(L, *xs)
            wanted = [x for x in xs if x.requires_grad]
            return y, (L.autograd.grad((y * cotangent).sum(), wanted) if wanted else ())

        shape = f(L, *(tensor(L, a, dtype) for a in inputs)).shape
        cotangent = tensor(L, numbers(name + " cotangent", *shape), dtype)
        xs = [tensor(L, a, dtype, requires_grad=differentiable) for a in inputs]
        y, gradients = value_and_gradients(cotangent, *xs)
        return {"value": array(y)} | {f"gradient{i}": array(g) for i, g in enumerate(gradients)}

    return Case(name, run)


X = numbers("x", 6, 5)
TARGET = numbers("target", 6, 5)
LABELS = np.array([3, 0, 4, 4, 1, 2])
IGNORED = np.array([3, -100, 4, 4, -100, 2])
WEIGHT = np.abs(numbers("weight", 5)) + 0.2
PROBABILITIES = np.exp(TARGET) / np.exp(TARGET).sum(1, keepdims=True)
PLANE = numbers("plane", 3, 5, 4)  # class on axis 1, as for pixels
PLANE_LABELS = integers("plane labels", 5, 3, 4)


def activations() -> Iterator[Case]:
    """Elementwise functions of `nn.functional`, and the softmaxes."""
    wide = np.concatenate([3 * numbers("wide", 40), [-30.0, -8.0, -0.5, 0.0, 0.5, 8.0, 30.0]])
    yield function("relu", lambda L, x: L.nn.functional.relu(x), wide)
    yield function("gelu", lambda L, x: L.nn.functional.gelu(x), wide)
    yield function("gelu tanh", lambda L, x: L.nn.functional.gelu(x, approximate="tanh"), wide)
    yield function("silu", lambda L, x: L.nn.functional.silu(x), wide)
    yield function("sigmoid", lambda L, x: L.sigmoid(x), wide)
    yield function("tanh", lambda L, x: L.tanh(x), wide)
    yield function("leaky_relu", lambda L, x: L.nn.functional.leaky_relu(x), wide)
    yield function("leaky_relu 0.2", lambda L, x: L.nn.functional.leaky_relu(x, 0.2), wide)
    yield function("elu", lambda L, x: L.nn.functional.elu(x), wide)
    yield function("elu 1.7", lambda L, x: L.nn.functional.elu(x, alpha=1.7), wide)
    for axis in (0, 1, -1):
        yield function(
            f"softmax {axis}", lambda L, x, d=axis: L.nn.functional.softmax(x, dim=d), 4 * X
        )
        yield function(
            f"log_softmax {axis}", lambda L, x, d=axis: L.nn.functional.log_softmax(x, dim=d), 4 * X
        )
    yield function(
        "softmax of big numbers", lambda L, x: L.softmax(x, -1), 300 * X, differentiable=False
    )


def losses() -> Iterator[Case]:
    """cross_entropy, nll_loss and mse_loss with their options."""
    for reduction in ("mean", "sum", "none"):

        def mse(L, x, t, r=reduction):
            return L.nn.functional.mse_loss(x, t, reduction=r)

        def nll(L, x, y, r=reduction):
            return L.nn.functional.nll_loss(L.nn.functional.log_softmax(x, 1), y, reduction=r)

        def cross_entropy(L, x, y, w=None, r=reduction, **options):
            return L.nn.functional.cross_entropy(x, y, w, reduction=r, **options)

        def smoothed(L, x, y, w=None, ce=cross_entropy):
            return ce(L, x, y, w, label_smoothing=0.1)

        def all_options(L, x, y, w, ce=cross_entropy):
            return ce(L, x, y, w, ignore_index=4, label_smoothing=0.2)

        yield function(f"mse_loss {reduction}", mse, X, TARGET)
        yield function(f"nll_loss {reduction}", nll, X, LABELS)
        yield function(f"nll_loss ignored {reduction}", nll, X, IGNORED)
        for name, y in (("", LABELS), (" ignored", IGNORED), (" probabilities", PROBABILITIES)):
            case = f"cross_entropy{name} {reduction}"
            yield function(case, cross_entropy, X, y)
            yield function(f"{case} smoothed", smoothed, X, y)
        yield constant_weight(f"cross_entropy weight {reduction}", cross_entropy, LABELS)
        yield constant_weight(f"cross_entropy weight ignored {reduction}", cross_entropy, IGNORED)
        yield constant_weight(f"cross_entropy weight smoothed {reduction}", smoothed, LABELS)
        yield constant_weight(
            f"cross_entropy weight probabilities {reduction}", cross_entropy, PROBABILITIES
        )
        yield constant_weight(f"cross_entropy all options {reduction}", all_options, LABELS)
        yield function(f"cross_entropy plane {reduction}", cross_entropy, PLANE, PLANE_LABELS)
    yield function(
        "cross_entropy of one sample",
        lambda L, x, y: L.nn.functional.cross_entropy(x, y),
        X[0],
        LABELS[0],
    )


def constant_weight(name: str, f: Callable[..., Tensor], labels: np.ndarray) -> Case:
    """A loss with class weights, which have no gradient."""

    def run(L: Module, compiled: Decorator, dtype: str) -> Arrays:
        weight = tensor(L, WEIGHT, dtype)

        def weighted(L, x, y):
            return f(L, x, y, weight)

        return function(name, weighted, X, labels).run(L, compiled, dtype)

    return Case(name, run)


def layer_functions() -> Iterator[Case]:
    """The functional form of the layers."""
    w, b = numbers("w", 4, 5), numbers("b", 4)
    table = numbers("table", 7, 3)
    rows = np.array([[0, 6, 6], [2, 6, 1]])
    yield function("linear", lambda L, x, w, b: L.nn.functional.linear(x, w, b), X, w, b)
    yield function("linear without bias", lambda L, x, w: L.nn.functional.linear(x, w), X, w)
    yield function(
        "linear batched",
        lambda L, x, w, b: L.nn.functional.linear(x, w, b),
        numbers("batched", 2, 3, 5),
        w,
        b,
    )
    yield function("embedding", lambda L, i, t: L.nn.functional.embedding(i, t), rows, table)
    yield function(
        "embedding padded",
        lambda L, i, t: L.nn.functional.embedding(i, t, padding_idx=6),
        rows,
        table,
    )
    yield function(
        "layer_norm",
        lambda L, x, w, b: L.nn.functional.layer_norm(x, (5,), w, b),
        X,
        WEIGHT,
        numbers("shift", 5),
    )
    yield function(
        "layer_norm over two axes",
        lambda L, x: L.nn.functional.layer_norm(x, (3, 5), eps=1e-3),
        numbers("two", 2, 3, 5),
    )
    yield function("one_hot", lambda L, y: L.nn.functional.one_hot(y), LABELS)
    yield function("one_hot 9", lambda L, y: L.nn.functional.one_hot(y, 9), rows)


# --------------------------------------------------------------------------------- trainings --


def set_parameters(L: Module, model: Any, dtype: str) -> Any:
    """Give a module the case's dtype and parameters that depend on their names only."""
    model = model.to(getattr(L, dtype))
    model.load_state_dict(
        {
            name: tensor(L, 0.4 * numbers(name, *t.shape), dtype) + ("norm" in name)
            if "running" not in name and "num_batches" not in name
            else t
            for name, t in model.state_dict().items()
        }
    )
    return model


def mlp(L: Module) -> Any:
    """5 -> 7 -> 3 with tanh."""
    return L.nn.Sequential(L.nn.Linear(5, 7), L.nn.Tanh(), L.nn.Linear(7, 3))


def mse(L: Module, y: Tensor, t: Tensor) -> Tensor:
    """The mean squared error."""
    return L.nn.functional.mse_loss(y, t)


def real_batch(i: int) -> tuple[np.ndarray, np.ndarray]:
    """The i-th batch of a regression: inputs (6, 5), targets (6, 3)."""
    return numbers(f"batch {i}", 6, 5), numbers(f"targets {i}", 6, 3)


def token_batch(i: int) -> tuple[np.ndarray, np.ndarray]:
    """The i-th batch of a classification of token sequences: (6, 4) of 11 tokens, 3 classes."""
    return integers(f"tokens {i}", 11, 6, 4), integers(f"classes {i}", 3, 6)


@dataclass(frozen=True)
class Training:
    """What a training case varies. Each factory takes the module `L` first."""

    optimizer: Callable[..., Any]
    model: Callable[[Module], Any] = mlp
    loss: Callable[..., Tensor] = mse
    batch: Callable[[int], tuple[np.ndarray, np.ndarray]] = real_batch
    scheduler: Callable[..., Any] | None = None
    clip: dict[str, float] | None = None
    backwards: int = 1  # gradients of this many batches are added before each update
    zero_last: bool = False

    def run(self, L: Module, compiled: Decorator, dtype: str) -> Arrays:
        """Train, and return what can be seen of it."""
        model = set_parameters(L, self.model(L), dtype)
        opt = self.optimizer(L, model.parameters())
        scheduler = self.scheduler and self.scheduler(L, opt)

        @compiled
        def step(*batches):
            if not self.zero_last:
                opt.zero_grad()
            results = []
            for x, t in batches:
                results.append(self.loss(L, model(x), t))
                results[-1].backward()
            if self.clip:
                results.append(L.nn.utils.clip_grad_norm_(model.parameters(), **self.clip))
            opt.step()
            if self.zero_last:
                opt.zero_grad()
            return results

        results, rates = [], []
        for i in range(STEPS):
            numbers_of = range(i * self.backwards, (i + 1) * self.backwards)
            batches = [[tensor(L, a, dtype) for a in self.batch(n)] for n in numbers_of]
            results.append([array(r) for r in step(*batches)])
            rates.append(opt.param_groups[0]["lr"])
            if scheduler:
                scheduler.step()
        out = {"results": np.array(results), "rates": np.array(rates)}
        out |= {f"state {name}": array(t) for name, t in model.state_dict().items()}
        for name, p in model.named_parameters():
            if p.grad is not None:
                out[f"gradient {name}"] = array(p.grad)
        model.eval()
        out["evaluated"] = array(compiled(model)(tensor(L, self.batch(0)[0], dtype)))
        return out


def training(name: str, optimizer: Callable[..., Any], **options: Any) -> Case:
    """A case of `Training`."""
    return Case(name, Training(optimizer, **options).run)


def optimizer(cls: str, **options: Any) -> Callable[[Module, Iterable[Tensor]], Any]:
    """A factory of an optimizer, for any `L`."""
    return lambda L, parameters: getattr(L.optim, cls)(parameters, **options)


def optimizers() -> Iterator[Case]:
    """Each optimizer with its options."""
    variants: dict[str, list[dict[str, Any]]] = {
        "SGD": [
            dict(lr=0.1),
            dict(lr=0.1, momentum=0.9),
            dict(lr=0.1, momentum=0.9, dampening=0.3),
            dict(lr=0.1, momentum=0.9, nesterov=True),
            dict(lr=0.1, weight_decay=0.05),
            dict(lr=0.1, momentum=0.8, weight_decay=0.05, nesterov=True),
        ],
        "Adam": [
            dict(lr=0.02),
            dict(lr=0.02, betas=(0.7, 0.95), eps=1e-3),
            dict(lr=0.02, weight_decay=0.1),
            dict(lr=0.02, amsgrad=True),
        ],
        "AdamW": [dict(lr=0.02), dict(lr=0.02, weight_decay=0.3), dict(lr=0.02, amsgrad=True)],
        "RMSprop": [
            dict(lr=0.01),
            dict(lr=0.01, alpha=0.8, eps=1e-4),
            dict(lr=0.01, momentum=0.9),
            dict(lr=0.01, centered=True),
            dict(lr=0.01, momentum=0.5, centered=True, weight_decay=0.1),
        ],
        "Adadelta": [dict(), dict(lr=0.5, rho=0.8, eps=1e-4, weight_decay=0.1)],
        "Adafactor": [
            dict(),
            dict(lr=0.5, beta2_decay=-0.6, eps=(1e-4, 1e-2), d=1.5, weight_decay=0.1),
        ],
        "Adamax": [dict(lr=0.02), dict(lr=0.02, betas=(0.7, 0.95), weight_decay=0.1)],
        "NAdam": [
            dict(lr=0.02),
            dict(lr=0.02, momentum_decay=0.1, weight_decay=0.1),
            dict(lr=0.02, weight_decay=0.3, decoupled_weight_decay=True),
        ],
        "RAdam": [
            dict(lr=0.02),
            dict(lr=0.02, betas=(0.7, 0.95), weight_decay=0.1),
            dict(lr=0.02, weight_decay=0.3, decoupled_weight_decay=True),
        ],
        "Rprop": [dict(lr=0.01), dict(lr=0.01, etas=(0.4, 1.5), step_sizes=(1e-4, 0.02))],
        "ASGD": [dict(lr=0.1), dict(lr=0.1, lambd=0.01, alpha=0.5, t0=3.0, weight_decay=0.1)],
    }
    for cls, all_options in variants.items():
        for options in all_options:
            said = " ".join(f"{k}={v}" for k, v in options.items())
            yield training(f"{cls} {said}", optimizer(cls, **options))
    yield training("zero_grad last", optimizer("AdamW", lr=0.02), zero_last=True)
    yield training("two backward calls", optimizer("Adam", lr=0.02), backwards=2)
    yield training("parameter groups", two_groups)


def two_groups(L: Module, parameters: Iterable[Tensor]) -> Any:
    """Weights with decay and biases without, each with a rate of its own."""
    weights: list[Tensor] = []
    biases: list[Tensor] = []
    for p in parameters:
        (weights if p.ndim == 2 else biases).append(p)
    groups = [{"params": weights, "weight_decay": 0.1}, {"params": biases, "lr": 0.05}]
    return L.optim.SGD(groups, lr=0.1, momentum=0.9)


def schedulers() -> Iterator[Case]:
    """Each schedule: the rates, and a training under them."""
    momentum = optimizer("SGD", lr=0.1, momentum=0.9)
    schedules = {
        "StepLR": lambda S, opt: S.StepLR(opt, step_size=6, gamma=0.5),
        "CosineAnnealingLR": lambda S, opt: S.CosineAnnealingLR(opt, T_max=8),
        "CosineAnnealingLR eta_min": lambda S, opt: S.CosineAnnealingLR(opt, STEPS, eta_min=0.01),
        "LambdaLR": lambda S, opt: S.LambdaLR(opt, lambda epoch: 1 / (1 + epoch)),
        "CyclicLR": lambda S, opt: S.CyclicLR(opt, 0.01, 0.1, 4, 3, "triangular2"),
        "CyclicLR exp_range": lambda S, opt: S.CyclicLR(
            opt, 0.01, 0.1, 4, mode="exp_range", gamma=0.9, cycle_momentum=False
        ),
    }
    for name, make in schedules.items():
        yield training(
            name, momentum, scheduler=lambda L, opt, m=make: m(L.optim.lr_scheduler, opt)
        )


def clippings() -> Iterator[Case]:
    """clip_grad_norm_ with its norms; the returned norms are among the results."""
    for norm in (1.0, 2.0, 3.0, float("inf")):
        yield training(
            f"clip_grad_norm_ {norm}",
            optimizer("SGD", lr=0.1),
            clip={"max_norm": 0.3, "norm_type": norm},
        )
    yield training("clipping that does nothing", optimizer("SGD", lr=0.1), clip={"max_norm": 1e3})


def networks() -> Iterator[Case]:
    """Networks of the other layers."""
    sgd = optimizer("SGD", lr=0.1)

    def classify(L, y, t):
        return L.nn.functional.cross_entropy(y, t)

    def normalized(L, **options):
        return L.nn.Sequential(
            named(L, norm=L.nn.BatchNorm1d(5, **options)), L.nn.Linear(5, 3), L.nn.GELU()
        )

    def layer_normalized(L):
        return L.nn.Sequential(
            L.nn.Linear(5, 4),
            named(L, norm=L.nn.LayerNorm(4)),
            L.nn.SiLU(),
            L.nn.Linear(4, 3, bias=False),
        )

    def tokens(L):
        class Tokens(L.nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = L.nn.Embedding(11, 5)
                self.out = L.nn.Linear(5, 3)

            def forward(self, x):
                return self.out(self.embedding(x).mean(1))

        return Tokens()

    yield training("BatchNorm1d", sgd, model=normalized)
    yield training(
        "BatchNorm1d momentum", sgd, model=lambda L: normalized(L, momentum=0.3, eps=1e-2)
    )
    yield training(
        "BatchNorm1d cumulative average", sgd, model=lambda L: normalized(L, momentum=None)
    )
    yield training(
        "BatchNorm1d bare",
        sgd,
        model=lambda L: normalized(L, affine=False, track_running_stats=False),
    )
    yield training("LayerNorm", sgd, model=layer_normalized)
    yield training("Embedding", sgd, model=tokens, loss=classify, batch=token_batch)


def named(L: Module, **modules: Any) -> Any:
    """A Sequential of modules with names of their own: `set_parameters` goes by the names."""
    sequence = L.nn.Sequential()
    for name, module in modules.items():
        sequence.add_module(name, module)
    return sequence


CASES = [
    *activations(),
    *losses(),
    *layer_functions(),
    *optimizers(),
    *schedulers(),
    *clippings(),
    *networks(),
]
