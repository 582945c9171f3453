import jittor as jt
from jittor import nn


class Classifier(nn.Module):
    def __init__(self, words, width, hidden, classes):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)
        self.lstm = nn.LSTM(width, hidden)
        self.project = nn.Linear(hidden, 9)
        self.score = nn.Linear(9, 1, bias=False)
        self.norm = nn.LayerNorm(hidden)
        self.classify = nn.Linear(hidden, classes)

    def execute(self, tokens):
        x = self.embed(tokens)
        states, _ = self.lstm(x.transpose(1, 0, 2))
        states = states.transpose(1, 0, 2)
        scores = self.score(jt.tanh(self.project(states)))
        scores = scores.masked_fill((tokens == 0).unsqueeze(-1), -1e9)
        weights = nn.softmax(scores, dim=1)
        pooled = (weights * states).sum(dim=1)
        return self.classify(self.norm(pooled)), weights.squeeze(-1)


def build(words=8, width=10, hidden=16, classes=5):
    return Classifier(words, width, hidden, classes)
