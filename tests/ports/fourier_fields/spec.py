from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="density and colour at points of space, from sines and cosines of their coordinates",
    batch=3,
    inputs={"points": TensorSpec(("N", 20, 3), low=-1, high=1), "direction": TensorSpec(("N", 3))},
    outputs={"density": TensorSpec(("N", 20)), "colour": TensorSpec(("N", 20, 3))},
)
