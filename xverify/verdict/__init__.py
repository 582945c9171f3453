"""Decides whether two results are equal, with pure functions over arrays and numbers.

It may import results and everything below it.
"""
