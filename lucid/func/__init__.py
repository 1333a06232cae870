"""Functions of functions: derivatives and mapping over examples, nested in any order."""

import sys

from lucid.func.forward import jvp, linearize
from lucid.func.jacobians import hessian, jacfwd, jacrev
from lucid.func.modules import functional_call, stack_module_state
from lucid.func.reverse import grad, grad_and_value, value_and_grad, vjp
from lucid.func.vmapping import vmap
from lucid.functions.border import explain_calls

explain_calls(sys.modules[__name__], dict(vars()), "lucid.func.")

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "stack_module_state",
    "value_and_grad",
    "vjp",
    "vmap",
]
