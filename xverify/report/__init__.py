"""One output format of a result a file.

It may import results, verdict, timing, and everything below those.
"""
