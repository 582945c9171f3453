import jittor as jt
from jittor import nn


class Encoder(nn.Module):
    def __init__(self, words=40, width=16):
        self.embed = nn.Embedding(words, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.project = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gelu = nn.GELU()
        self.head = nn.Linear(width, words)

    def execute(self, tokens):
        x = self.embed(tokens)
        h = self.norm1(x)
        scores = self.query(h) @ self.key(h).transpose(1, 2) / 4.0
        x = x + self.project(nn.softmax(scores, -1) @ self.value(h))
        return self.head(x + self.narrow(self.gelu(self.wide(self.norm2(x)))))


def build():
    return Encoder()


def loss(outputs, targets):
    logits, labels = outputs["logits"], targets["labels"]
    kept = (labels != -100).float32()
    largest = logits.max(-1, keepdims=True).stop_grad()
    shifted = logits - largest
    classes = (jt.arange(logits.shape[-1]) == labels.unsqueeze(-1)).float32()
    smooth = 0.9 * classes + 0.1 / logits.shape[-1]
    values = shifted.exp().sum(-1).log() - (shifted * smooth).sum(-1)
    return (values * kept).sum() / kept.sum()
