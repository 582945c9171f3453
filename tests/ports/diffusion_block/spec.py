from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="denoiser of a diffusion model: two residual blocks, scaled and shifted by an embedding of the time step",
    item="image",
    batch=3,
    inputs={
        "x": TensorSpec(("N", 3, 10, 14), layout="NCHW"),
        "t": TensorSpec(("N",), dtype="int64", low=0, high=1000),
    },
    outputs={"noise": TensorSpec(("N", 3, 10, 14), layout="NCHW")},
)
