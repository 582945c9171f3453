import jittor
from jittor import nn


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()

    def execute(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(x)))


class UNet(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.enc1 = Block(3, width)
        self.pool1 = nn.Pool(2, op="maximum")
        self.enc2 = Block(width, 2 * width)
        self.pool2 = nn.Pool(2, op="maximum")
        self.middle = Block(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.dec2 = Block(4 * width, 2 * width)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.dec1 = Block(3 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def execute(self, x):
        enc1 = self.enc1(x)
        enc2 = self.enc2(self.pool1(enc1))
        x = self.middle(self.pool2(enc2))
        x = self.dec2(jittor.concat([enc2, self.up2(x)], 1))
        x = self.dec1(jittor.concat([enc1, self.up1(x)], 1))
        return self.head(x)


def build(width=16, classes=2, size=128):
    return UNet(width, classes)
