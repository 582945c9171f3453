import keras
from keras import layers, ops


class Forecast(keras.Model):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.gates = layers.Dense(2 * hidden, activation="sigmoid", name="cell.gates")
        self.candidate = layers.Dense(hidden, name="cell.candidate")
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="cell.norm")
        self.out = layers.Dense(outputs, name="out")

    def step(self, x, h):
        r, z = ops.split(self.gates(ops.concatenate([x, h], -1)), 2, -1)
        n = ops.tanh(self.norm(self.candidate(ops.concatenate([x, r * h], -1))))
        return n + z * (h - n)

    def call(self, series, state):
        states = []
        for t in range(series.shape[1]):
            state = self.step(series[:, t], state)
            states.append(self.out(state))
        return ops.stack(states, 1), state


def build(inputs=5, hidden=12, outputs=3):
    model = Forecast(inputs, hidden, outputs)
    model(ops.zeros((1, 7, inputs)), ops.zeros((1, hidden)))
    return model
