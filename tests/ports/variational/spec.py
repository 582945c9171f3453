from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="variational autoencoder for small images, which decodes the mean when it does not train",
    batch=3,
    inputs={"image": TensorSpec(("N", 1, 16, 12), layout="NCHW", low=0, high=1)},
    outputs={
        "reconstruction": TensorSpec(("N", 1, 16, 12), layout="NCHW"),
        "mean": TensorSpec(("N", 7)),
        "logvar": TensorSpec(("N", 7)),
    },
)
