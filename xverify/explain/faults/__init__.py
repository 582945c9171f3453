"""The known faults of a port, one file for each kind of layer. They explain a difference, or are planted to test a verdict.

Of xverify, it may import float64 and what is below it.
"""
