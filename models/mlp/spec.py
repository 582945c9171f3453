from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="multi-layer perceptron 784-512-10, the MNIST classifier",
    task="classification",
    item="image",
    batch=32,
    inputs={"x": TensorSpec(("N", 784))},
    outputs={"logits": TensorSpec(("N", 10))},
)
