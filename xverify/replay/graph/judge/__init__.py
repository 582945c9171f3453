"""What rounding may change in an ONNX graph, and whether what a runtime computed lies within it."""
