"""Receipts: folders that hold all that a run was made from, so that it can be run again and the verdicts be compared.

This package imports what is below it; the engine writes receipts and runs them again.
"""
