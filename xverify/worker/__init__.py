"""The worker process of one subject (``python -m xverify.worker``): it answers the requests in ``messages``.

It may import messages, replay (in the worker of the reference, when it is needed), framework, and everything below those.
"""
