"""The worker process of one subject: code of the parent, messages, and code of the worker.

It may import environments (in the parent), replay (in the worker of the reference, when it is needed), framework, and everything
below those.
"""
