"""Plans what is timed, and computes speeds and verdicts from the samples. Only noise.py reads counters from /proc.

It may import results and everything below it.
"""
