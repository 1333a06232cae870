"""A compiled step: its guards, its native code, and the ways through a call."""
