from xverify import ModelSpec, Recipe, TensorSpec

SPEC = ModelSpec(
    description="encoder of Whisper of Hugging Face's transformers: 26 frames of 10 mel bands, 2 layers of width 24, 3 heads",
    item="recording",
    batch=4,
    inputs={"input_features": TensorSpec(("N", 10, 26), layout="NCL")},
    outputs={"last_hidden_state": TensorSpec(("N", 13, 24))},
    targets={"hidden": TensorSpec(("N", 13, 24))},
    loss="mse",
    training=Recipe(frozen=("embed_positions.weight",)),
)
