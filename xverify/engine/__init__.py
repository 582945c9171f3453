"""One run: it starts, times and judges the subjects, and makes the result.

It may import training, reference, worker, replay's messages, and everything below those.
"""
