"""The reference in float64, forward and in training, and with the rounding of every operation.

It needs torch. It may import framework and everything below it.
"""
