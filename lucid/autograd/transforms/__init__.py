"""Derivatives and mapping over examples, as functions of functions: what `lucid.func` offers.

Args:
    func: a function of tensors, or of nested lists, tuples and dicts of them.
    argnums: the position of the argument to differentiate by, or a tuple of positions; negative
        ones count from the end.
    has_aux: `func` returns (output, aux), of which only the output is differentiated.
"""
