from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="UNet of Hugging Face's diffusers: images 10×14, widths 8 and 12, attention in the middle",
    item="image",
    batch=4,
    inputs={
        "sample": TensorSpec(("N", 3, 10, 14), layout="NCHW"),
        "timestep": TensorSpec(("N",), dtype="int64", low=0, high=1000),
    },
    outputs={"sample": TensorSpec(("N", 3, 10, 14), layout="NCHW")},
)
