"""The operators of ONNX on arrays of any floating-point type, one family in each file. They import torch, numpy and onnx."""
