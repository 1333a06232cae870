"""Loops of the user's and of `lucid.scan`, of which one round is recorded for all."""
