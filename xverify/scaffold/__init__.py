"""Writes a model folder from the code of a model: its spec, its reference, and a first port.

``begin`` in ``api`` is the whole of it.
"""
