"""A user's project: modules that aren't installed."""
