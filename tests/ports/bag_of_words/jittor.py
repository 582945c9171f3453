import jittor as jt
from jittor import nn


class Net(nn.Module):
    def __init__(self, width=10):
        super().__init__()
        self.words = nn.Embedding(40, width)
        self.tags = nn.Embedding(12, width)
        self.codes = nn.Embedding(9, width)
        self.conv = nn.Conv2d(3, width, 3)
        self.hidden = nn.Linear(4 * width, 12)
        self.head = nn.Linear(12, 6)

    def execute(self, words, tags, codes, image):
        pooled = nn.relu(self.conv(image)).mean(3).mean(2)
        x = [self.words(words).sum(1), self.tags(tags).sum(1) / tags.shape[1], self.codes(codes).max(1), pooled]
        return self.head(nn.relu(self.hidden(jt.concat(x, dim=1))))


def build():
    return Net()
