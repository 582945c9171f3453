"""TensorFlow, with Keras."""
