"""Neural network layers: modules that hold parameters, and functions."""

import sys
import typing

from lucid import ported
from lucid.functions import border
from lucid.ir import frames
from lucid.nn import functional as functional, grad as grad, init as init, utils as utils
from lucid.nn.modules.activation import *
from lucid.nn.modules.adaptive import *
from lucid.nn.modules.attention import *
from lucid.nn.modules.batchnorm import *
from lucid.nn.modules.container import *
from lucid.nn.modules.conv import *
from lucid.nn.modules.distance import *
from lucid.nn.modules.dropout import *
from lucid.nn.modules.embedding import *
from lucid.nn.modules.instancenorm import *
from lucid.nn.modules.lazy import *
from lucid.nn.modules.linear import *
from lucid.nn.modules.loss import *
from lucid.nn.modules.module import *
from lucid.nn.modules.normalization import *
from lucid.nn.modules.padding import *
from lucid.nn.modules.pooling import *
from lucid.nn.modules.recurrent import *
from lucid.nn.modules.resizing import *
from lucid.nn.modules.transformer import *
from lucid.nn.parameter import *
from lucid.nn.uninitialized import *

vars()["__all__"] = border.public_names(vars(), "functional", "grad", "init", "utils")
for _old in ("margin", "threshold"):  # where pickles of earlier versions look for modules
    sys.modules[f"lucid.nn.modules.{_old}"] = sys.modules[__name__]
border.modules_at_border(dict(vars()))
border.constructors_at_border(dict(vars()), "lucid.nn.modules.")


frames.edge_of_module(__name__, "grad", "parameter")


def __getattr__(name: str) -> typing.Any:
    return ported.submodule(__name__, name)
