from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"z": TensorSpec(("N", 4))},
    outputs={"x": TensorSpec(("N", 6))},
    targets={"real": TensorSpec(("N", 6)), "mix": TensorSpec(("N", 1), "float32", 0.0, 1.0)},
    batch=12,
    description="Wasserstein GAN with a gradient penalty, which differentiates a gradient",
)
