from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="block of a diffusion model made of diffusers' parts: residual block, self- and cross-attention, time embedding",
    item="image",
    batch=3,
    inputs={
        "sample": TensorSpec(("N", 8, 5, 6), layout="NCHW"),
        "timestep": TensorSpec(("N",), dtype="int64", low=0, high=1000),
        "text": TensorSpec(("N", 7, 10)),
    },
    outputs={"sample": TensorSpec(("N", 12, 5, 6), layout="NCHW")},
    targets={"wanted": TensorSpec(("N", 12, 5, 6), layout="NCHW")},
    loss="mse",
)
