"""Known faults of glue code, one file for each family: what a port's code between its layers may compute otherwise.

Of xverify, it may import the faults of layers, the records of operations in replay, and float64.
"""
