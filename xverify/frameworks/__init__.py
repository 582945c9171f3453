"""One adapter of a framework a file, found by its file name.

An adapter may import framework, workload and weights, and its own framework inside ``__init__``.
"""
