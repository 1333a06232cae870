"""Weight normalization, spectral normalization, and orthogonal weights."""

from __future__ import annotations

import lucid
from lucid.autograd.modes import no_grad
from lucid.ir.errors import OptionError
from lucid.nn.functional.distance import normalize
from lucid.nn.modules.module import Module
from lucid.nn.utils.parametrize import register_parametrization
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


def norm_except_dim(v: Tensor, dim: int | None) -> Tensor:
    """The norm over all axes but `dim`, which are kept as ones; of everything for None or -1."""
    if dim in (None, -1):
        return v.norm()
    axes = tuple(axis for axis in range(v.ndim) if axis != dim)
    return (v * v).sum(axes, keepdim=True).sqrt() if axes else v.abs()


class _WeightNorm(Module):
    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The lengths, and the directions with some lengths."""
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Split a weight into lengths and directions, which are optimized in its place.

    Reference: Salimans and Kingma, "Weight Normalization", 2016.
    """
    return register_parametrization(module, name, _WeightNorm(dim))


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        self.dim = dim % weight.ndim
        self.eps = eps
        self.n_power_iterations = iterations
        if weight.ndim > 1:
            with no_grad():
                matrix = self._matrix(weight)
                u = normalize(lucid.randn(matrix.shape[0], dtype=matrix.dtype), dim=0, eps=eps)
                v = normalize(lucid.randn(matrix.shape[1], dtype=matrix.dtype), dim=0, eps=eps)
                self.register_buffer("_u", u)
                self.register_buffer("_v", v)
                self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        moved = weight.movedim(self.dim, 0)
        return moved.reshape(moved.shape[0], -1)

    def _iterate(self, matrix: Tensor, count: int) -> None:
        for _ in range(count):
            write_(self._u, normalize(matrix @ self._v, dim=0, eps=self.eps))
            write_(self._v, normalize(matrix.T @ self._u, dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            with no_grad():
                self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / u.dot(matrix.mv(v))


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its greatest singular value, estimated by power iterations in training.

    Reference: Miyato et al., "Spectral Normalization for Generative Adversarial Networks", 2018.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise OptionError(
            f"Module '{type(module).__name__}' has no parameter or buffer with name '{name}'"
        )
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    return register_parametrization(
        module, name, _SpectralNorm(weight, n_power_iterations, dim, eps)
    )


class _Orthogonal(Module):
    def __init__(self, base: Tensor) -> None:
        super().__init__()
        self.register_buffer("base", base)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = x.shape[-2:]
        skew = x.tril(-1)
        if rows < columns:
            skew = x.mT.tril(-1)
        size = skew.shape[-2]
        whole = lucid.nn.functional.pad(skew, (0, size - skew.shape[-1]))
        turned = lucid.linalg.matrix_exp(whole - whole.mT) @ self.base
        result: Tensor = turned.mT if rows < columns else turned
        return result

    def right_inverse(self, weight: Tensor) -> Tensor:
        """No turn yet: the weight's own orthogonal factor is the base."""
        return lucid.zeros_like(weight)


def orthogonal(module: Module, name: str = "weight") -> Module:
    """Keep a weight's columns (or rows, if there are more columns) orthonormal, by turning them."""
    weight = getattr(module, name)
    with no_grad():
        tall = weight.mT if weight.shape[-2] < weight.shape[-1] else weight
        q, r = lucid.linalg.qr(tall)
        base = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    return register_parametrization(module, name, _Orthogonal(base))
