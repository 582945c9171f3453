from jittor import nn


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, width)

    def execute(self, x):
        x = self.act(self.fc1(x))
        return self.fc2(x)


class Block(nn.Module):
    def __init__(self, patches, width):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-5)
        self.norm2 = nn.LayerNorm(width, eps=1e-5)
        self.tokens = Mlp(patches, 10)
        self.channels = Mlp(width, 32)

    def execute(self, x):
        y = self.norm1(x).permute(0, 2, 1)
        x = x + self.tokens(y).permute(0, 2, 1)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, patches, width, depth, classes):
        super().__init__()
        self.patch = nn.Conv2d(3, width, kernel_size=4, stride=4)
        self.blocks = nn.ModuleList([Block(patches, width) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def execute(self, image):
        x = self.patch(image)
        n, c, h, w = x.shape
        x = x.reshape(n, c, h * w).permute(0, 2, 1)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


def build(patches=12, width=20, depth=2, classes=6):
    return Mixer(patches, width, depth, classes)
