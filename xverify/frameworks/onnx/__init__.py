"""What the adapters share whose runtime computes the reference's ONNX export. It is no framework by itself."""
