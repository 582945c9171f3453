"""What a run leaves behind: frozen records, and the file they are written to and read from.

It may import errors.
"""
