"""Calls of Python in a step: custom Functions whose methods leave lucid."""
