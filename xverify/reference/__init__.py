"""The reference of a run: the checked request, the weights and inputs that every subject gets, and the outputs they
are judged by.

It may import worker, environments, and everything below those.
"""
