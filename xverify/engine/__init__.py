"""One run: it starts, times and judges the subjects, and makes the result.

It may import training and everything below it, but not replay, which only workers import.
"""
