import jittor as jt
from jittor import nn


class LanguageModel(nn.Module):
    def __init__(self, vocabulary, embedding, hidden, layers, length):
        super().__init__()
        self.hidden = hidden
        self.length = length
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.cells = nn.ModuleList([nn.LSTMCell(hidden if layer else embedding, hidden) for layer in range(layers)])
        self.fc = nn.Linear(hidden, vocabulary)

    def execute(self, tokens):
        x = self.embedding(tokens)
        for cell in self.cells:
            h = jt.zeros((x.shape[0], self.hidden), x.dtype)
            c = jt.zeros((x.shape[0], self.hidden), x.dtype)
            outputs = []
            for t in range(self.length):
                h, c = cell(x[:, t], (h, c))
                outputs.append(h)
            x = jt.stack(outputs, 1)
        return self.fc(x)


def build(vocabulary=10_001, embedding=128, hidden=256, layers=3, length=50):
    return LanguageModel(vocabulary, embedding, hidden, layers, length)
