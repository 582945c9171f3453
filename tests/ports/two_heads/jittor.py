from jittor import nn


class Head(nn.Module):
    def __init__(self, width, outputs):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Conv2d(width, outputs, 1)

    def execute(self, x):
        return self.out(nn.relu(self.conv(x)))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Conv2d(3, 8, 3, 2, 1)
        self.down2 = nn.Conv2d(8, 14, 3, 2, 1)
        self.up = nn.ConvTranspose(14, 8, 4, stride=2, padding=1)
        self.bn = nn.BatchNorm(8)
        self.heat = Head(8, 4)
        self.size = Head(8, 2)

    def execute(self, image):
        fine = nn.silu(self.down1(image))
        coarse = nn.silu(self.down2(fine))
        x = nn.relu(self.bn(self.up(coarse)) + fine)
        heat = self.heat(x).sigmoid()
        size = nn.softplus(self.size(x))
        return heat, size


def build():
    return Detector()
