"""The worker process of one subject: the parent's end, the messages between both, and the worker's end.

It may import environments (the parent's end), replay (the reference's worker, when it is asked to), framework, and
everything below those.
"""
