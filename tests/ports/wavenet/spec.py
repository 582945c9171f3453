from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="WaveNet: dilated causal convolutions with gated activations, conditioned on frames that are upsampled",
    batch=3,
    inputs={
        "samples": TensorSpec(("N", 24), dtype="int64", low=0, high=32),
        "frames": TensorSpec(("N", 5, 6)),
    },
    outputs={"logits": TensorSpec(("N", 32, 24))},
)
