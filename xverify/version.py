"""The version of xverify."""

__version__ = "0.1.0"
