"""Checks of the timing engine on this machine, with adapters whose speed is known beforehand.

It may import engine and everything below it; only commands imports it.
"""
