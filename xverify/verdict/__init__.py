"""Decides whether two results are equal, with pure functions over arrays and numbers.

It may import results, workload and errors.
"""
