"""Weight normalization, spectral normalization, and orthogonal weights, as parametrizations."""

from __future__ import annotations

import numpy as np

import lucid
from lucid.autograd.modes import no_grad
from lucid.functions.lapack import call
from lucid.ir.errors import IndexOutOfRangeError, MissingRuleError, OptionError, ShapeError
from lucid.nn.functional.distance import normalize
from lucid.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
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


def matrix_along(weight: Tensor, dim: int) -> Tensor:
    """The weight as a matrix, whose rows are the elements of axis `dim`."""
    moved = weight.movedim(dim, 0)
    return moved.reshape(moved.shape[0], -1)


def default_dim(module: Module, dim: int | None) -> int:
    """The axis of a layer's outputs in its weight, unless one is given."""
    if dim is not None:
        return dim
    return 1 if isinstance(module, ConvTranspose1d | ConvTranspose2d | ConvTranspose3d) else 0


class _WeightNorm(Module):
    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The lengths, and the directions with some lengths."""
        return norm_except_dim(weight, self.dim), weight.clone()


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Split a weight into lengths and directions, which are optimized in its place.

    Reference: Salimans and Kingma, "Weight Normalization", 2016.
    """
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexOutOfRangeError(
                "Dimension out of range (expected to be in range of "
                f"[-{weight.ndim}, {weight.ndim - 1}] but got {dim})"
            )
        if iterations <= 0:
            raise OptionError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={iterations}"
            )
        self.dim = dim % weight.ndim
        self.eps = eps
        if weight.ndim > 1:
            self.n_power_iterations = iterations
            with no_grad():
                matrix = matrix_along(weight, self.dim)
                for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                    start = normalize(lucid.randn(size, dtype=matrix.dtype), dim=0, eps=eps)
                    self.register_buffer(name, start)
                self._iterate(matrix, 15)

    def _iterate(self, matrix: Tensor, count: int) -> None:
        for _ in range(count):
            write_(self._u, normalize(matrix @ self._v, dim=0, eps=self.eps))
            write_(self._v, normalize(matrix.T @ self._u, dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = matrix_along(weight, self.dim)
        if self.training:
            with no_grad():
                self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / u.dot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """Itself: the original's own norm doesn't matter."""
        return value


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
    weight = _tensor_of(module, name)
    norm = _SpectralNorm(weight, n_power_iterations, default_dim(module, dim), eps)
    return register_parametrization(module, name, norm)


def _tensor_of(module: Module, name: str) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise OptionError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


_MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    """A matrix X (or its transpose, if it is wide) to orthonormal columns.

    Attributes:
        base: orthogonal, n by n; what X makes turns it. Absent without trivialization.
    """

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        self.shape = tuple(weight.shape)
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        is_wide = x.shape[-2] < x.shape[-1]
        tall = x.mT if is_wide else x
        if self.orthogonal_map == "householder":
            below = tall.tril(-1)
            columns = lucid.linalg.householder_product(below, 2 / (1 + below.square().sum(-2)))
            signs = tall.diagonal(dim1=-2, dim2=-1).detach().trunc()
            columns = columns * signs.unsqueeze(-2)
        else:
            columns = self._turned(tall.tril())
        base = self._buffers.get("base")
        if base is not None:
            columns = base @ columns
        return columns.mT if is_wide else columns

    def _turned(self, x: Tensor) -> Tensor:
        """The first columns of the rotation that a skew-symmetric matrix, x - x^T, gives."""
        rows, count = x.shape[-2:]
        whole = lucid.nn.functional.pad(x, (0, rows - count))
        skew = whole - whole.mT
        if self.orthogonal_map == "matrix_exp":
            turned = lucid.linalg.matrix_exp(skew)
        else:
            identity = lucid.eye(rows, dtype=x.dtype)
            turned = lucid.linalg.solve(identity - skew / 2, identity + skew / 2)
        return turned[..., :count]

    def right_inverse(self, weight: Tensor) -> Tensor:
        """X of an orthogonal weight, or of one with the same columns' spans."""
        if tuple(weight.shape) != self.shape:
            raise ShapeError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. "
                f"Got a tensor of shape {tuple(weight.shape)}."
            )
        is_wide = weight.shape[-2] < weight.shape[-1]
        tall = weight.mT if is_wide else weight
        if "base" not in self._buffers:
            if self.orthogonal_map != "householder":
                raise MissingRuleError(
                    "It is not possible to assign to the matrix exponential or the Cayley "
                    "parametrizations when use_trivialization=False."
                )
            found = call("qr", _reflectors, tall)
            result: Tensor = found.mT if is_wide else found
            return result
        self.base = _completed(tall)
        # householder_product of a zero matrix is the identity, and so is the rotation by 0
        return -lucid.eye(*weight.shape[-2:], dtype=weight.dtype).expand(weight.shape).clone()


def _reflectors(a: np.ndarray) -> np.ndarray:
    """The reflectors of A = QR below the diagonal, and on it the signs of R's diagonal."""
    count = a.shape[-1]
    found = np.empty(a.shape, a.dtype)
    for place in np.ndindex(a.shape[:-2]):
        transposed, tau = np.linalg.qr(a[place], mode="raw")
        found[place] = transposed.T
        diagonal = np.sign(np.diagonal(found[place]).copy())
        diagonal[np.asarray(tau[:count]) == 0] *= -1
        found[place][range(count), range(count)] = diagonal
    return found


def _completed(weight: Tensor) -> Tensor:
    """A square orthogonal matrix; its first columns are the weight's, made orthonormal."""
    rows, count = weight.shape[-2:]
    eps = 10 * rows * float(np.finfo(weight.dtype.numpy.str).eps)
    product = weight.mT @ weight
    if rows == count and lucid.allclose(product, lucid.eye(rows, dtype=weight.dtype), atol=eps):
        return weight.clone()
    rest = lucid.randn(*weight.shape[:-1], rows - count, dtype=weight.dtype)
    q, r = lucid.linalg.qr(lucid.cat([weight, rest], -1))
    found: Tensor = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    return found


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keep a weight's columns (or rows, if there are more columns) orthonormal, by turning them.

    orthogonal_map: "matrix_exp" (of square matrices without it), "cayley" or "householder".
    use_trivialization: turn the weight that is there; else turn the identity.
    Reference: Lezcano-Casado, "Trivializations for Gradient-Based Optimization on Manifolds", 2019.
    """
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise OptionError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        is_square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if is_square else "householder"
    if orthogonal_map not in _MAPS:
        raise OptionError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    found = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return register_parametrization(module, name, found, unsafe=True)
