from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="part-of-speech tagger: embedding, bidirectional GRU, 6 scores for each of 9 words",
    batch=3,
    inputs={"words": TensorSpec(("N", 9), dtype="int64", low=0, high=40)},
    outputs={"scores": TensorSpec(("N", 9, 6))},
)
