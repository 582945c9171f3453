"""Keras 3 on PyTorch."""
