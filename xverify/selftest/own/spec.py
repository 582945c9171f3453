from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="the multi-layer perceptron 784-512-10 with a training step of its own: clipping and two micro-batches",
    batch=32,
    inputs={"x": TensorSpec(("N", 784))},
    outputs={"logits": TensorSpec(("N", 10))},
    targets={"label": TensorSpec(("N",), "int64", 0, 10)},
)
