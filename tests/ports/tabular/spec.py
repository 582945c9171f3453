from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="wide and deep network on three categorical columns and five numbers",
    batch=4,
    inputs={
        "city": TensorSpec(("N",), dtype="int64", low=0, high=40),
        "device": TensorSpec(("N",), dtype="int64", low=0, high=6),
        "hour": TensorSpec(("N",), dtype="int64", low=0, high=24),
        "numbers": TensorSpec(("N", 5), low=0, high=100),
    },
    outputs={"clicked": TensorSpec(("N", 1))},
)
