"""lucid: training steps as people write them, compiled into one native call.

PyTorch's names and meanings on NumPy's memory; `lucid.compile` makes a step fast.
"""

import sys
import typing
from functools import partial as _partial
from math import e as e, inf as inf, nan as nan, pi as pi

from lucid import (
    autograd as autograd,
    docstrings,
    later,
    linalg as linalg,
    ported,
    return_types as return_types,
)
from lucid.autograd.modes import *
from lucid.device import device as device
from lucid.dtypes import *
from lucid.functions import border
from lucid.functions.arranging import *
from lucid.functions.bessel import *
from lucid.functions.comparison import *
from lucid.functions.conversion import *
from lucid.functions.creation import *
from lucid.functions.distances import *
from lucid.functions.einsum import *
from lucid.functions.elementwise import *
from lucid.functions.from_data import *
from lucid.functions.gamma import *
from lucid.functions.gathering import *
from lucid.functions.joining import *
from lucid.functions.matrices import *
from lucid.functions.products import *
from lucid.functions.promotion import *
from lucid.functions.quantizing import *
from lucid.functions.rectifiers import *
from lucid.functions.reduction import *
from lucid.functions.scans import *
from lucid.functions.shape import *
from lucid.functions.sorting import *
from lucid.functions.special import *
from lucid.functions.transcendental import *
from lucid.functions.windows import *
from lucid.ir import frames, types as _types
from lucid.ir.environment import check as _check_environment
from lucid.ir.errors import *
from lucid.layouts import *
from lucid.random import *
from lucid.settings import *
from lucid.tensor.formatting import (
    get_printoptions as get_printoptions,
    set_printoptions as set_printoptions,
)
from lucid.tensor.size import Size as Size
from lucid.tensor.tensor import Tensor as Tensor

if typing.TYPE_CHECKING:  # what `later` finds
    from lucid import (
        accelerator as accelerator,
        amp as amp,
        backends as backends,
        compiler as compiler,
        cuda as cuda,
        debug as debug,
        distributed as distributed,
        distributions as distributions,
        func as func,
        jit as jit,
        nn as nn,
        optim as optim,
        profiler as profiler,
        sparse as sparse,
        special as special,
        testing as testing,
        utils as utils,
    )
    from lucid.amp import (
        GradScaler as GradScaler,
        autocast as autocast,
        is_autocast_enabled as is_autocast_enabled,
    )
    from lucid.autograd import (
        is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled,
        is_anomaly_enabled as is_anomaly_enabled,
    )
    from lucid.compiler import compile as compile
    from lucid.control_flow import *
    from lucid.func import vmap as vmap
    from lucid.serialization import load as load, save as save
    from lucid.sparse import sparse_coo_tensor as sparse_coo_tensor

__version__ = "0.1.0"
newaxis = None
dtype = _types.DType
bool = _types.bool_
uint8 = _types.u8
uint32 = _types.u32
int8 = _types.i8
int16 = short = _types.i16
int32 = int = _types.i32
int64 = long = _types.i64
float32 = float = _types.f32
float64 = double = _types.f64
_MODULES = ("autograd", "linalg", "return_types")
vars()["__all__"] = border.public_names(vars(), "__version__", *_MODULES, *later.PUBLIC)

# The in-place methods that PyTorch has as functions too.
_IN_PLACE = (
    "abs_", "acos_", "acosh_", "asin_", "asinh_", "atan_", "atanh_", "ceil_", "clamp_",
    "clamp_max_", "clamp_min_", "clip_", "cos_", "cosh_", "deg2rad_", "erf_", "erfc_", "exp2_",
    "exp_", "expm1_", "fill_", "fix_", "floor_", "frac_", "index_put_", "log10_", "log1p_",
    "log2_", "log_", "logit_", "nan_to_num_", "neg_", "negative_", "rad2deg_", "reciprocal_",
    "relu_", "round_", "rsqrt_", "sigmoid_", "sin_", "sinc_", "sinh_", "sqrt_", "square_", "tan_",
    "tanh_", "trunc_", "xlogy_", "zero_", "detach", "detach_",
)  # fmt: skip
vars().update({name: getattr(Tensor, name) for name in _IN_PLACE})
border.enter_border(sys.modules[__name__], dict(vars()), __name__)
for _name, _kind in vars(return_types).items():
    if hasattr(_kind, "_fields") and _name != "ValuesAndIndices":
        _home = linalg if _name.startswith("linalg_") else sys.modules[__name__]
        docstrings.show(_kind, getattr(_home, _name.removeprefix("linalg_")))
border.explain_calls(autograd, vars(autograd), "lucid.autograd.")
border.explain_calls(autograd.functional, vars(autograd.functional), "lucid.autograd.")
frames.edge_of_module(autograd.__name__)
for _module in (autograd.forward_ad, autograd.function, autograd.functional, autograd.graph):
    frames.edge_of_module(_module.__name__)
vars(autograd)["__getattr__"] = _partial(ported.submodule, autograd.__name__)
ported.install()
_check_environment()  # now: what is misspelt is never read, and some is read late


def __getattr__(name: str) -> typing.Any:
    return later.find(name)


def __dir__() -> list[str]:
    return list(globals()["__all__"])


frames.edge_of_module(__name__)
