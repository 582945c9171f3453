"""What changed from result to result of a folder: files are read into an index, and each series of results is compared.

It needs DuckDB, which is imported when an index is opened.
"""
