"""A trace: from the arguments of a call to a graph."""
