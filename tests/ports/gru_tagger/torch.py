import torch
import torch.nn.functional as F
from torch import nn


class Tagger(nn.Module):
    def __init__(self, words, width, hidden, tags):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.drop = nn.Dropout(0.2)
        self.gru = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        self.dense = nn.Linear(2 * hidden + width, 20)
        self.out = nn.Linear(20, tags)

    def forward(self, words):
        x = self.drop(self.embed(words))
        y, _ = self.gru(x)
        return self.out(F.elu(self.dense(torch.cat([y, x], -1))))


def build(words=40, width=12, hidden=14, tags=6):
    return Tagger(words, width, hidden, tags)
