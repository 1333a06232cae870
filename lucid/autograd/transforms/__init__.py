"""Derivatives and mapping over examples, as functions of functions: what `lucid.func` offers."""
