"""ONNX graphs in float64: their exact outputs, the noise of rounding in them, and the replay of every node from captured values.

It may import torch, numpy and onnx, and of xverify what the rest of replay may import.
"""
