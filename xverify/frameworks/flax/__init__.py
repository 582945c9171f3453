"""Flax NNX."""
