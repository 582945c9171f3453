"""Known faults of glue code, one file for each family: what a port's code between its layers may compute otherwise.

It may import torch, the activations of the faults of layers, and nothing else of xverify.
"""
