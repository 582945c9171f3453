"""Computes the layers of a model again in float64, forward and backward, and compares them with what a framework captured.

Only this package and the adapters import torch. It may import verdict, workload, framework, and everything below those.
"""
