"""The search for what explains a difference: known faults, formulas of glue code, other roundings; and the catalogue of faults.

It needs torch. It may import replay and everything below it.
"""
