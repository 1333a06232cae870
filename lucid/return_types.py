"""The types of results that are several tensors, named after their functions, as in PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from lucid.tensor.tensor import Tensor


def _shown(result: Any) -> str:
    parts = zip(result._fields, result, strict=True)
    listed = ",\n".join(f"{name}={value!r}" for name, value in parts)
    return f"lucid.return_types.{type(result).__name__}(\n{listed})"


class ValuesAndIndices(NamedTuple):
    """Elements, and where they stood."""

    values: Tensor
    indices: Tensor

    def __repr__(self) -> str:
        return _shown(self)


Kind = TypeVar("Kind", bound=ValuesAndIndices)


class sort(ValuesAndIndices):
    """What `sort` returns."""

    __slots__ = ()


class topk(ValuesAndIndices):
    """What `topk` returns."""

    __slots__ = ()


class max(ValuesAndIndices):
    """What `max(dim)` returns."""

    __slots__ = ()


class min(ValuesAndIndices):
    """What `min(dim)` returns."""

    __slots__ = ()


class median(ValuesAndIndices):
    """What `median(dim)` returns."""

    __slots__ = ()


class nanmedian(ValuesAndIndices):
    """What `nanmedian(dim)` returns."""

    __slots__ = ()


class mode(ValuesAndIndices):
    """What `mode` returns."""

    __slots__ = ()


class kthvalue(ValuesAndIndices):
    """What `kthvalue` returns."""

    __slots__ = ()


class cummax(ValuesAndIndices):
    """What `cummax` returns."""

    __slots__ = ()


class cummin(ValuesAndIndices):
    """What `cummin` returns."""

    __slots__ = ()


class aminmax(NamedTuple):
    """What `aminmax` returns."""

    min: Tensor
    max: Tensor

    def __repr__(self) -> str:
        return _shown(self)


class linalg_slogdet(NamedTuple):
    """What `linalg.slogdet` returns."""

    sign: Tensor
    logabsdet: Tensor

    def __repr__(self) -> str:
        return _shown(self)


class linalg_eigh(NamedTuple):
    """What `linalg.eigh` returns."""

    eigenvalues: Tensor
    eigenvectors: Tensor

    def __repr__(self) -> str:
        return _shown(self)


class linalg_svd(NamedTuple):
    """What `linalg.svd` returns."""

    U: Tensor
    S: Tensor
    Vh: Tensor

    def __repr__(self) -> str:
        return _shown(self)


class linalg_qr(NamedTuple):
    """What `linalg.qr` returns."""

    Q: Tensor
    R: Tensor

    def __repr__(self) -> str:
        return _shown(self)


class linalg_lstsq(NamedTuple):
    """What `linalg.lstsq` returns; residuals, rank and singular values are not computed."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor

    def __repr__(self) -> str:
        return _shown(self)


class linalg_inv_ex(NamedTuple):
    """What `linalg.inv_ex` returns."""

    inverse: Tensor
    info: Tensor

    def __repr__(self) -> str:
        return _shown(self)


class linalg_cholesky_ex(NamedTuple):
    """What `linalg.cholesky_ex` returns."""

    L: Tensor
    info: Tensor

    def __repr__(self) -> str:
        return _shown(self)


class linalg_lu(NamedTuple):
    """What `linalg.lu` returns."""

    P: Tensor
    L: Tensor
    U: Tensor

    def __repr__(self) -> str:
        return _shown(self)


class linalg_lu_factor(NamedTuple):
    """What `linalg.lu_factor` returns."""

    LU: Tensor
    pivots: Tensor

    def __repr__(self) -> str:
        return _shown(self)


class linalg_lu_factor_ex(NamedTuple):
    """What `linalg.lu_factor_ex` returns."""

    LU: Tensor
    pivots: Tensor
    info: Tensor

    def __repr__(self) -> str:
        return _shown(self)


class svd(NamedTuple):
    """What `svd` and `svd_lowrank` return."""

    U: Tensor
    S: Tensor
    V: Tensor

    def __repr__(self) -> str:
        return _shown(self)


class qr(NamedTuple):
    """What `qr` returns."""

    Q: Tensor
    R: Tensor

    def __repr__(self) -> str:
        return _shown(self)
