"""TensorLayerX on TensorFlow."""
