"""The command line, with one command in each file: it reads the arguments, calls the other packages, and prints a report.

It may import every package except replay, which only workers import.
"""
