"""Kernels in order over planned memory: checked, interpreted, parsed, and written as one step."""
