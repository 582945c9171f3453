from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="vision transformer (ViT), hand-written: 64×64 images in 8×8 patches, 6 blocks of width 192",
    task="classification",
    item="image",
    batch=8,
    inputs={"x": TensorSpec(("N", 3, 64, 64), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 10))},
)
