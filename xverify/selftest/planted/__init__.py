"""Adapters of the numpy framework with one timing fault each, found through XVERIFY_FRAMEWORKS.

They may import the framework package alone.
"""
