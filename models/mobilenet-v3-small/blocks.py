"""MobileNetV3-Small's blocks (Howard et al. 2019, table 2), from the first to the last."""

# kernel, expanded channels, output channels, squeezed channels (0: no squeeze-and-excitation), hard-swish, stride
BLOCKS = (
    (3, 16, 16, 8, False, 2),
    (3, 72, 24, 0, False, 2),
    (3, 88, 24, 0, False, 1),
    (5, 96, 40, 24, True, 2),
    (5, 240, 40, 64, True, 1),
    (5, 240, 40, 64, True, 1),
    (5, 120, 48, 32, True, 1),
    (5, 144, 48, 40, True, 1),
    (5, 288, 96, 72, True, 2),
    (5, 576, 96, 144, True, 1),
    (5, 576, 96, 144, True, 1),
)
