"""Decoders: one sequence computed in every way, each beside the reference's full pass in float64.

``comparison`` asks the workers, ``ways`` lists the ways, and ``judging`` judges what they computed.
"""
