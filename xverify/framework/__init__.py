"""The interface of a framework adapter, the discovery of adapters, and the recording of what layers compute.

It may import workload, weights and errors.
"""
