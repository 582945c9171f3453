"""The known ways in which a port computes a layer wrongly, used to explain a difference and to plant one; one file a kind of layer.

It may import torch and nothing else of xverify.
"""
