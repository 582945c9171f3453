"""What is computed: the spec of a model, its inputs, data sets, weights' probe values, and optimizers.

It may import errors and weights.
"""
