"""Layers, containers and losses as modules."""
