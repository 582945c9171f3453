from mlx import nn

from xverify.models.mlx_layers import AdaptiveAvgPool2d, Flatten


def build(width, kernel):
    return nn.Sequential(
        nn.Conv2d(3, width, tuple(kernel)),
        nn.BatchNorm(width),
        nn.ReLU(),
        AdaptiveAvgPool2d(1),
        Flatten(),
        nn.Linear(width, 4),
    )
