"""When two results are equal: pure functions over arrays and numbers.

It may import results, workload and errors.
"""
