"""LiteRT, from a file that TensorFlow's port is converted to."""
