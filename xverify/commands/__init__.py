"""One command of the command line a file: it reads the arguments, calls what does the work, and prints a report.

It may import every other package.
"""
