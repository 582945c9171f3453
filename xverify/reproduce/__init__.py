"""The published experiments: their records and data, how they are run, and how they are reported.

It may import engine and everything below it; only commands imports it.
"""
