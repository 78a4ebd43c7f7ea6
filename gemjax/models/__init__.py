"""Flax networks and the loaders of their weights."""
