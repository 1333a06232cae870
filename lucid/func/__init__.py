"""Functions of functions: derivatives and mapping over examples, nested in any order."""

from lucid.func.forward import jvp, linearize
from lucid.func.jacobians import hessian, jacfwd, jacrev
from lucid.func.modules import functional_call, stack_module_state
from lucid.func.reverse import grad, grad_and_value, value_and_grad, vjp
from lucid.func.vmapping import vmap

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
