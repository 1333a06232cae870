"""Gradients against central differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.entry_points import grad
from lucid.autograd.function import BackwardCFunction
from lucid.autograd.node import CustomNode
from lucid.autograd.undefined_gradients import check_undefined_gradients
from lucid.choices import check_flags
from lucid.docstrings import like
from lucid.ir.errors import (
    ArgumentError,
    EagerOnlyError,
    GradcheckError,
    LucidError,
    OptionError,
)
from lucid.ir.location import warn
from lucid.ir.types import f64
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.tensor.core import TensorCore

Array = np.ndarray


def gradcheck(
    func: Callable[..., Any],
    inputs: TensorCore | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Compare the Jacobian by backward with the one by central differences of step `eps`.

    Inputs that require grad should be float64; others warn, for rounding hides the derivative. A
    compiled function that calls it runs op by op. Returns True.

    Args:
        func: a function that returns a tensor, or a tuple or list with tensors in it.
        inputs: its arguments, or the only one. Those that require grad are checked.
        eps: the step of the differences.
        atol: by how much elements may differ.
        rtol: by how much more in proportion to the numerical one.
        raise_exception: False returns False where they differ.
        nondet_tol: by how much two backwards may differ.
        check_undefined_grad: let some gradients of the outputs be missing, which must mean zeros.
        check_grad_dtypes: gradients must have the inputs' dtypes.
        check_batched_grad: compare several cotangents at once, under vmap, with one after the
            other.
        check_batched_forward_grad: the same of tangents.
        check_forward_ad: compare the Jacobian by tangents as well.
        check_backward_ad: compare the one by backward.
        fast_mode: compare one random projection of the Jacobians.
        masked: True, False or None; of dense inputs all elements are checked.

    Raises:
        GradcheckError: they differ; it shows both Jacobians.
        OptionError: no input requires grad, both modes are left out, or batched tangents are to be
            checked without tangents.
        EagerOnlyError: in a trace, so that the compiled function runs op by op.

    >>> x = lucid.tensor([0.3, -1.2], dtype=lucid.float64, requires_grad=True)
    >>> lucid.autograd.gradcheck(lucid.sin, (x,))
    True
    """
    if not check_backward_ad and not check_forward_ad:
        raise OptionError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    check_flags("gradcheck", masked=masked)
    if check_batched_forward_grad and not check_forward_ad:
        raise OptionError(
            "Setting check_batched_forward_grad=True requires check_forward_ad to be True"
        )
    if context.recorder is not None:
        raise EagerOnlyError("gradcheck looks at the numbers of each gradient")
    check = _Check(func, _arguments(inputs), eps, atol, rtol, nondet_tol, fast_mode)
    try:
        check.require_inputs()
        if check_forward_ad:
            check.run_forward(check_batched_forward_grad)
        if check_backward_ad:
            check.run(check_undefined_grad, check_grad_dtypes, check_batched_grad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _arguments(inputs: Any) -> list[Any]:
    return list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]


def _outputs(function: Callable[..., Any], arguments: Sequence[Any]) -> list[TensorCore]:
    """The differentiable outputs. Raises `ArgumentError` when something is no tensor."""
    from lucid.tensor.core import TensorCore

    result = function(*arguments)
    values = result if isinstance(result, (tuple, list)) else (result,)
    if not any(isinstance(value, TensorCore) for value in values):
        raise ArgumentError(
            f"gradcheck expects the function to return a tensor, got {type(result).__name__}"
        )
    return [v for v in values if isinstance(v, TensorCore) and v.dtype.is_floating_point]


@dataclass
class _Check:
    """One gradcheck: the function, where it is looked at, and what counts as equal."""

    function: Callable[..., Any]
    arguments: list[Any]
    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    is_fast: bool

    def __post_init__(self) -> None:
        from lucid.tensor.core import TensorCore

        self.checked = [
            i for i, x in enumerate(self.arguments) if isinstance(x, TensorCore) and x.requires_grad
        ]
        self.wanted: list[TensorCore] = [self.arguments[i] for i in self.checked]

    def require_inputs(self) -> None:
        """Raise where the inputs can't be checked, warn where rounding would hide everything."""
        if not self.checked:
            raise OptionError(
                "gradcheck expects at least one input tensor to require gradient, but none of "
                "them have requires_grad=True."
            )
        for i, x in zip(self.checked, self.wanted, strict=True):
            if x.dtype is not f64:
                warn(
                    f"Input #{i} requires gradient and is not a double precision floating point. "
                    "This check will likely fail if all the inputs are not of double precision "
                    "floating point. "
                )
            strides = zip(x.shape, x.element_strides(), strict=True)
            if any(stride == 0 and size > 1 for size, stride in strides):
                raise LucidError(
                    f"The {i}th input has a dimension with stride 0. gradcheck only supports "
                    "inputs that are non-overlapping to be able to compute the numerical gradients "
                    "correctly. You should call .contiguous on the input before passing it to "
                    "gradcheck."
                )

    def run(self, check_undefined: bool, check_dtypes: bool, check_batched: bool) -> None:
        """Check reverse mode."""
        outputs = _outputs(self.function, self.arguments)
        if not any(output.requires_grad for output in outputs):
            self._require_constant(len(outputs))
            return
        for j, output in enumerate(outputs):
            if self.is_fast:
                self._compare_projected(j, output)
                if check_batched:
                    self._require_batched_gradients(j, output, self._by_backward(output, False))
                continue
            analytical = self._by_backward(output, check_dtypes)
            again = self._by_backward(output, False)
            for k, i in enumerate(self.checked):
                numerical = self._by_differences(i, j, output)
                if not self._agree(analytical[k], numerical):
                    raise GradcheckError(_mismatch(i, j, numerical, analytical[k]))
                self._require_reproducible(analytical[k], again[k])
            if check_batched:
                self._require_batched_gradients(j, output, analytical)
        if check_undefined:
            check_undefined_gradients(self._op_by_op(outputs))

    def _op_by_op(self, outputs: Sequence[TensorCore]) -> Sequence[TensorCore]:
        """The outputs with the nodes of custom Functions that compiled functions hide."""
        from lucid.runtime.stance import set_stance  # where it is needed: LLVM comes with it

        nodes = [x.grad_fn for x in outputs if not isinstance(x.grad_fn, BackwardCFunction)]
        if not any(isinstance(node, CustomNode) for node in nodes):
            return outputs
        with set_stance("force_eager"):
            return _outputs(self.function, self.arguments)

    def run_forward(self, check_batched: bool) -> None:
        """Check forward mode."""
        for k, i in enumerate(self.checked):
            for j, analytical in enumerate(self._by_tangents(k)):
                numerical = self._by_differences(i, j, None)
                numerical = numerical.reshape(analytical.shape)
                if not self._agree(analytical, numerical):
                    raise GradcheckError(
                        _mismatch(i, j, numerical, analytical, "computed with forward mode ")
                    )
            if check_batched:
                self._require_batched_tangents(k)

    def _agree(self, a: Array, b: Array) -> bool:
        return bool(np.allclose(a, b, rtol=self.rtol, atol=self.atol, equal_nan=True))

    def _require_constant(self, count: int) -> None:
        for j in range(count):
            for i in self.checked:
                if not self._agree(self._by_differences(i, j, None), np.zeros(())):
                    raise GradcheckError("Numerical gradient for function expected to be zero")

    def _require_reproducible(self, first: Array, second: Array) -> None:
        if np.abs(first - second).max(initial=0) > self.nondet_tol:
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output "
                "multiple times gives different values, although analytical gradient matches "
                f"numerical gradient.The tolerance for nondeterminism was {self.nondet_tol}."
            )

    def _compare_projected(self, j: int, output: TensorCore) -> None:
        """Compare v^T J u for random v and u of norm 1; show all of J when they differ."""
        rng = np.random.default_rng(0)
        seed = _unit(rng, output._type.size)
        analytical = self._pulled_back(output, seed)
        for k, i in enumerate(self.checked):
            direction = _unit(rng, self.wanted[k]._type.size)
            base = np.array(self.arguments[i].detach().numpy(), order="C")
            step = self.eps * direction.reshape(base.shape)
            difference = self._moved(base + step, i, j) - self._moved(base - step, i, j)
            left = float(difference @ seed) / (2 * self.eps)
            right = float(analytical[k] @ direction)
            if not self._agree(np.array(right), np.array(left)):
                raise GradcheckError(self._slow_mismatch(i, j, k, output, left, right))

    def _pulled_back(self, output: TensorCore, seed: Array) -> list[Array]:
        """The product of one cotangent with the Jacobians of all inputs."""
        from lucid.tensor.core import of_array

        products = [np.zeros(x._type.size) for x in self.wanted]
        if output.requires_grad:
            cotangent = of_array(seed.astype(output.dtype.numpy).reshape(output._type.shape))
            found = grad(output, self.wanted, cotangent, retain_graph=True, allow_unused=True)
            for k, gradient in enumerate(found):
                if gradient is not None:
                    products[k] = np.array(gradient.detach().numpy(), np.float64).reshape(-1)
        return products

    def _slow_mismatch(
        self, i: int, j: int, k: int, output: TensorCore, left: float, right: float
    ) -> str:
        numerical = self._by_differences(i, j, output)
        analytical = self._by_backward(output, False)[k]
        difference = np.abs(numerical - analytical).max(initial=0)
        return (
            _mismatch(i, j, left, right)
            + "\nThe above quantities relating the numerical and analytical jacobians are computed "
            "in fast mode. Below, we recompute numerical and analytical jacobians in slow mode:\n\n"
            f"Numerical:\n {_shown(numerical)}\nAnalytical:\n{_shown(analytical)}\n\n"
            f"The max per-element difference (slow mode) is: {difference}.\n"
        )

    # ------------------------------------------------------------------ both Jacobians

    def _by_backward(self, output: TensorCore, check_dtypes: bool) -> list[Array]:
        """d output / d input, of shape (input size, output size), one row of ones at a time."""
        from lucid.tensor.core import of_array

        jacobians = [np.zeros((x._type.size, output._type.size)) for x in self.wanted]
        for column in range(output._type.size if output.requires_grad else 0):
            seed = np.zeros(output._type.size, output.dtype.numpy)
            seed[column] = 1
            cotangent = of_array(seed.reshape(output._type.shape))
            found = grad(output, self.wanted, cotangent, retain_graph=True, allow_unused=True)
            for jacobian, gradient, x in zip(jacobians, found, self.wanted, strict=True):
                if gradient is None:
                    continue
                if check_dtypes and gradient.dtype is not x.dtype:
                    raise GradcheckError("Gradient has dtype mismatch")
                jacobian[:, column] = gradient.detach().numpy().reshape(-1)
        return jacobians

    def _by_tangents(self, k: int) -> list[Array]:
        """d output / d input for one input and all outputs, one tangent of ones at a time."""
        from lucid.tensor.core import of_array

        x = self.wanted[k]
        tangents = np.eye(x._type.size, dtype=x.dtype.numpy).reshape(-1, *x._type.shape)
        rows = [[_flat(t) for t in self._pushed_forward(k, of_array(v))] for v in tangents]
        return [np.stack(columns) for columns in zip(*rows, strict=True)]

    def _pushed_forward(self, k: int, tangent: TensorCore) -> tuple[TensorCore, ...]:
        """The tangents of all outputs for a tangent of one input."""
        from lucid.autograd.forward_ad import dual_level, make_dual, unpack_dual
        from lucid.tensor.core import of_array

        with dual_level():
            arguments = list(self.arguments)
            primal = self.wanted[k].detach().requires_grad_()
            arguments[self.checked[k]] = make_dual(primal, tangent)
            duals = [unpack_dual(y) for y in _outputs(self.function, arguments)]
            return tuple(
                of_array(np.zeros(y._type.shape, y.dtype.numpy)) if t is None else t.detach()
                for y, t in duals
            )

    # ------------------------------------------------------------------ several at once

    def _require_batched_gradients(
        self, j: int, output: TensorCore, analytical: Sequence[Array]
    ) -> None:
        """Compare the product of two cotangents at once with the Jacobians."""
        from lucid.autograd.transforms.vmapping import vmap
        from lucid.tensor.core import of_array

        if not output.requires_grad:
            return

        def gradients(seed: TensorCore) -> Any:
            return grad(output, self.wanted, seed, retain_graph=True, materialize_grads=True)

        seeds = _two_of(output)
        found = vmap(gradients)(of_array(seeds))
        for i, jacobian, gradient in zip(self.checked, analytical, found, strict=True):
            expected = seeds.reshape(2, -1) @ jacobian.T
            if not self._agree(_flat(gradient), expected.reshape(-1)):
                raise GradcheckError(
                    f"While computing batched gradients, got: Jacobian mismatch for output {j} "
                    f"with respect to input {i},\nexpected:{_shown(expected)}\n"
                    f"got:{_shown(_flat(gradient).reshape(expected.shape))}\n"
                )

    def _require_batched_tangents(self, k: int) -> None:
        """Compare two tangents at once with one after the other."""
        from lucid.autograd.transforms.vmapping import vmap
        from lucid.tensor.core import of_array

        tangents = _two_of(self.wanted[k])
        together = vmap(lambda v: self._pushed_forward(k, v))(of_array(tangents))
        apart = [self._pushed_forward(k, of_array(v)) for v in tangents]
        for j, (found, *expected) in enumerate(zip(together, *apart, strict=True)):
            if not self._agree(_flat(found), np.concatenate([_flat(t) for t in expected])):
                raise GradcheckError(
                    f"While computing batched forward gradients, got: Jacobian mismatch for output "
                    f"{j} with respect to input {self.checked[k]}"
                )

    # ------------------------------------------------------------------ differences

    def _by_differences(self, i: int, j: int, output: TensorCore | None) -> Array:
        """The same, by central differences in each element of input `i`."""
        base = np.array(self.arguments[i].detach().numpy(), order="C")
        rows = []
        for k in range(base.size):
            above, below = (self._shifted(base, i, j, k, step) for step in (self.eps, -self.eps))
            rows.append((above - below) / (2 * self.eps))
        size = rows[0].size if rows else 0 if output is None else output._type.size
        return np.array(rows, np.float64).reshape(base.size, size)

    def _shifted(self, base: Array, i: int, j: int, k: int, step: float) -> Array:
        array = base.copy()
        array.reshape(-1)[k] += step
        return self._moved(array, i, j)

    def _moved(self, array: Array, i: int, j: int) -> Array:
        """Output `j`, flat, with `array` as input `i`."""
        from lucid.tensor.core import of_array

        changed = [
            of_array(np.array(a.detach().numpy())).requires_grad_(a.requires_grad)
            if hasattr(a, "detach")
            else a
            for a in self.arguments
        ]
        changed[i] = of_array(array).requires_grad_()
        return np.array(_outputs(self.function, changed)[j].detach().numpy()).reshape(-1)


def _flat(tensor: TensorCore) -> Array:
    return np.array(tensor.detach().numpy(), np.float64).reshape(-1)


def _two_of(tensor: TensorCore) -> Array:
    """Two random arrays of a tensor's type, stacked."""
    drawn = np.random.default_rng(0).standard_normal((2, *tensor._type.shape))
    return drawn.astype(tensor.dtype.numpy)


def _unit(rng: np.random.Generator, size: int) -> Array:
    vector = rng.standard_normal(size)
    return vector / max(float(np.linalg.norm(vector)), 1e-30)


def _shown(jacobian: Any) -> Any:
    from lucid.tensor.core import of_array

    return of_array(jacobian) if isinstance(jacobian, np.ndarray) else jacobian


def _mismatch(i: int, j: int, numerical: Any, analytical: Any, mode: str = "") -> str:
    return (
        f"Jacobian {mode}mismatch for output {j} with respect to input {i},\n"
        f"numerical:{_shown(numerical)}\nanalytical:{_shown(analytical)}\n"
    )


@like(gradcheck)
def gradgradcheck(
    func: Callable[..., Any],
    inputs: TensorCore | Sequence[Any],
    grad_outputs: TensorCore | Sequence[TensorCore] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """`gradcheck` of the gradients of `func`, with respect to inputs and cotangents.

    Args:
        func: a function that can be differentiated twice.
        grad_outputs: cotangents of the outputs. Default: None, random ones.
        gen_non_contig_grad_outputs: draw cotangents that aren't contiguous.
        check_fwd_over_rev: push tangents through the backward as well.
        check_rev_over_rev: differentiate the backward by another one.
        masked: True or False; of dense inputs all elements are checked.

    >>> x = lucid.tensor([0.3, -1.2], dtype=lucid.float64, requires_grad=True)
    >>> lucid.autograd.gradgradcheck(lucid.sin, (x,))
    True
    """
    arguments = _arguments(inputs)
    wanted = [i for i, x in enumerate(arguments) if getattr(x, "requires_grad", False)]
    outputs = _outputs(func, arguments)
    seeds = _cotangents(outputs, grad_outputs, gen_non_contig_grad_outputs)

    def gradients(*all_arguments: Any) -> tuple[Any, ...]:
        own, cotangents = all_arguments[: len(arguments)], all_arguments[len(arguments) :]
        pairs = [
            (y, c) for y, c in zip(_outputs(func, own), cotangents, strict=True) if y.requires_grad
        ]
        found = grad(
            [y for y, _ in pairs],
            [own[i] for i in wanted],
            [c for _, c in pairs],
            create_graph=True,
            allow_unused=True,
        )
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradients,
        (*arguments, *seeds),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


def _cotangents(outputs: Sequence[TensorCore], given: Any, is_spread: bool) -> list[TensorCore]:
    from lucid.tensor.core import of_array

    if given is not None:
        return [seed.detach().requires_grad_() for seed in _arguments(given)]
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal(y._type.shape).astype(y.dtype.numpy) for y in outputs]
    if is_spread:  # each second element of their memory
        pairs = [of_array(np.stack([array, array], -1)) for array in drawn]
        return [pair[..., 0].requires_grad_() for pair in pairs]
    return [of_array(array).requires_grad_() for array in drawn]
