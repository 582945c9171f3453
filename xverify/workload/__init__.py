"""Describes what is computed: the spec of a model, its weights and inputs, data sets, and optimizers.

It may import weights and errors.
"""
