from torch import nn


class Encoder(nn.Module):
    def __init__(self, words=40, width=16):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.project = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gelu = nn.GELU()
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        x = self.embed(tokens)
        h = self.norm1(x)
        scores = self.query(h) @ self.key(h).transpose(1, 2) / 4.0
        x = x + self.project(scores.softmax(-1) @ self.value(h))
        return self.head(x + self.narrow(self.gelu(self.wide(self.norm2(x)))))


def build():
    return Encoder()


def loss(outputs, targets):
    logits, labels = outputs["logits"].flatten(0, 1), targets["labels"].flatten()
    return nn.functional.cross_entropy(logits, labels, ignore_index=-100, label_smoothing=0.1)
