"""One file format per file, found by its file name; files that begin with an underscore hold what several formats share.

A format may import frameworks, framework, weights and errors, and its own framework inside ``__init__``.
"""
