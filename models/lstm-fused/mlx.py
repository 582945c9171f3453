from mlx import nn

from xverify.models.mlx_layers import LSTM


class LanguageModel(nn.Module):
    def __init__(self, vocabulary, embedding, hidden, layers):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = LSTM(embedding, hidden, layers)
        self.fc = nn.Linear(hidden, vocabulary)

    def __call__(self, tokens):
        return self.fc(self.lstm(self.embedding(tokens)))


def build(vocabulary=10_001, embedding=128, hidden=256, layers=3, length=50):
    return LanguageModel(vocabulary, embedding, hidden, layers)
