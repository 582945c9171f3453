"""Computing with torch in float64, and with the rounding of every operation: what the adapter of torch and replay share.

It needs torch. It may import verdict and everything below it.
"""
