from jittor import nn


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=2, dilation=2)
        self.act = nn.PReLU(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)

    def execute(self, x):
        return self.conv2(self.act(self.conv1(x))) * 0.2 + x


class SuperResolution(nn.Module):
    def __init__(self, scale, width, blocks):
        super().__init__()
        self.pad = nn.ReflectionPad2d(2)
        self.head = nn.Conv2d(3, width, 5)
        self.body = nn.Sequential(*[ResidualBlock(width) for _ in range(blocks)])
        self.tail = nn.Conv2d(width, 3 * scale**2, 3, padding=1)
        self.shuffle = nn.PixelShuffle(scale)
        self.upsample = nn.Upsample(scale_factor=scale, mode="bilinear")

    def execute(self, x):
        y = self.head(self.pad(x))
        y = self.body(y)
        return self.shuffle(self.tail(y)) + self.upsample(x)


def build(scale=3, width=14, blocks=2):
    return SuperResolution(scale, width, blocks)
