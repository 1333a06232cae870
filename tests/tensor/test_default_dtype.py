"""Names of dtypes, the default dtype, what `import lucid` gives."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import lucid


def test_the_default_dtype_is_what_floats_become() -> None:
    try:
        lucid.set_default_dtype(lucid.float64)
        assert lucid.get_default_dtype() is lucid.float64
        assert lucid.tensor(1.0).dtype is lucid.zeros(2).dtype is lucid.float64
        assert (lucid.tensor([1]) / 2).dtype is lucid.float64
        assert lucid.rand(2).dtype is lucid.arange(0.0, 1.0, 0.5).dtype is lucid.float64
        assert repr(lucid.tensor([1.0])) == "tensor([1.])"
    finally:
        lucid.set_default_dtype(lucid.float32)
    assert lucid.tensor(1.0).dtype is lucid.float32


def test_names_are_pytorchs() -> None:
    assert lucid.float is lucid.float32
    assert lucid.double is lucid.float64
    assert lucid.int is lucid.int32
    assert lucid.long is lucid.int64
    assert isinstance(lucid.float32, lucid.dtype)
    assert lucid.zeros(2, dtype=np.float64).dtype is lucid.float64
    assert lucid.zeros(2, dtype=int).dtype is lucid.int64
    assert lucid.can_cast(lucid.int64, lucid.float32)
    assert not lucid.can_cast(lucid.float32, lucid.int64)
    assert lucid.promote_types(lucid.int64, lucid.float32) is lucid.float32


def test_every_public_name_exists() -> None:
    public = [name for name in lucid.__all__ if name != "compile"]
    assert all(hasattr(lucid, name) for name in public)
    assert sorted(lucid.__all__) == list(lucid.__all__)
    with pytest.raises(AttributeError, match="module 'lucid' has no attribute 'tenser'"):
        lucid.tenser


def test_importing_lucid_imports_no_compiler() -> None:
    code = "import lucid, sys; print([m for m in ('llvmlite', 'networkx') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_sizes_are_tuples_that_count() -> None:
    shape = lucid.zeros(2, 3, 4).shape
    assert shape == (2, 3, 4)
    assert shape.numel() == 24
    assert repr(shape[1:]) == "lucid.Size([3, 4])"
    assert repr(shape + (5,)) == "lucid.Size([2, 3, 4, 5])"
    assert repr((5,) + shape) == "lucid.Size([5, 2, 3, 4])"
    assert lucid.zeros(shape).shape == shape


def test_the_device_is_the_cpu() -> None:
    x = lucid.zeros(2, device="cpu")
    assert x.device == lucid.device("cpu") == "cpu"
    assert x.device != "cuda"
    assert x.to("cpu") is x.cpu() is x
    assert x.to(lucid.device("cpu"), lucid.float64).dtype is lucid.float64
    assert x.device.type == "cpu"


def test_tensors_that_are_made_by_their_class_have_the_default_dtype() -> None:
    assert lucid.Tensor([1, 2]).dtype is lucid.float32
    try:
        lucid.set_default_dtype(lucid.float64)
        assert lucid.Tensor([1, 2]).dtype is lucid.float64
        assert lucid.Tensor(2, 3).dtype is lucid.float64
        assert lucid.FloatTensor([1, 2]).dtype is lucid.float32
    finally:
        lucid.set_default_dtype(lucid.float32)


# Dtypes that there aren't -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float16", "half", "bfloat16", "complex64", "cdouble", "uint64"])
def test_a_dtype_that_there_is_not_can_be_named_and_compared(name: str) -> None:
    """As a norm does that keeps to float32 unless its weights are shorter."""
    missing = getattr(lucid, name)
    assert lucid.ones(2).dtype not in (missing, None)
    assert missing is getattr(lucid, name)
    assert missing.is_complex == (name in ("complex64", "cdouble"))
    step = lucid.compile(lambda x: x.to(missing) if x.dtype == missing else x * 2)
    assert step(lucid.ones(2)).tolist() == [2.0, 2.0]
    with lucid.autocast("cpu", dtype=missing, enabled=False):
        assert lucid.ones(2).dtype is lucid.float32
    for use in (
        lambda: lucid.zeros(2, dtype=missing),
        lambda: lucid.ones(2).to(missing),
        lambda: lucid.nn.Linear(2, 2).to(missing),
        lambda: lucid.autocast("cpu", dtype=missing),
    ):
        with pytest.raises(lucid.DTypeError, match=rf"there is no {missing.name}\n"):
            use()
