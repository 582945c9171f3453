"""One framework adapter per file, found by its file name; files that begin with an underscore hold what several adapters share.

An adapter may import framework, workload, weights and errors, and its own framework inside ``__init__``.
"""
