"""One target format of ``xverify convert`` in each file, found by its name.

A file imports its framework inside of the methods that a worker calls. It may import frameworks' adapters and what is below them.
"""
