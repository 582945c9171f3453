from jittor import nn

from .blocks import BLOCKS


class Hardsigmoid(nn.Module):
    def execute(self, x):
        return nn.relu6(x + 3) / 6


class Hardswish(nn.Module):
    def execute(self, x):
        return x * nn.relu6(x + 3) / 6


class SqueezeExcitation(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.activation = nn.ReLU()
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.scale_activation = Hardsigmoid()

    def execute(self, x):
        scale = self.avgpool(x)
        scale = self.fc1(scale)
        scale = self.activation(scale)
        scale = self.fc2(scale)
        return self.scale_activation(scale) * x


def normed(inputs, outputs, kernel, stride=1, groups=1, activation=None):
    """A convolution, a batch norm and an optional activation."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
    return nn.Sequential(conv, norm, *([activation()] if activation else []))


class InvertedResidual(nn.Module):
    def __init__(self, inputs, kernel, expanded, outputs, squeezed, hard_swish, stride):
        super().__init__()
        activation = Hardswish if hard_swish else nn.ReLU
        layers = []
        if expanded != inputs:
            layers.append(normed(inputs, expanded, 1, activation=activation))
        layers.append(normed(expanded, expanded, kernel, stride, groups=expanded, activation=activation))
        if squeezed:
            layers.append(SqueezeExcitation(expanded, squeezed))
        layers.append(normed(expanded, outputs, 1))
        self.block = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def execute(self, x):
        out = self.block(x)
        return out + x if self.residual else out


class MobileNetV3(nn.Module):
    def __init__(self, classes):
        super().__init__()
        channels = [16, *(block[2] for block in BLOCKS)]
        self.features = nn.Sequential(
            normed(3, 16, 3, 2, activation=Hardswish),
            *(InvertedResidual(inputs, *block) for inputs, block in zip(channels, BLOCKS)),
            normed(96, 576, 1, activation=Hardswish),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(576, 1024),
            Hardswish(),
            nn.Dropout(0.2),
            nn.Linear(1024, classes),
        )

    def execute(self, x):
        x = self.features(x)
        x = self.avgpool(x)
        x = x.reshape(x.shape[0], -1)
        return self.classifier(x)


def build(classes=1000, size=224):
    return MobileNetV3(classes)
