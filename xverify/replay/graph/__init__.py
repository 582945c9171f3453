"""ONNX graphs in float64.

The modules and ``operators`` compute a graph. ``judge`` measures the noise of rounding and judges what a runtime returned, and
``explain`` says why a converted graph computes something else. Computing imports neither, and judging no explaining.

It may import torch, numpy and onnx, and of xverify what the rest of replay may import.
"""
