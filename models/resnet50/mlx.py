from mlx import nn

from xverify.models.mlx_layers import AdaptiveAvgPool2d, Flatten

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 152: (3, 8, 36, 3)}


def convolution(inputs, outputs, kernel, stride):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


def projection(inputs, outputs, stride):
    """What brings the input of a block to the shape of its output; None where it has this shape."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm(outputs))


class Basic(nn.Module):
    """Convolutions 3×3 (with the stride) and 3×3, and a projection where the shape changes."""

    expansion = 1

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = convolution(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm(width)
        self.relu = nn.ReLU()
        self.conv2 = convolution(width, width, 3, 1)
        self.bn2 = nn.BatchNorm(width)
        self.downsample = projection(inputs, width, stride)

    def __call__(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """Convolutions 1×1, 3×3 (with the stride) and 1×1, and a projection where the shape changes."""

    expansion = 4

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = convolution(inputs, width, 1, 1)
        self.bn1 = nn.BatchNorm(width)
        self.conv2 = convolution(width, width, 3, stride)
        self.bn2 = nn.BatchNorm(width)
        self.conv3 = convolution(width, 4 * width, 1, 1)
        self.bn3 = nn.BatchNorm(4 * width)
        self.relu = nn.ReLU()
        self.downsample = projection(inputs, 4 * width, stride)

    def __call__(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, depth, classes):
        super().__init__()
        kind = Basic if depth == 18 else Bottleneck
        self.conv1 = convolution(3, 64, 7, 2)
        self.bn1 = nn.BatchNorm(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        width = 64
        for stage, count in enumerate(BLOCKS[depth], start=1):
            blocks = []
            for index in range(count):
                stride = 2 if stage > 1 and index == 0 else 1
                blocks.append(kind(width, 64 * 2 ** (stage - 1), stride))
                width = kind.expansion * 64 * 2 ** (stage - 1)
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
        self.avgpool = AdaptiveAvgPool2d(1)
        self.flatten = Flatten()
        self.fc = nn.Linear(width, classes)

    def __call__(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.flatten(self.avgpool(x)))


def build(depth=50, classes=1000, size=224):
    return ResNet(depth, classes)
