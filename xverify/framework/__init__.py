"""What an adapter promises, how adapters are found, and how the calls of layers are captured.

It may import workload, errors and weights.
"""
