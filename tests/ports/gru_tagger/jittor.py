import jittor as jt
from jittor import nn


class Tagger(nn.Module):
    def __init__(self, words, width, hidden, tags):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.drop = nn.Dropout(0.2)
        self.gru = nn.GRU(width, hidden, bidirectional=True)
        self.dense = nn.Linear(2 * hidden + width, 20)
        self.out = nn.Linear(20, tags)

    def execute(self, words):
        x = self.drop(self.embed(words))
        # Jittor's GRU takes time before batch.
        y = self.gru(x.permute(1, 0, 2))[0].permute(1, 0, 2)
        x = jt.concat([y, x], dim=-1)
        return self.out(nn.elu(self.dense(x)))


def build(words=40, width=12, hidden=14, tags=6):
    return Tagger(words, width, hidden, tags)
