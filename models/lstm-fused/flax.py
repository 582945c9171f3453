from flax import nnx

from xverify.models.flax_layers import LSTM


class LanguageModel(nnx.Module):
    def __init__(self, vocabulary, embedding, hidden, layers, rngs):
        self.embedding = nnx.Embed(vocabulary, embedding, rngs=rngs)
        self.lstm = LSTM(embedding, hidden, layers, rngs=rngs)
        self.fc = nnx.Linear(hidden, vocabulary, rngs=rngs)

    def __call__(self, tokens):
        return self.fc(self.lstm(self.embedding(tokens)))


def build(vocabulary=10_001, embedding=128, hidden=256, layers=3, length=50):
    return LanguageModel(vocabulary, embedding, hidden, layers, nnx.Rngs(0))
