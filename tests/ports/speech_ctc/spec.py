from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="speech encoder for CTC: two strided convolutions, a conformer block, log-probabilities of characters",
    batch=3,
    inputs={
        "mels": TensorSpec(("N", 33, 20)),
        "lengths": TensorSpec(("N",), dtype="int64", low=12, high=34),
    },
    outputs={"log_probs": TensorSpec(("N", 7, 15))},
)
