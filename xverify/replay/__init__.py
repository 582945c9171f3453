"""The layers of a model are computed again in float64, forward and backward, and compared with what a framework captured.

Apart from the adapters, only this package imports torch. It may import verdict, workload, framework, and everything
below those.
"""
