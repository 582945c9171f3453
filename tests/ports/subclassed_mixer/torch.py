from torch import nn


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, patches, width):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.tokens = Mlp(patches, 10)
        self.norm2 = nn.LayerNorm(width)
        self.channels = Mlp(width, 32)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, patches, width, depth, classes):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.Sequential(*(Block(patches, width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = self.norm(self.blocks(x))
        return self.head(x.mean(1))


def build(patches=12, width=20, depth=2, classes=6):
    return Mixer(patches, width, depth, classes)
