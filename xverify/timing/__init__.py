"""What is timed, and what the samples say: pure functions, but for reading the machine's state from /proc.

It may import results and errors.
"""
