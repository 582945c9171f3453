"""The timing engine put to the test on the machine where it runs, on speeds that are known beforehand.

It may import run and everything below it; only commands imports it.
"""
