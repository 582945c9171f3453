"""Makes and finds separate environments for frameworks that cannot be installed beside the others.

It may import framework, host, and everything below those.
"""
