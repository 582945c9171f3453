"""Plans what is timed and computes what the samples say: pure functions, except for the counters that are read from /proc.

It may import results and errors.
"""
