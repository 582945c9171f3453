"""JAX, and what all adapters that run on it share."""
