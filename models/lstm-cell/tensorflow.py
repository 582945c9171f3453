from keras import Model, ops
from keras.layers import Dense, Embedding, LSTMCell


class LanguageModel(Model):
    def __init__(self, vocabulary, embedding, hidden, layers, length):
        super().__init__()
        self.hidden = hidden
        self.length = length
        self.embedding = Embedding(vocabulary, embedding, name="embedding")
        self.cells = [LSTMCell(hidden, name=f"cells.{layer}") for layer in range(layers)]
        self.fc = Dense(vocabulary, name="fc")
        self.embedding.build()
        for layer, cell in enumerate(self.cells):
            cell.build((None, hidden if layer else embedding))
        self.fc.build((None, length, hidden))

    def call(self, tokens):
        x = self.embedding(tokens)
        for cell in self.cells:
            x = self.unroll(cell, x)
        return self.fc(x)

    def unroll(self, cell, x):
        h = c = ops.zeros((ops.shape(x)[0], self.hidden), x.dtype)
        outputs = []
        for t in range(self.length):
            h, (_, c) = cell(x[:, t], (h, c))
            outputs.append(h)
        return ops.stack(outputs, 1)


def build(vocabulary=10_001, embedding=128, hidden=256, layers=3, length=50):
    return LanguageModel(vocabulary, embedding, hidden, layers, length)
