from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 8)), "t": TensorSpec(("N",), "int64", 0, 100)},
    outputs={"eps": TensorSpec(("N", 8))},
    targets={"noise": TensorSpec(("N", 8))},
    batch=16,
    description="a diffusion model that predicts noise, with an exponential moving average of its weights",
)
