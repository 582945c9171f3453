"""The reference of a run: the checked request, the weights and inputs of every subject, and the outputs that they
are judged by.

It may import worker, environments, and everything below those.
"""
