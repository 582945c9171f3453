from keras import Model, initializers, ops
from keras.layers import Dense, Embedding, Layer


class Cell(Layer):
    """One step of one layer. The rows of the gates are in the order i, f, g, o."""

    canonical_weights = {name: (name, None) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}

    def __init__(self, inputs, hidden, **more):
        super().__init__(**more)
        self.weight_ih = self.uniform(hidden, (4 * hidden, inputs), "weight_ih")
        self.weight_hh = self.uniform(hidden, (4 * hidden, hidden), "weight_hh")
        self.bias_ih = self.uniform(hidden, (4 * hidden,), "bias_ih")
        self.bias_hh = self.uniform(hidden, (4 * hidden,), "bias_hh")
        self.built = True

    def call(self, x, h, c):
        gates = x @ ops.transpose(self.weight_ih) + self.bias_ih + h @ ops.transpose(self.weight_hh) + self.bias_hh
        i, f, g, o = ops.split(gates, 4, 1)
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        h = ops.sigmoid(o) * ops.tanh(c)
        return h, c

    def uniform(self, hidden, shape, name):
        bound = hidden**-0.5
        return self.add_weight(shape=shape, initializer=initializers.RandomUniform(-bound, bound), name=name)


class LanguageModel(Model):
    def __init__(self, vocabulary, embedding, hidden, layers, length, loop):
        super().__init__()
        self.hidden = hidden
        self.length = length
        self.over_time = {"unrolled": self.unroll, "while": self.scan}[loop]
        self.embedding = Embedding(vocabulary, embedding, name="embedding")
        self.cells = [Cell(hidden if layer else embedding, hidden, name=f"cells.{layer}") for layer in range(layers)]
        self.fc = Dense(vocabulary, name="fc")
        self.embedding.build()
        self.fc.build((None, length, hidden))

    def call(self, tokens):
        x = self.embedding(tokens)
        for cell in self.cells:
            x = self.over_time(cell, x)
        return self.fc(x)

    def unroll(self, cell, x):
        h = c = ops.zeros((ops.shape(x)[0], self.hidden), x.dtype)
        outputs = []
        for t in range(self.length):
            h, c = cell(x[:, t], h, c)
            outputs.append(h)
        return ops.stack(outputs, 1)

    def scan(self, cell, x):
        """The same as a loop in the graph, for any length of x."""

        def step(state, x):
            state = cell(x, *state)
            return state, state  # TensorFlow requires that a step returns the structure of the state

        zeros = ops.zeros((ops.shape(x)[0], self.hidden), x.dtype)
        _, (outputs, _) = ops.scan(step, (zeros, zeros), ops.transpose(x, (1, 0, 2)))
        return ops.transpose(outputs, (1, 0, 2))


def build(vocabulary=10_001, embedding=128, hidden=256, layers=3, length=50, loop="unrolled"):
    return LanguageModel(vocabulary, embedding, hidden, layers, length, loop)
