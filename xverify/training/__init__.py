"""Training parity: the checks of one training step and of the loss curve, and optimizers without a model.

It may import reference, worker, and everything below those.
"""
