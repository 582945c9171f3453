"""One run: subjects started, timed and judged in turn, until there is a result.

It may import training, reference, worker, replay's messages, and everything below those.
"""
