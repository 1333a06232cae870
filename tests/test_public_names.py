"""Each public name that programs with custom Functions use, in both modes, by what it does."""

from __future__ import annotations

import ast
import importlib
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docstrings
import numpy as np
import pytest

import lucid
from lucid import nn, optim

NAMES = {
    "lucid": """tensor zeros ones eye full_like ones_like zeros_like stack cat exp matmul einsum
        softmax isnan nonzero unique masked_select sparse_coo_tensor Size Tensor manual_seed
        float32 float64 double int64 bool no_grad enable_grad set_grad_enabled is_grad_enabled
        vmap compile LucidError""",
    "lucid.Tensor": """__pow__ __matmul__ __lt__ __gt__ __getitem__ __setitem__ sum mean max amax
        argmax argsort sort exp log sin cos tanh rsqrt round clamp reshape view t movedim flip
        expand gather scatter scatter_add_ index_add index_add_ index_put clone detach to float
        double item tolist numpy add_ mul_ zero_ copy_ any numel size ndim shape dtype data
        data_ptr requires_grad requires_grad_ is_leaf grad grad_fn output_nr _version retain_grad
        backward register_hook register_post_accumulate_grad_hook""",
    "lucid.autograd": """Function grad backward gradcheck gradgradcheck detect_anomaly functional
        forward_ad graph function""",
    "lucid.autograd.functional": "jacobian hessian vjp jvp",
    "lucid.autograd.function": """Function FunctionCtx FunctionMeta BackwardCFunction
        InplaceFunction once_differentiable""",
    "lucid.autograd.forward_ad": "dual_level make_dual unpack_dual",
    "lucid.autograd.graph": "saved_tensors_hooks save_on_cpu allow_mutation_on_saved_tensors",
    "lucid.func": "vmap grad vjp jvp jacrev jacfwd",
    "lucid.nn": "Module Parameter Linear Sequential functional utils",
    "lucid.nn.Module": """register_buffer train eval parameters state_dict load_state_dict""",
    "lucid.nn.functional": "mse_loss leaky_relu elu dropout",
    "lucid.nn.utils": "clip_grad_norm_",
    "lucid.optim": "SGD Adam AdamW lr_scheduler",
    "lucid.optim.Optimizer": "zero_grad step",
    "lucid.optim.lr_scheduler": "StepLR",
    "lucid.compiler": "set_stance",
    "lucid.ir": """Graph Node Value Op Trait TensorType LucidError ops parse print_graph
        is_same_program""",
    "lucid.ir.passes": """Pass Pipeline PassLog Rules Rewriter rewrite producer_of uniform
        constant_like broadcast_like canonicalize constant_fold cse dce simplify optimize""",
}


@pytest.mark.parametrize("place", NAMES)
def test_the_names_are_there(place: str) -> None:
    try:
        owner: Any = importlib.import_module(place)
    except ModuleNotFoundError:
        module, _, name = place.rpartition(".")
        owner = getattr(importlib.import_module(module), name)
    assert [name for name in NAMES[place].split() if not hasattr(owner, name)] == []


LISTED = Path(__file__).parent / "data" / "public_names.txt"


def listed(namespaces: dict[str, list[str]]) -> str:
    """A namespace a paragraph: its name, and below that what it holds."""
    lines = {place: textwrap.wrap(" ".join(names), 96) for place, names in namespaces.items()}
    return "\n".join("\n    ".join([place, *wrapped]) + "\n" for place, wrapped in lines.items())


def test_no_public_name_comes_or_goes_unseen(request: pytest.FixtureRequest) -> None:
    """`pytest --update-golden` writes the list anew; its difference is what users will notice."""
    found = listed(
        {k: names for k, names in docstrings.namespaces().items() if k != "lucid.ir.ops"}
    )
    if request.config.getoption("--update-golden"):
        LISTED.write_text(found, encoding="utf-8")
    assert found == LISTED.read_text(encoding="utf-8")


def test_a_name_that_can_be_imported_is_listed_where_type_checkers_see_it() -> None:
    """Each public function of `lucid` is there by an import that type checkers follow."""
    tree = ast.parse(Path(lucid.__file__).read_text(encoding="utf-8"))
    seen: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name == "*":
                    assert node.module is not None
                    seen |= set(importlib.import_module(node.module).__all__)
                elif alias.asname == alias.name:
                    seen.add(alias.name)
        elif isinstance(node, ast.Assign):
            seen |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    assert set(lucid.__all__) - seen == set()


# What is called is written as text, which names the case. m, n: (2, 3); v: (3,); s: 0-d; e: (0, 3);
# c: (3, 2) with exchanged strides; i, j: places.
ON_TENSORS = """
lucid.tensor([1.0, 2.0, 3.0]) * m
lucid.zeros(2, 3) + m
lucid.ones((2, 3), dtype=lucid.float64) * m
lucid.eye(2) @ m.float()
lucid.full_like(m, 7.0) * m
lucid.ones_like(m) * m
lucid.zeros_like(m, dtype=lucid.int64)
lucid.stack([m, n], dim=1)
lucid.cat([m, n, e])
lucid.exp(m)
lucid.matmul(m, c)
lucid.einsum("ij,kj->ik", m, n)
lucid.softmax(m, dim=1)
lucid.isnan(m / 0 * 0)
lucid.Size(m.shape).numel()
isinstance(m, lucid.Tensor)
m ** 2
2 ** m
m ** n
m @ c
m < n
m > 2
m[0]
m[-1, 1:]
m[::2, None]
m[i]
m[:, j]
m[i, j]
m[[0, 1], [2, 1]]
v[i[0]]
written(m, 0, 5.0)
written(m, (slice(None), 1), v[:2])
written(m, i, v)
written(m, [slice(0, 1), slice(1, 3)], 9.0)
written(m, None, n)
m.sum()
m.sum(0, keepdim=True)
e.sum(0)
m.mean(1)
m.max()
m.max(dim=1)
m.amax((0, 1))
m.argmax(1)
m.argsort(descending=True)
m.sort(dim=0)
m.exp()
m.log()
m.sin()
m.cos()
m.tanh()
m.rsqrt()
m.round()
m.clamp(1.5, 4.0)
m.reshape(3, -1)
m.view(-1)
m.t()
m.movedim(0, 1)
m.flip(0, 1)
v.expand(2, -1)
s.expand(3)
m.gather(1, k)
m.scatter(1, k, n)
m.clone().scatter_add_(1, k, n)
m.index_add(0, i, n)
m.clone().index_add_(0, i, n)
m.index_put((i, j), v[:2])
m.clone() * 2
m.detach()
m.to(lucid.float32)
m.float()
m.float().double()
m.clone().add_(n)
m.clone().mul_(2)
m.clone().zero_()
m.clone().copy_(v)
(m > 2).any(1)
(m.numel(), e.numel(), s.ndim, m.size(), m.size(1), m.shape, m.dtype, m.dtype is lucid.double)
m.data
m.view(-1).data_ptr() == m.data_ptr()
m.detach().requires_grad_().is_leaf
(m.is_leaf, (m * 1).is_leaf, m.grad is None, (m * 1).grad_fn is None, m.requires_grad)
[x.output_nr for x in m.sort()]
nn.functional.mse_loss(m, n)
nn.functional.leaky_relu(m - 2, 0.2)
nn.functional.elu(m - 2)
nn.functional.dropout(m, 0.5, training=False)
drawn(m)
modes(m)
lucid.sparse_coo_tensor(places, v, (3, 3)).to_dense()
lucid.sparse_coo_tensor(places, v, (3, 3))._indices()
lucid.sparse_coo_tensor(places, v, (3, 3))._values()
lucid.sparse_coo_tensor(places, v, (3, 3)).t() @ c
lucid.sparse_coo_tensor(places, v, (3, 3)).matmul(c)
lucid.sparse_coo_tensor(places, v, (3, 3)).coalesce().to_dense()
lucid.sparse_coo_tensor(places, v, (3, 3), is_coalesced=True).indices()
lucid.sparse_coo_tensor(places, v, (3, 3), is_coalesced=True).values()
""".strip().split("\n")


def written(x: Any, key: Any, value: Any) -> Any:
    x = x.clone()
    x[key] = value
    return x


def drawn(x: Any) -> Any:
    lucid.manual_seed(3)
    first = nn.functional.dropout(x, 0.5)
    lucid.manual_seed(3)
    return first, nn.functional.dropout(x, 0.5), lucid.rand(2)


def modes(x: Any) -> Any:
    @lucid.no_grad()
    def without(x: Any) -> Any:
        return x * 2

    with lucid.no_grad(), lucid.enable_grad():
        inner = (x * 2).requires_grad
    with lucid.set_grad_enabled(False):
        found = [(x * 2).requires_grad, lucid.is_grad_enabled()]
    lucid.set_grad_enabled(False)
    found.append((x * 2).requires_grad)
    lucid.set_grad_enabled(True)
    return inner, found, without(x).requires_grad, lucid.is_grad_enabled()


def operands(shift: float, requires_grad: bool) -> dict[str, Any]:
    """New tensors for one call; other numbers for another `shift`."""
    made = {
        "m": np.array([[0.5, 2.0, 3.5], [4.0, 1.0, 2.5]]) + shift,
        "n": np.array([[1.5, 1.0, 3.0], [2.0, 5.0, 0.5]]) - shift,
        "v": np.array([7.0, 8.0, 9.0]) * (1 + shift),
        "s": np.array(3.0 + shift),
        "e": np.zeros((0, 3)),
    }
    found = {name: lucid.tensor(x, requires_grad=requires_grad) for name, x in made.items()}
    c = lucid.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0 + shift]], dtype=lucid.float64).t()
    return found | {
        "c": c.requires_grad_() if requires_grad else c,
        "i": lucid.tensor([1, 0]),
        "j": lucid.tensor([2, 0]),
        "k": lucid.tensor([[0, 2, 1], [1, 0, 2]]),
        "places": lucid.tensor([[0, 1, 2], [2, 0, 1]]),
    }


def observed(value: Any) -> Any:
    """What can be seen of a result, and of each tensor in it."""
    if isinstance(value, lucid.Tensor):
        return str(value.dtype), value.requires_grad, value.is_leaf, value.tolist()
    if isinstance(value, (tuple, list)):
        return [observed(entry) for entry in value]
    return value


def agree(found: Any, expected: Any, rtol: float = 1e-6) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            agree(a, b, rtol)
    elif isinstance(expected, float):
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol / 20)
    else:
        assert found == expected


@pytest.mark.parametrize("requires_grad", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("text", ON_TENSORS)
def test_it_does_the_same_in_both_modes(text: str, requires_grad: bool) -> None:
    """Its results, and the gradients of all that has a history; at a second call as well."""
    code = compile(text, "<name>", "eval")

    def body(**tensors: Any) -> Any:
        result = eval(code, globals() | tensors)
        values = result if isinstance(result, (tuple, list)) else (result,)
        losses = [
            (y * y).sum().double()
            for y in values
            if isinstance(y, lucid.Tensor) and y.grad_fn is not None
        ]
        if losses:
            lucid.stack(losses).sum().backward()
        return result

    step = lucid.compile(body)
    for shift in (0.0, 0.25, 0.5):
        eager, compiled = operands(shift, requires_grad), operands(shift, requires_grad)
        agree(observed(step(**compiled)), observed(body(**eager)))
        agree(
            [observed(x.grad) for x in compiled.values()],
            [observed(x.grad) for x in eager.values()],
        )
    assert step.stats.traces == (0 if "data_ptr" in text else 1)


# ---------------------------------------------------------------------- modules and optimizers


class Counted(nn.Module):
    """A layer with a buffer that counts the calls in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))
        self.scale = nn.Parameter(lucid.ones(1))
        self.register_buffer("calls", lucid.zeros(()))

    def forward(self, x: Any) -> Any:
        if self.training:
            self.calls += 1
        return self.layers(x) * self.scale + self.calls


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "SGD with nesterov": lambda p: optim.SGD(
        p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "Adam": lambda p: optim.Adam(p, lr=0.1),
    "AdamW": lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.1),
}


def trained(wrap: Callable[..., Any], make: Callable[[Any], Any]) -> Any:
    lucid.manual_seed(0)
    model = Counted()
    optimizer = make(model.parameters())
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss, norm

    run, evaluate = wrap(step), wrap(model)
    x = lucid.tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]])
    found = []
    for i in range(4):
        found.append(run(x + i, lucid.tensor([[1.0], [float(i)]])))
        scheduler.step()
        found.append(optimizer.param_groups[0]["lr"])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.eval()
    found.append(evaluate(x))
    model.train()
    run(x, lucid.zeros(2, 1))
    found.append(list(model.state_dict().values()))
    model.load_state_dict(before)
    found += [
        list(model.state_dict()),
        model.training,
        evaluate(x),
        [p.grad for p in model.parameters()],
    ]
    return observed(found)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_modules_and_optimizers_do_the_same_in_both_modes(name: str) -> None:
    expected = trained(lambda function: function, OPTIMIZERS[name])
    agree(trained(lucid.compile, OPTIMIZERS[name]), expected, rtol=2e-4)  # sums in float32
