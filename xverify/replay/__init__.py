"""Computes the layers of a model again in float64, forward and backward, and compares them with what a framework captured.

It judges, and asks an object of ``causes.Causes`` for explanations. It may import float64, verdict, workload, framework, and
everything below those.
"""
