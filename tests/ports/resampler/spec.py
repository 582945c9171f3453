from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="Perceiver resampler: latents attend to the features of several frames and to themselves",
    batch=3,
    inputs={"features": TensorSpec(("N", 2, 7, 16))},
    outputs={"latents": TensorSpec(("N", 5, 16))},
)
