import jittor as jt
from jittor import nn


class Down(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv(in_channels, out_channels, 4, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm(out_channels)
        self.act = nn.LeakyReLU(0.2)

    def execute(self, x):
        x = self.conv(x)
        x = self.norm(x)
        return self.act(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.ConvTranspose(in_channels, out_channels, 4, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm(out_channels)
        self.relu = nn.ReLU()

    def execute(self, x, skip):
        x = self.relu(self.norm(self.conv(x)))
        return jt.concat((x, skip), dim=1)


class Generator(nn.Module):
    def __init__(self, widths, out_channels):
        super().__init__()
        self.down1 = Down(3, widths[0])
        self.down2 = Down(widths[0], widths[1])
        self.down3 = Down(widths[1], widths[2])
        self.up2 = Up(widths[2], widths[1])
        self.up1 = Up(2 * widths[1], widths[0])
        self.last = nn.ConvTranspose(2 * widths[0], out_channels, 3, stride=2, padding=1, output_padding=1)
        self.tanh = nn.Tanh()

    def execute(self, x):
        x1 = self.down1(x)
        x2 = self.down2(x1)
        x3 = self.down3(x2)
        y = self.up2(x3, x2)
        y = self.up1(y, x1)
        return self.tanh(self.last(y))


def build(widths=(10, 18, 26), outputs=2):
    return Generator(widths, outputs)
