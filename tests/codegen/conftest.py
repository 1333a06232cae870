"""Run a lane function over arrays: the harness of the tests of generated code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lucid.codegen.llvm import jit
from lucid.codegen.llvm.builder import FunctionBuilder, Module, Val, vector
from lucid.codegen.llvm.target import host_target

Array = np.ndarray[Any, Any]
LaneFunction = Callable[..., Val]
Apply = Callable[..., Array]

ELEMENTS = {"float32": "float", "float64": "double", "int32": "i32", "int64": "i64", "bool": "i1"}


def apply_lanes(
    function: LaneFunction, *operands: Array, lanes: int, result: Any = None, ldexp: bool = True
) -> Array:
    """function(builder, *vectors) over equal arrays, whose length may leave a tail."""
    arrays = [np.ascontiguousarray(operand) for operand in operands]
    dtype = np.dtype(result or arrays[0].dtype)
    output = np.zeros(arrays[0].size + lanes, dtype)
    count = -(-arrays[0].size // lanes) * lanes
    arrays = [np.concatenate([a.ravel(), np.ones(count - a.size, a.dtype)]) for a in arrays]
    target = host_target()
    if not ldexp:
        target = type(target)(**{**_fields(target), "has_vector_ldexp": False})
    module = Module(target)
    pointers = [("ptr", f"p{i}") for i in range(len(arrays) + 1)]
    with FunctionBuilder(module, "kernel", [*pointers, ("i64", "n")]) as b:
        *sources, destination, n = b.args
        with b.loop(0, n, lanes) as loop:
            vectors = [
                _load(b, ELEMENTS[a.dtype.name], p, loop.index, lanes)
                for a, p in zip(arrays, sources, strict=True)
            ]
            value = function(b, *vectors)
            if value.element == "i1":
                b.store_bool(value, b.at("i8", destination, loop.index))
            else:
                b.store(value, b.at(value.element, destination, loop.index))
        b.ret()
    library = jit.load(module.text(), target, ["kernel"])
    signature = [ctypes.c_void_p] * (len(arrays) + 1) + [ctypes.c_int64]
    call = ctypes.CFUNCTYPE(None, *signature)(library.addresses["kernel"])
    call(*(a.ctypes.data for a in arrays), output.ctypes.data, count)
    return output[: operands[0].size].reshape(operands[0].shape)


def _fields(target: Any) -> dict[str, Any]:
    return {name: getattr(target, name) for name in type(target).__slots__}


def _load(b: FunctionBuilder, element: str, pointer: Val, index: Val, lanes: int) -> Val:
    if element == "i1":
        return b.load_bool(b.at("i8", pointer, index), lanes)
    return b.load(vector(element, lanes), b.at(element, pointer, index))


@pytest.fixture
def apply() -> Apply:
    return apply_lanes
