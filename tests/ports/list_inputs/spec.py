from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="a subclassed Keras model that build() does not call, whose call takes a list of two inputs",
    batch=3,
    inputs={"image": TensorSpec(("N", 3, 8, 8), layout="NCHW"), "meta": TensorSpec(("N", 5))},
    outputs={"score": TensorSpec(("N", 4))},
)
