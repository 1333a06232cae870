"""Automatic differentiation: the engine's entry points, custom Functions, grad modes."""

import sys

from lucid.autograd import (
    anomaly as anomaly_mode,
    forward_ad,
    function,
    functional,
    graph,
    modes as grad_mode,
)
from lucid.autograd.anomaly import (
    detect_anomaly,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_detect_anomaly,
)
from lucid.autograd.entry_points import backward, grad
from lucid.autograd.function import Function
from lucid.autograd.gradcheck import gradcheck, gradgradcheck
from lucid.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from lucid.autograd.variable import Variable
from lucid.ir.errors import GradcheckError

for _name, _module in (("anomaly_mode", anomaly_mode), ("grad_mode", grad_mode)):
    sys.modules[f"{__name__}.{_name}"] = _module  # where PyTorch has them

__all__ = [
    "Function", "GradcheckError", "Variable", "backward", "detect_anomaly", "enable_grad",
    "forward_ad", "function", "functional", "grad", "gradcheck", "gradgradcheck", "graph",
    "inference_mode", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "is_grad_enabled",
    "no_grad", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip
