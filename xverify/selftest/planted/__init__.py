"""Adapters that do a known amount of work, or have one timing fault each. XVERIFY_FRAMEWORKS makes them known.

They may import framework, frameworks and each other.
"""
