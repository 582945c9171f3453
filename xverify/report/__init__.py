"""How results are shown: tables and sentences in the terminal, loss curves, and Markdown.

It may import results, verdict, timing, and everything below those, but not replay.
"""
