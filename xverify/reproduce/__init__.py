"""The published experiments: their records, what runs them, and how they are reported.

It may import run and everything below it; only commands imports it.
"""
