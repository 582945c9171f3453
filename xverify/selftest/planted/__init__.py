"""Adapters that do known work, or have one timing fault each; they are found through XVERIFY_FRAMEWORKS.

They may import framework, frameworks and each other.
"""
