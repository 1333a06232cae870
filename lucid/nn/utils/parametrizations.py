"""Weight normalization, spectral normalization, and orthogonal weights, as parametrizations.

Args:
    module: the layer, which is returned.
"""

from __future__ import annotations

import numpy as np

import lucid
from lucid.autograd.modes import no_grad
from lucid.choices import check_choice
from lucid.functions.border import module_at_border
from lucid.functions.lapack import call
from lucid.ir.errors import IndexOutOfRangeError, MissingRuleError, OptionError, ShapeError
from lucid.nn.functional.distance import normalize
from lucid.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from lucid.nn.modules.module import Module
from lucid.nn.utils.parametrize import register_parametrization
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


def norm_except_dim(v: Tensor, dim: int | None) -> Tensor:
    """Return the norm over all axes but `dim`, kept as ones; of everything for None or -1.

    Args:
        v: a tensor of floats.
        dim: the axis with a norm for each index, from 0 on; None or -1 for a single norm, without
            axes.

    >>> from lucid.nn.utils.parametrizations import norm_except_dim
    >>> norm_except_dim(lucid.tensor([[3.0, 4.0], [6.0, 8.0]]), 0)
    tensor([[ 5.],
            [10.]])
    """
    if dim in (None, -1):
        return v.norm()
    axes = tuple(axis for axis in range(v.ndim) if axis != dim)
    return (v * v).sum(axes, keepdim=True).sqrt() if axes else v.abs()


def matrix_along(weight: Tensor, dim: int) -> Tensor:
    """Return the weight as a matrix, whose rows are the elements of axis `dim`.

    Shapes: an axis of size n and m elements in all give (n, m / n).

    Args:
        weight: a tensor with at least one axis.
        dim: the axis that becomes the first.

    >>> from lucid.nn.utils.parametrizations import matrix_along
    >>> matrix_along(lucid.ones(4, 2, 3), 1).shape
    lucid.Size([2, 12])
    """
    moved = weight.movedim(dim, 0)
    return moved.reshape(moved.shape[0], -1)


def default_dim(module: Module, dim: int | None) -> int:
    """Return the axis of a layer's outputs in its weight, unless one is given.

    It is 1 of transposed convolutions and 0 of all others.

    Args:
        module: the layer.
        dim: an axis, which is returned, or None.

    >>> from lucid.nn.utils.parametrizations import default_dim
    >>> default_dim(nn.Linear(3, 2), None), default_dim(nn.ConvTranspose1d(3, 2, 1), None)
    (0, 1)
    """
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

    Args:
        dim: the axis with a length for each index; None for one length.

    Raises:
        OptionError: the module has no such parameter or buffer.

    >>> from lucid.nn.utils.parametrizations import weight_norm
    >>> layer = weight_norm(lucid.nn.Linear(3, 2, bias=False))
    >>> for name, part in layer.named_parameters():
    ...     print(name, tuple(part.shape))
    parametrizations.weight.original0 (2, 1)
    parametrizations.weight.original1 (2, 3)
    """
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexOutOfRangeError(f"spectral_norm: no axis {dim} in {weight._type}")
        if iterations <= 0:
            raise OptionError(f"n_power_iterations must be positive, not {iterations}")
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

    Args:
        n_power_iterations: how many there are each time that the weight is read in training.
        eps: the least norm that vectors are divided by.
        dim: the axis of the outputs: the weight is a matrix with it as rows. Default: None, 1 of
            transposed convolutions, else 0.

    Raises:
        OptionError: the module has no such tensor, or `n_power_iterations` is below 1.
        IndexOutOfRangeError: the weight has no axis `dim`.

    >>> from lucid.nn.utils.parametrizations import spectral_norm
    >>> _ = lucid.manual_seed(0)
    >>> layer = spectral_norm(lucid.nn.Linear(3, 2))
    >>> lucid.allclose(lucid.linalg.svdvals(layer.weight)[0], lucid.tensor(1.0), atol=1e-2)
    True
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
            raise ShapeError(f"orthogonal: expected the shape {self.shape}, not {weight._type}")
        is_wide = weight.shape[-2] < weight.shape[-1]
        tall = weight.mT if is_wide else weight
        if "base" not in self._buffers:
            if self.orthogonal_map != "householder":
                why = "can't be assigned without use_trivialization"
                raise MissingRuleError(f"{self.orthogonal_map}: {why}")
            found = call("linalg.qr", _reflectors, tall)
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
    return q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keep a weight's columns (or rows, if there are more columns) orthonormal, by turning them.

    Reference: Lezcano-Casado, "Trivializations for Gradient-Based Optimization on Manifolds", 2019.

    Args:
        name: of its parameter: a matrix, or several.
        orthogonal_map: "matrix_exp", "cayley" or "householder". Default: None, "matrix_exp" of
            square matrices and "householder" of others.
        use_trivialization: turn the weight that is there, made orthonormal; else turn the identity.

    Raises:
        OptionError: the module has no such tensor, it has fewer than two axes, or the map is
            another.

    >>> from lucid.nn.utils.parametrizations import orthogonal
    >>> layer = orthogonal(lucid.nn.Linear(2, 3))
    >>> lucid.allclose(layer.weight.T @ layer.weight, lucid.eye(2), atol=1e-5)
    True
    """
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise OptionError(f"orthogonal: takes matrices, not {weight._type}")
    if orthogonal_map is None:
        is_square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if is_square else "householder"
    check_choice(orthogonal_map, "orthogonal_map", "orthogonal", _MAPS)
    found = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return register_parametrization(module, name, found, unsafe=True)


module_at_border(__name__)
