from flax import nnx

from xverify.models.flax_layers import AdaptiveAvgPool2d, Flatten, ReLU


def build(width, kernel):
    rngs = nnx.Rngs(0)
    return nnx.Sequential(
        nnx.Conv(3, width, tuple(kernel), padding="VALID", rngs=rngs),
        nnx.BatchNorm(width, rngs=rngs),
        ReLU(),
        AdaptiveAvgPool2d(1),
        Flatten(),
        nnx.Linear(width, 4, rngs=rngs),
    )
