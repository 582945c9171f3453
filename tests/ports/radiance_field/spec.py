from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="neural radiance field: encoded points of rays, density and colour of each, and the rendered pixel",
    item="ray",
    batch=6,
    inputs={
        "origins": TensorSpec(("N", 3), low=-1, high=1),
        "directions": TensorSpec(("N", 3), low=-1, high=1),
    },
    outputs={"rgb": TensorSpec(("N", 3)), "depth": TensorSpec(("N",)), "opacity": TensorSpec(("N",))},
)
