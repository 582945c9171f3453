"""Checks model files: what a file computes, against its own meaning in float64 and against a reference.

It may import the worker, the formats and everything below them, and no framework.
"""
