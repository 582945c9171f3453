import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, words, width, hidden, classes):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)
        self.lstm = nn.LSTM(width, hidden, batch_first=True)
        self.project = nn.Linear(hidden, 9)
        self.score = nn.Linear(9, 1, bias=False)
        self.norm = nn.LayerNorm(hidden)
        self.classify = nn.Linear(hidden, classes)

    def forward(self, tokens):
        states, _ = self.lstm(self.embed(tokens))
        scores = self.score(torch.tanh(self.project(states))).squeeze(-1)
        weights = scores.masked_fill(tokens == 0, float("-inf")).softmax(-1)
        pooled = torch.bmm(weights.unsqueeze(1), states).squeeze(1)
        return self.classify(self.norm(pooled)), weights


def build(words=8, width=10, hidden=16, classes=5):
    return Classifier(words, width, hidden, classes)
