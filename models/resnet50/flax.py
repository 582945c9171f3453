from flax import nnx

from xverify.models.flax_layers import AdaptiveAvgPool2d, Flatten, MaxPool2d, ReLU

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 152: (3, 8, 36, 3)}


def convolution(inputs, outputs, kernel, stride, rngs):
    return nnx.Conv(inputs, outputs, (kernel, kernel), stride, padding=kernel // 2, use_bias=False, rngs=rngs)


def norm(width, rngs):
    return nnx.BatchNorm(width, momentum=0.9, rngs=rngs)


def projection(inputs, outputs, stride, rngs):
    """What brings the input of a block to the shape of its output; None where it has this shape."""
    if stride == 1 and inputs == outputs:
        return None
    return nnx.Sequential(convolution(inputs, outputs, 1, stride, rngs), norm(outputs, rngs))


class Basic(nnx.Module):
    """Convolutions 3×3 (with the stride) and 3×3, and a projection where the shape changes."""

    expansion = 1

    def __init__(self, inputs, width, stride, rngs):
        self.conv1 = convolution(inputs, width, 3, stride, rngs)
        self.bn1 = norm(width, rngs)
        self.relu = ReLU()
        self.conv2 = convolution(width, width, 3, 1, rngs)
        self.bn2 = norm(width, rngs)
        self.downsample = projection(inputs, width, stride, rngs)

    def __call__(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nnx.Module):
    """Convolutions 1×1, 3×3 (with the stride) and 1×1, and a projection where the shape changes."""

    expansion = 4

    def __init__(self, inputs, width, stride, rngs):
        self.conv1 = convolution(inputs, width, 1, 1, rngs)
        self.bn1 = norm(width, rngs)
        self.conv2 = convolution(width, width, 3, stride, rngs)
        self.bn2 = norm(width, rngs)
        self.conv3 = convolution(width, 4 * width, 1, 1, rngs)
        self.bn3 = norm(4 * width, rngs)
        self.relu = ReLU()
        self.downsample = projection(inputs, 4 * width, stride, rngs)

    def __call__(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nnx.Module):
    def __init__(self, depth, classes, rngs):
        kind = Basic if depth == 18 else Bottleneck
        self.conv1 = convolution(3, 64, 7, 2, rngs)
        self.bn1 = norm(64, rngs)
        self.relu = ReLU()
        self.maxpool = MaxPool2d(3, 2, 1)
        width = 64
        for stage, count in enumerate(BLOCKS[depth], start=1):
            blocks = []
            for index in range(count):
                stride = 2 if stage > 1 and index == 0 else 1
                blocks.append(kind(width, 64 * 2 ** (stage - 1), stride, rngs))
                width = kind.expansion * 64 * 2 ** (stage - 1)
            setattr(self, f"layer{stage}", nnx.Sequential(*blocks))
        self.avgpool = AdaptiveAvgPool2d(1)
        self.flatten = Flatten()
        self.fc = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.flatten(self.avgpool(x)))


def build(depth=50, classes=1000, size=224):
    return ResNet(depth, classes, nnx.Rngs(0))
