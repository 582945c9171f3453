"""The known ways in which a port computes a layer wrongly, one file a kind of layer; they explain a difference, or plant one.

It may import torch and nothing else of xverify.
"""
