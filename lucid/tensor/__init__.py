"""The user's tensor: a thin handle on a NumPy buffer, or on a value of the graph being traced."""
