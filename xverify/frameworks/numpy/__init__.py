"""NumPy: the smallest complete adapter."""
