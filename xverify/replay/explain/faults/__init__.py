"""The known faults of a port, one file for each kind of layer. They explain a difference, or are planted to test a verdict.

It may import torch and nothing else of xverify.
"""
