"""Functions of functions: derivatives and mapping over examples, nested in any order."""

import sys

from lucid.autograd.transforms.forward import jvp, linearize
from lucid.autograd.transforms.jacobians import hessian, jacfwd, jacrev
from lucid.autograd.transforms.reverse import grad, grad_and_value, value_and_grad, vjp
from lucid.autograd.transforms.vmapping import vmap
from lucid.func.modules import (
    functional_call,
    replace_all_batch_norm_modules_,
    stack_module_state,
)
from lucid.functions.border import explain_calls
from lucid.ir import frames

explain_calls(sys.modules[__name__], dict(vars()), ("lucid.autograd.transforms.", __name__))


__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "replace_all_batch_norm_modules_", "stack_module_state", "value_and_grad", "vjp", "vmap",
]  # fmt: skip

frames.edge_of_module(__name__)
