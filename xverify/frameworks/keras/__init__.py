"""What all adapters of Keras 3 share, for any backend. It is no framework by itself."""
