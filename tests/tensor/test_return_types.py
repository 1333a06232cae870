"""Results that are several tensors: their types, names and texts, in eager mode and compiled."""

from __future__ import annotations

import pickle

import pytest

import lucid

X = lucid.tensor([[1.0, 4.0], [3.0, 2.0]])

RESULTS = {
    "sort": lambda x: x.sort(),
    "topk": lambda x: x.topk(1),
    "max": lambda x: x.max(0),
    "min": lambda x: x.min(0),
    "median": lambda x: x.median(0),
    "nanmedian": lambda x: x.nanmedian(0),
    "mode": lambda x: x.mode(0),
    "kthvalue": lambda x: x.kthvalue(1),
    "cummax": lambda x: x.cummax(0),
    "cummin": lambda x: x.cummin(0),
    "aminmax": lambda x: x.aminmax(),
    "svd": lambda x: x.svd(),
    "qr": lambda x: lucid.qr(x),
    "linalg_slogdet": lambda x: lucid.linalg.slogdet(x),
    "linalg_eigh": lambda x: lucid.linalg.eigh(x),
    "linalg_svd": lambda x: lucid.linalg.svd(x),
    "linalg_lu": lambda x: lucid.linalg.lu(x),
    "linalg_lu_factor": lambda x: lucid.linalg.lu_factor(x),
    "linalg_lu_factor_ex": lambda x: lucid.linalg.lu_factor_ex(x),
    "linalg_qr": lambda x: lucid.linalg.qr(x),
    "linalg_lstsq": lambda x: lucid.linalg.lstsq(x, x),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_of_several_tensors_has_the_type_of_its_function(name):
    eager, compiled = RESULTS[name](X), lucid.compile(RESULTS[name])(X)
    kind = getattr(lucid.return_types, name)
    assert type(eager) is type(compiled) is kind
    assert isinstance(eager, tuple)
    assert kind.__module__ == "lucid.return_types"
    restored = pickle.loads(pickle.dumps(eager))
    assert type(restored) is kind
    for field, one, other in zip(kind._fields, eager, compiled, strict=True):
        assert getattr(eager, field) is one
        assert one.allclose(other)
        assert getattr(restored, field).tolist() == one.tolist()


@pytest.mark.parametrize("name", ["linalg_inv_ex", "linalg_cholesky_ex"])
def test_results_with_a_code_for_what_failed_name_the_result(name):
    function = getattr(lucid.linalg, name.removeprefix("linalg_"))
    result = function(X @ X.T)
    assert type(result) is getattr(lucid.return_types, name)
    assert result[0] is getattr(result, result._fields[0])
    assert result.info.tolist() == 0


def test_its_text_is_that_of_pytorch():
    assert repr(X.max(1)) == (
        "lucid.return_types.max(\nvalues=tensor([4., 3.]),\nindices=tensor([1, 0]))"
    )


def test_svd_gives_v_and_linalg_svd_its_transpose():
    u, s, v = X.svd()
    assert X.svd().V.tolist() == v.tolist()
    assert (u * s @ v.T).allclose(X)
    assert lucid.linalg.svd(X).Vh.allclose(v.T)


def test_an_einsum_that_sums_nothing_promotes_as_a_product_does() -> None:
    wide = lucid.einsum("ij,jk->ijk", lucid.ones(2, 2), lucid.ones(2, 3, dtype=lucid.float64))
    assert wide.dtype is lucid.float64
    with pytest.raises(lucid.DTypeError, match="einsum: the operands have different dtypes"):
        lucid.einsum("ij,jk->ik", lucid.ones(2, 2), lucid.ones(2, 3, dtype=lucid.float64))
