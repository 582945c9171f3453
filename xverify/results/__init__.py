"""The frozen records of a run, and the file that they are written to and read from.

It may import workload and errors.
"""
