"""Converts a model with the frameworks' own converters, and checks the file at once (``xverify convert``).

It may import every package below it, among them the reference of a run and the checks of model files.
"""
