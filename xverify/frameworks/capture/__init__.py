"""Captures: calls of a model that ``xverify_recorder.py`` recorded on another machine."""
