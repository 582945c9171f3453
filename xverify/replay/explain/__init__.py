"""The search for what explains a difference: known faults, formulas of glue code, other roundings; and the catalogue of faults."""
