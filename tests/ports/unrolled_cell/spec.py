from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="forecast of a time series: a gated cell with a normalised candidate, written out and unrolled over 7 steps",
    item="series",
    batch=4,
    inputs={"series": TensorSpec(("N", 7, 5)), "state": TensorSpec(("N", 12))},
    outputs={"forecast": TensorSpec(("N", 7, 3)), "last": TensorSpec(("N", 12))},
)
