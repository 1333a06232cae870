"""Products: how they are blocked, packed and emitted."""
