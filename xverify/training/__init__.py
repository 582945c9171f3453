"""Training parity: the checks of one training step and of the loss curve, and the optimizers by themselves.

It may import reference, worker, and everything below those.
"""
