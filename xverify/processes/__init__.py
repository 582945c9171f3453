"""The parent's end of a worker process: starting it, asking it, waiting for it, and reporting how it ended.

It may import messages, environments, framework, and everything below those; never worker or replay, which only a worker loads.
"""
