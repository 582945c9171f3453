"""The layers of a model computed again in float64, forward and backward; this is the only package beside the adapters
that imports torch.

It may import verdict, workload, framework, and everything below those.
"""
