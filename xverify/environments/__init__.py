"""Interpreters of their own for frameworks that cannot be installed beside the others.

It may import framework, host, and everything below those.
"""
