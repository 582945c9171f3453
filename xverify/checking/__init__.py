"""Checks model files: what a file computes, against its own meaning in float64 and against a reference.

It may import the engine and everything below it, and no framework.
"""
